"""ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) <= n without a window: the first n rows of each group so far, as a change log (K24).

A row that the first n of its group hold back is forgotten at once: rows only come, so it can never be among them. What is kept lies in
runs (group_runs.py).
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
from millstream.engine.language.recipes import RunningTopRecipe
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.group_runs import GroupRun, all_of, replaced
from millstream.engine.operators.ordered_rows import order_keys
from millstream.engine.operators.outputs import change_column, made_train, progress

Mask = npt.NDArray[np.bool_]


class RunningTop(Operator):
    """The rows of the input, the number of each in its group (NULL where nobody reads it), and the kind of the change."""

    state_name = "running_top"
    state_fields: tuple[str, ...] = ("_keys", "_runs", "_ordinal")

    def __init__(self, recipe: RunningTopRecipe, inputs: Schema) -> None:
        super().__init__([recipe.schema])
        self._recipe = recipe
        self._inputs = inputs
        self._keys = key_encoder([inputs.fields[p].type for p in recipe.partition])
        self._runs: list[GroupRun] = []
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

    def state_rows(self) -> int:
        """Return the rows kept."""
        return sum(run.size for run in self._runs)

    def state_bytes(self) -> int:
        """Return their bytes."""
        return self._keys.nbytes() + sum(run.nbytes() for run in self._runs)
