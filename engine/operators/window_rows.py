"""Windows without an aggregate: the rows of hopping windows, and change logs of the others, '+' as a row enters and '-' as it leaves.

Hopping windows are stateless: a row leaves at once, once for each of its windows and in order of these, bounds appended. It is never late,
as a plain selection's is not (K4), unless what stands above answers when windows close. A row between windows leaves nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from millstream.engine.data.arrays import run_sizes, run_starts
from millstream.engine.data.buffered import BufferedRows, concat_rows, no_rows
from millstream.engine.data.column import Column
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.data.types import TIMESTAMP
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN
from millstream.engine.language.recipes import WindowKind, WindowRecipe
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.intake import Intake, IntakeResult
from millstream.engine.operators.outputs import change_column, made_train, progress
from millstream.engine.operators.sliding_events import RankClock, TimeClock
from millstream.engine.state.forms import state_record
from millstream.engine.windows.assigners import assigner_for
from millstream.engine.windows.vectors import StoredColumns, Vectors


class WindowRows(Operator):
    """Each row of a hopping or cumulating window, once per window."""

    stateful = False

    def __init__(self, recipe: WindowRecipe) -> None:
        super().__init__([recipe.schema])
        self._assigner = assigner_for(recipe.window)
        self._closes = self.calls_late = recipe.closes

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
        partly = train.seq.array()[inside & ~late & (first <= watermark)]
        if len(partly):
            out.partly_late.append((0, partly))
        if not late.any():
            return train
        out.late.append((0, train.take(np.flatnonzero(late))))
        return train.select(~late)


CHUNK_ROWS = 1024  # smaller chunks are joined, so that a queue fed row by row stays short


@state_record("row_queue", 1, ("nothing", "rows"))
class RowQueue:
    """Rows in order of event time."""

    def __init__(self, inputs: Schema) -> None:
        self._nothing = no_rows(inputs)
        self._chunks: deque[BufferedRows] = deque()
        self._small: list[BufferedRows] = []  # not joined yet
        self._rows = 0

    def to_state(self) -> tuple[BufferedRows, BufferedRows]:
        """Return what it gives when there is nothing, and the rows."""
        held = [*self._chunks, *self._small]
        return self._nothing, concat_rows(self._nothing, *held)

    @classmethod
    def from_state(cls, fields: dict[str, Any]) -> RowQueue:
        """Return the queue; its rows are in one piece."""
        made = cls(Schema(()))
        made._nothing, rows = fields["nothing"], fields["rows"]
        made._rows = len(rows)
        if len(rows):
            made._chunks.append(rows)
        return made

    def __len__(self) -> int:
        """Return the rows held."""
        return self._rows

    @property
    def oldest_us(self) -> int | None:
        """The event time at the front."""
        first = self._chunks[0] if self._chunks else (self._small[0] if self._small else None)
        return None if first is None else int(first.time[0])

    def push(self, rows: BufferedRows) -> None:
        """Append rows, none earlier than the last."""
        if not len(rows):
            return
        self._rows += len(rows)
        self._small.append(rows.copied())
        if sum(len(r) for r in self._small) >= CHUNK_ROWS or len(self._small) >= CHUNK_ROWS // 16:
            self._chunks.append(concat_rows(*self._small))
            self._small = []

    def pop(self, upto_us: int) -> BufferedRows:
        """Take the rows with an event time at or before `upto_us`."""
        taken: list[BufferedRows] = []
        while self._chunks and int(self._chunks[0].time[0]) <= upto_us:
            taken.append(self._cut(self._chunks, upto_us))
        while not self._chunks and self._small and int(self._small[0].time[0]) <= upto_us:
            small = deque(self._small)
            taken.append(self._cut(small, upto_us))
            self._small = list(small)
        self._rows -= sum(len(t) for t in taken)
        return concat_rows(self._nothing, *taken)

    def pop_first(self, count: int) -> BufferedRows:
        """Take the first rows; they are so many at least."""
        taken: list[BufferedRows] = []
        left = count
        while left:
            if not self._chunks:
                self._chunks.append(concat_rows(*self._small))
                self._small = []
            first = self._chunks.popleft()
            if left < len(first):
                self._chunks.appendleft(first.slice(left, len(first)))
                first = first.slice(0, left)
            taken.append(first)
            left -= len(first)
        self._rows -= count
        return concat_rows(self._nothing, *taken)

    def _cut(self, chunks: deque[BufferedRows], upto_us: int) -> BufferedRows:
        first = chunks.popleft()
        stop = int(np.searchsorted(first.time, upto_us, side="right"))
        if stop < len(first):
            chunks.appendleft(first.slice(stop, len(first)))
        return first.slice(0, stop)

    def nbytes(self) -> int:
        """Return the bytes of the rows."""
        return sum(c.nbytes() for c in (*self._chunks, *self._small))


class TimeWindowLog(Operator):
    """[RANGE t], [NOW] and [UNBOUNDED]: a row leaves t after its time; at the end of the stream nothing leaves any more (K9)."""

    calls_late = True
    state_name = "time_window_log"
    state_fields: tuple[str, ...] = ("_intake", "_inside", "_newest")

    def __init__(self, recipe: WindowRecipe, inputs: Schema) -> None:
        super().__init__([recipe.schema])
        self._width = None if recipe.window.kind is WindowKind.UNBOUNDED else TimeClock(recipe.window).width
        self._intake = Intake(inputs)
        self._inside = RowQueue(inputs)
        self._newest = TIME_MIN

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Let rows in and out in event-time order, as W passes."""
        train = inputs[0]
        taken = self._intake.take(train, out)
        gone, moments = self._leaving(taken)
        out.emit(log_train(self.schemas[0], train, taken, gone, moments, gone.ordinal))

    def _leaving(self, taken: IntakeResult) -> tuple[BufferedRows, Int64Array]:
        """Return the rows that leave now and the instants at which they do."""
        ready = taken.ready
        if len(ready):
            self._newest = max(self._newest, int(ready.time[-1]))
        if self._width is None:
            gone = ready.slice(0, 0)
            return gone, gone.time
        self._inside.push(ready)
        watermark = self._intake.watermark
        upto = watermark - 1
        if watermark == TIME_MAX:  # nothing expires: it stands as at the last event time, or where W had come without one (K9)
            before = taken.track.last_open
            upto = self._newest if before in (TIME_MIN, TIME_MAX) else max(self._newest, before - 1)
        gone = self._inside.pop(max(TIME_MIN, upto - self._width) if upto > TIME_MIN + self._width else TIME_MIN)
        return gone, gone.time + self._width

    def wake_at_us(self) -> int | None:
        """Return when W must tick: past the oldest waiting row, or when the oldest row inside leaves."""
        waiting, inside = self._intake.oldest_us, self._inside.oldest_us
        moments = [] if waiting is None else [waiting + 1]
        if inside is not None and self._width is not None:
            moments.append(inside + self._width + 1)
        return min(moments, default=None)

    def state_rows(self) -> int:
        """Return the rows held."""
        return len(self._intake) + len(self._inside)

    def state_bytes(self) -> int:
        """Return their bytes."""
        return self._intake.nbytes() + self._inside.nbytes()


class RowWindowLog(Operator):
    """[ROWS n]: a row leaves when the n-th row after it in its partition comes."""

    calls_late = True
    state_name = "row_window_log"
    state_fields: tuple[str, ...] = ("_intake", "_clock", "_inside")

    def __init__(self, recipe: WindowRecipe, inputs: Schema) -> None:
        super().__init__([recipe.schema])
        self._clock = RankClock(recipe.window, inputs)
        self._intake = Intake(inputs)
        self._nothing = no_rows(inputs)
        self._stored = StoredColumns(inputs, range(len(inputs)), 4)
        # Per partition: rank, event time, seq, ordinal, and the columns of each row inside the window.
        self._inside = Vectors([np.int64] * 4 + self._stored.dtypes)

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Let rows in, and out those that they push out, in event-time order, as W passes."""
        train = inputs[0]
        taken = self._intake.take(train, out)
        gone, pushed_by = self._pushed_out(taken.ready)
        ready = taken.ready
        out.emit(log_train(self.schemas[0], train, taken, gone, ready.time[pushed_by], ready.ordinal[pushed_by], by_rank=True))

    def _pushed_out(self, ready: BufferedRows) -> tuple[BufferedRows, Int64Array]:
        """Return the rows that leave, and for each the position of the row that pushes it out."""
        if not len(ready):
            return self._nothing, np.empty(0, dtype=np.int64)
        partition = self._clock.partition_ids(ready)
        ranks = self._clock.clocks(ready, partition)
        order = np.argsort(partition, kind="stable")
        self._inside.reserve_ids(self._clock.partitions)
        values = [ranks, ready.time, ready.seq, ready.ordinal, *self._stored.stored(ready.columns, len(ready))]
        self._inside.append(partition[order], [v[order] for v in values])
        pushed_by = np.flatnonzero(ranks > self._clock.width)
        owner = partition[pushed_by]
        at = self._inside.above(owner, ranks[pushed_by] - self._clock.width - 1)
        columns = self._inside.columns
        gone = BufferedRows(self._stored.gathered(self._inside, at), *(columns[i][at] for i in range(1, 4)))
        in_order = np.sort(owner)
        starts = run_starts(in_order)
        self._inside.drop_front(in_order[starts], run_sizes(starts, len(in_order)))
        return gone, pushed_by

    def wake_at_us(self) -> int | None:
        """Return when W must tick past the oldest waiting row."""
        return None if self._intake.oldest_us is None else self._intake.oldest_us + 1

    def state_rows(self) -> int:
        """Return the rows held."""
        return len(self._intake) + self._inside.live

    def state_bytes(self) -> int:
        """Return their bytes."""
        return self._intake.nbytes() + self._inside.nbytes()


def log_train(
    schema: Schema, train: Train, taken: IntakeResult, gone: BufferedRows, moments: Int64Array, ranks: Int64Array, *, by_rank: bool = False
) -> Train:
    """Return the changes; at one instant (`by_rank`: at one row) what leaves goes first, so that there is never more than the window."""
    ready, track = taken.ready, taken.track
    together = concat_rows(ready, gone)
    if len(together) == 0:
        return progress(train, schema, track)
    instants = np.concatenate((ready.time, moments))
    plus = np.arange(len(together)) < len(ready)
    rank = np.concatenate((ready.ordinal, ranks))
    order = np.lexsort((rank, plus, rank if by_rank else instants, instants))
    target = np.clip(instants[order], track.start, track.end - 1) + 1
    columns = [c.take(order) for c in together.columns]
    return made_train(train, schema, [*columns, change_column(plus[order])], track.first_reaching(target), instants[order], track)


def window_log(recipe: WindowRecipe, inputs: Schema) -> Operator:
    """Return the logic for the recipe's window."""
    return RowWindowLog(recipe, inputs) if recipe.window.kind is WindowKind.ROWS else TimeWindowLog(recipe, inputs)
