"""Functions over TEXT: the quick way through Arrow and the way row by row agree, with DuckDB where it means the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.errors import TypeProblem
from millstream.engine.data.types import BIGINT, DOUBLE, INT, NULL, TEXT, decimal
from millstream.engine.expressions.build import call
from millstream.engine.expressions.compile import compile_expression
from millstream.engine.expressions.ir import Literal
from millstream.engine.expressions.kernel import EvaluationContext
from millstream.protocol.values import arrow_functions as pc

TEXTS = st.one_of(st.none(), st.text(st.sampled_from("abAB é字\U0001f600,%_"), max_size=8), st.sampled_from(["", "a,b,,c", "  x  "]))


def _type_of(constant: Any) -> Any:
    return TEXT if isinstance(constant, str) else INT if abs(constant) < 2**31 else BIGINT


def with_constants(name: str, rows: Any, constants: list[Any]) -> Any:
    """Return the call with literals behind the first column."""
    return call(name, [rows.refs[0], *(Literal(_type_of(c), c) for c in constants)])


CASES: list[tuple[str, list[Any]]] = [
    ("upper", []), ("lower", []), ("reverse", []), ("length", []), ("trim", []), ("ltrim", []), ("rtrim", []), ("trim", ["ab"]),
    ("substring", [2]), ("substring", [2, 3]), ("substring", [0, 2]), ("substring", [-1, 3]), ("substring", [3, 0]), ("left", [2]),
    ("left", [-2]), ("left", [0]), ("right", [2]), ("right", [-2]), ("right", [0]), ("replace", ["a", "xy"]), ("replace", ["", "z"]),
    ("strpos", ["b"]), ("strpos", ["字"]), ("strpos", [""]), ("split_part", [",", 1]), ("split_part", [",", 3]), ("split_part", [",", -1]),
    ("split_part", [",", 9]), ("starts_with", ["a"]), ("ends_with", ["a"]), ("contains", ["b"]), ("repeat", [2]), ("repeat", [-1]),
    ("substring", [2**63 - 1]), ("substring", [2, 2**63 - 1]), ("substring", [-(2**62), 2**63 - 1]), ("left", [2**63 - 1]),
    ("left", [-(2**63) + 1]), ("right", [2**63 - 1]), ("right", [-(2**63) + 1]), ("split_part", [",", 2**63 - 1]),
    ("split_part", [",", -(2**63) + 1]), ("lpad", [4]), ("rpad", [4, "xy"]), ("lpad", [2, "é"]), ("octet_length", []), ("ascii", []),
    ("translate", ["ab", "x"]),
]  # fmt: skip


@given(values=st.lists(TEXTS, min_size=1, max_size=10))
@settings(deadline=None, max_examples=15)
def test_constants_and_columns_give_the_same(values: list[Any], table: Any, run: Any) -> None:
    for name, constants in CASES:
        rows = table((TEXT, values), *((_type_of(c), [c] * len(values)) for c in constants))
        by_constant = run(with_constants(name, rows, constants), rows)
        by_column = run(call(name, rows.refs), rows)
        assert by_constant == by_column, (name, constants)
        assert by_constant.errors == {}


DUCKDB = {
    "upper(a)": ("upper", []), "lower(a)": ("lower", []), "length(a)": ("length", []), "trim(a, ' ')": ("trim", []),
    "substring(a, 2, 3)": ("substring", [2, 3]), "left(a, 2)": ("left", [2]), "right(a, 2)": ("right", [2]),
    "left(a, -2)": ("left", [-2]), "right(a, -2)": ("right", [-2]), "replace(a, 'a', 'xy')": ("replace", ["a", "xy"]),
    "strpos(a, 'b')": ("strpos", ["b"]), "split_part(a, ',', 3)": ("split_part", [",", 3]), "starts_with(a, 'a')": ("starts_with", ["a"]),
    "strlen(a)": ("octet_length", []), "rpad(a, 4, 'x')": ("rpad", [4, "x"]), "lpad(a, 4, 'xy')": ("lpad", [4, "xy"]),
}  # fmt: skip


@given(values=st.lists(st.one_of(st.none(), st.text(st.sampled_from("abAB é字,%_"), max_size=8)), min_size=1, max_size=10))
@settings(deadline=None, max_examples=10)
def test_text_functions_agree_with_duckdb(values: list[Any], table: Any, run: Any, duck: Any) -> None:
    rows = table((TEXT, values))
    for wanted, (name, constants) in zip(duck(rows, *DUCKDB), DUCKDB.values(), strict=True):
        assert run(with_constants(name, rows, constants), rows).values == wanted, name


def test_positions_before_the_first_hold_nothing_as_in_postgresql(table: Any, run: Any) -> None:
    rows = table((TEXT, ["abc"]))
    assert run(with_constants("substring", rows, [0, 2]), rows).values == ["a"]
    assert run(with_constants("substring", rows, [-1, 3]), rows).values == ["a"]
    assert run(with_constants("substring", rows, [2, -1]), rows) == ([None], {0: ["negative length of SUBSTRING"]})


def test_case_c30_lengths_count_code_points_and_nothing_is_normalised(table: Any, run: Any) -> None:
    values = ["测试", "é", "e\u0301", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "x" * 10_000_000]
    rows = table((TEXT, values))
    assert run(call("length", rows.refs), rows).values == [2, 1, 2, 5, 10_000_000]
    assert run(call("octet_length", rows.refs), rows).values == [6, 2, 3, 18, 10_000_000]
    assert run(call("=", [rows.refs[0], Literal(TEXT, "é")]), rows).values == [False, True, False, False, False]
    assert run(call("trim", rows.refs), rows).values == values


def test_concatenation_and_nulls(table: Any, run: Any) -> None:
    rows = table((TEXT, ["a", None, ""]), (INT, [1, 2, None]), (decimal(4, 2), [150, None, -5]))
    a, b, d = rows.refs
    dash = Literal(TEXT, "-")
    assert run(call("||", [a, dash, b]), rows).values == ["a-1", None, None]
    assert run(call("concat", [a, dash, b, d]), rows).values == ["a-11.50", "-2", "--0.05"]
    assert run(call("concat_ws", [dash, a, b, d]), rows).values == ["a-1-1.50", "2", "--0.05"]
    assert run(call("concat_ws", [a, b, d]), rows).values == ["1a1.50", None, "-0.05"]
    assert run(call("||", [a, Literal(NULL, None)]), rows).values == [None] * 3
    assert run(call("concat", [Literal(TEXT, "x"), Literal(TEXT, "y")]), rows).values == ["xy"] * 3
    with pytest.raises(TypeProblem, match="must be TEXT"):
        call("||", [b, d])


def test_errors_of_single_rows(table: Any, run: Any) -> None:
    rows = table((INT, [65, 0, 0xD800, None, 0x1F600]), (TEXT, ["a,b"] * 5), (INT, [0, 1, 2, 3, None]))
    assert run(call("chr", [rows.refs[0]]), rows).values == ["A", None, None, None, "\U0001f600"]
    assert sorted(run(call("chr", [rows.refs[0]]), rows).errors) == [1, 2]
    parts = run(call("split_part", [rows.refs[1], Literal(TEXT, ","), rows.refs[2]]), rows)
    assert parts == ([None, "a", "b", "", None], {0: ["SPLIT_PART has no part 0"]})
    huge = run(call("repeat", [rows.refs[1], Literal(BIGINT, 10**12)]), rows)
    assert huge.values == [None] * 5
    assert set(huge.errors) == set(range(5))


def test_text_functions_refuse_other_types(table: Any) -> None:
    rows = table((INT, [1]), (DOUBLE, [1.0]), (TEXT, ["a"]))
    with pytest.raises(TypeProblem, match="argument 1 of UPPER is INT, it must be TEXT"):
        call("upper", [rows.refs[0]])
    with pytest.raises(TypeProblem, match="argument 2 of LEFT is DOUBLE, it must be a whole number"):
        call("left", [rows.refs[2], rows.refs[1]])


def test_position_takes_the_part_first(table: Any, run: Any) -> None:
    rows = table((TEXT, ["b"]), (TEXT, ["abc"]))
    assert run(call("position", rows.refs), rows).values == [2]
    assert run(call("strpos", [rows.refs[1], rows.refs[0]]), rows).values == [2]


def test_parts_of_the_same_texts_are_cut_once_and_other_texts_and_delimiters_by_themselves(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = table((TEXT, ["a,b;c", None, "d"]), (TEXT, ["x;y", "z", ""]))
    cuts: list[str] = []
    split = pc.split_pattern
    monkeypatch.setattr(pc, "split_pattern", lambda texts, delimiter: cuts.append(delimiter) or split(texts, delimiter))
    asked = [(0, ",", 1), (0, ",", 2), (0, ";", -1), (1, ";", 2), (1, ";", 1)]
    kernels = [compile_expression(call("split_part", [rows.refs[c], Literal(TEXT, d), Literal(INT, n)])) for c, d, n in asked]
    context = EvaluationContext()
    found = [kernel(rows, context).values.to_pylist() for kernel in kernels]
    assert found == [["a", None, "d"], ["b;c", None, ""], ["c", None, "d"], ["y", "", ""], ["x", "z", ""]]
    assert cuts == [",", ";", ";"]
