"""A statement is bounded in work, and whatever the planner lets through can be run: no data and no pass over the plan ends it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from millstream.engine.data.effort import bounded_effort
from millstream.engine.data.errors import EngineError, SyntaxProblem, Unsupported
from millstream.engine.language import limits
from millstream.engine.language.parse import parse_query, parse_statement
from millstream.engine.plan.explain import explain, explain_semantics
from millstream.engine.plan.plan import plan_select
from millstream.engine.plan.plan_writer import to_plan_object
from millstream.engine.runtime import fork

from tests.support.catalogs import catalog_of
from tests.support.engine_run import SECOND, SqlEngine
from tests.support.large_statements import SHAPES, STREAMS, WIDE

SIZES = (20, 400, 1_200, 30_000)
CALLS_MAX = 600_000  # of Python functions: between one and two tenths of a second
STACK_LEFT = 600  # calls of Python's 1,000 that a pass over an accepted plan may take, so that its callers have the others
CATALOG = catalog_of([*STREAMS, WIDE])


class _TooManyCalls(Exception):
    """Raised in the middle of what takes too long."""


@contextmanager
def counted_calls(most: int) -> Iterator[list[int]]:
    """Count the calls of Python functions; give up beyond `most`."""
    count = [0]

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            count[0] += 1
            if count[0] > most:
                sys.setprofile(None)
                raise _TooManyCalls

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield count
    finally:
        sys.setprofile(before)


@contextmanager
def shallow_stack() -> Iterator[None]:
    """Leave only so much of the stack that a pass which needs much of it fails."""
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back  # type: ignore[assignment]
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + STACK_LEFT)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def planned(text: str) -> Any:
    """Return the plan, or None when the statement is refused in words."""
    try:
        return plan_select(parse_query(text), CATALOG, text=text)
    except EngineError:
        return None


@pytest.mark.parametrize("shape", SHAPES)
def test_the_work_of_a_statement_is_bounded_whatever_its_shape(shape: str) -> None:
    planned(SHAPES[shape](3))  # what is loaded and compiled once is not the statement's work
    for size in SIZES:
        with counted_calls(CALLS_MAX):
            planned(SHAPES[shape](size))


def test_stars_over_a_wide_stream_are_bounded() -> None:
    for text in (f"SELECT {', '.join(['*'] * 400)} FROM wide", "SELECT * FROM " + "(SELECT *, * FROM " * 20 + "wide" + ")" * 20):
        with counted_calls(CALLS_MAX), pytest.raises(Unsupported, match="planning this statement takes more than 100000 steps"):
            plan_select(parse_query(text), CATALOG)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_the_planner_accepts_runs_and_can_be_explained_shared_and_copied(shape: str) -> None:
    accepted = [size for size in (2, 12, 30, 100, 200, 500, 1_000) if planned(SHAPES[shape](size)) is not None]
    for size in accepted[-2:]:
        _survives(SHAPES[shape](size))


def _survives(text: str) -> None:
    engine = SqlEngine(*STREAMS, sharing=True)
    plan = plan_select(text, engine.catalog)
    copies = 1 if " a1" in text else 40  # those of a join multiply
    with shallow_stack():
        explain(plan)
        explain_semantics(plan)
        to_plan_object(plan.bound)
        first, second = engine.start(plan.physical, "first"), engine.start(plan.physical, "second")
        assert first.query.id != second.query.id
        rows = [(k, k + 1, 0.5, "1.00", "a", k % 2 == 0, k * SECOND) for k in range(1, 4)]
        engine.put("tab", [(1, 5, "+")])
        for row in rows:
            engine.put("s", [(*row[:3], _decimal(row[3]), *row[4:])])
        engine.put("s", [(*row[:3], _decimal(row[3]), *row[4:6], row[6] + 3 * SECOND) for row in rows * copies])
        engine.work()
        fork.take([engine.network.queries[first.query.id].blueprint], engine.network.ingress.next_seq)
        engine.end()
        engine.work()
    assert sorted(map(repr, engine.rows("first"))) == sorted(map(repr, engine.rows("second")))


def _decimal(text: str) -> Any:
    from decimal import Decimal

    return Decimal(text)


OPERANDS = st.sampled_from(["k", "v", "x", "d", "1", "2.50", "CAST(k AS INT)", "NULL"])


@given(
    first=OPERANDS,
    steps=st.lists(st.tuples(st.sampled_from("+-*/%"), OPERANDS), min_size=1, max_size=40),
    repeat=st.integers(1, 4),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_chain_means_what_its_steps_one_in_another_mean(first: str, steps: list[tuple[str, str]], repeat: int) -> None:
    chain = first
    engine = SqlEngine(*STREAMS)
    for place, (operator, operand) in enumerate(steps * repeat):
        if len(chain) > 300 or (operator in "*/%") != (steps[0][0] in "*/%"):
            continue
        chain += f" {operator} {operand}"
        del place
    nested = _nested_by_derived_tables(chain)
    if planned(f"SELECT {chain} AS a FROM s") is None:
        assert "%" in chain or "NULL" in chain or planned(nested) is None, "its steps one in another are defined"
        return
    engine.select(f"SELECT {chain} AS a FROM s", "chain")
    engine.select(nested, "nested")
    rows = [(k, 3 - k, 0.25 * k, _decimal("1.25"), "a", True, k * SECOND) for k in (1, 2, 3, 2**40)]
    engine.put("s", rows)
    engine.end()
    engine.work()
    assert engine.rows("chain") == engine.rows("nested")
    written = to_plan_object(plan_select(f"SELECT {chain} AS a FROM s", engine.catalog).bound)
    again = plan_select(written, engine.catalog)
    assert again.physical.root == plan_select(f"SELECT {chain} AS a FROM s", engine.catalog).physical.root


def _nested_by_derived_tables(chain: str) -> str:
    """Return a SELECT of the same value, whose steps each are an operator of the plan's with the one before as a column."""
    import re

    parts = re.split(r" ([-+*/%]) ", chain)
    text = f"SELECT k, v, x, d, {parts[0]} AS a FROM s"
    for start in range(1, len(parts), 12):
        more = "a"
        for operator, operand in zip(parts[start : start + 12 : 2], parts[start + 1 : start + 12 : 2], strict=True):
            more = f"({more}) {operator} {operand}"
        text = f"SELECT k, v, x, d, {more} AS a FROM ({text})"
    return f"SELECT a FROM ({text})"


@pytest.mark.parametrize(
    ("text", "error", "part"),
    [
        (f"SELECT {'k' * limits.STATEMENT_LENGTH_MAX} FROM s", SyntaxProblem, f"at most {limits.STATEMENT_LENGTH_MAX} are read"),
        (f"SELECT {'k, ' * limits.TOKENS_MAX} k FROM s", SyntaxProblem, f"more than {limits.TOKENS_MAX} words and symbols"),
        (f"SELECT {'k, ' * limits.INSERT_TOKENS_MAX} k FROM s", SyntaxProblem, f"more than {limits.INSERT_TOKENS_MAX} words"),
        (f"INSERT INTO s VALUES ({'1, ' * limits.INSERT_TOKENS_MAX}1)", SyntaxProblem, "publish rows instead"),
        (f"SELECT {'(' * 33}1{')' * 33} FROM s", SyntaxProblem, f"nested more than {limits.NESTING_MAX} deep"),
        (f"SELECT {'- ' * 33}1 FROM s", SyntaxProblem, f"nested more than {limits.NESTING_MAX} deep"),
        (f"SELECT {'- - - (' * 10}1{')' * 10} FROM s", SyntaxProblem, "compute the inner part in a derived table"),
        (f"SELECT {'9' * (limits.NUMBER_LENGTH_MAX + 1)} FROM s", SyntaxProblem, "more than any type holds"),
        (f"SELECT k{' IS NULL' * limits.EXPRESSION_DEPTH_MAX} FROM s", SyntaxProblem, "nested more than 64 deep"),
        (f"SELECT 1 FROM s a0 {' '.join(f'JOIN s a{i} WITHIN 1 SECOND' for i in range(1, 40))}", EngineError, ""),
    ],
)
def test_each_bound_of_the_parser_is_reached_and_names_itself(text: str, error: type[EngineError], part: str) -> None:
    with pytest.raises(error) as caught:
        parse_statement(text) if part else plan_select(text, CATALOG)
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (SHAPES["comma joins"](limits.JOINED_MAX + 1), f"joins more than {limits.JOINED_MAX}"),
        (SHAPES["common tables"](limits.PLAN_DEPTH_MAX + 1), f"more than {limits.PLAN_DEPTH_MAX} deep"),
        (SHAPES["common tables that double"](12), "more than 256 derived tables"),
        (SHAPES["ORDER BY"](1_000), f"more than {limits.WORK_MAX} steps"),
        (SHAPES["keys"](limits.KEYS_MAX + 1), f"more than {limits.KEYS_MAX} columns"),
        (SHAPES["UNION ALL"](360), f"more than {limits.PLAN_NODES_MAX} operators"),
    ],
)
def test_each_bound_of_the_planner_is_reached_and_names_itself(text: str, part: str) -> None:
    with pytest.raises(Unsupported) as caught:
        plan_select(text, CATALOG)
    assert part in caught.value.message
    assert caught.value.hint


def test_plan_objects_are_bounded_as_texts_are() -> None:
    root: dict[str, Any] = {"op": "source", "stream": "s"}
    for _ in range(3_000):
        root = {"op": "select", "condition": "k > 1", "input": root}
    with pytest.raises(EngineError, match="the plan is nested more than 64 deep"):
        plan_select({"version": 1, "root": root}, CATALOG)
    wide = {
        "op": "project",
        "columns": [[f"c{i}", "k + v + k + v + k + v"] for i in range(2_000)],
        "input": {"op": "source", "stream": "s"},
    }
    with counted_calls(CALLS_MAX), pytest.raises(Unsupported, match="more than 100000 steps"):
        plan_select({"version": 1, "root": wide}, CATALOG)


def test_a_count_in_force_goes_on_inside() -> None:
    with bounded_effort(10), pytest.raises(Unsupported, match="more than 10 steps"):
        plan_select("SELECT k + v AS a FROM s WHERE k > 1", CATALOG)


def test_a_script_may_be_longer_than_a_statement() -> None:
    from millstream.engine.language.parse import parse_script

    assert len(parse_script("SELECT k FROM s; " * 2_000)) == 2_000
