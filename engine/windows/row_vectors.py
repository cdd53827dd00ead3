"""Rows in growable vectors: values and validity of some columns side by side, texts and lists as Python's objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from millstream.engine.data.arrow import arrow_type, plain_values
from millstream.engine.data.column import Column, numpy_dtype
from millstream.engine.data.schema import Schema
from millstream.engine.windows.vectors import Int64Array, Vectors

Array = npt.NDArray[Any]


class StoredColumns:
    """How the columns at `positions` of a schema lie in an arena, from its column `first` on."""

    def __init__(self, inputs: Schema, positions: Sequence[int], first: int) -> None:
        self.positions = tuple(positions)
        self._types = [inputs.fields[p].type for p in positions]
        self._first = first
        self.dtypes: list[Any] = [d for t in self._types for d in (np.object_ if t.is_arrow else numpy_dtype(t), np.bool_)]

    def stored(self, columns: Sequence[Column], rows: int) -> list[Array]:
        """Return the arrays to append."""
        arrays: list[Array] = []
        for position in self.positions:
            column = columns[position]
            if column.type.is_arrow:
                arrays.append(np.fromiter(plain_values(column), np.object_, rows))
            else:
                arrays.append(column.values)
            arrays.append(np.ones(rows, dtype=np.bool_) if column.valid is None else column.valid)
        return arrays

    def gathered(self, vectors: Vectors, at: Int64Array) -> list[Column]:
        """Return the columns of the elements at some places of the arena."""
        columns: list[Column] = []
        for number, type_ in enumerate(self._types):
            place = self._first + 2 * number
            values = vectors.columns[place][at]
            if type_.is_arrow:
                columns.append(Column(type_, pa.array(values.tolist(), type=arrow_type(type_))))
                continue
            valid = vectors.columns[place + 1][at]
            columns.append(Column(type_, values, None if valid.all() else valid))
        return columns
