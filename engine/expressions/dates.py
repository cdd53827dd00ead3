"""EXTRACT, DATE_TRUNC, ADD_MONTHS, TO_CHAR, TO_TIMESTAMP and CURRENT_WATERMARK over whole columns, in UTC or by a zone's local calendar.

Weeks are ISO weeks and start on Monday; DOW counts from Sunday = 0, ISODOW from Monday = 1. Parts of an INTERVAL go toward zero, days
having 24 hours.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from millstream.engine.data.arrow import with_validity
from millstream.engine.data.calendar import (
    DAYS_PER_ERA,
    INT64_MAX,
    INT64_MIN,
    US_PER_DAY,
    US_PER_HOUR,
    US_PER_MINUTE,
    US_PER_MS,
    US_PER_S,
)
from millstream.engine.data.calendar import zone as named_zone
from millstream.engine.data.column import Column, null_column
from millstream.engine.data.errors import TypeProblem
from millstream.engine.data.types import BIGINT, DATE, DOUBLE, TEXT, TIMESTAMP, Kind, decimal
from millstream.engine.expressions.arithmetic import exact_core, float_to_integer, overflow_reason
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
from millstream.protocol.values import arrow_functions as pc

Int64Array = npt.NDArray[np.int64]

FIXED_UNITS_US: dict[str, int] = {
    "microseconds": 1,
    "milliseconds": US_PER_MS,
    "second": US_PER_S,
    "minute": US_PER_MINUTE,
    "hour": US_PER_HOUR,
    "day": US_PER_DAY,
}
_YEARS_PER_UNIT = {"decade": 10, "century": 100, "millennium": 1000}


def civil_arrays(days: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return (years, months, days of month) of days since 1970-01-01; see `calendar.civil_from_days`."""
    era, day_of_era = np.divmod(days + 719_468, DAYS_PER_ERA)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    month = np.where(shifted_month < 10, shifted_month + 3, shifted_month - 9)
    return year_of_era + era * 400 + (month <= 2), month, day_of_year - (153 * shifted_month + 2) // 5 + 1


def days_of(year: Any, month: Any, day: Any) -> Int64Array:
    """Return the days since 1970-01-01 of calendar dates; see `calendar.days_from_civil`."""
    shifted = year - (month <= 2)
    era, year_of_era = np.divmod(shifted, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    result: Int64Array = era * DAYS_PER_ERA + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468
    return result


def _iso_year_and_week(days: Int64Array) -> tuple[Int64Array, Int64Array]:
    """A week belongs to the year of its Thursday."""
    thursday = days - (days + 3) % 7 + 3
    year = civil_arrays(thursday)[0]
    return year, (thursday - days_of(year, np.int64(1), np.int64(1))) // 7 + 1


def _counted_from_one(years: Int64Array, size: int) -> Int64Array:
    """Return centuries or millennia: the first began in year 1, and there is none numbered 0."""
    return np.where(years > 0, (years + size - 1) // size, -((1 - years + size - 1) // size))


_CALENDAR_FIELDS: dict[str, Callable[[Int64Array], Any]] = {
    "year": lambda days: civil_arrays(days)[0],
    "quarter": lambda days: (civil_arrays(days)[1] + 2) // 3,
    "month": lambda days: civil_arrays(days)[1],
    "day": lambda days: civil_arrays(days)[2],
    "decade": lambda days: civil_arrays(days)[0] // 10,
    "century": lambda days: _counted_from_one(civil_arrays(days)[0], 100),
    "millennium": lambda days: _counted_from_one(civil_arrays(days)[0], 1000),
    "isoyear": lambda days: _iso_year_and_week(days)[0],
    "week": lambda days: _iso_year_and_week(days)[1],
    "dow": lambda days: (days + 4) % 7,
    "isodow": lambda days: (days + 3) % 7 + 1,
    "doy": lambda days: days - days_of(civil_arrays(days)[0], np.int64(1), np.int64(1)) + 1,
}
_CLOCK_FIELDS: dict[str, Callable[[Int64Array], Any]] = {
    "hour": lambda us: us // US_PER_HOUR,
    "minute": lambda us: us // US_PER_MINUTE % 60,
    "second": lambda us: us // US_PER_S % 60,
    "milliseconds": lambda us: us % US_PER_MINUTE // US_PER_MS,
    "microseconds": lambda us: us % US_PER_MINUTE,
}


def build_extract(call: Call, compiler: Compiler) -> Kernel:
    """Build EXTRACT(field FROM x) with options (field [, zone])."""
    if is_null_literal(call.arguments[0]):
        return always_null(call.type)
    inner, source = compiler.kernel(call.arguments[0]), call.arguments[0].type
    field, zone = call.options[0], call.options[1] if len(call.options) > 1 else None

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        column = inner(rows, context)
        instants = column.values.astype(np.int64) * US_PER_DAY if source == DATE else column.values
        if field == "epoch":
            return store_decimal(instants, call.type, column.valid, None, context, overflow_reason(call.type))
        if source.kind is Kind.INTERVAL:
            return Column(call.type, _interval_field(field, instants), column.valid)
        local = instants if zone is None else named_zone(zone).to_local(instants)
        if source == DATE and field in _CALENDAR_FIELDS:
            return Column(call.type, _CALENDAR_FIELDS[field](column.values.astype(np.int64)), column.valid)
        return Column(call.type, instant_field(field, local), column.valid)

    return kernel


def instant_field(field: str, us: Int64Array) -> Any:
    """Return a field of instants given in microseconds."""
    if field in _CALENDAR_FIELDS:
        return _CALENDAR_FIELDS[field](us // US_PER_DAY)
    return _CLOCK_FIELDS[field](us % US_PER_DAY)


def _interval_field(field: str, us: Int64Array) -> Any:
    size = np.abs(us)
    found = size // US_PER_DAY if field == "day" else _CLOCK_FIELDS[field](size)  # hours are those of the whole: 26 hours have 26
    return np.where(us < 0, -found, found)


def truncate_days(unit: str, days: Int64Array) -> Int64Array:
    """Return the first day of the week, month, quarter, year … of each day."""
    if unit == "week":
        return days - (days + 3) % 7
    year, month, _ = civil_arrays(days)
    one = np.int64(1)
    if unit == "month":
        return days_of(year, month, one)
    if unit == "quarter":
        return days_of(year, (month - 1) // 3 * 3 + 1, one)
    size = _YEARS_PER_UNIT.get(unit, 1)
    # Decades begin in years that end in 0, centuries and millennia in years that end in 1.
    first = (year - 1) // size * size + 1 if unit in ("century", "millennium") else year // size * size
    return days_of(first, one, one)


def truncate_instants(unit: str, us: Int64Array, zone: str | None) -> Int64Array:
    """Return the start of the unit in which each instant lies, by the zone's clocks (None: UTC)."""
    place = None if zone is None else named_zone(zone)
    local = us if place is None else place.to_local(us)
    fixed = FIXED_UNITS_US.get(unit)
    if fixed is not None and (place is None or fixed < US_PER_DAY):
        return us - local % fixed  # counted back from the instant, so the two 01:00 hours of autumn stay apart
    days = local // US_PER_DAY if unit == "day" else truncate_days(unit, local // US_PER_DAY)
    start = days * US_PER_DAY
    return start if place is None else place.to_utc(start)


def build_date_trunc(call: Call, compiler: Compiler) -> Kernel:
    """Build DATE_TRUNC with options (unit [, zone]), of a TIMESTAMP or INTERVAL."""
    if is_null_literal(call.arguments[0]):
        return always_null(call.type)
    inner, reason = compiler.kernel(call.arguments[0]), overflow_reason(call.type)
    unit, zone = call.options[0], call.options[1] if len(call.options) > 1 else None
    interval = call.type.kind is Kind.INTERVAL

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        column = inner(rows, context)
        if interval:
            return Column(call.type, column.values - np.fmod(column.values, FIXED_UNITS_US[unit]), column.valid)
        starts = truncate_instants(unit, column.values, zone)
        # A start after its instant has wrapped round the least int64.
        return Column(call.type, starts, fail_where(context, starts > column.values, column.valid, reason))

    return kernel


def build_to_timestamp(call: Call, compiler: Compiler) -> Kernel:
    """Build TO_TIMESTAMP(seconds)."""
    if is_null_literal(call.arguments[0]):
        return always_null(call.type)
    inner, source, reason = compiler.kernel(call.arguments[0]), call.arguments[0].type, overflow_reason(TIMESTAMP)
    seconds = Column(BIGINT, np.array([US_PER_S], dtype=np.int64), None, (US_PER_S, US_PER_S))
    multiply = exact_core("*", TIMESTAMP)

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        column = inner(rows, context)
        if source.kind is Kind.DOUBLE:
            return float_to_integer(column.values * 1e6, TIMESTAMP, column.valid, context, reason)
        if source.kind is Kind.DECIMAL:
            return _from_decimal(column, context, reason)
        return multiply(column, seconds, context)

    return kernel


def _from_decimal(column: Column, context: EvaluationContext, reason: str) -> Column:
    scale = column.type.scale
    exact = as_objects(column.values) * 10 ** max(6 - scale, 0)
    rounded = round_scaled(exact, scale - 6, "round")
    bad = np.asarray((rounded <= INT64_MIN) | (rounded >= 2**63), dtype=np.bool_)
    valid = fail_where(context, bad, column.valid, reason)
    stored = store_decimal(np.where(bad, 0, rounded), decimal(19, 0), valid, None, context, reason)
    return Column(TIMESTAMP, stored.values.astype(np.int64), valid)


def build_sampling_weight(call: Call, compiler: Compiler) -> Kernel:
    """SAMPLING_WEIGHT(): 1 over the chance that the row was kept; NULL where rows are not shed by chance."""

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        if context.weights is None:
            return Column(DOUBLE, np.ones(rows.rows, dtype=np.float64))
        values = context.weights()
        known = values > 0.0
        return Column(DOUBLE, values, None if known.all() else known)

    return kernel


def build_arrival(call: Call, compiler: Compiler) -> Kernel:
    """The arrival number of the row; for the planner alone (`plan/splitting.py`)."""

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        assert context.arrivals is not None
        return Column(call.type, context.arrivals())

    return kernel


def build_current_watermark(call: Call, compiler: Compiler) -> Kernel:
    """CURRENT_WATERMARK(): W as the row saw it; NULL before there is one, and where nobody knows it."""

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        if context.watermark_us is None:
            return null_column(TIMESTAMP, rows.rows)
        values = context.watermark_us()
        known = values != INT64_MIN
        return Column(TIMESTAMP, values, None if known.all() else known)

    return kernel


_DAYS_MAX = INT64_MAX // US_PER_DAY - 1
_MONTHS_MAX = 12 * 600_000


def build_add_months(call: Call, compiler: Compiler) -> Kernel:
    """Build ADD_MONTHS(instant, months): the same day and time of another month, or its last day, as in PostgreSQL."""
    if any(is_null_literal(a) for a in call.arguments):
        return always_null(call.type)
    instant, months = (compiler.kernel(a) for a in call.arguments)

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        base, count = instant(rows, context), months(rows, context)
        valid = both_valid(base.valid, count.valid)
        far = (count.values > _MONTHS_MAX) | (count.values < -_MONTHS_MAX)
        shift = np.where(far, 0, count.values)
        days, time = np.divmod(base.values, US_PER_DAY)
        year, month, day = civil_arrays(days)
        year, month = np.divmod(year * 12 + month - 1 + shift, 12)
        first = days_of(year, month + 1, np.int64(1))
        length = days_of(year + (month + 1) // 12, (month + 1) % 12 + 1, np.int64(1)) - first
        moved = first + np.minimum(day, length) - 1
        bad = far | (np.abs(moved) > _DAYS_MAX)
        valid = fail_where(context, bad, valid, "TIMESTAMP out of range")
        return Column(TIMESTAMP, np.where(bad, 0, moved) * US_PER_DAY + time, valid)

    return kernel


# -- TO_CHAR ------------------------------------------------------------------------------------------------------------------


def _padded(width: int) -> Callable[[int], str]:
    return lambda value: f"{value:0{width}d}"


def _named(names: Any, style: Callable[[str], str]) -> Callable[[int], str]:
    return lambda value: style(names[value])


def _same(text: str) -> str:
    return text


# Pattern -> (field of EXTRACT or of the day, how its value is written). Longest first where one begins another.
_FIELDS: dict[str, tuple[str, Callable[[int], str]]] = {
    "YYYY": ("year", _padded(4)), "IYYY": ("isoyear", _padded(4)), "YY": ("year", lambda v: f"{v % 100:02d}"),
    "MM": ("month", _padded(2)), "DDD": ("doy", _padded(3)), "DD": ("day", _padded(2)), "ID": ("isodow", str),
    "D": ("dow", lambda v: str(v + 1)), "IW": ("week", _padded(2)), "Q": ("quarter", str), "HH24": ("hour", _padded(2)),
    "HH12": ("hour", lambda v: f"{(v + 11) % 12 + 1:02d}"), "HH": ("hour", lambda v: f"{(v + 11) % 12 + 1:02d}"),
    "MI": ("minute", _padded(2)), "SS": ("second", _padded(2)), "MS": ("milliseconds", lambda v: f"{v % 1_000:03d}"),
    "US": ("microseconds", lambda v: f"{v % 1_000_000:06d}"),
    "AM": ("hour", lambda v: "AM" if v < 12 else "PM"), "PM": ("hour", lambda v: "AM" if v < 12 else "PM"),
    "am": ("hour", lambda v: "am" if v < 12 else "pm"), "pm": ("hour", lambda v: "am" if v < 12 else "pm"),
    "Mon": ("month", _named(calendar.month_abbr, _same)), "MON": ("month", _named(calendar.month_abbr, str.upper)),
    "mon": ("month", _named(calendar.month_abbr, str.lower)),
    "Dy": ("isodow", _named(("", *calendar.day_abbr), _same)), "DY": ("isodow", _named(("", *calendar.day_abbr), str.upper)),
    "dy": ("isodow", _named(("", *calendar.day_abbr), str.lower)),
    "FMMonth": ("month", _named(calendar.month_name, _same)), "FMDay": ("isodow", _named(("", *calendar.day_name), _same)),
    "FMMM": ("month", str), "FMDD": ("day", str), "FMHH24": ("hour", str),
}  # fmt: skip
PATTERN_TOKEN = re.compile('"([^"]*)"|(' + "|".join(sorted(_FIELDS, key=len, reverse=True)) + r")|([^A-Za-z\"]+)|(.)", re.DOTALL)


def pattern_parts(pattern: str) -> list[str | tuple[str, Callable[[int], str]]]:
    """Return texts and fields of a pattern of TO_CHAR; TypeProblem naming what is neither. Other text stands in double quotes."""
    parts: list[str | tuple[str, Callable[[int], str]]] = []
    for found in PATTERN_TOKEN.finditer(pattern):
        quoted, field, plain, other = found.groups()
        if other is not None:
            raise TypeProblem(
                f"TO_CHAR does not know {pattern[found.start() :]!r}", hint=f"use {', '.join(_FIELDS)}; other text in double quotes"
            )
        parts.append(_FIELDS[field] if field is not None else quoted if quoted is not None else plain)
    return parts


def build_to_char(call: Call, compiler: Compiler) -> Kernel:
    """Build TO_CHAR(instant, 'pattern' [, 'zone'])."""
    if is_null_literal(call.arguments[0]):
        return always_null(call.type)
    inner = compiler.kernel(call.arguments[0])
    parts = pattern_parts(call.options[0])
    zone = named_zone(call.options[1]) if len(call.options) > 1 else None

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        column = inner(rows, context)
        local = column.values if zone is None else zone.to_local(column.values)
        written = [pa.repeat(pa.scalar(p), rows.rows) if isinstance(p, str) else _written(instant_field(p[0], local), p[1]) for p in parts]
        joined = pc.binary_join_element_wise(*written, "") if written else pa.repeat(pa.scalar(""), rows.rows)
        return Column(TEXT, with_validity(joined, column.valid))

    return kernel


def _written(values: Int64Array, write: Callable[[int], str]) -> Any:
    """Write each different value once."""
    different, places = np.unique(values, return_inverse=True)
    return pa.array([write(v) for v in different.tolist()], pa.string()).take(pa.array(places))
