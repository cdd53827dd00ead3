"""JSON lines: exact numbers, strictness, and recovery after a malformed line."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.types import BIGINT, DOUBLE, TEXT, decimal
from millstream.engine.ingest import json_lines
from millstream.engine.ingest.json_lines import JsonLinesParser


def read(data: bytes, coercer: Any, size: int | None = None) -> list[Any]:
    parser = JsonLinesParser(coercer)
    step = size or max(len(data), 1)
    results = [parser.feed(data[i : i + step]) for i in range(0, len(data), step)] + [parser.finish()]
    return [r for r in results if r is not None]


@pytest.mark.parametrize("size", [None, 1, 5, 23])
def test_case_c31_one_malformed_record_does_not_silence_the_rest(size: int | None, coercer: Any, rows_of: Any) -> None:
    good = b'{"t":1,"w":1}\n'
    data = good + b'{"t":1234567890iiii,"w":1}\n' + good + b'{"t":1,"w":"\xff"}\n' + good
    results = read(data, coercer(("t", BIGINT), ("w", BIGINT)), size)
    assert [row for r in results for row in rows_of(r)] == [(1, 1)] * 3
    rejected = [r for result in results for r in result.rejected]
    assert [(r.index, r.line, r.raw) for r in rejected] == [(1, 2, b'{"t":1234567890iiii,"w":1}'), (3, 4, b'{"t":1,"w":"\xff"}')]
    assert rejected[0].reason.startswith("not JSON:")
    assert rejected[1].reason == "invalid UTF-8 at byte 12"


def test_case_c26_numbers_stay_exact(coercer: Any, rows_of: Any) -> None:
    data = b'{"n":9007199254740993,"d":0.1,"m":12345678901234567890.10}\n{"n":1e3,"d":1,"m":1}\n'
    data += b'{"n":-9223372036854775808,"d":"NaN","m":"0.01"}'
    results = read(data, coercer(("n", BIGINT), ("d", DOUBLE), ("m", decimal(30, 2))))
    first, second, third = [row for r in results for row in rows_of(r)]
    assert first == (9007199254740993, 0.1, 1234567890123456789010)
    assert second == (1000, 1.0, 100)
    assert third[0] == -(2**63)
    assert math.isnan(third[1])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"n":1,"n":2}', "the key 'n' stands twice"),
        (b"5", "a line must hold a JSON object or array"),
        (b'{"n":1} x', "not JSON"),
        (b'{"n":1.5}', "column n: 1.5 is not BIGINT"),
        (b'{"n":"1"}', "column n: text '1' is not BIGINT"),
        (b'{"n":9223372036854775808}', "column n: 9223372036854775808 is out of the range of BIGINT"),
        (b'{"s":"\\ud800"}', "column s: half of a surrogate pair at position 1"),
        (b'{"s":{"deep":1}}', "column s: an object is not TEXT (declare the column JSON, a STRUCT or a LIST"),
        (b'{"s":["a", 1]}', "column s: a list is not TEXT (declare the column JSON"),
        (b'{"d":1e999}', "column d: 1e999 is out of the range of DOUBLE"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"n":' + b"1" * 5_000 + b"}", "Exceeds the limit"),
    ],
)
def test_bad_lines_say_why(line: bytes, reason: str, coercer: Any) -> None:
    (result,) = read(line + b'\n{"n":7}\n', coercer(("n", BIGINT), ("s", TEXT), ("d", DOUBLE)))
    assert result.rows == 1
    assert [r.reason.startswith(reason) for r in result.rejected] == [True]
    assert result.rejected[0].raw == line


def test_arrays_blank_lines_marks_and_line_numbers(coercer: Any, rows_of: Any) -> None:
    data = b'\xef\xbb\xbf[1,"a"]\r\n\r\n  \n[2]\n{"s":"b","n":3}'
    (*results,) = read(data, coercer(("n", BIGINT), ("s", TEXT)))
    assert [row for r in results for row in rows_of(r)] == [(1, "a"), (3, "b")]
    assert [(r.index, r.line) for result in results for r in result.rejected] == [(1, 4)]


def test_a_line_without_end_is_given_up_and_the_next_one_read(coercer: Any, rows_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "LINE_BYTES_MAX", 100)
    results = read(b'{"n":1}\n' + b"x" * 1000 + b'\n{"n":2}\n', coercer(("n", BIGINT)), 64)
    assert [row for r in results for row in rows_of(r)] == [(1,), (2,)]
    assert [(r.line, r.reason) for result in results for r in result.rejected] == [(2, "a line longer than 100 bytes")]


VALUES = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))


@given(rows=st.lists(st.fixed_dictionaries({"n": VALUES, "s": st.one_of(st.none(), st.text())}), max_size=10), ascii_only=st.booleans())
@settings(deadline=None, max_examples=60)
def test_what_json_writes_is_read_back(rows: list[Any], ascii_only: bool, coercer: Any, rows_of: Any) -> None:
    rows = [r for r in rows if r["s"] is None or all(not 0xD800 <= ord(c) <= 0xDFFF for c in r["s"])]
    data = "\n".join(json.dumps(r, ensure_ascii=ascii_only) for r in rows).encode()
    results = read(data, coercer(("n", BIGINT), ("s", TEXT)))
    assert [row for r in results for row in rows_of(r)] == [(r["n"], r["s"]) for r in rows]
