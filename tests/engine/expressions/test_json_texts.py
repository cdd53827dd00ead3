"""Steps into a TEXT that holds JSON, and its casts: what no JSON value can be is a row error, never the end of a query (K8, K21)."""

from __future__ import annotations

import re

import millstream
import pytest

STREAM = "CREATE STREAM s (t TEXT) TIMESTAMP BY ARRIVAL;"
DEEP = "[" * 70 + "1" + "]" * 70
HALF = r'{"a": "\ud800"}'


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        (DEEP, "t -> 0"),
        (DEEP, "CAST(t AS JSON)"),
        ("[" * 100_000, "t -> 0"),
        (HALF, "t -> 'a'"),
        (HALF, "t ->> 'a'"),
        (HALF, "JSON_VALUE(t, '$.a')"),
        (HALF, "CAST(t AS MAP(TEXT, TEXT))"),
        (HALF, "CAST(t AS STRUCT(a TEXT))"),
        (r'{"\ud800": 1}', "CAST(t AS MAP(TEXT, INT))"),
        ("[1", "JSON_TYPEOF(t)"),
    ],
)
def test_what_is_no_json_value_is_an_error_of_its_row(text: str, expression: str) -> None:
    result = millstream.run(f"{STREAM} SELECT {expression} AS x FROM s", s=[{"t": text}, {"t": "[[7]]"}])
    assert (result.rows()[0], len(result)) == ({"x": None}, 2)
    assert any(re.search(" failed rows?$", message) for message in result.messages)


@pytest.mark.parametrize("name", [r"\x", r"\ud800"])
def test_a_path_whose_name_is_no_json_string_is_refused_at_its_place(name: str) -> None:
    with pytest.raises(millstream.RunError, match=r"has a name that is no JSON string: .* \(line 1, column"):
        millstream.run(f"""{STREAM} SELECT JSON_VALUE(t, '$."{name}"') AS x FROM s""", s=[{"t": "{}"}])
