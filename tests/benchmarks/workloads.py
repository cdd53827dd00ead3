"""Workloads of the engine: a query, its input, and the same answer by hand in NumPy.

W1 is a chain of six selections and projections, W2 a sliding window by 1000 keys, W3 a join with about one match a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from millstream.engine.data.column import Column
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import BIGINT, DOUBLE, TEXT, TIMESTAMP

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

US_PER_S = 1_000_000
PRICE_AT_LEAST = 25.0
WINDOW_KEYS = 1_000
WINDOW_S = 10
JOIN_KEYS = 10_000

CHAIN_STREAM = "CREATE STREAM w1 (ts TIMESTAMP, key BIGINT, a BIGINT, b BIGINT, price DOUBLE, tag TEXT) TIMESTAMP BY ts"
CHAIN_QUERY = (
    f"SELECT ts, key, price FROM (SELECT ts, key, price * 1.1e0 AS price, tag FROM (SELECT ts, key, b, price, tag FROM w1 WHERE a <= 80)"
    f" WHERE b <= 80) WHERE price > {PRICE_AT_LEAST}e0"
)
WINDOW_STREAM = "CREATE STREAM w2 (ts TIMESTAMP, key BIGINT, v DOUBLE) TIMESTAMP BY ts"
WINDOW_QUERY = "SELECT key, COUNT(*) AS n, SUM(v) AS total, MAX(v) AS greatest FROM w2 [RANGE 10 SECONDS SLIDE 1 SECOND] GROUP BY key"
JOIN_STREAMS = tuple(f"CREATE STREAM {name} (ts TIMESTAMP, key BIGINT, v BIGINT) TIMESTAMP BY ts" for name in ("w3a", "w3b"))
JOIN_QUERY = "SELECT x.ts AS at, x.key AS key, x.v AS a, y.v AS b FROM w3a x JOIN w3b y ON x.key = y.key WITHIN 10 SECONDS"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Columns of one publish for one stream."""

    stream: str
    columns: list[Column]


def chain_chunks(rows: int, train: int, seed: int = 1) -> list[Chunk]:
    """Return W1's input: a and b uniform in 0 … 99, prices in 0 … 100, fifty tags."""
    dice = np.random.default_rng(seed)
    tags = pa.array([f"tag{i}" for i in dice.integers(0, 50, rows).tolist()])
    columns = [
        Column(TIMESTAMP, np.arange(rows, dtype=np.int64) * 20),
        Column(BIGINT, dice.integers(0, 1_000, rows)),
        Column(BIGINT, dice.integers(0, 100, rows)),
        Column(BIGINT, dice.integers(0, 100, rows)),
        Column(DOUBLE, dice.random(rows) * 100.0),
        Column(TEXT, tags),
    ]
    return _cut("w1", columns, train)


def window_chunks(rows: int, train: int, seed: int = 2) -> list[Chunk]:
    """Return W2's input: 50,000 rows a second of event time."""
    dice = np.random.default_rng(seed)
    columns = [
        Column(TIMESTAMP, np.arange(rows, dtype=np.int64) * 20),
        Column(BIGINT, dice.integers(0, WINDOW_KEYS, rows)),
        Column(DOUBLE, dice.random(rows)),
    ]
    return _cut("w2", columns, train)


def join_chunks(rows: int, train: int, seed: int = 3) -> list[Chunk]:
    """Return W3's input: 1,000 rows a second and side, 10,000 keys, so about one match a row within ten seconds; chunks alternate."""
    dice = np.random.default_rng(seed)
    sides = []
    for name in ("w3a", "w3b"):
        columns = [
            Column(TIMESTAMP, np.arange(rows, dtype=np.int64) * 1_000),
            Column(BIGINT, dice.integers(0, JOIN_KEYS, rows)),
            Column(BIGINT, np.arange(rows, dtype=np.int64)),
        ]
        sides.append(_cut(name, columns, train))
    return [chunk for pair in zip(*sides, strict=True) for chunk in pair]


def _cut(stream: str, columns: Sequence[Column], train: int) -> list[Chunk]:
    rows = len(columns[0])
    return [Chunk(stream, [c.slice(i, min(i + train, rows)) for c in columns]) for i in range(0, rows, train)]


def chain_by_hand(chunks: Sequence[Chunk]) -> int:
    """Return the rows of W1's answer, computed as one would by hand: one mask, one gather."""
    rows = 0
    for chunk in chunks:
        ts, key, a, b, price = (c.values for c in chunk.columns[:5])
        index = np.flatnonzero((a <= 80) & (b <= 80))
        raised = price[index] * 1.1
        kept = raised > PRICE_AT_LEAST
        index = index[kept]
        answer = (ts[index], key[index], raised[kept])
        rows += len(answer[0])
    return rows


class PanesByHand:
    """W2 by hand: a row of counts, sums and maxima per second, ten of them a window."""

    def __init__(self) -> None:
        self.rows = 0
        self._panes: dict[int, tuple[Int64Array, Float64Array, Float64Array]] = {}
        self._newest = 0

    def add(self, chunk: Chunk) -> None:
        """Fold a chunk in; windows that a later second closes are answered."""
        ts, key, v = (c.values for c in chunk.columns)
        seconds = ts // US_PER_S
        cuts = [0, *(np.flatnonzero(np.diff(seconds)) + 1).tolist(), len(ts)]
        for start, stop in pairwise(cuts):
            second = int(seconds[start])
            while self._newest < second:
                self._close(self._newest + 1)
                self._newest += 1
            k, values = key[start:stop], v[start:stop]
            counts, sums, greatest = self._panes.setdefault(
                second, (np.zeros(WINDOW_KEYS, np.int64), np.zeros(WINDOW_KEYS), np.full(WINDOW_KEYS, -np.inf))
            )
            counts += np.bincount(k, minlength=WINDOW_KEYS)
            sums += np.bincount(k, weights=values, minlength=WINDOW_KEYS)
            np.maximum.at(greatest, k, values)

    def _close(self, end: int) -> None:
        panes = [self._panes[s] for s in range(end - WINDOW_S, end) if s in self._panes]
        counts = np.sum([p[0] for p in panes], axis=0)
        sums = np.sum([p[1] for p in panes], axis=0)
        greatest = np.max([p[2] for p in panes], axis=0)
        present = np.flatnonzero(counts)
        answer = (present, counts[present], sums[present], greatest[present])
        self.rows += len(answer[0])
        self._panes.pop(end - WINDOW_S, None)

    def finish(self) -> int:
        """Close all windows and return the rows of the answer."""
        for end in range(self._newest + 1, self._newest + WINDOW_S + 1):
            self._close(end)
        return self.rows


def join_by_hand(chunks: Sequence[Chunk]) -> int:
    """Return the rows of W3's answer: for each chunk, sort what the other side holds by key and search it."""
    kept: dict[str, list[tuple[Int64Array, Int64Array, Int64Array]]] = {"w3a": [], "w3b": []}
    rows = 0
    for chunk in chunks:
        ts, key, v = (c.values for c in chunk.columns)
        other = "w3b" if chunk.stream == "w3a" else "w3a"
        if kept[other]:
            other_ts, other_key, other_v = (np.concatenate(parts) for parts in zip(*kept[other], strict=True))
            alive = other_ts >= ts[0] - WINDOW_S * US_PER_S
            other_ts, other_key, other_v = other_ts[alive], other_key[alive], other_v[alive]
            kept[other] = [(other_ts, other_key, other_v)]
            rows += _matches(ts, key, v, other_ts, other_key, other_v)
        kept[chunk.stream].append((ts, key, v))
    return rows


def _matches(ts: Int64Array, key: Int64Array, v: Int64Array, other_ts: Int64Array, other_key: Int64Array, other_v: Int64Array) -> int:
    order = np.argsort(other_key, kind="stable")
    in_order = other_key[order]
    first = np.searchsorted(in_order, key, side="left")
    counts = np.searchsorted(in_order, key, side="right") - first
    mine = np.repeat(np.arange(len(key)), counts)
    place = np.arange(len(mine)) - np.repeat(np.cumsum(counts) - counts - first, counts)
    theirs = order[place]
    near = np.abs(ts[mine] - other_ts[theirs]) <= WINDOW_S * US_PER_S
    mine, theirs = mine[near], theirs[near]
    answer: tuple[Any, ...] = (ts[mine], key[mine], v[mine], other_v[theirs])
    return len(answer[0])
