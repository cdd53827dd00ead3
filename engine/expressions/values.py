"""One value at a time: text to the storage form of a type, and back. ValueError, with a reason for the user, when it does not fit.

Instants are ISO 8601: `2024-05-06T12:53:20.715Z`, `2024-05-06 12:53:20+02:00`, a date alone (midnight); without an offset the text
is local time of `zone` or UTC. Digits beyond the microsecond are cut off, so no row moves into the next second or window. Durations:
`10 SECONDS`, `INTERVAL '10' SECOND`, `'10 seconds'`, `1 day 02:03:04.5`, `PT1M30S`. `text_columns.py` does the same for whole columns.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from millstream.engine.data.calendar import (
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    US_PER_DAY,
    US_PER_HOUR,
    US_PER_MINUTE,
    US_PER_S,
    civil_from_days,
    days_from_civil,
    days_in_month,
)
from millstream.engine.data.calendar import zone as named_zone
from millstream.engine.data.durations import format_duration, parse_duration
from millstream.engine.data.types import DataType, Kind

INTEGER_TEXT = re.compile(r"[+-]?[0-9]+")
NUMBER_TEXT = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,6}))?")
SPECIAL_DOUBLES = {
    "nan": math.nan, "+nan": math.nan, "-nan": math.nan,
    "inf": math.inf, "+inf": math.inf, "-inf": -math.inf,
    "infinity": math.inf, "+infinity": math.inf, "-infinity": -math.inf,
}  # fmt: skip
BOOLEANS = {
    "true": True, "t": True, "yes": True, "y": True, "on": True, "1": True,
    "false": False, "f": False, "no": False, "n": False, "off": False, "0": False,
}  # fmt: skip
TIMESTAMP_TEXT = re.compile(
    r"([+-]?[0-9]{4,7})-([0-9]{2})-([0-9]{2})"
    r"(?:(?:[Tt]| +)([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]+))?)?"
    r" ?(?:([Zz]|UTC)|([+-])([0-9]{2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?)?)?"
)
TIME_TEXT = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]+))?)?")
HEX_TEXT = re.compile(r"\\[xX]((?:[0-9a-fA-F]{2})*)")
SPACE = " \t\r\n"


def shortened(text: str) -> str:
    """Return the text in quotes for a message, cut when long."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


def parse_integer(text: str, type_: DataType) -> int:
    """Return the INT or BIGINT that the text spells in digits."""
    stripped = text.strip(SPACE)
    if INTEGER_TEXT.fullmatch(stripped) is None:
        raise ValueError(f"{shortened(text)} is not {type_}")
    if len(stripped) > 60:
        stripped = re.sub(r"^([+-]?)0+(?=[0-9])", r"\1", stripped)
        if len(stripped) > 60:
            raise ValueError(f"{shortened(text)} is out of the range of {type_}")
    return check_integer(int(stripped), type_)


def check_integer(value: int, type_: DataType) -> int:
    """Return the value when INT or BIGINT holds it, else raise ValueError."""
    low, high = (INT32_MIN, INT32_MAX) if type_.kind is Kind.INT else (INT64_MIN, INT64_MAX)
    if not low <= value <= high:
        raise ValueError(f"{value} is out of the range of {type_}")
    return value


def parse_double(text: str) -> float:
    """Return the DOUBLE nearest to the number the text spells; NaN, Infinity and -Infinity in any case."""
    stripped = text.strip(SPACE)
    special = SPECIAL_DOUBLES.get(stripped.lower())
    if special is not None:
        return special
    match = NUMBER_TEXT.fullmatch(stripped)
    if match is None or not (match[2] or match[3]):
        raise ValueError(f"{shortened(text)} is not DOUBLE")
    value = float(stripped)
    if math.isinf(value):
        raise ValueError(f"{shortened(text)} is out of the range of DOUBLE")
    return value


def is_number(text: str) -> bool:
    """Whether the text is digits, perhaps with a sign, a point and an exponent."""
    match = NUMBER_TEXT.fullmatch(text)
    return match is not None and bool(match[2] or match[3])


def parse_decimal(text: str, type_: DataType, *, exact: bool = False) -> int:
    """Return the scaled integer of a DECIMAL; digits beyond the scale round half away from zero, or with `exact` are refused."""
    match = NUMBER_TEXT.fullmatch(text.strip(SPACE))
    if match is None or not (match[2] or match[3]):
        raise ValueError(f"{shortened(text)} is not {type_}")
    fraction = match[3] or ""
    digits = (match[2] + fraction).lstrip("0") or "0"
    shift = int(match[4] or 0) - len(fraction) + type_.scale
    if digits == "0":
        return 0
    if len(digits) + shift > type_.precision:
        raise ValueError(f"{shortened(text)} is out of the range of {type_}")
    value = int(digits) * 10**shift if shift >= 0 else _rounded_digits(digits, -shift, text, type_, exact)
    return check_decimal(-value if match[1] == "-" else value, type_)


def _rounded_digits(digits: str, drop: int, text: str, type_: DataType, exact: bool) -> int:
    kept, dropped = digits[:-drop], digits[-drop:].rjust(drop, "0") if drop <= len(digits) else "0"
    if exact and digits[-drop:].strip("0"):
        raise ValueError(f"{shortened(text)} has more than {type_.scale} digits after the point")
    return int(kept or "0") + (dropped[0] >= "5")


def check_decimal(value: int, type_: DataType) -> int:
    """Return the scaled value when it has no more digits than the type."""
    if abs(value) >= 10**type_.precision:
        raise ValueError(f"{format_decimal(value, type_.scale)} is out of the range of {type_}")
    return value


def parse_boolean(text: str) -> bool:
    """Return the BOOLEAN: true/false, t/f, yes/no, y/n, on/off, 1/0 in any case."""
    value = BOOLEANS.get(text.strip(SPACE).lower())
    if value is None:
        raise ValueError(f"{shortened(text)} is not BOOLEAN")
    return value


def parse_date(text: str) -> int:
    """Return the days since 1970-01-01; a time of day is refused."""
    match = TIMESTAMP_TEXT.fullmatch(text.strip(SPACE))
    if match is None or match[4] is not None:
        raise ValueError(f"{shortened(text)} is not DATE (write YYYY-MM-DD)")
    days = _days(match, text)
    if not INT32_MIN <= days <= INT32_MAX:
        raise ValueError(f"{shortened(text)} is out of the range of DATE")
    return days


def parse_time(text: str, *, exact: bool = False) -> int:
    """Return the microseconds since midnight; finer digits round half to even, or with `exact` are refused."""
    match = TIME_TEXT.fullmatch(text.strip(SPACE))
    if match is None:
        raise ValueError(f"{shortened(text)} is not TIME (write hh:mm:ss)")
    fraction = match[4] or ""
    us, finer = int(fraction[:6].ljust(6, "0")), fraction[6:].rstrip("0")
    if finer and exact:
        raise ValueError(f"{shortened(text)} is finer than a microsecond")
    us += finer > "5" or (finer == "5" and us % 2 == 1)
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    value = hour * US_PER_HOUR + minute * US_PER_MINUTE + second * US_PER_S + us
    if minute > 59 or second > 59 or value >= US_PER_DAY:
        raise ValueError(f"{shortened(text)} names a time of day that does not exist")
    return value


def parse_bytes(text: str) -> bytes:
    r"""Return the bytes that `\x` and digits spell."""
    match = HEX_TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"{shortened(text)} is not BYTES (write \\x and two hexadecimal digits a byte)")
    return bytes.fromhex(match[1])


def parse_timestamp(text: str, zone: str | None = None, *, exact: bool = False) -> int:
    """Return the microseconds since 1970 in UTC; text without an offset is local time of `zone` (None: UTC).

    Digits finer than a microsecond round half to even, or with `exact` are refused (K12). ValueError, with a reason, when it is no instant.
    """
    match = TIMESTAMP_TEXT.fullmatch(text.strip(SPACE))
    if match is None:
        raise ValueError(f"{shortened(text)} is not TIMESTAMP (write YYYY-MM-DDThh:mm:ss, perhaps with an offset)")
    value = _days(match, text) * US_PER_DAY
    if match[4] is not None:
        value += _time_of_day_us(match, text, exact)
    if match[8] is None and match[9] is None:
        value = _local_to_utc(value, zone, text)
    elif match[9] is not None:
        value -= _offset_us(match, text)
    return check_timestamp(value, text)


def check_timestamp(value: int, shown: object) -> int:
    """Return the microseconds when a TIMESTAMP holds them (the least int64 is kept free for "no time"), else raise ValueError."""
    if not INT64_MIN < value <= INT64_MAX:
        raise ValueError(f"{shortened(str(shown))} is out of the range of TIMESTAMP")
    return value


def _days(match: re.Match[str], text: str) -> int:
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    if not 1 <= month <= 12 or not 1 <= day <= days_in_month(year, month):
        raise ValueError(f"{shortened(text)} names a day that does not exist")
    return days_from_civil(year, month, day)


def _time_of_day_us(match: re.Match[str], text: str, exact: bool) -> int:
    """Hours to 24:00:00 and a leap second :60 are taken, and roll over."""
    hour, minute, second = int(match[4]), int(match[5]), int(match[6] or 0)
    fraction = match[7] or ""
    us, finer = int(fraction[:6].ljust(6, "0")), fraction[6:].rstrip("0")
    if finer and exact:
        raise ValueError(f"{shortened(text)} is finer than a microsecond (TIMESTAMP BY … ROUND rounds it)")
    us += finer > "5" or (finer == "5" and us % 2 == 1)
    if hour > 24 or minute > 59 or second > 60 or (hour == 24 and (minute or second or us)):
        raise ValueError(f"{shortened(text)} names a time of day that does not exist")
    return hour * US_PER_HOUR + minute * US_PER_MINUTE + second * US_PER_S + us


def _offset_us(match: re.Match[str], text: str) -> int:
    hours, minutes, seconds = int(match[10]), int(match[11] or 0), int(match[12] or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError(f"{shortened(text)} has an impossible offset")
    offset = hours * US_PER_HOUR + minutes * US_PER_MINUTE + seconds * US_PER_S
    return -offset if match[9] == "-" else offset


def _local_to_utc(value: int, zone: str | None, text: str) -> int:
    if zone is None:
        return value
    if abs(value) > INT64_MAX - 2 * US_PER_DAY:
        raise ValueError(f"{shortened(text)} is out of the range of TIMESTAMP")
    return int(named_zone(zone).to_utc(np.array([value], dtype=np.int64))[0])


def parse_value(text: str, type_: DataType, zone: str | None = None, *, exact: bool = False) -> Any:
    """Return the value of any type but LIST in its storage form; ValueError, with a reason, when the text is none."""
    match type_.kind:
        case Kind.TEXT:
            return text
        case Kind.INT | Kind.BIGINT:
            return parse_integer(text, type_)
        case Kind.DOUBLE:
            return parse_double(text)
        case Kind.DECIMAL:
            return parse_decimal(text, type_, exact=exact)
        case Kind.BOOLEAN:
            return parse_boolean(text)
        case Kind.TIMESTAMP:
            return parse_timestamp(text, zone, exact=exact)
        case Kind.DATE:
            return parse_date(text)
        case Kind.TIME:
            return parse_time(text, exact=exact)
        case Kind.BYTES:
            return parse_bytes(text)
        case Kind.INTERVAL:
            return parse_duration(text)
    raise ValueError(f"{type_} cannot be read from text")


def format_decimal(value: int, scale: int) -> str:
    """Return the exact digits, `scale` of them after the point."""
    if scale == 0:
        return str(value)
    digits = str(abs(value)).rjust(scale + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def format_double(value: float) -> str:
    """Return the shortest digits that read back as the same DOUBLE; NaN, Infinity, -Infinity."""
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def format_date(days: int) -> str:
    """Return YYYY-MM-DD (more digits and a sign for years beyond 0000 to 9999)."""
    year, month, day = civil_from_days(days)
    shown = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}"
    return f"{shown}-{month:02d}-{day:02d}"


def format_timestamp(us: int) -> str:
    """Return ISO 8601 in UTC with no, three or six digits of fraction: 2024-05-06T12:53:20Z."""
    days, rest = divmod(us, US_PER_DAY)
    return f"{format_date(days)}T{format_duration(rest)}Z"


def format_value(value: Any, type_: DataType) -> str | None:
    """Return the text of one stored value as CSV shows it; None for NULL."""
    if value is None:
        return None
    match type_.kind:
        case Kind.BOOLEAN:
            return "true" if value else "false"
        case Kind.DOUBLE:
            return format_double(float(value))
        case Kind.DECIMAL:
            return format_decimal(int(value), type_.scale)
        case Kind.TIMESTAMP:
            return format_timestamp(int(value))
        case Kind.DATE:
            return format_date(int(value))
        case Kind.TIME:
            return format_duration(int(value))
        case Kind.BYTES:
            return "\\x" + bytes(value).hex()
        case Kind.INTERVAL:
            return format_duration(int(value))
    return str(value)
