"""A sliding window of many panes by many keys: COUNT, SUM and MAX over 10 s each second, 1,000 keys. Rows, query, the same in NumPy."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "window_in"
STREAM = f"CREATE STREAM {NAME} (ts TIMESTAMP, key BIGINT, price DOUBLE) TIMESTAMP BY ts"
SELECT = (
    "SELECT window_end, key, COUNT(*) AS n, SUM(price) AS total, MAX(price) AS highest "
    f"FROM {NAME} [RANGE 10 SECONDS SLIDE 1 SECOND] GROUP BY key"
)
KEYS, ROWS_PER_S, PANES = 1_000, 50_000, 10
SECOND_US = 1_000_000
START_US = 1_700_000_000 * SECOND_US
TRAIN = 10_000

Window: TypeAlias = tuple[int, Any, Any, Any]
"""End in µs since 1970; count, sum and maximum by key."""


def trains(rows: int) -> list[pa.RecordBatch]:
    """Return so many rows in record batches of `TRAIN`; event time moves 20 µs a row."""
    import numpy as np
    import pyarrow as pa

    random = np.random.default_rng(2)
    step = SECOND_US // ROWS_PER_S
    times = pa.array(START_US + step * np.arange(rows, dtype=np.int64)).view(pa.timestamp("us", "UTC"))
    whole = pa.record_batch({"ts": times, "key": random.integers(0, KEYS, rows), "price": random.random(rows) * 100.0})
    return [whole.slice(at, TRAIN) for at in range(0, rows, TRAIN)]


def closing(rows: int) -> pa.RecordBatch:
    """Return one row so late that it closes all windows of the others. Its own stay open."""
    import pyarrow as pa

    after_us = START_US + (rows // ROWS_PER_S + 2 * PANES) * SECOND_US
    times = pa.array([after_us]).view(pa.timestamp("us", "UTC"))
    return pa.record_batch({"ts": times, "key": pa.array([0]), "price": pa.array([0.0])})


def views(batch: pa.RecordBatch) -> list[Any]:
    """Return ts, key and price of one train as NumPy arrays over the same memory."""
    import pyarrow as pa

    return [batch.column(0).view(pa.int64()).to_numpy(), batch.column(1).to_numpy(), batch.column(2).to_numpy()]


def reference(trains_of_views: Sequence[Sequence[Any]]) -> list[Window]:
    """Return every window in order: each row folded once into its pane, windows added up from panes."""
    import numpy as np

    panes: deque[tuple[Any, Any, Any]] = deque(maxlen=PANES)
    answers = []
    counts, sums, highest = _pane()
    current = int(trains_of_views[0][0][0]) // SECOND_US
    for ts, key, price in trains_of_views:
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
    import numpy as np

    return np.zeros(KEYS, dtype=np.int64), np.zeros(KEYS), np.full(KEYS, -np.inf)


def _window(end: int, panes: deque[tuple[Any, Any, Any]]) -> Window:
    import numpy as np

    counts, sums, highest = (np.array(columns) for columns in zip(*panes, strict=True))
    return end * SECOND_US, counts.sum(axis=0), sums.sum(axis=0), highest.max(axis=0)


def rows_of(expected: Sequence[Window]) -> int:
    """Return how many rows an answer has: a window has one for each key that came."""
    return sum(int((counts > 0).sum()) for _, counts, _, _ in expected)


def is_answer(columns: Sequence[Any], expected: Sequence[Window]) -> bool:
    """Whether these columns of the query (end, key, count, sum, maximum) are the answer, whatever the order of their rows."""
    import numpy as np

    ends, keys, counts, sums, highest = columns
    order = np.lexsort((keys, ends))
    present = [np.flatnonzero(n) for _, n, _, _ in expected]
    pairs = list(zip(expected, present, strict=True))
    return (
        np.array_equal(ends[order], np.repeat([end for end, *_ in expected], [len(p) for p in present]))
        and np.array_equal(keys[order], np.concatenate(present))
        and np.array_equal(counts[order].astype(np.int64), np.concatenate([n[p] for (_, n, _, _), p in pairs]))
        and np.allclose(sums[order], np.concatenate([s[p] for (_, _, s, _), p in pairs]), rtol=1e-12)
        and np.array_equal(highest[order], np.concatenate([h[p] for (*_, h), p in pairs]))
    )
