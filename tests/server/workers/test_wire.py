"""What crosses to a worker and back is what was sent: trains of every make, and arrays that lie in shared memory."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from millstream.engine.data.arrivals import NO_ARRIVALS, ArrivalTimes, SteppedArrivals
from millstream.engine.data.chunks import ChunkStore
from millstream.engine.data.column import CellColumn, Column
from millstream.engine.data.train import Numbers, Train, concat_trains, empty_train
from millstream.engine.data.types import BIGINT, BOOLEAN, DOUBLE, TEXT, TIMESTAMP, DataType, Kind
from millstream.engine.data.watermarks import RowsTrack, RowTrack, StepTrack, constant_track, jump_track
from millstream.server.workers.wire import Reader, Writer

from tests.support.engine_run import columns_of, schema_of, values_of

LIST = DataType(Kind.LIST, element=BIGINT)
WIDE = DataType(Kind.DECIMAL, precision=38, scale=2)
SCHEMA = schema_of(ts=TIMESTAMP, k=BIGINT, v=DOUBLE, b=BOOLEAN, note=TEXT, many=LIST, wide=WIDE)


def train_of(choice: random.Random, lo: int = 100) -> Train:
    """A random train of every kind of column, track and arrival."""
    rows, gap = choice.choice([0, 1, 3, 40]), choice.choice([0, 2])
    hi = lo + rows + gap
    times = np.array([choice.randint(-50, 50) for _ in range(rows)], dtype=np.int64)
    if not rows:
        track = choice.choice([constant_track(lo, hi, 7), jump_track(lo, hi + 1, -5, hi, 9)])
        train = empty_train(SCHEMA, lo, track.hi, track, arrival=choice.choice([NO_ARRIVALS, ArrivalTimes(lo, 5)]))
        train.ended, train.idle, train.flush = choice.random() < 0.5, choice.choice([None, True, False]), choice.random() < 0.5
        return train
    nothing = lambda value: None if choice.random() < 0.2 else value  # noqa: E731
    given = [
        [int(t), nothing(choice.randint(-9, 9)), nothing(choice.random()), nothing(choice.random() < 0.5),
         nothing("ä" * choice.randint(0, 4)), nothing([1, 2]), nothing(choice.randint(0, 10**30))]
        for t in times
    ]  # fmt: skip
    columns = columns_of(schema_of(ts=TIMESTAMP, k=BIGINT, v=DOUBLE, b=BOOLEAN, note=TEXT, many=LIST), [row[:6] for row in given])
    wide = np.array([0 if row[6] is None else row[6] for row in given], dtype=np.object_)
    columns.append(Column(WIDE, wide, np.array([row[6] is not None for row in given])))
    if choice.random() < 0.3:
        columns[1] = CellColumn(BIGINT, [choice.randint(0, 9) for _ in range(rows)])
    seqs = np.arange(lo, lo + rows, dtype=np.int64)
    tracks = [RowsTrack(lo, hi, -60, times, 3, first=lo), constant_track(lo, hi, 4), StepTrack(lo, hi, 1, seqs, np.arange(2, rows + 2))]
    if rows == 1:
        tracks.append(RowTrack(lo, hi, -60, int(times[0]), 3, lo))
    numbers = [Numbers(rows, start=lo, step=1), Numbers(rows, array=seqs), Numbers(rows, start=lo)]
    arrivals = [ArrivalTimes(lo, 9), SteppedArrivals(seqs, seqs * 10)]
    train = Train(
        SCHEMA, columns, rows=rows, lo=lo, hi=hi, seq=choice.choice(numbers), time=Numbers(rows, array=times),
        arrival=choice.choice(arrivals), track=choice.choice(tracks), notes=choice.choice([None, {"gap": 3}]),
    )  # fmt: skip
    if choice.random() < 0.3:
        return train.take(np.arange(0, rows, 2, dtype=np.int64))
    if choice.random() < 0.3:
        return concat_trains([train, train_of(choice, hi)])
    return train


def told(train: Train) -> dict[str, Any]:
    seqs = train.seq.array()
    return {
        "span": (train.rows, train.lo, train.hi, train.ended, train.idle, train.flush, train.notes),
        "seqs": seqs.tolist(),
        "times": train.time.array().tolist(),
        "arrivals": train.arrival.at(seqs).tolist() if train.rows else train.arrival is NO_ARRIVALS,
        "columns": [values_of(c) if not c.type.is_wide else (c.values.tolist(), c.validity()) for c in train.columns()][:6],
        "wide": repr(train.column(6).values.tolist()),
        "track": (train.track.start, train.track.end, train.track.in_order, train.track.sorted_span(), train.track.before(seqs).tolist()),
    }


def crossed(train: Train, writer: Writer, segments: dict[int, Any]) -> Train:
    head, bodies, size = writer.parts(["x", writer.train(train)])
    behind = b"".join(body.tobytes() + b"\0" * (-body.nbytes % 8) for body in bodies)
    assert len(behind) == size
    reader = Reader(head, behind, segments.__getitem__)
    return reader.train(reader.body[1], SCHEMA, ())


@pytest.mark.parametrize("turn", range(30))
def test_a_train_arrives_as_it_was_sent(turn: int, seed: int) -> None:
    train = train_of(random.Random(seed + turn))
    assert told(crossed(train, Writer(), {})) == told(train)


def test_watermarks_of_a_call_s_input_are_told_by_their_place(seed: int) -> None:
    """They have a number for each row, and come back with whatever an operator makes of the rows."""
    choice = random.Random(seed)
    parts = [train_of(choice), train_of(choice)]
    parts[1] = train_of(choice, parts[0].hi)
    for made in (parts[1], concat_trains(parts)):
        writer = Writer()
        writer.tracks = {id(part.track): (0, number) for number, part in enumerate(parts)}
        head, bodies, _ = writer.parts(["x", writer.train(made)])
        behind = b"".join(body.tobytes() + b"\0" * (-body.nbytes % 8) for body in bodies)
        reader = Reader(head, behind, {}.__getitem__)
        found = reader.train(reader.body[1], SCHEMA, (), [parts])
        assert told(found) == told(made)
    assert found.track.parts == tuple(part.track for part in parts), "no number of a row's watermark was sent"


def test_columns_in_shared_memory_are_told_by_their_places(rng: np.random.Generator) -> None:
    segments: dict[int, Any] = {}

    def make(number: int, size: int) -> Any:
        segments[number] = np.zeros(size, dtype=np.uint8)
        return segments[number]

    store, rows = ChunkStore(make, 1 << 22), 500
    schema = schema_of(ts=TIMESTAMP, k=BIGINT, note=TEXT)
    texts = pa.array([f"text {i}" for i in range(rows)])
    columns = store.placed([Column(TIMESTAMP, np.arange(rows)), Column(BIGINT, rng.integers(0, 9, rows)), Column(TEXT, texts)])
    whole = Train(
        schema, columns, rows=rows, lo=0, hi=rows, seq=Numbers(rows, start=0, step=1), time=Numbers(rows, array=columns[0].values),
        arrival=ArrivalTimes(0, 1), track=constant_track(0, rows, 0),
    )  # fmt: skip

    def find(address: int, size: int) -> tuple[int, int] | None:
        found = store.find(address, size)
        return None if found is None else (found[0].number, found[1])

    for train in (whole, whole.split_at(123)[1]):
        writer = Writer(find)
        head, bodies, size = writer.parts(["x", writer.train(train)])
        is_whole = train is whole
        assert size == 0 if is_whole else size < train.rows * 16, "numbers lie where they are; of texts that were cut the parts are sent"
        behind = b"".join(body.tobytes() + b"\0" * (-body.nbytes % 8) for body in bodies)
        reader = Reader(head, behind, segments.__getitem__)
        found = reader.train(reader.body[1], schema)
        assert [values_of(c) for c in found.columns()] == [values_of(c) for c in train.columns()]
        assert list(writer.segments) == [0]
