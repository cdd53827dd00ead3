"""A sliding window of many panes by many keys: COUNT, SUM and MAX over 10 s each second, 1,000 keys."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.train import Train
from millstream.server.benchmarks.contract import Figures, Kit, compared
from millstream.server.benchmarks.embedding import Embedded

STREAM = "CREATE STREAM window_in (ts TIMESTAMP, key BIGINT, price DOUBLE) TIMESTAMP BY ts"
SELECT = (
    "SELECT window_end, key, COUNT(*) AS n, SUM(price) AS total, MAX(price) AS highest "
    "FROM window_in [RANGE 10 SECONDS SLIDE 1 SECOND] GROUP BY key"
)
KEYS, ROWS_PER_S, PANES = 1_000, 50_000, 10
SECOND_US = 1_000_000
START_US = 1_700_000_000 * SECOND_US
TRAIN = 10_000


def benchmark(kit: Kit) -> Iterator[Figures]:
    """COUNT, SUM, MAX over 10 s each second by 1,000 keys, the engine alone."""
    rows = kit.size(2_000_000, 200_000)
    batches = _trains(rows)
    views = [(b.column(0).view(pa.int64()).to_numpy(), b.column(1).to_numpy(), b.column(2).to_numpy()) for b in batches]
    template = Embedded(STREAM)
    columns = [template.columns("window_in", batch) for batch in batches]
    engines: list[Embedded] = []

    def start() -> None:
        engines.append(Embedded(STREAM, SELECT))  # which neither side has in its time: by hand nobody registers a query

    def ours() -> list[Train]:
        engine = engines.pop()
        for one in columns:
            engine.push("window_in", one)
            engine.runtime.run()
        engine.end("window_in")
        return engine.results.take()

    expected = reference(views)
    start()
    kit.require(_equal(ours(), expected), "other windows than by hand")
    timing = kit.alternate(ours, lambda: reference(views), prepare=start)
    yield compared("window", rows, timing, train=TRAIN, queries=1, peak_rss_mb=kit.peak_rss_mb())


def _trains(rows: int) -> list[Any]:
    random = np.random.default_rng(2)
    step = SECOND_US // ROWS_PER_S
    times = pa.array(START_US + step * np.arange(rows, dtype=np.int64)).view(pa.timestamp("us", "UTC"))
    whole = pa.record_batch({"ts": times, "key": random.integers(0, KEYS, rows), "price": random.random(rows) * 100.0})
    return [whole.slice(at, TRAIN) for at in range(0, rows, TRAIN)]


def reference(views: list[tuple[Any, Any, Any]]) -> list[tuple[int, Any, Any, Any]]:
    """Return (end, counts, sums, maxima) of every window in order: each row folded once into its pane, windows added up from panes."""
    panes: deque[tuple[Any, Any, Any]] = deque(maxlen=PANES)
    answers = []
    counts, sums, highest = _pane()
    current = int(views[0][0][0]) // SECOND_US
    for ts, key, price in views:
        numbers = ts // SECOND_US
        start = 0
        for pane in range(int(numbers[0]), int(numbers[-1]) + 1):
            stop = int(np.searchsorted(numbers, pane, side="right"))
            if pane != current:
                panes.append((counts, sums, highest))
                answers.append(_window(current + 1, panes))
                counts, sums, highest = _pane()
                current = pane
            keys, values = key[start:stop], price[start:stop]
            counts += np.bincount(keys, minlength=KEYS)
            sums += np.bincount(keys, weights=values, minlength=KEYS)
            np.maximum.at(highest, keys, values)
            start = stop
    panes.append((counts, sums, highest))
    answers.append(_window(current + 1, panes))
    for later in range(1, PANES):
        if len(panes) + later > PANES:
            panes.popleft()
        answers.append(_window(current + 1 + later, panes))
    return answers


def _pane() -> tuple[Any, Any, Any]:
    return np.zeros(KEYS, dtype=np.int64), np.zeros(KEYS), np.full(KEYS, -np.inf)


def _window(end: int, panes: deque[tuple[Any, Any, Any]]) -> tuple[int, Any, Any, Any]:
    counts, sums, highest = (np.array(columns) for columns in zip(*panes, strict=True))
    return end * SECOND_US, counts.sum(axis=0), sums.sum(axis=0), highest.max(axis=0)


def _equal(trains: list[Train], expected: list[tuple[int, Any, Any, Any]]) -> bool:
    ends, keys, counts, sums, highest = (np.concatenate([t.column(i).values for t in trains]) for i in range(5))
    order = np.lexsort((keys, ends))
    present = [np.flatnonzero(n) for _, n, _, _ in expected]
    return (
        np.array_equal(ends[order], np.repeat([end for end, *_ in expected], [len(p) for p in present]))
        and np.array_equal(keys[order], np.concatenate(present))
        and np.array_equal(
            counts[order].astype(np.int64), np.concatenate([n[p] for (_, n, _, _), p in zip(expected, present, strict=True)])
        )
        and np.allclose(sums[order], np.concatenate([s[p] for (_, _, s, _), p in zip(expected, present, strict=True)]), rtol=1e-12)
        and np.array_equal(highest[order], np.concatenate([h[p] for (*_, h), p in zip(expected, present, strict=True)]))
    )
