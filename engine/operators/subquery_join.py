"""Subqueries (K25): each left row once, with what a set of right rows says of it: whether it is among them, or their one value.

Of a window the set is complete when W has passed the window's end; of finite inputs (FETCH) when both have ended; a table's is what
stands in it at the left row's place (K18). Right rows with a NULL key belong to no left row. `x IN (…)` is true if x is among the
values, else unknown if x or one of them is NULL, else false; over no values it is false whatever x is (SQL:2016, 8.4).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from millstream.engine.data.allowance import claim, pause
from millstream.engine.data.arrays import distinct
from millstream.engine.data.arrivals import NO_ARRIVALS, latest_arrivals
from millstream.engine.data.buffered import BoolArray, BufferedRows, WaitingRows, buffered, no_rows
from millstream.engine.data.column import Column, concat_columns, taken_or_null
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Numbers, Train, empty_train
from millstream.engine.data.types import BOOLEAN
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN, WatermarkTrack, constant_track, jump_track, lagged_track
from millstream.engine.expressions.compile import compile_predicate
from millstream.engine.expressions.kernel import EvaluationContext
from millstream.engine.language.recipes import JoinKind, SubqueryRecipe, TableJoinRecipe, TableSubqueryRecipe
from millstream.engine.operators.build import build_operator
from millstream.engine.operators.contract import Emitter, EvaluationErrors, Operator
from millstream.engine.operators.join_keys import KeyIndex
from millstream.engine.operators.join_state import CANDIDATES_MAX
from millstream.engine.operators.ordered_rows import closing_seqs
from millstream.engine.operators.outputs import MinimumWatermark
from millstream.engine.operators.table_join import TableJoin

LEFT, RIGHT = 0, 1
SEVERAL = "a subquery that stands for one value gave several rows"
_NOTHING: Int64Array = np.empty(0, dtype=np.int64)


class RightRows:
    """What a subquery gave, found by its keys: by those of the left rows it belongs to, and by these and the value that is compared."""

    def __init__(self, lookup: Lookup, columns: Sequence[Column], rows: int) -> None:
        self.columns = columns
        self.by_group = KeyIndex(lookup.recipe, lookup.inputs, columns, rows)
        self.by_whole: KeyIndex | None = None
        if lookup.whole is None:
            return
        self.by_whole = KeyIndex(lookup.whole, lookup.inputs, columns, rows)
        self.unknown = _unknown(columns[lookup.whole.right_keys[-1]], rows)
        self.has_unknown = np.zeros(max(1, self.by_group.size), dtype=np.bool_)
        """Of each group: whether a value is NULL."""
        ids = self.by_group.ids[self.unknown]
        self.has_unknown[ids[ids >= 0]] = True

    def nbytes(self) -> int:
        """Return the bytes of the rows and of what finds them."""
        indexes = [index for index in (self.by_group, self.by_whole) if index is not None]
        return sum(c.nbytes() for c in self.columns) + sum(index.nbytes() for index in indexes)


class Lookup:
    """Answers for left rows over a set of right ones. `failed` has the places of left rows without an answer, with the reason."""

    def __init__(self, recipe: SubqueryRecipe | TableSubqueryRecipe, left: Schema, right: Schema) -> None:
        self.recipe = recipe
        self.inputs = left, right
        self.whole: SubqueryRecipe | TableSubqueryRecipe | None = None
        """The recipe with the value that is compared as one more key."""
        if recipe.compared is not None:
            lefts, rights = ((*keys, one) for keys, one in zip((recipe.left_keys, recipe.right_keys), recipe.compared, strict=True))
            self.whole = replace(recipe, left_keys=lefts, right_keys=rights, null_safe=(*recipe.null_safe, False))
        self._residual = None if recipe.residual is None else compile_predicate(recipe.residual)
        self.failed: list[tuple[Int64Array, str]] = []

    def answers(self, left: Sequence[Column], rows: int, right: RightRows) -> list[Column]:
        """Return the columns that are appended to so many left rows."""
        self.failed = []
        ids = right.by_group.find(left, rows)
        if self.recipe.kind is JoinKind.SINGLE:
            return self._single(left, right, ids)
        if self._residual is None:
            return [self._marks(left, right, ids)]
        return [self._marks_of_pairs(left, right, ids)]

    # -- one value ------------------------------------------------------------------------------------------------------------

    def _single(self, left: Sequence[Column], right: RightRows, ids: Int64Array) -> list[Column]:
        found = np.full(len(ids), -1, dtype=np.int64)
        counts = np.zeros(len(ids), dtype=np.int64)
        for at_left, at_right in self._pairs(left, right, ids):
            counts += np.bincount(at_left, minlength=len(ids))
            found[at_left] = at_right
        several = np.flatnonzero(counts > 1)
        if len(several):
            self.failed.append((several, SEVERAL))
            found[several] = -1
        return [taken_or_null(column, found) for column in right.columns]

    # -- whether it is among them ---------------------------------------------------------------------------------------------

    def _marks(self, left: Sequence[Column], right: RightRows, ids: Int64Array) -> Column:
        present = ids >= 0
        if right.by_whole is None:
            return Column(BOOLEAN, present)
        matched = right.by_whole.find(left, len(ids)) >= 0
        valid = matched | ~present | ~(self._unknown_left(left, len(ids)) | (right.has_unknown[ids] & present))
        return Column(BOOLEAN, matched, None if valid.all() else valid)

    def _marks_of_pairs(self, left: Sequence[Column], right: RightRows, ids: Int64Array) -> Column:
        matched, doubtful = np.zeros(len(ids), dtype=np.bool_), np.zeros(len(ids), dtype=np.bool_)
        if right.by_whole is not None:
            ours, theirs = right.by_whole.find(left, len(ids)), right.by_whole.ids
            unknown = self._unknown_left(left, len(ids))
        for at_left, at_right in self._pairs(left, right, ids):
            if right.by_whole is None:
                matched[at_left] = True
                continue
            matched[at_left[(ours[at_left] == theirs[at_right]) & (ours[at_left] >= 0)]] = True
            doubtful[at_left[unknown[at_left] | right.unknown[at_right]]] = True
        valid = matched | ~doubtful
        return Column(BOOLEAN, matched, None if valid.all() else valid)

    def _unknown_left(self, left: Sequence[Column], rows: int) -> BoolArray:
        assert self.recipe.compared is not None
        return _unknown(left[self.recipe.compared[LEFT]], rows)

    # -- pairs ----------------------------------------------------------------------------------------------------------------

    def _pairs(self, left: Sequence[Column], right: RightRows, ids: Int64Array) -> Iterator[tuple[Int64Array, Int64Array]]:
        """Yield pairs of equal keys for which the residual is true, all of a left row in one part, about CANDIDATES_MAX at a time."""
        counts = right.by_group.counts(ids)
        ends = np.cumsum(counts)
        start = 0
        while start < len(ids):
            before = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + CANDIDATES_MAX, side="right")))
            if pairs := int(ends[stop - 1]) - before:
                claim(32 * pairs, "the pairs of a subquery")
                pause()
                at_left, at_right = right.by_group.pairs(ids[start:stop], counts[start:stop])
                yield self._true(left, right.columns, at_left + start, at_right)
            start = stop

    def _true(
        self, left: Sequence[Column], right: Sequence[Column], at_left: Int64Array, at_right: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        if self._residual is None:
            return at_left, at_right
        context = EvaluationContext()
        true = self._residual(_Pairs(left, right, at_left, at_right), context)
        self.failed += [(distinct(at_left[places]), reason) for places, reason in context.errors]
        return at_left[true], at_right[true]


def _unknown(column: Column, rows: int) -> BoolArray:
    valid = column.validity()
    return np.zeros(rows, dtype=np.bool_) if valid is None else ~valid


class _Pairs:
    """Columns of pairs, gathered when they are asked for."""

    def __init__(self, left: Sequence[Column], right: Sequence[Column], at_left: Int64Array, at_right: Int64Array) -> None:
        self._sides = (left, at_left), (right, at_right)
        self.rows = len(at_left)

    def column(self, position: int) -> Column:
        """Return a column, the left's first."""
        (left, at_left), (right, at_right) = self._sides
        return left[position].take(at_left) if position < len(left) else right[position - len(left)].take(at_right)


# -- of windows and finite inputs -------------------------------------------------------------------------------------------------


class SubqueryJoin(Operator):
    """Keeps left and right rows until the right ones of a left row are complete.

    Rows of a window leave when W has passed its end, by end, then arrival, with the time of the window's answers (K19).
    """

    state_name = "subquery_join"
    state_fields: tuple[str, ...] = ("_left", "_right", "_ordinals", "_watermark")

    def __init__(self, recipe: SubqueryRecipe, inputs: Sequence[Schema]) -> None:
        super().__init__([recipe.schema])
        self._recipe = recipe
        self._lookup = Lookup(recipe, *inputs)
        self._waiting = [WaitingRows(no_rows(inputs[side])) for side in (LEFT, RIGHT)]
        self._ordinals = [0, 0]
        self._watermark = MinimumWatermark(2)

    @property
    def _left(self) -> BufferedRows:
        """The left rows that wait, as the state has them; so has it the right ones."""
        return self._waiting[LEFT].whole()

    @_left.setter
    def _left(self, rows: BufferedRows) -> None:
        self._waiting[LEFT].keep(rows, self._ends(LEFT, rows))

    @property
    def _right(self) -> BufferedRows:
        return self._waiting[RIGHT].whole()

    @_right.setter
    def _right(self, rows: BufferedRows) -> None:
        self._waiting[RIGHT].keep(rows, self._ends(RIGHT, rows))

    def attached(self, watermarks_us: Sequence[int], idle: Sequence[bool]) -> int:
        """W of a window's rows is the least of both; of finite inputs it stands still until they have ended."""
        value = self._watermark.attached(watermarks_us, idle)
        return value if self._recipe.ends is not None else TIME_MIN

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Keep the rows; answer those whose right rows are complete."""
        track = self._watermark.advance(inputs)
        left = inputs[LEFT]
        for side, train in enumerate(inputs):
            if train.rows:
                rows = buffered(train, self._ordinals[side])
                self._waiting[side].add(rows, self._ends(side, rows))
                self._ordinals[side] += train.rows
        ended = all(t.ended for t in inputs)
        flush = any(t.flush for t in inputs) and self._watermark.all_idle
        made = self._finite(left, track, ended, out) if self._recipe.ends is None else self._closed(left, track, flush, out)
        made.arrival = latest_arrivals([t.arrival for t in inputs])
        made.ended, made.flush = ended, flush
        made.idle = self._watermark.mark(inputs)
        out.emit(made)

    def _finite(self, train: Train, track: WatermarkTrack, ended: bool, out: Emitter) -> Train:
        held = lagged_track(track, 0, True)
        if not ended or not len(self._waiting[LEFT]):
            return empty_train(self.schemas[0], train.lo, train.hi, held)
        rows, rights = self._left, self._right
        rows = rows.take(np.argsort(rows.seq, kind="stable"))
        self._left, self._right = rows.take(_NOTHING), rights.take(_NOTHING)
        ends = np.full(len(rows), TIME_MAX, dtype=np.int64)
        return self._answered(train, rows, rights, closing_seqs(train, track, ends, rows.seq), rows.time, held, out)

    def _closed(self, train: Train, track: WatermarkTrack, flush: bool, out: Emitter) -> Train:
        reached = TIME_MAX if flush else track.end
        rows, rights = (waiting.leave(reached, partial(self._ends, side)) for side, waiting in enumerate(self._waiting))
        if not len(rows):
            return empty_train(self.schemas[0], train.lo, train.hi, track)
        ends = self._ends(LEFT, rows)
        order = np.lexsort((rows.ordinal, ends))
        rows, ends = rows.take(order), ends[order]
        seqs = closing_seqs(train, track, ends, rows.seq)
        again = np.argsort(seqs, kind="stable")
        rows, ends, seqs = rows.take(again), ends[again], seqs[again]
        return self._answered(train, rows, rights, seqs, ends - 1, track, out)

    def _ends(self, side: int, rows: BufferedRows) -> Int64Array:
        """Return when the window of each row is complete; of finite inputs never before their end."""
        if self._recipe.ends is None:
            return np.full(len(rows), TIME_MAX, dtype=np.int64)
        ends: Int64Array = rows.columns[self._recipe.ends[side]].values
        return ends

    def _answered(
        self,
        train: Train,
        rows: BufferedRows,
        rights: BufferedRows,
        seqs: Int64Array,
        times: Int64Array,
        track: WatermarkTrack,
        out: Emitter,
    ) -> Train:
        added = self._lookup.answers(rows.columns, len(rows), RightRows(self._lookup, rights.columns, len(rights)))
        made = Train(
            self.schemas[0],
            [*rows.columns, *added],
            rows=len(rows),
            lo=train.lo,
            hi=train.hi,
            seq=Numbers(len(rows), array=seqs),
            time=Numbers(len(rows), array=times),
            arrival=train.arrival,
            track=track,
        )
        out.errors += [EvaluationErrors(reason, made.take(places)) for places, reason in self._lookup.failed]
        return made

    def wake_at_us(self) -> int | None:
        """Return the least end of a window that waits."""
        least_us = self._waiting[LEFT].least_end_us
        return None if least_us == TIME_MAX else least_us

    def state_rows(self) -> int:
        """Return the rows that wait."""
        return sum(map(len, self._waiting))

    def state_bytes(self) -> int:
        """Return their bytes."""
        return sum(waiting.nbytes() for waiting in self._waiting)


# -- of a table -------------------------------------------------------------------------------------------------------------------


class TableSubquery(TableJoin):
    """Port 0 is the stream, port 1 the table's change log. What the subquery gives is computed anew when a row comes after a change."""

    state_name = "table_subquery"

    def _make_ready(self, recipe: TableJoinRecipe, stream: Schema, table: Schema) -> None:
        """Keys and residual are of what the steps give."""
        assert isinstance(recipe, TableSubqueryRecipe)
        self._steps, self._standing = recipe.steps, table
        self._lookup = Lookup(recipe, stream, recipe.steps[-1].schema if recipe.steps else table)
        self._changed_at: Int64Array = np.array([-1], dtype=np.int64)  # where the table changed, and the last change before what came
        self._made: tuple[int, RightRows, list[str]] | None = None  # the last that was computed: after which change, rows, errors

    def take_up(self, fields: dict[str, Any]) -> None:
        """Take up a snapshot; what was computed of another table is forgotten."""
        super().take_up(fields)
        self._made = None

    def _change(self, rows: Train) -> None:
        super()._change(rows)
        self._changed_at = np.concatenate((self._changed_at[-1:], distinct(rows.seq.array())))

    def _join(self, train: Train, out: Emitter) -> Train:
        seqs = train.seq.array()
        after = np.searchsorted(self._changed_at, seqs, side="right") - 1
        starts = [0, *(np.flatnonzero(np.diff(after)) + 1).tolist(), train.rows]
        parts = []
        for start, stop in pairwise(starts):
            rows = train if (start, stop) == (0, train.rows) else train.take(np.arange(start, stop, dtype=np.int64))
            parts.append(self._part(rows, int(self._changed_at[after[start]]), int(seqs[start]), out))
        self._changed_at = self._changed_at[int(after[-1]) :]
        added = [concat_columns(list(c)) for c in zip(*parts, strict=True)]
        return train.replace_columns(self.schemas[0], [*(train.slot(i) for i in range(len(train.schema))), *added])

    def _part(self, rows: Train, change: int, seq: int, out: Emitter) -> list[Column]:
        if self._made is None or self._made[0] != change:
            columns, count, reasons = self._stepped(*self._table.standing(seq))
            self._made = change, RightRows(self._lookup, columns, count), reasons
        _, right, reasons = self._made
        answers = self._lookup.answers(rows.columns(), rows.rows, right)
        every = np.arange(rows.rows, dtype=np.int64)
        failed = [*self._lookup.failed, *((every, reason) for reason in reasons)]
        out.errors += [EvaluationErrors(reason, rows.take(places)) for places, reason in failed]
        return answers

    def _stepped(self, columns: Sequence[Column], count: int) -> tuple[list[Column], int, list[str]]:
        """Return what the steps make of the rows that stand, as of a stream that has ended, and why some could not be computed."""
        train = Train(
            self._standing,
            list(columns),
            rows=count,
            lo=0,
            hi=1,
            seq=Numbers(count),
            time=Numbers(count),
            arrival=NO_ARRIVALS,
            track=jump_track(0, 1, 0, 0, TIME_MAX) if self._steps else constant_track(0, 1, 0),
            ended=True,
        )
        reasons: list[str] = []
        for recipe in self._steps:
            logic = build_operator(recipe, [train.schema])
            logic.attached([0], [False])
            out = Emitter()
            logic.process([train], out)
            made = out.trains[0]
            assert made is not None
            train = made
            reasons += [error.reason for error in out.errors]
        return train.columns(), train.rows, list(dict.fromkeys(reasons))

    def state_bytes(self) -> int:
        """Return the bytes of the table's versions, and of what was made of them last."""
        return super().state_bytes() + (0 if self._made is None else self._made[1].nbytes())
