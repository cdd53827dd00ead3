"""Rows of windows without an aggregate: each row once per window, bounds appended; or windows as change logs.

Hopping windows are stateless: a row leaves at once, in order of its windows, and is never late, as a plain selection's is not (K4), unless
what stands above answers when windows close. A row between windows leaves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.column import Column
from millstream.engine.operators.buffered import BufferedRows, buffered, concat_rows, no_rows
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.outputs import change_column, made_train, progress, take_out_late
from millstream.engine.operators.recipes import WindowKind, WindowRecipe
from millstream.engine.operators.row_clock import RankClock, TimeClock
from millstream.engine.schema import Schema
from millstream.engine.train import Int64Array, Train
from millstream.engine.types import TIMESTAMP
from millstream.engine.watermarks import TIME_MAX, TIME_MIN, WatermarkTrack, minimum_track
from millstream.engine.windows.assigners import assigner_for


class WindowRows(Operator):
    """Each row of a hopping or cumulating window, once per window."""

    stateful = False

    def __init__(self, recipe: WindowRecipe) -> None:
        super().__init__([recipe.schema])
        self._assigner = assigner_for(recipe.window)
        self._closes = recipe.closes

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Repeat each row for its windows."""
        train = inputs[0]
        if self._closes and train.rows:
            train = self._take_out_late(train, out)
        if train.rows == 0:
            out.emit(progress(train, self.schemas[0]))
            return
        panes, place = np.unique(self._assigner.panes(train.time.array()), return_inverse=True)
        spans = np.array([self._assigner.windows_of(p) for p in panes.tolist()], dtype=np.int64)
        first, last = spans[place, 0], spans[place, 1]
        sizes = np.maximum(last - first + 1, 0)
        index = np.repeat(np.arange(train.rows, dtype=np.int64), sizes)
        before = np.cumsum(sizes) - sizes
        windows = np.arange(len(index), dtype=np.int64) - np.repeat(before - first, sizes)
        different, at = np.unique(windows, return_inverse=True)
        starts = np.array([self._assigner.start(w) for w in different.tolist()], dtype=np.int64)[at]
        ends = np.array([self._assigner.end(w) for w in different.tolist()], dtype=np.int64)[at]
        if self._closes:
            reached = ends > train.track.before(train.seq.array())[index]
            index, starts, ends = index[reached], starts[reached], ends[reached]
        repeated = train.take(index)
        slots = [*(repeated.slot(i) for i in range(len(train.schema))), Column(TIMESTAMP, starts), Column(TIMESTAMP, ends)]
        out.emit(repeated.replace_columns(self.schemas[0], slots))

    def _take_out_late(self, train: Train, out: Emitter) -> Train:
        """Part the rows that reach no window that is open from the others, and count those that miss only some."""
        first, last = self._assigner.closings(train.time.array())
        watermark = train.track.before(train.seq.array())
        inside = last != TIME_MIN
        late = inside & (last <= watermark)
        partly = int(np.count_nonzero(inside & ~late & (first <= watermark)))
        if partly:
            out.partly_late.append((0, partly))
        if not late.any():
            return train
        out.late.append((0, train.take(np.flatnonzero(late))))
        return train.select(~late)


class WindowChanges(Operator):
    """A sliding, row or unbounded window as a change log: '+' when a row enters, '-' when it leaves."""

    state_fields: tuple[str, ...] = ("_clock", "_waiting", "_inside", "_ranks", "_watermark", "_newest", "_ordinal")

    def __init__(self, recipe: WindowRecipe, inputs: Schema) -> None:
        super().__init__([recipe.schema])
        window = recipe.window
        self._endless = window.kind is WindowKind.UNBOUNDED
        self._by_rank = window.kind is WindowKind.ROWS
        self._clock = RankClock(window, inputs) if self._by_rank else TimeClock(window)
        self._waiting = no_rows(inputs)
        self._inside = no_rows(inputs)
        self._ranks = np.empty(0, dtype=np.int64)
        self._watermark = TIME_MIN
        self._newest = TIME_MIN
        self._ordinal = 0

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Let rows in and out in event-time order, as W passes."""
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
        passed = self._waiting.time < self._watermark
        ready = self._waiting.take(np.flatnonzero(passed)).in_order()
        self._waiting = self._waiting.take(np.flatnonzero(~passed))
        if len(ready):
            self._newest = max(self._newest, int(ready.time.max()))
        out.emit(self._changes(train, track, ready))

    def _changes(self, train: Train, track: WatermarkTrack, ready: BufferedRows) -> Train:
        gone, moments = self._leaving(ready)
        together = concat_rows(ready, gone)
        if len(together) == 0:
            return progress(train, self.schemas[0], track)
        instants = np.concatenate((ready.time, moments))
        plus = np.arange(len(together)) < len(ready)
        rank = np.concatenate((ready.ordinal, self._pushed_by if self._by_rank else gone.ordinal))
        # At one instant (at one row) what leaves goes first, so that the relation never holds more than the window.
        order = np.lexsort((rank, plus, rank if self._by_rank else instants, instants))
        target = np.clip(instants[order], track.start, track.end - 1) + 1
        columns = [c.take(order) for c in together.columns]
        seqs = track.first_reaching(target)
        return made_train(train, self.schemas[0], [*columns, change_column(plus[order])], seqs, instants[order], track)

    def _leaving(self, ready: BufferedRows) -> tuple[BufferedRows, Int64Array]:
        """Return the rows that leave now and the instants at which they do."""
        if self._endless:
            return no_rows_like(ready), np.empty(0, dtype=np.int64)
        if self._by_rank:
            return self._pushed_out(ready)
        rows = concat_rows(self._inside, ready)
        exits = rows.time + self._clock.width
        upto = min(self._watermark - 1, self._newest) if self._watermark == TIME_MAX else self._watermark - 1
        leaves = exits <= upto
        self._inside = rows.take(np.flatnonzero(~leaves))
        index = np.flatnonzero(leaves)
        return rows.take(index), exits[index]

    def _pushed_out(self, ready: BufferedRows) -> tuple[BufferedRows, Int64Array]:
        """A row leaves a row window when the n-th row after it in its partition comes."""
        assert isinstance(self._clock, RankClock)
        ranks = self._clock.clocks(ready)
        rows = concat_rows(self._inside, ready)
        ranks = np.concatenate((self._ranks, ranks))
        ids = self._clock.partition_ids(rows)
        at = {key: i for i, key in enumerate(zip(ids.tolist(), ranks.tolist(), strict=True))}
        pusher = np.array([at.get((p, r + self._clock.width), -1) for p, r in at], dtype=np.int64)
        leaves = np.flatnonzero(pusher >= 0)
        stays = np.flatnonzero(pusher < 0)
        gone, moments = rows.take(leaves), rows.time[pusher[leaves]]
        self._pushed_by = rows.ordinal[pusher[leaves]]
        self._inside, self._ranks = rows.take(stays), ranks[stays]
        return gone, moments

    _pushed_by: Int64Array = np.empty(0, dtype=np.int64)

    def wake_at_us(self) -> int | None:
        """Return when W must tick: past the oldest waiting row, or when the oldest row inside leaves."""
        moments = [int(self._waiting.time.min()) + 1] if len(self._waiting) else []
        if len(self._inside) and not self._by_rank and not self._endless:
            moments.append(int(self._inside.time.min()) + self._clock.width + 1)
        return min(moments, default=None)

    def state_rows(self) -> int:
        """Return the rows held."""
        return len(self._waiting) + len(self._inside)

    def state_bytes(self) -> int:
        """Return their bytes."""
        return self._waiting.nbytes() + self._inside.nbytes()


def no_rows_like(rows: BufferedRows) -> BufferedRows:
    """Return an empty buffer of the same columns."""
    return rows.take(np.empty(0, dtype=np.int64))
