"""AND, OR, NOT, IS TRUE …, IN and BETWEEN in three-valued logic (K6), as columns and as the masks of filters.

The right side of AND is evaluated only where the left is not false, that of OR only where it is not true, whenever the right side
could record an error: so `x <> 0 AND 8 / x > 1` is clean. A filter does not need NULLs: NOT is pushed down to the comparisons.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import mask_from_arrow
from millstream.engine.data.column import Column, Mask
from millstream.engine.data.types import BOOLEAN, DataType, Kind
from millstream.engine.expressions.bounds import may_fail
from millstream.engine.expressions.ir import Call, ColumnRef, Expression, Literal
from millstream.engine.expressions.kernel import Compiler, EvaluationContext, Kernel, Predicate, Rows, evaluate_at, is_null_literal, test_at
from millstream.protocol.values import arrow_functions as pc


def build_connective(call: Call, compiler: Compiler) -> Kernel:
    """Build AND or OR of two or more operands as a BOOLEAN column."""
    is_and = call.function == "and"
    left = compiler.kernel(call.arguments[0])
    others = [(compiler.kernel(operand), may_fail(operand)) for operand in call.arguments[1:]]

    def kernel(rows: Rows, context: EvaluationContext) -> Column:
        a = left(rows, context)
        for right, careful in others:
            if not careful:
                a = _combine(is_and, a, right(rows, context))
                continue
            decided = ~a.values if is_and else a.values
            if a.valid is not None:
                decided = decided & a.valid
            a = _combine(is_and, a, _spread(right, rows, context, ~decided, is_and))
        return a

    return kernel


def _spread(kernel: Kernel, rows: Rows, context: EvaluationContext, where: Mask, filler: bool) -> Column:
    """Evaluate where asked; elsewhere put the value that leaves the other side's decision standing."""
    index = np.flatnonzero(where)
    if len(index) == rows.rows:
        return kernel(rows, context)
    part = evaluate_at(kernel, rows, context, index)
    values = np.full(rows.rows, filler, dtype=np.bool_)
    values[index] = part.values
    if part.valid is None:
        return Column(BOOLEAN, values)
    valid = np.ones(rows.rows, dtype=np.bool_)
    valid[index] = part.valid
    return Column(BOOLEAN, values, valid)


def _combine(is_and: bool, a: Column, b: Column) -> Column:
    """A side that decides alone (false for AND, true for OR) makes the result known although the other is NULL."""
    values = a.values & b.values if is_and else a.values | b.values
    if a.valid is None and b.valid is None:
        return Column(BOOLEAN, values)
    a_decides = (~a.values if is_and else a.values) & (True if a.valid is None else a.valid)
    b_decides = (~b.values if is_and else b.values) & (True if b.valid is None else b.valid)
    both = np.ones(len(values), dtype=np.bool_)
    if a.valid is not None:
        both &= a.valid
    if b.valid is not None:
        both &= b.valid
    decided = a_decides | b_decides
    # Under a NULL the stored value is arbitrary, so a decided row is written out.
    values = np.where(decided, not is_and, values)
    return Column(BOOLEAN, values, both | decided)


def build_not(call: Call, compiler: Compiler) -> Kernel:
    """NOT: NULL stays NULL."""
    inner = compiler.kernel(call.arguments[0])

    def kernel(rows: Rows, context: EvaluationContext) -> Column:
        column = inner(rows, context)
        return Column(BOOLEAN, ~column.values, column.valid)

    return kernel


def build_truth_test(call: Call, compiler: Compiler) -> Kernel:
    """IS [NOT] TRUE, FALSE, UNKNOWN: never NULL."""
    inner, turn = compiler.kernel(call.arguments[0]), call.function.startswith("is_not_")
    asked = call.function.rsplit("_", 1)[1]

    def kernel(rows: Rows, context: EvaluationContext) -> Column:
        column = inner(rows, context)
        if asked == "unknown":
            mask = np.zeros(rows.rows, dtype=np.bool_) if column.valid is None else ~column.valid
        else:
            mask = column.values if asked == "true" else ~column.values
            mask = mask if column.valid is None else mask & column.valid
        return Column(BOOLEAN, ~mask if turn else mask)

    return kernel


def build_null_test(call: Call, compiler: Compiler) -> Kernel:
    """IS [NOT] NULL."""
    inner, wanted = compiler.kernel(call.arguments[0]), call.function == "is_not_null"

    def kernel(rows: Rows, context: EvaluationContext) -> Column:
        valid = inner(rows, context).validity()
        if valid is None:
            return Column(BOOLEAN, np.full(rows.rows, wanted, dtype=np.bool_))
        return Column(BOOLEAN, valid if wanted else ~valid)

    return kernel


def connective_predicate(call: Call, compiler: Compiler, wanted: bool) -> Predicate:
    """Build the mask of AND or OR; by De Morgan the wanted falsehood of one is the other over falsehoods."""
    all_needed = (call.function == "and") == wanted
    left = compiler.predicate(call.arguments[0], wanted)
    others = [(compiler.predicate(operand, wanted), may_fail(operand)) for operand in call.arguments[1:]]

    def predicate(rows: Rows, context: EvaluationContext) -> Mask:
        mask = left(rows, context)
        for right, careful in others:
            if careful:
                mask = _tested_where_open(all_needed, mask, right, rows, context)
            else:
                mask = mask & right(rows, context) if all_needed else mask | right(rows, context)
        return mask

    return predicate


def _tested_where_open(all_needed: bool, mask: Mask, right: Predicate, rows: Rows, context: EvaluationContext) -> Mask:
    """Return the mask with a condition more, which is tested only where it decides."""
    index = np.flatnonzero(mask if all_needed else ~mask)
    if len(index) == 0:
        return mask
    result = mask.copy()
    result[index] = test_at(right, rows, context, index)
    return result


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
