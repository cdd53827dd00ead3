"""MIN and MAX. A NaN dominates while it is in the window (K7); text compares by code point."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from millstream.engine.data.column import Column, numpy_dtype
from millstream.engine.data.types import DataType, Kind
from millstream.engine.windows.accumulators import Accumulator, Fold, Request, ValueCounts
from millstream.engine.windows.batch import Batch
from millstream.engine.windows.grids import PaneTable, combined
from millstream.engine.windows.passes import Passed

Int64Array = npt.NDArray[np.int64]


class Extreme(Accumulator):
    """MIN or MAX of a fixed-width column."""

    def __init__(
        self, type_: DataType, table: PaneTable, counts: ValueCounts, position: int, filter_: int | None, *, greatest: bool
    ) -> None:
        super().__init__(type_)
        self._counts = counts
        self._position, self._filter = position, filter_
        self._pick: np.ufunc = np.maximum if greatest else np.minimum
        self._grid = table.grid(numpy_dtype(type_), worst_value(type_, greatest))

    def update(self, batch: Batch) -> None:
        """Fold the rows that count in."""
        self._pick.at(self._grid.flat[batch.lo : batch.hi], *batch.values(self._position, self._filter))

    def fold_into(self, lo: int, hi: int) -> tuple[int, Fold] | None:
        """As the base says."""
        return None if self._filter is not None else (self._position, partial(self._pick.at, self._grid.flat[lo:hi]))

    def combine(self, slots: Sequence[int], ids: Int64Array) -> Column:
        """Return the extremes, NULL where no row counts."""
        best = combined(self._grid, slots, self._pick)[ids]
        return self._column(best, None if self._counts.are_row_counts else self._counts.total(slots, ids))

    def answers(self, slots: Sequence[int], requests: Sequence[Request]) -> list[Column]:
        """Return the extremes in one pass."""
        passed = Passed(self._grid, slots, [count for count, _ in requests], self._pick)
        counts = [None] * len(requests) if self._counts.are_row_counts else self._counts.totals(slots, requests)
        return [self._column(passed.upto(count)[ids], rows) for (count, ids), rows in zip(requests, counts, strict=True)]

    def _column(self, values: npt.NDArray[Any], counts: Int64Array | None) -> Column:
        if values.dtype == np.float64:
            values += 0.0  # which of 0.0 and -0.0 wins would depend on how NumPy splits the work
        if counts is None:
            return Column(self.type, values)
        valid = counts > 0
        return Column(self.type, np.where(valid, values, np.zeros(1, dtype=values.dtype)), None if valid.all() else valid)


def worst_value(type_: DataType, greatest: bool) -> Any:
    """Return what every value beats or equals."""
    dtype = np.dtype(numpy_dtype(type_))
    if type_.kind is Kind.DOUBLE:
        return -np.inf if greatest else np.inf
    if type_.kind is Kind.BOOLEAN:
        return not greatest
    limits = np.iinfo(dtype)
    return limits.min if greatest else limits.max


class ObjectExtreme(Accumulator):
    """MIN or MAX of TEXT or wide DECIMAL: the best per cell of a train in Arrow or NumPy, then kept as Python values."""

    def __init__(self, type_: DataType, table: PaneTable, position: int, filter_: int | None, *, greatest: bool) -> None:
        super().__init__(type_)
        self._position, self._filter = position, filter_
        self._greatest = greatest
        self._grid = table.grid(np.object_, None)

    def update(self, batch: Batch) -> None:
        """Reduce the train per cell, then compare with what is kept."""
        mask = batch.chosen(self._position, self._filter)
        column = batch.column(self._position)
        cells = batch.cells
        if mask is not None:
            cells, column = cells[mask], column.filter(mask)
        best = self._grid.flat[batch.lo : batch.hi]
        for cell, value in self._best(cells, column):
            held = best[cell]
            if held is None or (value > held if self._greatest else value < held):
                best[cell] = value

    def _best(self, cells: Int64Array, column: Column) -> list[tuple[int, Any]]:
        if not self.type.is_arrow:
            return list(zip(cells.tolist(), column.values.tolist(), strict=True))
        table = pa.table({"cell": cells, "value": column.values})
        word = "max" if self._greatest else "min"
        reduced = table.group_by("cell").aggregate([("value", word)])
        return list(zip(reduced["cell"].to_pylist(), reduced[f"value_{word}"].to_pylist(), strict=True))

    def combine(self, slots: Sequence[int], ids: Int64Array) -> Column:
        """Return the best over panes, NULL where there is none."""
        pick = max if self._greatest else min
        held = self._grid.array[list(slots)][:, ids]
        best = [pick((v for v in held[:, i] if v is not None), default=None) for i in range(held.shape[1])]
        return object_column(self.type, best)


def object_column(type_: DataType, values: list[Any]) -> Column:
    """Return a TEXT or wide DECIMAL column of Python values."""
    if type_.is_arrow:
        return Column(type_, pa.array(values, type=pa.string()))
    valid = np.array([v is not None for v in values], dtype=np.bool_)
    filled = np.empty(len(values), dtype=np.object_)
    filled[:] = [0 if v is None else v for v in values]
    return Column(type_, filled, None if valid.all() else valid)
