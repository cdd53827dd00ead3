"""Publishing exactly once: a named publisher's sends are taken once each, whoever dies when."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from millstream.client import connect
from millstream.client.commands.publish import InputSender
from millstream.client.data import TRAIN_BYTES_MAX
from millstream.client.errors import MillstreamError
from millstream.feeder.pace import Pacer
from millstream.feeder.position import NamedRows, Position, load_position
from millstream.server.durability.journaling import Journaling
from millstream.server.errors import TooMany
from millstream.server.host.producers import PRODUCERS_MAX, US_PER_S, Produced, Producers

from tests.feeder.fakes import arriving, target
from tests.server.test_serve_process import start
from tests.support.failing_disk import FailingDisk
from tests.support.live_server import Harness, run, running, until

STREAM = "CREATE STREAM s (v BIGINT) DURABILITY {}"
WAIT_S = 60.0
KILLS = 3
PUBLISH = "import sys; from millstream.client.cli import main; sys.exit(main())"


async def made(harness: Harness, level: str) -> Any:
    client = await harness.client()
    await client.execute(STREAM.format(level))
    return client


def stored(directory: Path) -> list[int]:
    """Return the values that the journal holds."""

    async def read() -> list[int]:
        async with running(data_dir=str(directory)) as harness:
            table = await (await harness.client()).query_once("SELECT v FROM s")
            return [row["v"] for row in table.to_pylist()]

    return asyncio.run(read())


@pytest.mark.parametrize("level", ["none", "journal", "sync"])
def test_what_was_taken_is_known_at_the_next_connection_and_not_taken_again(level: str, tmp_path: Path) -> None:
    async def test(harness: Harness) -> None:
        client = await made(harness, level)
        first = await client.publisher("s", "plant-7")
        assert (first.last, first.position) == (0, None)
        for n in (1, 2, 3):
            await first.send([{"v": n}], position=f"at {n}".encode())
        assert (await first.flush()).accepted == 3
        assert (first.last, first.position) == (3, b"at 3")
        await client.abandon()
        other = await harness.client()
        again = await other.publisher("s", "plant-7")
        assert (again.last, again.position) == (3, b"at 3")
        for n in (2, 3, 4):
            await again.send(pa.table({"v": [n]}), number=n, position=b"x")
        ack = await again.flush()
        assert (ack.accepted, ack.rejected_rows, again.last, again.position) == (1, 0, 4, b"x")
        assert (await other.publisher("s", "plant-8")).last == 0
        assert harness.server.application.host.intakes["s"].accepted_total == 4

    run(test, data_dir=str(tmp_path))


@pytest.mark.parametrize("level", ["journal", "sync"])
def test_numbers_and_positions_come_back_from_the_journal_and_from_a_checkpoint(level: str, tmp_path: Path) -> None:
    async def life(number: int) -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await (made(harness, level) if number == 0 else harness.client())
            publisher = await client.publisher("s", "p")
            assert (publisher.last, publisher.position) == (2 * number, b"%d" % (number - 1) if number else None)
            await publisher.send([{"v": 2 * number}], position=b"")
            await publisher.send([{"v": 2 * number + 1}], position=b"%d" % number)
            await publisher.flush()
            journaling = harness.server.application.host.journaling
            assert isinstance(journaling, Journaling)
            if number == 1:  # all before it is let go of
                await harness.server.application.call(journaling.checkpoint)
                journaling.journal.drop_before(journaling.journal.segments[-1].base)

    for number in range(4):
        asyncio.run(life(number))
    assert stored(tmp_path) == [4, 5, 6, 7]


def test_a_checkpoint_of_the_version_before_knows_no_producers() -> None:
    from millstream.engine.state.forms import _FORMS

    values = {"at": 5, "sources": {}, "tables": {}, "queries": {}}
    assert _FORMS["checkpoint"].taken_over(1, values) == {**values, "producers": {}}


def test_of_two_connections_of_one_name_the_newer_wins_and_the_older_is_told(tmp_path: Path) -> None:
    async def test(harness: Harness) -> None:
        older_client = await made(harness, "sync")
        older = await older_client.publisher("s", "p")
        await older.send([{"v": 1}])
        newer = await (await harness.client()).publisher("s", "p")  # while the first row may still wait for the disk
        assert newer.last == 1
        await until(lambda: older._end is not None, "the older is told")
        with pytest.raises(MillstreamError, match="another connection publishes under the name p"):
            await older.send([{"v": -1}])
        assert older_client.is_open
        await newer.send([{"v": 2}])
        assert (await newer.flush()).accepted == 1

    run(test, data_dir=str(tmp_path))
    assert stored(tmp_path) == [1, 2]


def test_a_send_of_which_nothing_is_accepted_has_a_number_too() -> None:
    async def test(harness: Harness) -> None:
        client = await made(harness, "none")
        publisher = await client.publisher("s", "p")
        await publisher.send([{"v": "x"}], position=b"bad")
        await publisher.send([], position=b"empty")
        await publisher.send([{"v": 1}, {"v": "x"}], position=b"half")
        ack = await publisher.flush()
        assert (ack.accepted, ack.rejected_rows, [r.index for r in ack.rejected]) == (1, 2, [0, 2])
        assert (publisher.last, publisher.position) == (3, b"half")

    run(test)


def test_a_send_is_taken_whole_so_it_is_bounded() -> None:
    async def test(harness: Harness) -> None:
        client = await made(harness, "none")
        with pytest.raises(MillstreamError, match="1 to 255 bytes"):
            await client.publisher("s", "x" * 256)
        publisher = await client.publisher("s", "p")
        for data in ([{"v": 1}] * 65_537, pa.table({"v": range(1_048_577)})):
            with pytest.raises(MillstreamError, match="a send of a named publisher has"):
                await publisher.send(data)
        with pytest.raises(MillstreamError, match="position of 1025 bytes is over the limit"):
            await publisher.send([{"v": 1}], position=b"x" * 1025)
        with pytest.raises(MillstreamError, match="sequence 3 follows 0"):
            await publisher.send([{"v": 1}], number=3)
        await publisher.send(pa.table({"v": range(400_000)}), position=b"x" * 1024)
        assert (await publisher.flush()).accepted == 400_000
        with pytest.raises(MillstreamError, match="are those of a named publisher"):
            await (await client.publisher("s")).send([{"v": 1}], position=b"x")

    run(test)


def test_what_the_disk_did_not_keep_is_not_told_as_taken(tmp_path: Path) -> None:
    disk = FailingDisk()

    async def test() -> None:
        async with running(disk=disk, data_dir=str(tmp_path)) as harness:
            client = await made(harness, "sync")
            harness.server.application.journaling.journal.retry_s = 0.01  # type: ignore[union-attr]
            publisher = await client.publisher("s", "p")
            await publisher.send([{"v": 1}], position=b"1")
            await publisher.flush()
            disk.breaks(wanted=lambda operation, name: operation == "sync" and ".journal" in name)
            await publisher.send([{"v": 2}], position=b"2")
            with pytest.raises(MillstreamError) as refused:
                await publisher.flush()
            assert refused.value.code == "storage"
            disk.is_mended()
            journal = harness.server.application.journaling.journal  # type: ignore[union-attr]
            await until(lambda: not journal.is_failing, "the journal goes on")
            again = await client.publisher("s", "p")
            assert (again.last, again.position) == (1, b"1")
            await again.send([{"v": 2}], position=b"2")
            await again.flush()

    asyncio.run(test())
    assert stored(tmp_path) == [1, 2]


def test_names_are_bounded_and_forgotten_after_a_while() -> None:
    class Channel:
        told = ""

        def revoke(self, message: str) -> None:
            self.told = message

    producers = Producers()
    for n in range(PRODUCERS_MAX):
        channel = Channel()
        producers.leave(producers.sit(f"p{n}", channel, n * US_PER_S, 1e6), channel, n * US_PER_S)
    with pytest.raises(TooMany, match="producer_kept_s"):
        producers.sit("more", Channel(), PRODUCERS_MAX * US_PER_S, 1e6)
    holder = Channel()
    producers.sit("p0", holder, PRODUCERS_MAX * US_PER_S, 1e6)
    producers.note(Produced("p0", 7, b"x"), PRODUCERS_MAX * US_PER_S)
    kept_s = 100.0
    producers.sit("more", Channel(), PRODUCERS_MAX * US_PER_S, kept_s)  # those of before are forgotten, but not who is connected
    assert len(producers.by_name) == kept_s + 2
    assert producers.sit("p0", Channel(), PRODUCERS_MAX * US_PER_S, kept_s).last == 7
    assert holder.told == "another connection publishes under the name p0"
    back = [producers.note(Produced("p0", n), 0, place=n) for n in (8, 9)]
    for take_back in reversed(back):
        take_back()
    assert (producers.by_name["p0"].last, producers.by_name["p0"].position, producers.by_name["p0"].place) == (7, b"x", None)


@pytest.mark.process
@pytest.mark.parametrize("level", ["journal", "sync"])
def test_server_and_publisher_killed_at_any_moment_repeat_and_lose_no_row(level: str, tmp_path: Path) -> None:
    """What is sent under a name until it is known to be taken is there once, in order, whoever died meanwhile."""
    draw = random.Random(level)
    process, port = start("--data-dir", str(tmp_path))
    kills = 0

    async def feed() -> None:
        nonlocal process, port, kills
        value = 0  # the position: how many values are known to be taken
        while kills < KILLS or value < 400:
            try:
                async with asyncio.timeout(WAIT_S), connect_to(port) as client:
                    if value == 0:
                        with_if = STREAM.replace("STREAM s", "STREAM IF NOT EXISTS s")
                        await client.execute(with_if.format(level))
                    publisher = await client.publisher("s", "p")
                    value = int(publisher.position or 0)
                    assert publisher.last == value // 4
                    for send in range(draw.randrange(5, 40)):
                        await publisher.send([{"v": value + i} for i in range(4)], position=b"%d" % (value + 4))
                        value += 4
                        if send % 7 == 0:
                            await publisher.flush()
                    if draw.random() < 0.5:
                        process.send_signal(signal.SIGKILL)
                        process.wait(WAIT_S)  # else it may seem alive below
                    elif draw.random() < 0.5:
                        await client.abandon()
                    else:
                        await publisher.flush()
            except MillstreamError:
                pass  # what is known is told at the next connection
            if process.poll() is not None or draw.random() < 0.2:
                process.kill()
                process.communicate(timeout=WAIT_S)
                kills += 1
                process, port = start("--data-dir", str(tmp_path))
        async with connect_to(port) as client:
            publisher = await client.publisher("s", "p")
            totals.append(int(publisher.position or 0))

    totals: list[int] = []
    try:
        asyncio.run(feed())
    finally:
        process.kill()
        process.communicate(timeout=WAIT_S)
    assert stored(tmp_path) == list(range(totals[0]))
    assert totals[0] >= 400


def connect_to(port: int) -> Any:
    from millstream.client import connect_async

    return connect_async(f"127.0.0.1:{port}")


@pytest.mark.process
def test_publish_of_a_file_under_a_name_goes_on_where_a_killed_one_was(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    rows = 150_000
    file.write_text("v\n" + "\n".join(map(str, range(rows))) + "\n")
    process, port = start("--data-dir", str(tmp_path / "data"))
    command = [sys.executable, "-c", PUBLISH, "publish", "s", str(file), "--name", "rows", "--server", f"127.0.0.1:{port}"]
    try:
        with connect(f"127.0.0.1:{port}") as client:
            client.execute(STREAM.format("journal"))
            client.execute("CREATE QUERY counted AS SELECT COUNT(*) AS n FROM s [ROWS 1]")
            results = client.subscribe("counted")
            killed = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            results.next_item(timeout=WAIT_S)  # some rows are there
            killed.kill()
            killed.wait(WAIT_S)
            some = int(client.publisher("s", "rows").position or 0)
            assert some > 0
            told = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True).stderr
            left = rows - (some - 1)  # the header is line 1
            assert f"{left:,} row{'s' * (left != 1)} accepted" in told
            assert "before" in told
            again = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True).stderr
            assert f"{rows:,} rows left out: the server took them under the name rows before" in again
    finally:
        process.kill()
        process.communicate(timeout=WAIT_S)
    assert stored(tmp_path / "data") == list(range(rows))


class Killed(BaseException):
    """Ends a feeder as a SIGKILL would: nothing is written any more."""


def test_a_feed_killed_at_any_send_repeats_and_loses_no_row(tmp_path: Path) -> None:
    """The state file lags behind, as one that is written now and then does; what the daemon says counts."""
    batches = [[(0, v, 0) for v in range(n, n + 9)] for n in range(0, 90, 9)]
    draw = random.Random(5)

    def feed(address: str) -> bool:
        """Feed what is left; False when the feeder was killed on the way."""
        sends = 0
        killed_at = draw.randrange(1, 7)
        state = tmp_path / "state"
        with connect(address) as client:
            position = load_position(state, "f", ("s",))
            named = NamedRows(client, ("s",), position)
            if not state.exists():
                position.save(state, "f")
            done = position.acked()[0]
            publish = named.publish

            def publish_or_die(stream: str, data: Any) -> Any:
                nonlocal sends
                sends += 1
                if sends == killed_at and draw.random() < 0.5:
                    raise Killed  # before it is sent
                ack = publish(stream, data)
                if sends == killed_at:
                    raise Killed  # before it is counted
                return ack

            named.publish = publish_or_die  # type: ignore[method-assign]
            pacer = Pacer(named, [target("s")], [90], position, paced=False, finish=False)
            left = [row for batch in batches for row in batch][done:]
            try:
                pacer.run(arriving(left[i : i + 9]) for i in range(0, len(left), 9))
            except Killed:
                return False
        return True

    async def test(harness: Harness) -> None:
        client = await made(harness, "journal")
        lives = 1
        while not await asyncio.to_thread(feed, harness.address):
            lives += 1
        assert lives > 2
        rows = await client.query_once("SELECT v FROM s")
        assert [row["v"] for row in rows.to_pylist()] == list(range(90))

    run(test, data_dir=str(tmp_path / "data"))


def test_a_named_file_of_wide_rows_goes_in_sends_that_fit_a_message() -> None:
    sent: list[tuple[int, int, bytes]] = []

    def send(part: Any, *, position: bytes) -> None:
        sent.append((part.num_rows, part.nbytes, position))

    wide = pa.table({"v": ["x" * 10_000] * 2_000})
    publisher: Any = SimpleNamespace(position=b"500", send=send, flush=lambda: None)
    sender = InputSender(publisher, True)
    sender.send_table(wide, 0)
    assert (sender.skipped, sum(rows for rows, _, _ in sent), sent[-1][2]) == (500, 1_500, b"2000")
    NamedRows(SimpleNamespace(publisher=lambda stream, name: publisher), ["s"], Position(("s",))).publish("s", wide)
    assert (sum(rows for rows, _, _ in sent), sent[-1][2]) == (3_500, b"2500")
    assert max(size for _, size, _ in sent) <= 1.1 * TRAIN_BYTES_MAX
