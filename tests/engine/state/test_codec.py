"""State as bytes: what goes in comes out, what is shared stays shared, and nothing else than whole bytes is read."""

from __future__ import annotations

import math
import random
import subprocess
import sys
import tracemalloc
import zlib
from decimal import Decimal
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from millstream.engine.data.arrow import column_to_arrow
from millstream.engine.data.column import CellColumn, Column
from millstream.engine.data.types import BIGINT, DOUBLE, TEXT, decimal, list_of
from millstream.engine.language.recipes import WindowKind, WindowSpec
from millstream.engine.state import forms
from millstream.engine.state.decoding import decode
from millstream.engine.state.encoding import DEPTH_MAX, PREFIX, Tag, encode, encoded_parts
from millstream.engine.state.forms import Form, StateError, state_record

INTEGERS = st.integers(-(2**70), 2**70)
SCALARS = st.one_of(st.none(), st.booleans(), INTEGERS, st.floats(), st.text(max_size=9), st.binary(max_size=90))
DTYPES = st.sampled_from(("b1", "i1", "i4", "i8", "u8", "f8"))
ARRAYS = DTYPES.flatmap(lambda dtype: arrays.arrays(np.dtype(dtype), arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)))
COLUMNS = st.one_of(
    st.lists(st.one_of(st.none(), st.text(max_size=5)), max_size=20).map(lambda v: pa.array(v, pa.string())),
    st.lists(st.one_of(st.none(), st.integers(-9, 9)), max_size=20).map(lambda v: pa.array(v, pa.int64())),
    st.lists(st.one_of(st.none(), st.booleans()), max_size=20).map(lambda v: pa.array(v, pa.bool_())),
    st.lists(st.one_of(st.none(), st.lists(st.one_of(st.none(), st.text(max_size=3)), max_size=3)), max_size=9).map(
        lambda v: pa.array(v, pa.list_(pa.string()))
    ),
    st.lists(st.one_of(st.none(), st.decimals(-99, 99, places=2)), max_size=9).map(lambda v: pa.array(v, pa.decimal128(20, 2))),
    st.lists(st.one_of(st.none(), st.binary(max_size=5)), max_size=20).map(lambda v: pa.array(v, pa.binary())),
    st.lists(st.one_of(st.none(), st.times()), max_size=9).map(lambda v: pa.array(v, pa.time64("us"))),
    st.integers(0, 9).map(pa.nulls),
)


def sliced(array: Any, start: int, stop: int) -> Any:
    return array.slice(start, stop)


LEAVES = st.one_of(SCALARS, ARRAYS, COLUMNS, st.builds(sliced, COLUMNS, st.integers(0, 5), st.integers(0, 9)))
KEYS = st.one_of(st.booleans(), INTEGERS, st.text(max_size=5), st.tuples(INTEGERS, st.text(max_size=3)))
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=12),
        st.lists(INTEGERS, min_size=8, max_size=20),
        st.lists(st.floats(), min_size=8, max_size=20),
        st.lists(st.one_of(st.none(), st.text(max_size=4)), min_size=8, max_size=20),
        st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=8, max_size=12),
        st.tuples(inner, inner),
        st.dictionaries(KEYS, inner, max_size=12),
        st.sets(KEYS, max_size=9),
        st.frozensets(INTEGERS, max_size=9),
        st.lists(st.one_of(st.text(max_size=3), INTEGERS), max_size=9).map(lambda v: np.array([*v, None], dtype=np.object_)[:-1]),
    ),
    max_leaves=20,
)


def shown(value: Any) -> Any:
    """Return what can be compared: types and bits as well."""
    if isinstance(value, np.ndarray):
        return "array", value.dtype.str, value.shape, shown(value.tolist()) if value.dtype == np.object_ else value.tobytes()
    if isinstance(value, pa.Array):
        return "arrow", str(value.type), value.to_pylist()
    if isinstance(value, list | tuple):
        return type(value).__name__, [shown(one) for one in value]
    if isinstance(value, dict):
        return "dict", [(shown(k), shown(v)) for k, v in value.items()]
    if isinstance(value, float):
        return "float", "nan" if math.isnan(value) else value.hex()
    return type(value).__name__, value


@settings(deadline=None, max_examples=150)
@given(VALUES)
def test_what_goes_in_comes_out_and_is_written_alike_again(value: Any) -> None:
    written = encode(value)
    found = decode(written)
    assert shown(found) == shown(value)
    assert encode(found) == written
    assert b"".join(encoded_parts(value)) == written
    assert shown(decode(bytearray(written), copy=False)) == shown(value)
    assert shown(decode(encode(value, check=False), check=False)) == shown(value)


@settings(deadline=None, max_examples=60)
@given(VALUES, st.randoms(use_true_random=False))
def test_bytes_that_were_cut_or_changed_are_refused(value: Any, chance: random.Random) -> None:
    written = encode(value)
    for cut in {0, 1, len(written) - 1, *(chance.randrange(len(written)) for _ in range(9))}:
        with pytest.raises(StateError):
            decode(written[:cut])
    for place in [*range(PREFIX.size), *(chance.randrange(len(written)) for _ in range(30))]:
        flipped = bytearray(written)
        flipped[place] ^= 1 << chance.randrange(8)
        with pytest.raises(StateError):
            decode(flipped)
    with pytest.raises(StateError):
        decode(written + b"\0")


@settings(deadline=None, max_examples=150)
@given(VALUES, st.randoms(use_true_random=False))
def test_changed_bytes_whose_check_was_made_to_fit_give_a_value_or_the_one_error(value: Any, chance: random.Random) -> None:
    written = encode(value, check=False)
    for _ in range(20):
        changed = bytearray(written)
        for _ in range(chance.randint(1, 3)):
            changed[chance.randrange(PREFIX.size, len(changed))] = chance.choice(
                (0, 1, 0x7F, 0x80, 0xC0, 0xDD, 0xFF, chance.randrange(256))
            )
        try:
            decode(changed, check=False)
        except StateError:
            continue


def headed(*tokens: Any, bodies: bytes = b"", nested: bytes = b"") -> bytes:
    """Return a state of these scalars, with a check that fits."""
    head = b"".join(map(msgpack.packb, tokens)) + nested
    behind = head + b"\0" * (-len(head) % 8) + bodies
    prefix = (b"MSST", 1, 1, len(head), PREFIX.size + len(behind))
    return PREFIX.pack(*prefix, zlib.crc32(behind, zlib.crc32(PREFIX.pack(*prefix, 0)))) + behind


HUGE = 2**40
HOSTILE = {
    "a list that says it is long": headed(Tag.LIST, HUGE),
    "an array that says it is long": headed(Tag.ARRAY, "i8", 1, HUGE),
    "an array of many sizes": headed(Tag.ARRAY, "i8", 3, HUGE, HUGE, HUGE, bodies=bytes(8)),
    "an array of negative size": headed(Tag.ARRAY, "i8", 1, -8, bodies=bytes(8)),
    "an array of objects": headed(Tag.ARRAY, "O8", 1, 1, bodies=bytes(8)),
    "texts that say they are many": headed(Tag.TEXTS, HUGE, False),
    "texts whose offsets lead away": headed(
        Tag.ARROW, "text", 2, False, bodies=np.array([0, 2**30, 4, 0], dtype="<i4").tobytes() + b"abcd\0\0\0\0"
    ),
    "texts that are none": headed(Tag.ARROW, "text", 1, False, bodies=np.array([0, 1], dtype="<i4").tobytes() + b"\xff" + bytes(7)),
    "lists whose offsets lead away": headed(
        Tag.ARROW, "list i8", 2, False, False, bodies=np.array([0, 5, 1, 0], dtype="<i4").tobytes() + bytes(8)
    ),
    "NULLs without end": headed(Tag.ARROW, "null", HUGE, False),
    "empty tuples without end": headed(Tag.INT_TUPLES, HUGE, 0),
    "an Arrow type of its own": headed(Tag.ARROW, "decimal 99 9", 1, False, bodies=bytes(16)),
    "a msgpack array": headed(nested=b"\xdd\xff\xff\xff\xff"),
    "nested msgpack arrays": headed(nested=b"\xdd\x00\xff\xff\xff" * 1000),
    "a msgpack map": headed(nested=b"\xdf\xff\xff\xff\xff"),
    "a msgpack extension": headed(nested=b"\xc9\xff\xff\xff\xff\x01"),
    "a text that is longer than all": headed(nested=b"\xdb\xff\xff\xff\xff"),
    "lists in lists": headed(*[Tag.LIST, 1] * 5000, Tag.NONE),
    "a reference to nothing": headed(Tag.AGAIN, 0),
    "a reference to itself": headed(Tag.LIST, 1, Tag.AGAIN, 0),
    "an unknown tag": headed(99),
    "an unknown class": headed(Tag.RECORD, 0, "os.system", 1, 1, "command", Tag.TEXT, "true"),
    "an unknown version": headed(Tag.RECORD, 0, "column", 9, 0),
    "a class without its fields": headed(Tag.RECORD, 0, "column", 1, 1, "type", Tag.NONE),
    "a class with odd fields": headed(Tag.RECORD, 0, "data_type", 1, 1, "kind", Tag.INT, 4),
    "a class with odd values": headed(Tag.RECORD, 0, "number_key", 1, 4, "type", "bits", "null_id", "pool", *[Tag.INT, 4] * 4),
    "a table that there is none of": headed(Tag.TABLE, 0, "column", 1, 3, "type", "values", "valid", 1, 3, *[Tag.NONE] * 3),
    "an unknown member": headed(Tag.ENUM, "window_kind", "spiral"),
    "an unknown function": headed(Tag.CONSTANT, "eval"),
    "keys that cannot be": headed(Tag.DICT, Tag.LIST, 1, Tag.LIST, 0, Tag.LIST, 1, Tag.NONE),
    "a dict that lacks values": headed(Tag.DICT, Tag.LIST, 0, Tag.LIST, 1, Tag.NONE),
    "a number as text that is none": headed(Tag.BIG_INTS, 1, False, bodies=np.array([0, 1], dtype="<i4").tobytes() + b"x" + bytes(7)),
    "nothing": headed(),
    "something behind": headed(Tag.NONE, Tag.NONE),
    "bytes behind": headed(Tag.NONE, bodies=bytes(8)),
    "another file": b"PK\x03\x04" + bytes(60),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_give_the_one_error_and_take_no_memory(name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(StateError):
            decode(HOSTILE[name])
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def test_what_is_shared_stays_shared() -> None:
    array, column, window = np.arange(5), Column(TEXT, pa.array(["a", None])), WindowSpec(WindowKind.ROWS, rows=3)
    found = decode(encode({"a": [array, column, window], "b": (array, column, window)}))
    assert all(one is other for one, other in zip(found["a"], found["b"], strict=True))
    found["a"][0][0] = 9
    assert found["b"][0][0] == 9
    assert found["a"][2] == window


def test_what_holds_itself_or_has_no_form_cannot_be_written() -> None:
    loop: list[Any] = []
    loop.append({"again": loop})
    deep: list[Any] = []
    for _ in range(DEPTH_MAX + 1):
        deep = [deep]
    for odd, told in (
        (loop, "holds itself"),
        (deep, "deeper"),
        (Decimal(1), "no form"),
        (print, "no form"),
        (np.array("now", "M8[s]"), "datetime64"),
    ):
        with pytest.raises(StateError, match=told):
            encode(odd)


def test_columns_of_all_kinds_come_back_also_those_that_are_made_when_they_are_read() -> None:
    wide = np.array([10**30, 0, -(10**36)], dtype=np.object_)
    columns = [
        Column(DOUBLE, np.array([1.5, math.nan, -0.0]), np.array([True, True, False])),
        Column(decimal(38, 2), wide, np.array([True, False, True])),
        Column(TEXT, pa.array(["ä", None, "", "x"])).slice(1, 4),
        Column(list_of(BIGINT), pa.array([[1, None], None, []])),
        CellColumn(BIGINT, [1, 2]),
        CellColumn(TEXT, ["one"]),
    ]
    for column in columns:
        found = decode(encode(column))
        assert type(found) is Column
        assert found.type == column.type
        assert repr(column_to_arrow(found).to_pylist()) == repr(column_to_arrow(column).to_pylist())


def test_arrays_are_views_of_the_bytes_when_that_is_asked_for() -> None:
    column = Column(TEXT, pa.array(["a", "b"]))
    given = bytearray(encode([np.arange(4), column, b"x" * 100]))
    numbers, text, blob = decode(given, copy=False)
    assert not numbers.flags.owndata
    assert isinstance(blob, memoryview)
    numbers[0] = 77
    again = decode(_checked(given))
    assert again[0][0] == 77
    assert text.values.to_pylist() == again[1].values.to_pylist() == ["a", "b"]
    own = decode(given := bytearray(_checked(given)))[0]
    given[:] = bytes(len(given))
    assert own.tolist() == [77, 1, 2, 3]
    assert own.flags.writeable


def _checked(given: bytearray) -> bytes:
    """Return bytes with a check that fits again."""
    magic, version, flags, head, size, _ = PREFIX.unpack_from(given)
    behind = bytes(given[PREFIX.size :])
    sum_ = zlib.crc32(behind, zlib.crc32(PREFIX.pack(magic, version, flags, head, size, 0)))
    return PREFIX.pack(magic, version, flags, head, size, sum_) + behind


def test_equal_values_are_written_alike_under_every_hash_seed() -> None:
    script = (
        "from millstream.engine.state.encoding import encode\n"
        "print(encode([{'b', 'a', 'ccc', 'dd', ''}, frozenset((3, 'x', (1, 'y'))), {'k': {'v', 'w'}}]).hex())"
    )
    made = {
        subprocess.run([sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True).stdout
        for seed in "1234"
    }
    assert len(made) == 1


class Moved:
    """A class whose form changes in the tests."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high


def split(fields: dict[str, Any]) -> dict[str, Any]:
    low, high = fields.pop("bounds")
    return {**fields, "low": low, "high": high}


def test_an_added_field_has_its_default_a_removed_one_is_ignored_and_a_changed_one_is_migrated() -> None:
    def bytes_of(version: int, fields: dict[str, Any]) -> bytes:
        tokens = [t for name, value in fields.items() for t in _told(value)]
        return headed(Tag.RECORD, 0, "moved", version, len(fields), *fields, *tokens)

    form = Form("moved", 4, Moved, ("low", "high", "list"), {"list": list}, {2: split})
    forms.register_form(form)
    try:
        kept = bytes_of(1, {"bounds": (1, 2), "colour": 5}), bytes_of(3, {"low": 1, "high": 2, "colour": 5})
        for bytes_ in kept:
            found = decode(bytes_)
            assert (found.low, found.high, found.list) == (1, 2, [])
        for odd, told in (
            (bytes_of(5, {"low": 1, "high": 2, "list": 3}), "version 5 of the state moved is newer than this release, which reads up to 4"),
            (bytes_of(4, {"low": 1, "high": 2}), "version 4 of moved has other fields than this release knows"),
            (bytes_of(3, {"low": 1}), "version 3 of moved has other fields than this release knows: high"),
        ):
            with pytest.raises(StateError, match=told):
                decode(odd)
        with pytest.raises(ValueError, match="moved is the state of Moved already"):
            state_record("moved", 1, ())(Moved)
    finally:
        del forms._FORMS["moved"], forms._OF_TYPES[Moved]


def _told(value: Any) -> list[Any]:
    if isinstance(value, tuple):
        return [Tag.TUPLE, len(value), *(token for one in value for token in _told(one))]
    return [Tag.INT, value]
