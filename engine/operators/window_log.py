"""Sliding, row and unbounded windows without an aggregate as change logs: '+' when a row enters the window, '-' when it leaves it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.buffered import BufferedRows, concat_rows, no_rows
from millstream.engine.data.runs import run_sizes, run_starts
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN
from millstream.engine.language.recipes import WindowKind, WindowRecipe
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.intake import Intake, Taken
from millstream.engine.operators.outputs import change_column, made_train, progress
from millstream.engine.operators.row_clock import RankClock, TimeClock
from millstream.engine.operators.row_queue import RowQueue
from millstream.engine.windows.vectors import StoredColumns, Vectors


class TimeWindowLog(Operator):
    """[RANGE t], [NOW] and [UNBOUNDED]: a row leaves t after its time; at the end of the stream nothing leaves any more (K9)."""

    calls_late = True
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

    def _leaving(self, taken: Taken) -> tuple[BufferedRows, Int64Array]:
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
    state_fields: tuple[str, ...] = ("_intake", "_clock", "_inside")

    def __init__(self, recipe: WindowRecipe, inputs: Schema) -> None:
        super().__init__([recipe.schema])
        self._clock = RankClock(recipe.window, inputs)
        self._intake = Intake(inputs)
        self._nothing = no_rows(inputs)
        self._stored = StoredColumns(inputs, range(len(inputs)), 5)
        # Per partition: rank, event time, seq, arrival, ordinal, and the columns of each row inside the window.
        self._inside = Vectors([np.int64] * 5 + self._stored.dtypes)

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
        values = [ranks, ready.time, ready.seq, ready.arrival, ready.ordinal, *self._stored.stored(ready.columns, len(ready))]
        self._inside.append(partition[order], [v[order] for v in values])
        pushed_by = np.flatnonzero(ranks > self._clock.width)
        owner = partition[pushed_by]
        at = self._inside.above(owner, ranks[pushed_by] - self._clock.width - 1)
        columns = self._inside.columns
        gone = BufferedRows(self._stored.gathered(self._inside, at), *(columns[i][at] for i in range(1, 5)))
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
    schema: Schema, train: Train, taken: Taken, gone: BufferedRows, moments: Int64Array, ranks: Int64Array, *, by_rank: bool = False
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
