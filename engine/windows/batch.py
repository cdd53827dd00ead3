"""The rows of one update, as accumulators see them: cells to fold into, and argument values with NULLs and FILTER taken out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.data.column import Column, Mask
from millstream.engine.data.train import Train

Int64Array = npt.NDArray[np.int64]

SPARSE_FACTOR = 4  # with more cells in range than this many times the rows, touching only the rows' cells is cheaper


class Batch:
    """Rows start … stop of a train; `cells` are positions relative to the flat range [lo, hi) of every grid.

    `ordinal` counts rows of the operator's input: the first row of the batch has it, the next one more.
    """

    __slots__ = ("_chosen", "_columns", "_counts", "_values", "cells", "hi", "lo", "ordinal", "start", "stop", "train")

    def __init__(self, train: Train, start: int, stop: int, cells: Int64Array, lo: int, hi: int, ordinal: int) -> None:
        self.train = train
        self.start, self.stop = start, stop
        self.cells = cells
        self.lo, self.hi = lo, hi
        self.ordinal = ordinal
        self._counts: Int64Array | None = None
        self._columns: dict[int, Column] = {}
        self._chosen: dict[tuple[int | None, int | None], Mask | None] = {}
        self._values: dict[tuple[int, int | None], tuple[Int64Array, npt.NDArray[Any]]] = {}

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

    def times(self) -> Int64Array:
        """Return the event times of the batch's rows."""
        return self.train.time.array()[self.start : self.stop]

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
        mask = None if position is None else self.column(position).validity()
        if filter_ is not None:
            column = self.column(filter_)
            passed: Mask = column.values if column.valid is None else column.values & column.valid
            mask = passed if mask is None else mask & passed
        self._chosen[key] = mask
        return mask

    def values(self, position: int, filter_: int | None) -> tuple[Int64Array, npt.NDArray[Any]]:
        """Return (cells, values) of the rows that count, for a NumPy-stored argument; made once for all that fold it."""
        key = (position, filter_)
        found = self._values.get(key)
        if found is None:
            mask = self.chosen(position, filter_)
            values = self.column(position).values
            found = self._values[key] = (self.cells, values) if mask is None else (self.cells[mask], values[mask])
        return found
