"""Durations as text: `10 SECONDS`, `INTERVAL '10' SECOND`, `INTERVAL '1 hour 30 minutes'`, `50ms`. Results are whole microseconds."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Protocol

from millstream.engine.data.durations import SINGULAR_US, parse_duration
from millstream.engine.data.errors import SyntaxProblem

UNITS_US: dict[str, int] = {**SINGULAR_US, **{f"{unit}S": us for unit, us in SINGULAR_US.items()}}
_CALENDAR_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
MONTHS: dict[str, int] = {**_CALENDAR_MONTHS, **{f"{unit}S": months for unit, months in _CALENDAR_MONTHS.items()}}
_CALENDAR_PART = re.compile(r"([+-]?[0-9]+)\s*((?:month|quarter|year)s?)\b", re.IGNORECASE)
_DURATION_MAX_US = 2**62


class Located(Protocol):
    """Anything with a place in the text, such as a token."""

    line: int
    col: int
    text: str


def _refuse(message: str, where: Located | None, hint: str | None = None) -> SyntaxProblem:
    if where is None:
        return SyntaxProblem(message, hint=hint)
    return SyntaxProblem(message, hint=hint, line=where.line, column=where.col, token=where.text)


def scale_us(number: str, unit_us: int, where: Located | None = None) -> int:
    """Return `number` times the unit in microseconds; SyntaxProblem when that is no number or not a whole microsecond."""
    try:
        value = Decimal(number.strip()) * unit_us
    except InvalidOperation:
        raise _refuse(f"'{number}' is not a number of units", where, "write for example INTERVAL '10' SECOND") from None
    if not value.is_finite() or value != value.to_integral_value():
        raise _refuse(f"a duration must be a whole number of microseconds, not {number} of them times {unit_us}", where)
    if abs(value) > _DURATION_MAX_US:
        raise _refuse(f"the duration {number} is too long", where)
    return int(value)


def interval_text_us(text: str, where: Located | None = None) -> int:
    """Return the microseconds of '10 seconds', '1 hour 30 minutes' or '50ms'; SyntaxProblem for anything else."""
    try:
        return parse_duration(text)
    except ValueError as problem:
        raise _refuse(str(problem), where) from None


def months_of(text: str) -> int | None:
    """Return the months of '1 month' or '2 years 3 months'; None when the text is no calendar interval alone."""
    parts = _CALENDAR_PART.findall(text)
    if not parts or _CALENDAR_PART.sub("", text).strip(" ,"):
        return None
    return sum(int(number) * MONTHS[unit.upper()] for number, unit in parts)
