"""Rows that leave memory while they wait: every reader gets the same rows, in the same order, with the same W, whatever lies where."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from millstream.engine.data import limits
from millstream.engine.data.arrivals import ArrivalTimes
from millstream.engine.data.graph import EdgeId, LogId
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Numbers, Train
from millstream.engine.data.types import BIGINT, BOOLEAN, DOUBLE, INT, JSON, TEXT, TIMESTAMP, DataType, Kind
from millstream.engine.data.watermarks import RowsTrack, constant_track
from millstream.engine.flow import queues, spilling
from millstream.engine.flow.cursors import LogNode
from millstream.engine.flow.queues import OutputLog
from millstream.engine.flow.spilling import spill
from millstream.server.host.spilling import SpillFiles
from millstream.server.journal.disk import SystemDisk

from tests.engine.test_queues import SCHEMA as PLAIN
from tests.engine.test_queues import Readers, come_or_go, drained, one_row, progress, push, seen, take_some
from tests.property.random_queries import random_query
from tests.property.test_cut_steps import CREATES, Given, given_rows, net
from tests.support.engine_run import SqlEngine, columns_of, schema_of

LIST = DataType(Kind.LIST, element=BIGINT)
EVERY = schema_of(ts=TIMESTAMP, i=INT, b=BOOLEAN, x=DOUBLE, d=DataType(Kind.DECIMAL, 9, 2), note=TEXT, said=JSON, many=LIST)
PLENTY = 2**30


def chunk(log: OutputLog, schema: Schema, seq: int, rows: int, choice: random.Random) -> Train:
    """Rows as a publisher sends them together, times not in order."""
    rows_made: list[tuple[Any, ...]] = []
    for at in range(rows):
        row = {"ts": 1_000 * (seq + at) - choice.randrange(5_000), "k": 7 * (seq + at), "i": at, "b": at % 2 == 0, "x": at / 7,
               "d": Decimal(at) / 100, "note": f"n{at}", "said": f'{{"a":{at}}}', "many": [at, None]}  # fmt: skip
        rows_made.append(tuple(None if n != "ts" and choice.random() < 0.1 else row[n] for n in schema.names))
    columns = columns_of(schema, rows_made)
    times = columns[0].values
    track = RowsTrack(log.hi, seq + rows, log.watermark_us, times, 1_000, first=seq)
    numbers = Numbers(rows, array=times)
    arrival = ArrivalTimes(seq, 10 * seq)
    return Train(schema, columns, rows=rows, lo=log.hi, hi=seq + rows, seq=Numbers(rows, start=seq, step=1), time=numbers, arrival=arrival,
                 track=track)  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> SpillFiles:
    return SpillFiles(tmp_path, SystemDisk(), PLENTY)


@pytest.mark.parametrize("turn", range(3))
def test_every_reader_gets_every_row_once_though_rows_leave_memory_meanwhile(
    turn: int, seed: int, files: SpillFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = random.Random(seed + turn)
    schema = EVERY if turn % 2 else PLAIN
    monkeypatch.setattr(queues, "SPILLED_ROWS", choice.choice((1, 40, 500)))
    monkeypatch.setattr(spilling, "AHEAD_ROWS", choice.choice((0, 30)))
    log = OutputLog(LogId(1), schema)
    told: list[tuple[Any, ...]] = []
    readers: Readers = {0: (log.open_cursor(EdgeId(0)), 0, [])}
    seq = spilled = 0

    def leave() -> None:
        nonlocal spilled
        spilled += spill(log, files.place, choice.choice((0, 50)), choice.choice((0, PLENTY)))
        assert 0 <= log.rows_spilled <= log.rows_held

    for step in range(1, 300):
        what = choice.random()
        if what < 0.6:
            alone = schema is PLAIN and choice.random() < 0.8
            train = one_row(log, seq) if alone else chunk(log, schema, seq, choice.randrange(1, 60), choice)
            told += seen(train)
            push(log, train)
            seq = log.hi + (choice.random() < 0.05) * 2
        elif what < 0.65:
            seq = progress(log)
        elif what < 0.70:
            come_or_go(log, readers, step, len(told), choice, what < 0.68)
        elif what < 0.85:
            leave()
        else:
            take_some(readers, choice, leave if choice.random() < 0.5 else files.trim)
            files.trim()
    assert spilled > 100
    for cursor, first, rows in readers.values():
        assert rows + drained(cursor) == told[first:]
    assert (log.rows_held, log.bytes_held, log.rows_spilled, log.bytes_spilled) == (0, 0, 0, 0)
    files.trim()
    assert files.bytes_total == 0
    assert list((tmp_path / "spill").iterdir()) == []


def test_a_reader_that_takes_a_row_while_it_is_written_keeps_it_in_memory(files: SpillFiles) -> None:
    log = OutputLog(LogId(1), PLAIN)
    cursor = log.open_cursor(EdgeId(1))
    for seq in range(500):
        push(log, one_row(log, seq))

    def overtaken(arrays: Any) -> Any:
        views = files.place(arrays)
        cursor.take(1)
        return views

    spill(log, overtaken, 0, 0)
    assert log.rows_spilled + cursor.rows_taken <= 500
    first = cursor.rows_taken
    assert 0 < first <= spilling.RACES_MAX
    assert [row[3] for row in drained(cursor)] == list(range(first, 500))
    assert (log.rows_held, log.rows_spilled) == (0, 0)


def test_rows_that_a_faster_reader_took_in_parts_leave_memory_too(files: SpillFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilling, "AHEAD_ROWS", 0)
    log = OutputLog(LogId(1), PLAIN)
    slow, fast = log.open_cursor(EdgeId(1)), log.open_cursor(EdgeId(2))
    told: list[tuple[Any, ...]] = []
    for _ in range(10):
        train = chunk(log, PLAIN, log.hi, 60, random.Random(1))
        told += seen(train)
        push(log, train)
    assert drained(fast, 50) == told
    assert spill(log, files.place, 0, 0) == 8 * 60, "all but the last two nodes, which may yet be put together"
    assert drained(slow) == told
    assert (log.rows_held, log.rows_spilled) == (0, 0)


def again(train: Train, log: OutputLog) -> Train:
    """The same rows once more, behind those that are there."""
    moved = train.replace_columns(train.schema, train.slots)
    moved.lo, moved.hi, moved.seq = log.hi, log.hi + train.rows, Numbers(train.rows, start=log.hi, step=1)
    moved.track = RowsTrack(moved.lo, moved.hi, log.watermark_us, train.time.array(), 1_000, first=moved.lo)
    return moved


def test_a_bound_on_files_leaves_the_rest_in_memory_and_what_is_read_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.server.host.spilling.FILE_BYTES", 2**20)
    monkeypatch.setattr(queues, "SPILLED_ROWS", 4_000)
    files = SpillFiles(tmp_path, SystemDisk(), 2 * 2**20)
    log = OutputLog(LogId(1), EVERY)
    cursor = log.open_cursor(EdgeId(1))
    whole = chunk(log, EVERY, 0, 4_000, random.Random(1))
    for _ in range(16):
        push(log, again(whole, log))
    assert 0 < spill(log, files.place, 0, 0) < 15 * 4_000
    assert log.rows_in_memory > 4_000
    assert files.bytes_total == 2 * 2**20
    while log.rows_spilled:
        assert cursor.take(4_000) is not None
    assert cursor.take(1) is not None
    assert spill(log, files.place, 0, 0) > 0


def test_wide_decimals_stay_in_memory(files: SpillFiles) -> None:
    schema = schema_of(ts=TIMESTAMP, d=DataType(Kind.DECIMAL, 30, 2))
    log = OutputLog(LogId(1), schema)
    assert not log.can_spill
    log.open_cursor(EdgeId(1))
    times = np.arange(4, dtype=np.int64)
    for _ in range(4):
        columns = columns_of(schema, [(t, Decimal(t) / 4) for t in times.tolist()])
        track = constant_track(log.hi, log.hi + 4, log.watermark_us)
        numbers = Numbers(4, start=log.hi, step=1)
        log.push(LogNode(Train(schema, columns, rows=4, lo=log.hi, hi=log.hi + 4, seq=numbers, time=Numbers(4, array=times),
                               arrival=ArrivalTimes(log.hi, 1), track=track), log))  # fmt: skip
    assert spill(log, files.place, 0, 0) == 0


def answer(text: str, given: Given, spills: random.Random | None, files: SpillFiles) -> Any:
    engine = SqlEngine(*CREATES)
    engine.select(text)
    gone = 0
    for place, (stream, rows) in enumerate(given):
        engine.put(stream, rows, chunk=3)
        if spills is not None and spills.random() < 0.7:
            for source in engine.network.sources.values():
                gone += spill(source.log, files.place, spills.choice((0, 20)), 0)
        if place % 4 == 3:
            engine.work()
    engine.end("a", "b", "c")
    engine.work()
    accounts = engine.account("q")
    assert all(account.balances and account.queued == 0 for account in accounts.values()), accounts
    return net(engine.rows("q"), text), accounts, gone


@pytest.mark.parametrize("seed", range(16))
def test_an_answer_does_not_depend_on_what_leaves_memory(seed: int, files: SpillFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = random.Random(seed)
    text, given = random_query(choice), given_rows(choice)
    monkeypatch.setattr(queues, "SPILLED_ROWS", choice.choice((1, 30, 200)))
    monkeypatch.setattr(limits, "TRAIN_ROWS_MAX", choice.choice((7, 65_536)))
    expected, accounts, _ = answer(text, given, None, files)
    for spills in (random.Random(seed), random.Random(-seed)):
        found, counted, gone = answer(text, given, spills, files)
        assert gone
        assert (found, counted) == (expected, accounts), text
