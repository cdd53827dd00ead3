"""Types of the functions over instants, dates and intervals: EXTRACT, DATE_TRUNC, ADD_MONTHS, TO_CHAR, TO_TIMESTAMP, CURRENT_WATERMARK."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

from millstream.engine.data.errors import TypeProblem
from millstream.engine.data.types import BIGINT, DATE, DOUBLE, INTERVAL, NULL, TEXT, TIME, TIMESTAMP, DataType, decimal
from millstream.engine.expressions.signature import Rule, Signature, expect_count, refuse_argument

Types = tuple[DataType, ...]
Options = tuple[Any, ...]

# EXTRACT's fields and the type of each. SECOND is the whole second; MILLISECONDS and MICROSECONDS count from the start of the minute.
# EPOCH is in seconds, with the fraction.
FIELDS: dict[str, DataType] = {
    **dict.fromkeys(("millennium", "century", "decade", "year", "isoyear", "quarter", "month", "week", "day"), BIGINT),
    **dict.fromkeys(("dow", "isodow", "doy", "hour", "minute", "second", "milliseconds", "microseconds"), BIGINT),
    "epoch": decimal(18, 6),
}
INTERVAL_FIELDS = ("day", "hour", "minute", "second", "milliseconds", "microseconds", "epoch")
FIELD_ALIASES = {
    "years": "year", "quarters": "quarter", "months": "month", "weeks": "week", "weekofyear": "week", "days": "day",
    "dayofmonth": "day", "dayofweek": "dow", "weekday": "dow", "dayofyear": "doy", "day_of_week": "dow", "day_of_year": "doy",
    "hours": "hour", "minutes": "minute", "seconds": "second", "sec": "second", "min": "minute",
    "millisecond": "milliseconds", "ms": "milliseconds", "microsecond": "microseconds", "us": "microseconds",
}  # fmt: skip
UNITS = (
    "microseconds", "milliseconds", "second", "minute", "hour", "day", "week", "month", "quarter", "year", "decade", "century",
    "millennium",
)  # fmt: skip


def field_name(name: str, field: Any, allowed: tuple[str, ...]) -> str:
    """Return the canonical field or unit, or raise TypeProblem listing what there is."""
    text = str(field).lower()
    text = FIELD_ALIASES.get(text, text)
    if text not in allowed:
        raise TypeProblem(f"{name.upper()} does not know the unit {field!r}", hint=f"use one of {', '.join(allowed)}")
    return text


def check_zone(zone: Any) -> str:
    """Return the name of a time zone, or raise TypeProblem when there is none of that name."""
    try:
        return ZoneInfo(str(zone)).key
    except (ValueError, OSError, KeyError) as error:
        raise TypeProblem(f"there is no time zone {str(zone)!r}", hint="use a name such as 'Europe/Berlin'") from error


def extract(name: str, types: Types, options: Options) -> Signature:
    """EXTRACT(field FROM x), options (field [, zone]), of a TIMESTAMP, DATE, TIME or INTERVAL; by default in UTC."""
    if not options:
        raise TypeProblem("EXTRACT needs a field written out, as in EXTRACT(HOUR FROM ts)")
    expect_count(name, types, 1, 1)
    type_ = TIMESTAMP if types[0] == NULL else types[0]
    if type_ not in (TIMESTAMP, DATE, TIME, INTERVAL):
        refuse_argument(name, 0, types[0], "a TIMESTAMP, DATE, TIME or INTERVAL")
    allowed = INTERVAL_FIELDS if type_ == INTERVAL else INTERVAL_FIELDS[1:] if type_ == TIME else tuple(FIELDS)
    field = field_name(name, options[0], allowed)
    zone = (check_zone(options[1]),) if len(options) > 1 and options[1] is not None and type_ == TIMESTAMP else ()
    return Signature("extract", (type_,), FIELDS[field], (field, *zone))


def shorthand(name: str, types: Types, options: Options) -> Signature:
    """YEAR(ts), MONTH(ts) … are EXTRACT."""
    return extract("extract", types, (name, *options))


def date_trunc(name: str, types: Types, options: Options) -> Signature:
    """DATE_TRUNC('unit', ts [, 'zone']), options (unit [, zone]): the start of the unit, in UTC or by the zone's local calendar."""
    if not options:
        raise TypeProblem("DATE_TRUNC needs its unit as a constant, as in DATE_TRUNC('hour', ts)")
    expect_count(name, types, 1, 1)
    unit = field_name(name, options[0], UNITS)
    if types[0] == INTERVAL:
        field_name(name, unit, UNITS[:6])
        return Signature(name, (INTERVAL,), INTERVAL, (unit,))
    if types[0] not in (TIMESTAMP, DATE, NULL):
        refuse_argument(name, 1, types[0], "a TIMESTAMP, DATE or INTERVAL")
    zone = (check_zone(options[1]),) if len(options) > 1 and options[1] is not None else ()
    return Signature(name, (TIMESTAMP,), TIMESTAMP, (unit, *zone))


def to_timestamp(name: str, types: Types, options: Options) -> Signature:
    """TO_TIMESTAMP(seconds since 1970), exact for integers and DECIMALs; TO_TIMESTAMP(text, 'pattern' [, 'zone'])."""
    if types[:1] == (TEXT,) and (options or len(types) > 1):
        from millstream.engine.expressions.text_formats import parse_timestamp  # few queries have it

        return parse_timestamp(name, types, options)
    expect_count(name, types, 1, 1)
    type_ = BIGINT if types[0] == NULL or types[0].is_integer else types[0]
    if not type_.is_numeric:
        refuse_argument(name, 0, type_, "a number of seconds", "write TO_TIMESTAMP(t, 'DD/MM/YYYY'), or CAST(t AS TIMESTAMP) for ISO 8601")
    return Signature(name, (type_,), TIMESTAMP)


def current_watermark(name: str, types: Types, options: Options) -> Signature:
    """CURRENT_WATERMARK(): W as the row saw it, NULL before there is one."""
    expect_count(name, types, 0, 0)
    return Signature(name, (), TIMESTAMP)


def sampling_weight(name: str, types: Types, options: Options) -> Signature:
    """SAMPLING_WEIGHT(): how many rows that were offered a kept row stands for; 1 where nothing was shed."""
    expect_count(name, types, 0, 0)
    return Signature(name, (), DOUBLE)


def add_months(name: str, types: Types, options: Options) -> Signature:
    """ADD_MONTHS(ts, n): what `ts + INTERVAL 'n months'` means."""
    expect_count(name, types, 2, 2)
    if types[0] not in (TIMESTAMP, DATE, NULL):
        refuse_argument(name, 0, types[0], "a TIMESTAMP or DATE")
    if not (types[1].is_integer or types[1] == NULL):
        refuse_argument(name, 1, types[1], "a whole number of months")
    return Signature(name, (TIMESTAMP, BIGINT), TIMESTAMP)


def to_char(name: str, types: Types, options: Options) -> Signature:
    """TO_CHAR(ts, 'pattern' [, 'zone']), options (pattern [, zone])."""
    if types and types[0].is_numeric:
        refuse_argument(name, 0, types[0], "a TIMESTAMP or DATE", "for a number use CAST(x AS TEXT), ROUND and LPAD")
    if not options:
        raise TypeProblem("TO_CHAR needs its pattern as a constant, as in TO_CHAR(ts, 'YYYY-MM-DD HH24:MI:SS')")
    expect_count(name, types, 1, 1)
    if types[0] not in (TIMESTAMP, DATE, NULL):
        refuse_argument(name, 0, types[0], "a TIMESTAMP or DATE")
    from millstream.engine.expressions.dates import pattern_parts  # that file's kernels build on this one's rules

    pattern_parts(str(options[0]))
    zone = (check_zone(options[1]),) if len(options) > 1 and options[1] is not None else ()
    return Signature(name, (TIMESTAMP,), TEXT, (str(options[0]), *zone))


DATE_RULES: dict[str, Rule] = {
    "extract": extract,
    "date_part": extract,
    "add_months": add_months,
    "to_char": to_char,
    "date_trunc": date_trunc,
    "to_timestamp": to_timestamp,
    "current_watermark": current_watermark,
    "sampling_weight": sampling_weight,
    **dict.fromkeys(("year", "quarter", "month", "week", "day", "hour", "minute", "second", "epoch"), shorthand),
    **dict.fromkeys(("dayofweek", "dayofyear", "dayofmonth", "isodow", "isoyear", "dow", "doy"), shorthand),
}
