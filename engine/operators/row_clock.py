"""The clock of sliding windows: event time for [RANGE t], the rank of a row in its partition for [ROWS n]."""

from __future__ import annotations

import numpy as np
from millstream.engine.data.buffered import BufferedRows
from millstream.engine.data.column import Column
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array
from millstream.engine.data.watermarks import TIME_MIN
from millstream.engine.language.recipes import WindowKind, WindowSpec


class TimeClock:
    """[RANGE t] and [NOW]: the window at instant τ is (τ − t, τ]."""

    by_rank = False
    partition: tuple[int, ...] = ()
    slide = 1
    partitions = 1

    def __init__(self, window: WindowSpec) -> None:
        self.width = 1 if window.kind is WindowKind.NOW else window.range_us

    def partition_ids(self, rows: BufferedRows) -> Int64Array:
        """There is one partition, 0."""
        return np.zeros(len(rows), dtype=np.int64)

    def clocks(self, rows: BufferedRows, ids: Int64Array) -> Int64Array:
        """Return event times."""
        return rows.time

    def nbytes(self) -> int:
        """Nothing is held."""
        return 0

    def key_columns(self, ids: Int64Array) -> list[Column]:
        """The one partition has no columns."""
        return []


class RankClock:
    """[ROWS n SLIDE m]: the window at rank r holds the ranks (r − n, r] of the partition. Ranks begin with 1."""

    by_rank = True

    def __init__(self, window: WindowSpec, inputs: Schema) -> None:
        self.width = window.rows
        self.slide = max(1, window.rows_slide)
        self.partition = window.partition
        self._encoder = key_encoder([inputs.fields[p].type for p in window.partition])
        self.counts: Int64Array = np.zeros(1, dtype=np.int64)  # rows that each partition has had
        self.last_time: Int64Array = np.full(1, TIME_MIN, dtype=np.int64)

    @property
    def partitions(self) -> int:
        """One more than the greatest partition id."""
        return max(1, self._encoder.size)

    def partition_ids(self, rows: BufferedRows) -> Int64Array:
        """Return an id per row for its partition."""
        if not self.partition:
            return np.zeros(len(rows), dtype=np.int64)
        ids = self._encoder.encode([rows.columns[p] for p in self.partition])
        missing = self._encoder.size - len(self.counts)
        if missing > 0:
            more = max(missing, len(self.counts))
            self.counts = np.concatenate((self.counts, np.zeros(more, dtype=np.int64)))
            self.last_time = np.concatenate((self.last_time, np.full(more, TIME_MIN, dtype=np.int64)))
        return ids

    def nbytes(self) -> int:
        """Return the bytes of the partitions."""
        return self._encoder.nbytes() + int(self.counts.nbytes + self.last_time.nbytes)

    def key_columns(self, ids: Int64Array) -> list[Column]:
        """Return the columns of PARTITION BY for partition ids."""
        return self._encoder.columns(ids)

    def clocks(self, rows: BufferedRows, ids: Int64Array) -> Int64Array:
        """Return the ranks of rows that come in event-time order."""
        if len(rows) == 0:
            return np.empty(0, dtype=np.int64)
        if not self.partition:
            first = int(self.counts[0]) + 1
            self.counts[0] += len(rows)
            self.last_time[0] = rows.time[-1]
            return np.arange(first, first + len(rows), dtype=np.int64)
        order = np.argsort(ids, kind="stable")
        in_order = ids[order]
        ranks = np.empty(len(ids), dtype=np.int64)
        ranks[order] = np.arange(1, len(ids) + 1, dtype=np.int64) - np.searchsorted(in_order, in_order, side="left")
        ranks += self.counts[ids]
        np.maximum.at(self.counts, ids, ranks)
        self.last_time[ids] = rows.time  # in order, so the last one stays
        return ranks
