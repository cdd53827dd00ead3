"""Avro and Protobuf: every value of a schema comes through as the library itself has it; hostile bytes cost little and stop nothing."""

from __future__ import annotations

import datetime as dt
import io
import json
import struct
import time
import tracemalloc
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from millstream.client.edges.contract import DECODED_BYTES_MAX, ConnectorError, ConnectorOptions, Message, fitting
from millstream.client.edges.formats import MESSAGE_BYTES_MAX, RowReader, encoder
from millstream.protocol.types import parse_schema

from tests.edges.test_kills import daemon
from tests.support import services

fastavro = pytest.importorskip("fastavro", reason="fastavro is not installed")
pytest.importorskip("google.protobuf", reason="protobuf is not installed")
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: E402

UTC = dt.UTC
COLUMNS = parse_schema(
    [
        ["sensor", "TEXT", True],
        ["v", "DOUBLE", True],
        ["n", "BIGINT", True],
        ["at", "TIMESTAMP", True],
        ["day", "DATE", True],
        ["price", "DECIMAL(10, 2)", True],
        ["raw", "BYTES", True],
        ["place", "STRUCT(room TEXT, floor INT)", True],
        ["list", "BIGINT[]", True],
        ["tags", "MAP(TEXT, DOUBLE)", True],
        ["state", "TEXT", True],
        ["id", "TEXT", True],
    ]
)
AVRO = {
    "type": "record",
    "name": "Reading",
    "namespace": "plant",
    "fields": [
        {"name": "sensor", "type": "string"},
        {"name": "v", "type": ["null", "double"], "default": None},
        {"name": "n", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "raw", "type": "bytes"},
        {
            "name": "place",
            "type": {"type": "record", "name": "Place", "fields": [{"name": "room", "type": "string"}, {"name": "floor", "type": "int"}]},
        },
        {"name": "list", "type": {"type": "array", "items": "long"}},
        {"name": "tags", "type": {"type": "map", "values": "double"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["ON", "OFF"]}},
        {"name": "id", "type": ["null", {"type": "string", "logicalType": "uuid"}], "default": None},
    ],
}
PROTO = """syntax = "proto3";
package plant;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
message Unused {}
message Reading {
  string sensor = 1;
  optional double v = 2;
  int64 n = 3;
  google.protobuf.Timestamp at = 4;
  message Place { string room = 1; int32 floor = 2; repeated Place parts = 3; }
  Place place = 5;
  repeated int64 list = 6;
  map<string, double> tags = 7;
  enum State { ON = 0; OFF = 1; }
  State state = 8;
  bytes raw = 9;
  google.protobuf.StringValue id = 10;
  google.protobuf.Struct other = 11;
  string price = 12;
}
"""
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
LONGS = st.integers(-(2**63), 2**63 - 1)
TIMES = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1), timezones=st.just(UTC))
PLACES = st.fixed_dictionaries({"room": TEXTS, "floor": st.integers(-(2**31), 2**31 - 1)})
SHARED = {
    "sensor": TEXTS,
    "v": st.none() | st.floats(allow_nan=False),
    "n": LONGS,
    "at": TIMES,
    "raw": st.binary(max_size=8),
    "place": PLACES,
    "list": st.lists(LONGS, max_size=4),
    "tags": st.dictionaries(TEXTS, st.floats(allow_nan=False), max_size=3),
    "state": st.sampled_from(["ON", "OFF"]),
}
ROWS = st.fixed_dictionaries(
    {
        **SHARED,
        "day": st.none() | st.dates(dt.date(1900, 1, 1)),
        "price": st.decimals(-99_999_999, 99_999_999, places=2),
        "id": st.none() | st.uuids().map(str),
    }
)
TYPES = {
    "sensor": pa.string(),
    "v": pa.float64(),
    "n": pa.int64(),
    "at": pa.timestamp("us", "UTC"),
    "day": pa.date32(),
    "price": pa.decimal128(10, 2),
    "raw": pa.binary(),
    "place": pa.struct([("room", pa.string()), ("floor", pa.int32())]),
    "list": pa.list_(pa.int64()),
    "tags": pa.map_(pa.string(), pa.float64()),
    "state": pa.string(),
    "id": pa.string(),
}


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, pa.schema([(name, TYPES[name]) for name in rows[0]]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schemas")
    (folder / "reading.avsc").write_text(json.dumps(AVRO))
    (folder / "reading.proto").write_text(PROTO)
    return folder


@pytest.fixture(scope="module")
def avro(folder: Path) -> dict[str, Any]:
    return {"format": "avro", "schema": str(folder / "reading.avsc")}


@pytest.fixture(scope="module")
def proto(folder: Path) -> dict[str, Any]:
    return {"format": "protobuf", "schema": descriptor_set(folder, "reading"), "message": "plant.Reading"}


def descriptor_set(folder: Path, name: str) -> str:
    protoc = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools is not installed")
    made = folder / f"{name}.pb"
    well_known = Path(protoc.__file__).parent / "_proto"
    words = ["", f"-I{folder}", f"-I{well_known}", "--include_imports", f"--descriptor_set_out={made}", str(folder / f"{name}.proto")]
    assert protoc.main(words) == 0
    return str(made)


def message_class(path: str, name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(Path(path).read_bytes()).file:
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def reader(options: dict[str, Any], **others: Any) -> RowReader:
    return RowReader(ConnectorOptions("x", {**options, **others}), COLUMNS)


def row(options: dict[str, Any], value: bytes, **others: Any) -> dict[str, Any]:
    return reader(options, **others).rows([Message(value, "plant/7")])[0]


def reason(options: dict[str, Any], value: bytes) -> str:
    """Return why a message is refused; it is there with its raw bytes."""
    ((said, raw),) = row(options, value).items()
    assert said.startswith("unreadable message: ")
    assert raw == value[:4_096].decode("utf-8", "backslashreplace")
    return said


def encoded(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


# --- round trips against the libraries ------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(value=ROWS)
def test_avro_comes_as_its_library_writes_it_and_is_written_as_its_library_reads_it(avro: dict[str, Any], value: dict[str, Any]) -> None:
    assert row(avro, encoded(AVRO, value)) == value
    (written,) = encoder(ConnectorOptions("x", avro))(batch_of([value]))
    found = fastavro.schemaless_reader(io.BytesIO(written), fastavro.parse_schema(AVRO), None)
    assert {**found, "id": None if found["id"] is None else str(found["id"])} == value


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(value=st.fixed_dictionaries({**SHARED, "id": st.none() | TEXTS, "price": st.decimals(-999, 999, places=2)}))
def test_protobuf_comes_as_its_library_writes_it_and_is_written_as_its_library_reads_it(
    proto: dict[str, Any], value: dict[str, Any]
) -> None:
    (written,) = encoder(ConnectorOptions("x", proto))(batch_of([value]))
    found = message_class(proto["schema"], "plant.Reading").FromString(written)
    assert (found.sensor, found.n, found.raw, list(found.list), dict(found.tags)) == tuple(
        value[name] for name in ("sensor", "n", "raw", "list", "tags")
    )
    assert (found.v if found.HasField("v") else None) == value["v"]
    assert (found.id.value if found.HasField("id") else None) == value["id"]
    assert found.at.ToDatetime(UTC) == value["at"]
    assert (found.place.room, found.place.floor) == (value["place"]["room"], value["place"]["floor"])
    assert (found.state, found.price) == (["ON", "OFF"].index(value["state"]), str(value["price"]))
    wanted = {**value, "price": str(value["price"]), "place": {**value["place"], "parts": []}}
    assert row(proto, found.SerializeToString()) == wanted


def test_paths_and_time_units_work_as_for_json(avro: dict[str, Any], proto: dict[str, Any], folder: Path) -> None:
    columns = "sensor = topic[1], v = payload.tags.x, n = payload.list[1], id = payload.place.room"
    value = {"sensor": "a", "v": 1.0, "n": 2, "at": dt.datetime(2023, 1, 1, tzinfo=UTC), "day": None, "price": Decimal("1.50")}
    value |= {"raw": b"\xff", "place": {"room": "r", "floor": 1}, "list": [7, 8], "tags": {"x": 0.5}, "state": "ON", "id": None}
    wanted = {"sensor": "7", "v": 0.5, "n": 8, "id": "r"}
    assert row(avro, encoded(AVRO, value), columns=columns) == wanted
    shared = {name: value[name] for name in (*SHARED, "id")}
    assert row(proto, encoder(ConnectorOptions("x", proto))(batch_of([shared]))[0], columns=columns) == wanted
    (folder / "long.avsc").write_text(json.dumps({"type": "record", "name": "r", "fields": [{"name": "at", "type": "long"}]}))
    said = {"format": "avro", "schema": str(folder / "long.avsc"), "time_unit": "ms"}
    assert row(said, encoded({"type": "record", "name": "r", "fields": [{"name": "at", "type": "long"}]}, {"at": 1_500})) == {
        "at": dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)
    }


def test_fields_that_are_not_set_are_null_or_what_proto3_says(proto: dict[str, Any]) -> None:
    found = row(proto, b"")
    assert (found["v"], found["at"], found["place"], found["id"]) == (None, None, None, None)
    assert (found["sensor"], found["n"], found["list"], found["tags"], found["state"]) == ("", 0, [], {}, "ON")
    kind = message_class(proto["schema"], "plant.Reading")
    assert row(proto, kind(state=7).SerializeToString())["state"] == "7"
    other = kind()
    other.other["list"] = [1, {"x": None}]
    assert row(proto, other.SerializeToString(), columns="v = payload.other.list[0]") == {"v": 1.0}


def test_the_header_of_a_registry_is_read_and_written_and_another_schema_is_refused(avro: dict[str, Any], proto: dict[str, Any]) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}
    path = Path(avro["schema"]).with_name("small.avsc")
    path.write_text(json.dumps(schema))
    said = {**avro, "schema": str(path), "schema_id": 258}
    (written,) = encoder(ConnectorOptions("x", said))(pa.record_batch({"n": pa.array([5])}))
    assert written == b"\0\0\0\1\2" + encoded(schema, {"n": 5})
    assert row(said, written) == {"n": 5}
    assert "does not begin with the header of schema 258" in reason(said, b"\0\0\0\1\3\n")
    assert "does not begin with the header" in reason(said, b"")
    header = b"\0" + struct.pack(">I", 9)
    (written,) = encoder(ConnectorOptions("x", {**proto, "schema_id": 9}))(pa.record_batch({"n": pa.array([5])}))
    assert written == header + b"\x02\x02" + b"\x18\x05"  # one number, 1, each doubled: Reading is the second message
    nested = {**proto, "schema_id": 9, "message": "plant.Reading.Place"}
    (written,) = encoder(ConnectorOptions("x", nested))(pa.record_batch({"floor": pa.array([5])}))
    assert written == header + b"\x04\x02\x00" + b"\x10\x05"
    (written,) = encoder(ConnectorOptions("x", {**proto, "schema_id": 9, "message": "plant.Unused"}))(
        pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([])))
    )
    assert written == header + b"\0"


# --- hostile bytes --------------------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=st.binary(max_size=200))
def test_any_bytes_give_a_row_or_a_refused_one(avro: dict[str, Any], proto: dict[str, Any], value: bytes) -> None:
    for options in (avro, proto):
        (found,) = reader(options).rows([Message(value)])
        assert isinstance(found, dict)


def varint(number: int) -> bytes:
    number = number << 1 if number >= 0 else (-number << 1) - 1
    found = b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


AVRO_PARTS: dict[str, tuple[Any, bytes, str]] = {
    "a text of 2**60 bytes": ("string", varint(2**60), "it ends too early"),
    "a text of -1 bytes": ("string", varint(-1) + b"abc", "not a value"),
    "a list of 2**62 items": ({"type": "array", "items": "long"}, varint(2**62), "it ends too early"),
    "a list of 2**62 items in a block with its size": ({"type": "array", "items": "long"}, varint(-(2**62)) + varint(9), "too early"),
    "a decimal of a megabyte": (
        {"type": "bytes", "logicalType": "decimal", "precision": 9},
        varint(1_000_000) + b"\x7f" * 1_000_000,
        "a decimal of 1000000 bytes, 32 are the most",
    ),
    "no branch of the union": (["null", "long"], varint(9), "not a value"),
    "a branch below 0": (["null", "long"], varint(-3), "not a value"),
    "a symbol that is not there": ({"type": "enum", "name": "E", "symbols": ["A"]}, varint(5), "not a value"),
    "no UTF-8": ("string", varint(1) + b"\xff", "not a value"),
    "a time beyond all years": ({"type": "long", "logicalType": "timestamp-millis"}, varint(2**62), "int"),
    "more than the value": ("long", varint(1) + b"x", "1 bytes follow it"),
}


@pytest.mark.parametrize("what", AVRO_PARTS)
def test_a_hostile_avro_message_is_refused(tmp_path: Path, what: str) -> None:
    kind, value, said = AVRO_PARTS[what]
    path = tmp_path / "x.avsc"
    path.write_text(json.dumps({"type": "record", "name": "r", "fields": [{"name": "n", "type": kind}]}))
    assert said in reason({"format": "avro", "schema": str(path)}, value)


def test_what_a_short_message_may_become_is_bounded(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "x.avsc"
    items = {"type": "record", "name": "i", "fields": [{"name": f"f{n}", "type": "boolean"} for n in range(3)]}
    path.write_text(json.dumps({"type": "record", "name": "r", "fields": [{"name": "n", "type": {"type": "array", "items": items}}]}))
    options = {"format": "avro", "schema": str(path)}

    def of(count: int) -> bytes:
        return varint(count) + b"\1\0\1" * count + varint(0)

    assert "are the most of this schema" in reason(options, of(MESSAGE_BYTES_MAX // 3 - 10))
    assert len(row(options, of(50_000))["n"]) == 50_000
    many = "\n".join(f"  optional int64 f{n} = {n + 2};" for n in range(100))
    (folder / "many.proto").write_text(f'syntax = "proto3";\nmessage Many {{\n  repeated Many n = 1;\n{many}\n}}\n')
    options = {"format": "protobuf", "schema": descriptor_set(folder, "many"), "message": "Many"}
    tracemalloc.start()
    try:
        assert "its value takes more than" in reason(options, b"\n\0" * 50_000)
        assert tracemalloc.get_traced_memory()[1] < 2 * DECODED_BYTES_MAX
    finally:
        tracemalloc.stop()
    assert "are the most of a type with so many fields" in reason(options, b"\n\0" * 400_000)
    growth = RowReader(asked := ConnectorOptions("x", options), COLUMNS) and asked.growth
    assert 1 < fitting([Message(b"\n\0" * 10)] * 10_000, growth) < 1_000


def test_messages_nested_too_deeply_are_refused(folder: Path) -> None:
    (folder / "deep.proto").write_text('syntax = "proto3";\nmessage Deep { repeated Deep n = 1; }\n')
    options = {"format": "protobuf", "schema": descriptor_set(folder, "deep"), "message": "Deep"}

    def of(levels: int) -> bytes:
        value = b""
        for _ in range(levels):
            length, size = len(value), b""
            while length > 127:
                size, length = size + bytes([length & 127 | 128]), length >> 7
            value = b"\n" + size + bytes([length]) + value
        return value

    assert row(options, of(20))["n"][0]["n"]
    assert "nested deeper than 64 levels" in reason(options, of(60))
    assert "not of the Protobuf message" in reason(options, of(300))


# --- schemas and results that do not fit ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"type": "record",\n "name": "r" "fields": []}', "line 2, column 14: not JSON"),
        ('{"type": "record", "name": "r", "fields": [\n  {"name": "n", "type": "nope"}]}', "line 2: not an Avro schema: nope"),
        ('{"type": "array"}', "not an Avro schema"),
        ("5", "not an Avro schema"),
        (
            '{"type": "record", "name": "Node", "fields": [\n {"name": "n", "type": ["null", "Node"]}]}',
            "line 1: Node has itself as a part",
        ),
        (
            '{"type": "record", "name": "r", "fields": [\n{"name": "n", "type": {"type": "array", "items": "null"}}]}',
            "line 2: a list whose items take no bytes",
        ),
        ('{"type": "array", "items": ' * 40 + '"long"' + "}" * 40, "deeper than 32 levels"),
        ('{"type": "array", "items": ' * 30_000, "not an Avro schema"),
        ('{"type": "fixed", "name": "f", "size": "x"}', "the size of f is not a number"),
    ],
)
def test_an_avro_schema_that_cannot_be_is_told_with_file_and_place(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "x.avsc"
    path.write_text(text)
    with pytest.raises(ConnectorError) as told:
        reader({"format": "avro", "schema": str(path)})
    assert str(path) in str(told.value)
    assert said in str(told.value)


def test_a_schema_that_doubles_is_refused(tmp_path: Path) -> None:
    kind: Any = {"type": "record", "name": "r0", "fields": [{"name": "x", "type": "null"}]}
    for level in range(1, 28):
        kind = {"type": "record", "name": f"r{level}", "fields": [{"name": "a", "type": kind}, {"name": "b", "type": f"r{level - 1}"}]}
    path = tmp_path / "x.avsc"
    path.write_text(json.dumps(kind))
    with pytest.raises(ConnectorError, match="too many fields"):
        reader({"format": "avro", "schema": str(path)})


def test_a_protobuf_schema_that_cannot_be_is_told_with_file_and_place(folder: Path, proto: dict[str, Any]) -> None:
    (folder / "bad.proto").write_text('syntax = "proto3";\nmessage X { foo y = 1; }\n')
    (folder / "alone.pb").write_bytes(
        descriptor_pb2.FileDescriptorSet(
            file=[descriptor_pb2.FileDescriptorProto(name="a.proto", dependency=["missing.proto"])]
        ).SerializeToString()
    )
    for said, problem in (
        ({"schema": str(folder / "bad.proto")}, "bad.proto:2:13: "),
        ({"schema": str(folder / "none.pb")}, "none.pb cannot be read: No such file"),
        ({"schema": str(folder / "reading.avsc")}, "reading.avsc: not a descriptor set; protoc --include_imports"),
        ({"schema": str(folder / "alone.pb")}, "make it with --include_imports"),
        ({"message": "plant.Nothing"}, "there is no message plant.Nothing; there are plant.Unused, plant.Reading"),
        ({"message": None}, "needs message = '…', one of plant.Unused, plant.Reading"),
        ({"schema": None}, "needs schema = 'reading.proto'"),
    ):
        with pytest.raises(ConnectorError) as told:
            reader({**proto, **said})
        assert problem in str(told.value)


def test_a_proto_file_is_read_as_its_descriptor_set(proto: dict[str, Any], folder: Path) -> None:
    kind = message_class(proto["schema"], "plant.Reading")
    assert row({**proto, "schema": str(folder / "reading.proto")}, kind(n=5).SerializeToString())["n"] == 5


def test_a_result_that_does_not_fit_is_told_with_its_column(avro: dict[str, Any], proto: dict[str, Any], tmp_path: Path) -> None:
    unknown = pa.record_batch({"unknown": pa.array([1])})
    for options, said in ((avro, "the record has no field unknown"), (proto, "plant.Reading has no field unknown")):
        with pytest.raises(ConnectorError, match=said):
            encoder(ConnectorOptions("x", options))(unknown)
    path = tmp_path / "x.avsc"
    path.write_text(json.dumps({"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]}))
    small = {"format": "avro", "schema": str(path)}
    for values in ([None], [2**40]):
        with pytest.raises(ConnectorError, match=r"does not fit the Avro schema: .*n"):
            encoder(ConnectorOptions("x", small))(pa.record_batch({"n": pa.array(values, pa.int64())}))
    for column, values in (("n", pa.array(["x"])), ("state", pa.array(["NONE"])), ("list", pa.array([[1, None]]))):
        with pytest.raises(ConnectorError, match=f"column {column} does not fit the field plant.Reading.{column}"):
            encoder(ConnectorOptions("x", proto))(pa.record_batch({column: values}))
    with pytest.raises(ConnectorError, match="does not write format csv; it writes json, avro, protobuf"):
        encoder(ConnectorOptions("x", {"format": "csv"}))


# --- a whole source and sink ----------------------------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("form", ["avro", "protobuf"])
def test_messages_come_through_a_broker_as_columns_and_bad_ones_go_on_error(
    tmp_path: Path, avro: dict[str, Any], proto: dict[str, Any], form: str
) -> None:
    redis = pytest.importorskip("redis", reason="redis is not installed")
    options = avro if form == "avro" else {**proto, "columns": None}
    value: dict[str, Any] = {"sensor": "a", "v": 1.5, "n": 2**60, "at": dt.datetime(2023, 1, 1, 0, 0, 0, 5, UTC), "raw": b"\xff\0"}
    value |= {"place": {"room": "r", "floor": 1}, "list": [7, 8], "tags": {"x": 0.5}, "state": "OFF", "id": None}
    if form == "avro":
        value |= {"day": dt.date(2024, 2, 29), "price": Decimal("-1.50")}
    (good,) = encoder(ConnectorOptions("x", options))(batch_of([value]))
    columns = {c.name: str(c.type) for c in COLUMNS if c.name in value}
    if form == "protobuf":
        columns["place"] = "STRUCT(room TEXT, floor INT, parts JSON)"
    said = ", ".join(f"{name} = '{text}'" for name, text in options.items() if text is not None)
    names = ", ".join(columns)
    with (
        services.redis_server(tmp_path / "redis") as server,
        daemon(tmp_path / "data") as millstream,
        redis.Redis(port=server.port) as client,
    ):
        for message in (good, b"\xff" * 40, good):
            client.xadd("in", {"data": message})
        url = f"redis://127.0.0.1:{server.port}/0"
        millstream.execute(
            f"CREATE STREAM s ({', '.join(f'{name} {kind}' for name, kind in columns.items())}) ON ERROR INTO bad DURABILITY journal",
            f"CREATE QUERY q AS SELECT {names} FROM s",
            "CREATE QUERY refused AS SELECT * FROM bad",
            f"CREATE SINK out FROM q WITH (connector = 'redis', url = '{url}', key = 'out', {said})",
            f"CREATE SOURCE feed INTO s WITH (connector = 'redis', url = '{url}', key = 'in', field = 'data', {said})",
        )
        deadline = time.monotonic() + 60
        while client.xlen("out") < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        told = [millstream.execute("SHOW SOURCES"), millstream.execute("SHOW SINKS")]
        out = [fields[b"data"] for _, fields in client.xrange("out")]
        bad = millstream.execute("FETCH SELECT * FROM refused")
    assert out == [good, good], (told, bad)
    assert len(bad) == 1, bad
    assert "\\xff" in str(bad[0]), bad
