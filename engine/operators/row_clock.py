"""The clock of sliding windows: event time for [RANGE t], the rank of a row in its partition for [ROWS n]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from millstream.engine.operators.buffered import BufferedRows
from millstream.engine.operators.keys import key_encoder
from millstream.engine.operators.recipes import WindowKind, WindowSpec
from millstream.engine.schema import Schema
from millstream.engine.train import Int64Array
from millstream.engine.watermarks import TIME_MAX, TIME_MIN

if TYPE_CHECKING:
    from millstream.engine.operators.ordered_aggregate import Events


class TimeClock:
    """[RANGE t] and [NOW]: the window at instant τ is (τ − t, τ]."""

    partition: tuple[int, ...] = ()
    partial = False

    def __init__(self, window: WindowSpec) -> None:
        self.width = 1 if window.kind is WindowKind.NOW else window.range_us
        self._newest = TIME_MIN

    def clocks(self, rows: BufferedRows) -> Int64Array:
        """Return event times."""
        return rows.time

    def window_starts(self, instants: Int64Array, first_times: Int64Array) -> Int64Array:
        """Return τ − t."""
        return instants - self.width

    def events(
        self, rows: BufferedRows, clocks: Int64Array, groups: Int64Array, new: Any, floor: int, watermark: int, *, leaving: bool, ended: bool
    ) -> Events:
        """Return one event a group and instant that brings it a row or, in a change log, lets one go."""
        from millstream.engine.operators.ordered_aggregate import Events

        group, clock = groups[new], clocks[new]
        if len(clock):
            self._newest = max(self._newest, int(clock.max()))
        if leaving:
            exits = clocks + self.width
            upto = min(watermark - 1, self._newest) if ended else watermark - 1
            gone = (exits >= floor) & (exits <= upto)
            group, clock = np.concatenate((group, groups[gone])), np.concatenate((clock, exits[gone]))
        order = np.lexsort((group, clock))
        group, clock = group[order], clock[order]
        if len(group):
            different = np.ones(len(group), dtype=np.bool_)
            different[1:] = (group[1:] != group[:-1]) | (clock[1:] != clock[:-1])
            group, clock = group[different], clock[different]
        return Events(group, clock, clock, clock)

    def still_needed(self, rows: BufferedRows, clocks: Int64Array, watermark: int) -> Any:
        """Rows that an instant at or after W can see; those just leaving too, for the change log."""
        if watermark == TIME_MAX:
            return np.zeros(len(rows), dtype=np.bool_)
        return clocks >= watermark - self.width


class RankClock:
    """[ROWS n SLIDE m]: the window at rank r holds the ranks (r − n, r] of the partition."""

    def __init__(self, window: WindowSpec, inputs: Schema) -> None:
        self.width = window.rows
        self.slide = max(1, window.rows_slide)
        self.partition = window.partition
        self.partial = False
        self._answers_all = window.rows_slide > 1
        self._encoder = key_encoder([inputs.fields[p].type for p in window.partition])
        self._counts: Int64Array = np.zeros(1, dtype=np.int64)
        self._ids: Int64Array = np.empty(0, dtype=np.int64)
        self._last_time: Int64Array = np.full(1, TIME_MIN, dtype=np.int64)
        self._row_time: dict[tuple[int, int], int] = {}

    def clocks(self, rows: BufferedRows) -> Int64Array:
        """Return 1-based ranks; rows come in event-time order."""
        if len(rows) == 0:
            return np.empty(0, dtype=np.int64)
        ids = self.partition_ids(rows)
        order = np.argsort(ids, kind="stable")
        in_order = ids[order]
        first = np.searchsorted(in_order, in_order, side="left")
        ranks = np.empty(len(ids), dtype=np.int64)
        ranks[order] = np.arange(len(ids), dtype=np.int64) - first + 1
        ranks += self._counts[ids]
        self._counts += np.bincount(ids, minlength=len(self._counts))
        self._last_time[ids] = rows.time  # in order, so the last one stays
        if self._answers_all:
            marks = np.flatnonzero(ranks % self.slide == 0)
            keys = zip(ids[marks].tolist(), ranks[marks].tolist(), strict=True)
            self._row_time.update(zip(keys, rows.time[marks].tolist(), strict=True))
        return ranks

    def partition_ids(self, rows: BufferedRows) -> Int64Array:
        """Return an id per row for its partition."""
        if not self.partition:
            return np.zeros(len(rows), dtype=np.int64)
        ids = self._encoder.encode([rows.columns[p] for p in self.partition])
        missing = self._encoder.size - len(self._counts)
        if missing > 0:
            self._counts = np.concatenate((self._counts, np.zeros(missing + len(self._counts), dtype=np.int64)))
            self._last_time = np.concatenate((self._last_time, np.full(len(self._counts) - len(self._last_time), TIME_MIN)))
        return ids

    def window_starts(self, instants: Int64Array, first_times: Int64Array) -> Int64Array:
        """Return the time of the window's first row of the group."""
        return first_times

    def events(
        self, rows: BufferedRows, clocks: Int64Array, groups: Int64Array, new: Any, floor: int, watermark: int, *, leaving: bool, ended: bool
    ) -> Events:
        """Return one event a row, or with SLIDE one per window and group in it."""
        from millstream.engine.operators.ordered_aggregate import Events

        if self._answers_all:
            return self._slide_events(rows, clocks, groups, ended)
        group, clock, instant = groups[new], clocks[new], rows.time[new]
        order = rows.ordinal[new]
        place = np.arange(len(order), dtype=np.int64)
        if leaving and len(rows):
            group, clock, instant, place = self._with_leaving(rows, clocks, groups, new)
        return Events(group, clock, instant, place)

    def _with_leaving(
        self, rows: BufferedRows, clocks: Int64Array, groups: Int64Array, new: Any
    ) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
        """Add an event for the group of the row that each new row pushes out."""
        ids = self.partition_ids(rows)
        fresh = np.flatnonzero(new)
        at = {(p, c): i for i, (p, c) in enumerate(zip(ids.tolist(), clocks.tolist(), strict=True))}
        group, clock, instant, place = [], [], [], []
        for n, row in enumerate(fresh.tolist()):
            touched = [int(groups[row])]
            pushed = at.get((int(ids[row]), int(clocks[row]) - self.width))
            if pushed is not None and int(groups[pushed]) != touched[0]:
                touched.append(int(groups[pushed]))
            for g in touched:
                group.append(g)
                clock.append(int(clocks[row]))
                instant.append(int(rows.time[row]))
                place.append(n)
        return tuple(np.array(x, dtype=np.int64) for x in (group, clock, instant, place))  # type: ignore[return-value]

    def _slide_events(self, rows: BufferedRows, clocks: Int64Array, groups: Int64Array, ended: bool) -> Events:
        from millstream.engine.operators.ordered_aggregate import Events

        marks = dict(self._row_time)
        if ended:
            for partition, count in enumerate(self._counts.tolist()):
                if count % self.slide:
                    rank = (count // self.slide + 1) * self.slide
                    marks[(partition, rank)] = int(self._last_time[partition])
                    self.partial = True
        self._row_time.clear()
        ids = self.partition_ids(rows)
        found: list[tuple[int, int, int]] = []
        for (partition, rank), instant in marks.items():
            inside = (ids == partition) & (clocks > rank - self.width) & (clocks <= rank)
            found.extend((instant, rank, g) for g in np.unique(groups[inside]).tolist())
        found.sort()
        columns = np.array(found, dtype=np.int64).reshape(-1, 3)
        windows = np.cumsum(np.r_[0, (np.diff(columns[:, 1]) != 0) | (np.diff(columns[:, 0]) != 0)]) if len(columns) else columns[:, 0]
        return Events(columns[:, 2], columns[:, 1], columns[:, 0], windows)

    def still_needed(self, rows: BufferedRows, clocks: Int64Array, watermark: int) -> Any:
        """Rows that the next row of their partition can see, or pushes out."""
        if watermark == TIME_MAX or len(rows) == 0:
            return np.zeros(len(rows), dtype=np.bool_)
        return clocks > self._counts[self.partition_ids(rows)] - self.width
