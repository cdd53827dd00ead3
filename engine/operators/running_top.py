"""ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) <= n without a window: the first n rows of each group so far, as a change log (K24).

Of rows that only come, one that the first n of its group hold back is forgotten at once: it can never be among them. Of a change log all
rows that stand are kept: those of small groups and the first of large ones in runs (group_runs.py), the others of large ones in a heap
behind a boundary. There a change is put down and no more; the heap is looked through when the rows before the boundary run out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

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
from millstream.engine.operators.group_runs import GroupedRows, GroupRun, merged, replaced
from millstream.engine.operators.ordered_rows import order_keys
from millstream.engine.operators.outputs import change_column, made_train, progress
from millstream.engine.operators.retracting_aggregate import GroupedChanges
from millstream.engine.operators.table_changes import standing_after
from millstream.engine.state.forms import state_record

Mask = npt.NDArray[np.bool_]
_NONE: Int64Array = np.empty(0, dtype=np.int64)
FRONT_ROWS = 512  # of a large group, sorted anew at each of its changes


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
        whole = merged(*self._runs)
        count, starts = len(whole.groups), run_starts(whole.groups)
        numbers = np.arange(1, count + 1, dtype=np.int64) - np.repeat(starts, run_sizes(starts, count))
        columns = [*whole.rows.columns, self._number_column(numbers), change_column(np.ones(count, dtype=np.bool_))]
        return made_train(base, self.schemas[0], columns, np.full(count, lo, dtype=np.int64), np.full(count, TIME_MIN, dtype=np.int64))


@state_record("top_heap", 1, ("boundary", "parts"))
class Heap:
    """The rows of a group that stand behind a boundary, as changes in any order. `parts` are rows with which of them are a '+'."""

    __slots__ = ("boundary", "parts", "size")

    def __init__(self, boundary: BufferedRows) -> None:
        self.boundary = boundary
        self.parts: list[tuple[BufferedRows, Mask]] = []
        self.size = 0  # rows that stand

    @classmethod
    def from_state(cls, fields: dict[str, Any]) -> Heap:
        """Return the heap."""
        made = cls(fields["boundary"])
        made.parts = [(rows, plus) for rows, plus in fields["parts"]]
        made.size = sum(int(np.count_nonzero(plus)) - int(np.count_nonzero(~plus)) for _, plus in made.parts)
        return made

    def add(self, rows: BufferedRows, plus: Mask) -> None:
        """Put changes down; parts of like size are joined, and what came and went is dropped once it is as much as what stands."""
        if not len(rows):
            return
        self.parts.append((rows, plus))
        self.size += 2 * int(np.count_nonzero(plus)) - len(plus)
        while len(self.parts) > 1 and len(self.parts[-2][0]) < 2 * len(self.parts[-1][0]):
            (one, before), (other, behind) = self.parts[-2:]
            self.parts[-2:] = [(concat_rows(one, other), np.concatenate((before, behind)))]
        if sum(len(part) for part, _ in self.parts) > 2 * self.size + 2 * FRONT_ROWS:
            standing = self.standing()
            self.parts = [(standing, np.ones(len(standing), dtype=np.bool_))] if len(standing) else []

    def take_over(self, other: Heap) -> None:
        """Take over what is in another heap of the group."""
        for rows, plus in other.parts:
            self.add(rows, plus)

    def standing(self) -> BufferedRows:
        """Return the rows that stand."""
        if not self.parts:
            return self.boundary.slice(0, 0)
        rows, plus = concat_rows(*(rows for rows, _ in self.parts)), np.concatenate([plus for _, plus in self.parts])
        return rows.take(standing_after(rows, plus))

    def nbytes(self) -> int:
        """Return the bytes held."""
        return sum(rows.nbytes() + len(plus) for rows, plus in self.parts)


class ChangingTop(GroupedChanges):
    """The same over a change log: all rows that stand are kept, as any of them gets among the first n when others go."""

    state_name = "changing_top"
    state_version = 2
    state_migrations: ClassVar = {1: lambda fields: {**fields, "_heaps": {}}}
    state_fields: tuple[str, ...] = ("_keys", "_runs", "_ordinal", "_newest", "_heaps")

    def __init__(self, recipe: ChangingTopRecipe, inputs: Schema) -> None:
        super().__init__(recipe.schema, inputs, recipe.change, recipe.partition)
        self._recipe = recipe
        self._order = [(self._places[one.position], one) for one in recipe.order]
        self._heaps: dict[int, Heap] = {}  # by group
        self._front = max(FRONT_ROWS, 4 * recipe.limit)  # rows before the boundary when it is drawn

    def _order_keys(self, rows: BufferedRows) -> list[Int64Array]:
        return order_keys([rows.columns[place] for place, _ in self._order], [one for _, one in self._order])

    def _sorted(self, rows: BufferedRows, *before: Int64Array) -> Int64Array:
        """Return the order of rows, by `before` first."""
        return np.lexsort((*reversed(self._order_keys(rows)), *before))

    def _behind(self, new: BufferedRows, plus: Mask, ids: Int64Array) -> Mask:
        """Put the changes that stand behind their group's boundary into its heap; return which these are."""
        behind = np.zeros(len(ids), dtype=np.bool_)
        at = np.flatnonzero(np.isin(ids, self._large())) if self._heaps else _NONE
        at = at[np.argsort(ids[at], kind="stable")]
        starts = run_starts(ids[at])
        for rows in np.split(at, starts[1:]) if len(at) else ():
            heap = self._heaps[int(ids[rows[0]])]
            first, *others = np.split(np.stack(self._order_keys(concat_rows(heap.boundary, new.take(rows)))), [1], axis=1)
            later, equal = np.zeros(len(rows), dtype=np.bool_), np.ones(len(rows), dtype=np.bool_)
            for limit, keys in zip(first, others[0], strict=True):
                later |= equal & (keys > limit)
                equal &= keys == limit
            behind[rows[later]] = True
            heap.add(new.take(rows[later]), plus[rows[later]])
        return behind

    def _large(self) -> Int64Array:
        """Return the groups that have a heap."""
        return np.fromiter(self._heaps, dtype=np.int64, count=len(self._heaps))

    def _settled(self, after: GroupRun, touched: Int64Array) -> GroupRun:
        """Fetch rows from the heap of a group that has too few before its boundary; draw one anew where there are too many."""
        starts = np.searchsorted(after.groups, touched, side="left")
        sizes = np.searchsorted(after.groups, touched, side="right") - starts
        few = (sizes < self._recipe.limit) & np.isin(touched, self._large())
        many = sizes > 2 * self._front
        if not (few | many).any():
            return after
        left = np.ones(len(after.groups), dtype=np.bool_)
        parts: list[BufferedRows] = []
        groups: list[Int64Array] = []
        for place in np.flatnonzero(few | many).tolist():
            group, start, stop = int(touched[place]), int(starts[place]), int(starts[place] + sizes[place])
            left[start:stop] = False
            heap = self._heaps.pop(group, None)
            rows = after.rows.slice(start, stop)
            if heap is not None and few[place]:
                rows, heap = concat_rows(rows, heap.standing()), None
            front = self._cut(group, rows, heap)
            parts.append(front)
            groups.append(np.full(len(front), group, dtype=np.int64))
        at = np.flatnonzero(left)
        whole, of = concat_rows(after.rows.take(at), *parts), np.concatenate((after.groups[at], *groups))
        by_group = np.argsort(of, kind="stable")
        return GroupRun(whole.take(by_group), of[by_group])

    def _cut(self, group: int, rows: BufferedRows, heap: Heap | None) -> BufferedRows:
        """Return the first rows of a group, and all that equal the last of them; the others go into a heap, with what is in `heap`."""
        if len(rows) <= 2 * self._front:
            if heap is not None:
                self._heaps[group] = heap
            return rows
        rows = rows.take(self._sorted(rows))
        last = self._front - 1
        equal = np.logical_and.reduce([key[self._front :] == key[last] for key in self._order_keys(rows)])
        first = self._front + int(np.count_nonzero(equal))
        made = Heap(rows.slice(last, self._front).copied())
        made.add(rows.slice(first, len(rows)), np.ones(len(rows) - first, dtype=np.bool_))
        if heap is not None:
            made.take_over(heap)
        if made.size:
            self._heaps[group] = made
        return rows.slice(0, first)

    def state_rows(self) -> int:
        """Return the rows kept."""
        return super().state_rows() + sum(heap.size for heap in self._heaps.values())

    def state_bytes(self) -> int:
        """Return their bytes."""
        return super().state_bytes() + sum(heap.nbytes() for heap in self._heaps.values())

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Apply the changes; give what that changes of the first n of their groups."""
        train = inputs[0]
        out.emit(self._changes(train) if train.rows else progress(train, self.schemas[0]))

    def _first(self, run: GroupRun) -> tuple[list[Column], Int64Array, Int64Array]:
        """Return the first n rows of each group, in order: columns and number, groups, numbers."""
        order = self._sorted(run.rows, run.groups)
        starts = run_starts(run.groups)  # which stand in order
        numbers = np.arange(1, len(order) + 1, dtype=np.int64) - np.repeat(starts, run_sizes(starts, len(order)))
        inside = numbers <= self._recipe.limit
        order, numbers = order[inside], numbers[inside]
        number = Column(BIGINT, numbers) if self._recipe.numbered else null_column(BIGINT, len(numbers))
        return [*run.rows.take(order).columns, number], run.groups[order], numbers

    def _changes(self, train: Train) -> Train:
        new, plus, ids = self._taken(train)
        behind = self._behind(new, plus, ids)
        if behind.any():
            at = np.flatnonzero(~behind)
            new, plus, ids = new.take(at), plus[at], ids[at]
            if not len(at):
                return progress(train, self.schemas[0])
        before, after = self._applied(new, plus, ids)
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
