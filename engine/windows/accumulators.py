"""What an aggregate keeps per pane and group, and how panes become a window's answer: the contract, and the counting ones.

DOUBLE sums are a strict sequential fold per pane, in order of rows: the accumulator goes first and each value is added to it, so the
bits do not depend on where trains were cut. Panes are then added in order of time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.data.column import Column, Mask
from millstream.engine.data.distinct_values import distinct
from millstream.engine.data.types import DataType
from millstream.engine.windows.batch import Batch
from millstream.engine.windows.grids import Grid, PaneTable, combined
from millstream.engine.windows.passes import Passed

Int64Array = npt.NDArray[np.int64]
NEVER = np.iinfo(np.int64).max
SHORT_SPAN = 1 << 16  # ordinals that differ by less are sorted as 16 bits, by radix

_NONE: Int64Array = np.empty(0, dtype=np.int64)

Request = tuple[int, Int64Array]  # how many of the panes, which groups
Fold = Callable[[Int64Array, npt.NDArray[Any]], object]
"""Folds values into cells."""


class Accumulator(ABC):
    """State of one aggregate over all panes. `type` is the type of the answer.

    One that reads what others keep, and has nothing to fold by itself, says so with `folds` False.
    """

    folds: bool = True

    def __init__(self, type_: DataType) -> None:
        self.type = type_

    @abstractmethod
    def update(self, batch: Batch) -> None:
        """Fold rows in."""

    @abstractmethod
    def combine(self, slots: Sequence[int], ids: Int64Array) -> Column:
        """Return the answer for groups `ids` over panes in order of time."""

    def fold_into(self, lo: int, hi: int) -> tuple[int, Fold] | None:
        """Return a column and what folds its values into cells lo to hi, to which `update` comes down where no row is left out.

        None where it never comes down to that. Good until the table grows.
        """
        return None

    def answers(self, slots: Sequence[int], requests: Sequence[Request]) -> list[Column]:
        """Return an answer a request in one pass; `slots` are panes from the newest to the oldest, a request takes the first of them."""
        return [self.combine(slots[:count][::-1], ids) for count, ids in requests]

    def clear(self, slot: int) -> None:
        """Reset what is kept outside of grids, when a pane closes."""

    def nbytes(self) -> int:
        """Return the bytes that are kept outside of grids."""
        return 0


class RowCounts:
    """Rows per pane and group, and the ordinal of the first: present in every table, as they say which groups a window has."""

    def __init__(self, table: PaneTable) -> None:
        self.counts: Grid = table.grid(np.int64, 0)
        self.first: Grid = table.grid(np.int64, NEVER)
        self._table = table
        self._filled: dict[int, int] = {}  # groups with rows per slot, counted only by batches of one pane

    def update(self, batch: Batch) -> Int64Array:
        """Count, and return the flat cells that had no row before."""
        counts, first = self.counts.flat[batch.lo : batch.hi], self.first.flat[batch.lo : batch.hi]
        slot = batch.lo // self._table.capacity if batch.hi - batch.lo == self._table.capacity else None
        if slot is not None and self.is_full(slot):
            counts += np.bincount(batch.cells, minlength=len(counts))  # every group has been here: the rule as a pane fills up
            return _NONE
        if batch.is_sparse:
            new = distinct(batch.cells[counts[batch.cells] == 0])
            np.add.at(counts, batch.cells, 1)
        else:
            added = batch.counts()
            new = ((counts == 0) & (added > 0)).nonzero()[0]
            counts += added
        if len(new):
            self._note_first(batch, first, new)
            if slot is not None:
                self._filled[slot] = self._filled.get(slot, 0) + len(new)
        return new + batch.lo

    def _note_first(self, batch: Batch, first: Int64Array, new: Int64Array) -> None:
        """Keep the ordinal of the first row of each new cell. Written from the last row to the first, so that the first one's stays."""
        if not batch.is_sparse and 2 * len(new) > len(first):
            np.minimum.at(first, batch.cells, np.arange(batch.ordinal, batch.ordinal + batch.rows, dtype=np.int64))
            return
        if batch.is_sparse:
            rows = np.flatnonzero(first[batch.cells] == NEVER)
        else:
            is_new = np.zeros(len(first), dtype=np.bool_)
            is_new[new] = True
            rows = np.flatnonzero(is_new.take(batch.cells))
        rows = rows[::-1]
        first[batch.cells[rows]] = rows + batch.ordinal

    def is_full(self, slot: int) -> bool:
        """Whether rows of every group are known to have come into a pane."""
        return self._filled.get(slot) == self._table.groups

    def clear(self, slot: int) -> None:
        """Forget a pane."""
        self._filled.pop(slot, None)

    def present(self, slots: Sequence[int]) -> Int64Array:
        """Return the groups that have rows in any of the panes, by the arrival of their first row there."""
        return _by_first(combined(self.first, slots, np.minimum)[: self._table.groups])

    def are_in(self, slot: int) -> Mask:
        """Return for each group whether it has rows in a pane."""
        found: Mask = self.first.array[slot, : self._table.groups] != NEVER
        return found

    def total(self, slots: Sequence[int], ids: Int64Array) -> Int64Array:
        """Return rows per group over panes."""
        return sum_panes(self.counts, slots, ids)

    def present_upto(self, slots: Sequence[int], counts: Sequence[int]) -> list[Int64Array]:
        """Return for each prefix of the panes what `present` says."""
        firsts = Passed(self.first, slots, counts, np.minimum)
        found: dict[int, Int64Array] = {}
        for count in set(counts):
            found[count] = _by_first(firsts.upto(count)[: self._table.groups])
        return [found[count] for count in counts]


def _by_first(first: Int64Array) -> Int64Array:
    """Return the groups that have a first row, by its ordinal; no two groups have the same one."""
    if not len(first):
        return _NONE
    greatest = first.item(first.argmax())
    ids: Int64Array | None = None  # all of them
    if greatest == NEVER:
        ids = (first != NEVER).nonzero()[0]
        if len(ids) < 2:
            return ids
        first = first[ids]
        greatest = first.item(first.argmax())
    least = first.item(first.argmin())
    short = greatest - least < SHORT_SPAN
    order: Int64Array = (first - least).astype(np.uint16).argsort(kind="stable") if short else first.argsort()
    return order if ids is None else ids[order]


def sum_panes(grid: Grid, slots: Sequence[int], ids: Int64Array) -> Int64Array:
    """Return integer sums over panes; order does not matter."""
    answer: Int64Array = combined(grid, slots, np.add)[ids]
    return answer


class ValueCounts:
    """Rows that count for one (argument, FILTER): kept only once some row did not, until then the row counts serve."""

    def __init__(self, table: PaneTable, rows: RowCounts, position: int | None, filter_: int | None) -> None:
        self._table, self._rows = table, rows
        self._position, self._filter = position, filter_
        self._grid: Grid | None = None

    @property
    def are_always_row_counts(self) -> bool:
        """No row can ever be left out."""
        return self._position is None and self._filter is None

    @property
    def column(self) -> int | None:
        """The column whose NULLs alone decide which rows count; None where a FILTER does, too, or nothing."""
        return self._position if self._filter is None else None

    def leaves_none_out(self, column: Column) -> bool:
        """Whether the row counts serve, also once the rows of this column have come."""
        return self._grid is None and column.valid is None

    @property
    def are_row_counts(self) -> bool:
        """No row has been left out yet."""
        return self._grid is None

    def update(self, batch: Batch) -> None:
        """Count; called after the row counts have taken the batch in."""
        mask = batch.chosen(self._position, self._filter)
        if self._grid is None:
            if mask is None or mask.all():
                return
            self._grid = self._table.grid(np.int64, 0)
            self._grid.array[:] = self._rows.counts.array
            np.subtract.at(self._grid.flat[batch.lo : batch.hi], batch.cells[~mask], 1)
            return
        counts = self._grid.flat[batch.lo : batch.hi]
        cells = batch.cells if mask is None else batch.cells[mask]
        if batch.is_sparse:
            np.add.at(counts, cells, 1)
        else:
            counts += np.bincount(cells, minlength=len(counts))

    def total(self, slots: Sequence[int], ids: Int64Array) -> Int64Array:
        """Return rows that count per group over panes."""
        return self._rows.total(slots, ids) if self._grid is None else sum_panes(self._grid, slots, ids)

    def totals(self, slots: Sequence[int], requests: Sequence[Request]) -> list[Int64Array]:
        """Return the totals of each request, see `Accumulator.answers`."""
        grid = self._rows.counts if self._grid is None else self._grid
        passed = Passed(grid, slots, [count for count, _ in requests], np.add)
        return [passed.upto(count)[ids] for count, ids in requests]


class Count(Accumulator):
    """COUNT(*) and COUNT(x), with or without FILTER. The counting itself is done by the shared `ValueCounts`."""

    folds = False

    def __init__(self, type_: DataType, counts: ValueCounts) -> None:
        super().__init__(type_)
        self._counts = counts

    def update(self, batch: Batch) -> None:
        """Nothing of its own."""

    def combine(self, slots: Sequence[int], ids: Int64Array) -> Column:
        """Return the counts, never NULL."""
        return Column(self.type, self._counts.total(slots, ids))

    def answers(self, slots: Sequence[int], requests: Sequence[Request]) -> list[Column]:
        """Return the counts in one pass."""
        return [Column(self.type, totals) for totals in self._counts.totals(slots, requests)]
