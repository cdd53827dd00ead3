"""The boundary: engine columns to and from Arrow arrays. Numeric columns are views of the Arrow buffers where the layout allows.

| type | Arrow type |
|---|---|
| BOOLEAN | bool_ |
| INT, BIGINT, DOUBLE | int32, int64, float64 |
| DECIMAL(p, s) | decimal128(p, s) |
| TEXT | string |
| BYTES | binary |
| TIMESTAMP | timestamp[us, UTC] |
| DATE | date32 |
| TIME | time64[us] |
| INTERVAL | duration[us] |
| LIST of t | list(t) |
| STRUCT | struct |
| MAP of TEXT to t | map(string, t) |
| JSON | string, its field marked as JSON |
| NULL | null |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from millstream.engine.data.column import Column, Mask
from millstream.engine.data.schema import Schema
from millstream.engine.data.types import DataType, Kind
from millstream.protocol.values import FIELD_METADATA

ARROW_TYPES: dict[Kind, Any] = {
    Kind.NULL: pa.null(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT: pa.int32(),
    Kind.BIGINT: pa.int64(),
    Kind.DOUBLE: pa.float64(),
    Kind.TEXT: pa.string(),
    Kind.BYTES: pa.binary(),
    Kind.JSON: pa.string(),
    Kind.TIMESTAMP: pa.timestamp("us", "UTC"),
    Kind.DATE: pa.date32(),
    Kind.TIME: pa.time64("us"),
    Kind.INTERVAL: pa.duration("us"),
}
# Kinds whose Arrow values are viewed as they lie.
VIEW_DTYPES: dict[Kind, np.dtype[Any]] = {
    Kind.INT: np.dtype(np.int32),
    Kind.BIGINT: np.dtype(np.int64),
    Kind.DOUBLE: np.dtype(np.float64),
    Kind.TIMESTAMP: np.dtype(np.int64),
    Kind.DATE: np.dtype(np.int32),
    Kind.TIME: np.dtype(np.int64),
    Kind.INTERVAL: np.dtype(np.int64),
}
_AS_INTEGERS: dict[Kind, Any] = {Kind.TIMESTAMP: pa.int64(), Kind.DATE: pa.int32(), Kind.TIME: pa.int64(), Kind.INTERVAL: pa.int64()}


def arrow_type(type_: DataType) -> Any:
    """Return the Arrow type that carries `type_` on the wire and in files."""
    if type_.kind is Kind.DECIMAL:
        return pa.decimal128(type_.precision, type_.scale)
    if type_.kind is Kind.LIST:
        assert type_.element is not None
        return pa.list_(arrow_field("item", type_.element))
    if type_.kind is Kind.STRUCT:
        return pa.struct([arrow_field(name, part) for name, part in type_.fields])
    if type_.kind is Kind.MAP:
        assert type_.element is not None
        return pa.map_(pa.string(), arrow_field("value", type_.element))
    return ARROW_TYPES[type_.kind]


def arrow_field(name: str, type_: DataType, nullable: bool = True) -> Any:
    """Return the Arrow field of a column or a part of one."""
    return pa.field(name, arrow_type(type_), nullable, FIELD_METADATA if type_.kind is Kind.JSON else None)


def arrow_schema(schema: Schema) -> Any:
    """Return the Arrow schema with the same names, types and nullability."""
    return pa.schema([arrow_field(f.name, f.type, f.nullable) for f in schema.fields])


def unpack_bits(buffer: Any, offset: int, rows: int) -> Mask:
    """Return the bits of an Arrow bitmap as a mask; much quicker than `to_numpy` on a bool array."""
    bits = np.unpackbits(np.frombuffer(buffer, dtype=np.uint8), count=offset + rows, bitorder="little")
    return bits[offset:].view(np.bool_)


def validity_of(array: Any) -> Mask | None:
    """Return the mask of rows of an Arrow array that are not NULL, or None when no row is NULL."""
    if array.null_count == 0:
        return None
    buffer = array.buffers()[0]
    if buffer is None:  # an array of type null has no bitmap
        return np.zeros(len(array), dtype=np.bool_)
    return unpack_bits(buffer, array.offset, len(array))


def mask_from_arrow(array: Any) -> Mask:
    """Return the values of an Arrow bool array; arbitrary under NULL."""
    if len(array) == 0:
        return np.zeros(0, dtype=np.bool_)
    return unpack_bits(array.buffers()[1], array.offset, len(array))


def with_validity(array: Any, valid: Mask | None) -> Any:
    """Return an Arrow array without NULLs and offset as one that is NULL where `valid` is false."""
    if valid is None:
        return array
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(array.type, len(array), [bitmap, *array.buffers()[1:]])


def column_from_arrow(array: Any, type_: DataType) -> Column:
    """Return the column for an Arrow array (or ChunkedArray) that has exactly the type `arrow_type(type_)`."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    dtype = VIEW_DTYPES.get(type_.kind)
    if dtype is not None:
        return Column(type_, _buffer_view(array, dtype), validity_of(array))
    if type_.is_arrow:
        return Column(type_, array)
    valid = validity_of(array)
    if type_.kind is Kind.NULL:
        return Column(type_, np.zeros(len(array), dtype=np.bool_), np.zeros(len(array), dtype=np.bool_))
    if type_.kind is Kind.DECIMAL:
        return Column(type_, _decimal_values(array, type_), valid)
    return Column(type_, mask_from_arrow(array), valid)


def column_to_arrow(column: Column) -> Any:
    """Return the Arrow array of type `arrow_type(column.type)` with the same values."""
    type_ = column.type
    if type_.is_arrow:
        return column.values
    target = arrow_type(type_)
    if type_.kind is Kind.NULL:
        return pa.nulls(len(column))
    if type_.kind is Kind.DECIMAL:
        return _decimal_array(column)
    dtype = VIEW_DTYPES.get(type_.kind)
    if dtype is not None and column.valid is None and column.values.dtype == dtype:
        # The same memory, without being looked through.
        values = column.values if column.values.flags.c_contiguous else np.ascontiguousarray(column.values)
        return pa.Array.from_buffers(target, len(values), [None, pa.py_buffer(values)], 0)
    missing = None if column.valid is None else ~column.valid
    if type_.kind in _AS_INTEGERS:
        return pa.array(column.values, type=_AS_INTEGERS[type_.kind], mask=missing).view(target)
    return pa.array(column.values, type=target, mask=missing)


def plain_values(column: Column) -> list[Any]:
    """Return the values as Python's; times and dates as bare integers (µs, days), of which Python's own reach only some.

    A LIST is a list; what is nested deeper is tuples: the parts of a STRUCT, the pairs of a MAP. Equal values are equal as keys (K7).
    """
    array = column_to_arrow(column)
    if column.type.is_nested:
        shape = _tupled(column.type)
        values = [None if v is None else shape(v) for v in array.cast(_integer_form(column.type)).to_pylist()]
        return [None if v is None else list(v) for v in values] if column.type.kind is Kind.LIST else values
    storage = _AS_INTEGERS.get(column.type.kind)
    return list((array if storage is None else array.view(storage)).to_pylist())


_BYTES_OF_PYTHON = frozenset((Kind.TEXT, Kind.JSON, Kind.BYTES))  # whose values need no shape of our own


def value_array(column: Column) -> npt.NDArray[Any]:
    """Return the values, shape (rows,): those that lie in Arrow as Python's (see `plain_values`), others as stored, whatever NULLs hold."""
    values: npt.NDArray[Any] = column.values
    if column.type.kind in _BYTES_OF_PYTHON:
        values = column.values.to_numpy(zero_copy_only=False)
    elif column.type.is_arrow:
        values = np.fromiter(plain_values(column), np.object_, len(column))
    return values


def column_of_values(values: npt.NDArray[Any], type_: DataType, valid: Mask | None) -> Column:
    """Return the column of what `value_array` gave; NULL where `valid` is false."""
    valid = None if valid is None or valid.all() else valid
    if not type_.is_arrow:
        return Column(type_, np.ascontiguousarray(values), valid)
    if type_.kind in _BYTES_OF_PYTHON:
        return Column(type_, pa.array(values, type=arrow_type(type_), mask=None if valid is None else ~valid))
    listed = values.tolist()
    if valid is not None:
        listed = [value if keep else None for value, keep in zip(listed, valid.tolist(), strict=True)]
    return Column(type_, pa.array(listed, type=arrow_type(type_)))


def _integer_form(type_: DataType) -> Any:
    """Return the Arrow type with times and dates as integers."""
    if type_.element is not None:
        inner = _integer_form(type_.element)
        return pa.list_(inner) if type_.kind is Kind.LIST else pa.map_(pa.string(), inner)
    if type_.kind is Kind.STRUCT:
        return pa.struct([(name, _integer_form(part)) for name, part in type_.fields])
    return _AS_INTEGERS.get(type_.kind) or arrow_type(type_)


def _tupled(type_: DataType) -> Callable[[Any], Any]:
    """Return what makes the tuples of a nested value, and of a DOUBLE the one NaN and the one zero."""
    if type_.kind is Kind.DOUBLE:
        return lambda value: math.nan if value != value else value + 0.0
    if type_.kind is Kind.STRUCT:
        parts = [(name, _tupled(part)) for name, part in type_.fields]
        return lambda value: tuple([None if value[name] is None else shape(value[name]) for name, shape in parts])
    if type_.element is None:
        return lambda value: value
    inner = _tupled(type_.element)
    if type_.kind is Kind.LIST:
        return lambda value: tuple([None if item is None else inner(item) for item in value])
    return lambda value: tuple([(key, None if item is None else inner(item)) for key, item in value])


def _buffer_view(array: Any, dtype: np.dtype[Any]) -> Any:
    """View the value buffer of a fixed-width Arrow array; rows under NULL hold whatever the buffer holds."""
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), dtype=dtype)
    return np.frombuffer(buffer, dtype, len(array), array.offset * dtype.itemsize)


def _decimal_values(array: Any, type_: DataType) -> Any:
    """Read the 128-bit little-endian words of a decimal128 array as scaled integers."""
    words = np.frombuffer(array.buffers()[1], dtype=np.int64, count=2 * len(array), offset=array.offset * 16)
    low = words[0::2]
    if not type_.is_wide:
        return low.copy()
    high = words[1::2].astype(np.object_)
    return high * (1 << 64) + low.view(np.uint64).astype(np.object_)


def _decimal_array(column: Column) -> Any:
    rows = len(column)
    words = np.empty(2 * rows, dtype=np.int64)
    if column.type.is_wide:
        values = column.values
        words[0::2] = np.array([int(v) & 0xFFFF_FFFF_FFFF_FFFF for v in values], dtype=np.uint64).view(np.int64)
        words[1::2] = np.array([int(v) >> 64 for v in values], dtype=np.int64)
    else:
        words[0::2] = column.values
        words[1::2] = column.values >> 63
    validity = None if column.valid is None else pa.array(column.valid).buffers()[1]
    return pa.Array.from_buffers(arrow_type(column.type), rows, [validity, pa.py_buffer(words)])
