"""Three-valued logic, and which errors the right side of AND and OR may record."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from millstream.engine.data.errors import TypeProblem
from millstream.engine.data.types import BIGINT, BOOLEAN, INT, NULL
from millstream.engine.expressions.build import call
from millstream.engine.expressions.ir import Literal

STATES = [True, False, None]


def known_and(values: tuple[Any, ...]) -> bool | None:
    return False if False in values else None if None in values else True


def known_or(values: tuple[Any, ...]) -> bool | None:
    return True if True in values else None if None in values else False


@pytest.mark.parametrize(("function", "truth"), [("and", known_and), ("or", known_or)])
def test_connectives_follow_kleenes_tables_for_two_and_three_operands(function: str, truth: Any, table: Any, run: Any) -> None:
    triples = list(itertools.product(STATES, repeat=3))
    rows = table(*((BOOLEAN, [t[i] for t in triples]) for i in range(3)))
    assert run(call(function, rows.refs[:2]), rows).values == [truth(t[:2]) for t in triples]
    assert run(call(function, rows.refs), rows).values == [truth(t) for t in triples]
    negated = [None if truth(t) is None else not truth(t) for t in triples]
    assert run(call("not", [call(function, rows.refs)]), rows).values == negated


def test_truth_tests_are_never_null(table: Any, run: Any) -> None:
    rows = table((BOOLEAN, STATES))
    for function, wanted in {
        "is_true": [True, False, False],
        "is_false": [False, True, False],
        "is_unknown": [False, False, True],
        "is_not_true": [False, True, True],
        "is_not_false": [True, False, True],
        "is_not_unknown": [True, True, False],
        "is_null": [False, False, True],
        "is_not_null": [True, True, False],
        "not": [False, True, None],
    }.items():
        assert run(call(function, rows.refs), rows).values == wanted
        turned = [None if w is None else not w for w in wanted]
        assert run(call("not", [call(function, rows.refs)]), rows).values == turned


def test_the_right_side_of_and_is_not_evaluated_where_the_left_is_false(table: Any, run: Any) -> None:
    rows = table((INT, [0, 2, None, 16]))
    x = rows.refs[0]
    guarded = call("and", [call("<>", [x, Literal(INT, 0)]), call(">", [call("/", [Literal(INT, 8), x]), Literal(INT, 1)])])
    assert run(guarded, rows) == ([False, True, None, False], {})


def test_the_right_side_of_or_is_not_evaluated_where_the_left_is_true(table: Any, run: Any) -> None:
    rows = table((INT, [0, 2, None, 16]))
    x = rows.refs[0]
    guarded = call("or", [call("=", [x, Literal(INT, 0)]), call(">", [call("/", [Literal(INT, 8), x]), Literal(INT, 1)])])
    assert run(guarded, rows) == ([True, True, None, False], {})


def test_an_error_on_the_left_is_recorded_once_and_counts_as_null(table: Any, run: Any) -> None:
    rows = table((INT, [0, 2]), (BOOLEAN, [False, None]))
    failing = call(">", [call("/", [Literal(INT, 8), rows.refs[0]]), Literal(INT, 1)])
    assert run(call("and", [failing, rows.refs[1]]), rows) == ([False, None], {0: ["division by zero"]})
    assert run(call("or", [rows.refs[1], failing]), rows) == ([None, True], {0: ["division by zero"]})


def test_errors_keep_their_row_positions_through_nested_guards(table: Any, run: Any) -> None:
    rows = table((BIGINT, [1, 0, 5, 0, 0]), (BOOLEAN, [False, True, True, None, True]))
    failing = call("=", [call("/", [Literal(INT, 1), rows.refs[0]]), Literal(INT, 1)])
    inner = call("and", [rows.refs[1], failing])
    outcome = run(call("and", [rows.refs[1], inner]), rows)
    assert outcome.values == [False, None, False, None, None]
    assert sorted(outcome.errors) == [1, 3, 4]


def test_connectives_take_only_conditions(table: Any, run: Any) -> None:
    rows = table((INT, [1]), (BOOLEAN, [True]))
    with pytest.raises(TypeProblem, match="argument 1 of AND is INT"):
        call("and", rows.refs)
    assert run(call("and", [rows.refs[1], Literal(NULL, None)]), rows).values == [None]
