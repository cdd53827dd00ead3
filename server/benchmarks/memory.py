"""Bytes that a row costs where it waits: in a queue, in a window's panes, in a join."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.server.benchmarks import join
from millstream.server.benchmarks.contract import Figures, Kit
from millstream.server.benchmarks.embedding import Embedded

START_US = 1_700_000_000_000_000
SECOND_US = 1_000_000
KEYS = 1_000


def benchmark(kit: Kit) -> Iterator[Figures]:
    """Bytes a row in queues, by train size; bytes a group in windows; bytes a row in a join."""
    rows = kit.size(500_000, 50_000)
    for train in (1, 100, 10_000):
        yield _queue(kit, rows if train > 1 else rows // 25, train)
    yield _window(kit)
    yield _join(kit, rows // 5)


def _queue(kit: Kit, rows: int, train: int) -> Figures:
    name, stream, select = kit.window_query
    engine = Embedded(stream, select)
    tables = [_rows(at, train) for at in range(0, rows, train)]

    def fill() -> None:
        for at, table in enumerate(tables):
            engine.push(name, engine.columns(name, table))
            tables[at] = None  # the queue alone holds it from here on

    held = _bytes_of(fill, freed=sum(t.nbytes for t in tables))
    log = engine.host.network.sources[name].log
    kit.require(log.rows_held == rows, "the queue does not hold all rows")
    return {"name": "memory-queue", "train": train, "bytes_per_row": held / rows, "counted_per_row": log.bytes_held / rows}


def _rows(first: int, rows: int) -> Any:
    times = pa.array(START_US + 20 * (first + np.arange(rows, dtype=np.int64))).view(pa.timestamp("us", "UTC"))
    return pa.record_batch({"ts": times, "key": np.arange(rows) % KEYS, "price": np.ones(rows)})


def _window(kit: Kit) -> Figures:
    """State of ten panes by so many groups: what a row leaves behind does not depend on how many rows there are."""
    groups = kit.size(100_000, 10_000)
    name, stream, select = kit.window_query
    engine = Embedded(stream, select)
    rows = 2 * groups
    times = pa.array(START_US + (8 * SECOND_US // rows) * np.arange(rows, dtype=np.int64)).view(pa.timestamp("us", "UTC"))
    table = pa.record_batch({"ts": times, "key": np.arange(rows) % groups, "price": np.ones(rows)})
    columns = engine.columns(name, table)

    def fold() -> None:
        engine.push(name, columns)
        engine.runtime.run()
        engine.results.take()

    held = _bytes_of(fold)
    kit.require(engine.host.network.sources[name].log.rows_held == 0, "rows were left in the queue")
    return {"name": "memory-window", "groups": groups, "panes": 8, "bytes_per_row": held / rows, "bytes_per_group": held / groups}


def _join(kit: Kit, rows: int) -> Figures:
    engine = Embedded(*join.STREAMS, join.SELECT)
    step = join.WITHIN_US // rows
    times = pa.array(join.START_US + step * np.arange(rows, dtype=np.int64)).view(pa.timestamp("us", "UTC"))
    sides = [
        engine.columns(name, pa.record_batch({"ts": times, "key": np.arange(rows) + offset, "value": np.ones(rows)}))
        for name, offset in zip(join.NAMES, (0, rows), strict=True)
    ]

    def fold() -> None:
        for name, columns in zip(join.NAMES, sides, strict=True):
            engine.push(name, columns)
        engine.runtime.run()

    held = _bytes_of(fold)
    kit.require(engine.results.rows == 0, "rows matched that have different keys")
    return {"name": "memory-join", "bytes_per_row": held / (2 * rows) + _columns_bytes(sides) / (2 * rows)}


def _columns_bytes(sides: list[Any]) -> int:
    """Bytes of the columns that were there before and that the join keeps views of."""
    return sum(int(c.nbytes()) for columns in sides for c in columns)


def _bytes_of(action: Callable[[], None], freed: int = 0) -> int:
    """Return how much more memory is held after an action than before, plus what it let go of."""
    gc.collect()
    tracemalloc.start()
    arrow = pa.total_allocated_bytes()
    try:
        action()
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return held + int(pa.total_allocated_bytes() - arrow) + freed
