"""Text in and out: scripts cut into statements, CSV and JSON lines as they arrive, tables for people."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from millstream.client.data import Shaper, plain_value, to_table
from millstream.client.errors import MillstreamError
from millstream.client.inputs import CsvInput, JsonLinesInput
from millstream.client.render import ArrowRenderer, LiveTable, WholeTable, renderer_for
from millstream.client.statements import first_word, is_complete, name_of, quoted, split_script
from millstream.protocol.types import Column, parse_schema, parse_type
from millstream.protocol.values.mapping import column_maps

# --- statements ---


def test_a_script_is_cut_at_semicolons_outside_quotes_and_comments() -> None:
    script = "CREATE STREAM s (t TEXT); -- a; b\nINSERT INTO s VALUES ('x;''y');\n/* c; */ SELECT \"a;b\" FROM s\n;;-- end"
    assert [s.strip() for s in split_script(script)] == [
        "CREATE STREAM s (t TEXT)",
        "-- a; b\nINSERT INTO s VALUES ('x;''y')",
        '/* c; */ SELECT "a;b" FROM s',
    ]


def test_a_statement_keeps_its_line_numbers() -> None:
    statements = split_script("SELECT 1;\n\nSELECT\n2;\nSELECT 3")
    assert [statement.count("\n", 0, statement.index("SELECT")) for statement in statements] == [0, 2, 4]


@given(st.text(alphabet="a;'\"-/* \n"))
def test_cutting_loses_nothing_but_semicolons_and_blanks(text: str) -> None:
    joined = "".join(split_script(text))
    assert set(joined) <= set(text) | {"\n"}
    assert joined.count("a") <= text.count("a")


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("SELECT 1;", True),
        ("SELECT 1", False),
        ("SELECT ';", False),
        ("SELECT ';';", True),
        ("SELECT 1; -- x", True),
        ("", False),
        ("/* ;", False),
    ],
)
def test_a_statement_is_complete_with_a_semicolon_outside_quotes(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


@pytest.mark.parametrize(
    ("text", "word"), [("select 1", "SELECT"), ("-- x\n( SELECT 1)", "SELECT"), ("'a'", ""), ("", ""), ("/* */ WITH", "WITH")]
)
def test_the_first_word_is_found_behind_comments(text: str, word: str) -> None:
    assert first_word(text) == word


@pytest.mark.parametrize(
    ("typed", "name"), [("Avg", "avg"), ('"Avg"', "Avg"), ("a/b", "a/b"), (" x ", " x "), ('"a""b"', 'a"b'), ("DROP", "drop"), ("", "")]
)
def test_names_on_the_command_line_fold_as_in_the_language(typed: str, name: str) -> None:
    assert name_of(typed) == name
    assert name_of(quoted(name)) == name or name == ""


# --- csv ---


TEXTS = parse_schema([["id", "TEXT", True], ["s", "TEXT", True]])


def lines_of(data: bytes, size: int) -> list[Any]:
    """Return line and values of each row, or line and reason, however the text is cut."""
    reader, found = CsvInput(TEXTS), []
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    for read in [*(reader.feed(piece) for piece in pieces), reader.feed(b"", last=True)]:
        found += [(line, list(row.values())) for line, row in zip(read.lines, read.rows, strict=True)] + read.refused
    return found


QUIRKS = b'\xef\xbb\xbfid,s\r\n1,"a,b"\r\n2,"line1\nline2"\r\n3,""\r\n4,\r\n\n5,"say ""hi"""\r\n6,"x",\r\n7,last'
QUIRK_ROWS = [
    (2, ["1", "a,b"]),
    (3, ["2", "line1\nline2"]),
    (5, ["3", ""]),
    (6, ["4", None]),
    (8, ["5", 'say "hi"']),
    (9, "3 fields where the header has 2"),
    (10, ["7", "last"]),
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_csv_with_its_quirks_is_read_however_it_is_cut(size: int) -> None:
    assert sorted(lines_of(QUIRKS, size)) == QUIRK_ROWS


@given(st.lists(st.lists(st.text(alphabet='a,"\n x'), min_size=2, max_size=2), max_size=6), st.integers(1, 9))
def test_what_the_standard_library_writes_is_read_back(rows: list[list[str]], size: int) -> None:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([["id", "s"], *rows])
    assert [fields for _, fields in lines_of(out.getvalue().encode(), size)] == rows


@pytest.mark.parametrize("line", [b'"a"b,c\n', b"\xff,1\n", b'1,"open\n'])
def test_a_record_that_is_not_csv_is_refused_and_the_next_is_read(line: bytes) -> None:
    found = lines_of(b"id,s\n" + line + b"1,2\n", 1000)
    assert sorted(found)[0][0] == 2
    assert [text for _, text in found if isinstance(text, str)]
    assert (3, ["1", "2"]) in found


COLUMNS = parse_schema(
    [["k", "BIGINT", True], ["v", "DOUBLE", True], ["s", "TEXT", True], ["d", "DECIMAL(38, 2)", True], ["b", "BOOLEAN", True]]
)


def test_csv_values_get_the_types_of_the_stream_where_their_text_says_so() -> None:
    reader = CsvInput(COLUMNS)
    read = reader.feed(b's,k,v,d,b,more\nx,9007199254740993,NaN,12345678901234567890.10,TRUE,1\n"",x,-Infinity,,no,2\n,1_0,nan,1,,3\n7,8\n')
    assert [{k: str(v) for k, v in row.items()} for row in read.rows[:1]] == [
        {"s": "x", "k": "9007199254740993", "v": "nan", "d": "12345678901234567890.10", "b": "True"}
    ]
    assert read.rows[1] == {"s": "", "k": "x", "v": -math.inf, "d": None, "b": "no"}
    assert read.rows[2] == {"s": None, "k": "1_0", "v": "nan", "d": "1", "b": None}
    assert (read.lines, read.refused) == ([2, 3, 4], [(5, "2 fields where the header has 6")])
    assert read.notes == ["left out column more, which the stream does not have"]


def test_a_header_that_fits_nothing_is_refused() -> None:
    with pytest.raises(MillstreamError, match="names no column of the stream: x, y"):
        CsvInput(COLUMNS).feed(b"x,y\n")


def test_a_malformed_line_of_json_does_not_take_the_next_with_it() -> None:
    reader = JsonLinesInput([Column("t", COLUMNS[0].type), Column("v", COLUMNS[1].type)])
    data = b'{"t":1}\n{"t":1234567890iiii,"w":1}\n{"t":9223372036854775807,"v":"NaN"}\n{"t":"\xff"}\n[1]\n\n{"t":3,"x":1}'
    read = reader.feed(data[:20])
    rest = reader.feed(data[20:], last=True)
    rows = read.rows + rest.rows
    assert [row["t"] for row in rows] == [1, 9223372036854775807, 3]
    assert math.isnan(rows[1]["v"])
    assert rest.refused == [
        (2, "not JSON: Expecting ',' delimiter at character 16"),
        (4, "not UTF-8 at byte 7"),
        (5, "is not a JSON object: it is an array"),
    ]
    assert rest.lines == [3, 7]
    assert rest.notes == ["left out column x, which the stream does not have"]


def test_decimals_in_json_keep_their_digits() -> None:
    read = JsonLinesInput(COLUMNS).feed(b'{"d": 12345678901234567890.10, "v": 0.1}\n')
    assert (str(read.rows[0]["d"]), read.rows[0]["v"]) == ("12345678901234567890.10", 0.1)


def test_json_is_read_by_the_type_of_the_column_that_a_name_in_another_case_or_a_map_means() -> None:
    data = b'{"D": 12345678901234567890.10, "V": "NaN", "X": 1}\n{"digits": 12345678901234567890.10, "V": 1}\n{"Dd": 1, "D": 1, "d": 2}\n'
    read = JsonLinesInput(COLUMNS).feed(data)
    assert (str(read.rows[0]["d"]), math.isnan(read.rows[0]["v"])) == ("12345678901234567890.10", True)
    assert str(read.rows[2]["d"]) == "2"
    assert read.notes == [f"left out column {name}, which the stream does not have" for name in ("X", "digits", "Dd", "D")]
    columns = {column.name: str(column.type) for column in COLUMNS}
    mapped = JsonLinesInput(COLUMNS, column_maps(["d=Digits"], [], {"s": columns})["s"]).feed(data)
    assert [str(row.get("d")) for row in mapped.rows] == ["None", "12345678901234567890.10", "None"]


@pytest.mark.parametrize("columns", [COLUMNS, [c for c in COLUMNS if c.name != "d"]], ids=["exact", "quick"])
def test_a_number_beyond_double_is_refused_with_its_column_and_line(columns: list[Column]) -> None:
    data = b'{"v": 1e308}\n{"v": 1e999}\n{"other": 1e999, "v": Infinity}\n{"v": -1e400}\n'
    read = JsonLinesInput(columns).feed(data)
    assert [row["v"] for row in read.rows] == [1e308, math.inf]
    assert read.refused == [
        (2, f"column v: {'1E+999' if columns is COLUMNS else '1e999'} is out of the range of DOUBLE"),
        (4, f"column v: {'-1E+400' if columns is COLUMNS else '-1e400'} is out of the range of DOUBLE"),
    ]


def test_a_number_beyond_double_in_csv_stays_text_for_the_server_to_refuse() -> None:
    read = CsvInput([c for c in COLUMNS if c.name == "v"]).feed(b"v\n1e999\nInfinity\n1e308\n")
    assert [row["v"] for row in read.rows] == ["1e999", math.inf, 1e308]


# --- tables ---

BATCH = pa.record_batch([pa.array(["a", "", None, "\x1b[2Jb"]), pa.array([1, None, 9007199254740993, 3])], names=["s", "n"])


def shown(renderer_class: Any, *batches: pa.RecordBatch, colour: bool = False) -> list[str]:
    out = io.BytesIO()
    renderer = renderer_class(BATCH.schema, out, colour)
    for batch in batches:
        renderer.batch(batch)
    renderer.finish()
    return out.getvalue().decode().splitlines()


def test_a_table_shows_null_unlike_an_empty_string_and_lets_no_escape_through() -> None:
    lines = [line.split() for line in shown(WholeTable, BATCH)]
    assert lines[0] == ["s", "n"]
    assert lines[2:] == [["a", "1"], ["NULL"], ["NULL", "9007199254740993"], ["\\x1b[2Jb", "3"]]


def test_a_live_table_writes_rows_as_they_come() -> None:
    lines = shown(LiveTable, BATCH.slice(0, 1), BATCH.slice(2, 1))
    assert [line.split() for line in lines] == [["s", "n"], ["─", "─"], ["a", "1"], ["NULL", "9007199254740993"]]
    assert shown(LiveTable)[0].split() == ["s", "n"]


def test_long_text_is_not_cut_when_it_goes_to_a_file() -> None:
    out = io.BytesIO()
    schema = pa.schema([("s", pa.string())])
    renderer = WholeTable(schema, out, False)
    renderer.batch(pa.record_batch([pa.array(["x" * 1000])], schema=schema))
    renderer.finish()
    assert "x" * 1000 in out.getvalue().decode()


def test_arrow_output_is_one_stream_that_can_be_read_back() -> None:
    out = io.BytesIO()
    renderer = ArrowRenderer(BATCH.schema, out)
    for _ in range(2):
        renderer.batch(BATCH.replace_schema_metadata({"millstream.resume_token": "t"}))
    renderer.finish()
    assert pa.ipc.open_stream(out.getvalue()).read_all().num_rows == 8


def test_csv_and_json_are_the_forms_of_the_contract() -> None:
    for name, wanted in (
        ("csv", b's,n\na,1\n"",\n,9007199254740993\n'),
        ("json", b'{"s": "a", "n": 1}\n{"s": "", "n": null}\n{"s": null, "n": 9007199254740993}\n'),
    ):
        out = io.BytesIO()
        renderer = renderer_for(name, BATCH.schema, out)
        renderer.batch(BATCH.slice(0, 3))
        renderer.finish()
        assert out.getvalue() == wanted


def test_words_of_a_view_dictionary_are_unpacked_before_they_are_sent() -> None:
    words = pa.DictionaryArray.from_arrays(pa.array([0, None, 0]), pa.array(["w"], pa.string_view()))  # as polars' categories are
    shaped = Shaper([Column("k", parse_type("TEXT"))]).shaped(pa.table({"k": words}))
    assert shaped.column("k").type == pa.string()
    assert shaped.column("k").to_pylist() == ["w", None, "w"]


def test_nested_fields_of_csv_are_json_with_the_numbers_that_their_types_want() -> None:
    columns = [Column("r", parse_type("STRUCT(a DECIMAL(30, 3), b DOUBLE[])")), Column("j", parse_type("JSON"))]
    text = b'r,j\n"{""A"": 1234567890123456789.125, ""b"": [1.5]}","{""k"": 2.5}"\n,{\n'
    read = CsvInput(columns).feed(text, last=True)
    assert read.rows[0] == {"r": {"A": "1234567890123456789.125", "b": [1.5]}, "j": {"k": 2.5}}
    assert read.refused == [(3, "not JSON: Expecting property name enclosed in double quotes at character 2")]


def test_arrays_of_numpy_in_rows_are_lists() -> None:
    assert plain_value(np.array([1, 2])) == [1, 2]
    assert plain_value({"l": [np.array(["a"]), np.float32(1.5)]}) == {"l": [["a"], 1.5]}
    assert plain_value(np.array([[True], [False]])) == [[True], [False]]
    assert plain_value(np.datetime64("2024-01-01T00:00:00.5")) == "2024-01-01T00:00:00.500000"


def test_a_frame_with_a_column_of_several_types_is_refused_with_its_name() -> None:
    with pytest.raises(MillstreamError, match=r"cannot publish this frame: .*column a") as caught:
        to_table(pd.DataFrame({"a": [1, "x"]}))
    assert caught.value.code == "data"


@pytest.mark.parametrize("separator", [";", "\t"])
@pytest.mark.parametrize("size", [1, 3, 64])
def test_the_header_of_csv_tells_the_separator(separator: str, size: int) -> None:
    text = f'n{separator}t\n1{separator}"a{separator}b"\n2{separator}0,5\n'.encode()
    reader, rows = CsvInput(parse_schema([["n", "BIGINT", True], ["t", "TEXT", True]])), []
    for at in range(0, len(text), size):
        rows += reader.feed(text[at : at + size]).rows
    rows += reader.feed(b"", last=True).rows
    assert rows == [{"n": 1, "t": f"a{separator}b"}, {"n": 2, "t": "0,5"}]
