"""The chunk store: columns read as before, memory is used again once nobody reads it, and never before."""

from __future__ import annotations

import gc
import random

import numpy as np
import pyarrow as pa
import pytest
from millstream.engine.data.chunks import ChunkStore, address_of
from millstream.engine.data.column import Column
from millstream.engine.data.types import BIGINT, BOOLEAN, DOUBLE, TEXT, TIMESTAMP

from tests.support.engine_run import values_of

ROWS = 200


def store(bytes_max: int = 1 << 20, segment_bytes: int = 1 << 16) -> ChunkStore:
    return ChunkStore(lambda number, size: np.zeros(size, dtype=np.uint8), bytes_max, segment_bytes)


def chunk(rng: np.random.Generator, rows: int = ROWS) -> list[Column]:
    texts = pa.array([None if i % 7 == 0 else "é" * (i % 5) for i in range(rows + 3)], pa.string()).slice(3)
    return [
        Column(BIGINT, rng.integers(0, 1 << 60, rows)),
        Column(DOUBLE, rng.random(rows), rng.random(rows) < 0.5),
        Column(BOOLEAN, rng.random(rows) < 0.5),
        Column(TEXT, texts),
        Column(TEXT, pa.array(["a", "bc"] * (rows // 2), pa.string())),
        Column(TIMESTAMP, np.arange(rows, dtype=np.int64)[::-1]),
    ]


def test_columns_that_are_placed_read_as_before(rng: np.random.Generator) -> None:
    chunks = store()
    columns = chunk(rng)
    placed = chunks.placed(columns)
    assert [values_of(c) for c in placed] == [values_of(c) for c in columns]
    found = [chunks.find(address_of(c.values), 8) for c in placed if not c.type.is_arrow]
    assert None not in found
    assert len({f[1] for f in found if f}) == len(found)
    assert chunks.find(address_of(columns[0].values), 8) is None


def test_memory_is_used_again_only_when_the_last_array_over_it_is_gone(rng: np.random.Generator) -> None:
    chunks = store(bytes_max=2 << 16)
    choice = random.Random(1)
    held: list[tuple[list[object], list[Column]]] = []
    for _ in range(300):
        columns = chunk(rng)
        placed = list(chunks.placed(columns))
        kept = [c.slice(10, 50) for c in placed]
        held.append(([values_of(c) for c in kept], kept))
        del placed
        while len(held) > choice.randint(0, 6):
            held.pop(choice.randrange(len(held)))
        for expected, kept in held:
            assert [values_of(c) for c in kept] == expected, "an array was overwritten that somebody reads"
    assert chunks.bytes_total <= 2 << 16, "segments are used again"


def test_large_chunks_of_about_one_size_use_the_same_segments() -> None:
    choice, chunks = random.Random(2), store(bytes_max=4 << 20)
    made = []
    for _ in range(200):
        room = chunks.room(choice.randint(5, 6) * (1 << 16) - choice.randrange(1 << 15))
        assert room is not None, "what is too small to be used again would fill the store"
        made.append(room)
        del made[: choice.choice((0, 1, 2)) if len(made) < 3 else 2]
    assert chunks.bytes_total <= 6 * 6 << 16


def test_what_others_were_told_of_stays_until_they_let_go(rng: np.random.Generator) -> None:
    chunks = store(bytes_max=1 << 16)
    placed = chunks.placed(chunk(rng, 1_200))
    found = chunks.find(address_of(placed[0].values), 8)
    assert found is not None
    segment, _ = found
    chunks.tell(segment, 7)
    del placed
    gc.collect()
    for _ in range(3):
        columns = chunks.placed(chunk(rng, 1_200))
        assert chunks.find(address_of(columns[0].values), 8) is None, "there is no room while somebody reads"
    chunks.untell(segment.number, 7, 1)
    assert chunks.find(address_of(chunks.placed(chunk(rng, 1_200))[0].values), 8) is not None
    gc.collect()
    chunks.tell(segment, 8)
    chunks.forget(8)
    assert chunks.find(address_of(chunks.placed(chunk(rng, 1_200))[0].values), 8) is not None


@pytest.mark.parametrize("rows", [1, 100])
def test_a_few_rows_stay_where_they_are(rng: np.random.Generator, rows: int) -> None:
    columns = [Column(BIGINT, rng.integers(0, 9, rows))]
    assert store().placed(columns) is columns
