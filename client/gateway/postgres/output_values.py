"""Arrow columns as PostgreSQL's values, and rows of them as messages: by whole columns; only exotic values go one by one.

An encoded column is an Arrow array of bytes, NULL where NULL. Rows are made of such arrays by one join, lengths and heads among them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from millstream.client.gateway.postgres.messages import BINARY
from millstream.client.gateway.postgres.sqlstates import DATETIME_OVERFLOW, PgError
from millstream.client.gateway.postgres.types import OF_PLAIN, is_array
from millstream.protocol.types import Column, ColumnType
from millstream.protocol.values.text import json_texts, plain_texts

EPOCH_US = 946_684_800_000_000  # 2000-01-01, from which PostgreSQL counts, after 1970-01-01
EPOCH_DAYS = 10_957
FIRST_US = -210_866_803_200_000_000  # 4714-11-24 BC, PostgreSQL's first day; its last is beyond ours
COPY_SIGNATURE = b"PGCOPY\n\xff\r\n\0" + bytes(8)
COPY_TRAILER = b"\xff\xff"


def data_rows(batch: Any, columns: Sequence[Column], formats: Sequence[int]) -> bytes:
    """Return the rows of a record batch as DataRow messages. `PgError` when a value has no place in its type."""
    return _messages(b"D", batch, columns, formats, 5)


def copy_rows_binary(batch: Any, columns: Sequence[Column]) -> bytes:
    """Return the rows of a record batch as CopyData messages in the binary form, without its head and end."""
    return _messages(b"d", batch, columns, [BINARY] * len(columns), 5)


def copy_rows_text(batch: Any, columns: Sequence[Column], delimiter: str, null: str, *, csv: bool) -> bytes:
    """Return the rows of a record batch as CopyData messages, one a row, in the text form or as CSV."""
    quote: Callable[[Any], Any] = (lambda text: _csv_quoted(text, delimiter, null)) if csv else (lambda text: _escaped(text, delimiter))
    texts = [
        pc.fill_null(quote(text_column(array, field, column.type)), null)
        for array, field, column in zip(batch.columns, batch.schema, columns, strict=True)
    ]
    if not texts:
        return b"d\0\0\0\x05\n" * int(batch.num_rows)
    joint, end, nothing = (pa.scalar(text, pa.large_string()) for text in (delimiter, "\n", ""))
    lines = pc.binary_join_element_wise(*(pc.cast(text, pa.large_string()) for text in texts), joint)
    rows = pc.cast(pc.binary_join_element_wise(lines, end, nothing), pa.large_binary())
    return _joined([_heads(b"d", _lengths(rows) + 4), rows])


def copy_header(columns: Sequence[Column], delimiter: str, *, csv: bool) -> bytes:
    """Return the line with the names of the columns."""
    names = pa.array([column.name for column in columns], pa.string())
    quoted = _csv_quoted(names, delimiter, "") if csv else _escaped(names, delimiter)
    return str(delimiter.join(quoted.to_pylist()) + "\n").encode()


def _messages(kind: bytes, batch: Any, columns: Sequence[Column], formats: Sequence[int], fixed: int) -> bytes:
    """Join rows: type, length, number of fields, and of each field its length (-1: NULL) and bytes."""
    rows = batch.num_rows
    if rows == 0:
        return b""
    sizes = np.full(rows, fixed + 1, np.int64)  # what the length counts: itself and the number of fields
    parts: list[Any] = []
    for array, field, column, format in zip(batch.columns, batch.schema, columns, formats, strict=True):
        make = binary_column if format == BINARY else text_column
        values = pc.cast(make(array, field, column.type), pa.large_binary())
        lengths = pc.fill_null(pc.binary_length(values), -1).to_numpy(zero_copy_only=False)
        sizes += 4 + np.maximum(lengths, 0)
        parts += [_fixed(lengths.astype(">i4")), pc.fill_null(values, b"")]
    head = np.empty(rows, np.dtype([("kind", "S1"), ("size", ">i4"), ("fields", ">i2")]))
    head["kind"], head["size"], head["fields"] = kind, sizes, len(columns)
    return _joined([_fixed(head), *parts])


def _heads(kind: bytes, sizes: Any) -> Any:
    head = np.empty(len(sizes), np.dtype([("kind", "S1"), ("size", ">i4")]))
    head["kind"], head["size"] = kind, sizes
    return _fixed(head)


def _lengths(values: Any) -> Any:
    return pc.binary_length(values).to_numpy(zero_copy_only=False)


def _fixed(values: Any) -> Any:
    """Return an array whose values are the bytes of a NumPy array's elements."""
    width = values.dtype.itemsize
    offsets = np.arange(0, width * (len(values) + 1), width, dtype=np.int64)
    return pa.Array.from_buffers(pa.large_binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(values.tobytes())])


def _joined(parts: list[Any]) -> bytes:
    joined = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))
    offsets = np.frombuffer(joined.buffers()[1], np.int64, len(joined) + 1, joined.offset * 8)
    return bytes(memoryview(joined.buffers()[2])[int(offsets[0]) : int(offsets[-1])]) if len(joined) else b""


def _with_nulls(values: Any, array: Any) -> Any:
    return values if array.null_count == 0 else pc.if_else(pc.is_valid(array), values, pa.scalar(None, values.type))


# --- text ---


def text_column(array: Any, field: Any, kind: ColumnType) -> Any:
    """Return a column's values as PostgreSQL writes them."""
    if is_array(kind):
        return _array_texts(array, field, kind)
    if pa.types.is_nested(array.type):
        return json_texts(array, field)
    if kind.name == "BOOLEAN":
        return pc.if_else(array, "t", "f")
    if kind.name == "DOUBLE":
        return _floats(pc.cast(array, pa.string()))
    if kind.name == "TIMESTAMP":
        return _timestamps(array)
    if kind.name == "DATE":
        _check_days(array)
        return _with_era(plain_texts(array))
    if kind.name == "TIME":
        return pc.replace_substring_regex(plain_texts(array), _FRACTION + "$", r".\1")
    if kind.name == "INTERVAL":
        return pa.array([None if us is None else interval_text(us) for us in _integers(array).to_pylist()], pa.string())
    return plain_texts(array)


_FRACTION = r"\.([0-9]*[1-9])0*"  # of a second, whose last zeros PostgreSQL leaves out


def _integers(array: Any) -> Any:
    return pc.cast(array, pa.duration("us")).view(pa.int64()) if pa.types.is_duration(array.type) else array.view(pa.int64())


def _floats(text: Any) -> Any:
    for arrows, ours in (("nan", "NaN"), ("-nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
        text = pc.if_else(pc.equal(text, arrows), ours, text)
    return text


def _timestamps(array: Any) -> Any:
    array = pc.cast(array, pa.timestamp("us", array.type.tz))
    _check_instants(array.view(pa.int64()))
    text = pc.replace_substring(pc.replace_substring_regex(plain_texts(array), _FRACTION + "Z$", r".\1Z"), "Z", "+00")
    return _with_era(pc.replace_substring(text, "T", " ", max_replacements=1))


def _check_instants(us: Any) -> None:
    if pc.any(pc.less(us, FIRST_US)).as_py():
        raise PgError(DATETIME_OVERFLOW, "a TIMESTAMP before 4714-11-24 BC has no value in PostgreSQL", "CAST it to TEXT")


def _check_days(array: Any) -> None:
    if pc.any(pc.less(pc.cast(array, pa.date32()).view(pa.int32()), FIRST_US // 86_400_000_000)).as_py():
        raise PgError(DATETIME_OVERFLOW, "a DATE before 4714-11-24 BC has no value in PostgreSQL", "CAST it to TEXT")


def _with_era(text: Any) -> Any:
    """Write years before 1 as PostgreSQL does: year 0 is 1 BC."""
    early = pc.fill_null(pc.match_substring_regex(text, "^-|^0000"), False)
    if not pc.any(early).as_py():
        return text
    written = []
    for value in pc.filter(text, early).to_pylist():
        year, dash, rest = value.lstrip("-").partition("-")
        written.append(f"{int(year) + 1:04d}{dash}{rest} BC")
    return pc.replace_with_mask(text, early, pa.array(written, pa.string()))


def interval_text(us: int) -> str:
    """Return a duration in microseconds as PostgreSQL writes it: hours, minutes, seconds."""
    seconds, fraction = divmod(abs(us), 1_000_000)
    tail = f".{fraction:06d}".rstrip("0") if fraction else ""
    return f"{'-' if us < 0 else ''}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{tail}"


def _array_texts(array: Any, field: Any, kind: ColumnType) -> Any:
    assert kind.element is not None
    inner = text_column(array.flatten(), field.type.value_field, kind.element).to_pylist()
    bare = kind.element.name not in ("TEXT", "JSON", "TIMESTAMP", "BYTES", "NULL")
    items = ["NULL" if item is None else item if bare else _array_item(item) for item in inner]
    return _lists(array, lambda start, end: "{" + ",".join(items[start:end]) + "}", pa.string())


def _array_item(text: str) -> str:
    if text and text.upper() != "NULL" and not any(c in '{}",\\' or c.isspace() for c in text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _lists(array: Any, made: Callable[[int, int], Any], kind: Any) -> Any:
    """Return `made(start, end)` of the flattened items of each list, NULL where NULL."""
    found: list[Any] = []
    at = 0
    for length in pc.list_value_length(array).to_pylist():
        if length is None:
            found.append(None)
        else:
            found.append(made(at, at + length))
            at += length
    return pa.array(found, kind)


def _escaped(text: Any, delimiter: str) -> Any:
    """Escape what the text form of COPY gives a meaning."""
    for plain, escaped in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        text = pc.replace_substring(text, plain, escaped)
    return text if delimiter == "\t" else pc.replace_substring(text, delimiter, "\\" + delimiter)


def _csv_quoted(text: Any, delimiter: str, null: str) -> Any:
    special = pc.match_substring_regex(text, '["\\r\\n]')
    special = pc.or_(special, pc.match_substring(text, delimiter))
    special = pc.or_(special, pc.equal(text, ""))  # a blank line would be no row
    special = pc.fill_null(pc.or_(special, pc.equal(text, null)), False)
    quoted = pc.binary_join_element_wise('"', pc.replace_substring(text, '"', '""'), '"', "")
    return pc.if_else(special, quoted, text)


# --- binary ---


def binary_column(array: Any, field: Any, kind: ColumnType) -> Any:
    """Return a column's values in PostgreSQL's binary form."""
    if is_array(kind):
        return _array_binaries(array, field, kind)
    if pa.types.is_nested(array.type):
        return _jsonb(json_texts(array, field))
    if kind.name == "JSON":
        return _jsonb(plain_texts(array))
    if kind.name == "DECIMAL":
        return pa.array([None if v is None else numeric_binary(v, kind.scale) for v in array.to_pylist()], pa.large_binary())
    if kind.name == "BYTES":
        return array
    layout = _LAYOUTS.get(kind.name)
    if layout is None:
        return pc.cast(plain_texts(array), pa.binary())
    return _with_nulls(_fixed(layout(array)), array)


def _numbers(array: Any, arrow: Any) -> Any:
    return pc.fill_null(pc.cast(array, arrow), 0).to_numpy(zero_copy_only=False)


def _instants(array: Any) -> Any:
    us = pc.cast(array, pa.timestamp("us", array.type.tz)).view(pa.int64())
    _check_instants(us)
    return (pc.fill_null(us, 0).to_numpy(zero_copy_only=False) - EPOCH_US).astype(">i8")


def _days(array: Any) -> Any:
    _check_days(array)
    days = pc.cast(array, pa.date32()).view(pa.int32())
    return (pc.fill_null(days, 0).to_numpy(zero_copy_only=False) - EPOCH_DAYS).astype(">i4")


def _intervals(array: Any) -> Any:
    found = np.zeros(len(array), np.dtype([("us", ">i8"), ("days", ">i4"), ("months", ">i4")]))
    found["us"] = pc.fill_null(_integers(array), 0).to_numpy(zero_copy_only=False)
    return found


_LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "BOOLEAN": lambda array: _numbers(array, pa.uint8()).astype("u1"),
    "INT": lambda array: _numbers(array, pa.int32()).astype(">i4"),
    "BIGINT": lambda array: _numbers(array, pa.int64()).astype(">i8"),
    "DOUBLE": lambda array: _numbers(array, pa.float64()).astype(">f8"),
    "TIMESTAMP": _instants,
    "DATE": _days,
    "TIME": lambda array: pc.fill_null(array.view(pa.int64()), 0).to_numpy(zero_copy_only=False).astype(">i8"),
    "INTERVAL": _intervals,
}


def _jsonb(text: Any) -> Any:
    return pc.binary_join_element_wise(pa.scalar(b"\x01"), pc.cast(text, pa.binary()), pa.scalar(b""))


def numeric_binary(value: Decimal, scale: int) -> bytes:
    """Return a DECIMAL as PostgreSQL has it: groups of four digits, the weight of the first, sign, digits after the point."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    unscaled = int("".join(map(str, digits)) or "0")
    after = -(-max(scale, 0) // 4)  # groups after the point
    shift = after * 4 + exponent
    unscaled = unscaled * 10**shift if shift >= 0 else unscaled // 10**-shift
    groups: list[int] = []
    while unscaled:
        unscaled, group = divmod(unscaled, 10_000)
        groups.append(group)
    weight = len(groups) - after - 1
    groups.reverse()
    while groups and groups[-1] == 0:
        groups.pop()
    if not groups:
        weight = 0
    return struct.pack(f">hhHh{len(groups)}h", len(groups), weight, 0x4000 if sign and groups else 0, scale, *groups)


def _array_binaries(array: Any, field: Any, kind: ColumnType) -> Any:
    assert kind.element is not None
    inner = pc.cast(binary_column(array.flatten(), field.type.value_field, kind.element), pa.large_binary()).to_pylist()
    oid = OF_PLAIN[kind.element.name].oid

    def made(start: int, end: int) -> bytes:
        if start == end:
            return struct.pack(">iiI", 0, 0, oid)
        items = inner[start:end]
        head = struct.pack(">iiIii", 1, int(None in items), oid, end - start, 1)
        return head + b"".join(b"\xff\xff\xff\xff" if item is None else struct.pack(">i", len(item)) + item for item in items)

    return _lists(array, made, pa.large_binary())
