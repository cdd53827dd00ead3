"""Durations as text: `10 SECONDS`, `INTERVAL '10' SECOND`, `'1 day 02:03:04.5'`, `PT1M30S`, `50ms`. Microseconds inside."""

from __future__ import annotations

import re
from fractions import Fraction

from millstream.engine.data.calendar import (
    INT64_MAX,
    INT64_MIN,
    US_PER_DAY,
    US_PER_HOUR,
    US_PER_MINUTE,
    US_PER_MS,
    US_PER_S,
    US_PER_WEEK,
)

SINGULAR_US = {
    "WEEK": US_PER_WEEK,
    "DAY": US_PER_DAY,
    "HOUR": US_PER_HOUR,
    "MINUTE": US_PER_MINUTE,
    "SECOND": US_PER_S,
    "MILLISECOND": US_PER_MS,
    "MICROSECOND": 1,
}
UNITS_US: dict[str, int] = {
    **dict.fromkeys(("microsecond", "us", "usec", "µs"), 1),
    **dict.fromkeys(("millisecond", "ms", "msec"), US_PER_MS),
    **dict.fromkeys(("second", "sec", "s"), US_PER_S),
    **dict.fromkeys(("minute", "min", "m"), US_PER_MINUTE),
    **dict.fromkeys(("hour", "hr", "h"), US_PER_HOUR),
    **dict.fromkeys(("day", "d"), US_PER_DAY),
    **dict.fromkeys(("week", "w"), US_PER_WEEK),
}
CALENDAR_UNITS = frozenset(("month", "mon", "quarter", "year", "yr", "y", "decade", "century"))

_QUOTED = re.compile(r"(?:interval\s+)?'([^']*)'\s*([a-z]*)", re.IGNORECASE)
_PART = re.compile(r"([+-]?)\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-zµ]+)\s*,?\s*", re.IGNORECASE)
_CLOCK = re.compile(r"([+-]?)([0-9]+):([0-9]{2})(?::([0-9]{2}(?:\.[0-9]*)?))?")
_ISO = re.compile(
    r"(-?)P(?:([0-9.]+)W)?(?:([0-9.]+)D)?(?:T(?:([0-9.]+)H)?(?:([0-9.]+)M)?(?:([0-9.]+)S)?)?", re.IGNORECASE
)  # fmt: skip
_ISO_UNITS_US = (US_PER_WEEK, US_PER_DAY, US_PER_HOUR, US_PER_MINUTE, US_PER_S)


def unit_us(name: str) -> int:
    """Return the microseconds of a unit's name in any case, singular or plural; ValueError when it has no fixed length."""
    lowered = name.lower()
    singular = lowered[:-1] if lowered not in UNITS_US and lowered.endswith("s") else lowered
    if singular in CALENDAR_UNITS:
        raise ValueError(f"a {singular} has no fixed length; use DAY or WEEK")
    if singular not in UNITS_US:
        raise ValueError(f"{name!r} is not a unit of time")
    return UNITS_US[singular]


def parse_duration(text: str) -> int:
    """Return the microseconds of a duration; ValueError with the reason when the text is none."""
    stripped = text.strip()
    quoted = _QUOTED.fullmatch(stripped)
    if quoted is not None:
        inner, unit = quoted[1].strip(), quoted[2]
        total = _parts(f"{inner} {unit}" if unit else inner, text)
    else:
        total = _parts(re.sub(r"(?i)^interval\s+", "", stripped), text)
    if total.denominator != 1:
        total = Fraction(round(total))
    if not INT64_MIN < total <= INT64_MAX:
        raise ValueError(f"{text!r} is out of the range of INTERVAL")
    return int(total)


def _parts(text: str, shown: str) -> Fraction:
    """Add up parts such as `1 day 2 hours`, the last perhaps a clock time; or read ISO 8601."""
    iso = _ISO.fullmatch(text)
    if iso is not None and any(iso.groups()[1:]):
        return _iso(iso, shown)
    total, at, found = Fraction(0), 0, False
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            return total + _clock(text[at:], shown)
        value = Fraction(part[2]) * unit_us(part[3])
        total += -value if part[1] == "-" else value
        at, found = part.end(), True
    if not found:
        raise ValueError(f"{shown!r} is not a duration (write 10 SECONDS)")
    return total


def _iso(match: re.Match[str], shown: str) -> Fraction:
    try:
        total = sum((Fraction(v) * u for v, u in zip(match.groups()[1:], _ISO_UNITS_US, strict=True) if v), Fraction(0))
    except ValueError as error:
        raise ValueError(f"{shown!r} is not a duration (write 10 SECONDS)") from error
    return -total if match[1] else total


def _clock(text: str, shown: str) -> Fraction:
    match = _CLOCK.fullmatch(text.strip())
    if match is None or int(match[3]) > 59 or Fraction(match[4] or 0) >= 60:
        raise ValueError(f"{shown!r} is not a duration (write 10 SECONDS)")
    total = int(match[2]) * US_PER_HOUR + int(match[3]) * US_PER_MINUTE + Fraction(match[4] or 0) * US_PER_S
    return Fraction(-total if match[1] == "-" else total)


def format_duration(us: int) -> str:
    """Return hours, minutes and seconds: 00:00:10, -36:00:00, 00:00:00.250."""
    seconds, fraction = divmod(abs(us), US_PER_S)
    shown = "" if fraction == 0 else f".{fraction // 1000:03d}" if fraction % 1000 == 0 else f".{fraction:06d}"
    return f"{'-' if us < 0 else ''}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{shown}"


def duration_text(us: int) -> str:
    """Return the shortest spelling that reads back to the same microseconds, such as `10 SECONDS`."""
    for unit, size in SINGULAR_US.items():
        if us % size == 0 and (us or unit == "SECOND"):
            count = us // size
            return f"{count} {unit}" if abs(count) == 1 else f"{count} {unit}S"
    return f"{us} MICROSECONDS"
