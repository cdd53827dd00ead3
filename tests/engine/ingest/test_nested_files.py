"""Nested values and JSON in files: each format gives the same columns, and what is odd in one row refuses that row alone (K21)."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from millstream.engine.data.arrow import arrow_schema, column_to_arrow
from millstream.engine.data.schema import Field, Schema, StreamDefinition
from millstream.engine.data.types import (
    BIGINT,
    DECIMAL_PRECISION_MAX,
    INT,
    JSON,
    TEXT,
    TIMESTAMP,
    DataType,
    decimal,
    list_of,
    map_of,
    struct_of,
)
from millstream.engine.ingest.readers import Reader
from millstream.protocol.values.text import csv_header, csv_lines, json_lines

from tests.engine.ingest.conftest import make_coercer

POINT = struct_of([("x", BIGINT), ("Tags", list_of(TEXT)), ("at", TIMESTAMP)])
DEFINITION = StreamDefinition(
    "s", Schema((Field("r", POINT), Field("l", list_of(struct_of([("n", INT)]))), Field("m", map_of(decimal(9, 2))), Field("j", JSON)))
)
ROWS = [
    {
        "r": {"x": 1, "Tags": ["a,b", None, 'q"'], "at": "2026-03-08T12:30:00Z"},
        "l": [{"n": 1}, None],
        "m": {"b": "1.50", "a": None},
        "j": [1],
    },
    {"r": None, "l": [], "m": {}, "j": {"k": [None, 2.5]}},
    {"r": {"x": None, "Tags": None, "at": None}, "l": None, "m": None, "j": None},
]


def stored() -> Any:
    """Return the rows as an Arrow batch of the stream's own types."""
    coerced = make_coercer(*((f.name, f.type) for f in DEFINITION.schema.fields)).rows(ROWS)
    assert coerced.rejected == []
    return pa.record_batch([column_to_arrow(c) for c in coerced.columns], schema=arrow_schema(DEFINITION.schema))


def written(form: str, batch: Any) -> bytes:
    sink = io.BytesIO()
    if form == "csv":
        return bytes(csv_header(batch.schema) + csv_lines(batch))
    if form == "jsonl":
        return json_lines(batch)
    if form == "parquet":
        pq.write_table(pa.Table.from_batches([batch]), sink)
    else:
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
    return sink.getvalue()


def read(form: str, content: bytes, definition: StreamDefinition = DEFINITION) -> tuple[list[Any], list[str]]:
    with Reader(io.BytesIO(content), f"rows.{form}", form, definition) as reader:
        parts = list(reader.chunks())
    schema = arrow_schema(definition.schema)
    batches = [pa.record_batch([column_to_arrow(c) for c in part.columns], schema=schema) for part in parts]
    return pa.Table.from_batches(batches, schema).to_pylist(), [r.reason for part in parts for r in part.rejected]


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "arrow"])
def test_each_format_gives_the_columns_that_were_written(form: str) -> None:
    batch = stored()
    assert read(form, written(form, batch)) == (batch.to_pylist(), [])


def test_parquet_of_other_widths_and_orders_is_taken_by_the_names_of_parts() -> None:
    kind = pa.struct([("TAGS", pa.large_list(pa.large_string())), ("at", pa.timestamp("ms", "UTC")), ("X", pa.int16())])
    batch = pa.record_batch({"r": pa.array([{"TAGS": ["a"], "at": None, "X": 5}], kind)})
    rows, refused = read("parquet", written("parquet", batch))
    assert rows[0]["r"] == {"x": 5, "Tags": ["a"], "at": None}
    assert refused == []


UNKNOWN = {"r": {"x": 1, "z": 2}}


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "arrow"])
def test_a_part_that_a_struct_does_not_have_refuses_the_row_in_a_file_too(form: str) -> None:
    text = {"csv": b'r\n"{""x"": 1, ""z"": 2}"\n', "jsonl": json.dumps(UNKNOWN).encode()}
    content = text.get(form) or written(form, pa.RecordBatch.from_pylist([UNKNOWN]))
    assert read(form, content) == ([], ["column r: there is no part z"])


def one(array: Any, type_: DataType) -> tuple[Any, list[str], list[bytes]]:
    """Return what becomes of an array for a column of the type: the column as texts, reasons, raw rows."""
    coerced = make_coercer(("c", type_)).arrow(pa.record_batch({"c": array}))
    return column_to_arrow(coerced.columns[0]), [r.reason for r in coerced.rejected], [r.raw for r in coerced.rejected]


FAR = pa.array([2**60, 0]).cast(pa.timestamp("us", "UTC"))  # the year 38504, which Python's datetime does not reach


def one_map(items: Any, keys: tuple[str, ...] = ("b", "a")) -> Any:
    return pa.MapArray.from_arrays(pa.array([0, len(items)], pa.int32()), pa.array(keys), items)


def test_a_map_of_instants_beyond_pythons_is_taken_and_sorted_by_key() -> None:
    column, refused, _ = one(one_map(FAR), map_of(TIMESTAMP))
    assert refused == []
    assert column.keys.to_pylist() == ["a", "b"]
    assert column.items.cast(pa.int64()).to_pylist() == [0, 2**60]


def test_a_map_whose_key_stands_twice_or_whose_value_does_not_fit_is_refused_with_its_path() -> None:
    assert one(one_map(pa.array([1, 2]), ("a", "a")), map_of(INT))[1] == ["column c: the key 'a' stands twice"]
    assert one(one_map(pa.array([1, 2**40])), map_of(INT))[1] == [f"column c['a']: {2**40} is out of the range of INT"]


def test_a_refused_row_is_kept_raw_whatever_instants_it_holds() -> None:
    parts = [FAR, pa.array([1, 2**40]), pa.array([[], [1]])]
    array = pa.StructArray.from_arrays(parts, ["at", "k", "l"])
    column, refused, raw = one(array, struct_of([("at", TIMESTAMP), ("k", INT), ("l", list_of(INT))]))
    assert (len(column), refused) == (1, [f"column c.k: {2**40} is out of the range of INT"])
    assert json.loads(raw[0])["c"]["k"] == 2**40
    assert one(one_map(FAR, ("a", "a")), map_of(TIMESTAMP))[2] == [b'{"c": {"a": "1970-01-01 00:00:00+00:00"}}']
    far = pa.StructArray.from_arrays([FAR, pa.array([2**40, 2**40])], ["at", "k"])
    assert json.loads(one(far, struct_of([("at", TIMESTAMP), ("k", INT)]))[2][0])["c"] == {"at": 2**60, "k": 2**40}


def test_of_rows_that_break_their_type_only_those_are_refused() -> None:
    texts = pa.array([b"ok", b"\xff"]).view(pa.string())
    column, refused, _ = one(pa.StructArray.from_arrays([FAR, texts], ["at", "t"]), struct_of([("at", TIMESTAMP), ("t", TEXT)]))
    assert (len(column), refused) == (1, ["column c: invalid UTF-8 at byte 0"])
    assert one(pa.StructArray.from_arrays([texts], ["t"]), struct_of([("t", TEXT)]))[1] == ["column c: invalid UTF-8 at byte 0"]
    assert one(pa.array([b'"ok"', b"\xff"]).view(pa.string()), JSON)[1] == ["column c: invalid UTF-8 at byte 0"]
    wide = pa.Array.from_buffers(pa.decimal128(3, 1), 1, [None, pa.py_buffer((10**9).to_bytes(16, "little"))])
    refused = one(pa.StructArray.from_arrays([wide], ["d"]), struct_of([("d", decimal(DECIMAL_PRECISION_MAX, 1))]))[1]
    assert "does not fit in precision" in refused[0]


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (pa.array([[(1, 2)]], pa.map_(pa.int32(), pa.int32())), '{"1": 2}'),
        (pa.array([[("k", 2)]], pa.map_(pa.large_string(), pa.int32())), '{"k": 2}'),
        (pa.array([{}], pa.struct([])), "{}"),
        (pa.array([[1, 2]], pa.list_(pa.int32(), 2)), "[1, 2]"),
    ],
)
def test_json_is_made_of_any_nested_array(array: Any, text: str) -> None:
    column, refused, _ = one(array, JSON)
    assert (column.to_pylist(), refused) == ([text], [])


def test_what_has_no_place_in_json_is_refused() -> None:
    odd = pa.array([{"a": pa.MonthDayNano([1, 0, 0])}])
    assert one(odd, JSON)[1][0].startswith("column c: struct<a: month_day_nano_interval> is not JSON")
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    assert one(twice, JSON)[1:] == (["column c: the key 'x' stands twice"], [b'{"c": {"x": 2}}'])


def test_a_file_on_disk_reads_as_one_in_memory(tmp_path: Path) -> None:
    batch = stored()
    pq.write_table(pa.Table.from_batches([batch]), tmp_path / "rows.parquet", row_group_size=1)
    assert read("parquet", (tmp_path / "rows.parquet").read_bytes()) == (batch.to_pylist(), [])
