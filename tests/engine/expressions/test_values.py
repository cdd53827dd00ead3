"""Text to values and back: instants, durations, numbers; one at a time and by the column."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.column import Column
from millstream.engine.data.durations import format_duration, parse_duration, unit_us
from millstream.engine.data.types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, INTERVAL, TEXT, TIMESTAMP, decimal, list_of
from millstream.engine.expressions.strings import as_list
from millstream.engine.expressions.text_columns import format_column, parse_column
from millstream.engine.expressions.values import (
    format_timestamp,
    format_value,
    parse_decimal,
    parse_double,
    parse_integer,
    parse_timestamp,
    parse_value,
)

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01 00:00", 0),
        ("1970-01-01T00:00:00.5", 500_000),
        ("1970-01-01T00:00:00,5", 500_000),
        ("1970-01-01t00:00:01z", SECOND),
        ("1970-01-01 02:00:00+02:00", 0),
        ("1970-01-01 02:00:00 +0200", 0),
        ("1969-12-31T19:00:00-05", 0),
        ("1970-01-01 05:30:15+05:30:15", 0),
        ("1970-01-01 00:00:00 UTC", 0),
        ("1970-01-01T00:00:00.0000019Z", 2),
        ("1970-01-01T00:00:00.0000015Z", 2),
        ("1970-01-01T00:00:00.0000025Z", 2),
        ("1970-01-01T00:00:00.00000250001Z", 3),
        ("1970-01-01T00:00:00.9999999Z", SECOND),
        ("1970-01-01T24:00:00", 86_400 * SECOND),
        ("1972-06-30T23:59:60Z", 78_796_800 * SECOND),
        ("2000-02-29", 951_782_400 * SECOND),
        ("  1970-01-01  ", 0),
        ("0000-01-01", -62_167_219_200 * SECOND),
        ("-0001-12-31", -62_167_305_600 * SECOND),
        ("+12345-01-01", 327_403_382_400 * SECOND),
    ],
)
def test_iso_8601_is_read(text: str, us: int) -> None:
    assert parse_timestamp(text) == us


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "1970",
        "1970-1-1",
        "1970-13-01",
        "1900-02-29",
        "1970-01-01T25:00",
        "1970-01-01T24:00:01",
        "1970-01-01T00:60",
        "1970-01-01T",
        "1970-01-01T00:00:00+25",
        "1970-01-01T00:00:61",
        "1970-01-01T00",
        "19700101",
        "1970-01-01T00:00:00 PST",
        "999999-01-01",
        "١٩٧٠-01-01",
    ],
)
def test_what_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"TIMESTAMP|does not exist|offset"):
        parse_timestamp(text)


def test_local_text_under_a_zone_takes_the_earlier_instant_or_moves_over_the_gap() -> None:
    berlin = "Europe/Berlin"
    assert format_timestamp(parse_timestamp("2026-07-01T12:00:00", berlin)) == "2026-07-01T10:00:00Z"
    assert format_timestamp(parse_timestamp("2026-10-25 02:30:00", berlin)) == "2026-10-25T00:30:00Z"
    assert format_timestamp(parse_timestamp("2026-03-29 02:30:00", berlin)) == "2026-03-29T01:30:00Z"
    assert parse_timestamp("2026-07-01T12:00:00Z", berlin) == parse_timestamp("2026-07-01T12:00:00Z")


@given(us=st.integers(-(2**63) + 1, 2**63 - 1))
@settings(deadline=None)
def test_every_timestamp_is_written_and_read_back(us: int) -> None:
    assert parse_timestamp(format_timestamp(us)) == us


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("10 SECONDS", 10 * SECOND),
        ("10 second", 10 * SECOND),
        ("INTERVAL '10' SECOND", 10 * SECOND),
        ("INTERVAL '10 seconds'", 10 * SECOND),
        ("'10 seconds'", 10 * SECOND),
        ("10s", 10 * SECOND),
        ("50ms", 50_000),
        ("1.5 hours", 5_400 * SECOND),
        ("-45 MINUTES", -2_700 * SECOND),
        ("1 day 02:03:04.5", 93_784_500_000),
        ("1 day, 2 hours", 93_600 * SECOND),
        ("00:00:10", 10 * SECOND),
        ("-36:00:00", -129_600 * SECOND),
        ("PT1M30S", 90 * SECOND),
        ("P1DT12H", 129_600 * SECOND),
        ("-P1W", -604_800 * SECOND),
        ("1 week", 604_800 * SECOND),
        ("3 microseconds", 3),
        ("1 hour -1 minute", 3_540 * SECOND),
        ("0.0000005 s", 0),
        ("0 s", 0),
    ],
)
def test_durations_are_read(text: str, us: int) -> None:
    assert parse_duration(text) == us


@pytest.mark.parametrize(
    "text", ["", "10", "seconds", "10 parsecs", "1 month", "2 years", "1:99", "10 s x", "P", "PT", "99999999 weeks", "1..5 s"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|unit of time|fixed length|range|INTERVAL"):
        parse_duration(text)


@given(us=st.integers(-(2**63) + 1, 2**63 - 1))
@settings(deadline=None)
def test_every_interval_is_written_and_read_back(us: int) -> None:
    assert parse_duration(format_duration(us)) == us


def test_units_have_lengths() -> None:
    assert [unit_us(u) for u in ("microseconds", "MS", "Minute", "d")] == [1, 1_000, 60 * SECOND, 86_400 * SECOND]


def test_numbers_are_exact_or_refused() -> None:
    assert parse_integer("9007199254740993", BIGINT) == 9007199254740993
    assert parse_integer("0" * 100 + "7", BIGINT) == 7
    assert parse_decimal("-12345678901234567890.5", decimal(38, 2)) == -1234567890123456789050
    assert parse_decimal("1.25e-1", decimal(5, 3)) == 125
    assert parse_decimal("0.004999", decimal(5, 2)) == 0
    assert parse_decimal("0e99999", decimal(5, 2)) == 0
    for text, message in (
        ("1.005", "more than 2 digits"),
        ("1e-999999", "more than 2"),
        ("1e999999", "out of the range"),
        ("--1", "is not"),
    ):
        with pytest.raises(ValueError, match=message):
            parse_decimal(text, decimal(5, 2), exact=True)
    for bad in ("1_000", "1e400", "", ".", "e5", "0x1", "١"):
        with pytest.raises(ValueError, match="DOUBLE"):
            parse_double(bad)
    with pytest.raises(ValueError, match="out of the range"):
        parse_integer("9" * 5000, BIGINT)


TYPES: list[tuple[Any, Any]] = [
    (INT, st.integers(-(2**31), 2**31 - 1)),
    (BIGINT, st.integers(-(2**63), 2**63 - 1)),
    (DOUBLE, st.floats(allow_nan=False)),
    (decimal(9, 4), st.integers(-(10**9) + 1, 10**9 - 1)),
    (decimal(38, 10), st.integers(-(10**38) + 1, 10**38 - 1)),
    (BOOLEAN, st.booleans()),
    (TIMESTAMP, st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(-(10**17), 10**17)),
    (DATE, st.integers(-(2**31), 2**31 - 1)),
    (INTERVAL, st.integers(-(2**63) + 1, 2**63 - 1)),
    (TEXT, st.text()),
]


@pytest.mark.parametrize(("type_", "values"), TYPES, ids=lambda v: str(v)[:20])
@given(data=st.data())
@settings(deadline=None, max_examples=25)
def test_columns_are_written_as_single_values_are_and_read_back(type_: Any, values: Any, data: Any, table: Any) -> None:
    stored = data.draw(st.lists(st.one_of(st.none(), values), max_size=15))
    column: Column = table((type_, stored)).column(0)
    texts = format_column(column)
    assert texts.to_pylist() == [format_value(v, type_) for v in stored]
    parsed = parse_column(texts, type_, exact=True)
    assert parsed.failed == {}
    assert as_list(parsed.column) == stored
    sliced = format_column(column.slice(len(stored) // 2, len(stored)))
    assert sliced.to_pylist() == texts.to_pylist()[len(stored) // 2 :]


@pytest.mark.parametrize(("type_", "values"), TYPES[:-1], ids=lambda v: str(v)[:20])
@given(
    texts=st.lists(
        st.one_of(
            st.none(),
            st.text(st.sampled_from("0123456789+-.eE:TZ "), max_size=12),
            st.sampled_from(
                ["1", "-1.5", "1e3", "2024-02-30", "2024-02-29", "2024-02-29T01:02:03", "2024-02-29 01:02:03.5+01:00", "NaN", "true"]
            ),
        ),
        max_size=10,
    )
)
@settings(deadline=None, max_examples=40)
def test_columns_of_text_are_read_as_single_values_are(type_: Any, values: Any, texts: list[Any]) -> None:
    for zone in (None, "Europe/Berlin") if type_ == TIMESTAMP else (None,):
        parsed = parse_column(pa.array(texts, pa.string()), type_, zone)
        wanted, reasons = one_by_one(texts, type_, zone)
        assert repr(as_list(parsed.column)) == repr(wanted)
        assert parsed.failed == reasons


def one_by_one(texts: list[Any], type_: Any, zone: str | None) -> tuple[list[Any], dict[int, str]]:
    values: list[Any] = []
    reasons: dict[int, str] = {}
    for i, text in enumerate(texts):
        try:
            values.append(None if text is None else parse_value(text, type_, zone))
        except ValueError as error:
            reasons[i] = str(error)
            values.append(None)
    return values, reasons


def test_lists_are_shown_by_their_elements() -> None:
    column = Column(list_of(TIMESTAMP), pa.array([[0, None], None, []], pa.list_(pa.timestamp("us", "UTC"))))
    assert format_column(column).to_pylist() == ['["1970-01-01T00:00:00Z", null]', None, "[]"]
    assert math.isnan(parse_double("nan"))
