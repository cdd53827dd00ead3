"""From values to bytes. A state is written as

    32 bytes    magic, version of the format, whether there is a check, bytes of the head, bytes of all, check (CRC-32)
    head        a row of msgpack scalars: what the values are, without nesting
    bodies      the arrays, one after another, each at a multiple of 8 bytes, as NumPy and Arrow have them in memory (little-endian)

The head tells values depth first: a tag (`Tag`), then what belongs to it. What has been told is told again by its number (`Tag.AGAIN`), so
what two places share is shared after reading, too. Long lists of one type, and the keys and values of long dicts, are bodies: nothing is
told row by row. Equal histories give equal bytes: sets are told in the order of their elements' bytes.

`decoding.py` reads it. Nothing here knows of files: bytes and buffers only.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from enum import Enum
from itertools import chain
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
from millstream.engine.state import forms
from millstream.engine.state.forms import Buffer, Fields, Form, StateError

FORMAT_VERSION = 1
MAGIC = b"MSST"
PREFIX = struct.Struct("<4sHHQQI4x")  # magic, version, flags, bytes of the head, bytes of all, check
CHECKED = 1  # the one flag
ALIGNMENT = 8
DEPTH_MAX = 64
LONG = 8  # lists with as many elements are bodies, if they are of one type
SHORT_BYTES = 64  # longer ones are a body
INT_MIN, INT_MAX = -(2**63), 2**63 - 1


class Tag:
    """What a value is, a small number; behind the tag stands what is named here."""

    NONE = 0
    FALSE = 1
    TRUE = 2
    INT = 3  # the number
    FLOAT = 4  # the number
    TEXT = 5  # the text
    BYTES = 6  # the bytes
    BIG_INT = 7  # its bytes, two's complement
    LIST = 8  # how many, the elements
    TUPLE = 9  # how many, the elements
    SET = 10  # how many, the elements
    FROZEN_SET = 11  # how many, the elements
    DICT = 12  # a list of keys, a list of values
    RECORD = 13  # the number of the form (a new one with name, version, how many fields, their names), the values of the fields
    ENUM = 14  # the enumeration's name, the member's value
    CONSTANT = 15  # its name
    AGAIN = 16  # the number of what was told before
    ARRAY = 17  # dtype, dimensions, sizes; a body
    STRUCTURE = 18  # dimensions, sizes, how many fields, name and array of each
    OBJECTS = 19  # dimensions, sizes, a list
    ARROW = 20  # type, length, has NULLs …; bodies
    LONG_BYTES = 21  # length; a body
    INTS = 22  # a list: length; a body
    FLOATS = 23  # a list: length; a body
    TEXTS = 24  # a list of texts and None: length, has NULLs; bodies
    BIG_INTS = 25  # a list of numbers and None, as texts: as TEXTS
    INT_TUPLES = 26  # a list of tuples of equal length: how many, how long; a body
    TABLE = 27  # a list of records of one form: the form as in RECORD, how many, the values of its columns
    SCALAR = 28  # an array without dimensions, of which the one element is meant


ARROW_CODES: dict[str, Any] = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "i4": pa.int32(),
    "i8": pa.int64(),
    "f8": pa.float64(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "duration": pa.duration("us"),
}
_CODES_OF_ARROW = {type_: code for code, type_ in ARROW_CODES.items()}
FIXED_WIDTHS = {"i4": 4, "i8": 8, "f8": 8, "timestamp": 8, "date": 4, "time": 8, "duration": 8, "decimal": 16}
FLAT_TYPES = (pa.string(), pa.binary())
PLAIN_KINDS = "biuf"


def encode(value: Any, *, check: bool = True) -> bytes:
    """Return the bytes of a value. StateError when a part of it has no form.

    Without `check` the bytes are for who has a check of their own around them, or for this process.
    """
    return b"".join(encoded_parts(value, check=check))


def encoded_parts(value: Any, *, check: bool = True) -> list[Buffer]:
    """Return the same bytes in parts: views of the arrays where that can be, so they must be used before these change."""
    writer = _Writer()
    writer.value(value)
    return writer.parts(check)


def arrow_code(type_: Any) -> str:
    """Return the code of an Arrow type. StateError for types that columns do not have."""
    found = _CODES_OF_ARROW.get(type_)
    if found is not None:
        return found
    if pa.types.is_list(type_):
        return f"list {arrow_code(type_.value_type)}"
    if pa.types.is_map(type_) and type_.key_type == pa.string():
        return f"map {arrow_code(type_.item_type)}"
    if pa.types.is_struct(type_):
        return " ".join(["struct", str(type_.num_fields), *(f"{_word(part.name)} {arrow_code(part.type)}" for part in type_)])
    if pa.types.is_decimal128(type_):
        return f"decimal {type_.precision} {type_.scale}"
    raise StateError(f"an Arrow array of {type_} can be no part of a state")


def _word(name: str) -> str:
    """Return a name as one word of a code."""
    return name.replace("%", "%25").replace(" ", "%20")


class _Writer:
    def __init__(self) -> None:
        self._tokens: list[Any] = []
        self._put = self._tokens.append
        self._bodies: list[Any] = []
        self._numbers: dict[int, int] = {}  # of what has been told, by identity; None's is not in it
        self._kept: list[Any] = []  # so that no identity is given out twice
        self._open: set[int] = set()
        self._forms: dict[str, int] = {}
        self._depth = 0

    # --- the whole ---

    def parts(self, check: bool) -> list[Buffer]:
        packer = msgpack.Packer(use_bin_type=True, autoreset=False)
        for token in self._tokens:
            packer.pack(token)
        head = packer.bytes()
        behind: list[Buffer] = [head, b"\0" * (-len(head) % ALIGNMENT)]
        for body in self._bodies:
            behind += [body, b"\0" * (-len(body) % ALIGNMENT)]
        size = PREFIX.size + sum(map(len, behind))
        flags = CHECKED if check else 0
        sum_ = zlib.crc32(PREFIX.pack(MAGIC, FORMAT_VERSION, flags, len(head), size, 0)) if check else 0
        for part in behind if check else ():
            sum_ = zlib.crc32(part, sum_)
        return [PREFIX.pack(MAGIC, FORMAT_VERSION, flags, len(head), size, sum_), *behind]

    def _body(self, array: np.ndarray[Any, Any]) -> None:
        """Add an array's memory, in C order."""
        flat = np.ascontiguousarray(array).reshape(-1)
        self._bodies.append(flat.view(np.uint8).data if flat.size else b"")

    # --- values ---

    def value(self, value: Any) -> None:
        """Tell a value."""
        plain = _PLAIN.get(type(value))
        if plain is not None:
            plain(self, value)
            return
        key = id(value)
        number = self._numbers.get(key)
        if number is not None:
            self._tokens += (Tag.AGAIN, number)
            return
        if key in self._open or self._depth == DEPTH_MAX:
            raise StateError(f"a {type(value).__name__} holds itself, or lies deeper than a state may")
        self._open.add(key)
        self._depth += 1
        _TOLD.get(type(value), _Writer._other)(self, value)
        self._depth -= 1
        self._open.remove(key)
        self._numbers[key] = len(self._numbers)
        self._kept.append(value)

    def _other(self, value: Any) -> None:
        if isinstance(value, np.ndarray):
            self._array(value)
        elif isinstance(value, np.generic):
            self._put(Tag.SCALAR)
            self._array(np.asarray(value))
        elif isinstance(value, pa.Array):
            self._tokens += (Tag.ARROW, arrow_code(value.type), len(value))
            self._arrow(value)
        elif isinstance(value, Enum) and (name := forms.enum_name(type(value))) is not None:
            self._tokens += (Tag.ENUM, name, value.value)
        elif (name := forms.constant_name(value)) is not None:
            self._tokens += (Tag.CONSTANT, name)
        elif isinstance(value, Fields):
            form = forms.form_named(value.name, 1)
            self._form(Tag.RECORD, form)
            for field in form.fields:
                self.value(value.values[field])
        else:
            form = forms.form_of(type(value))
            if form.to_table is not None:
                raise StateError(f"{form.name} is written as a table, and stands by itself")
            self._form(Tag.RECORD, form)
            given = form.values(value)
            self._kept.append(given)
            for one in given:
                self.value(one)

    def _form(self, tag: int, form: Form) -> None:
        number = self._forms.get(form.name)
        if number is not None:
            self._tokens += (tag, number)
            return
        number = self._forms[form.name] = len(self._forms)
        self._tokens += (tag, number, form.name, form.version, len(form.fields), *form.fields)

    # --- numbers, texts ---

    def _none(self, value: None) -> None:
        self._put(Tag.NONE)

    def _bool(self, value: bool) -> None:
        self._put(Tag.TRUE if value else Tag.FALSE)

    def _int(self, value: int) -> None:
        if INT_MIN <= value <= INT_MAX:
            self._tokens += (Tag.INT, value)
        else:
            self._tokens += (Tag.BIG_INT, value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))

    def _float(self, value: float) -> None:
        self._tokens += (Tag.FLOAT, value)

    def _text(self, value: str) -> None:
        self._tokens += (Tag.TEXT, value)

    def _bytes(self, value: Buffer) -> None:
        if len(value) <= SHORT_BYTES:
            self._tokens += (Tag.BYTES, bytes(value))
        else:
            self._tokens += (Tag.LONG_BYTES, len(value))
            self._bodies.append(value)

    # --- what holds values ---

    def _list(self, values: list[Any]) -> None:
        if values and (form := forms.form_with_table(type(values[0]))) is not None:
            self._table(form, values)
            return
        if len(values) >= LONG and self._long_list(values):
            return
        self._tokens += (Tag.LIST, len(values))
        for value in values:
            self.value(value)

    def _long_list(self, values: list[Any]) -> bool:
        """Tell a list as bodies; False when its elements are not of one type that lies well side by side."""
        types = set(map(type, values))
        if types == {int} and min(values) >= INT_MIN and max(values) <= INT_MAX:
            self._tokens += (Tag.INTS, len(values))
            self._body(np.array(values, dtype=np.int64))
        elif types == {float}:
            self._tokens += (Tag.FLOATS, len(values))
            self._body(np.array(values, dtype=np.float64))
        elif types <= {str, type(None)} and str in types:
            self._texts(Tag.TEXTS, values)
        elif types <= {int, type(None)} and int in types:
            self._texts(Tag.BIG_INTS, [None if value is None else str(value) for value in values])
        elif types == {tuple}:
            return self._int_tuples(values)
        else:
            return False
        return True

    def _texts(self, tag: int, values: list[str | None]) -> None:
        array = pa.array(values, type=pa.string())
        self._tokens += (tag, len(values))
        self._arrow(array)

    def _int_tuples(self, values: list[tuple[Any, ...]]) -> bool:
        widths = set(map(len, values))
        width = widths.pop()
        if widths or not width or set(map(type, chain.from_iterable(values))) != {int}:
            return False
        try:
            flat = np.fromiter(chain.from_iterable(values), np.int64, width * len(values))
        except OverflowError:
            return False
        self._tokens += (Tag.INT_TUPLES, len(values), width)
        self._body(flat)
        return True

    def _table(self, form: Form, records: list[Any]) -> None:
        if form.to_table is None or set(map(type, records)) != {form.type}:
            raise StateError(f"{form.name} is written as a table, and stands beside something else")
        self._form(Tag.TABLE, form)
        columns = form.to_table(records)
        self._tokens += (len(records), len(columns))
        self._kept.append(columns)
        for column in columns:
            self.value(column)

    def _tuple(self, values: tuple[Any, ...]) -> None:
        self._tokens += (Tag.TUPLE, len(values))
        for value in values:
            self.value(value)

    def _set(self, values: set[Any] | frozenset[Any]) -> None:
        self._tokens += (Tag.SET if isinstance(values, set) else Tag.FROZEN_SET, len(values))
        for value in sorted(values, key=encode):
            self.value(value)

    def _dict(self, values: dict[Any, Any]) -> None:
        self._put(Tag.DICT)
        self._list(list(values))
        self._list(list(values.values()))

    # --- arrays ---

    def _array(self, array: np.ndarray[Any, Any]) -> None:
        if array.dtype.names is not None:
            self._tokens += (Tag.STRUCTURE, array.ndim, *array.shape, len(array.dtype.names))
            for name in array.dtype.names:
                self._put(name)
                self._array(array[name])
        elif array.dtype == np.object_:
            self._tokens += (Tag.OBJECTS, array.ndim, *array.shape)
            self._list(array.reshape(-1).tolist())
        elif array.dtype.kind in PLAIN_KINDS:
            self._tokens += (Tag.ARRAY, f"{array.dtype.kind}{array.dtype.itemsize}", array.ndim, *array.shape)
            self._body(array.astype(array.dtype.newbyteorder("<"), copy=False))
        else:
            raise StateError(f"an array of {array.dtype} can be no part of a state")

    def _arrow(self, array: Any) -> None:
        """Tell whether there are NULLs; add the buffers of the rows that the array shows, as if it began with them."""
        rows, type_ = len(array), array.type
        has_nulls = array.null_count > 0 and type_ != pa.null()
        self._put(has_nulls)
        buffers, at = array.buffers(), array.offset
        if not rows or type_ == pa.null():
            return
        if has_nulls:
            self._bits(buffers[0], at, rows)
        if type_ == pa.bool_():
            self._bits(buffers[1], at, rows)
        elif pa.types.is_struct(type_):
            for place in range(type_.num_fields):
                self._arrow(array.field(place))
        elif type_ in FLAT_TYPES or pa.types.is_list(type_) or pa.types.is_map(type_):
            offsets = np.frombuffer(buffers[1], dtype=np.int32, count=at + rows + 1)[at:]
            first, last = int(offsets[0]), int(offsets[-1])
            self._body(offsets - np.int32(first) if first else offsets)
            if type_ in FLAT_TYPES:
                self._bodies.append(b"" if last == first else memoryview(buffers[2])[first:last])
            elif pa.types.is_map(type_):
                self._arrow(array.keys.slice(first, last - first))
                self._arrow(array.items.slice(first, last - first))
            else:
                self._arrow(array.values.slice(first, last - first))
        else:
            width = type_.bit_width // 8
            self._bodies.append(memoryview(buffers[1])[at * width : (at + rows) * width])

    def _bits(self, buffer: Any, at: int, rows: int) -> None:
        bits = np.unpackbits(np.frombuffer(buffer, dtype=np.uint8), count=at + rows, bitorder="little")[at:]
        self._body(np.packbits(bits, bitorder="little"))


_PLAIN: dict[type[Any], Callable[[_Writer, Any], None]] = {
    type(None): _Writer._none,
    bool: _Writer._bool,
    int: _Writer._int,
    float: _Writer._float,
    str: _Writer._text,
    bytes: _Writer._bytes,
    bytearray: _Writer._bytes,
    memoryview: _Writer._bytes,
}
_TOLD: dict[type[Any], Callable[[_Writer, Any], None]] = {
    list: _Writer._list,
    tuple: _Writer._tuple,
    dict: _Writer._dict,
    set: _Writer._set,
    frozenset: _Writer._set,
    np.ndarray: _Writer._array,
}
