"""Aggregates with OVER (PARTITION BY … ORDER BY time, ROWS or RANGE …): one answer a row, over the frame of rows about it (K23).

Rows are taken in event-time order, ties by arrival, once W has passed them. Each part of the recipe has a lane, with partitions and a
frame of its own. In a lane a row has a clock: its rank in its partition (ROWS, and RANGE from UNBOUNDED PRECEDING) or its event time. The
frame of a row are the partition's rows with a clock in (end − width, end], which is how sliding windows see their cells
(windows/sliding_cells.py).

A frame that reaches beyond its row makes the row wait: until W has passed the frame's end, or for so many rows of the partition. A row
leaves when its frames are complete in all lanes, and that moment is its event time.

With UNBOUNDED PRECEDING all ranks lie in one block of cells, so that the fold from its beginning to a cell is the answer, and of the
cells that no row will ask for again only the last one is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from millstream.engine.aggregates.table import aggregate_of
from millstream.engine.data.arrays import distinct, expanded
from millstream.engine.data.buffered import BufferedRows, concat_rows, no_rows
from millstream.engine.data.column import Column, taken_or_null
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN, WatermarkTrack
from millstream.engine.language.recipes import AggregateCall, OverPart, OverRecipe
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.intake import Intake
from millstream.engine.operators.outputs import made_train, progress
from millstream.engine.state.forms import state_record
from millstream.engine.windows.sliding_cells import bound_answers, sliding_cells
from millstream.engine.windows.vectors import Vectors

ENDLESS = 2**62  # the width of a frame from UNBOUNDED PRECEDING: no rank reaches it
UNKNOWN = TIME_MAX  # when a frame is complete that waits for rows which have not come
_NONE: Int64Array = np.empty(0, dtype=np.int64)
_ONLY: Int64Array = np.zeros(1, dtype=np.int64)


class OverAggregate(Operator):
    """Appends to each row the aggregates of its frames."""

    calls_late = True
    state_name = "over_aggregate"
    state_fields: tuple[str, ...] = ("_intake", "_lanes", "_waiting", "_newest")

    def __init__(self, recipe: OverRecipe, inputs: Schema) -> None:
        super().__init__([recipe.schema])
        self._intake = Intake(inputs)
        self._lanes = [Lane(part, inputs) for part in recipe.parts]
        self._waiting = no_rows(inputs)  # rows whose frames are not complete, in order
        self._newest = TIME_MIN

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Take rows in; answer for those whose frames are complete now."""
        train = inputs[0]
        for lane in self._lanes:
            lane.check_size(train)
        taken = self._intake.take(train, out)
        self._add(taken.ready)
        done, times = self._complete()
        out.emit(self._answered(train, taken.track, done, times) if len(done) else progress(train, self.schemas[0], taken.track))
        left = np.ones(len(self._waiting), dtype=np.bool_)
        left[done] = False
        self._waiting = self._waiting.kept(left)
        for lane in self._lanes:
            lane.keep(left)
        if self._intake.watermark not in (TIME_MIN, TIME_MAX):
            oldest = min(self._intake.watermark, int(self._waiting.time[0]) if len(self._waiting) else TIME_MAX)
            for lane in self._lanes:
                lane.forget(oldest)

    def _add(self, ready: BufferedRows) -> None:
        if len(ready) == 0:
            return
        self._newest = int(ready.time[-1])
        self._waiting = concat_rows(self._waiting, ready) if len(self._waiting) else ready
        for lane in self._lanes:
            lane.add(ready)

    def _complete(self) -> tuple[Int64Array, Int64Array]:
        """Return which rows are complete, in order of that moment and then of their own, and the event time of each moment."""
        moments = [lane.until for lane in self._lanes]
        if self._intake.watermark == TIME_MAX:  # what has not come by now will not come
            until = np.max([np.where(m == UNKNOWN, self._newest, m) for m in moments], axis=0)
            done = np.arange(len(until), dtype=np.int64)
        else:
            until = moments[0] if len(moments) == 1 else np.max(moments, axis=0)
            done = np.flatnonzero(until < self._intake.watermark)
        done = done[np.argsort(until[done], kind="stable")]
        return done, until[done]

    def _answered(self, train: Train, track: WatermarkTrack, done: Int64Array, times: Int64Array) -> Train:
        in_order = len(done) == len(self._waiting) and bool(np.all(done[1:] > done[:-1]))
        rows = self._waiting if in_order else self._waiting.take(done)
        columns = [*rows.columns, *(column for lane in self._lanes for column in lane.answers(done))]
        seqs = track.first_reaching(np.clip(times, track.start, track.end - 1) + 1)
        return made_train(train, self.schemas[0], columns, seqs, times, track)

    # State -------------------------------------------------------------------------------------------------------------

    def wake_at_us(self) -> int | None:
        """Return when W must tick: past the oldest row that waits for it, or past the end of a frame."""
        found = [] if self._intake.oldest_us is None else [self._intake.oldest_us + 1]
        if len(self._waiting):
            until = np.max([lane.until for lane in self._lanes], axis=0)
            if int(until.min()) != UNKNOWN:
                found.append(int(until.min()) + 1)
        return min(found, default=None)

    def state_rows(self) -> int:
        """Return the rows that wait and the cells held."""
        return len(self._intake) + len(self._waiting) + sum(lane.cells for lane in self._lanes)

    def state_bytes(self) -> int:
        """Return the bytes held."""
        return self._intake.nbytes() + self._waiting.nbytes() + sum(lane.nbytes() for lane in self._lanes)


@state_record("over_lane", 1, ("_part", "_by_rank", "_encoder", "_counts", "_cells", "_log", "_ids", "_clocks", "_ends", "until"))
class Lane:
    """One frame with its partitions. Of each row that waits it knows its partition, its clock, and the clock at which its frame ends.

    `until` is the event time at which the frame of each is complete, UNKNOWN where that is not known yet.
    """

    def __init__(self, part: OverPart, inputs: Schema) -> None:
        frame = part.frame
        self._part = part
        self._by_rank = frame.by_rank or frame.preceding is None
        width = ENDLESS if frame.preceding is None else frame.preceding + frame.following + 1
        self._encoder = key_encoder([inputs.fields[p].type for p in part.partition])
        self._counts: Int64Array = np.zeros(1, dtype=np.int64)  # rows that each partition has had
        self._cells = sliding_cells(width, part.aggregates, inputs)
        self._log = Vectors([np.int64, np.int64])  # of clocks that are times: clock and partition of each cell, in order of the clock
        self._ids, self._clocks, self._ends, self.until = _NONE, _NONE, _NONE, _NONE
        self._touched = _NONE  # the partitions of new rows

    @classmethod
    def from_state(cls, fields: dict[str, object]) -> Lane:
        """Return the lane, with no new rows."""
        made = cls.__new__(cls)
        vars(made).update(fields)
        made._touched = _NONE
        return made

    @property
    def cells(self) -> int:
        """The cells held."""
        return len(self._cells)

    def check_size(self, train: Train) -> None:
        """Want fewer rows where their frames would go through more values than a call may."""
        bound_answers(train, self._cells, self._cells.width if self._by_rank else None)

    def add(self, ready: BufferedRows) -> None:
        """Make cells of rows, which wait from now on."""
        ids = self._partitions(ready)
        order = np.argsort(ids, kind="stable")
        in_order = ids[order]
        first = np.searchsorted(in_order, in_order, side="left")
        clocks = self._ranks(order, in_order, first) if self._by_rank else ready.time
        self._cells.reserve_groups(len(self._counts))
        groups, at = self._cells.add(ready.take(order) if self._part.partition else ready, in_order, clocks[order])
        if not self._by_rank:
            by_clock = np.argsort(at, kind="stable")
            self._log.append(np.zeros(len(at), dtype=np.int64), [at[by_clock], groups[by_clock]])
        self._ids, self._clocks = np.concatenate((self._ids, ids)), np.concatenate((self._clocks, clocks))
        self._ends = np.concatenate((self._ends, self._ends_of(ready, clocks, order, in_order)))
        self._know(ready, order, in_order)
        self._touched = distinct(ids)

    def _partitions(self, ready: BufferedRows) -> Int64Array:
        if not self._part.partition:
            return np.zeros(len(ready), dtype=np.int64)
        ids = self._encoder.encode([ready.columns[p] for p in self._part.partition])
        missing = self._encoder.size - len(self._counts)
        if missing > 0:
            self._counts = np.concatenate((self._counts, np.zeros(max(missing, len(self._counts)), dtype=np.int64)))
        return ids.astype(np.int64)

    def _ranks(self, order: Int64Array, in_order: Int64Array, first: Int64Array) -> Int64Array:
        """Return the rank of each row in its partition, from 1."""
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = np.arange(1, len(order) + 1, dtype=np.int64) - first + self._counts[in_order]
        np.maximum.at(self._counts, in_order, ranks[order])
        return ranks

    def _ends_of(self, ready: BufferedRows, clocks: Int64Array, order: Int64Array, in_order: Int64Array) -> Int64Array:
        """Return where frames end. Rows of one time are peers in RANGE; they become ready together."""
        frame = self._part.frame
        if frame.by_rank or not self._by_rank:
            return clocks + frame.following
        times = ready.time[order]
        last = np.append((in_order[1:] != in_order[:-1]) | (times[1:] != times[:-1]), True)
        peers = np.flatnonzero(last)[np.cumsum(np.append(False, last[:-1]))]
        ends = np.empty(len(order), dtype=np.int64)
        ends[order] = clocks[order][peers]
        return ends

    def _know(self, ready: BufferedRows, order: Int64Array, in_order: Int64Array) -> None:
        """Find out when frames are complete: in ROWS with the row so many places behind, perhaps one of these."""
        frame = self._part.frame
        if not frame.by_rank or frame.following <= 0:
            self.until = np.concatenate((self.until, ready.time + max(0, frame.following)))
            return
        self.until = np.concatenate((self.until, np.full(len(ready), UNKNOWN, dtype=np.int64)))
        open_ = np.flatnonzero(self.until == UNKNOWN)
        open_ = open_[self._counts[self._ids[open_]] - self._clocks[open_] >= frame.following]
        ids = self._ids[open_]
        first, beyond = np.searchsorted(in_order, ids, side="left"), np.searchsorted(in_order, ids, side="right")
        before = self._counts[ids] - (beyond - first)
        self.until[open_] = ready.time[order[first + self._clocks[open_] + frame.following - before - 1]]

    def answers(self, done: Int64Array) -> list[Column]:
        """Return the aggregates of some rows; a frame without rows has the answer of no rows (K6)."""
        found = self._cells.evaluate(self._ids[done], self._ends[done])
        if found.full.all():
            return found.columns
        place = np.where(found.full, np.cumsum(found.full) - 1, -1)
        return [_or_of_none(call, taken_or_null(column, place)) for call, column in zip(self._part.aggregates, found.columns, strict=True)]

    def keep(self, left: npt.NDArray[np.bool_]) -> None:
        """Let the rows go that have left."""
        self._ids, self._clocks, self._ends, self.until = self._ids[left], self._clocks[left], self._ends[left], self.until[left]

    def forget(self, oldest_us: int) -> None:
        """Let go what no frame will ask for again, given the least event time of rows that wait or come."""
        if self._by_rank:
            self._forget_ranks(self._touched)
        else:
            self._forget_times(oldest_us)
        self._touched = _NONE

    def _forget_ranks(self, partitions: Int64Array) -> None:
        """A partition's oldest row that waits, or its next row, is the one that looks back farthest."""
        if len(partitions) == 0:
            return
        frame, vectors = self._part.frame, self._cells.vectors
        oldest = self._counts + 1
        np.minimum.at(oldest, self._ids, self._clocks)
        if frame.preceding is None:
            kept_from = vectors.above(partitions, oldest[partitions] + min(0, frame.following)) - 1
        else:
            kept_from = vectors.above(partitions, oldest[partitions] - max(0, frame.preceding) - 1)
        counts = np.maximum(0, kept_from - vectors.start[partitions])
        if counts.any():
            self._cells.drop_front(np.repeat(partitions, counts))

    def _forget_times(self, oldest_us: int) -> None:
        assert self._part.frame.preceding is not None
        bound = np.full(1, oldest_us - max(0, self._part.frame.preceding) - 1, dtype=np.int64)
        counts = self._log.above(_ONLY, bound) - self._log.start[_ONLY]
        if counts[0] <= 0:
            return
        gone = self._log.columns[1][expanded(self._log.start[_ONLY], counts)]
        self._log.drop_front(_ONLY, counts)
        empty = self._cells.drop_front(gone)
        if self._part.partition and len(empty):
            self._encoder.free(empty)

    def nbytes(self) -> int:
        """Return the bytes held."""
        waiting = sum(int(a.nbytes) for a in (self._ids, self._clocks, self._ends, self.until, self._counts))
        return waiting + self._encoder.nbytes() + self._cells.vectors.nbytes() + self._log.nbytes()


def _or_of_none(call: AggregateCall, column: Column) -> Column:
    if not aggregate_of(call.function).zero_if_empty or column.valid is None:
        return column
    return Column(column.type, np.where(column.valid, column.values, 0))
