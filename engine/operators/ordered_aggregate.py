"""Aggregates over sliding windows: [RANGE t], [NOW], [ROWS n], [PARTITION BY k ROWS n] (K2).

Rows are taken in event-time order, ties by arrival; a row's place is certain once W has passed its time, so an answer carries the seq of
the item that moved W past it. A row has a clock: its event time, or its rank in its partition. The window of a group at clock c are the
group's rows with a clock in (c − width, c]. What is kept of them, and how a window is put together, is in windows/sliding_cells.py; when
answers are given in sliding_events.py.

EMIT FINAL answers at each row for the groups it touches. EMIT CHANGES takes back and gives anew whatever an entering or leaving row
changes; at the end of the stream nothing leaves (K9). EMIT EVERY d answers for all groups at multiples of d, and last at the last instant.
With SLIDE m a row window is answered at each m-th row, for all its groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.data.arrays import expanded
from millstream.engine.data.buffered import BufferedRows
from millstream.engine.data.column import Column
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.data.types import TIMESTAMP
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN, WatermarkTrack
from millstream.engine.language.recipes import AggregateRecipe, EmitKind, WindowKind
from millstream.engine.operators.changes import Changes
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.intake import Intake, IntakeResult
from millstream.engine.operators.outputs import made_train, progress
from millstream.engine.operators.sliding_events import EventFinder, Events, NewRows, Passage, RankClock, TimeClock
from millstream.engine.state.forms import state_record
from millstream.engine.windows.sliding_cells import Evaluated, bound_answers, sliding_cells
from millstream.engine.windows.vectors import Vectors


class OrderedAggregate(Operator):
    """GROUP BY over windows that slide with each row: [RANGE t], [NOW], [ROWS n], [PARTITION BY k ROWS n]."""

    calls_late = True
    state_name = "ordered_aggregate"
    state_fields: tuple[str, ...] = ("_intake", "_clock", "_cells", "_log", "_finder", "_encoder", "_shown")

    def __init__(self, recipe: AggregateRecipe, inputs: Schema) -> None:
        super().__init__([recipe.schema])
        window = recipe.window
        assert window is not None
        self._recipe = recipe
        self._changes = recipe.emit.kind is EmitKind.CHANGES
        self._clock = RankClock(window, inputs) if window.kind is WindowKind.ROWS else TimeClock(window)
        self._intake = Intake(inputs)
        self._cells = sliding_cells(self._clock.width, recipe.aggregates, inputs)
        self._log = Vectors([np.int64, np.int64])  # per partition the clock and the group of each element, in order of the clock
        # A window never reaches over partitions, so groups are told apart by partition and keys.
        self._whole = set(recipe.keys) <= set(self._clock.partition)
        self._positions = tuple(dict.fromkeys((*self._clock.partition, *recipe.keys)))
        self._encoder = key_encoder([inputs.fields[p].type for p in self._positions])
        self._finder = EventFinder(recipe.emit, self._clock, self._log, whole=self._whole)
        self._shown = ShownAnswers()

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Take rows in; answer for those that W has passed."""
        train = inputs[0]
        bound_answers(train, self._cells, self._clock.width if self._clock.by_rank else None)
        taken = self._intake.take(train, out)
        if taken.track.end == taken.track.start and not (train.ended or len(taken.ready)):
            out.emit(progress(train, self.schemas[0], taken.track))
            return
        out.emit(self._answer(train, taken))

    def _answer(self, train: Train, taken: IntakeResult) -> Train:
        rows = self._added(taken.ready)
        watermark = self._intake.watermark
        last = self._last_instant(taken) if watermark == TIME_MAX else None
        events = self._finder.find(rows, Passage(taken.floor, watermark, last))
        answer = self._evaluated(train, taken.track, events)
        self._forget(watermark, rows.partition)
        return answer

    def _last_instant(self, taken: IntakeResult) -> int:
        """At the end of the stream nothing expires: it stands as at the last event time, or where a clock had moved W (K9)."""
        before = taken.track.last_open
        newest = max(self._finder.newest, int(taken.ready.time[-1]) if len(taken.ready) else TIME_MIN)
        return newest if before in (TIME_MIN, TIME_MAX) else max(newest, before - 1)

    # Rows in -----------------------------------------------------------------------------------------------------------

    def _added(self, ready: BufferedRows) -> NewRows:
        partition = self._clock.partition_ids(ready)
        clock = self._clock.clocks(ready, partition)
        live = self._live(ready)
        rows = ready if len(live) == len(ready) else ready.take(live)
        owner, clocks = partition[live], clock[live]
        groups = self._groups(rows, owner)
        self._log.reserve_ids(self._clock.partitions)
        self._cells.reserve_groups(max(self._clock.partitions, self._encoder.size))
        order = np.argsort(groups, kind="stable")
        by_group = rows if not self._positions else rows.take(order)
        elements, at = self._cells.add(by_group, groups[order], clocks[order])
        if self._clock.by_rank:
            at_partition, at, elements = owner, clocks, groups
        else:
            at_partition = np.zeros(len(at), dtype=np.int64)
        order = np.lexsort((at, at_partition))
        self._log.append(at_partition[order], [at[order], elements[order]])
        return NewRows(partition, clock, ready.time, live, groups)

    def _live(self, rows: BufferedRows) -> Int64Array:
        if self._recipe.live is None:
            return np.arange(len(rows), dtype=np.int64)
        return np.flatnonzero(rows.columns[self._recipe.live].truths())

    def _groups(self, rows: BufferedRows, partition: Int64Array) -> Int64Array:
        if self._whole or len(rows) == 0:
            return partition
        return self._encoder.encode([rows.columns[p] for p in self._positions])

    def _forget(self, watermark: int, touched: Int64Array) -> None:
        """Let go what no later window can see, and groups of which nothing is left."""
        partitions, counts = self._finder.expired(watermark, touched)
        if len(partitions) == 0:
            return
        gone = self._log.columns[1][expanded(self._log.start[partitions], counts)]
        self._log.drop_front(partitions, counts)
        empty = self._cells.drop_front(gone)
        if not self._whole and len(empty):
            self._encoder.free(empty)

    # Answers -----------------------------------------------------------------------------------------------------------

    def _evaluated(self, train: Train, track: WatermarkTrack, events: Events) -> Train:
        if len(events.group) == 0:
            return progress(train, self.schemas[0], track)
        now = self._cells.evaluate(events.group, events.clock)
        if self._changes:
            in_turn = np.lexsort((events.order, events.group))
            before = self._cells.evaluate(events.group, self._shown.asked_before(events, in_turn, now.full, self._clock.slide))
            return self._change_train(train, track, before, now, events, in_turn)
        group, instant = events.group[now.full], events.instant[now.full]
        final = np.lexsort((now.first, events.order[now.full]))
        columns = [*self._keys(group), *now.columns, *self._bounds(now.start_time, instant)]
        closing = None if events.closing is None else events.closing[now.full][final]
        return self._train(train, track, [c.take(final) for c in columns], instant[final], events.partial, closing)

    def _keys(self, groups: Int64Array) -> list[Column]:
        if not self._recipe.keys:
            return []
        columns = self._clock.key_columns(groups) if self._whole else self._encoder.columns(groups)
        known = self._clock.partition if self._whole else self._positions
        return [columns[known.index(k)] for k in self._recipe.keys]

    def _bounds(self, start_times: Int64Array, instants: Int64Array) -> list[Column]:
        """Return window_start and window_end: of a row window the times of its first row and of the moment it is answered at."""
        starts = start_times if self._clock.by_rank else instants - self._clock.width
        return [Column(TIMESTAMP, starts), Column(TIMESTAMP, instants)]

    def _change_train(
        self, train: Train, track: WatermarkTrack, before: Evaluated, now: Evaluated, events: Events, in_turn: Int64Array
    ) -> Train:
        was, is_ = before.full, now.full
        changes = Changes(before.columns, now.columns, was, is_)
        starts = np.zeros(len(was), dtype=np.int64)
        starts[is_] = now.start_time if self._clock.by_rank else events.instant[is_] - self._clock.width
        shown = starts, events.instant
        taken_back = self._shown.taken_back(events, in_turn, changes.minus, changes.plus, starts)
        for old, new in zip(taken_back, shown, strict=True):
            changes.append(Column(TIMESTAMP, np.concatenate((old, new[changes.plus]))))
        first = np.zeros(len(was), dtype=np.int64)
        first[was] = before.first
        first[is_] = now.first
        columns, at = changes.ordered(first[changes.groups], events.order[changes.groups])
        closing = None if events.closing is None else events.closing[at]
        return self._train(train, track, [*self._keys(events.group[at]), *columns], events.instant[at], events.partial, closing)

    def _train(
        self, train: Train, track: WatermarkTrack, columns: list[Column], instants: Int64Array, partial: bool, closing: Any
    ) -> Train:
        if len(instants) == 0:
            return progress(train, self.schemas[0], track)
        seqs = track.first_reaching(np.clip(instants, track.start, track.end - 1) + 1)
        if closing is not None:  # what the end of the stream brings comes after all its instants
            seqs, instants = np.where(closing, train.hi - 1, seqs), np.where(closing, self._finder.newest, instants)
        return made_train(train, self.schemas[0], columns, seqs, instants, track, {"partial": True} if partial else None)

    # State -------------------------------------------------------------------------------------------------------------

    def wake_at_us(self) -> int | None:
        """Return when W must tick: past the oldest row that waits, what leaves the window next, or the next moment."""
        found = [t for t in (self._finder.next_exit_us,) if t is not None]
        if self._intake.oldest_us is not None:
            found.append(self._intake.oldest_us + 1)
        return min(found, default=None)

    def state_rows(self) -> int:
        """Return the rows that wait and the cells held."""
        return len(self._intake) + len(self._cells)

    def state_bytes(self) -> int:
        """Return the bytes held."""
        keys = self._encoder.nbytes() + self._clock.nbytes()
        return keys + self._intake.nbytes() + self._cells.vectors.nbytes() + self._log.nbytes()


NO_CLOCK = np.iinfo(np.int64).min


def _no_clocks() -> Int64Array:
    return np.full(1, NO_CLOCK, dtype=np.int64)


@state_record("shown_bounds", 2, ("_bounds", "_clocks"), added={"_clocks": _no_clocks})
class ShownAnswers:
    """Per group id, window_start and window_end of its last '+', and the clock at which it was asked last, if it had rows then."""

    def __init__(self) -> None:
        self._bounds: Int64Array = np.zeros((2, 1), dtype=np.int64)
        self._clocks = _no_clocks()

    def asked_before(self, events: Events, order: Int64Array, full: npt.NDArray[np.bool_], slide: int) -> Int64Array:
        """Return for each event the clock at which its group was asked before; `full` tells for which it has rows now.

        `order`, here and below, has the events group by group, each in turn.

        What was shown then is evaluated there again: at another clock the same rows are put together in another way, and a sum of DOUBLEs
        would be taken back with other last digits than it was shown with. Where nothing was shown, the window one step before has no rows.
        """
        missing = int(events.group.max()) + 1 - len(self._clocks)
        if missing > 0:
            self._clocks = np.concatenate((self._clocks, np.full(missing, NO_CLOCK, dtype=np.int64)))
        group, clock = events.group[order], events.clock[order]
        shown = np.where(full[order], clock, NO_CLOCK)
        begins = np.ones(len(group), dtype=np.bool_)
        begins[1:] = group[1:] != group[:-1]
        previous = np.where(begins, self._clocks[group], np.concatenate((shown[:1], shown[:-1])))
        ends = np.append(begins[1:], True)
        self._clocks[group[ends]] = shown[ends]
        found = np.empty(len(order), dtype=np.int64)
        found[order] = np.where(previous == NO_CLOCK, clock - slide, previous)
        return found

    def taken_back(
        self, events: Events, order: Int64Array, minus: Int64Array, plus: Int64Array, starts: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        """Return the bounds for the events `minus`, given that the events `plus` show `starts` and their instants."""
        size = int(events.group.max()) + 1
        if size > self._bounds.shape[1]:
            self._bounds = np.concatenate((self._bounds, np.zeros((2, size), dtype=np.int64)), axis=1)
        group = events.group[order]
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order), dtype=np.int64)
        shows = np.full(len(order), -1, dtype=np.int64)
        shows[rank[plus]] = rank[plus]
        # For each event the last one before it that showed anything, if that was of the same group.
        last = np.concatenate((np.full(1, -1, dtype=np.int64), np.maximum.accumulate(shows)[:-1]))[rank[minus]]
        own = (last >= 0) & (group[np.maximum(last, 0)] == events.group[minus])
        shown = order[np.maximum(last, 0)]
        found = self._bounds[:, events.group[minus]]
        answer = np.where(own, starts[shown], found[0]), np.where(own, events.instant[shown], found[1])
        in_order = order[np.flatnonzero(shows >= 0)]
        self._bounds[0, events.group[in_order]] = starts[in_order]
        self._bounds[1, events.group[in_order]] = events.instant[in_order]
        return answer
