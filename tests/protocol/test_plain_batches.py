"""The short way for plain record batches reads and writes what Arrow does, and gives everything else to Arrow."""

from __future__ import annotations

import itertools
import random
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.protocol.batches import BatchDecoder, BatchEncoder
from millstream.protocol.errors import RemoteProtocolError
from millstream.protocol.flatbuffers import read_batch_places
from millstream.protocol.plain_batches import PlainReader, PlainWriter, width_of

from tests.support.pairs import joined

SCHEMA = pa.schema([("n", pa.int64()), ("day", pa.date32()), ("text", pa.string()), ("at", pa.timestamp("us", "UTC")), ("x", pa.float64())])
WIDTHS = [width_of(field.type) or 0 for field in SCHEMA]


def batch(rows: int) -> Any:
    numbers = np.arange(rows)
    text = pa.array([f"é{n}" for n in range(rows)], pa.string())
    days = pa.array(numbers.astype(np.int32)).view(pa.date32())
    return pa.record_batch([numbers, days, text, pa.array(numbers).view(pa.timestamp("us", "UTC")), numbers / 7], schema=SCHEMA)


def buffers_of(one: Any) -> list[tuple[Any, ...]]:
    rows = one.num_rows
    _, offsets, characters = one.column(2).buffers()
    values = [np.frombuffer(one.column(i).buffers()[1], np.int32 if i == 1 else np.int64, rows) for i in (0, 1, 3, 4)]
    text = (memoryview(offsets)[: 4 * (rows + 1)], memoryview(characters))
    return [(values[0],), (values[1],), text, (values[2],), (values[3],)]


@pytest.mark.parametrize("rows", [1, 3, 1_000, 20_000])
def test_what_is_written_is_read_by_arrow(rows: int) -> None:
    payload = joined(PlainWriter(SCHEMA).write(rows, buffers_of(batch(rows))))
    decoded = BatchDecoder(SCHEMA).decode(payload, rows)
    decoded.validate(full=True)
    assert decoded.equals(batch(rows))


def test_a_large_column_is_written_without_a_copy() -> None:
    numbers = np.arange(100_000)
    pieces = PlainWriter(pa.schema([("n", pa.int64())])).write(len(numbers), [(numbers,)])
    assert any(np.shares_memory(np.frombuffer(piece, np.uint8), numbers) for piece in pieces)


def test_what_arrow_writes_is_read() -> None:
    encoder, reader = BatchEncoder(SCHEMA), PlainReader(WIDTHS)
    for rows in (5, 3_000, 1):
        payload = memoryview(joined(encoder.encode(batch(rows))))
        places = reader.read(payload, rows)
        assert places is not None
        assert np.frombuffer(payload, np.int64, rows, places[0][0]).tolist() == list(range(rows))
        assert np.frombuffer(payload, np.int32, rows, places[1][0]).tolist() == list(range(rows))
        offsets = np.frombuffer(payload, np.int32, rows + 1, places[2][0])
        start, size = places[3]
        characters = bytes(payload[start : start + size])
        assert [characters[a:b].decode() for a, b in itertools.pairwise(offsets)] == [f"é{n}" for n in range(rows)]
        assert np.frombuffer(payload, np.float64, rows, places[5][0]).tolist() == [n / 7 for n in range(rows)]


@pytest.mark.parametrize(
    "array", [pa.array([1, None], pa.int64()), pa.array([True, False]), pa.array([1, 2], pa.int32()), pa.array(["a", "b"])]
)
def test_nulls_and_other_layouts_are_left_to_arrow(array: Any) -> None:
    payload = memoryview(joined(BatchEncoder(pa.schema([("v", array.type)])).encode(pa.record_batch([array], names=["v"]))))
    assert PlainReader([8]).read(payload, 2) is None
    assert PlainReader([8, 8]).read(payload, 2) is None


def test_nothing_outside_a_changed_payload_is_pointed_at() -> None:
    """One to three bytes changed at random: the reader says None, raises, or names places that hold what they should."""
    dice = random.Random(5)
    whole = joined(BatchEncoder(SCHEMA).encode(batch(50)))
    kinds = set()
    for round_ in range(4_000):
        changed = bytearray(whole)
        for _ in range(dice.randint(1, 3)):
            changed[dice.randrange(900)] = dice.choice([0, 1, 127, 255, dice.randrange(256)])
        if round_ % 5 == 0:
            del changed[dice.randrange(len(changed)) :]
        reader = PlainReader(WIDTHS)
        if round_ % 2:
            reader.read(memoryview(whole), 50)
        try:
            places = reader.read(memoryview(changed), 50)
        except RemoteProtocolError:
            kinds.add("refused")
            continue
        kinds.add("none" if places is None else "read")
        for start, size in places or ():
            assert 0 <= start <= start + size <= len(changed)
        if places is not None:
            assert [size for _, size in places][:3] == [400, 200, 204]
    assert kinds == {"refused", "none", "read"}


def arrow_values(payload: bytes, rows: int) -> Any:
    """Return the columns as Arrow reads them, as bytes (text: offsets, characters), None where it refuses the payload."""
    try:
        read = BatchDecoder(SCHEMA).decode(payload, rows)
    except RemoteProtocolError:
        return None
    assert all(column.null_count == 0 for column in read.columns)
    found = []
    for field, column in zip(SCHEMA, read.columns, strict=True):
        width = width_of(field.type)
        buffers = column.buffers()
        found.append(bytes(buffers[1])[: rows * width if width else 4 * (rows + 1)])
        found += [bytes(buffers[2])] if not width else []
    return found


CHANGES = st.lists(
    st.tuples(
        st.integers(0, 111),  # which eight bytes
        st.sampled_from(["<b", "<H", "<i", "<q"]),
        st.integers(0, 7),
        st.sampled_from([0, 1, -1, 2, 4, 5, 8, 49, 50, 51, 64, 127, 2**15, 2**31 - 1, 2**62, -(2**63)]),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=300, deadline=None)
@given(CHANGES, st.booleans(), st.integers(-9, 9), st.sampled_from([50, 50, 50, 49, 51, 2**31]))
def test_what_is_read_of_a_changed_payload_is_what_arrow_reads(changes: Any, known: bool, longer: int, rows: int) -> None:
    whole = joined(BatchEncoder(SCHEMA).encode(batch(50)))
    changed = bytearray(whole + bytes(max(0, longer)))
    for at, form, inside, value in changes:
        size = struct.calcsize(form)
        struct.pack_into(
            form, changed, at * 8 + inside, (value + (1 << 8 * size - 1)) % (1 << 8 * size) - (0 if form == "<H" else 1 << 8 * size - 1)
        )
    del changed[len(changed) + min(0, longer) :]
    reader = PlainReader(WIDTHS)
    if known:
        reader.read(memoryview(whole), 50)
    try:
        places = reader.read(memoryview(changed), rows)
    except RemoteProtocolError:
        places = None
    if places is not None:
        theirs = arrow_values(bytes(changed), rows)
        if theirs is None:  # only what text offsets say is left to the one who looks at the text
            offsets = np.frombuffer(changed, np.int32, rows + 1, places[2][0])
            assert (np.diff(offsets) < 0).any() or offsets[0] < 0 or offsets[-1] > places[3][1]
        else:
            assert [bytes(changed[start : start + size]) for start, size in places] == theirs


def changed_numbers(**numbers: tuple[int, int]) -> tuple[memoryview, bytes]:
    whole = joined(BatchEncoder(SCHEMA).encode(batch(50)))
    changed, places = bytearray(whole), read_batch_places(whole)
    for name, (index, value) in numbers.items():
        struct.pack_into("<q", changed, getattr(places, name) + 8 * index, value)
    return memoryview(changed), whole


@pytest.mark.parametrize(
    "numbers",
    [
        {"body_bytes": (0, -1)},
        {"body_bytes": (0, 2**62)},
        {"body_bytes": (0, 64)},  # the buffers lie behind it
        {"buffers": (2 * 3, 0)},  # the second column's values where the first one's are
        {"buffers": (2 * 6, 1)},  # characters that are not aligned
    ],
)
def test_bodies_and_buffers_that_arrow_would_not_have_written_are_left_to_it(numbers: Any) -> None:
    changed, whole = changed_numbers(**numbers)
    fresh, knowing = PlainReader(WIDTHS), PlainReader(WIDTHS)
    assert knowing.read(memoryview(whole), 50) is not None
    assert fresh.read(changed, 50) is None
    assert knowing.read(changed, 50) is None


def test_a_form_is_remembered_only_if_it_is_that_of_the_schema_and_small() -> None:
    reader = PlainReader(WIDTHS)
    many = pa.record_batch([np.arange(2)] * 3_000, names=[f"c{n}" for n in range(3_000)])
    assert reader.read(memoryview(joined(BatchEncoder(many.schema).encode(many))), 2) is None
    assert reader._layout is None
    assert PlainReader([8] * 3_000).read(memoryview(joined(BatchEncoder(many.schema).encode(many))), 2) is None
