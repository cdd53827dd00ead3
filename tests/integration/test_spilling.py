"""Rows that wait for a paused query leave memory: publishers run on, the answer is the same, and a disk that refuses makes them wait."""

from __future__ import annotations

import asyncio
import errno
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from millstream.engine.data import limits

from tests.support.failing_disk import FailingDisk
from tests.support.live_server import Harness, running, until

ROWS, BATCH = 40_000, 1_000
CREATE = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, note TEXT) TIMESTAMP BY ts DELAY 2 SECONDS"
QUERY = "CREATE QUERY q AS SELECT k, COUNT(*) AS n, MAX(note) AS note FROM s [RANGE 100 SECONDS SLIDE 100 SECONDS] GROUP BY k"


def batch(first: int) -> Any:
    numbers = range(first, first + BATCH)
    times = pa.array([1_000_000 * (n - n % 7) for n in numbers], pa.timestamp("us", "UTC"))
    return pa.record_batch({"ts": times, "k": [n % 5 for n in numbers], "note": [f"row {n}" for n in numbers]})


@pytest.fixture(autouse=True)
def small_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOG_ROWS_MAX", 8_000)


async def begin(harness: Harness, create: str = CREATE) -> Any:
    client = await harness.client()
    await client.execute(create)
    await client.execute(QUERY)
    await client.execute("PAUSE QUERY q")
    return client


async def publish(client: Any, first: int, rows: int) -> None:
    for place in range(first, first + rows, BATCH):
        await client.publish("s", batch(place))


async def resumed(client: Any) -> Any:
    """Let the query go on; return its results from the first on."""
    subscription = await client.subscribe("q")
    await client.execute("RESUME QUERY q")
    return subscription


async def answer(client: Any, subscription: Any = None) -> list[Any]:
    """Let the query go on to the end of the stream, unless it has, and return its answer."""
    subscription = subscription or await resumed(client)
    await client.finish("s")
    rows: list[Any] = []
    while (item := await asyncio.wait_for(subscription.next_item(), 60)) is not None:
        rows += item.to_pylist()
    return rows


@cache
def expected() -> list[Any]:
    """The answer of a query that is not paused."""

    async def test() -> list[Any]:
        async with running() as harness:
            client = await begin(harness)
            subscription = await resumed(client)
            await publish(client, 0, ROWS)
            return await answer(client, subscription)

    return asyncio.run(test())


def test_a_paused_query_gives_the_same_answer_later_and_its_publishers_never_wait(tmp_path: Path) -> None:
    async def test() -> list[Any]:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await begin(harness)
            await asyncio.wait_for(publish(client, 0, ROWS), 120)  # five times what the queue holds in memory
            source = harness.server.application.host.network.sources["s"]
            assert source.log.rows_held == ROWS
            await until(lambda: source.log.rows_in_memory <= limits.LOG_ROWS_MAX, "rows leave memory")
            (shown,) = (await client.execute("SHOW QUERIES")).rows
            assert shown["queued"] == ROWS
            assert shown["spilled_bytes"] > 2 * shown["memory_bytes"] > 0
            told = "\n".join(row["explanation"] for row in (await client.execute("EXPLAIN q")).rows)
            assert "rows of s that wait: can spill to disk" in told
            assert "state of " in told
            assert list((tmp_path / "spill").iterdir())
            found = await answer(client)
            await until(lambda: not list((tmp_path / "spill").iterdir()), "files that nobody reads any more are removed")
            return found

    assert asyncio.run(test()) == expected()


@pytest.mark.parametrize(("operation", "fault"), [("map_new", errno.ENOSPC), ("flush", errno.EIO)], ids=["full", "failing"])
def test_a_disk_that_refuses_makes_publishers_wait_and_loses_nothing(tmp_path: Path, operation: str, fault: int) -> None:
    disk = FailingDisk()

    async def test() -> list[Any]:
        async with running(disk=disk, data_dir=str(tmp_path)) as harness:
            client = await begin(harness)
            await publish(client, 0, 6_000)
            disk.breaks(fault, wanted=lambda done, name: done == operation)
            sending = asyncio.ensure_future(publish(client, 6_000, ROWS - 6_000))
            host = harness.server.application.host
            await until(lambda: host.intakes["s"].is_pressed(), "publishers wait")
            await until(lambda: bool(harness.server.application.spiller and harness.server.application.spiller.failures), "it was tried")
            told = harness.server.application.spiller
            assert told is not None
            assert told.last_error is not None
            disk.is_mended()
            await asyncio.wait_for(sending, 60)
            return await answer(client)

    assert asyncio.run(test()) == expected()


def test_publishers_wait_when_the_bound_on_files_is_reached_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.server.host.spilling.FILE_BYTES", 256 * 1024)

    async def test() -> list[Any]:
        async with running(data_dir=str(tmp_path), spill_bytes_max=2**20) as harness:
            client = await begin(harness)
            sending = asyncio.ensure_future(publish(client, 0, ROWS))
            host = harness.server.application.host
            log = host.network.sources["s"].log
            await until(lambda: log.rows_spilled > 0 and host.intakes["s"].is_pressed(), "files are full, and publishers wait")
            assert harness.server.application.spiller is not None
            assert harness.server.application.spiller.files.bytes_total <= 2**20
            subscription = await resumed(client)
            await asyncio.wait_for(sending, 60)
            return await answer(client, subscription)

    assert asyncio.run(test()) == expected()


def test_under_the_servers_bound_rows_that_wait_spill_before_publishers_wait_and_before_a_query_ends(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(data_dir=str(tmp_path), server_memory_bytes_max=700_000) as harness:
            client = await begin(harness)
            memory = harness.server.application.host.network.memory
            await asyncio.wait_for(publish(client, 0, ROWS), 120)  # about two million bytes of rows
            assert memory.ended == 0
            log = harness.server.application.host.network.sources["s"].log
            assert log.bytes_held > 700_000
            await until(lambda: log.bytes_in_memory < 0.75 * 700_000, "they have left memory")
            assert len(await answer(client)) > 0

    asyncio.run(test())


def test_files_of_a_dead_server_are_removed_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "spill").mkdir()
    (tmp_path / "spill" / "7.rows").write_bytes(b"left")

    async def test() -> None:
        async with running(data_dir=str(tmp_path)):
            assert not list((tmp_path / "spill").iterdir())

    asyncio.run(test())
