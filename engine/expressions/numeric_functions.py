"""ABS SIGN ROUND TRUNC FLOOR CEIL and the functions that compute in DOUBLE.

ROUND goes half away from zero for every type; digits may be negative. Domain errors (SQRT of a negative number …) are row errors, as
in PostgreSQL; NaN gives NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from millstream.engine.data.arrays import distinct
from millstream.engine.data.calendar import INT64_MIN
from millstream.engine.data.column import Column, Mask
from millstream.engine.data.types import BOOLEAN, DOUBLE, DataType, Kind
from millstream.engine.expressions.arithmetic import narrow_integers, overflow_reason
from millstream.engine.expressions.decimals import as_objects, round_scaled, store_decimal
from millstream.engine.expressions.ir import Call
from millstream.engine.expressions.kernel import (
    Compiler,
    EvaluationContext,
    Kernel,
    KernelRows,
    always_null,
    both_valid,
    fail_where,
    is_null_literal,
)


def build_absolute(call: Call, compiler: Compiler) -> Kernel:
    """ABS; the least BIGINT has no absolute value."""
    inner, narrow = compiler.kernel(call.arguments[0]), call.type.kind in (Kind.BIGINT, Kind.INTERVAL)

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        column = inner(rows, context)
        valid = column.valid
        if narrow and column.bounds()[0] == INT64_MIN:
            valid = fail_where(context, column.values == INT64_MIN, valid, overflow_reason(call.type))
        return Column(call.type, abs(column.values), valid)

    return kernel


def build_sign(call: Call, compiler: Compiler) -> Kernel:
    """SIGN: -1, 0 or 1."""
    inner = compiler.kernel(call.arguments[0])

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        column = inner(rows, context)
        if call.type == DOUBLE:
            return Column(DOUBLE, np.sign(column.values), column.valid)
        sign = np.asarray(column.values > 0, dtype=np.int32) - np.asarray(column.values < 0, dtype=np.int32)
        return Column(call.type, sign, column.valid)

    return kernel


def build_rounding(call: Call, compiler: Compiler) -> Kernel:
    """ROUND, TRUNC, FLOOR, CEIL by the type of the argument."""
    if any(is_null_literal(a) for a in call.arguments):
        return always_null(call.type)
    source = call.arguments[0].type
    if len(call.arguments) == 2 and not call.options:
        return _varying_digits(call, compiler)
    digits = int(call.options[0]) if call.options else 0
    inner = compiler.kernel(call.arguments[0])
    change = _rounding_of(call.function, source, call.type, digits)
    return lambda rows, context: change(inner(rows, context), context)


def _rounding_of(mode: str, source: DataType, target: DataType, digits: int) -> Callable[[Column, EvaluationContext], Column]:
    if source.kind is Kind.DOUBLE:
        return lambda column, context: Column(DOUBLE, round_floats(column.values, digits, mode), column.valid)
    if source.kind is Kind.DECIMAL:
        return lambda column, context: _round_decimal(column, target, digits, mode, context)
    if digits >= 0:
        return lambda column, context: column
    return lambda column, context: _round_integers(column, digits, mode, context)


def round_floats(values: Any, digits: int, mode: str) -> Any:
    """Round floats to digits after the point (before it when negative); what cannot be scaled stays as it is."""
    whole = {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc}.get(mode, round_half_away)
    if digits == 0:
        return whole(values)
    if abs(digits) > 308:
        return values if digits > 0 else values * 0.0
    factor = 10.0 ** abs(digits)
    rounded = whole(values * factor) / factor if digits > 0 else whole(values / factor) * factor
    return np.where(np.isfinite(rounded), rounded, values)


def round_half_away(values: Any) -> Any:
    """Round floats to whole numbers, half away from zero. Adding 0.5 would be wrong just below a half."""
    kept = np.trunc(values)
    return kept + np.where(np.abs(values - kept) >= 0.5, np.copysign(1.0, values), 0.0)


def _round_decimal(column: Column, target: DataType, digits: int, mode: str, context: EvaluationContext) -> Column:
    drop = column.type.scale - digits
    values = round_scaled(column.values, min(drop, 39), mode) if drop > 0 else column.values
    # The result keeps at least scale 0, so rounding before the point is scaled back up.
    if drop > 0 and digits < target.scale:
        grow = 10 ** min(target.scale - digits, 39)
        values = as_objects(values) * grow
    elif drop <= 0 and target.scale > column.type.scale:
        values = as_objects(values) * 10 ** (target.scale - column.type.scale)
    return store_decimal(values, target, column.valid, None, context, overflow_reason(target))


def _round_integers(column: Column, digits: int, mode: str, context: EvaluationContext) -> Column:
    drop = min(-digits, 20)
    exact = round_scaled(column.values.astype(np.object_), drop, mode) * 10**drop
    return narrow_integers([int(v) for v in exact], column.type, column.valid, context)


def _varying_digits(call: Call, compiler: Compiler) -> Kernel:
    """Digits from a column: one pass for each different number of digits."""
    inner, counts = compiler.kernel(call.arguments[0]), compiler.kernel(call.arguments[1])
    source = call.arguments[0].type

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        column, digits = inner(rows, context), counts(rows, context)
        values, valid = column.values.copy(), both_valid(column.valid, digits.valid)
        for count in distinct(digits.values):
            chosen = digits.values == count
            part = EvaluationContext()
            change = _rounding_of(call.function, source, call.type, max(-400, min(400, int(count))))
            rounded = change(column.filter(chosen), part)
            values[chosen] = rounded.values
            if part.errors:
                bad = np.zeros(rows.rows, dtype=np.bool_)
                bad[np.flatnonzero(chosen)[part.errors[0][0]]] = True
                valid = fail_where(context, bad, valid, part.errors[0][1])
        return Column(call.type, values, valid)

    return kernel


# Function -> (computation, where it is not defined, the reason). None: defined everywhere.
_Test = Callable[[Any], Mask]
FLOAT_FUNCTIONS: dict[str, tuple[Callable[[Any], Any], _Test | None, str]] = {
    "sqrt": (np.sqrt, lambda x: x < 0, "square root of a negative number"),
    "cbrt": (np.cbrt, None, ""),
    "ln": (np.log, lambda x: x <= 0, "logarithm of a number that is not positive"),
    "log2": (np.log2, lambda x: x <= 0, "logarithm of a number that is not positive"),
    "log10": (np.log10, lambda x: x <= 0, "logarithm of a number that is not positive"),
    "exp": (np.exp, lambda x: (x > 709.782712893384) & np.isfinite(x), "DOUBLE overflow"),
    "sin": (np.sin, np.isinf, "sine of infinity"),
    "cos": (np.cos, np.isinf, "cosine of infinity"),
    "tan": (np.tan, np.isinf, "tangent of infinity"),
    "asin": (np.arcsin, lambda x: np.abs(x) > 1, "arc sine outside -1 to 1"),
    "acos": (np.arccos, lambda x: np.abs(x) > 1, "arc cosine outside -1 to 1"),
    "atan": (np.arctan, None, ""),
    "degrees": (np.degrees, None, ""),
    "radians": (np.radians, None, ""),
}


def build_float_function(call: Call, compiler: Compiler) -> Kernel:
    """Build a function of one DOUBLE."""
    compute, undefined, reason = FLOAT_FUNCTIONS[call.function]
    inner = compiler.kernel(call.arguments[0])

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        column = inner(rows, context)
        valid = column.valid if undefined is None else fail_where(context, undefined(column.values), column.valid, reason)
        return Column(DOUBLE, compute(column.values), valid)

    return kernel


def _power(a: Any, b: Any) -> tuple[Any, list[tuple[Mask, str]]]:
    result = np.power(a, b)
    broken = (a < 0) & np.isfinite(b) & (np.trunc(b) != b)
    infinite = np.isinf(result) & np.isfinite(a) & np.isfinite(b)
    return result, [
        (broken, "negative number to a broken power"),
        ((a == 0) & (b < 0), "zero to a negative power"),
        (infinite & (a != 0), "DOUBLE overflow"),
    ]


def _logarithm(base: Any, x: Any) -> tuple[Any, list[tuple[Mask, str]]]:
    result = np.log(x) / np.log(base)
    return result, [((x <= 0) | (base <= 0), "logarithm of a number that is not positive"), (base == 1, "division by zero")]


def _arc_tangent(a: Any, b: Any) -> tuple[Any, list[tuple[Mask, str]]]:
    return np.arctan2(a, b), []


_PAIRS = {"power": _power, "log": _logarithm, "atan2": _arc_tangent}


def build_float_pair(call: Call, compiler: Compiler) -> Kernel:
    """Build a function of two DOUBLEs."""
    left, right = (compiler.kernel(a) for a in call.arguments)
    compute = _PAIRS[call.function]

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        a, b = left(rows, context), right(rows, context)
        values, problems = compute(a.values, b.values)
        valid = both_valid(a.valid, b.valid)
        for bad, reason in problems:
            valid = fail_where(context, bad, valid, reason)
        return Column(DOUBLE, values, valid)

    return kernel


_FLOAT_TESTS: dict[str, Callable[[Any], Mask]] = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}


def build_float_test(call: Call, compiler: Compiler) -> Kernel:
    """ISNAN, ISINF, ISFINITE."""
    inner, test = compiler.kernel(call.arguments[0]), _FLOAT_TESTS[call.function]

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        column = inner(rows, context)
        return Column(BOOLEAN, test(column.values), column.valid)

    return kernel


def build_pi(call: Call, compiler: Compiler) -> Kernel:
    """PI()."""
    return lambda rows, context: Column(DOUBLE, np.full(rows.rows, math.pi))
