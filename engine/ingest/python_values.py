"""Lists of Python values, as msgpack and JSON give them, to a stream's column; the same rules as for Arrow arrays."""

from __future__ import annotations

import datetime
import decimal as python_decimal
import math
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import arrow_type
from millstream.engine.data.calendar import INT32_MAX, INT32_MIN, US_PER_DAY, US_PER_S
from millstream.engine.data.calendar import zone as named_zone
from millstream.engine.data.column import Column, numpy_dtype
from millstream.engine.data.types import BIGINT, INT, TIMESTAMP, DataType, Kind
from millstream.engine.expressions.values import SPECIAL_DOUBLES, check_integer, check_timestamp, is_number, parse_value
from millstream.engine.ingest.arrays import Rules, convert_array
from millstream.engine.ingest.checks import NESTED_HINT, OUT_OF_RANGE, Converted, Failed, instants_from_units, unit_needed
from millstream.protocol.values import Number

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_EPOCH_DAY = datetime.date(1970, 1, 1)


# What Python type alone a column of each kind may hold to be made at once.
_QUICK: dict[Kind, type] = {Kind.BIGINT: int, Kind.INT: int, Kind.DOUBLE: float, Kind.BOOLEAN: bool, Kind.TEXT: str}
_TEXTUAL = (Kind.TIMESTAMP, Kind.DATE, Kind.TIME, Kind.INTERVAL)


def convert_values(values: list[Any], type_: DataType, rules: Rules) -> Converted:
    """Return a list of Python values (None is NULL) as a column of `type_`, with the rows that do not fit and why."""
    kind, present = type_.kind, set(map(type, values))
    wanted = _QUICK.get(kind)
    if wanted is None and kind in _TEXTUAL:
        wanted = int if rules.bare_instants and rules.unit is None and int in present else str
    with_nulls = type(None) in present
    present.discard(type(None))
    if wanted is not None and present == {wanted}:
        try:
            return _at_once(values, type_, wanted, with_nulls, rules)
        except (OverflowError, pa.ArrowInvalid, UnicodeEncodeError):
            pass  # one value is too large or not UTF-8: find out which
    return _one_by_one(values, type_, rules)


def _at_once(values: list[Any], type_: DataType, wanted: type, with_nulls: bool, rules: Rules) -> Converted:
    """Make the column of values that all have the one type, NULLs apart."""
    if wanted is str:
        texts = pa.array(values, pa.string())
        return (Column(type_, texts), {}) if type_.is_arrow else convert_array(texts, type_, rules)
    valid = None
    if with_nulls:
        valid = np.array([v is not None for v in values], dtype=np.bool_)
        values = [wanted() if v is None else v for v in values]
    if type_.kind in (Kind.DOUBLE, Kind.BOOLEAN):
        return Column(type_, np.array(values, dtype=numpy_dtype(type_)), valid), {}
    stored = np.array(values, dtype=np.int64)
    if type_.kind is Kind.TIME and len(stored) and not 0 <= int(stored.min()) <= int(stored.max()) < US_PER_DAY:
        raise OverflowError
    dtype = numpy_dtype(type_)
    if dtype is np.int32:
        if len(stored) and not INT32_MIN <= int(stored.min()) <= int(stored.max()) <= INT32_MAX:
            raise OverflowError
        stored = stored.astype(np.int32)
    return Column(type_, stored, valid), {}


def _one_by_one(values: list[Any], type_: DataType, rules: Rules) -> Converted:
    failed: Failed = {}
    found: list[Any] = []
    for i, value in enumerate(values):
        try:
            found.append(None if value is None else convert_value(value, type_, rules))
        except ValueError as error:
            failed[i] = str(error)
            found.append(None)
    if type_.is_arrow:
        return Column(type_, pa.array(found, arrow_type(type_))), failed
    valid = np.array([v is not None for v in found], dtype=np.bool_)
    stored = np.empty(len(found), dtype=numpy_dtype(type_))
    stored[:] = [0 if v is None else v for v in found]
    return Column(type_, stored, None if valid.all() else valid), failed


def convert_value(value: Any, type_: DataType, rules: Rules) -> Any:
    """Return one value that is not None in storage form; ValueError when it does not fit."""
    match type_.kind:
        case Kind.TEXT:
            return _text(value)
        case Kind.BOOLEAN:
            if isinstance(value, bool):
                return value
        case Kind.INT | Kind.BIGINT:
            return check_integer(_whole(value, type_), type_)
        case Kind.DOUBLE:
            return _double(value)
        case Kind.DECIMAL:
            return _decimal(value, type_)
        case Kind.TIMESTAMP:
            return _timestamp(value, rules)
        case Kind.DATE:
            if rules.bare_instants and type(value) is int:
                return check_integer(value, INT)
            if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
                return (value - _EPOCH_DAY).days
            if isinstance(value, str) and not isinstance(value, Number):
                return parse_value(value, type_)
        case Kind.TIME:
            if isinstance(value, datetime.time) or (rules.bare_instants and type(value) is int):
                return _time_of_day(value)
            if isinstance(value, str) and not isinstance(value, Number):
                return parse_value(value, type_, exact=True)
        case Kind.BYTES:
            if isinstance(value, bytes | bytearray | memoryview):
                return bytes(value)
            if isinstance(value, str) and not isinstance(value, Number):
                return parse_value(value, type_)
        case Kind.INTERVAL:
            if rules.bare_instants and type(value) is int:
                return check_integer(value, BIGINT)
            if isinstance(value, datetime.timedelta):
                return (value.days * 86_400 + value.seconds) * US_PER_S + value.microseconds
            if isinstance(value, str) and not isinstance(value, Number):
                return parse_value(value, type_)
    raise _misfit(value, type_)


def _time_of_day(value: datetime.time | int) -> int:
    """Return microseconds since midnight; ValueError for an integer beyond the day, and for a time of a zone, which is no time of day."""
    if isinstance(value, int):
        if not 0 <= value < US_PER_DAY:
            raise ValueError(f"{value} is out of the range of TIME")
        return value
    if value.tzinfo is not None:
        raise ValueError("a TIME has no offset")
    return ((value.hour * 60 + value.minute) * 60 + value.second) * US_PER_S + value.microsecond


def _misfit(value: Any, type_: DataType | str) -> ValueError:
    if isinstance(value, dict | list | tuple):
        what = "an object" if isinstance(value, dict) else "a list"
        return ValueError(f"{what} is not {type_} ({NESTED_HINT})")
    shown = f"text {value!r}" if isinstance(value, str) and not isinstance(value, Number) else str(value)
    return ValueError(f"{shown if len(shown) <= 50 else shown[:47] + '...'} is not {type_}")


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"invalid UTF-8 at byte {error.start}") from error
    if not isinstance(value, str) or isinstance(value, Number):
        raise _misfit(value, "TEXT")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(f"half of a surrogate pair at position {error.start + 1}") from error
    return value


def _whole(value: Any, type_: DataType) -> int:
    """Return an integer; floats and decimals only when they are whole and still exact."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
        return int(value)
    if isinstance(value, Number | python_decimal.Decimal):
        exact = python_decimal.Decimal(value)
        if exact.is_finite() and exact.adjusted() < 40 and exact == exact.to_integral_value():
            return int(exact)
    raise _misfit(value, type_)


def _double(value: Any) -> float:
    if isinstance(value, bool):
        raise _misfit(value, "DOUBLE")
    if isinstance(value, Number | int | float | python_decimal.Decimal):
        try:
            found = float(value)
        except OverflowError:
            found = math.inf
        if math.isinf(found) and value != found:
            raise ValueError(f"{str(value)[:40]} is out of the range of DOUBLE")
        return found
    special = SPECIAL_DOUBLES.get(value.strip().lower()) if isinstance(value, str) else None
    if special is None:
        raise _misfit(value, "DOUBLE")
    return special


def _decimal(value: Any, type_: DataType) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | str | python_decimal.Decimal):
        raise _misfit(value, type_)
    if isinstance(value, int) and abs(value) >= 10**40:
        raise ValueError(f"{str(value)[:40]} is out of the range of {type_}")
    text = repr(value) if isinstance(value, float) else str(value)
    scaled: int = parse_value(text, type_, exact=True)
    return scaled


def _timestamp(value: Any, rules: Rules) -> int:
    if isinstance(value, datetime.datetime):
        return _from_datetime(value, rules.zone)
    if isinstance(value, str) and not isinstance(value, Number):
        if is_number(value.strip()):
            raise ValueError(unit_needed(value.strip()))
        parsed: int = parse_value(value, TIMESTAMP, rules.zone, exact=not rules.unit_round)
        return parsed
    if isinstance(value, int | float | Number | python_decimal.Decimal) and not isinstance(value, bool):
        unit = rules.unit or ("us" if rules.bare_instants else None)
        if unit is None:
            raise ValueError(unit_needed(value))
        instants, bad = instants_from_units(np.array([check_integer(_whole(value, BIGINT), BIGINT)], dtype=np.int64), unit)
        if bad is not None:
            raise ValueError(f"{value} {unit} is {OUT_OF_RANGE}")
        return check_timestamp(int(instants[0]), value)
    raise _misfit(value, TIMESTAMP)


def _from_datetime(value: datetime.datetime, zone: str | None) -> int:
    naive = value.tzinfo is None
    since = (value.replace(tzinfo=datetime.UTC) if naive else value) - _EPOCH
    us = (since.days * 86_400 + since.seconds) * US_PER_S + since.microseconds
    if naive and zone is not None:
        us = int(named_zone(zone).to_utc(np.array([us], dtype=np.int64))[0])
    return check_timestamp(us, value)
