"""Comparison of every pair of types by value, with NULLs, NaN and -0.0, against Fractions and DuckDB."""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.errors import TypeProblem
from millstream.engine.data.types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, TEXT, TIMESTAMP, DataType, decimal, list_of
from millstream.engine.expressions.bounds import may_fail
from millstream.engine.expressions.build import call
from millstream.engine.expressions.ir import Literal

COMPARE = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
EXACT_TYPES = [INT, BIGINT, decimal(5, 2), decimal(18, 4), decimal(19, 0), decimal(38, 10)]


def stored(type_: DataType) -> Any:
    limit = {"INT": 2**31 - 1, "BIGINT": 2**63 - 1}.get(type_.kind.value, 10 ** (type_.precision or 1) - 1)
    near = st.integers(-3, 3).map(lambda n: max(-limit, min(limit, n * 10**type_.scale + n % 2)))
    return st.one_of(st.none(), st.integers(-limit, limit), near, st.sampled_from([limit, -limit]))


@pytest.mark.parametrize("left", EXACT_TYPES, ids=str)
@pytest.mark.parametrize("right", EXACT_TYPES, ids=str)
@given(data=st.data())
@settings(deadline=None, max_examples=4)
def test_exact_numbers_of_different_types_compare_by_value(left: DataType, right: DataType, data: Any, table: Any, run: Any) -> None:
    pairs = data.draw(st.lists(st.tuples(stored(left), stored(right)), min_size=1, max_size=12))
    rows = table((left, [a for a, _ in pairs]), (right, [b for _, b in pairs]))
    a_ref, b_ref = rows.refs
    constant = next((b for _, b in pairs if b is not None), 0)
    for function, compare in COMPARE.items():
        wanted = [None if None in (a, b) else compare(exact(a, left), exact(b, right)) for a, b in pairs]
        assert run(call(function, [a_ref, b_ref]), rows).values == wanted
        by_constant = [None if a is None else compare(exact(a, left), exact(constant, right)) for a, _ in pairs]
        assert run(call(function, [a_ref, Literal(right, constant)]), rows).values == by_constant
        mirrored = [None if a is None else compare(exact(constant, right), exact(a, left)) for a, _ in pairs]
        assert run(call(function, [Literal(right, constant), a_ref]), rows).values == mirrored


def exact(value: int, type_: DataType) -> Fraction:
    return Fraction(value, 10**type_.scale)


DOUBLES = st.one_of(st.none(), st.floats(), st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1.0]))


@given(pairs=st.lists(st.tuples(DOUBLES, DOUBLES), min_size=1, max_size=20), constant=st.floats() | st.just(math.nan))
@settings(deadline=None, max_examples=12)
def test_doubles_compare_as_in_duckdb_nan_equal_and_greatest(pairs: list[Any], constant: float, table: Any, run: Any, duck: Any) -> None:
    rows = table((DOUBLE, [a for a, _ in pairs]), (DOUBLE, [b for _, b in pairs]))
    shown = f"'{constant!r}'::DOUBLE"
    functions = [*COMPARE, "is_distinct_from", "is_not_distinct_from"]
    spelled = [f.replace("_", " ").upper() for f in functions]
    pairwise, by_constant = duck(rows, *(f"a {s} b" for s in spelled)), duck(rows, *(f"a {s} {shown}" for s in spelled))
    for function, among_columns, with_constant in zip(functions, pairwise, by_constant, strict=True):
        assert run(call(function, rows.refs), rows).values == among_columns
        assert run(call(function, [rows.refs[0], Literal(DOUBLE, constant)]), rows).values == with_constant


TEXTS = st.one_of(st.none(), st.text(max_size=4), st.sampled_from(["", "a", "A", "é", "e\u0301", "\U0001f600", "z"]))


@given(pairs=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=20))
@settings(deadline=None, max_examples=12)
def test_text_compares_by_code_point(pairs: list[Any], table: Any, run: Any) -> None:
    rows = table((TEXT, [a for a, _ in pairs]), (TEXT, [b for _, b in pairs]))
    constant = next((b for _, b in pairs if b is not None), "")
    for function, compare in COMPARE.items():
        wanted = [None if None in (a, b) else compare(points(a), points(b)) for a, b in pairs]
        assert run(call(function, rows.refs), rows).values == wanted
        by_constant = [None if a is None else compare(points(a), points(constant)) for a, _ in pairs]
        assert run(call(function, [rows.refs[0], Literal(TEXT, constant)]), rows).values == by_constant


def points(text: str) -> list[int]:
    return [ord(c) for c in text]


@pytest.mark.parametrize("type_", [INT, DOUBLE, TEXT, BOOLEAN, TIMESTAMP, DATE, decimal(30, 2)], ids=str)
def test_is_distinct_from_treats_null_as_a_value(type_: DataType, table: Any, run: Any) -> None:
    one: Any = {"TEXT": "x", "BOOLEAN": True, "DOUBLE": 1.0}.get(type_.kind.value, 1)
    rows = table((type_, [one, one, None, None]), (type_, [one, None, one, None]))
    assert run(call("is_distinct_from", rows.refs), rows).values == [False, True, True, False]
    assert run(call("is_not_distinct_from", rows.refs), rows).values == [True, False, False, True]


def test_instants_compare_with_dates_and_with_text_constants(table: Any, run: Any) -> None:
    day = 86_400_000_000
    rows = table((TIMESTAMP, [0, day, day + 1, None]), (DATE, [0, 1, 1, 1]))
    assert run(call("=", rows.refs), rows).values == [True, True, False, None]
    assert run(call(">=", [rows.refs[0], Literal(TEXT, "1970-01-02")]), rows).values == [False, True, True, None]
    with pytest.raises(TypeProblem, match="is not TIMESTAMP"):
        call("=", [rows.refs[0], Literal(TEXT, "yesterday")])


def test_text_and_numbers_are_never_compared_silently(table: Any) -> None:
    rows = table((TEXT, ["1"]), (INT, [1]))
    for function in COMPARE:
        with pytest.raises(TypeProblem, match="is not defined"):
            call(function, rows.refs)


def test_lists_are_equal_by_elements_and_have_no_order(table: Any, run: Any) -> None:
    rows = table((list_of(BIGINT), [[1, 2], [1], None]), (list_of(BIGINT), [[1, 2], [2], [1]]))
    assert run(call("=", rows.refs), rows).values == [True, False, None]
    with pytest.raises(TypeProblem, match="have no order"):
        call("<", rows.refs)


def test_comparisons_never_fail(table: Any) -> None:
    rows = table((BIGINT, [1]), (DOUBLE, [1.0]))
    assert not may_fail(call("<", rows.refs))
