"""The states of aggregates over panes: for each a grid, into which the rows of a batch are folded.

The rows of every pane and group are counted anyway, as that says which groups a window has; the rows that count for an argument are
counted by themselves only once some row did not.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.aggregates.contract import Fold, FoldedRows, RowPlaces
from millstream.engine.aggregates.sums import COUNTS, HALF_BITS, UPPER_HALVES, WRAPPED_SUMS
from millstream.engine.data.arrays import distinct
from millstream.engine.data.column import Column, Mask, counted_rows
from millstream.engine.data.train import Numbers, Train
from millstream.engine.state.forms import state_record
from millstream.engine.windows.grids import Grid, PaneTable, Passed, combined
from millstream.engine.windows.sliding_cells import StatePart

Int64Array = npt.NDArray[np.int64]

NEVER = np.iinfo(np.int64).max
SHORT_SPAN = 1 << 16  # ordinals that differ by less are sorted as 16 bits, by radix
ORDERED_PANES = 2  # the newest ones, whose groups are kept in the order of their first rows
SPARSE_FACTOR = 4  # with more cells in range than this many times the rows, touching only the rows' cells is cheaper
INT64_SAFE = 2**62

_NONE: Int64Array = np.empty(0, dtype=np.int64)

Request = tuple[int, Int64Array]  # how many of the panes, which groups


class Batch:
    """The rows of one update: start … stop of a train. `cells` are positions relative to the flat range [lo, hi) of every grid.

    `ordinal` counts rows of the operator's input: the first row of the batch has it, the next one more.
    """

    __slots__ = ("_chosen", "_columns", "_counts", "_places", "_rows", "cells", "hi", "lo", "ordinal", "start", "stop", "train")

    def __init__(self, train: Train, start: int, stop: int, cells: Int64Array, lo: int, hi: int, ordinal: int) -> None:
        self.train = train
        self.start, self.stop = start, stop
        self.cells = cells
        self.lo, self.hi = lo, hi
        self.ordinal = ordinal
        self._counts: Int64Array | None = None
        self._columns: dict[int, Column] = {}
        self._chosen: dict[tuple[int | None, int | None], Mask | None] = {}
        self._rows: dict[tuple[int | None, int | None, bool], FoldedRows] = {}
        # Not a method of the batch, which would keep itself, and its train, until the collector of cycles comes.
        self._places = RowPlaces(cells, partial(_order_of, train.time, start, stop, ordinal))

    @property
    def rows(self) -> int:
        """Rows of the batch."""
        return len(self.cells)

    @property
    def is_sparse(self) -> bool:
        """The range holds many more cells than there are rows."""
        return self.hi - self.lo > SPARSE_FACTOR * len(self.cells)

    def counts(self) -> Int64Array:
        """Return rows per cell of the range; only when the batch is not sparse."""
        if self._counts is None:
            self._counts = np.bincount(self.cells, minlength=self.hi - self.lo)
        return self._counts

    def column(self, position: int) -> Column:
        """Return an argument column of the batch's rows."""
        column = self._columns.get(position)
        if column is None:
            column = self.train.column(position)
            if self.stop - self.start < self.train.rows:
                column = column.slice(self.start, self.stop)
            self._columns[position] = column
        return column

    def chosen(self, position: int | None, filter_: int | None) -> Mask | None:
        """Return which rows count: argument not NULL and FILTER true. None when all do."""
        key = (position, filter_)
        if key in self._chosen:
            return self._chosen[key]
        columns = [None if p is None else self.column(p) for p in key]
        mask = self._chosen[key] = counted_rows(*columns)
        return mask

    def rows_of(self, position: int | None, filter_: int | None, *, takes_nulls: bool = False) -> FoldedRows:
        """Return the rows that count, made once for all that fold them."""
        key = (position, filter_, takes_nulls)
        found = self._rows.get(key)
        if found is None:
            mask = self.chosen(None if takes_nulls else position, filter_)
            column = None if position is None else self.column(position)
            if mask is None or mask.all():
                found = FoldedRows(self._places, column)
            else:
                kept = None if column is None else column.filter(mask)
                found = FoldedRows(RowPlaces(self.cells[mask], partial(_order_among, self._places, mask)), kept)
            self._rows[key] = found
        return found

    def by_slot(self, cells: Int64Array, capacity: int) -> list[tuple[int, Int64Array | None, Int64Array]]:
        """Return the panes of some cells: the slot, the places of its rows (None for all), their groups."""
        if not len(cells):
            return []
        slots, groups = np.divmod(cells + self.lo, capacity)
        first = int(slots[0])
        if (slots == first).all():
            return [(first, None, groups)]
        places = [(slot, np.flatnonzero(slots == slot)) for slot in distinct(slots).tolist()]
        return [(slot, at, groups[at]) for slot, at in places]


def _order_of(times: Numbers, start: int, stop: int, ordinal: int) -> tuple[Int64Array, Int64Array]:
    """Return the event times and the ordinals of the rows start … stop."""
    return times.array()[start:stop], np.arange(ordinal, ordinal + stop - start, dtype=np.int64)


def _order_among(places: RowPlaces, mask: Mask) -> tuple[Int64Array, Int64Array]:
    times, ordinals = places.order()
    return times[mask], ordinals[mask]


@state_record("row_counts", 1, ("counts", "first", "_table", "_filled"))
class RowCounts:
    """Rows per pane and group, and the ordinal of the first: present in every table, as they say which groups a window has."""

    def __init__(self, table: PaneTable) -> None:
        self.counts: Grid = table.grid(np.int64, 0)
        self.first: Grid = table.grid(np.int64, NEVER)
        self._table = table
        self._filled: dict[int, int] = {}  # groups with rows per slot, counted only by batches of one pane
        self._arrived: dict[int, Int64Array] = {}  # these groups by their first rows and then room, of the panes that came last

    @classmethod
    def from_state(cls, fields: dict[str, Any]) -> RowCounts:
        """Return the counts. In which order groups came is seen by their first rows."""
        made = cls.__new__(cls)
        vars(made).update(fields, _arrived={})
        return made

    def update(self, batch: Batch) -> Int64Array:
        """Count, and return the flat cells that had no row before."""
        counts, first = self.counts.flat[batch.lo : batch.hi], self.first.flat[batch.lo : batch.hi]
        slot = batch.lo // self._table.capacity if batch.hi - batch.lo == self._table.capacity else None
        if slot is not None and self.is_full(slot):
            counts += np.bincount(batch.cells, minlength=len(counts))  # every group has been here: the rule as a pane fills up
            return _NONE
        if batch.is_sparse:
            new = self._first_of_few(batch, first)
            np.add.at(counts, batch.cells, 1)
        else:
            added = batch.counts()
            new = ((counts == 0) & (added > 0)).nonzero()[0]
            counts += added
            if len(new):
                self._note_first(batch, first, new)
        if slot is not None and len(new):
            self._note_arrived(slot, new if batch.is_sparse else _by_first(first, new))
        return new + batch.lo

    @staticmethod
    def _first_of_few(batch: Batch, first: Int64Array) -> Int64Array:
        """Keep the ordinal of the first row of each cell that is new, where rows are few; return these cells by it."""
        rows = (first.take(batch.cells) == NEVER).nonzero()[0]
        cells = batch.cells[rows]
        ordinals = rows + batch.ordinal
        first[cells[::-1]] = ordinals[::-1]  # of several values for one element, NumPy lets the last one stand
        new: Int64Array = cells[first.take(cells) == ordinals]
        return new

    @staticmethod
    def _note_first(batch: Batch, first: Int64Array, new: Int64Array) -> None:
        """Keep the ordinal of the first row of each new cell. Written from the last row to the first, so that the first one's stays."""
        if 2 * len(new) > len(first):
            np.minimum.at(first, batch.cells, np.arange(batch.ordinal, batch.ordinal + batch.rows, dtype=np.int64))
            return
        is_new = np.zeros(len(first), dtype=np.bool_)
        is_new[new] = True
        rows = np.flatnonzero(is_new.take(batch.cells))[::-1]
        first[batch.cells[rows]] = rows + batch.ordinal

    def _note_arrived(self, slot: int, new: Int64Array) -> None:
        """Count groups that came into a pane, and keep their order."""
        filled = self._filled.get(slot, 0)
        self._filled[slot] = beyond = filled + len(new)
        if not filled:
            while len(self._arrived) >= ORDERED_PANES:
                del self._arrived[next(iter(self._arrived))]
            self._arrived[slot] = new.copy()
            return
        arrived = self._arrived.get(slot)
        if arrived is None:
            return
        if beyond > len(arrived):
            self._arrived[slot] = arrived = np.concatenate((arrived, np.empty(max(len(new), len(arrived)), dtype=np.int64)))
        arrived[filled:beyond] = new

    def is_full(self, slot: int) -> bool:
        """Whether rows of every group are known to have come into a pane."""
        return self._filled.get(slot) == self._table.groups

    def clear(self, slot: int) -> None:
        """Forget a pane."""
        self._filled.pop(slot, None)
        self._arrived.pop(slot, None)

    def nbytes(self) -> int:
        """Return the bytes of what is kept outside of grids."""
        return sum([int(arrived.nbytes) for arrived in self._arrived.values()])

    def present(self, slots: Sequence[int]) -> Int64Array:
        """Return the groups that have rows in any of the panes, by the arrival of their first row there."""
        if len(slots) == 1:
            return self._present_in(slots[0])
        return _by_first(combined(self.first, slots, np.minimum)[: self._table.groups])

    def _present_in(self, slot: int) -> Int64Array:
        """Return the same for one pane, in which groups mostly are known in this order already."""
        arrived, filled = self._arrived.get(slot), self._filled.get(slot, 0)
        if arrived is not None and filled == np.count_nonzero(self.are_in(slot)):
            return arrived[:filled]
        return _by_first(self.first.array[slot, : self._table.groups])

    def are_in(self, slot: int) -> Mask:
        """Return for each group whether it has rows in a pane."""
        found: Mask = self.first.array[slot, : self._table.groups] != NEVER
        return found

    def combine(self, slots: Sequence[int], ids: Int64Array) -> Int64Array:
        """Return rows per group over panes."""
        counts: Int64Array = combined(self.counts, slots, np.add)[ids]
        return counts

    def present_upto(self, slots: Sequence[int], counts: Sequence[int]) -> list[Int64Array]:
        """Return for each prefix of the panes what `present` says."""
        different = set(counts)
        found = {1: self._present_in(slots[0])} if 1 in different else {}
        if longer := different - {1}:
            firsts = Passed(self.first, slots, sorted(longer), np.minimum)
            for count in longer:
                found[count] = _by_first(firsts.upto(count)[: self._table.groups])
        return [found[count] for count in counts]


def _by_first(first: Int64Array, ids: Int64Array | None = None) -> Int64Array:
    """Return some groups, or those that have a first row, by its ordinal; no two groups have the same one."""
    if ids is not None:
        first = first[ids]
    if not len(first):
        return _NONE
    greatest = first.item(first.argmax())
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


@state_record("pane_states", 1, ("_part", "_grid"))
class PaneStates:
    """The states of one part over all panes."""

    def __init__(self, part: StatePart, table: PaneTable) -> None:
        self._part = part
        self._grid = table.grid(part.kind.dtype, part.kind.neutral)

    @property
    def grids(self) -> list[Grid]:
        """What of the table it holds."""
        return [self._grid]

    @property
    def array(self) -> npt.NDArray[Any]:
        """A state a slot and group."""
        return self._grid.array

    def update(self, batch: Batch) -> None:
        """Fold the rows that count in."""
        part = self._part
        part.kind.fold(self._grid.flat[batch.lo : batch.hi], batch.rows_of(part.position, part.filter, takes_nulls=part.takes_nulls))

    @property
    def column(self) -> int | None:
        """The column of whose values alone `update` makes states where no row is left out; None where it never comes down to that."""
        part = self._part
        is_plain = part.filter is None and not part.takes_nulls and part.kind.folder(self._grid.flat[:0]) is not None
        return part.position if is_plain else None

    def folder(self, lo: int, hi: int) -> Fold:
        """Return what folds values of `column` into cells lo to hi. Good until the table grows."""
        fold = self._part.kind.folder(self._grid.flat[lo:hi])
        assert fold is not None
        return fold

    def combine(self, slots: Sequence[int], ids: Int64Array) -> Any:
        """Return the states of groups over panes in order of time."""
        operation = self._part.kind.ufunc
        if operation is not None:
            return combined(self._grid, slots, operation)[ids]
        states = self._grid.array[slots[0]].take(ids)
        for slot in slots[1:]:
            states = self._part.kind.merge(states, self._grid.array[slot].take(ids))
        return states

    def passed(self, slots: Sequence[int], requests: Sequence[Request]) -> list[Any]:
        """Return the states of each request in one pass, see `Accumulator.answers`."""
        operation = self._part.kind.ufunc
        if operation is None:
            return [self.combine(slots[:count][::-1], ids) for count, ids in requests]
        passed = Passed(self._grid, slots, [count for count, _ in requests], operation)
        return [passed.upto(count)[ids] for count, ids in requests]


@state_record("value_counts", 1, ("_part", "_table", "_rows", "_grid"))
class ValueCounts(PaneStates):
    """Rows that count for one (argument, FILTER): kept only once some row did not, until then the row counts serve."""

    def __init__(self, part: StatePart, table: PaneTable, rows: RowCounts) -> None:
        self._part, self._table, self._rows = part, table, rows
        self._grid = rows.counts

    @property
    def grids(self) -> list[Grid]:
        """What of the table it holds alone."""
        return [] if self.are_row_counts else [self._grid]

    @property
    def are_always_row_counts(self) -> bool:
        """No row can ever be left out."""
        return self._part.position is None and self._part.filter is None

    @property
    def column(self) -> int | None:
        """The column whose NULLs alone decide which rows count; None where a FILTER does, too, or nothing."""
        return self._part.position if self._part.filter is None else None

    def leaves_none_out(self, column: Column) -> bool:
        """Whether the row counts serve, also once the rows of this column have come."""
        return column.valid is None and self.are_row_counts

    @property
    def are_row_counts(self) -> bool:
        """No row has been left out yet."""
        return self._grid is self._rows.counts

    def update(self, batch: Batch) -> None:
        """Count; called after the row counts have taken the batch in."""
        mask = batch.chosen(self._part.position, self._part.filter)
        if self.are_row_counts:
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


@state_record("upper_halves", 1, ("_part", "_table", "_wrapped", "_halves", "_bound"))
class UpperHalves(PaneStates):
    """Sums of the upper halves of integers, kept only once the whole sums beside them might leave int64."""

    def __init__(self, part: StatePart, table: PaneTable, wrapped: PaneStates) -> None:
        self._part, self._table, self._wrapped = part, table, wrapped
        self._halves: Grid | None = None
        self._bound = 0

    @classmethod
    def from_state(cls, fields: dict[str, Any]) -> UpperHalves:
        """Return the sums, if there are any yet."""
        made = cls(fields["_part"], fields["_table"], fields["_wrapped"])
        made._bound = fields["_bound"]
        if fields["_halves"] is not None:
            made._halves = made._grid = fields["_halves"]
        return made

    @property
    def grids(self) -> list[Grid]:
        """What of the table it holds."""
        return [] if self._halves is None else [self._halves]

    def update(self, batch: Batch) -> None:
        """Fold the rows that count in; called before the whole sums take them in."""
        rows = batch.rows_of(self._part.position, self._part.filter)
        self._fold(batch.lo, batch.hi, rows.cells, rows.argument.values)

    @property
    def column(self) -> int | None:
        """As the base."""
        return self._part.position if self._part.filter is None else None

    def folder(self, lo: int, hi: int) -> Fold:
        """As the base."""
        return partial(self._fold, lo, hi)

    def _fold(self, lo: int, hi: int, cells: Int64Array, values: npt.NDArray[Any]) -> None:
        if self._halves is None:
            if not len(values):
                return
            added = len(values) * max(abs(int(values.max())), abs(int(values.min())))
            self._bound += added
            if self._bound < INT64_SAFE or self._bound_again(added):
                return
            self._halves = self._grid = self._table.grid(np.int64, 0)
            self._halves.array[:] = self._wrapped.array >> HALF_BITS
        np.add.at(self._halves.flat[lo:hi], cells, values >> HALF_BITS)

    def _bound_again(self, added: int) -> bool:
        """The running bound counts closed panes too; look at what is really there before giving up the fast way."""
        greatest = int(np.abs(self._wrapped.array).max()) * self._table.slot_count
        self._bound = greatest + added
        return self._bound < INT64_SAFE

    def combine(self, slots: Sequence[int], ids: Int64Array) -> Any:
        """As the base; None as long as nothing is kept."""
        return None if self._halves is None else super().combine(slots, ids)

    def passed(self, slots: Sequence[int], requests: Sequence[Request]) -> list[Any]:
        """As the base; None as long as nothing is kept."""
        return [None] * len(requests) if self._halves is None else super().passed(slots, requests)


def pane_states(part: StatePart, table: PaneTable, rows: RowCounts, known: dict[StatePart, PaneStates]) -> PaneStates:
    """Return the states of a part: those known, or else new ones."""
    if part not in known:
        if part.kind == COUNTS:
            known[part] = ValueCounts(part, table, rows)
        elif part.kind == UPPER_HALVES:
            wrapped = pane_states(StatePart(WRAPPED_SUMS, part.position, part.filter), table, rows, known)
            known[part] = UpperHalves(part, table, wrapped)
        else:
            known[part] = PaneStates(part, table)
    return known[part]
