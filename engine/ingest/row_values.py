"""A column from plain values (of msgpack or JSON rows): all at once where they have one type, one by one where they do not.

What fits what: integers fit INT, BIGINT, DECIMAL and DOUBLE; a number with a fraction fits DOUBLE and DECIMAL (a DECIMAL must hold
all its digits), and an integer column when the fraction is zero; text fits TEXT, TIMESTAMP, DATE, INTERVAL, DECIMAL, and for
DOUBLE only the words NaN, Infinity and -Infinity. Text never fits an integer column, nor a number a TEXT column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.column import Column, Mask, numpy_dtype
from millstream.engine.expressions.calendar import INT32_MAX, INT32_MIN
from millstream.engine.expressions.parsing import parse_column
from millstream.engine.expressions.values import SPECIAL_DOUBLES, check_integer, check_timestamp, parse_decimal, parse_value, shortened
from millstream.engine.ingest.outcome import Reasons
from millstream.engine.schema import Field
from millstream.engine.types import DataType, Kind

FLOAT_EXACT_MAX = 2**53
_NONE = type(None)


def value_column(values: Sequence[Any], field: Field, reasons: Reasons, *, zone: str | None, bare_instants: bool) -> Column:
    """Return the column of a field; a value that does not fit is NULL there, with a reason noted."""
    types = set(map(type, values))
    quick = _quick(values, types, field.type, bare_instants)
    if quick is not None:
        return quick
    if field.type.kind is not Kind.TEXT and types <= {str, _NONE} and _text_fits(field.type):
        parsed = parse_column(pa.array(values, type=pa.string()), field.type, zone, exact=True) if _is_valid_text(values) else None
        if parsed is not None:
            for index, reason in parsed.failed.items():
                reasons.add(index, f"column {field.name}: {reason}")
            return parsed.column
    return _singly(values, field, reasons, zone, bare_instants)


def _text_fits(type_: DataType) -> bool:
    return type_.kind in (Kind.TIMESTAMP, Kind.DATE, Kind.INTERVAL, Kind.DECIMAL)


def _is_valid_text(values: Sequence[Any]) -> bool:
    try:
        "".join(v for v in values if v is not None).encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON escapes can spell
        return False
    return True


def _quick(values: Sequence[Any], types: set[type], type_: DataType, bare_instants: bool) -> Column | None:
    """Return the column when all values have the type that fits it as it stands, else None."""
    if types <= {_NONE}:
        return _filled(values, type_, lambda: np.zeros(len(values), dtype=numpy_dtype(type_))) if not type_.is_arrow else None
    present = types - {_NONE}
    if type_.kind is Kind.TEXT:
        return Column(type_, pa.array(values, type=pa.string())) if present == {str} and _is_valid_text(values) else None
    integral = type_.is_integer or (bare_instants and type_.kind in (Kind.TIMESTAMP, Kind.INTERVAL))
    if present == {int} and integral:
        return _quick_integers(values, type_)
    if present == {float} and type_.kind is Kind.DOUBLE:
        return _filled(values, type_, lambda: np.array([0.0 if v is None else v for v in values], dtype=np.float64))
    if present == {bool} and type_.kind is Kind.BOOLEAN:
        return _filled(values, type_, lambda: np.array([v is True for v in values], dtype=np.bool_))
    return None


def _quick_integers(values: Sequence[Any], type_: DataType) -> Column | None:
    try:
        array = np.array([0 if v is None else v for v in values], dtype=np.int64)
    except OverflowError:
        return None
    if type_.kind is Kind.INT:
        if len(array) and (array.max() > INT32_MAX or array.min() < INT32_MIN):
            return None
        array = array.astype(np.int32)
    elif type_.kind is Kind.TIMESTAMP and len(array) and array.min() == np.iinfo(np.int64).min:
        return None
    return _filled(values, type_, lambda: array)


def _filled(values: Sequence[Any], type_: DataType, make: Callable[[], Any]) -> Column:
    valid: Mask | None = None
    if None in values:
        valid = np.array([v is not None for v in values], dtype=np.bool_)
    return Column(type_, make(), valid)


def _singly(values: Sequence[Any], field: Field, reasons: Reasons, zone: str | None, bare_instants: bool) -> Column:
    stored: list[Any] = []
    for index, value in enumerate(values):
        try:
            stored.append(None if value is None else store_value(value, field.type, zone, bare_instants))
        except ValueError as error:
            reasons.add(index, f"column {field.name}: {error}")
            stored.append(None)
    if field.type.is_arrow:
        return Column(field.type, pa.array(stored, type=pa.string()))
    array = np.zeros(len(stored), dtype=numpy_dtype(field.type))
    for index, value in enumerate(stored):
        if value is not None:
            array[index] = value
    return _filled(stored, field.type, lambda: array)


def store_value(value: Any, type_: DataType, zone: str | None, bare_instants: bool) -> Any:
    """Return one plain value in the storage form of a type; ValueError with a reason when it does not fit."""
    kind = type_.kind
    if isinstance(value, bytes):
        value = _decoded(value)
    if isinstance(value, str):
        return _from_text(value, type_, zone)
    if isinstance(value, bool):
        if kind is Kind.BOOLEAN:
            return value
    elif isinstance(value, int | float | Decimal):
        if type_.is_numeric:
            return _from_number(value, type_)
        if isinstance(value, int) and bare_instants and kind in (Kind.TIMESTAMP, Kind.DATE, Kind.INTERVAL):
            return _from_bare_integer(value, type_)
        if isinstance(value, int) and kind is Kind.TIMESTAMP:
            raise ValueError(f"{value} has no unit: write an ISO 8601 text, or declare the column BIGINT with TIMESTAMP BY … UNIT")
    shown = shortened(value) if isinstance(value, str) else repr(value)
    raise ValueError(f"{shown} is not {type_}")


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ValueError("not valid UTF-8") from None


def _from_text(value: str, type_: DataType, zone: str | None) -> Any:
    if type_.kind is Kind.TEXT:
        if not _is_valid_text([value]):
            raise ValueError("not valid Unicode text (a lone surrogate)")
        return value
    if _text_fits(type_):
        return parse_value(value, type_, zone, exact=True)
    if type_.kind is Kind.DOUBLE and value.lower() in SPECIAL_DOUBLES:
        return SPECIAL_DOUBLES[value.lower()]
    raise ValueError(f"the text {shortened(value)} is not {type_}")


def _from_number(value: float | Decimal, type_: DataType) -> Any:
    if type_.kind is Kind.DOUBLE:
        try:
            number = float(value)
        except OverflowError:
            raise ValueError(f"{value} is out of the range of DOUBLE") from None
        if math.isinf(number) and not (isinstance(value, float) and math.isinf(value)) and not _is_special(value):
            raise ValueError(f"{value} is out of the range of DOUBLE")
        return number
    if _is_special(value):
        raise ValueError(f"{value} is not {type_}")
    if type_.kind is Kind.DECIMAL:
        return parse_decimal(repr(value) if isinstance(value, float) else str(value), type_, exact=True)
    if isinstance(value, int):
        return check_integer(value, type_)
    if value != int(value):
        raise ValueError(f"{value} is not {type_}")
    if isinstance(value, float) and abs(value) > FLOAT_EXACT_MAX:
        raise ValueError(f"{value} came as a floating-point number too large to be exact: send it as an integer")
    return check_integer(int(value), type_)


def _is_special(value: float | Decimal) -> bool:
    if isinstance(value, Decimal):
        return not value.is_finite()
    return isinstance(value, float) and not math.isfinite(value)


def _from_bare_integer(value: int, type_: DataType) -> int:
    if type_.kind is Kind.TIMESTAMP:
        if not -(2**63) < value < 2**63:
            raise ValueError(f"{value} is out of the range of TIMESTAMP")
        return check_timestamp(value, value)
    low, high = (INT32_MIN, INT32_MAX) if type_.kind is Kind.DATE else (-(2**63), 2**63 - 1)
    if not low <= value <= high:
        raise ValueError(f"{value} is out of the range of {type_}")
    return value
