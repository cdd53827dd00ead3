"""Arrow payloads: every type there and back, no copy of a large column, and nothing hostile gets through."""

from __future__ import annotations

import contextlib
import datetime as dt
import random
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from millstream.protocol import batches
from millstream.protocol.errors import LocalProtocolError, RemoteProtocolError
from millstream.protocol.types import Column, ColumnType, parse_schema, parse_type, spell_schema

from tests.support.conversations import BATCH_PAYLOAD, SCHEMA
from tests.support.pairs import joined

VALUES: dict[str, list[Any]] = {
    "BOOLEAN": [True, None],
    "INT": [-(2**31), None],
    "BIGINT": [9007199254740993, -(2**63)],
    "DOUBLE": [float("inf"), -0.0],
    "DECIMAL(10, 2)": [Decimal("1.50"), None],
    "DECIMAL(38, 0)": [Decimal(10**37), None],
    "TEXT": ["测试", ""],
    "TIMESTAMP": [dt.datetime(2024, 5, 6, 12, 53, 20, 1, dt.UTC), None],
    "DATE": [dt.date(2024, 5, 6), None],
    "INTERVAL": [dt.timedelta(seconds=-1.5), None],
    "BIGINT[]": [[1, None], []],
    "TEXT[]": [["a", "b"], None],
    "NULL": [None, None],
}


@pytest.mark.parametrize("spelled", VALUES)
@pytest.mark.parametrize("copies", [1, 20_000])
def test_every_type_travels_both_ways(spelled: str, copies: int) -> None:
    schema = batches.arrow_schema(parse_schema([["v", spelled, True]]))
    batch = pa.record_batch([pa.array(VALUES[spelled] * copies, schema.field(0).type)], schema=schema)
    sent_schema = batches.decode_schema(batches.encode_schema(schema))
    assert sent_schema == schema
    payload = joined(batches.BatchEncoder(schema).encode(batch))
    assert batches.BatchDecoder(sent_schema).decode(payload, batch.num_rows).equals(batch)
    assert spell_schema(batches.columns_of(sent_schema)) == [["v", spelled, True]]


def test_columns_of_a_large_batch_are_not_copied() -> None:
    batch = pa.record_batch([pa.array(range(100_000), pa.int64())], names=["v"])
    address = batch.column(0).buffers()[1].address
    pieces = batches.BatchEncoder(batch.schema).encode(batch)
    assert any(pa.py_buffer(piece).address == address for piece in pieces)
    payload = joined(pieces)
    decoded = batches.BatchDecoder(batch.schema).decode(payload, batch.num_rows)
    start = pa.py_buffer(payload).address
    assert start <= decoded.column(0).buffers()[1].address < start + len(payload)


@given(st.integers(0, 50), st.integers(0, 50))
def test_a_slice_travels_as_the_slice_it_is(start: int, count: int) -> None:
    batch = pa.record_batch([pa.array([None if i % 3 == 0 else str(i) for i in range(50)])], names=["v"]).slice(start, count)
    payload = joined(batches.BatchEncoder(batch.schema).encode(batch))
    assert batches.BatchDecoder(batch.schema).decode(payload, batch.num_rows).equals(batch)


def test_a_batch_of_another_schema_is_not_sent() -> None:
    with pytest.raises(LocalProtocolError, match="not that of its channel"):
        batches.BatchEncoder(SCHEMA).encode(pa.record_batch([pa.array([1])], names=["other"]))


def test_the_count_of_rows_must_be_true() -> None:
    with pytest.raises(RemoteProtocolError, match="holds 2 rows, the message says 3"):
        batches.BatchDecoder(SCHEMA).decode(BATCH_PAYLOAD, 3)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_batches_are_refused_before_they_are_unpacked(codec: str) -> None:
    if not pa.Codec.is_available(codec):
        pytest.fail(f"pyarrow was built without {codec}")
    batch = pa.record_batch([pa.array([0] * 100_000)], names=["v"])
    payload = _compressed(batch, codec)
    with pytest.raises(RemoteProtocolError, match="compressed"):
        batches.BatchDecoder(batch.schema).decode(payload, batch.num_rows)


def _compressed(batch: pa.RecordBatch, codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch.slice(0, 0))
        start = sink.tell()
        writer.write_batch(batch)
        end = sink.tell()
    return bytes(memoryview(sink.getvalue())[start:end])


@pytest.mark.parametrize(
    "data_type",
    [
        pa.dictionary(pa.int32(), pa.string()),
        pa.list_(pa.dictionary(pa.int32(), pa.string())),
        pa.map_(pa.int32(), pa.int32()),
        pa.month_day_nano_interval(),
        pa.decimal256(50, 2),
    ],
)
def test_types_without_counterpart_are_refused_by_column(data_type: pa.DataType) -> None:
    with pytest.raises(RemoteProtocolError, match="column 'v'"):
        batches.decode_schema(batches.encode_schema(pa.schema([("v", data_type)])))


def test_offsets_that_lead_outside_are_refused() -> None:
    batch = pa.record_batch([pa.array(["abc"])], names=["v"])
    payload = bytearray(joined(batches.BatchEncoder(batch.schema).encode(batch)))
    at = payload.rindex(b"\x03\x00\x00\x00")
    payload[at : at + 4] = b"\xff\xff\xff\x7f"
    with pytest.raises(RemoteProtocolError, match="not a batch of the channel's schema"):
        batches.BatchDecoder(batch.schema).decode(payload, 1)


def test_a_damaged_payload_is_refused_or_still_a_sound_batch(seed: int) -> None:
    chance = random.Random(seed)
    batch = pa.record_batch([pa.array(["abc", None, "d"]), pa.array([1.0, 2.0, None]), pa.array([[1], [], None])], names=["a", "b", "c"])
    payload = joined(batches.BatchEncoder(batch.schema).encode(batch))
    refused = 0
    for _ in range(3000):
        damaged = bytearray(payload)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        del damaged[len(damaged) - chance.choice([0, 0, 1, 8, 40]) :]
        try:
            decoded = batches.BatchDecoder(batch.schema).decode(bytes(damaged), 3)
        except RemoteProtocolError:
            refused += 1
            continue
        for row in (decoded.slice(i, 1) for i in range(3)):
            with contextlib.suppress(UnicodeDecodeError):
                row.to_pylist()
    assert refused > 0


def test_a_table_travels_as_a_stream() -> None:
    table = pa.table({"name": ["q1", "q2"], "rows": [1, None]})
    assert batches.decode_table(batches.encode_table(table)).equals(table)
    with pytest.raises(RemoteProtocolError, match="not an Arrow stream"):
        batches.decode_table(b"\x00" * 40)


@pytest.mark.parametrize(
    "text", ["", "FLOTE", "DECIMAL(39, 0)", "DECIMAL(2, 3)", "DECIMAL", "BIGINT" + "[]" * 9, "BIGINT" + "[]" * 5000, "STRUCT(a " * 5000]
)
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="type"):
        parse_type(text)


def test_types_print_as_they_are_parsed() -> None:
    assert [str(parse_type(spelled)) for spelled in VALUES] == list(VALUES)
    assert parse_type("decimal(10,2)[]") == ColumnType("LIST", element=ColumnType("DECIMAL", 10, 2))


@pytest.mark.parametrize("entry", [["v"], "v", [1, "BIGINT"], ["v", "BIGINT", 1], None])
def test_a_malformed_schema_is_refused(entry: object) -> None:
    with pytest.raises(ValueError, match="a column is"):
        parse_schema([entry])
    assert parse_schema([["v", "BIGINT"]]) == [Column("v", ColumnType("BIGINT"))]


def test_a_schema_of_the_other_byte_order_is_refused() -> None:
    message = bytearray(batches.encode_schema(pa.schema([("k", pa.int64())])))
    root = 8 + struct.unpack_from("<I", message, 8)[0]
    header_field = root + struct.unpack_from("<H", message, root - struct.unpack_from("<i", message, root)[0] + 8)[0]
    table = header_field + struct.unpack_from("<I", message, header_field)[0]
    vtable = table - struct.unpack_from("<i", message, table)[0]
    # Field 0 of a schema is its endianness; it is left out where it is little. Let it be found where a 1 happens to stand.
    one = next(at for at in range(table + 4, len(message) - 1) if struct.unpack_from("<h", message, at)[0] == 1)
    struct.pack_into("<H", message, vtable + 4, one - table)
    assert pa.ipc.read_schema(pa.py_buffer(bytes(message))).names == ["k"]
    with pytest.raises(RemoteProtocolError, match="big-endian"):
        batches.decode_schema(bytes(message))
