"""A disk that is full, fails or cannot be written: what has to be kept is refused, all else goes on, and nothing acked is lost."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from millstream.client.errors import MillstreamError
from millstream.server.durability.journaling import Journaling
from millstream.server.errors import StorageError

from tests.support.clocks import Clocks
from tests.support.failing_disk import FAULTS, FailingDisk
from tests.support.live_server import Harness, running, until

SETUP = [
    "CREATE STREAM plain (v BIGINT) ON ERROR INTO bad",
    "CREATE STREAM kept (v BIGINT) DURABILITY journal",
    "CREATE STREAM safe (v BIGINT) DURABILITY sync",
    "CREATE STREAM fed (v BIGINT) DURABILITY sync",
    "CREATE QUERY every AS SELECT v FROM plain",
    "INSERT INTO fed SELECT v FROM plain",
]
DURABLE = ("kept", "safe")


class Driver:
    """Publishes numbers and remembers which were acked and which were refused."""

    def __init__(self, harness: Harness, client: Any) -> None:
        self.harness = harness
        self.client = client
        self.acked: dict[str, list[int]] = {"plain": [], "kept": [], "safe": []}
        self.refused: dict[str, list[int]] = {"plain": [], "kept": [], "safe": []}
        self._number = 0

    async def publish(self, stream: str, *, by_statement: bool = False) -> str | None:
        """Publish the next number; return the code of the refusal, None when it was acked."""
        self._number += 1
        try:
            if by_statement:
                await self.client.execute(f"INSERT INTO {stream} VALUES ({self._number})")
            else:
                ack = await self.client.publish(stream, [{"v": self._number}])
                assert (ack.accepted, ack.rejected_rows) == (1, 0)
        except MillstreamError as error:
            self.refused[stream].append(self._number)
            return error.code
        self.acked[stream].append(self._number)
        return None

    async def accepted(self, stream: str) -> None:
        """Publish until it is accepted again: nobody restarts the server."""
        journal = self.harness.server.application.journaling.journal  # type: ignore[union-attr]
        await until(lambda: not journal.is_failing, "the journal goes on")
        assert await self.publish(stream) is None

    async def held(self, stream: str) -> list[int]:
        """What the journal has of a stream."""
        return [row["v"] for row in (await self.client.query_once(f"SELECT v FROM {stream}")).to_pylist()]


async def begin(harness: Harness) -> Driver:
    client = await harness.client()
    for line in SETUP:
        await client.execute(line)
    harness.server.application.journaling.journal.retry_s = 0.01  # type: ignore[union-attr]
    return Driver(harness, client)


async def found(directory: Path, streams: tuple[str, ...]) -> dict[str, list[int]]:
    async with running(data_dir=str(directory)) as harness:
        driver = Driver(harness, await harness.client())
        return {stream: await driver.held(stream) for stream in streams}


def journal_writes(operation: str, name: str) -> bool:
    return operation == "write" and ".journal" in name


def journal_syncs(operation: str, name: str) -> bool:
    return operation == "sync" and ".journal" in name


def everything(operation: str, name: str) -> bool:
    return True


def writes_and_cuts(operation: str, name: str) -> bool:
    return operation in ("write", "truncate")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: errno.errorcode[fault])
@pytest.mark.parametrize("wanted", [journal_writes, journal_syncs, writes_and_cuts, everything], ids=lambda wanted: wanted.__name__)
def test_durable_publishes_are_refused_and_all_else_goes_on_until_the_disk_is_mended(
    tmp_path: Path, fault: int, wanted: Callable[[str, str], bool]
) -> None:
    disk = FailingDisk()

    async def test() -> dict[str, list[int]]:
        async with running(disk=disk, data_dir=str(tmp_path)) as harness:
            driver = await begin(harness)
            subscription = await driver.client.subscribe("every")
            for stream in driver.acked:
                assert await driver.publish(stream) is None
            disk.breaks(fault, wanted=wanted)
            for _ in range(3):
                assert await driver.publish("safe") == "storage"
                assert await driver.publish("safe", by_statement=True) == "storage"
                assert await driver.publish("kept") == "storage"
                assert await driver.publish("plain") is None
            ack = await driver.client.publish("plain", [{"v": "no number"}])
            assert ack.rejected_rows == 1
            assert driver.client.is_open
            assert (await driver.client.execute("SHOW QUERIES")).rows
            taken: list[int] = []
            while len(taken) < len(driver.acked["plain"]):
                taken += [row["v"] for row in (await asyncio.wait_for(subscription.next_item(), 10)).to_pylist()]
            assert taken == driver.acked["plain"]
            disk.is_mended()
            for stream in DURABLE:
                await driver.accepted(stream)
            await until(lambda: not harness.server.application.host.unfed, "what the query fed is written")
            await asyncio.to_thread(harness.server.application.journaling.wait_safe)  # type: ignore[union-attr]
            assert {s: await driver.held(s) for s in (*DURABLE, "fed")} == {
                **{s: driver.acked[s] for s in DURABLE},
                "fed": driver.acked["plain"],
            }
            return {**{s: driver.acked[s] for s in DURABLE}, "fed": driver.acked["plain"]}

    acked = asyncio.run(test())
    assert asyncio.run(found(tmp_path, (*DURABLE, "fed"))) == acked


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: errno.errorcode[fault])
def test_every_write_point_fails_once_in_turn_and_nothing_acked_is_lost(tmp_path: Path, fault: int) -> None:
    disk = FailingDisk()
    points: set[tuple[str, str]] = set()

    async def test() -> dict[str, list[int]]:
        async with running(disk=disk, data_dir=str(tmp_path)) as harness:
            driver = await begin(harness)
            application = harness.server.application
            journaling = application.journaling
            assert journaling is not None
            for point in range(200):
                disk.breaks(fault, point, times=1)
                for stream in ("kept", "safe"):
                    assert await driver.publish(stream) in (None, "storage")
                with suppress(StorageError, OSError):
                    await application.call(journaling.checkpoint)
                await driver.publish("safe", by_statement=True)
                failed = [*disk.failed]
                points.update((operation, Path(name).suffix) for operation, name in disk.failed)
                disk.is_mended()
                for stream in DURABLE:
                    await driver.accepted(stream)
                if not failed:
                    break
            assert point > 15
            return {stream: driver.acked[stream] for stream in DURABLE}

    acked = asyncio.run(test())
    assert {"write", "sync", "rename", "create", "sync_directory", "sql"} <= {operation for operation, _ in points}
    assert asyncio.run(found(tmp_path, DURABLE)) == acked


def test_a_stream_whose_end_the_disk_refused_has_not_ended(tmp_path: Path) -> None:
    disk = FailingDisk()

    async def test() -> None:
        async with running(disk=disk, data_dir=str(tmp_path)) as harness:
            driver = await begin(harness)
            for stream in DURABLE:
                disk.breaks(errno.EIO, wanted=journal_writes)
                with pytest.raises(MillstreamError) as refused:
                    await driver.client.finish(stream)
                assert refused.value.code == "storage"
                disk.is_mended()
                await driver.accepted(stream)
                await driver.client.finish(stream)
                assert (await driver.client.publish(stream, [{"v": 0}])).rejected_rows == 1

    asyncio.run(test())


def test_windows_of_other_streams_go_on_by_the_clock_while_the_journal_refuses_the_time_of_a_durable_one(tmp_path: Path) -> None:
    disk, clocks = FailingDisk(), Clocks()

    async def test() -> None:
        async with running(disk=disk, data_dir=str(tmp_path), clock=clocks.arrival_clock) as harness:
            driver = await begin(harness)
            subscriptions = {}
            for stream in ("kept", "plain"):
                await driver.client.submit(f"SELECT COUNT(*) AS n FROM {stream} [RANGE 1 SECOND SLIDE 1 SECOND]", name=f"of_{stream}")
                subscriptions[stream] = await driver.client.subscribe(f"of_{stream}")
                assert await driver.publish(stream) is None
            disk.breaks(errno.ENOSPC, wanted=journal_writes)
            clocks.passes(2)
            batch = await asyncio.wait_for(subscriptions["plain"].next_item(), 10)
            assert batch.to_pylist() == [{"n": 1}]
            disk.is_mended()
            batch = await asyncio.wait_for(subscriptions["kept"].next_item(), 10)
            assert batch.to_pylist() == [{"n": 1}]

    asyncio.run(test())


@pytest.mark.parametrize("wanted", [journal_syncs, everything], ids=lambda wanted: wanted.__name__)
def test_retries_hold_no_file_open_and_a_server_stops_while_its_disk_fails(tmp_path: Path, wanted: Callable[[str, str], bool]) -> None:
    disk = FailingDisk()

    async def test() -> None:
        async with running(disk=disk, data_dir=str(tmp_path)) as harness:
            driver = await begin(harness)
            assert await driver.publish("safe") is None
            opened = len(list(Path("/proc/self/fd").iterdir()))
            disk.breaks(errno.EIO, wanted=wanted)
            for _ in range(3):
                assert await driver.publish("safe") == "storage"
            await until(lambda: len(disk.failed) > 40, "many tries")
            assert len(list(Path("/proc/self/fd").iterdir())) <= opened + 1

    asyncio.run(test())
    assert asyncio.run(found(tmp_path, ("safe",))) == {"safe": [1]}


def test_letting_go_of_old_segments_fails_at_each_point_in_turn_and_queries_over_them_answer_as_if_nothing_had(tmp_path: Path) -> None:
    disk = FailingDisk()
    operations: set[str] = set()
    totals = {stream: f"SELECT COUNT(*) AS n, SUM(v) AS total FROM {stream} EMIT FINAL" for stream in DURABLE}

    async def test() -> dict[str, list[int]]:
        nonlocal operations
        async with running(disk=disk, data_dir=str(tmp_path)) as harness:
            driver = await begin(harness)
            journaling = harness.server.application.journaling
            assert isinstance(journaling, Journaling)
            journaling.bounds = replace(journaling.bounds, bytes_max=1)  # each checkpoint lets go of all before it
            for stream, text in totals.items():
                await driver.client.submit(text, name=f"total_{stream}")
            for point in range(200):
                for stream in DURABLE:
                    assert await driver.publish(stream) is None
                disk.breaks(FAULTS[point % len(FAULTS)], point, times=1)
                with suppress(StorageError, OSError):
                    await harness.server.application.call(journaling.checkpoint)
                operations |= {operation for operation, _ in disk.failed}
                done = not disk.failed
                disk.is_mended()
                await until(lambda: not journaling.is_failing, "the journal goes on")
                if done:
                    break
            return driver.acked

    acked = asyncio.run(test())
    assert {"unlink", "sync_directory", "sql", "rename"} <= operations

    async def answers() -> dict[str, list[dict[str, Any]]]:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            return {stream: (await client.query(f"total_{stream}").fetch()).to_pylist() for stream in DURABLE}

    expected = {stream: [{"n": len(acked[stream]), "total": sum(acked[stream])}] for stream in DURABLE}
    assert {s: [{"n": r["n"], "total": int(r["total"])} for r in rows] for s, rows in asyncio.run(answers()).items()} == expected


def test_a_join_goes_on_when_rows_are_taken_back_whose_numbers_it_waited_for(tmp_path: Path) -> None:
    disk, syncs, fails = FailingDisk(), threading.Event(), threading.Event()

    def hold(operation: str, name: str) -> None:
        if journal_syncs(operation, name) and holding:
            syncs.set()
            assert fails.wait(10.0)

    holding = False
    disk.at_point = hold

    async def test() -> None:
        nonlocal holding
        async with running(disk=disk, data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            for text in (
                "CREATE STREAM s (ts BIGINT, k BIGINT) TIMESTAMP BY ts UNIT s DURABILITY sync",
                "CREATE STREAM t (ts BIGINT, k BIGINT) TIMESTAMP BY ts UNIT s",
                "CREATE QUERY q AS SELECT s.k FROM s JOIN t ON s.k = t.k WITHIN 4 SECONDS",
            ):
                await client.execute(text)
            host = harness.server.application.host
            runs: list[bool] = []
            run = host.runtime._gate._executor.run  # type: ignore[attr-defined]

            def seen(order: Any, clock_ns: Any) -> Any:
                receipt = run(order, clock_ns)
                runs.extend(bool(getattr(step, "blocked", False)) for step in receipt.steps)
                return receipt

            host.runtime._gate._executor.run = seen  # type: ignore[attr-defined]
            holding = True
            refused = asyncio.ensure_future(client.publish("s", [{"ts": 1, "k": 1}]))
            assert await asyncio.to_thread(syncs.wait, 10.0)
            await client.publish("t", [{"ts": 1, "k": 1}])
            await until(lambda: True in runs, "the join looks, and finds that something earlier may come")
            at = host.network.ingress.next_seq - 1
            assert not host.have_seen("t", at)
            holding = False
            disk.breaks(wanted=journal_syncs)
            fails.set()
            with pytest.raises(MillstreamError):
                await refused
            await until(lambda: host.have_seen("t", at), "the join has taken the row")
            disk.is_mended()

    asyncio.run(test())
