"""MIN and MAX. A NaN dominates while it is in the window (K7); text compares by code point.

And their like of conditions and of integers: BOOL_AND (EVERY), BOOL_OR, BIT_AND, BIT_OR, BIT_XOR, in two's complement. NULLs do not count.
"""

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
from millstream.engine.data.types import BOOLEAN, INT, NULL, DataType, Kind
from millstream.engine.expressions.signature import Options, Signature, Types, expect_count, refuse_argument
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


def _integer(name: str, types: Types, options: Options) -> Signature:
    """Take an INT or BIGINT, answer in the same."""
    expect_count(name, types, 1, 1)
    type_ = INT if types[0] == NULL else types[0]
    if not type_.is_integer:
        refuse_argument(name, 0, type_, "an INT or a BIGINT")
    return Signature(name, (type_,), type_)


def _condition(name: str, types: Types, options: Options) -> Signature:
    """Take a BOOLEAN, answer in BOOLEAN."""
    expect_count(name, types, 1, 1)
    if types[0] not in (BOOLEAN, NULL):
        refuse_argument(name, 0, types[0], "a condition", "compare it with something, as in x <> 0")
    return Signature(name, (BOOLEAN,), BOOLEAN)


def _merged(argument: DataType, *, operation: str, neutral: int) -> tuple[StateKind, ...]:
    return (Folding(operation, np.dtype(numpy_dtype(argument)).str, neutral),)


def _exact_column(call: AggregateUse, argument: DataType, states: Sequence[Array]) -> Column:
    return Column(call.type, states[0])


BIT_AND = AggregateFunction(_integer, partial(_merged, operation="bit_and", neutral=-1), _exact_column, ignores_distinct=True)
BIT_OR = AggregateFunction(_integer, partial(_merged, operation="bit_or", neutral=0), _exact_column, ignores_distinct=True)
BIT_XOR = AggregateFunction(_integer, partial(_merged, operation="bit_xor", neutral=0), _exact_column)
BOOL_AND = AggregateFunction(_condition, partial(_merged, operation="minimum", neutral=1), _exact_column, ignores_distinct=True)
BOOL_OR = AggregateFunction(_condition, partial(_merged, operation="maximum", neutral=0), _exact_column, ignores_distinct=True)
