"""A feed that many publish: the rows and arrivals of one publisher, in one order where that is asked, each row once whoever dies."""

from __future__ import annotations

import asyncio
import itertools
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from millstream.client import connect
from millstream.feeder import feed as feeding
from millstream.feeder.arrivals import ArrivalRule
from millstream.feeder.desk import MESSAGE_BYTES_MAX, SLOTS_WAIT_S, Desk, dial, hang_up
from millstream.feeder.errors import FeederError
from millstream.feeder.job import Counted, FeedJob, FeedPlan
from millstream.feeder.numbering import plan_numbering
from millstream.feeder.pace import NS_PER_S
from millstream.feeder.position import Position, fingerprint_of, load_position
from millstream.feeder.publishing import RemotePublisher, behind
from millstream.feeder.rates import constant
from pyarrow import parquet

from tests.feeder.fakes import JumpingClock, NamedDaemon, arriving, target
from tests.support.live_server import Harness, run

WAIT_S = 60.0
STRIPE = 5
TRIES_MAX = 40
Row = tuple[int, int, int]
NAMES = ("a", "b", "c")


def rows_of(count: int, gap_ns: int) -> list[Row]:
    """Return rows (stream, value, arrival) of three streams in order of arrival."""
    return [(n % 3, n, n * gap_ns) for n in range(count)]


def stripes(rows: list[Row], publishers: int) -> list[list[Row]]:
    """Deal rows out as FeedJob.publish does, in smaller stripes."""
    dealt: list[list[Row]] = [[] for _ in range(publishers)]
    seen = [0] * len(NAMES)
    for row in rows:
        dealt[(seen[row[0]] // STRIPE + row[0]) % publishers].append(row)
        seen[row[0]] += 1
    return dealt


class ThreadedJob:
    """Runs each publisher in a thread, and again when it fails, as Spark does with tasks."""

    driver = ("127.0.0.1", "127.0.0.1")

    def __init__(self, rows: list[Row], publishers: int, tries: int = 1) -> None:
        self._dealt, self._tries = stripes(rows, publishers), tries
        self.failures = 0
        self._threads: list[threading.Thread] = []

    def publish(self, counted: Counted, in_task: Any) -> None:
        remote: RemotePublisher = in_task.__self__
        ended: queue.Queue[Exception | None] = queue.Queue()

        def one(number: int) -> None:
            mine = self._dealt[number]
            failure = None
            for _ in range(self._tries):
                try:
                    remote.run(number, (arriving(mine[i : i + 4]) for i in range(0, len(mine), 4)))
                except Exception as error:
                    self.failures += 1
                    failure = error
                else:
                    failure = None
                    break
            ended.put(failure)

        self._threads = [threading.Thread(target=one, args=(number,)) for number in range(len(self._dealt))]
        for thread in self._threads:
            thread.start()
        for _ in self._threads:
            failure = ended.get(timeout=WAIT_S)
            if failure is not None:
                raise failure

    def join(self) -> None:
        """Wait for those that went on when one had failed for good."""
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()


def feed_of(rows: list[Row], publishers: int, *, kind: Any = "max", tries: int = 1, state: Path | None = None) -> feeding.Feed:
    rule = ArrivalRule(kind, None if kind == "max" else constant(1_000))
    plan = FeedPlan(("x",), tuple(target(name) for name in NAMES), rule, publishers=publishers)
    counts = tuple(sum(row[0] == stream for row in rows) for stream in range(3))
    position = Position(NAMES) if state is None else load_position(state, fingerprint_of(plan), NAMES)
    position.set_parts(position.parts or [[0] * 3 for _ in range(publishers)])
    job: Any = ThreadedJob(rows, publishers, tries)
    return feeding.Feed(plan, job, Counted(plan_numbering(rule, [], {}, by_time=False), counts, {}), position, fingerprint_of(plan))


def assert_in_order(daemon: NamedDaemon, rows: int) -> None:
    """Each stream has its rows in order of arrival; rows of several streams that are due together go stream by stream."""
    assert [daemon.values(name) for name in NAMES] == [list(range(stream, rows, 3)) for stream in range(3)]


@pytest.mark.parametrize("kind", ["max", "fixed"])
@pytest.mark.parametrize("publishers", [1, 2, 7])
def test_in_order_the_rows_come_as_from_one_publisher(publishers: int, kind: str) -> None:
    rows = rows_of(200, 100_000)
    daemon = NamedDaemon()
    result = feeding.run_in_tasks(feed_of(rows, publishers, kind=kind), daemon, lambda: daemon)
    assert_in_order(daemon, 200)
    assert (result.complete, result.tally.sent, result.tally.accepted, daemon.finished) == (True, 200, 200, list(NAMES))


@pytest.mark.parametrize("publishers", [2, 7])
def test_in_any_order_each_row_comes_once_and_each_publisher_keeps_its_order(publishers: int) -> None:
    rows = rows_of(200, 1_000)
    daemon = NamedDaemon()
    result = feeding.run_in_tasks(feed_of(rows, publishers), daemon, lambda: daemon, in_order=False, finish=False)
    assert result.complete
    assert not daemon.finished
    assert sorted(value for _, value in daemon.rows) == list(range(200))
    for mine in stripes(rows, publishers):
        for stream, name in enumerate(NAMES):
            own = [row[1] for row in mine if row[0] == stream]
            assert [value for value in daemon.values(name) if value in set(own)] == own


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_publishers_that_die_repeat_and_lose_no_row(seed: int, in_order: bool) -> None:
    """They die before or after a send; the daemon knows, though the driver was not told."""
    draw = random.Random(seed)
    daemon = NamedDaemon()

    def dies(_: str) -> None:
        if draw.random() < 0.1:
            raise ConnectionError("killed")

    daemon.before = daemon.after = dies
    feed = feed_of(rows_of(150, 1_000), 3, tries=TRIES_MAX)
    result = feeding.run_in_tasks(feed, daemon, lambda: daemon, in_order=in_order)
    assert sorted(value for _, value in daemon.rows) == list(range(150))
    if in_order:
        assert_in_order(daemon, 150)
    assert (result.complete, result.tally.sent) == (True, 150)
    assert feed.job.failures  # type: ignore[attr-defined]


@pytest.mark.parametrize("publishers", [1, 3])
def test_a_feed_that_fails_goes_on_where_it_was(publishers: int, tmp_path: Path) -> None:
    daemon = NamedDaemon()
    draw = random.Random(publishers)

    def fails(_: str) -> None:
        if draw.random() < 0.05:
            raise ConnectionError("the daemon went away")

    daemon.after = fails
    told: list[str] = []
    for _ in range(TRIES_MAX):
        feed = feed_of(rows_of(150, 1_000), publishers, state=tmp_path / "state")
        feed.position.save(tmp_path / "state", feed.fingerprint)
        try:
            assert feeding.run_in_tasks(feed, daemon, lambda: daemon, state=tmp_path / "state").complete
            break
        except ConnectionError as error:
            told.append(str(error))
        finally:
            feed.job.join()  # type: ignore[attr-defined]
    assert told
    assert set(told) == {"the daemon went away"}
    assert_in_order(daemon, 150)
    assert daemon.finished == list(NAMES)


def test_a_position_belongs_to_a_number_of_publishers(tmp_path: Path) -> None:
    two, three = (feed_of(rows_of(9, 1), publishers) for publishers in (2, 3))
    assert two.fingerprint != three.fingerprint
    two.position.set_parts([[1, 2, 3], [4, 5, 6]])
    two.position.save(tmp_path / "state", two.fingerprint)
    again = load_position(tmp_path / "state", two.fingerprint, NAMES)
    assert (again.acked(), again.parts, again.name) == ((5, 7, 9), [[1, 2, 3], [4, 5, 6]], two.position.name)


def test_a_stop_ends_all_publishers_behind_the_send_that_is_under_way() -> None:
    daemon = NamedDaemon()
    rows = [(0, n, 0 if n < 3 else 3_600 * NS_PER_S) for n in range(30)]
    stopping: list[threading.Event] = []

    class Stopping:
        def __init__(self, stop: threading.Event) -> None:
            stopping.append(stop)

        def __enter__(self) -> None:
            """Nothing."""

        def __exit__(self, *_: object) -> None:
            """Nothing."""

    daemon.after = lambda _: stopping[0].set()
    result = feeding.run_in_tasks(feed_of(rows, 2, kind="fixed"), daemon, lambda: daemon, stopping=Stopping)
    assert (result.complete, [value for _, value in daemon.rows], daemon.finished) == (False, [0, 1, 2], ["b", "c"])


@pytest.fixture
def desk() -> Iterator[Callable[..., Desk]]:
    opened: list[Desk] = []

    def made(publishers: int, **options: Any) -> Desk:
        opened.append(Desk("127.0.0.1", [[0]] * publishers, in_order=True, **options).__enter__())
        return opened[-1]

    yield made
    for one in opened:
        one.__exit__()


def test_too_few_slots_are_told_with_the_number_that_would_do(desk: Callable[..., Desk]) -> None:
    clock = JumpingClock()
    asked = desk(2, clock=clock)
    line = dial(asked.address, asked.key)
    line.send_bytes(b'{"publisher": 1}')
    assert line.recv_bytes(1_000) == b'{"acked": [0]}'
    asked.check()
    clock.time_ns += int(SLOTS_WAIT_S * NS_PER_S)
    asked.check()
    clock.time_ns += 1
    hang_up(line)  # one that came and died leaves its slot to the next in its place
    with pytest.raises(EOFError):
        line.recv_bytes(1_000)
    line.close()
    with pytest.raises(FeederError, match="only 1 of 2 publishers have come") as caught:
        asked.check()
    assert "--publishers 1" in caught.value.hint


def test_a_feed_whose_publishers_do_not_all_run_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.feeder.desk.SLOTS_WAIT_S", 0.0)
    feed = feed_of(rows_of(9, 1), 2)
    cancelled = threading.Event()

    class Narrow(ThreadedJob):
        def publish(self, counted: Counted, in_task: Any) -> None:
            assert in_task.__self__.run(0, [arriving([(0, 0, 0)])]) == 0
            assert cancelled.wait(WAIT_S)

        def cancel(self) -> None:
            cancelled.set()

    job: Any = Narrow([], 2)
    daemon = NamedDaemon()
    with pytest.raises(FeederError, match="only 1 of 2 publishers have come"):
        feeding.run_in_tasks(replace(feed, job=job), daemon, lambda: daemon)
    assert (daemon.rows, cancelled.is_set()) == ([], True)


def test_whom_spark_has_given_up_ends_when_another_takes_its_place(desk: Callable[..., Desk]) -> None:
    asked = desk(1)
    first, second = (dial(asked.address, asked.key) for _ in range(2))
    for line in (first, second):
        line.send_bytes(b'{"publisher": 0}')
        assert line.recv_bytes(1_000) == b'{"acked": [0]}'
    with pytest.raises(EOFError):
        first.recv_bytes(1_000)
    second.send_bytes(b'{"acked": [0], "next_ns": 1}')
    assert b"elapsed_ns" in second.recv_bytes(1_000)
    for line in (first, second):
        hang_up(line)
        line.close()


def test_what_strangers_hold_and_say_has_a_bound(desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.feeder.desk.STRANGERS_MAX", 1)
    asked = desk(1)
    strangers = [socket.create_connection(asked.address, WAIT_S) for _ in range(3)]
    assert [bool(one.recv(1_000)) for one in strangers] == [True, True, False]
    for one in strangers:
        one.close()
    monkeypatch.setattr("millstream.feeder.desk.GREETING_S", 0.01)
    monkeypatch.setattr("millstream.feeder.desk.STRANGERS_MAX", 100)
    with socket.create_connection(asked.address, WAIT_S) as silent:
        assert silent.recv(1_000)
        assert silent.recv(1_000) == b""
    monkeypatch.setattr("millstream.feeder.desk.GREETING_S", WAIT_S)
    line = dial(asked.address, asked.key)
    with pytest.raises((OSError, EOFError)):
        _answer_to(line, bytes(MESSAGE_BYTES_MAX + 1))
    line.close()


def _answer_to(line: Any, said: bytes) -> bytes:
    line.send_bytes(said)
    return bytes(line.recv_bytes(1_000))


@pytest.mark.spark
@pytest.mark.slow
def test_who_does_not_reach_the_driver_says_so(desk: Callable[..., Desk], spark: Any, tmp_path: Path) -> None:
    asked = desk(1)
    asked.__exit__()
    remote = RemotePublisher(asked.address, asked.key, "f", NamedDaemon, (target("a"),), paced=True)
    with pytest.raises(FeederError, match=r"does not reach the driver of this feed at 127\.0\.0\.1:\d+ \(.*refused"):
        remote.run(0, [])
    parquet.write_table(pa.table({"v": range(9)}), tmp_path / "rows.parquet")
    job = FeedJob(spark, FeedPlan((str(tmp_path / "rows.parquet"),), (target("a"),), ArrivalRule("max"), publishers=1))
    with pytest.raises(FeederError, match="does not reach the driver"):
        job.publish(job.count(), remote.in_task)


def test_a_stranger_is_told_nothing(desk: Callable[..., Desk]) -> None:
    asked = desk(1)
    with pytest.raises(Exception, match="digest"):
        dial(asked.address, b"another key")
    with socket.create_connection(asked.address) as stranger:  # one that says nothing stops nobody
        stranger.settimeout(WAIT_S)
        daemon = NamedDaemon()
        remote = RemotePublisher(asked.address, asked.key, "f", lambda: daemon, (target("a"),), paced=False)
        assert remote.run(0, [arriving([(0, 7, 0)])]) == 1
    assert daemon.rows == [("a", 7)]


def test_a_publisher_whose_driver_has_gone_ends(desk: Callable[..., Desk]) -> None:
    asked = desk(1)
    daemon = NamedDaemon()
    daemon.after = lambda _: asked.__exit__()
    remote = RemotePublisher(asked.address, asked.key, "f", lambda: daemon, (target("a"),), paced=True)
    with pytest.raises(FeederError, match="the driver of this feed has gone"):
        remote.run(0, [arriving([(0, 7, 0), (0, 8, 3_600 * NS_PER_S)])])
    assert daemon.rows == [("a", 7)]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("in_order", [True, False])
def test_spark_s_tasks_publish_and_one_that_is_killed_repeats_no_row(
    in_order: bool, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each publisher's process dies once, behind a send that the server has taken; Spark runs its task again."""
    monkeypatch.setattr("millstream.feeder.job.STRIPE_ROWS", 50)
    rows = 1_000
    parquet.write_table(pa.table({"v": range(rows)}), tmp_path / "rows.parquet", row_group_size=100)
    plan = FeedPlan((str(tmp_path / "rows.parquet"),), (target("s"),), ArrivalRule("fixed", constant(2_000)), publishers=2)

    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute("CREATE STREAM s (v BIGINT) DURABILITY journal")
        connecting = partial(connect_dying, harness.address, str(tmp_path))

        def feed() -> feeding.Result:
            with connect(harness.address) as mine:
                prepared = feeding.prepare(spark, plan, tmp_path / "state", mine)
                return feeding.run_in_tasks(prepared, mine, connecting, in_order=in_order, state=tmp_path / "state")

        result = await asyncio.to_thread(feed)
        assert (result.complete, result.tally.sent) == (True, rows)
        assert len(list(tmp_path.glob("died-*"))) == 2
        found = [row["v"] for row in (await client.query_once("SELECT v FROM s")).to_pylist()]
        assert (found if in_order else sorted(found)) == list(range(rows))

    run(test, within_s=240, data_dir=str(tmp_path / "data"))


@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_a_command_that_is_killed_again_and_again_feeds_each_row_once(tmp_path: Path) -> None:
    """The driver and all its processes die while its tasks publish; the same command goes on."""
    rows = 60_000
    parquet.write_table(pa.table({"v": range(rows)}), tmp_path / "rows.parquet")
    program = Path(sys.executable).with_name("millstream")
    command = [str(program), "feed", "rows.parquet", "--into", "s", "--fixed", "--rate", "6k/s", "--state", "state"]
    command += ["--publishers", "2", "--master", "local[2]"]

    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute("CREATE STREAM s (v BIGINT) DURABILITY journal")
        command.extend(("--server", harness.address))
        intake = harness.server.application.host.intakes["s"]
        for kill in (1, 2):
            with subprocess.Popen(command, cwd=tmp_path, start_new_session=True, stderr=subprocess.DEVNULL) as process:
                await until_taken(intake, kill * 15_000, process)
                os.killpg(process.pid, signal.SIGKILL)
        done = await asyncio.to_thread(subprocess.run, command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        found = [row["v"] for row in (await client.query_once("SELECT v FROM s")).to_pylist()]
        assert found == list(range(rows))

    run(test, within_s=500, data_dir=str(tmp_path / "data"))


async def until_taken(intake: Any, rows: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a stream has taken so many rows."""
    deadline = time.monotonic() + 200
    while intake.accepted_total < rows:
        assert process.poll() is None, "the command ended by itself"
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def connect_dying(address: str, folder: str) -> Any:
    """Return a client in a task whose process is killed behind its second send, once for each name."""
    client = connect(address)
    publisher = client.publisher

    def dying(stream: str, name: str) -> Any:
        made = publisher(stream, name)
        flush, sends = made.flush, itertools.count(1)

        def flush_and_die() -> Any:
            ack = flush()
            mark = Path(folder, f"died-{name}")
            if next(sends) == 2 and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return ack

        made.flush = flush_and_die  # type: ignore[method-assign]
        return made

    client.publisher = dying  # type: ignore[method-assign,assignment]
    return client


def test_rows_that_were_taken_are_left_out() -> None:
    batches = [arriving([(n % 2, n, n) for n in range(at, at + 3)]) for at in range(0, 12, 3)]
    left = pa.Table.from_batches(behind(iter(batches), (4, 1)))
    assert left.column("v").to_pylist() == [3, 5, 7, 8, 9, 10, 11]
    assert not list(behind(iter(batches), np.array([6, 6]).tolist()))
