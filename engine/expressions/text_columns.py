"""Whole columns to text and back: what CAST, CSV, and error rows use. The same spelling as `values.format_value` and `values.parse_value`.

Rows in the plain spelling go through Arrow's parsers at once; only the others are looked at one by one.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import (
    arrow_field,
    arrow_type,
    column_from_arrow,
    column_to_arrow,
    mask_from_arrow,
    validity_of,
    with_validity,
)
from millstream.engine.data.calendar import INT64_MIN
from millstream.engine.data.calendar import zone as named_zone
from millstream.engine.data.column import Column, Mask, numpy_dtype
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import BYTES, DataType, Kind
from millstream.engine.expressions.values import format_decimal, format_double, format_timestamp, format_value, parse_bytes, parse_value
from millstream.protocol.values import arrow_functions as pc

# datetime64 writes the years 0000 to 9999 in one width; others are written one by one.
_YEAR_0000_US = -62_167_219_200_000_000
_YEAR_10000_US = 253_402_300_800_000_000


def format_column(column: Column) -> Any:
    """Return the Arrow string array that shows the column, NULL where it is NULL."""
    kind = column.type.kind
    if kind in (Kind.TEXT, Kind.JSON):
        return column.values
    if kind in (Kind.INT, Kind.BIGINT):
        return pc.cast(with_validity(pa.array(column.values), column.valid), pa.string())
    if kind is Kind.BOOLEAN:
        return with_validity(pa.array(["false", "true"]).take(pa.array(column.values.view(np.int8))), column.valid)
    if kind is Kind.NULL:
        return pa.nulls(len(column), pa.string())
    if column.type.is_nested:
        return json_forms(column)
    if kind is Kind.BYTES:
        from millstream.protocol.values.text import hex_texts  # few streams have such columns

        return hex_texts(column.values)
    return with_validity(pa.array(_texts(column), pa.string()), column.valid)


def json_forms(column: Column) -> Any:
    """Return the JSON forms of a column as an Arrow string array, NULL where it is NULL."""
    from millstream.protocol.values.text import json_texts  # not needed by those who write no JSON

    return json_texts(column_to_arrow(column), arrow_field("", column.type))


def _texts(column: Column) -> list[str]:
    """Return the texts of a NumPy-stored column, of the arbitrary values under NULL too."""
    values, type_ = column.values, column.type
    if type_.kind is Kind.DOUBLE:
        return [repr(v) if v - v == 0.0 else format_double(v) for v in values.tolist()]
    if type_.kind is Kind.DECIMAL:
        scale = type_.scale
        return [format_decimal(v, scale) for v in values.tolist()]
    if type_.kind is Kind.TIMESTAMP:
        return _timestamp_texts(values)
    return [str(format_value(v, type_)) for v in values.tolist()]


def _timestamp_texts(values: Any) -> list[str]:
    plain = (values >= _YEAR_0000_US) & (values < _YEAR_10000_US)
    if not plain.all():
        return [format_timestamp(v) if v != INT64_MIN else "" for v in values.tolist()]
    texts: list[str] = np.datetime_as_string(values.astype("datetime64[us]"), unit="us").tolist()
    if not (values % 1_000_000).any():
        return [t[:19] + "Z" for t in texts]
    return [_shortened(t) for t in texts]


def _shortened(text: str) -> str:
    """Keep no, three or six digits of the fraction."""
    if text.endswith("000"):
        return text[:19] + "Z" if text.endswith("000000") else text[:23] + "Z"
    return text + "Z"


_CLOCK = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_LOCAL_TIMESTAMP = _CLOCK + "$"
_OFFSET_TIMESTAMP = _CLOCK + r"(Z|[+-][0-9]{2}:[0-9]{2})$"
_WIDTH_LEAST, _WIDTH_MOST = 19, 27  # of a timestamp: to the second without an offset, to the microsecond with a Z
_TIME = r"^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?$"
_PLAIN: dict[Kind, str] = {
    Kind.INT: r"^-?[0-9]{1,9}$",
    Kind.BIGINT: r"^-?[0-9]{1,18}$",
    Kind.DOUBLE: r"^-?[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?$",
    Kind.DATE: r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
}


@dataclass(slots=True)
class Parsed:
    """A parsed column. `failed` maps the position of each row that did not fit to the reason; such rows are NULL in the column."""

    column: Column
    failed: dict[int, str] = field(default_factory=dict)


def parse_column(texts: Any, type_: DataType, zone: str | None = None, *, exact: bool = False) -> Parsed:
    """Return an Arrow string array as a column of `type_`; NULL stays NULL.

    `zone` is the zone of TIMESTAMP text without an offset; `exact` refuses DECIMAL digits beyond the scale instead of rounding.
    """
    if type_.kind is Kind.TEXT:
        return Parsed(Column(type_, texts))
    if type_.kind is Kind.BYTES:
        return _parse_bytes(texts)
    valid = validity_of(texts)
    if type_.kind is Kind.TIMESTAMP:
        done, values = _plain_timestamps(texts, zone)
    elif type_.kind is Kind.TIME:
        done, values = _plain_times(texts)
    else:
        done, values = _plain_values(texts, type_)
    todo = ~done if valid is None else ~done & valid
    if not todo.any():
        return Parsed(Column(type_, values, valid))
    return _finish_singly(texts, type_, values, valid, np.flatnonzero(todo), zone, exact)


def _parse_bytes(texts: Any) -> Parsed:
    from millstream.protocol.values.text import of_hex_texts  # few streams have such columns

    found, bad = of_hex_texts(texts)
    failed: dict[int, str] = {}
    for i in np.flatnonzero(bad).tolist():
        try:
            parse_bytes(texts[i].as_py())
        except ValueError as error:
            failed[i] = str(error)
    return Parsed(Column(BYTES, found), failed)


def _plain_pattern(type_: DataType) -> str | None:
    if type_.kind is Kind.DECIMAL:
        whole = type_.precision - type_.scale
        fraction = rf"(\.[0-9]{{1,{type_.scale}}})?" if type_.scale else ""
        return rf"^-?[0-9]{{1,{whole}}}{fraction}$" if whole else None
    return _PLAIN.get(type_.kind)


def _plain_values(texts: Any, type_: DataType) -> tuple[Mask, Any]:
    """Parse the rows in the plain spelling; return where that was possible, and the values (zero elsewhere)."""
    rows = len(texts)
    quick = _quick_numbers(texts, type_)
    if quick is not None:
        return quick
    pattern = _plain_pattern(type_)
    if pattern is not None and rows:
        matches = pc.match_substring_regex(texts, pattern)
        plain = mask_from_arrow(matches)
        if matches.null_count:
            plain = plain & mask_from_arrow(pc.is_valid(texts))
        parsed = _cast(texts, plain, arrow_type(type_))
        if parsed is not None:
            return plain, _filled(column_from_arrow(parsed, type_).values, plain)
    return np.zeros(rows, dtype=np.bool_), np.zeros(rows, dtype=numpy_dtype(type_))


def _quick_numbers(texts: Any, type_: DataType) -> tuple[Mask, Any] | None:
    """As `_plain_values` where all texts are numbers in digits with a sign or a point: Arrow judges those as we do. Else None."""
    if type_.kind not in (Kind.INT, Kind.BIGINT, Kind.DOUBLE):
        return None
    _, characters = _bytes_of(texts)
    if not len(characters) or characters.max() > ord("9") or characters.min() < ord("-"):
        return None
    present = mask_from_arrow(pc.is_valid(texts)) if texts.null_count else np.ones(len(texts), dtype=np.bool_)
    parsed = _cast(texts, present, arrow_type(type_))
    if parsed is None:
        return None
    values = _filled(column_from_arrow(parsed, type_).values, present)
    return None if type_.kind is Kind.DOUBLE and not np.isfinite(values).all() else (present, values)


def _bytes_of(texts: Any) -> tuple[Any, Any]:
    """Return the offsets of a string array, from 0, and all its bytes."""
    _, offsets_buffer, bytes_buffer = texts.buffers()
    if not len(texts) or offsets_buffer is None or bytes_buffer is None:
        return np.zeros(len(texts) + 1, dtype=np.int32), np.empty(0, dtype=np.uint8)
    offsets = np.frombuffer(offsets_buffer, dtype=np.int32, count=len(texts) + 1, offset=4 * texts.offset)
    return offsets - offsets[0], np.frombuffer(bytes_buffer, dtype=np.uint8)[offsets[0] : offsets[-1]]


def _cast(texts: Any, plain: Mask, target: Any) -> Any:
    """Cast the plain rows with Arrow; None when one of them does not fit after all (a 30th of February)."""
    chosen = texts if plain.all() else texts.filter(pa.array(plain))
    try:
        return pc.cast(chosen, target)
    except pa.ArrowInvalid:
        return None


def _filled(values: Any, plain: Mask) -> Any:
    if len(values) == len(plain):
        return values
    filled = np.zeros(len(plain), dtype=values.dtype)
    filled[plain] = values
    return filled


def _plain_timestamps(texts: Any, zone: str | None) -> tuple[Mask, Any]:
    """Text with offsets and text without are each cast at once."""
    rows = len(texts)
    quick = _quick_timestamps(texts, zone)
    if quick is not None:
        return np.ones(rows, dtype=np.bool_), quick
    done, values = np.zeros(rows, dtype=np.bool_), np.zeros(rows, dtype=np.int64)
    present = mask_from_arrow(pc.is_valid(texts))
    for pattern, target in ((_OFFSET_TIMESTAMP, pa.timestamp("us", "UTC")), (_LOCAL_TIMESTAMP, pa.timestamp("us"))):
        if done.all():
            break
        plain = mask_from_arrow(pc.match_substring_regex(texts, pattern)) & present
        parsed = _cast(texts, plain, target) if plain.any() else None
        if parsed is not None:
            instants = np.asarray(parsed.view(pa.int64()))
            local = pattern == _LOCAL_TIMESTAMP and zone is not None
            values[plain] = named_zone(zone).to_utc(instants) if local and zone is not None else instants
            done |= plain
    return done, values


def _quick_timestamps(texts: Any, zone: str | None) -> Any:
    """Return the instants of texts that all have the same form, to the second or finer, in UTC or without an offset; else None."""
    offsets, characters = _bytes_of(texts)
    width = int(offsets[1]) if len(texts) and not texts.null_count else 0
    if not _WIDTH_LEAST <= width <= _WIDTH_MOST or not bool(np.all(np.diff(offsets) == width)):
        return None
    places = characters.reshape(len(texts), width)
    is_utc = bool(places[0, -1] == ord("Z"))
    if width - is_utc == _WIDTH_LEAST + 1 or width - is_utc > _WIDTH_MOST - 1:  # a point without digits, or more than six
        return None
    marks = ((4, "-"), (7, "-"), (10, chr(places[0, 10])), (13, ":"), (16, ":"), *([(19, ".")] if width - is_utc > _WIDTH_LEAST else []))
    if chr(places[0, 10]) not in "T " or not all(bool((places[:, place] == ord(mark)).all()) for place, mark in marks):
        return None
    if is_utc and not bool((places[:, -1] == ord("Z")).all()):
        return None
    parsed = _cast(texts, np.ones(len(texts), dtype=np.bool_), pa.timestamp("us", "UTC") if is_utc else pa.timestamp("us"))
    if parsed is None:
        return None
    instants = np.asarray(parsed.view(pa.int64()))
    return instants if is_utc or zone is None else named_zone(zone).to_utc(instants)


def _plain_times(texts: Any) -> tuple[Mask, Any]:
    """Times of day are read as instants of the first day, as Arrow reads no others from text."""
    plain = mask_from_arrow(pc.fill_null(pc.match_substring_regex(texts, _TIME), False))
    instants = _cast(pc.binary_join_element_wise("1970-01-01T", texts, ""), plain, pa.timestamp("us")) if plain.any() else None
    if instants is None:
        return np.zeros(len(texts), dtype=np.bool_), np.zeros(len(texts), dtype=np.int64)
    return plain, _filled(np.asarray(instants.view(pa.int64())), plain)


def _finish_singly(texts: Any, type_: DataType, values: Any, valid: Mask | None, index: Any, zone: str | None, exact: bool) -> Parsed:
    values = values.copy()
    valid = np.ones(len(texts), dtype=np.bool_) if valid is None else valid.copy()
    failed: dict[int, str] = {}
    seen: dict[str, Any] = {}
    for i, text in zip(index.tolist(), texts.take(pa.array(index)).to_pylist(), strict=True):
        try:
            if text not in seen:
                seen[text] = parse_value(text, type_, zone, exact=exact)
            values[i] = seen[text]
        except ValueError as error:
            failed[i] = str(error)
            valid[i] = False
    return Parsed(Column(type_, values, None if valid.all() else valid), failed)
