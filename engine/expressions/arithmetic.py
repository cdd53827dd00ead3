"""`+ - * / %` and unary minus on integers, DOUBLEs, instants, dates, times of day and intervals; `& | #` on integers, in 64 bits.

BIGINT results that do not fit are row errors, and so is division by zero of any type. Integer division truncates toward zero, the
remainder has the sign of the dividend (as in PostgreSQL). DOUBLE follows IEEE 754 beyond that: too large becomes Infinity.
The overflow check costs two reductions per input column, remembered by the column; it is only done row by row where these do not
rule an overflow out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from millstream.engine.data.calendar import INT64_MAX, INT64_MIN, US_PER_DAY
from millstream.engine.data.column import Column, Mask, numpy_dtype
from millstream.engine.data.types import BIGINT, TIME, DataType, Kind
from millstream.engine.expressions.bounds import COMBINE, INT64_BOUNDS, Bounds, type_bounds, within
from millstream.engine.expressions.ir import Call, Expression
from millstream.engine.expressions.kernel import (
    Compiler,
    EvaluationContext,
    Kernel,
    KernelRows,
    always_null,
    both_valid,
    constant_value,
    fail_where,
    is_constant,
    is_null_literal,
    null_or_fail,
)

DIVISION_BY_ZERO = "division by zero"
FLOAT_UFUNCS: dict[str, Any] = {"+": np.add, "-": np.subtract, "*": np.multiply}
BinaryCore = Callable[[Column, Column, EvaluationContext], Column]


def overflow_reason(type_: DataType) -> str:
    """Return the reason recorded when a result leaves its type."""
    return f"{type_} overflow"


def build_arithmetic(call: Call, compiler: Compiler) -> Kernel:
    """Build a binary operator by the kinds of its operands and result (decimals.py has those of DECIMAL)."""
    left, right = call.arguments
    if is_null_literal(left) or is_null_literal(right):
        return always_null(call.type)
    if call.type.kind is Kind.DOUBLE:
        return _build_float(call, compiler)
    return binary(left, right, compiler, _integer_core(call))


def _integer_core(call: Call) -> BinaryCore:
    left, right = (a.type.kind for a in call.arguments)
    if Kind.DOUBLE in (left, right):
        return scaled_interval_core(call)
    if call.type.kind is Kind.TIME:
        return clock_core(call.function)
    if call.function in COMBINE:
        return exact_core(call.function, call.type)
    if call.function == "/":
        return rounded_quotient_core(call.type) if left is Kind.INTERVAL else quotient_core(call.type)
    return remainder_core(call.type)


def clock_core(function: str) -> BinaryCore:
    """Return the core that moves a time of day by an INTERVAL, round the clock: whole days change nothing, so nothing overflows."""

    def core(a: Column, b: Column, context: EvaluationContext) -> Column:
        left, right = a.values % US_PER_DAY, b.values % US_PER_DAY
        moved = left + right if function == "+" else left - right
        return Column(TIME, moved % US_PER_DAY, both_valid(a.valid, b.valid))

    return core


def constant_column(expression: Expression) -> Column:
    """Return a constant as a column of one row, which NumPy broadcasts."""
    value = constant_value(expression)
    values = np.empty(1, dtype=numpy_dtype(expression.type))
    values[0] = value
    return Column(expression.type, values, None, None if isinstance(value, float) else (int(value), int(value)))


def binary(left: Expression, right: Expression, compiler: Compiler, core: BinaryCore) -> Kernel:
    """Return the kernel that applies `core` to two operands; a constant operand is one row, never materialised."""
    if is_constant(left) and is_constant(right):
        first = compiler.kernel(left)
        fixed = constant_column(right)
        return lambda rows, context: core(first(rows, context), fixed, context)
    if is_constant(right):
        kernel, constant = compiler.kernel(left), constant_column(right)
        return lambda rows, context: core(kernel(rows, context), constant, context)
    if is_constant(left):
        kernel, constant = compiler.kernel(right), constant_column(left)
        return lambda rows, context: core(constant, kernel(rows, context), context)
    first, second = compiler.kernel(left), compiler.kernel(right)
    return lambda rows, context: core(first(rows, context), second(rows, context), context)


def _build_float(call: Call, compiler: Compiler) -> Kernel:
    ufunc = FLOAT_UFUNCS.get(call.function)
    if ufunc is None:
        return binary(call.arguments[0], call.arguments[1], compiler, float_division_core(call.function))
    left, right = call.arguments
    if is_constant(right) and not is_constant(left):
        return _float_by_constant(ufunc, compiler.kernel(left), float(constant_value(right)), call.type)

    def core(a: Column, b: Column, context: EvaluationContext) -> Column:
        return Column(call.type, ufunc(a.values, b.values), both_valid(a.valid, b.valid))

    return binary(left, right, compiler, core)


def _float_by_constant(ufunc: Any, kernel: Kernel, constant: float, type_: DataType) -> Kernel:
    """The common case `price * 1.1`: one NumPy call."""

    def by_constant(rows: KernelRows, context: EvaluationContext) -> Column:
        column = kernel(rows, context)
        return Column(type_, ufunc(column.values, constant), column.valid)

    return by_constant


def float_division_core(function: str) -> BinaryCore:
    """`/` and `%` of DOUBLEs: any division by zero is an error, NaN over zero too."""
    ufunc = np.divide if function == "/" else np.fmod

    def core(a: Column, b: Column, context: EvaluationContext) -> Column:
        valid = both_valid(a.valid, b.valid)
        zero = b.values == 0.0
        if zero.any():
            valid = fail_where(context, np.broadcast_to(zero, a.values.shape if len(b) == 1 else zero.shape), valid, DIVISION_BY_ZERO)
        return Column(a.type, ufunc(a.values, b.values), valid)

    return core


def exact_core(function: str, type_: DataType) -> BinaryCore:
    """`+ - *` in int64 (DATE results are cut back to int32), with the overflow check."""
    ufunc, combine = FLOAT_UFUNCS[function], COMBINE[function]
    overflows = {"+": _sum_overflows, "-": _difference_overflows, "*": _product_overflows}[function]
    limits = type_bounds(type_)
    assert limits is not None
    reason = overflow_reason(type_)
    dtype = numpy_dtype(type_)

    def core(a: Column, b: Column, context: EvaluationContext) -> Column:
        values = ufunc(a.values, b.values, dtype=np.int64)
        valid = both_valid(a.valid, b.valid)
        bounds: Bounds | None = combine(a.bounds(), b.bounds())
        if not within(bounds, limits):  # type: ignore[arg-type]
            bad = overflows(a.values, b.values, values)
            if limits != INT64_BOUNDS:
                bad |= (values < limits[0]) | (values > limits[1])
            valid, bounds = fail_where(context, bad, valid, reason), None
        return Column(type_, values if dtype is np.int64 else values.astype(dtype), valid, bounds)

    return core


def _sum_overflows(a: Any, b: Any, total: Any) -> Mask:
    """A sum overflowed where its sign differs from both operands' signs."""
    mask: Mask = ((a ^ total) & (b ^ total)) < 0
    return mask


def _difference_overflows(a: Any, b: Any, difference: Any) -> Mask:
    mask: Mask = ((a ^ b) & (a ^ difference)) < 0
    return mask


def _product_overflows(a: Any, b: Any, product: Any) -> Mask:
    """The float product tells, save near the limit, where Python's integers decide."""
    estimate = np.abs(a.astype(np.float64) * b.astype(np.float64))
    bad: Mask = estimate > 9.2234e18
    near = np.flatnonzero((estimate > 9.2233e18) & ~bad)
    if len(near):
        wide_a, wide_b = np.broadcast_to(a, bad.shape), np.broadcast_to(b, bad.shape)
        bad[near] = [not INT64_MIN <= int(wide_a[i]) * int(wide_b[i]) <= INT64_MAX for i in near]
    return bad


def check_divisor(a: Column, b: Column, context: EvaluationContext) -> tuple[Any, Mask | None]:
    """Return the divisors with 1 in place of 0, and validity with the division-by-zero errors taken out."""
    valid = both_valid(a.valid, b.valid)
    zero = b.values == 0
    if not zero.any():
        return b.values, valid
    valid = fail_where(context, np.broadcast_to(zero, np.broadcast_shapes(a.values.shape, b.values.shape)), valid, DIVISION_BY_ZERO)
    return np.where(zero, 1, b.values), valid


def quotient_core(type_: DataType) -> BinaryCore:
    """Integer division, truncated toward zero. The one overflow is the least BIGINT by -1."""

    def core(a: Column, b: Column, context: EvaluationContext) -> Column:
        divisor, valid = check_divisor(a, b, context)
        quotient = np.floor_divide(a.values, divisor)
        if a.bounds()[0] < 0 or b.bounds()[0] < 0:
            quotient += (quotient * divisor != a.values) & ((a.values < 0) != (divisor < 0))
            if a.bounds()[0] == INT64_MIN and b.bounds()[0] < 0:
                valid = fail_where(context, (a.values == INT64_MIN) & (divisor == -1), valid, overflow_reason(type_))
        return Column(type_, quotient, valid)

    return core


def remainder_core(type_: DataType) -> BinaryCore:
    """The remainder of truncating division: it has the sign of the dividend."""

    def core(a: Column, b: Column, context: EvaluationContext) -> Column:
        divisor, valid = check_divisor(a, b, context)
        return Column(type_, np.fmod(a.values, np.where(divisor == -1, 1, divisor)), valid)

    return core


def rounded_quotient_core(type_: DataType) -> BinaryCore:
    """INTERVAL by a whole number, to the nearest microsecond, half away from zero."""

    def core(a: Column, b: Column, context: EvaluationContext) -> Column:
        divisor, valid = check_divisor(a, b, context)
        wide, by = a.values.astype(np.object_), divisor.astype(np.object_)
        exact = [_half_away(int(x), int(y)) for x, y in np.broadcast(wide, by)]
        return narrow_integers(exact, type_, valid, context)

    return core


def _half_away(value: int, divisor: int) -> int:
    quotient = (2 * abs(value) + abs(divisor)) // (2 * abs(divisor))
    return quotient if (value < 0) == (divisor < 0) else -quotient


def narrow_integers(exact: list[int], type_: DataType, valid: Mask | None, context: EvaluationContext) -> Column:
    """Store exact integers in an int64-stored type; those that do not fit are overflows."""
    limits = type_bounds(type_)
    assert limits is not None
    bad = np.array([not limits[0] <= v <= limits[1] for v in exact], dtype=np.bool_)
    values = np.array([0 if b else v for v, b in zip(exact, bad, strict=True)], dtype=np.int64)
    return Column(type_, values, fail_where(context, bad, valid, overflow_reason(type_)))


def scaled_interval_core(call: Call) -> BinaryCore:
    """INTERVAL times or divided by a DOUBLE, to the nearest microsecond."""
    ufunc = FLOAT_UFUNCS.get(call.function, np.divide)

    def core(a: Column, b: Column, context: EvaluationContext) -> Column:
        valid = both_valid(a.valid, b.valid)
        if call.function == "/":
            zero = np.broadcast_to(b.values == 0, np.broadcast_shapes(a.values.shape, b.values.shape))
            valid = fail_where(context, zero, valid, DIVISION_BY_ZERO)
        return float_to_integer(ufunc(a.values, b.values), call.type, valid, context)

    return core


def float_to_integer(
    values: Any, type_: DataType, valid: Mask | None, context: EvaluationContext, reason: str | None = None, quiet: bool = False
) -> Column:
    """Round floats half to even into an integer-stored type; NaN and what does not fit are errors (`quiet`: only NULL)."""
    limits = type_bounds(type_)
    assert limits is not None
    rounded = np.rint(values)
    # 2**63 as a float is one past the greatest int64, so the upper test must be strict.
    bad = ~((rounded >= limits[0]) & (rounded < float(limits[1] + 1)))
    if bad.any():
        rounded = np.where(bad, 0.0, rounded)
        valid = null_or_fail(context, bad, valid, None if quiet else reason or overflow_reason(type_))
    return Column(type_, rounded.astype(numpy_dtype(type_)), valid)


def build_negation(call: Call, compiler: Compiler) -> Kernel:
    """Unary minus; the least BIGINT has no opposite."""
    (argument,) = call.arguments
    if is_null_literal(argument):
        return always_null(call.type)
    kernel, reason = compiler.kernel(argument), overflow_reason(call.type)
    narrow = call.type.kind in (Kind.BIGINT, Kind.INTERVAL)

    def negate(rows: KernelRows, context: EvaluationContext) -> Column:
        column = kernel(rows, context)
        valid = column.valid
        if narrow and column.bounds()[0] == INT64_MIN:
            valid = fail_where(context, column.values == INT64_MIN, valid, reason)
        return Column(call.type, -column.values, valid)

    return negate


OPERATIONS: dict[str, Any] = {"&": np.bitwise_and, "|": np.bitwise_or, "#": np.bitwise_xor}


def build_bitwise(call: Call, compiler: Compiler) -> Kernel:
    """Build one of the three."""
    left, right = call.arguments
    if is_null_literal(left) or is_null_literal(right):
        return always_null(call.type)
    operation = OPERATIONS[call.function]

    def core(a: Column, b: Column, context: EvaluationContext) -> Column:
        return Column(BIGINT, operation(a.values, b.values), both_valid(a.valid, b.valid))

    return binary(left, right, compiler, core)
