"""CSV text: quoting, NULL and empty text, bad records one by one with their lines, any cutting into pieces."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from millstream.engine.data.errors import InvalidDefinition
from millstream.engine.data.schema import TimeRule
from millstream.engine.data.types import BIGINT, BOOLEAN, DOUBLE, INT, TEXT, TIMESTAMP, decimal
from millstream.engine.expressions.values import format_value, parse_value
from millstream.engine.ingest.csv_text import CsvParser
from millstream.engine.ingest.readers import Reader
from millstream.protocol.values.csv import split_regular, tokenize

ID_AND_TEXT = (("id", BIGINT), ("s", TEXT))


def read(data: bytes, coercer: Any, size: int | None = None, unread: tuple[str, ...] = ()) -> tuple[list[Any], list[Any]]:
    """Return (accepted results, rejections) of the text, fed in pieces of `size` bytes."""
    parser = CsvParser(coercer, unread=unread)
    step = size or max(len(data), 1)
    results = [parser.feed(data[i : i + step]) for i in range(0, len(data), step)] + [parser.finish()]
    found = [r for r in results if r is not None]
    return found, [r for result in found for r in result.rejected]


def all_rows(results: list[Any], rows_of: Any) -> list[Any]:
    return [row for result in results for row in rows_of(result)]


CASE_C28 = '\ufeffid,s\r\n1,"a,b"\r\n2,"line1\nline2"\r\n3,""\r\n4,\r\n5,"say ""hi"""\r\n6,"x",\r\n7,end'.encode()


@pytest.mark.parametrize("size", [None, 1, 2, 3, 7, 20])
def test_case_c28_csv_quirks(size: int | None, coercer: Any, rows_of: Any) -> None:
    results, rejected = read(CASE_C28, coercer(*ID_AND_TEXT), size)
    assert all_rows(results, rows_of) == [(1, "a,b"), (2, "line1\nline2"), (3, ""), (4, None), (5, 'say "hi"'), (7, "end")]
    assert [(r.index, r.line, r.reason, r.raw) for r in rejected] == [(5, 8, "3 fields where the header has 2", b'6,"x",')]


def test_columns_go_by_name_and_types_are_exact(coercer: Any, rows_of: Any) -> None:
    data = b"d,b,t,n,x,m\n1.5,true,2020-01-01 00:00:00,9007199254740993,zzz,1.10\nNaN,f,1970-01-01T00:00:00.000001Z,-1,y,0.1\n"
    columns = (("n", BIGINT), ("d", DOUBLE), ("b", BOOLEAN), ("t", TIMESTAMP), ("m", decimal(4, 2)), ("absent", INT))
    results, rejected = read(data, coercer(*columns))
    first, second = all_rows(results, rows_of)
    assert first == (9007199254740993, 1.5, True, 1_577_836_800_000_000, 110, None)
    assert math.isnan(second[1])
    assert (second[0], *second[2:]) == (-1, False, 1, 10, None)
    assert rejected == []
    assert results[0].ignored == ("x",)


def test_values_that_do_not_fit_are_refused_alone_with_line_and_bytes(coercer: Any, rows_of: Any) -> None:
    data = b'id,n\n1,2147483648\n"2\n",3\nx,1\n4,"5"\n5,\n6,1.0\n7,0x10\n8,+7\n'
    results, rejected = read(data, coercer(("id", BIGINT, False), ("n", INT)))
    assert all_rows(results, rows_of) == [(2, 3), (4, 5), (5, None), (8, 7)]
    assert [(r.index, r.line, r.raw) for r in rejected] == [(0, 2, b"1,2147483648"), (2, 5, b"x,1"), (5, 8, b"6,1.0"), (6, 9, b"7,0x10")]
    assert rejected[0].reason == "column n: 2147483648 is out of the range of INT"


def test_invalid_utf8_is_a_bad_row_and_keeps_its_bytes(coercer: Any, rows_of: Any) -> None:
    results, rejected = read(b"id,s\n1,ok\n2,\xff\xfe\n3,\xc3\xa9\n4,\xff,too many\n", coercer(*ID_AND_TEXT))
    assert all_rows(results, rows_of) == [(1, "ok"), (3, "é")]
    assert [(r.line, r.raw) for r in rejected] == [(3, b"2,\xff\xfe"), (5, b"4,\xff,too many")]


def test_a_quote_that_is_never_closed_costs_one_line(coercer: Any, rows_of: Any) -> None:
    for data in (b'id,s\n1,"abc\n2,x\n3,y\n', b'id,s\n1,"abc\n2,x\n3,"y"\n', b'id,s\r\n1,"abc\r\n2,x\r\n3,"y"'):
        results, rejected = read(data, coercer(*ID_AND_TEXT))
        assert all_rows(results, rows_of) == [(2, "x"), (3, "y")]
        assert [(r.line, r.reason) for r in rejected] == [(2, "a quote is never closed")]


def test_quotes_inside_an_unquoted_field_are_text(coercer: Any, rows_of: Any) -> None:
    results, rejected = read(b'id,s\n1,5" pipe\n2,6" and 7"\n3,"q"r\n4,ok\n', coercer(*ID_AND_TEXT))
    assert all_rows(results, rows_of) == [(1, '5" pipe'), (2, '6" and 7"'), (4, "ok")]
    assert [(r.line, r.reason) for r in rejected] == [(4, "text after a closing quote")]


def test_blank_lines_are_no_rows_and_lone_carriage_returns_are_text(coercer: Any, rows_of: Any) -> None:
    results, rejected = read(b"id,s\n\n1,a\rb\n\r\n2,c\n\n", coercer(*ID_AND_TEXT))
    assert all_rows(results, rows_of) == [(1, "a\rb"), (2, "c")]
    assert rejected == []


def test_header_alone_and_no_text_at_all_give_no_rows(coercer: Any) -> None:
    assert read(b"id,s\n", coercer(*ID_AND_TEXT)) == ([], [])
    assert read(b"", coercer(*ID_AND_TEXT)) == ([], [])
    with pytest.raises(InvalidDefinition, match="header"):
        read(b'id,"s\n', coercer(*ID_AND_TEXT))


def test_unit_and_zone_apply_to_the_event_time(coercer: Any, rows_of: Any, texts_of: Any) -> None:
    stream = coercer(("ts", TIMESTAMP), time=TimeRule("ts", unit="ms", zone="Europe/Berlin"))
    results, rejected = read(b"ts\n1715000000000\n2024-05-06 14:53:20\n2024-05-06T12:53:20Z\n99999999999999999\n\nx\n", stream)
    assert texts_of(results[0]) == [("2024-05-06T12:53:20Z",)] * 3
    assert [r.line for r in rejected] == [5, 7]
    whole, _ = read(b"t\n1715000000\n", coercer(("t", BIGINT), time=TimeRule("t", unit="s")))
    assert rows_of(whole[0]) == [(1_715_000_000,)]


def test_null_event_time_in_csv_is_a_bad_row(coercer: Any) -> None:
    results, rejected = read(b"t,v\n,1\n5,2\n", coercer(("t", BIGINT), ("v", INT), time=TimeRule("t", unit="s")))
    assert results[0].rows == 1
    assert [(r.line, r.reason) for r in rejected] == [(2, "event time t is NULL")]


FIELDS = st.one_of(
    st.none(),
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\r"), max_size=6),
    st.sampled_from(["", '"', ",", "\n", '""']),
)


def spelled(value: str | None) -> str:
    return "" if value is None else '"' + value.replace('"', '""') + '"'


@given(
    rows=st.lists(st.tuples(FIELDS, FIELDS), max_size=8),
    line_end=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
    size=st.integers(1, 30),
)
@example(rows=[("a\nb", None)], line_end="\r\n", last=False, size=4)
@settings(deadline=None, max_examples=60)
def test_what_is_written_by_the_rules_is_read_back(
    rows: list[Any], line_end: str, last: bool, size: int, coercer: Any, rows_of: Any
) -> None:
    lines = ["a,b", *(",".join(spelled(v) for v in row) for row in rows)]
    data = (line_end.join(lines) + (line_end if last else "")).encode()
    results, rejected = read(data, coercer(("a", TEXT), ("b", TEXT)), size)
    assert all_rows(results, rows_of) == rows
    assert rejected == []


@given(data=st.text(st.sampled_from('a,"\n\r1'), max_size=40).map(str.encode), size=st.integers(1, 12))
@settings(deadline=None, max_examples=150)
def test_any_bytes_give_the_same_rows_whatever_the_pieces(data: bytes, size: int, coercer: Any, rows_of: Any) -> None:
    columns = coercer(("a", TEXT), ("b", TEXT))
    whole, rejected = read(b"a,b\n" + data, columns)
    pieces, rejected_in_pieces = read(b"a,b\n" + data, columns, size)
    assert all_rows(whole, rows_of) == all_rows(pieces, rows_of)
    assert rejected == rejected_in_pieces


@given(rows=st.lists(st.tuples(FIELDS, FIELDS, FIELDS), min_size=1, max_size=8))
@settings(deadline=None, max_examples=60)
def test_the_quick_way_finds_the_same_records_as_the_slow_one(rows: list[Any]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_MINIMAL, lineterminator="\n")
    writer.writerows([["" if v is None else v for v in row] for row in rows])
    data = text.getvalue().encode()
    bounds = split_regular(data, ord(","), True)
    records = list(tokenize(data, ord(","), True))
    assert bounds is not None
    assert bounds.starts.tolist() == [r.start for r in records]
    assert bounds.fields.tolist() == [len(r.fields) for r in records]


def test_a_long_text_is_read_in_blocks(coercer: Any) -> None:
    data = b"id,s\n" + b"".join(b'%d,"row, %d"\n' % (i, i) for i in range(300_000))
    results = list(Reader(io.BytesIO(data), "x.csv", "csv", coercer(*ID_AND_TEXT).definition).chunks())
    assert len(results) > 1
    assert sum(r.rows for r in results) == 300_000
    assert results[-1].columns[1].values[-1].as_py() == "row, 299999"


# All texts of a column in one form go through Arrow at once, and each form here is one that Arrow, we or both know.
NUMBERS = [
    "1",
    "0",
    "007",
    "-5",
    "+7",
    " 12",
    "0x1F",
    "0X1",
    "2147483648",
    "9223372036854775808",
    "1.5",
    "-.5",
    "1.",
    ".",
    "-",
    "1-2",
    "1/2",
    "1e400",
    "-0",
]
NUMBERS += ["9" * 400, "0" * 25 + "1", "nan", "inf", "0.1", "1.2.3"]
TIMES = [
    "2015-07-15 01:02:03.5",
    "2015-07-15T01:02:03",
    "2015-07-15 01:02:03.123456Z",
    "2015-07-15 24:00:00",
    "2015-02-30 00:00:00",
    "2015-07-15",
]
TIMES += [
    "2015-07-15 10",
    "2015-07-15 10:30",
    "2015-07-15 10:30:00.",
    "2015-07-15 10:30:00.1234567",
    "2015-07-15 1030+01:00",
    "2015/07/15 10:30:00",
]
TIMES += [
    "2015-07-15 10:30+01",
    "201a-07-15 00:00:00",
    "2015-07-15 00:00:60",
    "2015-07-15 00:00:00z",
    "2015-03-29 02:30:00",
    "2015-07-15 0 :00:00",
]


@pytest.mark.parametrize(("type_", "texts"), [(INT, NUMBERS), (BIGINT, NUMBERS), (DOUBLE, NUMBERS), (TIMESTAMP, TIMES)])
def test_a_column_in_one_form_is_read_as_each_of_its_texts(type_: Any, texts: list[str], coercer: Any, texts_of: Any) -> None:
    for text in texts:
        for column in ([text] * 2, [text, "", text], [text, texts[0]], [text, texts[1]]):
            lines = "".join(f"{i},{field}\n" for i, field in enumerate(column))
            results, rejected = read(f"k,v\n{lines}".encode(), coercer(("k", BIGINT), ("v", type_)))
            found = dict(row for result in results for row in texts_of(result)) | {str(r.index): r.reason for r in rejected}
            assert found == {str(i): by_itself(field, type_) for i, field in enumerate(column)}


def by_itself(field: str, type_: Any) -> str | None:
    """Return how the value of a field is shown, or why it is refused."""
    try:
        return format_value(parse_value(field, type_, exact=True), type_) if field else None
    except ValueError as problem:
        return f"column v: {problem}"


def test_columns_that_nobody_reads_may_be_null_and_refuse_what_they_refused(coercer: Any, rows_of: Any) -> None:
    data = "k,v,s,need\n1,1,ä,x\n2,2,b,y\n".encode()
    columns = coercer(("k", BIGINT), ("v", INT), ("s", TEXT), ("need", TEXT, False))
    unread = ("v", "s", "need")
    results, rejected = read(data, columns, unread=unread)
    assert all_rows(results, rows_of) == [(1, 1, None, "x"), (2, 2, None, "y")]
    assert rejected == []
    for wrong in (b"3,x,c,z\n", b"3,3,\xff,z\n", b"3,3,c,\n", b"3,3,c\n"):
        assert read(data + wrong, columns, unread=unread)[1] == read(data + wrong, columns)[1] != []


def test_lines_of_any_form_count_and_empty_ones_are_no_records(coercer: Any, rows_of: Any) -> None:
    columns = coercer(("a", TEXT), ("b", BIGINT))
    for text in (b"x,1\n\n,\ny,z\n", b"x,1\r\n\r\n,\r\ny,z\r\n", b'x,1\n\n,\n"y",z\n', b"x,1\n\n,\ny,z"):
        results, rejected = read(b"a,b\n" + text, columns)
        assert all_rows(results, rows_of) == [("x", 1), (None, None)]
        assert [(r.index, r.line, r.raw.replace(b'"', b"")) for r in rejected] == [(2, 5, b"y,z")]
