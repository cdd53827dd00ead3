"""Values in PostgreSQL's two forms, both ways, against psycopg's own readers and writers."""

from __future__ import annotations

import datetime as dt
import json
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.client.gateway.postgres.copy_input import CopyInput
from millstream.client.gateway.postgres.input_values import array_items, bytes_of, interval_us, literal, text_of_binary, value_of
from millstream.client.gateway.postgres.limits import COPY_BYTES_MAX, PARAMETERS_MAX
from millstream.client.gateway.postgres.output_values import (
    COPY_SIGNATURE,
    COPY_TRAILER,
    binary_column,
    copy_rows_binary,
    copy_rows_text,
    data_rows,
    text_column,
)
from millstream.client.gateway.postgres.sqlstates import PgError
from millstream.client.gateway.postgres.statements import CopyForm
from millstream.client.gateway.postgres.types import field_of, oid_of, type_of_oid
from millstream.protocol.batches import arrow_schema
from millstream.protocol.types import Column, parse_type

psycopg = pytest.importorskip("psycopg", reason="psycopg, the oracle of these tests, is not installed")
from psycopg.adapt import PyFormat, Transformer  # noqa: E402

UTC = dt.UTC
INSTANTS = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30)).map(lambda t: t.replace(tzinfo=UTC))
INSTANTS |= INSTANTS.map(lambda t: t.replace(microsecond=0))
TIMES = st.times() | st.times().map(lambda t: t.replace(microsecond=0))
WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "BOOLEAN": st.booleans(),
    "INT": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "DOUBLE": st.floats(allow_nan=False),
    "DECIMAL(20, 5)": st.decimals(-(10**14), 10**14, places=5),
    "TEXT": WORDS,
    "BYTES": st.binary(max_size=8),
    "TIME": TIMES,
    "TIMESTAMP": INSTANTS,
    "DATE": st.dates(),
    "INTERVAL": st.timedeltas(dt.timedelta(days=-900_000), dt.timedelta(days=900_000)),
    "INT[]": st.lists(st.none() | st.integers(-5, 5), max_size=4),
    "TEXT[]": st.lists(st.none() | WORDS, max_size=4),
    "TIMESTAMP[]": st.lists(INSTANTS, max_size=2),
    "BYTES[]": st.lists(st.none() | st.binary(max_size=4), max_size=3),
}
COLUMNS = st.sampled_from(sorted(VALUES)).flatmap(
    lambda name: st.tuples(st.just(name), st.lists(st.none() | VALUES[name], min_size=1, max_size=5))
)


def batch_of(spelled: str, values: list[Any]) -> tuple[Any, Column]:
    column = Column("c", parse_type(spelled))
    schema = arrow_schema([column])
    return pa.record_batch([pa.array(values, schema.field(0).type)], schema=schema), column


def loaded(oid: int, format: int, data: bytes | None) -> Any:
    return None if data is None else Transformer().get_loader(oid, format).load(data)


@settings(max_examples=100)
@given(COLUMNS)
def test_psycopg_reads_back_what_we_write(given_: tuple[str, list[Any]]) -> None:
    spelled, values = given_
    batch, column = batch_of(spelled, values)
    oid = oid_of(column.type)
    for format, make in ((0, text_column), (1, binary_column)):
        lain = pa.compute.cast(make(batch.column(0), batch.schema.field(0), column.type), pa.binary()).to_pylist()
        assert [loaded(oid, format, data) for data in lain] == values


@settings(max_examples=100)
@given(COLUMNS, st.booleans())
def test_we_read_what_psycopg_writes(given_: tuple[str, list[Any]], binary: bool) -> None:
    spelled, values = given_
    kind = parse_type(spelled)
    for value in values:
        if value is None or (isinstance(value, list) and not any(item is not None for item in value)):
            continue  # psycopg does not know what such a list is of
        if not binary and "BYTES" in spelled:
            continue  # without a connection psycopg escapes for servers of before 2010
        dumper = Transformer().get_dumper(value, PyFormat.BINARY if binary else PyFormat.TEXT)
        data = bytes(dumper.dump(value))
        text = text_of_binary(dumper.oid, data) if binary else data.decode()
        found = value_of(kind, text)
        if isinstance(value, Decimal):
            assert Decimal(found) == value
        elif isinstance(value, dt.datetime | dt.date | dt.time):
            assert type(value).fromisoformat(found).replace() == value
        elif isinstance(value, list) and value and isinstance(value[0], dt.datetime):
            assert [dt.datetime.fromisoformat(item) for item in found] == value
        else:
            assert found == value


@given(COLUMNS)
def test_a_row_message_counts_its_bytes(given_: tuple[str, list[Any]]) -> None:
    batch, column = batch_of(*given_)
    for format in (0, 1):
        data, at, rows = data_rows(batch, [column], [format]), 0, 0
        while at < len(data):
            assert data[at : at + 1] == b"D"
            size = int.from_bytes(data[at + 1 : at + 5], "big")
            length = int.from_bytes(data[at + 7 : at + 11], "big", signed=True)
            assert (data[at + 5 : at + 7], size) == (b"\0\1", 4 + 2 + 4 + max(0, length))
            at, rows = at + 1 + size, rows + 1
        assert (at, rows) == (len(data), batch.num_rows)


@settings(max_examples=100)
@given(COLUMNS, st.sampled_from(["text", "csv", "binary"]), st.integers(1, 40))
def test_copy_reads_what_copy_writes_however_it_is_cut(given_: tuple[str, list[Any]], name: str, cut: int) -> None:
    batch, column = batch_of(*given_)
    if name == "binary":
        data = COPY_SIGNATURE + payloads(copy_rows_binary(batch, [column])) + COPY_TRAILER
        form = CopyForm("binary")
    else:
        form = CopyForm(name, "," if name == "csv" else "\t", "null!" if name == "csv" else "\\N")
        data = payloads(copy_rows_text(batch, [column], form.delimiter, form.null, csv=name == "csv"))
    reader, rows = CopyInput(form, [column]), []
    for at in range(0, len(data), cut):
        rows += reader.feed(data[at : at + cut])
    rows += reader.feed(b"", last=True)
    texts = text_column(batch.column(0), batch.schema.field(0), column.type).to_pylist()
    found, expected = [row["c"] for row in rows], [value_of(column.type, text) for text in texts]
    if name == "binary" and column.type.name in ("TIMESTAMP", "TIME", "INTERVAL", "DECIMAL", "LIST"):
        found, expected = [found.count(None)], [expected.count(None)]  # their texts differ; the other tests compare them
    assert found == expected


def payloads(data: bytes) -> bytes:
    found, at = b"", 0
    while at < len(data):
        size = int.from_bytes(data[at + 1 : at + 5], "big")
        found, at = found + data[at + 5 : at + 1 + size], at + 1 + size
    return found


def test_csv_keeps_null_and_empty_text_apart() -> None:
    batch, column = batch_of("TEXT", [None, "", "a,b", 'q"', "x"])
    assert payloads(copy_rows_text(batch, [column], ",", "", csv=True)) == b'\n""\n"a,b"\n"q"""\nx\n'


def test_odd_values_have_postgresqls_spelling() -> None:
    batch, column = batch_of("DOUBLE", [float("nan"), float("inf"), float("-inf"), 1.0, None])
    assert text_column(batch.column(0), batch.schema.field(0), column.type).to_pylist() == ["NaN", "Infinity", "-Infinity", "1", None]
    batch, column = batch_of("TIMESTAMP", [])
    old = pa.array([-62_198_755_200_000_000, 253_402_300_800_000_000], pa.int64()).view(batch.schema.field(0).type)
    assert text_column(old, batch.schema.field(0), column.type).to_pylist() == ["0002-01-01 00:00:00+00 BC", "10000-01-01 00:00:00+00"]
    ancient = pa.array([-300_000_000_000_000_000], pa.int64()).view(batch.schema.field(0).type)
    for make in (text_column, binary_column):
        with pytest.raises(PgError, match="4714") as caught:
            make(ancient, batch.schema.field(0), column.type)
        assert caught.value.hint is not None


def test_structs_and_maps_are_jsonb() -> None:
    for spelled, value, text in (
        ("STRUCT(a INT)", {"a": 1}, '{"a": 1}'),
        ("MAP(TEXT, INT)", [("k", 2)], '{"k": 2}'),
        ("INT[][]", [[1]], "[[1]]"),
    ):
        batch, column = batch_of(spelled, [value, None])
        assert (field_of(column).oid, loaded(3802, 0, text.encode())) == (3802, json.loads(text))
        assert text_column(batch.column(0), batch.schema.field(0), column.type).to_pylist() == [text, None]
        assert binary_column(batch.column(0), batch.schema.field(0), column.type).to_pylist() == [b"\1" + text.encode(), None]


@pytest.mark.parametrize(
    ("spelled", "text", "expected"),
    [
        ("INT", "-5", " -5"),
        ("TEXT", "o'x; DROP", "'o''x; DROP'"),
        ("BOOLEAN", "t", "TRUE"),
        ("DECIMAL(5, 2)", "1E+2", "100"),
        ("DOUBLE", "-Infinity", "CAST('-Infinity' AS DOUBLE)"),
        ("INTERVAL", "1 day 02:00:00", "INTERVAL '93600000000 microseconds'"),
        ("INT[]", "{1,NULL}", "ARRAY[1, NULL]"),
        ("JSON", '{"a": 1}', "CAST('{\"a\": 1}' AS JSON)"),
    ],
)
def test_a_literal_is_what_the_language_reads(spelled: str, text: str, expected: str) -> None:
    assert literal(parse_type(spelled), text) == expected


@pytest.mark.parametrize(
    ("spelled", "text"),
    [("INT", "1; DROP TABLE t"), ("INT", "1_0"), ("BOOLEAN", "maybe"), ("DECIMAL(5, 2)", "NaN"), ("DECIMAL(5, 2)", "1e999999999"),
     ("DOUBLE", "1e999"),
     ("INTERVAL", "2 months"), ("INTERVAL", ""), ("TEXT", "a\0b"), ("INT[]", "{1,{2}}"), ("INT[]", "{1"), ("INT[]", "{1,}")],
)  # fmt: skip
def test_what_is_no_value_is_refused_and_never_becomes_a_part_of_the_statement(spelled: str, text: str) -> None:
    with pytest.raises(PgError):
        literal(parse_type(spelled), text)


@settings(max_examples=100)
@given(st.sampled_from(sorted(VALUES)), WORDS)
def test_no_text_breaks_out_of_its_literal(spelled: str, text: str) -> None:
    from millstream.client.gateway.postgres.sql_words import words_of

    try:
        made = literal(parse_type(spelled), text)
    except PgError:
        return
    assert not any(word.text == ";" or word.kind == "name" for word in words_of(made))
    assert [word.text for word in words_of(made + " AND")][-1] == "AND"


@given(st.sampled_from([16, 20, 21, 23, 25, 700, 701, 1082, 1114, 1184, 1186, 1700, 2950, 3802, 1007, 1009, 17]), st.binary(max_size=40))
def test_any_bytes_are_a_value_or_are_refused(oid: int, data: bytes) -> None:
    assert state_of(lambda: text_of_binary(oid, data).encode()) in ("", "22P03", "22008", "0A000")


def state_of(call: Callable[[], object]) -> str:
    """Return the SQLSTATE of what was raised, if anything was."""
    try:
        call()
    except PgError as problem:
        return problem.sqlstate
    return ""


@given(st.sampled_from(["text", "csv", "binary"]), st.lists(st.binary(max_size=80), max_size=5))
def test_any_bytes_of_copy_are_rows_or_are_refused(name: str, pieces: list[bytes]) -> None:
    reader = CopyInput(
        CopyForm(name, "," if name == "csv" else "\t", "\\N"), [Column("a", parse_type("INT")), Column("b", parse_type("TEXT"))]
    )

    def fed() -> None:
        for piece in pieces:
            assert all(row.keys() == {"a", "b"} for row in reader.feed(piece))
        reader.feed(b"", last=True)

    assert state_of(fed) in ("", "22P04", "22021", "22P03", "22008", "0A000", "54000")


def test_a_row_of_copy_is_bounded() -> None:
    for form, data in ((CopyForm(), b"x" * 65_536), (CopyForm("csv", ",", ""), b'"' + b"x" * 65_535)):
        reader = CopyInput(form, [Column("a", parse_type("TEXT"))])
        for _ in range(COPY_BYTES_MAX // 65_536):
            assert reader.feed(data) == []
        with pytest.raises(PgError, match=f"longer than {COPY_BYTES_MAX} bytes"):
            reader.feed(data)


def test_bytes_come_in_both_styles() -> None:
    assert [bytes_of(text) for text in ("\\x00fF", "\\X", "a\\000\\\\é", "")] == [b"\x00\xff", b"", b"a\0\\\xc3\xa9", b""]
    for text in ("\\x0", "\\xzz", "\\400", "\\a", "a\\"):
        with pytest.raises(PgError, match="bytea"):
            bytes_of(text)


def test_intervals_come_in_all_styles() -> None:
    texts = ["1 day 02:03:04.5", "P1DT2H3M4.5S", "26 hours 3 min 4.5 sec", "1 d 2h 3m 4s 500 ms", "93784500000 microseconds"]
    assert {interval_us(text) for text in texts} == {93_784_500_000}
    assert interval_us("-00:00:01") == -1_000_000
    for long in ("9" * 5_000 + ":00", "9" * 5_000 + " days", "P" + "9" * 5_000 + "D"):
        with pytest.raises(PgError, match="is no INTERVAL"):
            interval_us(long)


def test_arrays_keep_quotes_and_nulls_apart() -> None:
    assert array_items('{a,"b,c",NULL,"NULL","q\\"\\\\"}') == ["a", "b,c", None, "NULL", 'q"\\']
    assert type_of_oid(1007) == parse_type("INT[]")


def test_a_binary_array_in_another_is_refused() -> None:
    def array(item: bytes, oid: int) -> bytes:
        return struct.pack(">iiIiii", 1, 0, oid, 1, 1, len(item)) + item

    assert text_of_binary(1009, array(b'"', 25)) == '{"\\""}'
    with pytest.raises(PgError, match="arrays of arrays"):
        text_of_binary(1009, array(array(b'"', 25), 1009))


def test_an_array_has_so_many_items() -> None:
    full = "{" + ",".join("1" * PARAMETERS_MAX) + "}"
    assert len(array_items(full)) == PARAMETERS_MAX
    with pytest.raises(PgError, match="an array has at most 4096 items"):
        array_items(full.replace("}", ",1}"))
