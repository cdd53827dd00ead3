"""Arithmetic of integers, DOUBLEs and instants against Python's integers and DuckDB."""

from __future__ import annotations

import math
import operator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.types import BIGINT, DATE, DOUBLE, INT, INTERVAL, NULL, TIMESTAMP
from millstream.engine.expressions.bounds import may_fail
from millstream.engine.expressions.build import call
from millstream.engine.expressions.ir import Literal

MAX, MIN = 2**63 - 1, -(2**63)
BIGINTS = st.one_of(
    st.none(),
    st.integers(MIN, MAX),
    st.sampled_from([MIN, MIN + 1, -1, 0, 1, MAX - 1, MAX, 3_037_000_499, 3_037_000_500, 2**53 + 1, -(2**31), 2**32]),
    st.integers(-10, 10),
)
PAIRS = st.lists(st.tuples(BIGINTS, BIGINTS), min_size=1, max_size=30)


def truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


EXACT = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": truncated,
    "%": lambda a, b: a - b * truncated(a, b),
}


def expected(function: str, a: int | None, b: int | None) -> tuple[int | None, list[str]]:
    if a is None or b is None:
        return None, []
    if function in "/%" and b == 0:
        return None, ["division by zero"]
    result = EXACT[function](a, b)
    return (result, []) if MIN <= result <= MAX else (None, ["BIGINT overflow"])


@pytest.mark.parametrize("function", list(EXACT))
@given(pairs=PAIRS)
@settings(deadline=None, max_examples=25)
def test_bigint_arithmetic_is_exact_or_a_row_error(function: str, pairs: list[tuple[Any, Any]], table: Any, run: Any) -> None:
    rows = table((BIGINT, [a for a, _ in pairs]), (BIGINT, [b for _, b in pairs]))
    outcome = run(call(function, rows.refs), rows)
    wanted = [expected(function, a, b) for a, b in pairs]
    assert outcome.values == [w for w, _ in wanted]
    assert outcome.errors == {i: e for i, (_, e) in enumerate(wanted) if e}


@pytest.mark.parametrize("function", list(EXACT))
@given(values=st.lists(BIGINTS, min_size=1, max_size=20), constant=st.integers(MIN, MAX) | st.integers(-3, 3), constant_left=st.booleans())
@settings(deadline=None, max_examples=25)
def test_constants_behave_like_columns(function: str, values: list[Any], constant: int, constant_left: bool, table: Any, run: Any) -> None:
    rows = table((BIGINT, values))
    sides = (Literal(BIGINT, constant), rows.refs[0]) if constant_left else (rows.refs[0], Literal(BIGINT, constant))
    outcome = run(call(function, sides), rows)
    wanted = [expected(function, *((constant, v) if constant_left else (v, constant))) for v in values]
    assert outcome.values == [w for w, _ in wanted]
    assert outcome.errors == {i: e for i, (_, e) in enumerate(wanted) if e}


def test_int_arithmetic_is_done_in_bigint_and_cannot_fail(table: Any, run: Any) -> None:
    rows = table((INT, [2**31 - 1, -(2**31), None]), (INT, [2**31 - 1, -(2**31), 1]))
    for function in "+-*":
        expression = call(function, rows.refs)
        assert expression.type == BIGINT
        assert not may_fail(expression)
    assert run(call("*", rows.refs), rows).values == [(2**31 - 1) ** 2, 2**62, None]


def test_bigint_arithmetic_may_fail_but_not_inside_known_bounds(table: Any) -> None:
    rows = table((BIGINT, [1]), (INT, [1]))
    big, small = rows.refs
    assert may_fail(call("+", [big, Literal(INT, 1)]))
    assert may_fail(call("/", [small, big]))
    assert not may_fail(call("/", [small, Literal(INT, 2)]))
    assert not may_fail(call("*", [call("+", [small, small]), Literal(INT, 1000)]))
    assert may_fail(call("*", [call("*", [small, small]), small]))


def test_negation_of_the_least_bigint_is_a_row_error(table: Any, run: Any) -> None:
    rows = table((BIGINT, [MIN, MAX, None, 0]))
    outcome = run(call("neg", rows.refs), rows)
    assert outcome.values == [None, -MAX, None, 0]
    assert outcome.errors == {0: ["BIGINT overflow"]}


def test_case_c33_division_by_zero_is_null_and_counted(table: Any, run: Any) -> None:
    rows = table((INT, [2, 0, 4]))
    quotient = call("/", [Literal(INT, 8), rows.refs[0]])
    outcome = run(quotient, rows)
    assert outcome.values == [4, None, 2]
    assert outcome.errors == {1: ["division by zero"]}
    assert run(call(">", [quotient, Literal(INT, 1)]), rows).values == [True, None, True]


DOUBLES = st.one_of(st.none(), st.floats(), st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1e308, 5e-324]))


@pytest.mark.parametrize("function", ["+", "-", "*", "/", "%"])
@given(pairs=st.lists(st.tuples(DOUBLES, DOUBLES), min_size=1, max_size=20))
@settings(deadline=None, max_examples=10)
def test_double_arithmetic_agrees_with_duckdb(function: str, pairs: list[tuple[Any, Any]], table: Any, run: Any, duck: Any) -> None:
    rows = table((DOUBLE, [a for a, _ in pairs]), (DOUBLE, [b for _, b in pairs]))
    outcome = run(call(function, rows.refs), rows)
    wanted = duck(rows, f"a {function} b")[0]
    for i, ((a, b), want, got) in enumerate(zip(pairs, wanted, outcome.values, strict=True)):
        if function in "/%" and b == 0.0 and a is not None:
            assert got is None
            assert outcome.errors[i] == ["division by zero"]
        else:
            assert repr(got) == repr(want)
            assert i not in outcome.errors


def test_instants_move_by_intervals(table: Any, run: Any) -> None:
    rows = table((TIMESTAMP, [0, -5, None, MAX]), (INTERVAL, [10, 10, 10, 10]), (DATE, [1, -1, 0, 0]))
    ts, step, day = rows.refs
    assert run(call("+", [ts, step]), rows) == ([10, 5, None, None], {3: ["TIMESTAMP overflow"]})
    assert run(call("-", [ts, step]), rows).values == [-10, -15, None, MAX - 10]
    assert run(call("-", [ts, day]), rows).values == [-86_400_000_000, 86_400_000_000 - 5, None, MAX]
    assert run(call("+", [day, Literal(INT, 2**31 - 1)]), rows) == ([None, 2**31 - 2, 2**31 - 1, 2**31 - 1], {0: ["DATE overflow"]})
    assert run(call("-", [day, day]), rows).values == [0, 0, 0, 0]
    assert run(call("*", [step, Literal(INT, 3)]), rows).values == [30] * 4
    assert run(call("*", [Literal(DOUBLE, 0.25), step]), rows).values == [2] * 4
    assert run(call("/", [step, Literal(INT, -4)]), rows).values == [-3] * 4


def test_text_in_arithmetic_is_refused_and_a_bare_null_is_null(table: Any, run: Any) -> None:
    rows = table((BIGINT, [1]), (DOUBLE, [1.0]))
    assert run(call("+", [rows.refs[0], Literal(NULL, None)]), rows) == ([None], {})
    assert run(call("/", [rows.refs[1], Literal(NULL, None)]), rows) == ([None], {})
