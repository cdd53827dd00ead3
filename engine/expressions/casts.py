"""CAST and TRY_CAST. A value that does not fit is a row error, or with TRY_CAST just NULL.

DOUBLE to an integer rounds half to even, DECIMAL to an integer or to fewer digits half away from zero (K13). A DOUBLE becomes the DECIMAL
nearest to its shortest digits, so CAST(2.675e0 AS DECIMAL(10, 2)) is 2.68.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
from millstream.engine.data.calendar import US_PER_DAY
from millstream.engine.data.column import Column, Mask, null_column, numpy_dtype
from millstream.engine.data.types import TEXT, DataType, Kind
from millstream.engine.expressions.arithmetic import float_to_integer
from millstream.engine.expressions.bounds import type_bounds, within
from millstream.engine.expressions.decimals import as_objects, round_scaled, scale_bounds, store_decimal
from millstream.engine.expressions.ir import Cast
from millstream.engine.expressions.kernel import Compiler, EvaluationContext, Kernel, KernelRows, null_or_fail
from millstream.engine.expressions.text_columns import format_column, json_forms, parse_column

# (column, context, reason or None for TRY_CAST) -> column
Conversion = Callable[[Column, EvaluationContext, str | None], Column]


def build_cast(cast: Cast, compiler: Compiler) -> Kernel:
    """Build a cast between two types for which `build.castable` holds."""
    source, target = cast.argument.type, cast.type
    inner = compiler.kernel(cast.argument)
    convert = conversion(source, target)
    reason = None if cast.quiet else f"{source} does not fit {target}"

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        return convert(inner(rows, context), context, reason)

    return kernel


def conversion(source: DataType, target: DataType) -> Conversion:
    """Return the conversion of whole columns."""
    if source == target:
        return lambda column, context, reason: column
    if source.kind is Kind.NULL:
        return lambda column, context, reason: null_column(target, len(column))
    if not source.is_ordered or not target.is_ordered:
        return _nested(source, target)
    if target.kind is Kind.TEXT:
        return lambda column, context, reason: Column(TEXT, format_column(column))
    if source.kind is Kind.TEXT:
        return _from_text(target)
    if target.kind is Kind.DECIMAL:
        return _double_to_decimal(target) if source.kind is Kind.DOUBLE else _rescale(source, target)
    if target.kind is Kind.DOUBLE:
        return lambda column, context, reason: Column(target, to_floats(column), column.valid)
    if target.kind is Kind.BOOLEAN:
        return lambda column, context, reason: Column(target, column.values != 0, column.valid)
    return _to_integers(source, target)


def _nested(source: DataType, target: DataType) -> Conversion:
    """From or to a nested type or JSON."""
    from millstream.engine.expressions.nested import between, of_text

    if target.kind is Kind.TEXT:
        return lambda column, context, reason: Column(TEXT, format_column(column))
    if source.kind in (Kind.TEXT, Kind.JSON):
        return lambda column, context, reason: of_text(column, target, context, reason)
    if target.kind is Kind.JSON:
        return lambda column, context, reason: Column(target, json_forms(column))
    made: Conversion = between(source, target, conversion)
    return made


def _to_integers(source: DataType, target: DataType) -> Conversion:
    """To INT, BIGINT, DATE, TIME, TIMESTAMP or INTERVAL, all stored as integers."""
    if source.kind is Kind.DOUBLE:
        return lambda column, context, reason: float_to_integer(column.values, target, column.valid, context, reason, reason is None)
    if source.kind is Kind.DECIMAL:
        return lambda column, context, reason: _integers(
            round_scaled(column.values, source.scale, "round"), column.valid, target, context, reason, None
        )
    if target.kind is Kind.TIME:  # from TIMESTAMP, in UTC, or the rest of an INTERVAL's days
        return lambda column, context, reason: Column(target, column.values % US_PER_DAY, column.valid)
    if source.kind is Kind.TIME:  # to INTERVAL, since midnight
        return lambda column, context, reason: Column(target, column.values, column.valid)
    if target.kind is Kind.DATE:  # from TIMESTAMP: the day in UTC
        return lambda column, context, reason: _integers(column.values // US_PER_DAY, column.valid, target, context, reason, None)
    if target.kind is Kind.TIMESTAMP:  # from DATE: midnight in UTC
        return _midnights(target)
    dtype = numpy_dtype(target)
    if source.kind is Kind.BOOLEAN:
        return lambda column, context, reason: Column(target, column.values.astype(dtype), column.valid)
    if target.kind is Kind.BIGINT:  # from INT
        return lambda column, context, reason: Column(target, column.values.astype(dtype), column.valid, column.bounds())
    return lambda column, context, reason: _integers(column.values, column.valid, target, context, reason, column.bounds())


def _integers(
    values: Any, valid: Mask | None, target: DataType, context: EvaluationContext, reason: str | None, bounds: tuple[int, int] | None
) -> Column:
    """Store integers in a type that may be too small for some."""
    limits = type_bounds(target)
    assert limits is not None
    if bounds is None or not within(bounds, limits):
        bounds = None
        bad = np.asarray((values < limits[0]) | (values > limits[1]), dtype=np.bool_)
        if bad.any():
            valid = null_or_fail(context, bad, valid, reason)
            values = np.where(bad, 0, values)
    return Column(target, values.astype(numpy_dtype(target)), valid, bounds)


def _midnights(target: DataType) -> Conversion:
    def convert(column: Column, context: EvaluationContext, reason: str | None) -> Column:
        low, high = scale_bounds(column.bounds(), US_PER_DAY)
        limits = type_bounds(target)
        assert limits is not None
        values, valid = column.values.astype(np.int64), column.valid
        if not within((low, high), limits):
            bad = np.abs(values) > limits[1] // US_PER_DAY
            valid, values = null_or_fail(context, bad, valid, reason), np.where(bad, 0, values)
        return Column(target, values * US_PER_DAY, valid)

    return convert


def _rescale(source: DataType, target: DataType) -> Conversion:
    """From an integer or a DECIMAL to a DECIMAL of another scale."""
    grow = target.scale - source.scale

    def convert(column: Column, context: EvaluationContext, reason: str | None) -> Column:
        if grow <= 0:
            return store_decimal(round_scaled(column.values, -grow, "round"), target, column.valid, None, context, reason)
        bounds = scale_bounds(column.bounds(), 10**grow)
        fits = not column.type.is_wide and max(abs(bounds[0]), abs(bounds[1]), 10**grow) < 2**63
        values = column.values.astype(np.int64) if fits else as_objects(column.values)
        return store_decimal(values * 10**grow, target, column.valid, bounds, context, reason)

    return convert


def to_floats(column: Column) -> Any:
    """Return the nearest DOUBLE of each value of a numeric column."""
    scale = column.type.scale
    if scale == 0 and column.values.dtype != np.object_:
        return column.values.astype(np.float64)
    if column.values.dtype != np.object_ and scale <= 22:
        low, high = column.bounds()
        if max(-low, high) <= 2**53:  # both sides are exact, so the one division is rounded correctly
            return column.values / 10.0**scale
    unit = 10**scale
    return np.array([int(v) / unit for v in column.values.tolist()], dtype=np.float64)


def _double_to_decimal(target: DataType) -> Conversion:
    places = Decimal(1).scaleb(-target.scale)
    digits = Context(prec=400)
    limit = 10**target.precision

    def one(value: float) -> int | None:
        if not np.isfinite(value) or abs(value) >= 10.0**38:
            return None
        scaled = int(Decimal(repr(value)).quantize(places, ROUND_HALF_UP, digits).scaleb(target.scale, digits))
        return scaled if abs(scaled) < limit else None

    def convert(column: Column, context: EvaluationContext, reason: str | None) -> Column:
        found = [one(v) for v in column.values.tolist()]
        bad = np.array([v is None for v in found], dtype=np.bool_)
        values = np.array([0 if v is None else v for v in found], dtype=numpy_dtype(target))
        valid = null_or_fail(context, bad, column.valid, reason) if bad.any() else column.valid
        return Column(target, values, valid)

    return convert


def _from_text(target: DataType) -> Conversion:
    def convert(column: Column, context: EvaluationContext, reason: str | None) -> Column:
        parsed = parse_column(column.values, target)
        if reason is not None and parsed.failed:
            _report(parsed.failed, len(column), context)
        return parsed.column

    return convert


def _report(failed: dict[int, str], rows: int, context: EvaluationContext) -> None:
    """Record rows with the same reason together."""
    groups: dict[str, list[int]] = {}
    for position, why in failed.items():
        groups.setdefault(why, []).append(position)
    for why, positions in groups.items():
        mask = np.zeros(rows, dtype=np.bool_)
        mask[positions] = True
        context.fail(mask, why)
