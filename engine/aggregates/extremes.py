"""MIN and MAX. A NaN dominates while it is in the window (K7); text compares by code point."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.aggregates.contract import AggregateFunction, AggregateUse, Array, FoldedRows, Folding, StateKind, same_ordered
from millstream.engine.data.arrow import arrow_type
from millstream.engine.data.column import Column, numpy_dtype
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import DataType, Kind
from millstream.engine.state.forms import state_record


@state_record("fold_best", 1)
@dataclass(frozen=True, slots=True)
class Best(Folding):
    """The least or greatest of TEXT, BYTES or wide DECIMAL as a Python value, None where there is none."""

    code: str = "O"
    neutral: Any = None

    def folder(self, states: Array) -> None:
        """Texts are no array."""

    def fold(self, states: Array, rows: FoldedRows) -> None:
        """Reduce the rows per cell, then compare with what is kept."""
        cells, column = rows.cells, rows.argument
        if not column.type.is_arrow:
            self.ufunc.at(states, cells, column.values)
            return
        word = "max" if self.operation == "greater" else "min"
        reduced = pa.table({"cell": cells, "value": column.values}).group_by("cell").aggregate([("value", word)])
        best = np.empty(len(reduced), dtype=np.object_)
        best[:] = reduced[f"value_{word}"].to_pylist()
        self.ufunc.at(states, reduced["cell"].to_numpy(), best)


def _states(argument: DataType, *, greatest: bool) -> tuple[StateKind, ...]:
    if argument.is_arrow or argument.is_wide:
        return (Best("greater" if greatest else "lesser"),)
    dtype = np.dtype(numpy_dtype(argument))
    return (Folding("maximum" if greatest else "minimum", dtype.str, _worst(argument.kind, dtype, greatest)),)


def _worst(kind: Kind, dtype: np.dtype[Any], greatest: bool) -> Any:
    """Return what every value beats or equals."""
    if kind is Kind.DOUBLE:
        return -np.inf if greatest else np.inf
    if dtype == np.bool_:
        return not greatest
    limits = np.iinfo(dtype)
    return limits.min if greatest else limits.max


def _column(call: AggregateUse, argument: DataType, states: Sequence[Array]) -> Column:
    best = states[0]
    if call.type.is_arrow:
        return Column(call.type, pa.array(best.tolist(), type=arrow_type(call.type)))
    if best.dtype == np.float64:
        best = best + 0.0  # which of 0.0 and -0.0 wins would depend on how NumPy splits the work
    return Column(call.type, best)


MIN = AggregateFunction(same_ordered, partial(_states, greatest=False), _column, ignores_distinct=True)
MAX = AggregateFunction(same_ordered, partial(_states, greatest=True), _column, ignores_distinct=True)
