"""CASE, IF, COALESCE, NULLIF, GREATEST, LEAST, IN and BETWEEN: values, NULLs, and whose errors are recorded."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.errors import TypeProblem
from millstream.engine.data.types import BIGINT, BOOLEAN, DOUBLE, INT, NULL, TEXT, decimal
from millstream.engine.expressions.build import call, case
from millstream.engine.expressions.ir import Literal

INTS = st.one_of(st.none(), st.integers(-3, 3))


def test_a_branch_that_is_not_taken_records_no_error(table: Any, run: Any) -> None:
    rows = table((INT, [0, 2, None, 4]))
    x = rows.refs[0]
    safe = case([(call("<>", [x, Literal(INT, 0)]), call("/", [Literal(INT, 8), x]))], Literal(INT, -1))
    assert run(safe, rows) == ([-1, 4, -1, 2], {})
    unsafe = case([(call("is_null", [x]), Literal(INT, 0))], call("/", [Literal(INT, 8), x]))
    assert run(unsafe, rows) == ([None, 4, 0, 2], {0: ["division by zero"]})


def test_case_without_else_and_in_every_storage(table: Any, run: Any) -> None:
    rows = table((INT, [1, 2, 3, None]), (TEXT, ["a", None, "c", "d"]), (decimal(30, 0), [10**29, 1, 2, 3]), (DOUBLE, [0.5] * 4))
    x, text, wide, real = rows.refs
    one, two = call("=", [x, Literal(INT, 1)]), call("=", [x, Literal(INT, 2)])
    assert run(case([(one, text), (two, Literal(TEXT, "two"))]), rows).values == ["a", "two", None, None]
    assert run(case([(one, wide)], Literal(INT, 7)), rows).values == [10**29, 7, 7, 7]
    assert run(case([(one, x)], real), rows).values == [1.0, 0.5, 0.5, 0.5]
    assert run(case([(one, Literal(NULL, None))], x), rows).values == [None, 2, 3, None]
    assert run(call("if", [one, x, Literal(INT, 0)]), rows).values == [1, 0, 0, 0]
    with pytest.raises(TypeProblem, match="types that do not meet: TEXT, INT"):
        case([(one, text)], x)
    with pytest.raises(TypeProblem, match="must be BOOLEAN"):
        case([(x, text)])


def test_later_arguments_of_coalesce_are_evaluated_where_needed(table: Any, run: Any) -> None:
    rows = table((INT, [1, None, None, None]), (INT, [0, 0, 2, None]))
    a, b = rows.refs
    outcome = run(call("coalesce", [a, call("/", [Literal(INT, 6), b]), Literal(INT, -1)]), rows)
    assert outcome == ([1, -1, 3, -1], {1: ["division by zero"]})
    assert run(call("coalesce", [a, b]), rows).values == [1, 0, 2, None]
    texts = table((TEXT, ["x", None]), (TEXT, ["y", "z"]))
    assert run(call("ifnull", texts.refs), texts).values == ["x", "z"]


def test_nullif_counts_an_error_once(table: Any, run: Any) -> None:
    rows = table((INT, [0, 2, 4, None]), (INT, [1, 4, 1, 1]))
    quotient = call("/", [Literal(INT, 8), rows.refs[0]])
    assert run(call("nullif", [quotient, rows.refs[1]]), rows) == ([None, None, 2, None], {0: ["division by zero"]})
    texts = table((TEXT, ["a", "b", None]))
    assert run(call("nullif", [texts.refs[0], Literal(TEXT, "a")]), texts).values == [None, "b", None]


@given(rows_=st.lists(st.tuples(INTS, INTS, INTS), min_size=1, max_size=12))
@settings(deadline=None, max_examples=30)
def test_greatest_and_least_pass_over_nulls(rows_: list[Any], table: Any, run: Any) -> None:
    for type_, stored in ((BIGINT, int), (DOUBLE, float), (decimal(25, 0), int), (TEXT, str)):
        columns = [[None if r[i] is None else stored(r[i]) for r in rows_] for i in range(3)]
        rows = table(*((type_, c) for c in columns))
        known = [[v for v in row if v is not None] for row in zip(*columns, strict=True)]
        assert run(call("greatest", rows.refs), rows).values == [max(k) if k else None for k in known]
        assert run(call("least", rows.refs), rows).values == [min(k) if k else None for k in known]


def test_nan_is_the_greatest(table: Any, run: Any) -> None:
    rows = table((DOUBLE, [math.nan, 1.0]), (DOUBLE, [1.0, math.nan]))
    assert all(math.isnan(v) for v in run(call("greatest", rows.refs), rows).values)
    assert run(call("least", rows.refs), rows).values == [1.0, 1.0]


def truth_of_in(x: Any, members: list[Any]) -> bool | None:
    if x is None:
        return None
    return True if x in [m for m in members if m is not None] else None if None in members else False


@given(values=st.lists(INTS, min_size=1, max_size=10), members=st.lists(INTS, min_size=1, max_size=8))
@settings(deadline=None, max_examples=60)
def test_in_is_three_valued_for_sets_chains_and_columns(values: list[Any], members: list[Any], table: Any, run: Any) -> None:
    rows = table((BIGINT, values), (TEXT, [None if v is None else str(v) for v in values]), (DOUBLE, values))
    wanted = [truth_of_in(v, members) for v in values]
    literals = [Literal(NULL if m is None else INT, m) for m in members]
    assert run(call("in", [rows.refs[0], *literals]), rows).values == wanted
    assert run(call("in", [rows.refs[2], *literals]), rows).values == wanted
    texts = [Literal(NULL if m is None else TEXT, None if m is None else str(m)) for m in members]
    assert run(call("in", [rows.refs[1], *texts]), rows).values == wanted
    negated = [None if w is None else not w for w in wanted]
    assert run(call("not", [call("in", [rows.refs[0], *literals])]), rows).values == negated
    columns = table((BIGINT, values), *((BIGINT, [m] * len(values)) for m in members[:6]))
    assert run(call("in", columns.refs), columns).values == [truth_of_in(v, members[:6]) for v in values]


def test_in_compares_by_value_across_types(table: Any, run: Any) -> None:
    rows = table((BIGINT, [1, 2, 3]), (DOUBLE, [math.nan, -0.0, 1.5]), (decimal(5, 2), [150, 100, 133]))
    tenths = [Literal(decimal(3, 1), v) for v in (10, 25, 30, 41, 52, 63)]
    assert run(call("in", [rows.refs[0], *tenths]), rows).values == [True, False, True]
    doubles = [Literal(DOUBLE, v) for v in (math.nan, 0.0, 9.0, 8.0, 7.0)]
    assert run(call("in", [rows.refs[1], *doubles]), rows).values == [True, True, False]
    assert run(call("in", [rows.refs[2], *(Literal(INT, i) for i in range(6))]), rows).values == [False, True, False]


@given(triples=st.lists(st.tuples(INTS, INTS, INTS), min_size=1, max_size=12))
@settings(deadline=None, max_examples=30)
def test_between_is_both_comparisons(triples: list[Any], table: Any, run: Any, duck: Any) -> None:
    rows = table(*((BIGINT, [t[i] for t in triples]) for i in range(3)))
    wanted, negated = duck(rows, "a BETWEEN b AND c", "a NOT BETWEEN b AND c")
    assert run(call("between", rows.refs), rows).values == wanted
    assert run(call("not", [call("between", rows.refs)]), rows).values == negated


def test_the_operand_of_between_and_in_is_evaluated_once(table: Any, run: Any) -> None:
    rows = table((INT, [0, 2]))
    quotient = call("/", [Literal(INT, 8), rows.refs[0]])
    once = {0: ["division by zero"]}
    assert run(call("between", [quotient, Literal(INT, 1), Literal(INT, 5)]), rows) == ([None, True], once)
    assert run(call("in", [quotient, Literal(INT, 1), Literal(INT, 4)]), rows) == ([None, True], once)
    assert run(call("in", [quotient, *(Literal(INT, i) for i in range(7))]), rows) == ([None, True], once)
    nested = call("between", [call("+", [quotient, Literal(INT, 1)]), quotient, Literal(INT, 5)])
    assert run(nested, rows).values == [None, True]


def test_conditions_as_columns(table: Any, run: Any) -> None:
    rows = table((BOOLEAN, [True, False, None]))
    assert run(rows.refs[0], rows).values == [True, False, None]
    assert run(Literal(BOOLEAN, True), rows).values == [True] * 3
    assert run(Literal(BOOLEAN, None), rows).values == [None] * 3
