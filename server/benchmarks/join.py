"""Two streams joined by key within 10 s in both directions; 10,000 keys, about two matches a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.train import Train
from millstream.server.benchmarks.contract import Figures, Kit, compared
from millstream.server.benchmarks.embedding import Embedded

STREAMS = tuple(f"CREATE STREAM {name} (ts TIMESTAMP, key BIGINT, value DOUBLE) TIMESTAMP BY ts" for name in ("join_left", "join_right"))
SELECT = (
    "SELECT l.ts AS left_ts, r.ts AS right_ts, l.key AS key, l.value AS left_value, r.value AS right_value "
    "FROM join_left AS l JOIN join_right AS r ON l.key = r.key WITHIN 10 SECONDS"
)
KEYS, ROWS_PER_S = 10_000, 1_000
SECOND_US = 1_000_000
WITHIN_US = 10 * SECOND_US
START_US = 1_700_000_000 * SECOND_US
TRAIN = 10_000
NAMES = ("join_left", "join_right")


def benchmark(kit: Kit) -> Iterator[Figures]:
    """Two streams joined by key within 10 s, 10,000 keys, two matches a row, the engine alone."""
    rows = kit.size(500_000, 50_000)
    sides = [_side(rows, seed) for seed in (3, 4)]
    template = Embedded(*STREAMS)
    columns = [
        [template.columns(name, side.slice(at, TRAIN)) for at in range(0, rows, TRAIN)] for name, side in zip(NAMES, sides, strict=True)
    ]
    views = [(s.column(0).view(pa.int64()).to_numpy(), s.column(1).to_numpy(), s.column(2).to_numpy()) for s in sides]
    expected = reference(*views)

    def ours() -> list[Train]:
        engine = Embedded(*STREAMS, SELECT)
        for pair in zip(*columns, strict=True):
            for name, one in zip(NAMES, pair, strict=True):
                engine.push(name, one)
            engine.runtime.run()
        engine.end(*NAMES)
        trains = engine.results.take()
        kit.require(sum(t.rows for t in trains) == len(expected[0]), "another number of matches")
        return trains

    kit.require(_equal(ours(), expected), "other matches than by hand")
    timing = kit.alternate(ours, lambda: reference(*views))
    yield compared("join", 2 * rows, timing, train=TRAIN, queries=1, peak_rss_mb=kit.peak_rss_mb())


def _side(rows: int, seed: int) -> Any:
    random = np.random.default_rng(seed)
    times = pa.array(START_US + (SECOND_US // ROWS_PER_S) * np.arange(rows, dtype=np.int64)).view(pa.timestamp("us", "UTC"))
    return pa.record_batch({"ts": times, "key": random.integers(0, KEYS, rows), "value": random.random(rows)})


def reference(left: tuple[Any, Any, Any], right: tuple[Any, Any, Any]) -> tuple[Any, ...]:
    """Return the matches' columns: the right side sorted by key and time, a range in it found for each row of the left."""
    span = int(right[0][-1] - right[0][0]) + 2 * WITHIN_US + 2
    base = int(right[0][0]) - WITHIN_US
    places = right[1] * span + (right[0] - base)
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    own = left[1] * span + np.clip(left[0] - base, WITHIN_US, span - WITHIN_US - 1)
    first = np.searchsorted(ordered, own - WITHIN_US, side="left")
    last = np.searchsorted(ordered, own + WITHIN_US, side="right")
    matches = last - first
    from_left = np.repeat(np.arange(len(own)), matches)
    starts = np.cumsum(matches) - matches
    from_right = order[np.arange(len(from_left)) - np.repeat(starts - first, matches)]
    return left[0][from_left], right[0][from_right], left[1][from_left], left[2][from_left], right[2][from_right]


def _equal(trains: list[Train], expected: tuple[Any, ...]) -> bool:
    got = [np.concatenate([t.column(i).values for t in trains]) for i in range(5)]
    if len(got[0]) != len(expected[0]):
        return False
    orders = [np.lexsort((columns[1], columns[0], columns[2])) for columns in (got, expected)]
    return all(np.array_equal(g[orders[0]], e[orders[1]]) for g, e in zip(got, expected, strict=True))
