"""STDDEV, VARIANCE, FIRST and LAST over panes: one state a pane and group, as sliding windows have one a cell (folds.py).

The moments of rows are taken in blocks of BLOCK_ROWS, counted from the first row of a pane, and put together in turn: so the last bits
do not depend on how rows were cut into calls (K15). State is panes × groups, and less than a block a pane.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.data.arrow import plain_values
from millstream.engine.data.column import Column, numpy_dtype
from millstream.engine.data.distinct_values import distinct
from millstream.engine.data.types import DataType
from millstream.engine.language.recipes import AggregateCall
from millstream.engine.windows.accumulators import Accumulator
from millstream.engine.windows.batch import Batch
from millstream.engine.windows.fold_operations import MOMENTS, End, Moments, end_states
from millstream.engine.windows.folds import ENDS, SPREADS, end_column, spread_column
from millstream.engine.windows.grids import PaneTable
from millstream.engine.windows.vectors import run_sizes, run_starts

Int64Array = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

BLOCK_ROWS = 4_096
_PUT_TOGETHER = Moments()


def folded_by_pane(call: AggregateCall) -> bool:
    """Whether an aggregate has one state a pane and group here."""
    return not call.distinct and (call.function in SPREADS or call.function in ENDS)


def pane_fold(call: AggregateCall, argument: DataType, table: PaneTable) -> Accumulator:
    """Return the accumulator of such an aggregate."""
    return Spread(call, table) if call.function in SPREADS else EndRow(call, argument, table)


class Spread(Accumulator):
    """STDDEV, VARIANCE and the same of the population: count, mean and squared distances from it."""

    def __init__(self, call: AggregateCall, table: PaneTable) -> None:
        super().__init__(call.type)
        self._call = call
        self._table = table
        self._grid = table.grid(MOMENTS, (0.0, 0.0, 0.0))
        self._waiting: dict[int, list[tuple[Int64Array, Array]]] = {}  # per slot: groups and values of the block that is filling
        self._rows: dict[int, int] = {}
        self._known: dict[int, Array] = {}  # per slot: states with what waits folded in

    def update(self, batch: Batch) -> None:
        """Fold values in, whole blocks at a time."""
        cells, values = batch.values(self._call.arguments[0], self._call.filter)
        if not len(cells):
            return
        slots, groups = np.divmod(cells + batch.lo, self._table.capacity)
        values = values.astype(np.float64)  # a copy: trains are not held
        if (slots == slots[0]).all():
            self._add(int(slots[0]), groups, values)
            return
        for slot in distinct(slots).tolist():
            here = slots == slot
            self._add(slot, groups[here], values[here])

    def _add(self, slot: int, groups: Int64Array, values: Array) -> None:
        self._known.pop(slot, None)
        waiting = self._waiting.setdefault(slot, [])
        waiting.append((groups, values))
        rows = self._rows.get(slot, 0) + len(values)
        if rows >= BLOCK_ROWS:
            groups, values = (np.concatenate(one) for one in zip(*waiting, strict=True))
            whole = rows - rows % BLOCK_ROWS
            for start in range(0, whole, BLOCK_ROWS):
                _fold_block(self._grid.array[slot], groups[start : start + BLOCK_ROWS], values[start : start + BLOCK_ROWS])
            rows -= whole
            self._waiting[slot] = [(groups[whole:].copy(), values[whole:].copy())] if rows else []
        self._rows[slot] = rows

    def _states(self, slot: int) -> Array:
        if not self._rows.get(slot):
            row: Array = self._grid.array[slot]
            return row
        known = self._known.get(slot)
        if known is None or len(known) < self._table.capacity:
            known = self._known[slot] = self._grid.array[slot].copy()
            _fold_block(known, *(np.concatenate(one) for one in zip(*self._waiting[slot], strict=True)))
        return known

    def combine(self, slots: Sequence[int], ids: Int64Array) -> Column:
        """Put panes together in order of time."""
        states = self._states(slots[0])[ids]
        for slot in slots[1:]:
            states = _PUT_TOGETHER(states, self._states(slot)[ids])
        return spread_column(self._call, states)

    def clear(self, slot: int) -> None:
        """Forget a pane."""
        for kept in (self._waiting, self._rows, self._known):
            kept.pop(slot, None)

    def nbytes(self) -> int:
        """Return the bytes of what waits."""
        return 16 * sum(self._rows.values()) + sum(int(k.nbytes) for k in self._known.values())


def _fold_block(states: Array, groups: Int64Array, values: Array) -> None:
    """Fold rows into the states of their groups: distances are taken from each group's first value, so that equal values have none."""
    order = np.argsort(groups, kind="stable")
    groups, values = groups[order], values[order]
    starts = run_starts(groups)
    sizes = run_sizes(starts, len(groups))
    found = np.empty(len(starts), dtype=MOMENTS)
    with np.errstate(invalid="ignore", over="ignore"):
        first = values[starts]
        apart = values - np.repeat(first, sizes)
        mean = np.add.reduceat(apart, starts) / sizes
        apart -= np.repeat(mean, sizes)
        found["spread"] = np.add.reduceat(apart * apart, starts)
        found["count"], found["mean"] = sizes, first + mean
    touched = groups[starts]
    states[touched] = _PUT_TOGETHER(states[touched], found)


class EndRow(Accumulator):
    """FIRST and LAST by event time, ties by arrival, NULLs among them (K13): the row's time, ordinal and value."""

    def __init__(self, call: AggregateCall, argument: DataType, table: PaneTable) -> None:
        super().__init__(call.type)
        self._position, self._filter = call.arguments[0], call.filter
        self._argument = argument
        self._last = call.function == "last"
        self._choose = End(last=self._last)
        self._grid = table.grid(end_states(np.object_ if argument.is_arrow else numpy_dtype(argument)), (0, 0, 0, False, False))

    def update(self, batch: Batch) -> None:
        """Take each cell's first or last row, and the earlier or later one of that and what is kept."""
        mask = batch.chosen(None, self._filter)
        chosen = np.arange(batch.rows, dtype=np.int64) if mask is None else np.flatnonzero(mask)
        if not len(chosen):
            return
        cells, times = batch.cells[chosen], batch.times()[chosen]
        order = np.lexsort((times, cells))
        starts = run_starts(cells[order])
        at = chosen[order[starts + run_sizes(starts, len(order)) - 1 if self._last else starts]]
        column = batch.column(self._position).take(at)
        states: Array = np.zeros(len(at), dtype=self._grid.array.dtype)
        states["time"], states["ordinal"], states["has"] = batch.times()[at], batch.ordinal + at, True
        valid = column.validity()
        states["value"] = np.fromiter(plain_values(column), np.object_, len(at)) if self._argument.is_arrow else column.values
        states["valid"] = True if valid is None else valid
        kept, where = self._grid.flat[batch.lo : batch.hi], batch.cells[at]
        kept[where] = self._choose(kept[where], states)

    def combine(self, slots: Sequence[int], ids: Int64Array) -> Column:
        """Return the earliest or latest of the panes' rows."""
        states = self._grid.array[slots[0]][ids]
        for slot in slots[1:]:
            states = self._choose(states, self._grid.array[slot][ids])
        return end_column(self.type, states)
