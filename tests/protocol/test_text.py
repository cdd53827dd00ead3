"""Rows as text: every type, and agreement with Python's own encoders."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from millstream.engine.data.calendar import days_from_civil
from millstream.engine.data.types import DATE, TIMESTAMP
from millstream.engine.expressions.values import parse_value
from millstream.protocol.values.text import csv_header, csv_lines, json_lines, plain_texts


def one(array: Any) -> Any:
    return pa.record_batch([array], names=["v"])


def as_json(array: Any) -> list[str]:
    return json_lines(one(array)).decode().splitlines()


def as_csv(array: Any) -> list[str]:
    return csv_lines(one(array)).decode().split("\n")[:-1]


@pytest.mark.parametrize(
    ("values", "kind", "shown"),
    [
        ([9007199254740993, None], pa.int64(), ["9007199254740993", "null"]),
        ([1.0, 0.1, 1e22, -0.0, None], pa.float64(), ["1.0", "0.1", "1e+22", "-0.0", "null"]),
        ([math.nan, math.inf, -math.inf], pa.float64(), ['"NaN"', '"Infinity"', '"-Infinity"']),
        ([True, False, None], pa.bool_(), ["true", "false", "null"]),
        ([Decimal("0.00000001"), Decimal("-1.50000000"), None], pa.decimal128(18, 8), ['"0.00000001"', '"-1.50000000"', "null"]),
        (
            [0, -1, 1_500_000, None],
            pa.timestamp("us", "UTC"),
            ['"1970-01-01T00:00:00Z"', '"1969-12-31T23:59:59.999999Z"', '"1970-01-01T00:00:01.500000Z"', "null"],
        ),
        ([dt.date(2024, 5, 6), None], pa.date32(), ['"2024-05-06"', "null"]),
        ([1_500_000, -90_000_000, 0, None], pa.duration("us"), ['"PT1.5S"', '"-PT90S"', '"PT0S"', "null"]),
        (["a", "", 'say "hi"', "two\nlines", "é测", None], pa.string(), ['"a"', '""', '"say \\"hi\\""', '"two\\nlines"', '"é测"', "null"]),
        ([[1, None], [], None], pa.list_(pa.int64()), ["[1, null]", "[]", "null"]),
        ([["a", 'b"'], None], pa.list_(pa.string()), ['["a", "b\\""]', "null"]),
        ([None, None], pa.null(), ["null", "null"]),
    ],
)
def test_json_shows_each_type_as_the_contract_says(values: list[Any], kind: Any, shown: list[str]) -> None:
    assert as_json(pa.array(values, kind)) == [f'{{"v": {s}}}' for s in shown]


@pytest.mark.parametrize(
    ("values", "kind", "shown"),
    [
        (["a", "", None, "a,b", 'say "hi"', " x"], pa.string(), ["a", '""', "", '"a,b"', '"say ""hi"""', '" x"']),
        ([math.nan, 1.5, None], pa.float64(), ["NaN", "1.5", ""]),
        ([Decimal("1.50")], pa.decimal128(5, 2), ["1.50"]),
        ([1_000_000], pa.timestamp("us", "UTC"), ["1970-01-01T00:00:01Z"]),
        ([["a", "b"], [1 and "c"], None], pa.list_(pa.string()), ['"[""a"", ""b""]"', '"[""c""]"', ""]),
    ],
)
def test_csv_shows_each_type_as_the_contract_says(values: list[Any], kind: Any, shown: list[str]) -> None:
    assert as_csv(pa.array(values, kind)) == shown


def test_csv_header_quotes_names_that_need_it() -> None:
    schema = pa.schema([("a", pa.int64()), ('b"c', pa.int64()), ("d,e", pa.int64())])
    assert csv_header(schema) == b'a,"b""c","d,e"\n'


def test_a_timestamp_beyond_the_year_9999_keeps_its_instant() -> None:
    far = 253_402_300_800 * 1_000_000
    assert as_json(pa.array([far, 2**62], pa.timestamp("us", "UTC")))[0] == '{"v": "10000-01-01T00:00:00Z"}'


@pytest.mark.parametrize("year", [-290_000, -100_000, -10_000, -9_999, -1_000, -999, -1, 0, 1, 9_999, 10_000, 32_768, 290_000])
def test_far_instants_and_dates_read_back(year: int) -> None:
    days = days_from_civil(year, 12, 31)
    (date,) = plain_texts(pa.array([days], pa.int32()).view(pa.date32())).to_pylist()
    assert parse_value(date, DATE) == days
    us = days * 86_400_000_000 + 1
    (instant, none) = plain_texts(pa.array([us, None], pa.timestamp("us", "UTC"))).to_pylist()
    assert parse_value(instant, TIMESTAMP) == us
    assert none is None


def test_a_sliced_batch_gives_only_its_rows() -> None:
    batch = pa.record_batch({"a": [1, 2, 3], "b": ["x", "y", "z"], "l": [[1], [2, 2], [3]]}).slice(1, 1)
    assert json_lines(batch) == b'{"a": 2, "b": "y", "l": [2, 2]}\n'
    assert csv_lines(batch) == b'2,y,"[2, 2]"\n'


def test_a_batch_without_rows_gives_no_bytes() -> None:
    assert json_lines(one(pa.array([], pa.int64()))) == b""


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.floats(), st.none() | st.text()), max_size=20))
def test_json_lines_read_back_to_the_same_values(rows: list[tuple[int, float, str | None]]) -> None:
    batch = pa.record_batch(
        [
            pa.array([r[0] for r in rows], pa.int64()),
            pa.array([r[1] for r in rows], pa.float64()),
            pa.array([r[2] for r in rows], pa.string()),
        ],
        names=["i", "f", "s"],
    )
    lines = json_lines(batch).decode().split("\n")[:-1]
    back = [json.loads(line) for line in lines]
    assert [b["i"] for b in back] == [r[0] for r in rows]
    assert [repr(float(b["f"])) for b in back] == [repr(r[1]) for r in rows]
    assert [b["s"] for b in back] == [r[2] for r in rows]


@given(st.lists(st.none() | st.text(st.characters(blacklist_characters="\x00\r", blacklist_categories=["Cs"])), max_size=20))
def test_csv_strings_read_back_to_the_same_values(values: list[str | None]) -> None:
    text = csv_lines(pa.record_batch([pa.array(values, pa.string()), pa.array([1] * len(values))], names=["s", "i"])).decode()
    back = [row[0] for row in csv.reader(io.StringIO(text, newline=""), strict=True)]
    assert back == [v or "" for v in values]
