"""Logs and their readers: whoever reads, and however rows are put together meanwhile, each reader gets every row once and in order."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from millstream.engine.data.arrivals import ArrivalTimes
from millstream.engine.data.column import CellColumn
from millstream.engine.data.graph import EdgeId, LogId
from millstream.engine.data.train import Numbers, Train, empty_train
from millstream.engine.data.types import BIGINT, TEXT, TIMESTAMP
from millstream.engine.data.watermarks import TIME_MIN, ChainTrack, RowsTrack, RowTrack, Steps, constant_track
from millstream.engine.flow.cursors import MERGES_MAX, Cursor, LogNode
from millstream.engine.flow.queues import FEW_NODES, OutputLog

from tests.support.engine_run import schema_of

SCHEMA = schema_of(ts=TIMESTAMP, k=BIGINT, note=TEXT)


def one_row(log: OutputLog, seq: int, delay_us: int = 0) -> Train:
    """A row by itself, as it comes from a publisher."""
    instant = 1_000 * seq
    return Train(
        SCHEMA,
        [CellColumn(TIMESTAMP, [instant]), CellColumn(BIGINT, [seq * 7]), CellColumn(TEXT, [f"n{seq}"])],
        rows=1,
        lo=log.hi,
        hi=seq + 1,
        seq=Numbers(1, start=seq, step=1),
        time=Numbers(1, start=instant),
        arrival=ArrivalTimes(seq, 10 * seq),
        track=RowTrack(log.hi, seq + 1, log.watermark_us, instant, delay_us, seq),
    )


def push(log: OutputLog, train: Train) -> None:
    log.push(LogNode(train, log))


def seen(train: Train) -> list[tuple[Any, ...]]:
    """What a reader can tell of each row: its columns, seq, time, arrival, and W before it."""
    seqs = train.seq.array()
    columns = [list(c.values.to_pylist() if c.type.is_arrow else c.values.tolist()) for c in train.columns()]
    marks = train.track.before(seqs).tolist()
    return list(zip(*columns, seqs.tolist(), train.time.array().tolist(), train.arrival.at(seqs).tolist(), marks, strict=True))


def drained(cursor: Cursor, rows_max: int = 1 << 62) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    while (portion := cursor.take(rows_max)) is not None:
        rows += seen(portion.train)
    return rows


Readers = dict[int, tuple[Cursor, int, list[tuple[Any, ...]]]]
"""By edge: a cursor, how many rows had been told when it came, and what it took since."""


def progress(log: OutputLog) -> int:
    """Let W stand for one more arrival number; return the next one."""
    push(log, empty_train(log.schema, log.hi, log.hi + 1, constant_track(log.hi, log.hi + 1, log.watermark_us)))
    return log.hi


def come_or_go(log: OutputLog, readers: Readers, edge: int, told: int, choice: random.Random, comes: bool) -> None:
    """Let a reader come, at most four, or one go."""
    if comes and len(readers) < 4:
        readers[edge] = log.open_cursor(EdgeId(edge)), told, []
    elif not comes and len(readers) > 1:
        del readers[gone := choice.choice(list(readers))]
        log.close_cursor(EdgeId(gone))


def take_some(readers: Readers, choice: random.Random, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Let one of the readers take one or two trains, do something meanwhile, and now and then put them back."""
    cursor, _, rows = readers[choice.choice(list(readers))]
    place = cursor.place()
    portions = [cursor.take(choice.choice([1, 5, 100, 1_000])) for _ in range(choice.randrange(1, 3))]
    meanwhile()
    if choice.random() < 0.3:
        cursor.put_back(place)
        return
    for portion in portions:
        if portion is not None:
            rows += seen(portion.train)


@pytest.mark.parametrize("turn", range(6))
def test_every_reader_gets_every_row_once_however_rows_are_put_together(turn: int, seed: int) -> None:
    choice = random.Random(seed + turn)
    log = OutputLog(LogId(1), SCHEMA)
    told: list[tuple[Any, ...]] = []
    readers: Readers = {}
    seq = 0
    for step in range(1_500):
        what = choice.random()
        if what < 0.9:
            train = one_row(log, seq)
            told += seen(train)
            push(log, train)
            seq += 1 if choice.random() < 0.95 else 3
        elif what < 0.92:
            seq = progress(log)
        elif what < 0.95:
            come_or_go(log, readers, step, len(told), choice, what < 0.94)
        elif readers:
            take_some(readers, choice)
    for cursor, first, rows in readers.values():
        assert rows + drained(cursor) == told[first:]
    assert (log.rows_held, log.bytes_held) == (0, 0) or not readers


def test_rows_that_came_alone_are_put_together_where_nobody_has_begun_to_read_them() -> None:
    log = OutputLog(LogId(1), SCHEMA)
    cursor = log.open_cursor(EdgeId(1))
    for seq in range(3 * FEW_NODES):
        push(log, one_row(log, seq))
    assert [t.rows for t in cursor.waiting()] == [FEW_NODES] * 3
    assert cursor.waiting()[0].track.in_order, "how single rows came is known of all of them together"
    assert cursor.pending_rows() == log.rows_held == 3 * FEW_NODES
    assert [row[3] for row in drained(cursor, 10)] == list(range(3 * FEW_NODES))
    assert (log.rows_held, log.bytes_held) == (0, 0)


def test_a_mark_stays_behind_the_rows_before_it() -> None:
    log = OutputLog(LogId(1), SCHEMA)
    cursor = log.open_cursor(EdgeId(1))
    for seq in range(FEW_NODES - 1):
        push(log, one_row(log, seq))
    last = one_row(log, FEW_NODES - 1)
    last.ended = True
    push(log, last)
    assert [t.ended for t in cursor.waiting()] == [False] * (FEW_NODES - 1) + [True]


def test_a_mark_that_a_reader_leaves_behind_the_rows_of_its_train_waits_as_a_control_item() -> None:
    log = OutputLog(LogId(1), SCHEMA)
    cursor = log.open_cursor(EdgeId(1))
    train = one_row(log, 4)
    ended = train.over(train.lo, 9)
    ended.ended = True
    push(log, ended)
    first = cursor.take(10, 6)
    assert first is not None
    assert (first.rows, first.controls, cursor.first_work()) == (1, -1, 6)
    rest = cursor.take(10, 9)
    assert rest is not None
    assert (rest.rows, rest.controls, rest.train.ended, cursor.first_work()) == (0, 1, True, None)


def test_what_a_reader_leaves_behind_the_rows_of_a_train_is_no_work_where_nothing_comes_of_it() -> None:
    log = OutputLog(LogId(1), SCHEMA)
    cursor = log.open_cursor(EdgeId(1))
    train = one_row(log, 4)
    push(log, train.over(train.lo, 9))
    first = cursor.take(10, 6)
    assert first is not None
    assert (first.rows, first.controls, cursor.first_work()) == (1, 0, None)


def test_a_queue_of_single_rows_holds_little_more_than_its_rows() -> None:
    log = OutputLog(LogId(1), SCHEMA)
    log.open_cursor(EdgeId(1))
    for seq in range(FEW_NODES):
        push(log, one_row(log, seq))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for seq in range(FEW_NODES, 101 * FEW_NODES):
            push(log, one_row(log, seq))
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert held / (100 * FEW_NODES) < 300


def test_progress_that_is_put_together_is_copied_once_and_not_with_each_train(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = 0
    compute = ChainTrack._compute

    def counted(track: ChainTrack) -> Steps:
        nonlocal copied
        steps = compute(track)
        copied += len(steps[0])
        return steps

    monkeypatch.setattr(ChainTrack, "_compute", counted)
    log = OutputLog(LogId(1), SCHEMA)
    cursor = log.open_cursor(EdgeId(1))
    trains, rows = MERGES_MAX + 2, 100
    for _ in range(trains):
        instants = np.arange(log.hi, log.hi + rows, dtype=np.int64)
        track = RowsTrack(log.hi, log.hi + rows, log.watermark_us, instants, 0)
        push(log, empty_train(SCHEMA, log.hi, log.hi + rows, track, arrival=ArrivalTimes(log.hi, 0)))
    assert 0 < copied <= trains * rows
    portion = cursor.take(1)
    assert portion is not None
    asked = np.array([0, 1, 2_345, trains * rows - 1], dtype=np.int64)
    assert portion.train.track.before(asked).tolist() == [TIME_MIN, 0, 2_344, trains * rows - 2]
