"""`x IN (…)` and `x BETWEEN low AND high`, in three-valued logic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import mask_from_arrow
from millstream.engine.data.column import Column, Mask
from millstream.engine.data.types import BOOLEAN, DataType, Kind
from millstream.engine.expressions.contract import EvaluationContext, Kernel, Rows
from millstream.engine.expressions.ir import Call, ColumnRef, Expression, Literal
from millstream.engine.expressions.kernel import Compiler, is_null_literal
from millstream.protocol.values import arrow_functions as pc

OPERAND = -1  # the position under which the once-evaluated operand is found
FEW = 4  # up to so many constants are compared one by one


class _WithOperand:
    """Rows with the operand's column beside their own."""

    __slots__ = ("_base", "_operand", "rows")

    def __init__(self, base: Rows, operand: Column) -> None:
        self._base = base
        self._operand = operand
        self.rows = base.rows

    def column(self, position: int) -> Column:
        return self._operand if position == OPERAND else self._base.column(position)


def _with_shared_operand(call: Call, compiler: Compiler, rewrite: Any) -> Kernel:
    """Compile the rewritten condition so that the first argument is evaluated once, and its errors counted once."""
    operand = call.arguments[0]
    if isinstance(operand, ColumnRef | Literal):
        return compiler.kernel(rewrite(operand))
    first = compiler.kernel(operand)
    inner = compiler.kernel(rewrite(ColumnRef(operand.type, OPERAND)))

    def kernel(rows: Rows, context: EvaluationContext) -> Column:
        return inner(_WithOperand(rows, first(rows, context)), context)

    return kernel


def build_between(call: Call, compiler: Compiler) -> Kernel:
    """Build BETWEEN as `x >= low AND x <= high`."""
    _, low, high = call.arguments

    def rewrite(x: Expression) -> Expression:
        parts = (Call(BOOLEAN, ">=", (x, low)), Call(BOOLEAN, "<=", (x, high)))
        return Call(BOOLEAN, "and", parts)

    return _with_shared_operand(call, compiler, rewrite)


def build_in(call: Call, compiler: Compiler) -> Kernel:
    """Build IN: by a set where all members are constants and many, else as comparisons joined by OR."""
    operand, *members = call.arguments
    constants = [m for m in members if isinstance(m, Literal) and m.value is not None]
    settable = operand.type.kind is Kind.TEXT or (not operand.type.is_wide and not operand.type.is_arrow)
    if settable and len(constants) > FEW and all(isinstance(m, Literal) for m in members):
        return _set_kernel(operand, constants, len(constants) < len(members), compiler)

    def rewrite(x: Expression) -> Expression:
        tests = tuple(Call(BOOLEAN, "=", (x, m)) for m in members)
        return tests[0] if len(tests) == 1 else Call(BOOLEAN, "or", tests)

    return _with_shared_operand(call, compiler, rewrite)


def _set_kernel(operand: Expression, constants: list[Literal], with_null: bool, compiler: Compiler) -> Kernel:
    inner, test = compiler.kernel(operand), _set_test(operand.type, constants)

    def kernel(rows: Rows, context: EvaluationContext) -> Column:
        column = inner(rows, context)
        mask, valid = test(column), column.validity()
        if with_null:  # not found among the members is unknown, as the NULL may be it
            valid = mask if valid is None else valid & mask
        return Column(BOOLEAN, mask, valid)

    return kernel


def _set_test(type_: DataType, constants: list[Literal]) -> Any:
    if type_.kind is Kind.TEXT:
        members = pa.array([c.value for c in constants], pa.string())
        return lambda column: mask_from_arrow(pc.is_in(column.values, value_set=members))
    if type_.kind is Kind.DOUBLE:
        floats = np.array([float(c.value) for c in constants])
        with_nan = bool(np.isnan(floats).any())

        def among(column: Column) -> Mask:
            mask: Mask = np.isin(column.values, floats)
            return mask | np.isnan(column.values) if with_nan else mask

        return among
    stored = np.array(_in_scale(type_, constants), dtype=np.int64)
    return lambda column: np.isin(column.values, stored)


def _in_scale(type_: DataType, constants: list[Literal]) -> list[int]:
    """Return the members in the column's scale, without those that no value of the column can equal."""
    found = []
    for constant in constants:
        whole, rest = divmod(int(constant.value) * 10**type_.scale, 10**constant.type.scale)
        if rest == 0 and -(2**63) <= whole < 2**63:
            found.append(whole)
    return found


def has_null_member(call: Call) -> bool:
    """Tell whether an IN list names NULL, so that NOT IN can never be true."""
    return any(is_null_literal(m) for m in call.arguments[1:])
