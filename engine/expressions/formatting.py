"""Whole columns as text: what CAST(x AS TEXT), CSV output and error rows show. Same spelling as `values.format_value`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import arrow_type, column_from_arrow, with_validity
from millstream.engine.data.calendar import INT64_MIN
from millstream.engine.data.column import Column
from millstream.engine.data.types import Kind
from millstream.engine.expressions.values import format_decimal, format_double, format_timestamp, format_value
from millstream.protocol.values import arrow_functions as pc

# datetime64 writes the years 0000 to 9999 in one width; others are written one by one.
_YEAR_0000_US = -62_167_219_200_000_000
_YEAR_10000_US = 253_402_300_800_000_000


def format_column(column: Column) -> Any:
    """Return the Arrow string array that shows the column, NULL where it is NULL."""
    kind = column.type.kind
    if kind is Kind.TEXT:
        return column.values
    if kind in (Kind.INT, Kind.BIGINT):
        return pc.cast(with_validity(pa.array(column.values), column.valid), pa.string())
    if kind is Kind.BOOLEAN:
        return with_validity(pa.array(["false", "true"]).take(pa.array(column.values.view(np.int8))), column.valid)
    if kind is Kind.NULL:
        return pa.nulls(len(column), pa.string())
    if kind is Kind.LIST:
        return pa.array([None if v is None else format_list(v) for v in list_texts(column)], pa.string())
    return with_validity(pa.array(_texts(column), pa.string()), column.valid)


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


def list_texts(column: Column) -> list[list[str | None] | None]:
    """Return the elements of each list as texts."""
    element = column.type.element
    assert element is not None
    flat = column.values.flatten()
    shown = format_column(column_from_arrow(flat.cast(arrow_type(element)), element)).to_pylist()
    result: list[list[str | None] | None] = []
    start = 0
    for count in pc.list_value_length(column.values).to_pylist():
        result.append(None if count is None else shown[start : start + count])
        start += count or 0
    return result


def format_list(elements: list[str | None]) -> str:
    """Return a list as [a, b, NULL]."""
    return "[" + ", ".join("NULL" if e is None else e for e in elements) + "]"
