"""Memory that the server and its workers share: within its bounds, and gone with the worker that died, and with the server's side."""

from __future__ import annotations

import errno
import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from millstream.engine.data.arrivals import ArrivalTimes
from millstream.engine.data.column import Column
from millstream.engine.data.train import Numbers, Train
from millstream.engine.data.types import BIGINT, TIMESTAMP
from millstream.engine.data.watermarks import constant_track
from millstream.server.workers import channel, child, process, segments
from millstream.server.workers.process import Installed, KeptCall, StepFailed, Telling
from millstream.server.workers.segments import SharedSegments
from millstream.server.workers.wire import Writer

from tests.support.engine_run import SECOND, SqlEngine, schema_of
from tests.support.worker_pools import Pool

STREAM = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, x BIGINT) TIMESTAMP BY ts"
ROWS = 4_000
SCHEMA = schema_of(ts=TIMESTAMP, k=BIGINT)


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool(1)
    try:
        yield pool
    finally:
        pool.close()


def shared_bytes(pid: int | str = "self") -> int:
    """The bytes of shared memory that a process maps."""
    found = 0
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if "/memfd:millstream-" in line:
            begin, end = line.split()[0].split("-")
            found += int(end, 16) - int(begin, 16)
    return found


def descriptors() -> int:
    """How many descriptors of shared memory this process has open."""
    folder = "/proc/self/fd"
    names = []
    for one in os.listdir(folder):
        try:
            names.append(os.readlink(f"{folder}/{one}"))
        except FileNotFoundError:  # that of the listing itself
            continue
    return sum(name.startswith("/memfd:millstream-") for name in names)


def ended() -> None:
    """Wait for those who close what belonged to workers that died."""
    for thread in threading.enumerate():
        if thread.name.startswith("end of worker"):
            thread.join(30)
            assert not thread.is_alive()
    gc.collect()


def nothing(writer: Writer, telling: Telling) -> list[Any]:
    return ["nothing"]


def rows_of(pool: Pool) -> int:
    """Have a query's rows computed in the worker: what it is told and what it answers lies in segments."""
    engine = SqlEngine(STREAM)
    pool.serve(engine.network, 1)
    engine.select("SELECT k, x + 1 AS y FROM s WHERE x >= 0", "q")
    engine.put("s", [(at * SECOND, at % 7, at) for at in range(ROWS)])
    engine.work()
    return len(engine.rows("q"))


def placed_train(own: SharedSegments) -> Train:
    columns = own.placed([Column(TIMESTAMP, np.arange(ROWS)), Column(BIGINT, np.arange(ROWS))])
    numbers = Numbers(ROWS, start=0, step=1)
    return Train(SCHEMA, list(columns), rows=ROWS, lo=0, hi=ROWS, seq=numbers, time=numbers, arrival=ArrivalTimes(0, 1),
                 track=constant_track(0, ROWS, 0))  # fmt: skip


def test_shared_memory_does_not_grow_with_deaths_and_goes_with_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.engine.chains.fused.ROWS_HERE_MAX", 0)
    ended()
    before = shared_bytes(), descriptors()
    pool = Pool(1)
    worker, held = pool.workers[0], []
    try:
        for _ in range(3):
            assert rows_of(pool) == ROWS
            held.append((shared_bytes(), shared_bytes(worker.pid), descriptors()))
            worker.kill()
            assert worker.ask((), nothing).told == ["nothing"]
            ended()
        assert pool.segments.store.trim(), "nobody reads what the dead were told of"
        assert pool.segments.store.bytes_total == 0
    finally:
        pool.close()
    channels = 2 * process.CHANNELS * channel.BYTES_MIN
    assert held[0][0] > before[0] + channels + 4 * 2**20, "both sides have a segment here"
    assert held[1:] == held[:-1]
    ended()
    assert (shared_bytes(), descriptors()) == before


def test_segments_are_within_their_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (segments.SHARED_BYTES_MAX, child.ANSWERS_BYTES_MAX) == (512 * 2**20, 512 * 2**20), "as docs/workers.md says"
    ended()
    before = shared_bytes()
    own, bytes_max, kept = SharedSegments(3 * 4 * 2**20), 3 * 4 * 2**20, list[Any]()
    try:
        kept += [own.placed([Column(BIGINT, np.arange(100_000))]) for _ in range(40)]
        assert shared_bytes() - before == bytes_max
        assert own.written([np.zeros(100_000)], 800_000, 1) is None, "there is no room for answers either, so they are copied"
        own.close()
        assert shared_bytes() - before == bytes_max, "somebody still reads"
    finally:
        kept.clear()
        gc.collect()
    assert shared_bytes() == before
    assert own.store.bytes_total == 0


def test_a_worker_that_dies_while_it_takes_up_its_work_reads_nothing_any_more(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[process.Incarnation] = []
    start = process.Incarnation.__init__

    def started(self: process.Incarnation, *how: Any) -> None:
        start(self, *how)
        made.append(self)

    monkeypatch.setattr(process.Incarnation, "__init__", started)
    worker, trains = pool.workers[0], [placed_train(pool.segments)]

    def compose(writer: Writer, telling: Telling, discarded: bool = False) -> list[Any]:
        telling.train(writer, trains[0])
        if len(made) == 1:
            made[0].kill()
        return ["nothing"]

    one = Installed(1, process.about("nothing", (), False), None)
    one.keep(KeptCall((), compose, 1))
    one.at = 1
    worker.operators[1] = one
    monkeypatch.setattr(process.Worker, "_install", lambda self, alive, installed: None)
    worker.kill()
    assert worker.ask((), nothing).told == ["nothing"]
    assert (worker.deaths, len(made)) == (2, 2), "it was started twice"
    assert not pool.segments.store.trim(), "somebody reads it"
    worker.drop(one)
    worker.kill()
    assert worker.ask((), nothing).told == ["nothing"]
    trains.clear()
    made.clear()  # they know what they were told
    ended()
    assert pool.segments.store.trim(), "so the segment is free"
    assert pool.segments.store.bytes_total == 0


def test_a_message_that_is_too_large_is_told_and_what_it_would_have_said_comes_with_the_next(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, train, one = pool.workers[0], placed_train(SharedSegments(0)), Installed(1, b"", None)
    worker.operators[1] = one

    def compose(writer: Writer, telling: Telling) -> list[Any]:
        telling.train(writer, train)
        return ["nothing"]

    worker.ask((), compose)
    one.at = 1
    worker.drop(one)
    monkeypatch.setattr(channel, "MESSAGE_BYTES_MAX", 1_000)
    with pytest.raises(StepFailed, match=r"a message of \d+ bytes would go to its worker"):
        worker.ask((), lambda writer, telling: [compose(writer, telling), writer.array(np.arange(ROWS))])
    monkeypatch.undo()
    assert worker._alive.telling._forgotten == [1], "by this number the worker still has the train"
    assert list(worker._dropped) == [1]
    assert worker.ask((), nothing).told == ["nothing"]
    assert not worker._dropped
    assert not worker._alive.telling._forgotten
    assert worker.deaths == 0


@pytest.mark.parametrize("refused", ["ftruncate", "mmap"])
def test_rows_stay_where_they_are_when_the_system_gives_no_shared_memory(refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*how: Any, **named: Any) -> Any:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    own = SharedSegments()
    columns = placed_train(SharedSegments(0)).columns()
    before = sorted(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(segments.os if refused == "ftruncate" else segments.mmap, refused, refusing)
    assert own.placed(columns) is columns
    assert own.written([np.zeros(100)], 800, 1) is None
    monkeypatch.undo()
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert own.written([np.zeros(100)], 800, 1) == (0, 0), "there is room again"
    assert os.fstat(own.descriptor(0)).st_size >= 800, "and the number names its memory"
    own.close()
