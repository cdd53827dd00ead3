r"""BYTES as text and back: `\x` and two digits a byte, as PostgreSQL writes them. Whole arrays at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from millstream.protocol.values import arrow_functions as pc

PREFIX = "\\x"
PATTERN = r"^\\[xX]([0-9a-fA-F]{2})*$"
DIGIT = 255  # what stands in the table for a character that is no digit
_DIGITS = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_PAIRS = np.stack((np.repeat(_DIGITS, 16), np.tile(_DIGITS, 16)), axis=1)
_VALUES = np.full(256, DIGIT, dtype=np.uint8)
_VALUES[_DIGITS] = np.arange(16, dtype=np.uint8)
_VALUES[np.frombuffer(b"ABCDEF", dtype=np.uint8)] = np.arange(10, 16, dtype=np.uint8)


def hex_digits(array: Any) -> Any:
    """Return the digits of each value of a binary array as a string array, NULL where it is NULL."""
    offsets, data = _parts(array)
    digits = _PAIRS[data].tobytes()
    return _with_nulls(pa.StringArray.from_buffers(len(array), pa.py_buffer(2 * offsets), pa.py_buffer(digits)), array)


def hex_texts(array: Any) -> Any:
    r"""Return each value of a binary array as text, `\x0aff`, NULL where it is NULL."""
    return pc.binary_join_element_wise(PREFIX, hex_digits(array), "")


def of_hex_digits(digits: Any) -> Any:
    """Return the bytes that a string array of an even number of digits each (or NULL) spells, as a binary array."""
    offsets, characters = _parts(digits)
    values = _VALUES[characters]
    made = (values[0::2] << 4) | values[1::2]
    return _with_nulls(
        pa.BinaryArray.from_buffers(pa.binary(), len(digits), [None, pa.py_buffer(offsets // 2), pa.py_buffer(made)]), digits
    )


def of_hex_texts(texts: Any) -> tuple[Any, Any]:
    """Return a string array as a binary array, NULL where a text is NULL or spells no bytes, and the mask of those that spell none."""
    good = pc.fill_null(pc.match_substring_regex(texts, PATTERN), False)
    bad = np.asarray(pc.and_(pc.is_valid(texts), pc.invert(good)).to_numpy(zero_copy_only=False), dtype=np.bool_)
    return of_hex_digits(pc.utf8_slice_codeunits(pc.if_else(good, texts, pa.scalar(None, pa.string())), len(PREFIX))), bad


def _parts(array: Any) -> tuple[Any, Any]:
    """Return the offsets of an array's values, from 0, and its bytes; NULLs have none."""
    rows = len(array)
    _, places, characters = array.buffers()
    if not rows or places is None:
        return np.zeros(rows + 1, dtype=np.int32), np.empty(0, dtype=np.uint8)
    if array.null_count:
        return _parts(pc.fill_null(array, pa.scalar(b"", array.type)))
    offsets = np.frombuffer(places, dtype=np.int32, count=rows + 1, offset=4 * array.offset)
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.empty(0, dtype=np.uint8) if characters is None else np.frombuffer(characters, dtype=np.uint8)[first:last]
    return offsets - np.int32(first), data


def _with_nulls(made: Any, array: Any) -> Any:
    return made if array.null_count == 0 else pc.if_else(pc.is_valid(array), made, pa.scalar(None, made.type))
