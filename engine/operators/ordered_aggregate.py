"""Aggregates over sliding windows: [RANGE t], [NOW], [ROWS n], [PARTITION BY k ROWS n] (K2).

Rows are taken in event-time order, ties by arrival; a row's place is certain once W has passed its time, so an answer carries the seq of
the item that moved W past it. A row has a clock: its event time, or its rank in its partition. The window of a group at clock c are the
group's rows with a clock in (c − width, c]; sorted by group and clock, that is one range of rows (windows/ranges.py).

EMIT FINAL answers at each row for the groups it touches. EMIT CHANGES takes back and gives anew whatever an entering or leaving row
changes; at the end of the stream nothing leaves (K9). With SLIDE m a row window is answered at each m-th row, for all its groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from millstream.engine.column import Column, concat_columns
from millstream.engine.operators.buffered import BufferedRows, buffered, concat_rows, no_rows
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.keys import key_bits, key_encoder
from millstream.engine.operators.outputs import change_column, made_train, progress, take_out_late
from millstream.engine.operators.recipes import AggregateRecipe, EmitKind, WindowKind
from millstream.engine.operators.row_clock import RankClock, TimeClock
from millstream.engine.schema import Schema
from millstream.engine.train import Int64Array, Train
from millstream.engine.types import TIMESTAMP, Kind
from millstream.engine.watermarks import TIME_MAX, TIME_MIN, WatermarkTrack, minimum_track
from millstream.engine.windows.ranges import Ranges, aggregate_ranges, reduce_ranges


class Events:
    """Answers to give: the group, the clock, the instant (event time) of each, and the order of rows that caused it."""

    __slots__ = ("clock", "group", "instant", "order")

    def __init__(self, group: Int64Array, clock: Int64Array, instant: Int64Array, order: Int64Array) -> None:
        self.group, self.clock, self.instant, self.order = group, clock, instant, order


class OrderedAggregate(Operator):
    """See the module's text."""

    state_fields: tuple[str, ...] = ("_clock", "_waiting", "_kept", "_kept_clock", "_watermark", "_ordinal")

    def __init__(self, recipe: AggregateRecipe, inputs: Schema) -> None:
        super().__init__([recipe.schema])
        window = recipe.window
        assert window is not None
        self._recipe = recipe
        self._changes = recipe.emit.kind is EmitKind.CHANGES
        self._clock = RankClock(window, inputs) if window.kind is WindowKind.ROWS else TimeClock(window)
        self._key_types = [inputs.fields[k].type for k in recipe.keys]
        self._waiting = no_rows(inputs)
        self._kept = no_rows(inputs)
        self._kept_clock = np.empty(0, dtype=np.int64)
        self._watermark = TIME_MIN
        self._ordinal = 0

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Take rows in; answer for those that W has passed."""
        train = inputs[0]
        floor = max(self._watermark, train.track.start)
        track = minimum_track([train.track], floor)
        timely, late = take_out_late(train, track)
        if late is not None:
            out.late.append((0, late))
        if timely.rows:
            self._waiting = concat_rows(self._waiting, buffered(timely, self._ordinal))
            self._ordinal += timely.rows
        self._watermark = max(floor, track.end)
        if track.end == track.start and not (train.ended or len(self._waiting)):
            out.emit(progress(train, self.schemas[0], track))
            return
        out.emit(self._answer(train, track, floor))

    def _answer(self, train: Train, track: WatermarkTrack, floor: int) -> Train:
        passed = self._waiting.time < self._watermark
        ready = self._waiting.take(np.flatnonzero(passed)).in_order()
        if len(ready):
            self._waiting = self._waiting.take(np.flatnonzero(~passed))
        live = self._live(ready)
        clocks = self._clock.clocks(ready)
        rows = concat_rows(self._kept, ready.kept(live))
        row_clocks = np.concatenate((self._kept_clock, clocks[live]))
        groups = self._groups(rows)
        new = np.arange(len(rows)) >= len(self._kept)
        ended = self._watermark == TIME_MAX
        events = self._clock.events(rows, row_clocks, groups, new, floor, self._watermark, leaving=self._changes, ended=ended)
        answer = self._evaluate(train, track, rows, row_clocks, groups, events)
        keep = self._clock.still_needed(rows, row_clocks, self._watermark)
        self._kept, self._kept_clock = rows.kept(keep), row_clocks[keep]
        return answer

    def _live(self, rows: BufferedRows) -> Any:
        if self._recipe.live is None:
            return np.ones(len(rows), dtype=np.bool_)
        column = rows.columns[self._recipe.live]
        return column.values if column.valid is None else column.values & column.valid

    def _groups(self, rows: BufferedRows) -> Int64Array:
        """Return dense ids of (partition, keys): a window never reaches over partitions."""
        positions = (*self._clock.partition, *self._recipe.keys)
        if not positions or len(rows) == 0:
            return np.zeros(len(rows), dtype=np.int64)
        columns = [rows.columns[p] for p in positions]
        return key_encoder([c.type for c in columns]).encode(columns)

    def _evaluate(
        self, train: Train, track: WatermarkTrack, rows: BufferedRows, clocks: Int64Array, groups: Int64Array, events: Events
    ) -> Train:
        if len(events.group) == 0:
            return progress(train, self.schemas[0], track)
        order = np.lexsort((np.arange(len(rows)), clocks, groups))
        place = Places(groups[order], clocks[order])
        width = self._clock.width
        sorted_rows = rows.take(order)
        last = events.clock - self._clock.step
        before = (place.find(events.group, last - width), place.find(events.group, last))
        now = (place.find(events.group, events.clock - width), place.find(events.group, events.clock))
        if not self._changes:
            full = now[1] > now[0]
            columns, first = self._columns(sorted_rows, now[0][full], now[1][full], events.instant[full])
            instant, sequence = events.instant[full], events.order[full]
            final = np.lexsort((first, sequence))
            return self._train(train, track, [c.take(final) for c in columns], instant[final])
        return self._change_train(train, track, sorted_rows, before, now, events)

    def _columns(self, rows: BufferedRows, starts: Int64Array, stops: Int64Array, instants: Int64Array) -> tuple[list[Column], Int64Array]:
        """Return keys, aggregates and bounds of ranges that hold rows, and the ordinal of the first row of each to arrive."""
        ranges = Ranges(lambda p: rows.columns[p], len(rows), starts, stops)
        keys = [canonical_key(rows.columns[k].take(stops - 1)) for k in self._recipe.keys]
        aggregates = aggregate_ranges(self._recipe.aggregates, ranges)
        start_times = self._clock.window_starts(instants, rows.time[starts] if len(starts) else instants)
        bounds = [Column(TIMESTAMP, start_times), Column(TIMESTAMP, instants)]
        return [*keys, *aggregates, *bounds], reduce_ranges(np.minimum, rows.ordinal, starts, stops, 0)

    def _change_train(
        self,
        train: Train,
        track: WatermarkTrack,
        rows: BufferedRows,
        before: tuple[Int64Array, Int64Array],
        now: tuple[Int64Array, Int64Array],
        events: Events,
    ) -> Train:
        was, is_ = before[1] > before[0], now[1] > now[0]
        old, _ = self._columns(rows, before[0][was], before[1][was], events.instant[was])
        new, _ = self._columns(rows, now[0][is_], now[1][is_], events.instant[is_])
        count = len(self._recipe.keys) + len(self._recipe.aggregates)
        same = _same_rows(old[:count], new[:count], was, is_)
        minus, plus = np.flatnonzero(was & ~same), np.flatnonzero(is_ & ~same)
        old = [c.filter(~same[was]) for c in old]
        new = [c.filter(~same[is_]) for c in new]
        columns = [concat_columns([a, b]) for a, b in zip(old, new, strict=True)]
        at = np.concatenate((minus, plus))
        kind = np.concatenate((np.zeros(len(minus), dtype=np.bool_), np.ones(len(plus), dtype=np.bool_)))
        final = np.lexsort((kind, at, events.order[at]))
        columns = [c.take(final) for c in columns]
        return self._train(train, track, [*columns, change_column(kind[final])], events.instant[at][final])

    def _train(self, train: Train, track: WatermarkTrack, columns: list[Column], instants: Int64Array) -> Train:
        if len(instants) == 0:
            return progress(train, self.schemas[0], track)
        target = np.clip(instants, track.start, track.end - 1) + 1
        notes = {"partial": True} if self._clock.partial else None
        return made_train(train, self.schemas[0], columns, track.first_reaching(target), instants, track, notes)

    def wake_at_us(self) -> int | None:
        """Return when W must tick past the oldest row that waits."""
        waiting = self._waiting
        return int(waiting.time.min()) + 1 if len(waiting) else None

    def state_rows(self) -> int:
        """Return the rows held."""
        return len(self._waiting) + len(self._kept)

    def state_bytes(self) -> int:
        """Return the bytes held."""
        return self._waiting.nbytes() + self._kept.nbytes()


class Places:
    """Rows sorted by (group, clock): where the rows of a group end that have a clock at most c."""

    def __init__(self, groups: Int64Array, clocks: Int64Array) -> None:
        self._different = np.unique(clocks)
        self._span = len(self._different) + 1
        self._keys = groups * self._span + np.searchsorted(self._different, clocks) + 1

    def find(self, groups: Int64Array, clocks: Int64Array) -> Int64Array:
        """Return for each pair how many rows stand before, or at, (group, clock)."""
        rank = np.searchsorted(self._different, clocks, side="right")
        return np.searchsorted(self._keys, groups * self._span + rank, side="right")


def canonical_key(column: Column) -> Column:
    """Return a key column with -0.0 as 0.0 and one NaN (K7)."""
    if column.type.kind is not Kind.DOUBLE:
        return column
    return Column(column.type, key_bits(column).view(np.float64), column.valid)


def _same_rows(old: Sequence[Column], new: Sequence[Column], was: Any, is_: Any) -> Any:
    """Return where a group's answer did not change: present before and after with equal keys and aggregates."""
    both = was & is_
    if not both.any() or not old:
        return both
    same = both.copy()
    at_old, at_new = np.cumsum(was)[both] - 1, np.cumsum(is_)[both] - 1
    equal = np.ones(len(at_old), dtype=np.bool_)
    for a, b in zip(old, new, strict=True):
        equal &= equal_values(a.take(at_old), b.take(at_new))
    same[both] = equal
    return same


def equal_values(left: Column, right: Column) -> Any:
    """Return where two columns are not distinct: NULL equals NULL, NaN equals NaN."""
    if len(left) == 0:
        return np.ones(0, dtype=np.bool_)
    ids = key_encoder([left.type]).encode([concat_columns([left, right])])
    return ids[: len(left)] == ids[len(left) :]
