"""Exact DECIMAL arithmetic on scaled integers: in int64 where bounds allow, else in Python's integers, at most 38 digits.

A result with more digits than its type is a row error. Division rounds half away from zero, the remainder has the sign of the dividend.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from millstream.engine.data.column import Column, Mask
from millstream.engine.data.types import DataType, Kind
from millstream.engine.expressions.arithmetic import BinaryCore, binary, check_divisor, overflow_reason
from millstream.engine.expressions.bounds import COMBINE, INT64_BOUNDS, Bounds, type_bounds, within
from millstream.engine.expressions.ir import Call, Cast, Expression
from millstream.engine.expressions.kernel import Compiler, EvaluationContext, Kernel, always_null, both_valid, is_null_literal, null_or_fail


def build_decimal(call: Call, compiler: Compiler) -> Kernel:
    """Build `+ - * / %` with a DECIMAL result."""
    if any(is_null_literal(a) for a in call.arguments):
        return always_null(call.type)
    left, right = (_without_widening(a) for a in call.arguments)
    scales = (left.type.scale, right.type.scale)
    if call.function in COMBINE:
        core = _combining_core(call.function, call.type, scales)
    elif call.function == "/":
        core = _quotient_core(call.type, scales)
    else:
        core = _remainder_core(call.type, scales)
    return binary(left, right, compiler, core)


def _without_widening(expression: Expression) -> Expression:
    """An integer cast to DECIMAL(n, 0) has the same stored integers, so the cast need not be made."""
    if isinstance(expression, Cast) and expression.argument.type.is_integer and expression.type.scale == 0:
        digits = 10 if expression.argument.type.kind is Kind.INT else 19
        if expression.type.precision >= digits:
            return expression.argument
    return expression


def as_objects(values: Any) -> Any:
    """Return the values as Python integers."""
    return values if values.dtype == np.object_ else values.astype(np.object_)


def as_int64(values: Any) -> Any:
    """Return the values as int64 (they are known to fit)."""
    return values if values.dtype == np.int64 else values.astype(np.int64)


def scale_bounds(bounds: Bounds, factor: int) -> Bounds:
    """Return the bounds times a positive factor."""
    return bounds[0] * factor, bounds[1] * factor


def rescaled(column: Column, factor: int, fits: bool) -> Any:
    """Return the column's integers times `factor`, in int64 when that is known to fit, else as Python integers."""
    values = as_int64(column.values) if fits else as_objects(column.values)
    if factor == 1 or (fits and factor > INT64_BOUNDS[1]):  # only zeros fit in int64 when times such a factor
        return values
    return values * factor


def store_decimal(
    values: Any, type_: DataType, valid: Mask | None, bounds: Bounds | None, context: EvaluationContext, reason: str | None
) -> Column:
    """Return scaled integers as a column of `type_`; rows with too many digits are errors (`reason` None: silently NULL).

    `bounds` are known bounds of the values, None to look at each.
    """
    limits = type_bounds(type_)
    assert limits is not None
    if bounds is None or not within(bounds, limits):
        bad = np.asarray((values < limits[0]) | (values > limits[1]), dtype=np.bool_)
        bounds = None
        if bad.any():
            valid = null_or_fail(context, bad, valid, reason)
            values = np.where(bad, 0, values)
    return Column(type_, as_objects(values) if type_.is_wide else as_int64(values), valid, bounds)


def _combining_core(function: str, type_: DataType, scales: tuple[int, int]) -> BinaryCore:
    ufunc = {"+": np.add, "-": np.subtract, "*": np.multiply}[function]
    combine, reason = COMBINE[function], overflow_reason(type_)
    align = function != "*"
    left_factor = 10 ** (type_.scale - scales[0]) if align else 1
    right_factor = 10 ** (type_.scale - scales[1]) if align else 1

    def core(a: Column, b: Column, context: EvaluationContext) -> Column:
        left, right = scale_bounds(a.bounds(), left_factor), scale_bounds(b.bounds(), right_factor)
        bounds = combine(left, right)
        fits = within(left, INT64_BOUNDS) and within(right, INT64_BOUNDS) and within(bounds, INT64_BOUNDS)
        values = ufunc(rescaled(a, left_factor, fits), rescaled(b, right_factor, fits))
        return store_decimal(values, type_, both_valid(a.valid, b.valid), bounds, context, reason)

    return core


def divide_half_away(numerator: Any, denominator: Any) -> Any:
    """Return the quotient rounded half away from zero, of int64 (twice the numerator plus the denominator must fit) or objects."""
    size = abs(denominator)
    quotient = (2 * abs(numerator) + size) // (2 * size)
    return np.where((numerator < 0) != (denominator < 0), -quotient, quotient)


def _quotient_core(type_: DataType, scales: tuple[int, int]) -> BinaryCore:
    factor, reason = 10 ** (type_.scale - scales[0] + scales[1]), overflow_reason(type_)

    def core(a: Column, b: Column, context: EvaluationContext) -> Column:
        divisor, valid = check_divisor(a, b, context)
        size = 2 * factor * max(abs(v) for v in a.bounds()) + 2 * max(abs(v) for v in b.bounds())
        fits = size <= INT64_BOUNDS[1]
        values = divide_half_away(rescaled(a, factor, fits), as_int64(divisor) if fits else as_objects(divisor))
        return store_decimal(values, type_, valid, None, context, reason)

    return core


def _remainder_core(type_: DataType, scales: tuple[int, int]) -> BinaryCore:
    scale, reason = max(scales), overflow_reason(type_)
    left_factor, right_factor = 10 ** (scale - scales[0]), 10 ** (scale - scales[1])

    def core(a: Column, b: Column, context: EvaluationContext) -> Column:
        divisor, valid = check_divisor(a, b, context)
        left, right = scale_bounds(a.bounds(), left_factor), scale_bounds(b.bounds(), right_factor)
        fits = within(left, INT64_BOUNDS) and within(right, INT64_BOUNDS)
        value = rescaled(a, left_factor, fits)
        by = rescaled(Column(b.type, divisor), right_factor, fits)
        rest = abs(value) % abs(by)
        return store_decimal(np.where(value < 0, -rest, rest), type_, valid, None, context, reason)

    return core


def round_scaled(values: Any, drop: int, mode: str) -> Any:
    """Drop `drop` digits from scaled integers: `round` half away from zero, `floor`, `ceil`, or `trunc` toward zero."""
    if drop <= 0:
        return values
    unit = 10**drop
    if values.dtype == np.int64 and drop > 17:
        values = values.astype(np.object_)
    if mode == "floor":
        return values // unit
    if mode == "ceil":
        return -(-values // unit)
    if mode == "trunc":
        kept = abs(values) // unit
    else:
        kept, rest = abs(values) // unit, abs(values) % unit
        kept = kept + (rest >= unit - unit // 2)
    return np.where(values < 0, -kept, kept)
