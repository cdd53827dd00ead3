"""ADD_MONTHS (what adding a calendar interval is) and TO_CHAR over whole columns."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from millstream.engine.data.arrow import with_validity
from millstream.engine.data.calendar import INT64_MAX, US_PER_DAY
from millstream.engine.data.calendar import zone as named_zone
from millstream.engine.data.column import Column
from millstream.engine.data.errors import TypeProblem
from millstream.engine.data.types import TEXT, TIMESTAMP
from millstream.engine.expressions.contract import EvaluationContext, Kernel, Rows
from millstream.engine.expressions.dates import civil_arrays, days_of, instant_field
from millstream.engine.expressions.ir import Call
from millstream.engine.expressions.kernel import Compiler, always_null, both_valid, fail_where, is_null_literal
from millstream.protocol.values import arrow_functions as pc

Int64Array = npt.NDArray[np.int64]
_DAYS_MAX = INT64_MAX // US_PER_DAY - 1
_MONTHS_MAX = 12 * 600_000


def build_add_months(call: Call, compiler: Compiler) -> Kernel:
    """Build ADD_MONTHS(instant, months): the same day and time of another month, or its last day, as in PostgreSQL."""
    if any(is_null_literal(a) for a in call.arguments):
        return always_null(call.type)
    instant, months = (compiler.kernel(a) for a in call.arguments)

    def kernel(rows: Rows, context: EvaluationContext) -> Column:
        base, count = instant(rows, context), months(rows, context)
        valid = both_valid(base.valid, count.valid)
        far = np.abs(count.values) > _MONTHS_MAX
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
_TOKEN = re.compile('"([^"]*)"|(' + "|".join(sorted(_FIELDS, key=len, reverse=True)) + r")|([^A-Za-z\"]+)|(.)", re.DOTALL)


def pattern_parts(pattern: str) -> list[str | tuple[str, Callable[[int], str]]]:
    """Return texts and fields of a pattern of TO_CHAR; TypeProblem naming what is neither. Other text stands in double quotes."""
    parts: list[str | tuple[str, Callable[[int], str]]] = []
    for found in _TOKEN.finditer(pattern):
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

    def kernel(rows: Rows, context: EvaluationContext) -> Column:
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
