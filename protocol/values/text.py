"""Arrow record batches as text, the same everywhere: `json` (one object a line) and `csv` (header first).

| type | json | csv |
|---|---|---|
| BIGINT, INT | exact digits | same |
| DOUBLE | shortest digits that read back the same, `1.0` not `1`; "NaN", "Infinity", "-Infinity" | same, bare |
| DECIMAL | string with all digits of the scale | same, bare |
| TIMESTAMP | ISO 8601 with `Z`, six decimals only where there is a fraction | same, bare |
| DATE | `2024-05-06` | same, bare |
| TIME | `12:53:20`, six decimals only where there is a fraction | same, bare |
| INTERVAL | ISO 8601 duration of seconds: `PT1.5S` | same, bare |
| TEXT | string, UTF-8 kept | quoted when empty or when it holds a comma, quote or line end |
| BYTES | `\\x` and two digits a byte | same, bare |
| JSON | as it is | same, quoted like TEXT |
| LIST | array | the json form, quoted |
| STRUCT, MAP | object | the json form, quoted |
| NULL | null | empty |

Everything is done a column at a time with Arrow kernels: a million rows take about a second a column at worst.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from millstream.protocol.values import FIELD_METADATA
from millstream.protocol.values import arrow_functions as pc

_ESCAPED_IN_JSON = '["\\\\\\x00-\\x1f\\x7f]'  # what a JSON string may not hold bare (and DEL, for terminals)
_QUOTED_IN_CSV = '[,"\\r\\n]|^$|^\\s|\\s$'
_YEAR_SECONDS_MAX = 253_402_300_800  # 10000-01-01: from here on Arrow's own text is no longer four digits
_YEAR_SECONDS_MIN = -62_135_596_800  # 0001-01-01
_DAY_SECONDS = 86_400
_MICROSECONDS_PER_SECOND = 1_000_000

Int64Array = npt.NDArray[np.int64]


def json_lines(batch: Any) -> bytes:
    """Return the rows of a record batch as one JSON object a line, UTF-8, each line ended by a line feed."""
    names = [json.dumps(name, ensure_ascii=False) + ": " for name in batch.schema.names]
    columns = [_json_column(column, field) for column, field in zip(batch.columns, batch.schema, strict=True)]
    return _lines(batch.num_rows, [(", " if i else "{") + name for i, name in enumerate(names)], columns, "}\n")


def csv_header(schema: Any) -> bytes:
    """Return the header line of the CSV form."""
    names = [f'"{n.replace(chr(34), chr(34) * 2)}"' if _needs_quotes(n) else n for n in schema.names]
    return (",".join(names) + "\n").encode()


def csv_lines(batch: Any) -> bytes:
    """Return the rows of a record batch as CSV lines without the header."""
    columns = [_csv_column(column, field) for column, field in zip(batch.columns, batch.schema, strict=True)]
    return _lines(batch.num_rows, ["" if i == 0 else "," for i in range(len(columns))], columns, "\n")


def display_columns(batch: Any, null: str = "NULL") -> list[list[str]]:
    """Return the bare text of each column's values, for tables; nested values in their JSON form."""
    texts = [
        json_texts(column, field) if pa.types.is_nested(column.type) else plain_texts(column)
        for column, field in zip(batch.columns, batch.schema, strict=True)
    ]
    return [pc.coalesce(text, null).to_pylist() for text in texts]


def json_texts(column: Any, field: Any) -> Any:
    """Return an Arrow array's values as JSON texts, NULL where NULL. `field` says where texts inside are JSON."""
    text = _json_column(column, field)
    return text if column.null_count == 0 else pc.if_else(pc.is_valid(column), text, pa.scalar(None, pa.string()))


def _lines(rows: int, prefixes: list[str], columns: list[Any], suffix: str) -> bytes:
    """Join the text columns row by row, each after its prefix; return the UTF-8 bytes of all lines."""
    if rows == 0:
        return b""
    if not columns:
        return (suffix if prefixes else "{}\n").encode() * rows
    parts: list[Any] = []
    for prefix, column in zip(prefixes, columns, strict=True):
        if prefix:
            parts.append(pa.scalar(prefix, pa.large_string()))
        parts.append(pc.cast(column, pa.large_string()))
    joined = pc.binary_join_element_wise(*parts, pa.scalar(suffix, pa.large_string()), pa.scalar("", pa.large_string()))
    offsets = np.frombuffer(joined.buffers()[1], dtype=np.int64, count=rows + 1, offset=joined.offset * 8)
    return bytes(memoryview(joined.buffers()[2])[int(offsets[0]) : int(offsets[-1])])


def _json_column(column: Any, field: Any) -> Any:
    """Return a text column of JSON values, "null" where NULL."""
    kind = column.type
    if pa.types.is_nested(kind):
        return _json_nested(column, field.type)
    text = plain_texts(column)
    if _is_text(kind):
        text = text if field.metadata is not None and FIELD_METADATA.items() <= field.metadata.items() else _json_strings(text)
    elif _is_binary(kind):
        text = pc.binary_join_element_wise('"\\', text, '"', "")  # its one backslash is the first character
    elif pa.types.is_floating(kind):
        text = pc.if_else(pc.is_finite(column), text, pc.binary_join_element_wise('"', text, '"', ""))
    elif not (pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        text = pc.binary_join_element_wise('"', text, '"', "")
    return pc.coalesce(text, "null")


def _csv_column(column: Any, field: Any) -> Any:
    """Return a text column of CSV fields, empty where NULL."""
    kind = column.type
    if pa.types.is_nested(kind):
        text = _csv_strings(json_texts(column, field))
    else:
        text = plain_texts(column)
        if _is_text(kind):
            text = _csv_strings(text)
    return pc.coalesce(text, "")


def plain_texts(column: Any) -> Any:
    """Return an array of the bare text of each value, NULL where NULL; nested values have none."""
    kind = column.type
    if _is_text(kind):
        return pc.cast(column, pa.string()) if not pa.types.is_string(kind) else column
    if pa.types.is_floating(kind):
        return _floats(column)
    if pa.types.is_timestamp(kind):
        return _timestamps(pc.cast(column, pa.timestamp("us", kind.tz)))
    if pa.types.is_date32(kind):
        return _dates(column)
    if pa.types.is_decimal(kind):
        return _decimals(column)
    if pa.types.is_time(kind):
        return _times_of_day(pc.cast(column, pa.time64("us")))
    if _is_binary(kind):
        return hex_texts(pc.cast(column, pa.binary()))
    if pa.types.is_duration(kind):
        return _durations(pc.cast(column, pa.duration("us")))
    return pc.cast(column, pa.string())


def _is_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_binary(kind: Any) -> bool:
    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind)
    )


def _needs_quotes(text: str) -> bool:
    return text == "" or text != text.strip() or any(c in text for c in ',"\r\n')


def _json_strings(text: Any) -> Any:
    """Quote strings; only those that hold something to be escaped go through the JSON encoder one by one."""
    special = pc.coalesce(pc.match_substring_regex(text, _ESCAPED_IN_JSON), False)
    quoted = pc.binary_join_element_wise('"', text, '"', "")
    if not pc.any(special).as_py():
        return quoted
    escaped = [json.dumps(s, ensure_ascii=False) for s in pc.filter(text, special).to_pylist()]
    return pc.replace_with_mask(quoted, special, pa.array(escaped, pa.string()))


def _csv_strings(text: Any) -> Any:
    """Quote the fields that need it, inner quotes doubled."""
    special = pc.coalesce(pc.match_substring_regex(text, _QUOTED_IN_CSV), False)
    if not pc.any(special).as_py():
        return text
    quoted = pc.binary_join_element_wise('"', pc.replace_substring(pc.filter(text, special), '"', '""'), '"', "")
    return pc.replace_with_mask(text, special, quoted)


def _json_nested(column: Any, kind: Any) -> Any:
    """Render the parts, then join them value by value. `kind` is the type as the schema has it, with its fields' marks."""
    if pa.types.is_struct(kind):
        names = [json.dumps(part.name, ensure_ascii=False) + ": " for part in kind]
        parts = [_json_column(array, part) for array, part in zip(column.flatten(), kind, strict=True)]
        pieces = [piece for name, part in zip(names, parts, strict=True) for piece in (", " + name, part)]
        pieces[:1] = ["{" + name for name in names[:1]] or [pa.repeat("{", len(column))]
        text = pc.binary_join_element_wise(*pieces, "}", "")
    elif pa.types.is_map(kind):
        lists = pa.ListArray.from_arrays(column.offsets, pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"]))
        keys, items = lists.flatten().flatten() if column.null_count == 0 else _without_null(lists, column).flatten().flatten()
        rendered = pc.binary_join_element_wise(_json_strings(pc.cast(keys, pa.string())), _json_column(items, kind.item_field), ": ")
        text = _enclosed("{", rendered, _lengths(column), "}")
    else:
        text = _enclosed("[", _json_column(column.flatten(), kind.value_field), _lengths(column), "]")
    return text if column.null_count == 0 else pc.if_else(pc.is_valid(column), text, "null")


def _without_null(lists: Any, column: Any) -> Any:
    """Return lists that have no items where the column is NULL."""
    return pc.if_else(pc.is_valid(column), lists, pa.scalar(None, lists.type))


def _lengths(column: Any) -> Any:
    if pa.types.is_map(column.type):
        lengths = np.diff(column.offsets.to_numpy(zero_copy_only=False))
        return lengths if column.null_count == 0 else np.where(pc.is_valid(column).to_numpy(zero_copy_only=False), lengths, 0)
    return pc.coalesce(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int32)


def _enclosed(opening: str, rendered: Any, lengths: Any, closing: str) -> Any:
    """Join rendered items list by list."""
    offsets = np.concatenate((np.zeros(1, dtype=np.int32), np.cumsum(lengths, dtype=np.int32)))
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), rendered), pa.scalar(", ", pa.string()))
    return pc.binary_join_element_wise(opening, joined, closing, "")


def _floats(column: Any) -> Any:
    """Shortest digits; a whole number keeps `.0` so that it is seen to be a DOUBLE; NaN and infinities by their SQL names."""
    text = pc.cast(column, pa.string())
    whole = pc.coalesce(pc.match_substring_regex(text, "^-?[0-9]+$"), False)
    text = pc.if_else(whole, pc.binary_join_element_wise(text, ".0", ""), text)
    odd = pc.coalesce(pc.and_(pc.is_valid(column), pc.invert(pc.is_finite(column))), False)
    if not pc.any(odd).as_py():
        return text
    names = [_name_of(v) for v in pc.filter(column, odd).to_pylist()]
    return pc.replace_with_mask(text, odd, pa.array(names, pa.string()))


def _name_of(value: float) -> str:
    if value != value:
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _decimals(column: Any) -> Any:
    """All digits of the scale; Arrow writes very small values with an exponent, those are written out."""
    text = pc.cast(column, pa.string())
    short = pc.coalesce(pc.match_substring(text, "E"), False)
    if not pc.any(short).as_py():
        return text
    written = [f"{value:f}" for value in pc.filter(column, short).to_pylist()]
    return pc.replace_with_mask(text, short, pa.array(written, pa.string()))


def _integers(column: Any) -> Int64Array:
    """Return the int64 values of a 64-bit column, 0 where NULL."""
    values: Int64Array = pc.coalesce(column.view(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return values


def _integer_array(values: Int64Array) -> Any:
    """Return an array over the same memory. `pa.array` loads NumPy's masked arrays to see whether it is given one."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def _timestamps(column: Any) -> Any:
    seconds, fraction = np.divmod(_integers(column), _MICROSECONDS_PER_SECOND)
    ordinary = (seconds >= _YEAR_SECONDS_MIN) & (seconds < _YEAR_SECONDS_MAX)
    shown = np.where(ordinary, seconds, 0)
    text = pc.replace_substring(pc.cast(_integer_array(shown).view(pa.timestamp("s")), pa.string()), " ", "T", max_replacements=1)
    if not ordinary.all():
        text = pc.replace_with_mask(text, pa.array(~ordinary), _far(seconds[~ordinary].astype("M8[s]")))
    text = pc.binary_join_element_wise(text, _fractions(fraction), "Z", "")
    return _with_nulls(text, column)


def _dates(column: Any) -> Any:
    days = pc.coalesce(column.view(pa.int32()), 0).to_numpy(zero_copy_only=False)
    far = (days < _YEAR_SECONDS_MIN // _DAY_SECONDS) | (days >= _YEAR_SECONDS_MAX // _DAY_SECONDS)
    text = pc.cast(column, pa.string())
    return pc.replace_with_mask(text, pa.array(far), _far(days[far].astype("M8[D]"))) if far.any() else text


def _far(values: Any) -> Any:
    """Return the text of NumPy's instants or days: far years too, which Arrow does not write."""
    texts = np.datetime_as_string(values).tolist()
    # NumPy counts the sign among the four places of a year, ISO 8601 does not.
    return pa.array([f"-0{text[1:]}" if text[0] == "-" and text[4] == "-" else text for text in texts], pa.string())


def _fractions(fraction: Int64Array) -> Any:
    """Return `.dddddd` where the fraction (microseconds, 0 to 999999) is not zero, else an empty string."""
    if not fraction.any():
        return pa.scalar("", pa.string())
    digits = pc.utf8_slice_codeunits(pc.cast(_integer_array(fraction + _MICROSECONDS_PER_SECOND), pa.string()), 1)
    return pc.if_else(pa.array(fraction != 0), pc.binary_join_element_wise(".", digits, ""), "")


def _times_of_day(column: Any) -> Any:
    seconds, fraction = np.divmod(_integers(column), _MICROSECONDS_PER_SECOND)
    text = pc.cast(_integer_array(seconds).cast(pa.int32()).view(pa.time32("s")), pa.string())
    return _with_nulls(pc.binary_join_element_wise(text, _fractions(fraction), ""), column)


def _durations(column: Any) -> Any:
    values = _integers(column)
    sign = pc.if_else(pa.array(values < 0), "-PT", "PT")
    magnitude = np.abs(values).view(np.uint64)  # |-2**63| fits only without sign
    seconds, fraction = np.divmod(magnitude, np.uint64(_MICROSECONDS_PER_SECOND))
    decimals = pc.utf8_rtrim(_fractions(fraction.astype(np.int64)), characters="0")
    text = pc.binary_join_element_wise(sign, pc.cast(pa.array(seconds), pa.string()), decimals, "S", "")
    return _with_nulls(text, column)


def _with_nulls(text: Any, column: Any) -> Any:
    return text if column.null_count == 0 else pc.if_else(pc.is_valid(column), text, pa.scalar(None, text.type))


# BYTES as text and back: `\x` and two digits a byte, as PostgreSQL writes them ---------------------------------------------------

HEX_PREFIX = "\\x"
_HEX_PATTERN = r"^\\[xX]([0-9a-fA-F]{2})*$"
_NO_DIGIT = 255  # what stands in the table for a character that is no digit
_DIGITS = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_DIGIT_PAIRS = np.stack((np.repeat(_DIGITS, 16), np.tile(_DIGITS, 16)), axis=1)
_DIGIT_VALUES = np.full(256, _NO_DIGIT, dtype=np.uint8)
_DIGIT_VALUES[_DIGITS] = np.arange(16, dtype=np.uint8)
_DIGIT_VALUES[np.frombuffer(b"ABCDEF", dtype=np.uint8)] = np.arange(10, 16, dtype=np.uint8)


def hex_digits(array: Any) -> Any:
    """Return the digits of each value of a binary array as a string array, NULL where it is NULL."""
    offsets, data = _bytes_of(array)
    digits = _DIGIT_PAIRS[data].tobytes()
    return _with_nulls(pa.StringArray.from_buffers(len(array), pa.py_buffer(2 * offsets), pa.py_buffer(digits)), array)


def hex_texts(array: Any) -> Any:
    r"""Return each value of a binary array as text, `\x0aff`, NULL where it is NULL."""
    return pc.binary_join_element_wise(HEX_PREFIX, hex_digits(array), "")


def of_hex_digits(digits: Any) -> Any:
    """Return the bytes that a string array of an even number of digits each (or NULL) spells, as a binary array."""
    offsets, characters = _bytes_of(digits)
    values = _DIGIT_VALUES[characters]
    made = (values[0::2] << 4) | values[1::2]
    return _with_nulls(
        pa.BinaryArray.from_buffers(pa.binary(), len(digits), [None, pa.py_buffer(offsets // 2), pa.py_buffer(made)]), digits
    )


def of_hex_texts(texts: Any) -> tuple[Any, Any]:
    """Return a string array as a binary array, NULL where a text is NULL or spells no bytes, and the mask of those that spell none."""
    good = pc.fill_null(pc.match_substring_regex(texts, _HEX_PATTERN), False)
    bad = np.asarray(pc.and_(pc.is_valid(texts), pc.invert(good)).to_numpy(zero_copy_only=False), dtype=np.bool_)
    return of_hex_digits(pc.utf8_slice_codeunits(pc.if_else(good, texts, pa.scalar(None, pa.string())), len(HEX_PREFIX))), bad


def _bytes_of(array: Any) -> tuple[Any, Any]:
    """Return the offsets of an array's values, from 0, and its bytes; NULLs have none."""
    rows = len(array)
    _, places, characters = array.buffers()
    if not rows or places is None:
        return np.zeros(rows + 1, dtype=np.int32), np.empty(0, dtype=np.uint8)
    if array.null_count:
        return _bytes_of(pc.fill_null(array, pa.scalar(b"", array.type)))
    offsets = np.frombuffer(places, dtype=np.int32, count=rows + 1, offset=4 * array.offset)
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.empty(0, dtype=np.uint8) if characters is None else np.frombuffer(characters, dtype=np.uint8)[first:last]
    return offsets - np.int32(first), data
