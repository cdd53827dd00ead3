"""ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) <= n without a window: the first n rows of each group so far, as a change log (K24).

Of rows that only come, one that the first n of its group hold back is forgotten at once: it can never be among them. Of a change log all
rows that stand are kept. They lie in runs (group_runs.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from millstream.engine.data import limits
from millstream.engine.data.allowance import cut_rows
from millstream.engine.data.arrays import distinct, run_sizes, run_starts
from millstream.engine.data.buffered import BufferedRows, buffered, concat_rows
from millstream.engine.data.column import Column, concat_columns, null_column
from millstream.engine.data.keys import NoKeys, key_encoder
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train, empty_train
from millstream.engine.data.types import BIGINT
from millstream.engine.data.watermarks import TIME_MIN, constant_track
from millstream.engine.language.recipes import ChangingTopRecipe, RunningTopRecipe
from millstream.engine.operators.contract import Emitter
from millstream.engine.operators.group_runs import GroupedRows, GroupRun, all_of, replaced
from millstream.engine.operators.ordered_rows import order_keys
from millstream.engine.operators.outputs import change_column, made_train, progress
from millstream.engine.operators.retracting_aggregate import GroupedChanges

Mask = npt.NDArray[np.bool_]


class RunningTop(GroupedRows):
    """The rows of the input, the number of each in its group (NULL where nobody reads it), and the kind of the change."""

    state_name = "running_top"
    state_fields: tuple[str, ...] = ("_keys", "_runs", "_ordinal")

    def __init__(self, recipe: RunningTopRecipe, inputs: Schema) -> None:
        super().__init__(recipe.schema, [inputs.fields[p].type for p in recipe.partition])
        self._recipe = recipe
        self._inputs = inputs
        self._ordinal = 0

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Take rows in; give what that changes of the first n of their groups."""
        train = inputs[0]
        held = min(self._recipe.limit, self.state_rows())
        if held > 1:
            cut_rows(train, max(1, limits.CALL_VALUES_MAX // held))
        out.emit(self._changes(train) if train.rows else progress(train, self.schemas[0]))

    def _ids(self, rows: Train) -> Int64Array:
        if isinstance(self._keys, NoKeys):
            return np.zeros(rows.rows, dtype=np.int64)
        return self._keys.encode([rows.column(p) for p in self._recipe.partition])

    def _changes(self, train: Train) -> Train:
        ids = self._ids(train)
        new = buffered(train, self._ordinal)
        self._ordinal += train.rows
        touched = distinct(ids)
        places = [run.of(touched) for run in self._runs]
        old = sum(map(len, places))
        groups = np.concatenate((*(run.groups[at] for run, at in zip(self._runs, places, strict=True)), ids))
        ordinals = np.concatenate((*(run.rows.ordinal[at] for run, at in zip(self._runs, places, strict=True)), new.ordinal))
        order = self._sorted(places, new, groups, ordinals)
        groups, is_old = groups[order], order < old
        starts = run_starts(groups)
        sizes = run_sizes(starts, len(groups))
        numbers = np.arange(1, len(groups) + 1, dtype=np.int64) - np.repeat(starts, sizes)
        inside = numbers <= self._recipe.limit
        entered, left = inside & ~is_old, ~inside & is_old
        if not entered.any():
            return progress(train, self.schemas[0])
        changed = np.repeat(np.logical_or.reduceat(entered, starts), sizes)
        kept = inside & changed
        wanted = np.sort(order[kept | left])
        rows = self._gathered(places, new, wanted)
        at = np.searchsorted(wanted, order)  # where each of the sorted rows went
        self._runs = replaced(self._runs, places, distinct(groups[changed]), GroupRun(rows.take(at[kept]), groups[kept]))
        before = np.cumsum(is_old)
        before = before - np.repeat(before[starts] - is_old[starts], sizes)  # an old row's number until now
        moved = kept & is_old & (numbers != before) if self._recipe.numbered else np.zeros(len(order), dtype=np.bool_)
        minus, plus = np.flatnonzero(left | moved), np.flatnonzero(entered | moved)
        # Each change comes with the last row that entered its group.
        cause = np.zeros(int(touched[-1]) + 1, dtype=np.int64)
        np.maximum.at(cause, groups[entered], order[entered] - old)
        index, number = np.concatenate((minus, plus)), np.concatenate((before[minus], numbers[plus]))
        is_plus = np.arange(len(index)) >= len(minus)
        turn = np.lexsort((number, is_plus, cause[groups[index]]))
        index, because = index[turn], cause[groups[index[turn]]]
        columns = [*rows.take(at[index]).columns, self._number_column(number[turn]), change_column(is_plus[turn])]
        return made_train(train, self.schemas[0], columns, new.seq[because], new.time[because])

    def _sorted(self, places: Sequence[Int64Array], new: BufferedRows, groups: Int64Array, ordinals: Int64Array) -> Int64Array:
        """Return the order of the old rows and the new ones: by group, as asked for, by arrival."""
        wanted = self._recipe.order
        columns = []
        for position in (one.position for one in wanted):
            parts = [run.rows.columns[position].take(at) for run, at in zip(self._runs, places, strict=True)]
            columns.append(concat_columns([*parts, new.columns[position]]))
        return np.lexsort((ordinals, *reversed(order_keys(columns, wanted)), groups))

    def _gathered(self, places: Sequence[Int64Array], new: BufferedRows, rising: Int64Array) -> BufferedRows:
        """Return some of the old rows, which stand run by run, and of the new ones behind them."""
        parts: list[BufferedRows] = []
        first = 0
        for rows, at in (*((run.rows, at) for run, at in zip(self._runs, places, strict=True)), (new, None)):
            count = len(rows) if at is None else len(at)
            low, high = np.searchsorted(rising, (first, first + count))
            inside = rising[low:high] - first
            parts.append(rows.take(inside if at is None else at[inside]))
            first += count
        return concat_rows(*parts)

    def _number_column(self, numbers: Int64Array) -> Column:
        return Column(BIGINT, numbers) if self._recipe.numbered else null_column(BIGINT, len(numbers))

    def standing(self, lo: int, watermark_us: int) -> Train:
        """Return the rows that stand now as the base does."""
        base = empty_train(self.schemas[0], lo, lo + 1, constant_track(lo, lo + 1, watermark_us))
        if not self._runs:
            return base
        whole = all_of(self._runs)
        count, starts = len(whole.groups), run_starts(whole.groups)
        numbers = np.arange(1, count + 1, dtype=np.int64) - np.repeat(starts, run_sizes(starts, count))
        columns = [*whole.rows.columns, self._number_column(numbers), change_column(np.ones(count, dtype=np.bool_))]
        return made_train(base, self.schemas[0], columns, np.full(count, lo, dtype=np.int64), np.full(count, TIME_MIN, dtype=np.int64))


class ChangingTop(GroupedChanges):
    """The same over a change log: all rows that stand are kept, as any of them gets among the first n when others go."""

    state_name = "changing_top"
    state_fields: tuple[str, ...] = ("_keys", "_runs", "_ordinal", "_newest")

    def __init__(self, recipe: ChangingTopRecipe, inputs: Schema) -> None:
        super().__init__(recipe.schema, inputs, recipe.change, recipe.partition)
        self._recipe = recipe
        self._order = [(self._places[one.position], one) for one in recipe.order]

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Apply the changes; give what that changes of the first n of their groups."""
        train = inputs[0]
        out.emit(self._changes(train) if train.rows else progress(train, self.schemas[0]))

    def _first(self, run: GroupRun) -> tuple[list[Column], Int64Array, Int64Array]:
        """Return the first n rows of each group, in order: columns and number, groups, numbers."""
        columns = [run.rows.columns[place] for place, _ in self._order]
        order = np.lexsort((*reversed(order_keys(columns, [one for _, one in self._order])), run.groups))
        starts = run_starts(run.groups)  # which stand in order
        numbers = np.arange(1, len(order) + 1, dtype=np.int64) - np.repeat(starts, run_sizes(starts, len(order)))
        inside = numbers <= self._recipe.limit
        order, numbers = order[inside], numbers[inside]
        number = Column(BIGINT, numbers) if self._recipe.numbered else null_column(BIGINT, len(numbers))
        return [*run.rows.take(order).columns, number], run.groups[order], numbers

    def _changes(self, train: Train) -> Train:
        before, after, new, ids = self._apply(train)
        (was, was_groups, was_numbers), (is_, is_groups, is_numbers) = self._first(before), self._first(after)
        columns = [concat_columns([one, other]) for one, other in zip(was, is_, strict=True)]
        groups, numbers = np.concatenate((was_groups, is_groups)), np.concatenate((was_numbers, is_numbers))
        plus = np.arange(len(groups)) >= len(was_groups)
        at = _unequal([*columns, Column(BIGINT, groups)], plus)
        cause = np.zeros(int(ids.max()) + 1, dtype=np.int64)
        cause[ids] = np.arange(len(ids), dtype=np.int64)  # of several changes of a group the last is kept
        at = at[np.lexsort((numbers[at], plus[at], cause[groups[at]]))]
        because = cause[groups[at]]
        return made_train(train, self.schemas[0], self._shown([c.take(at) for c in columns], plus[at]), new.seq[because], new.time[because])

    def _shown(self, columns: list[Column], plus: Mask) -> list[Column]:
        """Return the columns of the input, that of the kind of a change as '+', the number, and the kind of the change."""
        columns.insert(self._change, change_column(np.ones(len(plus), dtype=np.bool_)))
        return [*columns, change_column(plus)]

    def standing(self, lo: int, watermark_us: int) -> Train:
        """Return the rows that stand now as the base does."""
        base = empty_train(self.schemas[0], lo, lo + 1, constant_track(lo, lo + 1, watermark_us))
        columns, groups, _ = self._first(self._whole())
        count = len(groups)
        shown = self._shown(columns, np.ones(count, dtype=np.bool_))
        return made_train(base, self.schemas[0], shown, np.full(count, lo, dtype=np.int64), np.full(count, TIME_MIN, dtype=np.int64))


def _unequal(columns: Sequence[Column], plus: Mask) -> Int64Array:
    """Return the places, rising, of the rows that come or go: each '+' stands against an equal row without."""
    codes = key_encoder([c.type for c in columns]).encode(columns)
    more = np.bincount(codes, weights=np.where(plus, 1, -1)).astype(np.int64)
    order = np.lexsort((plus, codes))
    starts = run_starts(codes[order])
    sizes = run_sizes(starts, len(order))
    turn = np.empty(len(order), dtype=np.int64)
    turn[order] = np.arange(len(order), dtype=np.int64) - np.repeat(starts, sizes)  # first those that go, then those that come
    gone = np.bincount(codes, weights=~plus).astype(np.int64)
    wanted = np.where(plus, turn - gone[codes] < more[codes], turn < -more[codes])
    return np.flatnonzero(wanted)
