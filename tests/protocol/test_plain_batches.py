"""The short way for plain record batches reads and writes what Arrow does, and gives everything else to Arrow."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from millstream.protocol.batches import BatchDecoder, BatchEncoder
from millstream.protocol.errors import RemoteProtocolError
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
