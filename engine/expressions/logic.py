"""AND, OR, NOT, IS TRUE …, IN and BETWEEN in three-valued logic (K6); CASE, IF, COALESCE, NULLIF, GREATEST and LEAST.

A branch of CASE is evaluated only over the rows that take it, so its errors are theirs alone.

The right side of AND is evaluated only where the left is not false, that of OR only where it is not true, whenever the right side
could record an error: so `x <> 0 AND 8 / x > 1` is clean. A filter does not need NULLs: NOT is pushed down to the comparisons.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import arrow_type, mask_from_arrow
from millstream.engine.data.column import Column, Index, Mask, null_column, numpy_dtype
from millstream.engine.data.types import BOOLEAN, DataType, Kind
from millstream.engine.expressions.bounds import may_fail
from millstream.engine.expressions.comparison import comparison_core, pair_test
from millstream.engine.expressions.ir import Call, Case, ColumnRef, Expression, Literal
from millstream.engine.expressions.kernel import (
    Compiler,
    EvaluationContext,
    Kernel,
    KernelRows,
    Predicate,
    evaluate_at,
    test_at,
)
from millstream.engine.expressions.patterns import extract_is_null
from millstream.protocol.values import arrow_functions as pc


def build_connective(call: Call, compiler: Compiler) -> Kernel:
    """Build AND or OR of two or more operands as a BOOLEAN column."""
    is_and = call.function == "and"
    left = compiler.kernel(call.arguments[0])
    others = [(compiler.kernel(operand), may_fail(operand)) for operand in call.arguments[1:]]

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
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


def _spread(kernel: Kernel, rows: KernelRows, context: EvaluationContext, where: Mask, filler: bool) -> Column:
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

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        column = inner(rows, context)
        return Column(BOOLEAN, ~column.values, column.valid)

    return kernel


def build_truth_test(call: Call, compiler: Compiler) -> Kernel:
    """IS [NOT] TRUE, FALSE, UNKNOWN: never NULL."""
    inner, turn = compiler.kernel(call.arguments[0]), call.function.startswith("is_not_")
    asked = call.function.rsplit("_", 1)[1]

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
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
    wanted, argument = call.function == "is_not_null", call.arguments[0]
    if isinstance(argument, Call) and (test := extract_is_null(argument, compiler, wanted=not wanted)) is not None:
        return test
    inner = compiler.kernel(argument)

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
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

    def predicate(rows: KernelRows, context: EvaluationContext) -> Mask:
        mask = left(rows, context)
        for right, careful in others:
            if careful:
                mask = _tested_where_open(all_needed, mask, right, rows, context)
            else:
                mask = mask & right(rows, context) if all_needed else mask | right(rows, context)
        return mask

    return predicate


def _tested_where_open(all_needed: bool, mask: Mask, right: Predicate, rows: KernelRows, context: EvaluationContext) -> Mask:
    """Return the mask with a condition more, which is tested only where it decides."""
    index = np.flatnonzero(mask if all_needed else ~mask)
    if len(index) == 0:
        return mask
    result = mask.copy()
    result[index] = test_at(right, rows, context, index)
    return result


def build_key_part(call: Call, compiler: Compiler) -> Kernel:
    """Whether a row's key is in part `options[0]` of `options[1]`; for the planner alone (`plan/splitting.py`)."""
    from millstream.engine.data.hashing import parts_by_key  # few queries are split

    keys = [compiler.kernel(argument) for argument in call.arguments]
    part, parts = call.options

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        return Column(call.type, parts_by_key([key(rows, context) for key in keys], parts) == part)

    return kernel


OPERAND = -1  # the position under which the once-evaluated operand is found
FEW = 4  # up to so many constants are compared one by one


class _WithOperand:
    """Rows with the operand's column beside their own."""

    __slots__ = ("_base", "_operand", "rows")

    def __init__(self, base: KernelRows, operand: Column) -> None:
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

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
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

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
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


Piece = tuple[Index, Column]


def assemble(type_: DataType, rows: int, pieces: Sequence[Piece]) -> Column:
    """Return the column of `rows` rows whose values are given piece by piece; positions no piece names are NULL."""
    pieces = [p for p in pieces if len(p[0])]
    if len(pieces) == 1 and len(pieces[0][0]) == rows:
        return pieces[0][1]
    if type_.is_arrow:
        return Column(type_, _assemble_arrow(type_, rows, pieces))
    values = np.zeros(rows, dtype=numpy_dtype(type_))
    valid = np.zeros(rows, dtype=np.bool_)
    for index, column in pieces:
        values[index] = column.values
        valid[index] = True if column.valid is None else column.valid
    return Column(type_, values, None if valid.all() else valid)


def _assemble_arrow(type_: DataType, rows: int, pieces: Sequence[Piece]) -> Any:
    if not pieces:
        return pa.nulls(rows, arrow_type(type_))
    place = np.full(rows, -1, dtype=np.int64)
    start = 0
    for index, column in pieces:
        place[index] = np.arange(start, start + len(column))
        start += len(column)
    joined = pa.concat_arrays([c.values for _, c in pieces])
    return joined.take(pa.array(place, mask=place < 0))


def build_case(case: Case, compiler: Compiler) -> Kernel:
    """Build CASE WHEN … THEN … ELSE … END."""
    branches = [(compiler.predicate(c), compiler.kernel(v)) for c, v in case.branches]
    return _choose(case.type, branches, compiler.kernel(case.otherwise))


def build_if(call: Call, compiler: Compiler) -> Kernel:
    """Build IF(condition, then, else)."""
    condition, then, otherwise = call.arguments
    return _choose(call.type, [(compiler.predicate(condition), compiler.kernel(then))], compiler.kernel(otherwise))


def _choose(type_: DataType, branches: list[tuple[Predicate, Kernel]], otherwise: Kernel) -> Kernel:
    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        remaining: Index = np.arange(rows.rows, dtype=np.int64)
        pieces: list[Piece] = []
        for condition, value in branches:
            if len(remaining) == 0:
                break
            mask = test_at(condition, rows, context, remaining)
            chosen = remaining[mask]
            if len(chosen):
                pieces.append((chosen, evaluate_at(value, rows, context, chosen)))
                remaining = remaining[~mask]
        if len(remaining) or not pieces:
            pieces.append((remaining, evaluate_at(otherwise, rows, context, remaining)))
        return assemble(type_, rows.rows, pieces)

    return kernel


def build_coalesce(call: Call, compiler: Compiler) -> Kernel:
    """Build COALESCE: later arguments only where all earlier ones are NULL."""
    first, *others = [compiler.kernel(a) for a in call.arguments]

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        column = first(rows, context)
        valid = column.validity()
        if valid is None or not others:
            return column
        pieces: list[Piece] = [(np.flatnonzero(valid), column.filter(valid))]
        remaining = np.flatnonzero(~valid)
        for other in others:
            part = evaluate_at(other, rows, context, remaining)
            found = part.validity()
            if found is None:
                pieces.append((remaining, part))
                break
            pieces.append((remaining[found], part.filter(found)))
            remaining = remaining[~found]
        return assemble(call.type, rows.rows, pieces)

    return kernel


def build_nullif(call: Call, compiler: Compiler) -> Kernel:
    """Build NULLIF(a, b): NULL where a = b, else a."""
    left, right = call.arguments
    first = compiler.kernel(left)
    equal = comparison_core("=", left, right, compiler)

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        column = first(rows, context)
        # The comparison evaluates `a` once more, so its errors are not taken twice.
        quiet = EvaluationContext(context.watermark_us)
        mask, valid = equal(rows, quiet)
        return without(column, mask if valid is None else mask & valid)

    return kernel


def without(column: Column, drop: Mask) -> Column:
    """Return the column with NULL where `drop` is true."""
    if not drop.any():
        return column
    keep = ~drop
    if column.type.is_arrow:
        return Column(column.type, column.values.take(pa.array(np.arange(len(column)), mask=drop)))
    return Column(column.type, column.values, keep if column.valid is None else column.valid & keep)


def build_extreme(call: Call, compiler: Compiler) -> Kernel:
    """Build GREATEST or LEAST: NULLs are passed over; NaN is the greatest DOUBLE."""
    kernels = [compiler.kernel(a) for a in call.arguments]
    better = pair_test(">" if call.function == "greatest" else "<", call.type, call.type)

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        best = kernels[0](rows, context)
        for other in kernels[1:]:
            best = _better_of(best, other(rows, context), better)
        return best

    return kernel


def _better_of(best: Column, other: Column, better: Any) -> Column:
    take_other = better(other, best)
    best_valid, other_valid = best.validity(), other.validity()
    if best_valid is not None:
        take_other = take_other | ~best_valid
    if other_valid is not None:
        take_other = take_other & other_valid
    pieces = [(np.flatnonzero(~take_other), best.filter(~take_other)), (np.flatnonzero(take_other), other.filter(take_other))]
    return assemble(best.type, len(best), pieces) if len(best) else null_column(best.type, 0)
