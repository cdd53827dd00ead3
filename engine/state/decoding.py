"""From bytes to values. See `encoding.py` for how they lie.

The bytes may be damaged, or made by somebody who means harm. Every size is compared with what is there before anything is allocated, so
that memory stays within a small multiple of the bytes; what is not as it should be is a StateError. Only registered classes are created.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
from millstream.engine.state import forms
from millstream.engine.state.encoding import (
    ALIGNMENT,
    ARROW_CODES,
    CHECKED,
    DEPTH_MAX,
    FIXED_WIDTHS,
    FLAT_TYPES,
    FORMAT_VERSION,
    MAGIC,
    PREFIX,
    Tag,
)
from millstream.engine.state.forms import Buffer, Fields, Form, StateError

DIMENSIONS_MAX = 8
DTYPES = {code: np.dtype(f"<{code}") for code in ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")}
PRECISION_MAX = 38
CODE_WORDS_MAX = 8192  # of the code of an Arrow type: some thousands of parts of a STRUCT
# What making an instance of odd parts may raise.
_MISFITS = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError, pa.ArrowException)


def decode(data: Buffer, *, check: bool = True, copy: bool = True) -> Any:
    """Return the value. StateError for anything but the bytes of one value that this release understands.

    `check`: as `encode` was told. Without `copy` arrays are views of `data`, which they keep alive; they can be written to only if `data`
    can be.
    """
    view = memoryview(data).cast("B")
    head = _head(view, check)
    reader = _Reader(_tokens(head), view, PREFIX.size + len(head) + -len(head) % ALIGNMENT, copy)
    try:
        value = reader.value()
    except StateError:
        raise
    except _MISFITS as error:
        raise StateError(f"the state is damaged: {error}") from error
    reader.must_be_done()
    return value


def _head(view: memoryview, check: bool) -> memoryview:
    if len(view) < PREFIX.size or view[:4] != MAGIC:
        raise StateError("these bytes are no state: they do not begin as one")
    _, version, flags, head_size, size, sum_ = PREFIX.unpack_from(view)
    if version != FORMAT_VERSION:
        raise StateError(f"the state has format {version}; this release reads format {FORMAT_VERSION}")
    if flags != (CHECKED if check else 0) or view[: PREFIX.size] != PREFIX.pack(MAGIC, version, flags, head_size, size, sum_):
        raise StateError("the state is damaged in its first bytes, or it was written without the check that is asked for")
    if size != len(view) or head_size > size - PREFIX.size:
        raise StateError(f"the state is damaged: it should have {size} bytes and has {len(view)}")
    if check:
        began = zlib.crc32(PREFIX.pack(MAGIC, version, flags, head_size, size, 0))
        if sum_ != zlib.crc32(view[PREFIX.size :], began):
            raise StateError("the state is damaged: its check does not fit")
    return view[PREFIX.size : PREFIX.size + head_size]


def _tokens(head: memoryview) -> list[Any]:
    """Return the scalars of a head. Arrays, maps and extensions, by whose sizes memory could be asked for, are refused."""
    most = max(len(head), 1)
    unpacker = msgpack.Unpacker(
        max_buffer_size=most, max_str_len=most, max_bin_len=most, max_array_len=0, max_map_len=0, max_ext_len=0, raw=False
    )
    try:
        unpacker.feed(head)
        tokens = list(unpacker)
    except Exception as error:  # what msgpack raises is not a closed list
        raise StateError(f"the state's head is damaged: {error}") from error
    if unpacker.tell() != len(head):
        raise StateError("the state's head is damaged at its end")
    return tokens


class _Reader:
    def __init__(self, tokens: list[Any], view: memoryview, at: int, copy: bool) -> None:
        self._tokens = tokens
        self._place = 0
        self._view = view
        self._at = at  # where the next body begins
        self._copy = copy
        self._known: list[Any] = []
        self._forms: list[tuple[Form, int, tuple[str, ...]]] = []
        self._depth = 0

    def must_be_done(self) -> None:
        """StateError when something is left."""
        if self._place != len(self._tokens) or self._at != len(self._view):
            raise StateError("the state is damaged: something stands behind its value")

    # --- tokens and bodies ---

    def _token(self, type_: type[Any]) -> Any:
        if self._place == len(self._tokens):
            raise StateError("the state is damaged: it ends too soon")
        token = self._tokens[self._place]
        if type(token) is not type_:
            raise StateError(f"the state is damaged: a {type_.__name__} is missing in its head")
        self._place += 1
        return token

    def _count(self) -> int:
        """Return how many of something follow, which each take a token at least."""
        count: int = self._token(int)
        if not 0 <= count <= len(self._tokens) - self._place:
            raise StateError("the state is damaged: it holds less than it says")
        return count

    def _length(self) -> int:
        """Return a length that a body, which is looked at next, will be compared with."""
        length: int = self._token(int)
        if length < 0:
            raise StateError("the state is damaged: a length is negative")
        return length

    def _body(self, size: int) -> memoryview:
        end = self._at + size
        if end > len(self._view):
            raise StateError("the state is damaged: an array should have more bytes than there are")
        found = self._view[self._at : end]
        self._at = min(end + -size % ALIGNMENT, len(self._view))
        return found

    def _numbers(self, dtype: np.dtype[Any], count: int) -> np.ndarray[Any, Any]:
        found = np.frombuffer(self._body(dtype.itemsize * count), dtype=dtype)
        return found.copy() if self._copy else found

    def _buffer(self, size: int) -> Any:
        body = self._body(size)
        return pa.py_buffer(bytes(body) if self._copy else body)

    # --- values ---

    def value(self) -> Any:
        """Return the next value."""
        tag = self._token(int)
        plain = _PLAIN.get(tag)
        if plain is not None:
            return plain(self)
        told = _TOLD.get(tag)
        if told is None or self._depth == DEPTH_MAX:
            raise StateError("the state is damaged: a value is of no known kind, or too deep")
        self._depth += 1
        value = told(self)
        self._depth -= 1
        self._known.append(value)
        return value

    def _again(self) -> Any:
        number = self._token(int)
        if not 0 <= number < len(self._known):
            raise StateError("the state is damaged: it refers to what it has not told")
        return self._known[number]

    def _record(self) -> Any:
        form, version, names = self._form()
        values = form.taken_over(version, {name: self.value() for name in names})
        if form.is_bare:
            return Fields(form.name, values)
        return form.make(values)

    def _form(self) -> tuple[Form, int, tuple[str, ...]]:
        number: int = self._token(int)
        if number == len(self._forms):
            name, version = self._token(str), self._token(int)
            names = tuple([self._token(str) for _ in range(self._count())])
            self._forms.append((forms.form_named(name, version), version, names))
        if not 0 <= number < len(self._forms):
            raise StateError("the state is damaged: it refers to a form that it has not told")
        return self._forms[number]

    def _enum(self) -> Any:
        name: str = self._token(str)
        return forms.member(name, self._token(str))

    def _constant(self) -> Any:
        return forms.constant(self._token(str))

    # --- numbers, texts ---

    def _int(self) -> int:
        value: int = self._token(int)
        return value

    def _float(self) -> float:
        value: float = self._token(float)
        return value

    def _text(self) -> str:
        value: str = self._token(str)
        return value

    def _bytes(self) -> bytes:
        value: bytes = self._token(bytes)
        return value

    def _big_int(self) -> int:
        return int.from_bytes(self._token(bytes), "little", signed=True)

    def _long_bytes(self) -> Buffer:
        body = self._body(self._length())
        return bytes(body) if self._copy else body

    # --- what holds values ---

    def _elements(self) -> list[Any]:
        """Return a list that has no number of its own."""
        tag = self._token(int)
        read = _LISTS.get(tag)
        if read is None:
            raise StateError("the state is damaged: a list is missing")
        found: list[Any] = read(self)
        return found

    def _list(self) -> list[Any]:
        return [self.value() for _ in range(self._count())]

    def _ints(self) -> list[int]:
        found: list[int] = np.frombuffer(self._body(8 * self._length()), dtype="<i8").tolist()
        return found

    def _floats(self) -> list[float]:
        found: list[float] = np.frombuffer(self._body(8 * self._length()), dtype="<f8").tolist()
        return found

    def _texts(self) -> list[str | None]:
        found: list[str | None] = self._arrow_array("text", self._length()).to_pylist()
        return found

    def _big_ints(self) -> list[int | None]:
        return [None if text is None else int(text) for text in self._texts()]

    def _int_tuples(self) -> list[tuple[int, ...]]:
        count, width = self._length(), self._length()
        if not width:
            raise StateError("the state is damaged: tuples are empty")
        flat = np.frombuffer(self._body(8 * count * width), dtype="<i8").tolist()
        return list(zip(*(flat[place::width] for place in range(width)), strict=True)) if count else []

    def _table(self) -> list[Any]:
        form, version, names = self._form()
        count = self._length()
        if self._count() != len(names) or form.from_table is None:
            raise StateError(f"the state is damaged: {form.name} is in a table that it does not have")
        made = form.from_table(form.taken_over(version, {name: self.value() for name in names}))
        if len(made) != count:
            raise StateError(f"the state is damaged: a table of {form.name} has other rows than it says")
        return made

    def _tuple(self) -> tuple[Any, ...]:
        return tuple(self._list())

    def _set(self) -> set[Any]:
        return set(self._list())

    def _frozen_set(self) -> frozenset[Any]:
        return frozenset(self._list())

    def _dict(self) -> dict[Any, Any]:
        keys, values = self._elements(), self._elements()
        return dict(zip(keys, values, strict=True))

    # --- arrays ---

    def _shape(self) -> tuple[tuple[int, ...], int]:
        dimensions = self._count()
        if dimensions > DIMENSIONS_MAX:
            raise StateError("the state is damaged: an array has too many dimensions")
        shape = tuple([self._length() for _ in range(dimensions)])
        size = 1
        for length in shape:
            size *= length
        return shape, size

    def _array(self) -> np.ndarray[Any, Any]:
        dtype = DTYPES.get(self._token(str))
        if dtype is None:
            raise StateError("the state is damaged: an array is of no known type")
        shape, size = self._shape()
        return self._numbers(dtype, size).reshape(shape)

    def _structure(self) -> np.ndarray[Any, Any]:
        shape, _ = self._shape()
        fields = [(self._token(str), self._part()) for _ in range(self._count())]
        if not fields or any(array.shape != shape for _, array in fields):
            raise StateError("the state is damaged: the fields of an array are not alike")
        made = np.empty(shape, dtype=np.dtype([(name, array.dtype) for name, array in fields]))
        for name, array in fields:
            made[name] = array
        return made

    def _part(self) -> np.ndarray[Any, Any]:
        """Return an array that has no number of its own."""
        read = _ARRAYS.get(self._token(int))
        if read is None:
            raise StateError("the state is damaged: an array is missing")
        found: np.ndarray[Any, Any] = read(self)
        return found

    def _objects(self) -> np.ndarray[Any, Any]:
        shape, size = self._shape()
        values = self._elements()
        if len(values) != size:
            raise StateError("the state is damaged: an array has other sizes than it says")
        made = np.empty(size, dtype=np.object_)
        made[:] = values
        return made.reshape(shape)

    def _scalar(self) -> Any:
        return self._part()[()]

    def _arrow(self) -> Any:
        return self._arrow_array(self._token(str), self._length())

    def _arrow_array(self, code: str, rows: int) -> Any:
        found = self._unchecked(code, rows)
        found.validate(full=True)
        return found

    def _unchecked(self, code: str, rows: int) -> Any:
        has_nulls = self._token(bool)
        type_ = arrow_type(code)
        if not rows or code == "null":
            if rows > 8 * len(self._view):
                raise StateError("the state is damaged: more NULLs than it could hold")
            return pa.nulls(rows, type_) if code == "null" else pa.array([], type=type_)
        valid = self._buffer((rows + 7) // 8) if has_nulls else None
        if pa.types.is_struct(type_):
            parts = [self._unchecked(part_code, rows) for _, part_code in _struct_parts(code)]
            return pa.Array.from_buffers(type_, rows, [valid], children=parts)
        if code == "bool":
            return pa.Array.from_buffers(type_, rows, [valid, self._buffer((rows + 7) // 8)])
        width = FIXED_WIDTHS.get(code.partition(" ")[0])
        if width is not None:
            return pa.Array.from_buffers(type_, rows, [valid, self._buffer(width * rows)])
        offsets = self._buffer(4 * (rows + 1))
        last = int(np.frombuffer(offsets, dtype="<i4")[rows])
        if last < 0:
            raise StateError("the state is damaged: a length is negative")
        if type_ in FLAT_TYPES:
            return pa.Array.from_buffers(type_, rows, [valid, offsets, self._buffer(last)])
        inner = code.partition(" ")[2]
        if pa.types.is_map(type_):
            keys, items = self._unchecked("text", last), self._unchecked(inner, last)
            below = pa.StructArray.from_arrays([keys, items], fields=[type_.key_field, type_.item_field])
        else:
            below = self._unchecked(inner, last)
        return pa.Array.from_buffers(type_, rows, [valid, offsets], children=[below])


def _struct_parts(code: str) -> list[tuple[str, str]]:
    """Return the names and codes of a STRUCT's parts. StateError when the code says none."""
    words = code.split(" ")
    try:
        parts, at = [], 2
        for _ in range(int(words[1])):
            end = _end_of_code(words, at + 1, DEPTH_MAX)
            parts.append((words[at].replace("%20", " ").replace("%25", "%"), " ".join(words[at + 1 : end])))
            at = end
    except (IndexError, ValueError):
        raise StateError("the state is damaged: the parts of an Arrow array are not known") from None
    return parts


def _end_of_code(words: list[str], at: int, levels: int) -> int:
    """Return where the code that begins at a word ends."""
    if levels == 0:
        raise ValueError
    match words[at]:
        case "list" | "map":
            return _end_of_code(words, at + 1, levels - 1)
        case "decimal":
            return at + 3
        case "struct":
            end = at + 2
            for _ in range(int(words[at + 1])):
                end = _end_of_code(words, end + 1, levels - 1)
            return end
    return at + 1


def arrow_type(code: str, levels: int = DEPTH_MAX) -> Any:
    """Return the Arrow type of a code. StateError when there is none."""
    if code in ARROW_CODES:
        return ARROW_CODES[code]
    word, _, rest = code.partition(" ")
    if levels and code.count(" ") < CODE_WORDS_MAX:
        if word == "list":
            return pa.list_(arrow_type(rest, levels - 1))
        if word == "map":
            return pa.map_(pa.string(), arrow_type(rest, levels - 1))
        if word == "struct":
            return pa.struct([pa.field(name, arrow_type(part, levels - 1)) for name, part in _struct_parts(code)])
    numbers = rest.split(" ")
    if word == "decimal" and len(numbers) == 2 and all(n.isascii() and n.isdigit() and len(n) < 3 for n in numbers):
        precision, scale = int(numbers[0]), int(numbers[1])
        if 1 <= precision <= PRECISION_MAX and scale <= precision:
            return pa.decimal128(precision, scale)
    raise StateError("the state is damaged: an Arrow array is of no known type")


_Read = Callable[[_Reader], Any]
_PLAIN: dict[int, _Read] = {
    Tag.NONE: lambda reader: None,
    Tag.FALSE: lambda reader: False,
    Tag.TRUE: lambda reader: True,
    Tag.INT: _Reader._int,
    Tag.FLOAT: _Reader._float,
    Tag.TEXT: _Reader._text,
    Tag.BYTES: _Reader._bytes,
    Tag.BIG_INT: _Reader._big_int,
    Tag.LONG_BYTES: _Reader._long_bytes,
    Tag.AGAIN: _Reader._again,
}
_LISTS: dict[int, _Read] = {
    Tag.LIST: _Reader._list,
    Tag.INTS: _Reader._ints,
    Tag.FLOATS: _Reader._floats,
    Tag.TEXTS: _Reader._texts,
    Tag.BIG_INTS: _Reader._big_ints,
    Tag.INT_TUPLES: _Reader._int_tuples,
    Tag.TABLE: _Reader._table,
}
_ARRAYS: dict[int, _Read] = {
    Tag.ARRAY: _Reader._array,
    Tag.STRUCTURE: _Reader._structure,
    Tag.OBJECTS: _Reader._objects,
}
_TOLD: dict[int, _Read] = {
    **_LISTS,
    **_ARRAYS,
    Tag.TUPLE: _Reader._tuple,
    Tag.SET: _Reader._set,
    Tag.FROZEN_SET: _Reader._frozen_set,
    Tag.DICT: _Reader._dict,
    Tag.RECORD: _Reader._record,
    Tag.ENUM: _Reader._enum,
    Tag.CONSTANT: _Reader._constant,
    Tag.SCALAR: _Reader._scalar,
    Tag.ARROW: _Reader._arrow,
}
