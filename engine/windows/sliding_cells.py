"""The cells of sliding windows: per group, in order of a clock (event time, or the rank of a row), and the answer of any window
(c − width, c] over them.

`FoldedCells` keeps the folded rows of a group at one clock as a cell. Clocks are cut into blocks as long as the window, so a window is
the end of one block and the beginning of the next: the fold from a cell to its block's end (made once the block is over) and the fold
from a block's beginning to a cell (made as cells come) answer it with one operation. That is the method of van Herk and of Gil and Werman
(1992, 1993) for running minima; no value is ever taken away again. Blocks depend on clocks alone, so the last bit of a DOUBLE sum does
not depend on trains (K15).

`ValueCells` keeps every value, for aggregates that need them all.

A cell is folded row after row; a window over several cells is their states merged in order of time. Equal states of several calls are
kept once. (Panes × groups are cells too, in grids: `pane_states.py`.)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.aggregates.contract import FoldedRows, Folding, RowPlaces, StateKind, null_unless
from millstream.engine.aggregates.sums import COUNTS
from millstream.engine.aggregates.table import aggregate_of, foldable
from millstream.engine.data import limits
from millstream.engine.data.allowance import cut_rows
from millstream.engine.data.arrays import run_sizes
from millstream.engine.data.buffered import BufferedRows
from millstream.engine.data.column import Column, counted_rows
from millstream.engine.data.errors import Unsupported
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Train
from millstream.engine.data.types import NULL, DataType
from millstream.engine.language.recipes import AggregateCall
from millstream.engine.state.forms import state_record
from millstream.engine.windows.ranges import Ranges, aggregate_ranges, reduce_ranges
from millstream.engine.windows.vectors import StoredColumns, Vectors

Int64Array = npt.NDArray[np.int64]
Array = npt.NDArray[Any]


@state_record("state_part", 1)
@dataclass(frozen=True, slots=True)
class StatePart:
    """What of its input an operator keeps a state of: the kind, the argument's column (None for COUNT(*)), the mask column of a FILTER."""

    kind: StateKind
    position: int | None
    filter: int | None
    takes_nulls: bool = False


def state_parts(call: AggregateCall, inputs: Schema) -> tuple[StatePart, ...]:
    """Return the states of a call that is kept as such, in the order in which its aggregate wants them."""
    aggregate = aggregate_of(call.function)
    position = call.arguments[0] if call.arguments else None
    if position is None and call.function != "count":
        raise Unsupported(f"{call.function.upper()} needs an argument")
    assert aggregate.states is not None
    kinds = aggregate.states(argument_type(call, inputs))
    return tuple(StatePart(kind, position, call.filter, aggregate.takes_nulls) for kind in kinds)


def argument_type(call: AggregateCall, inputs: Schema) -> DataType:
    """Return the type of a call's argument, NULL's where it has none."""
    return inputs.fields[call.arguments[0]].type if call.arguments else NULL


def counts_part(call: AggregateCall) -> StatePart | None:
    """Return what counts the rows without which a call's answer is NULL; None where its own states tell."""
    if not aggregate_of(call.function).counted:
        return None
    return StatePart(COUNTS, call.arguments[0] if call.arguments else None, call.filter)


@state_record("cell_states", 1, ("parts", "_inputs", "_calls", "_places"))
class CellStates:
    """What is kept of each cell: `parts` says of what, an array of states for each."""

    def __init__(self, calls: Sequence[AggregateCall], inputs: Schema) -> None:
        self.parts: list[StatePart] = []
        self._inputs = inputs
        self._calls = tuple(calls)
        self._places = [[self._place(part) for part in (*state_parts(call, inputs), *_counting(call))] for call in calls]

    def _place(self, part: StatePart) -> int:
        if part not in self.parts:
            self.parts.append(part)
        return self.parts.index(part)

    def lifted(self, rows: BufferedRows, cells: Int64Array, count: int) -> list[Array]:
        """Return the states of `count` cells of rows; `cells` is the cell of each row, rising."""
        return self._folded(rows, cells, [part.kind.fresh(count) for part in self.parts])

    def continued(
        self, rows: BufferedRows, at: Int64Array, cells: Int64Array, count: int, carried: Int64Array, before: Sequence[Array]
    ) -> list[Array]:
        """As `lifted` of the rows at some places, where the cells `carried` had the states `before`, onto which their rows are folded."""
        states = [part.kind.fresh(count) for part in self.parts]
        for state, old in zip(states, before, strict=True):
            state[carried] = old
        return self._folded(rows, cells, states, at)

    def _folded(self, rows: BufferedRows, cells: Int64Array, states: list[Array], at: Int64Array | None = None) -> list[Array]:
        chosen = _ChosenRows(rows, cells, at)
        for part, state in zip(self.parts, states, strict=True):
            part.kind.fold(state, chosen.of(part.position, part.filter, takes_nulls=part.takes_nulls))
        return states

    def answer(self, states: Sequence[Array]) -> list[Column]:
        """Return the columns of the calls."""
        return [self._answer(call, [states[i] for i in places]) for call, places in zip(self._calls, self._places, strict=True)]

    def _answer(self, call: AggregateCall, states: list[Array]) -> Column:
        aggregate = aggregate_of(call.function)
        assert aggregate.answer is not None
        counts = states.pop() if aggregate.counted else None
        column = aggregate.answer(call, argument_type(call, self._inputs), states)
        return column if counts is None else null_unless(column, counts > 0)


def _counting(call: AggregateCall) -> tuple[StatePart, ...]:
    part = counts_part(call)
    return () if part is None else (part,)


class _ChosenRows:
    """Rows, or those at some places of them in turn, for each argument those that count: argument not NULL and FILTER true."""

    def __init__(self, rows: BufferedRows, cells: Int64Array, at: Int64Array | None) -> None:
        self._rows, self._at = rows, at
        # Not a method of its own, which would keep the rows until the collector of cycles comes.
        self._all = RowPlaces(cells, partial(_order_of, rows, at))
        self._found: dict[tuple[int | None, int | None, bool], FoldedRows] = {}

    def of(self, position: int | None, filter_: int | None, *, takes_nulls: bool) -> FoldedRows:
        """Return those of an argument, made once for all that fold them."""
        key = (position, filter_, takes_nulls)
        if key not in self._found:
            self._found[key] = self._chosen(*key)
        return self._found[key]

    def _chosen(self, position: int | None, filter_: int | None, takes_nulls: bool) -> FoldedRows:
        column = None if position is None else self._rows.columns[position]
        mask = counted_rows(None if takes_nulls else column, None if filter_ is None else self._rows.columns[filter_])
        if mask is not None and self._at is not None:
            mask = mask[self._at]
        if mask is None or mask.all():
            return FoldedRows(self._all, column, self._at)
        at = np.flatnonzero(mask) if self._at is None else self._at[mask]
        return FoldedRows(RowPlaces(self._all.cells[mask], partial(_order_of, self._rows, at)), column, at)


def _order_of(rows: BufferedRows, at: Int64Array | None) -> tuple[Int64Array, Int64Array]:
    return (rows.time, rows.ordinal) if at is None else (rows.time[at], rows.ordinal[at])


CLOCK, TIME, ORDINAL = 0, 1, 2
_FIRST = Folding("minimum", "i8", np.iinfo(np.int64).max)  # the least ordinal: who came first (K20)


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Windows that hold rows (`full` of those asked for): aggregates, ordinal of the first row to arrive, time of the first row."""

    full: npt.NDArray[np.bool_]
    columns: list[Column]
    first: Int64Array
    start_time: Int64Array


class SlidingCells(ABC):
    """What both kinds have in common: vectors of a clock, a time and an ordinal, and more."""

    def __init__(self, width: int, dtypes: Sequence[Any]) -> None:
        self.width = width
        self.vectors = Vectors([np.int64, np.int64, np.int64, *dtypes])

    def __len__(self) -> int:
        """Return the cells kept."""
        return self.vectors.live

    def reserve_groups(self, count: int) -> None:
        """Make group ids below `count` known."""
        self.vectors.reserve_ids(count)

    def values_per_answer(self) -> int | None:
        """Return how many values the largest window goes through; None where every answer costs the same."""
        return None

    @abstractmethod
    def add(self, rows: BufferedRows, groups: Int64Array, clocks: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Add rows, sorted by (group, clock); return the (groups, clocks) of the elements that they made."""

    @abstractmethod
    def evaluate(self, groups: Int64Array, clocks: Int64Array) -> Evaluated:
        """Answer for the windows (c − width, c] of some groups; every row up to c must have been added."""

    def drop_front(self, groups: Int64Array) -> Int64Array:
        """Let the first cell of a group go for each time it is named; return the groups that have none left."""
        which, counts = np.unique(groups, return_counts=True)
        self.vectors.drop_front(which, counts)
        empty: Int64Array = which[self.vectors.size[which] == 0]
        return empty

    def _found(self, groups: Int64Array, clocks: Int64Array) -> tuple[Int64Array, Int64Array, npt.NDArray[np.bool_]]:
        """Return each window's first cell and the one after its last, of those that hold any; and which those are."""
        low = self.vectors.above(groups, clocks - self.width)
        beyond = self.vectors.above(groups, clocks)
        full = beyond > low
        return (low, beyond, full) if full.all() else (low[full], beyond[full], full)


@state_record("folded_cells", 1, ("width", "vectors", "_states", "_open"))
class FoldedCells(SlidingCells):
    """Cells of states that merge: a window is put together of the cells in it."""

    def __init__(self, width: int, calls: Sequence[AggregateCall], inputs: Schema) -> None:
        self._states = CellStates(calls, inputs)
        self._kinds: list[StateKind] = [_FIRST, *(part.kind for part in self._states.parts)]
        # Of each kind the cell's own state (later: to the block's end), and the one from the block's beginning on.
        super().__init__(width, [kind.dtype for kind in self._kinds for _ in range(2)])
        self._open: Int64Array = np.zeros(1, dtype=np.int64)  # cells at each vector's end whose block is not over

    @classmethod
    def from_state(cls, fields: dict[str, Any]) -> FoldedCells:
        """Return the cells, with the kinds that their states name."""
        made = cls.__new__(cls)
        vars(made).update(fields)
        made._kinds = [_FIRST, *(part.kind for part in made._states.parts)]
        return made

    def add(self, rows: BufferedRows, groups: Int64Array, clocks: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Fold the rows of each group and clock, and each block from its beginning."""
        new = np.empty(len(groups), dtype=np.bool_)
        if len(new):
            new[0] = True
        new[1:] = (groups[1:] != groups[:-1]) | (clocks[1:] != clocks[:-1])
        begins = np.flatnonzero(new)
        cells = np.cumsum(new) - 1
        groups, clocks = groups[begins], clocks[begins]
        first = rows.ordinal[begins]  # rows of a cell stand in order of arrival
        states = [first, *self._states.lifted(rows, cells, len(begins))]
        prefixes = self._prefixes(groups, clocks, states)
        pairs = [a for pair in zip(states, prefixes, strict=True) for a in pair]
        self.vectors.append(groups, [clocks, rows.time[begins], first, *pairs])
        np.add.at(self._open, groups, 1)
        return groups, clocks

    def _prefixes(self, groups: Int64Array, clocks: Int64Array, states: Sequence[Array]) -> list[Array]:
        blocks = clocks // self.width
        starts = _stretches(groups, blocks)
        sizes = run_sizes(starts, len(groups))
        which = groups[starts]
        last = self.vectors.start[which] + self.vectors.size[which] - 1
        last_block = self.vectors.columns[CLOCK][np.maximum(last, 0)] // self.width
        goes_on = (self.vectors.size[which] > 0) & (last_block == blocks[starts])
        at, carried = starts[goes_on], last[goes_on]
        prefixes: list[Array] = []
        for place, (kind, state) in enumerate(zip(self._kinds, states, strict=True)):
            prefix = state.copy()
            if len(at):
                prefix[at] = kind.merge(self.vectors.columns[_prefix(place)][carried], prefix[at])
            kind.scan(prefix, starts, sizes)
            prefixes.append(prefix)
        return prefixes

    def _finish_blocks(self, groups: Int64Array, clocks: Int64Array) -> None:
        """Fold backwards the blocks that end before the block of the greatest clock asked for in each group."""
        vectors, column = self.vectors, self.vectors.columns[CLOCK]
        blocks = clocks // self.width
        oldest, opened = self._oldest_open(groups)
        due = (opened > 0) & (oldest < blocks)
        if not due.any():
            return
        which, place = np.unique(groups[due], return_inverse=True)
        wanted = np.full(len(which), np.iinfo(np.int64).min, dtype=np.int64)
        np.maximum.at(wanted, place, blocks[due])
        opened = self._oldest_open(which)[1]
        counts = np.repeat(np.arange(len(which)), opened)
        begin = vectors.start[which] + vectors.size[which] - opened
        positions = np.arange(len(counts), dtype=np.int64) - np.repeat(np.cumsum(opened) - opened - begin, opened)
        blocks = column[positions] // self.width
        over = blocks < wanted[counts]
        positions, blocks, owner = positions[over][::-1], blocks[over][::-1], counts[over][::-1]
        starts = _stretches(owner, blocks)
        sizes = run_sizes(starts, len(positions))
        for number, kind in enumerate(self._kinds):
            suffix = vectors.columns[_suffix(number)][positions]
            kind.scan(suffix, starts, sizes)
            vectors.columns[_suffix(number)][positions] = suffix
        self._open[which] = opened - np.bincount(owner, minlength=len(which))

    def _oldest_open(self, groups: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the block of each group's first cell whose block is not over, and the number of such cells."""
        ends = self.vectors.start[groups] + self.vectors.size[groups]
        opened = np.minimum(self._open[groups], self.vectors.size[groups])
        return self.vectors.columns[CLOCK][np.minimum(ends - opened, len(self.vectors.columns[CLOCK]) - 1)] // self.width, opened

    def evaluate(self, groups: Int64Array, clocks: Int64Array) -> Evaluated:
        """Put the end of one block and the beginning of the next together."""
        self._finish_blocks(groups, clocks)
        low, beyond, full = self._found(groups, clocks)
        clocks = clocks[full]
        high = beyond - 1
        column = self.vectors.columns[CLOCK]
        border = clocks // self.width * self.width
        has_end, has_beginning = column[low] < border, column[high] >= border
        states = []
        for place, kind in enumerate(self._kinds):
            end = _or_neutral(self.vectors.columns[_suffix(place)][low], has_end, kind)
            beginning = _or_neutral(self.vectors.columns[_prefix(place)][high], has_beginning, kind)
            states.append(kind.merge(end, beginning))
        return Evaluated(full, self._states.answer(states[1:]), states[0], self.vectors.columns[TIME][low])

    def reserve_groups(self, count: int) -> None:
        """As the base."""
        super().reserve_groups(count)
        missing = len(self.vectors.size) - len(self._open)
        if missing:
            self._open = np.concatenate((self._open, np.zeros(missing, dtype=np.int64)))

    def drop_front(self, groups: Int64Array) -> Int64Array:
        """As the base; a vector's cells that are not over are at most all that it has."""
        empty = super().drop_front(groups)
        self._open[empty] = 0
        return empty


@state_record("value_cells", 1, ("width", "vectors", "_calls", "_stored"))
class ValueCells(SlidingCells):
    """Every row's values of the columns that the aggregates read: value and validity side by side, texts as Python's."""

    def __init__(self, width: int, calls: Sequence[AggregateCall], inputs: Schema) -> None:
        self._calls = tuple(calls)
        read = sorted({p for c in calls for p in (*c.arguments, *(() if c.filter is None else (c.filter,)))})
        self._stored = StoredColumns(inputs, read, ORDINAL + 1)
        super().__init__(width, self._stored.dtypes)

    def values_per_answer(self) -> int | None:
        """As the base; all of a group are gathered, whatever part of them the window holds."""
        return int(self.vectors.size.max())

    def add(self, rows: BufferedRows, groups: Int64Array, clocks: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Keep the values."""
        self.vectors.append(groups, [clocks, rows.time, rows.ordinal, *self._stored.stored(rows.columns, len(groups))])
        return groups, clocks

    def evaluate(self, groups: Int64Array, clocks: Int64Array) -> Evaluated:
        """Gather the values of the groups asked for once, and evaluate each window's range of them."""
        low, beyond, full = self._found(groups, clocks)
        which, place = np.unique(groups[full], return_inverse=True)
        sizes = self.vectors.size[which]
        moved = np.cumsum(sizes) - sizes - self.vectors.start[which]
        starts, stops = low + moved[place], beyond + moved[place]
        positions = self.vectors.positions(which)
        columns = dict(zip(self._stored.positions, self._stored.gathered(self.vectors, positions), strict=True))
        answers = aggregate_ranges(self._calls, Ranges(lambda p: columns[p], len(positions), starts, stops))
        first = reduce_ranges(np.minimum, self.vectors.columns[ORDINAL][positions], starts, stops)
        return Evaluated(full, answers, first, self.vectors.columns[TIME][low])


def sliding_cells(width: int, calls: Sequence[AggregateCall], inputs: Schema) -> SlidingCells:
    """Return cells that are folded if all calls can be."""
    return FoldedCells(width, calls, inputs) if foldable(calls) else ValueCells(width, calls, inputs)


def bound_answers(train: Train, cells: SlidingCells, rows_width: int | None) -> None:
    """Want fewer rows where the windows of all would go through more values than a call may: n rows, each with m + n at most.

    `rows_width`: the rows of a window, where that bounds them.
    """
    held = cells.values_per_answer()
    if held is None or train.rows < 2:
        return
    most = limits.CALL_VALUES_MAX
    rows = int((math.sqrt(held * held + 4.0 * most) - held) / 2)
    if rows_width is not None:
        rows = max(rows, most // rows_width)
    cut_rows(train, max(1, rows))


def _suffix(kind: int) -> int:
    return ORDINAL + 1 + 2 * kind


def _prefix(kind: int) -> int:
    return ORDINAL + 2 + 2 * kind


def _stretches(groups: Int64Array, blocks: Int64Array) -> Int64Array:
    """Return where runs of equal (group, block) begin."""
    if len(groups) == 0:
        return np.empty(0, dtype=np.int64)
    changed = np.empty(len(groups), dtype=np.bool_)
    changed[0] = True
    changed[1:] = (groups[1:] != groups[:-1]) | (blocks[1:] != blocks[:-1])
    return np.flatnonzero(changed)


def _or_neutral(states: Array, has: npt.NDArray[np.bool_], kind: StateKind) -> Array:
    if not has.all():
        states[~has] = kind.neutral
    return states
