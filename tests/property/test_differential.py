"""Random queries of every shape over random streams: the engine's answer is that of a second reading of the rules (`oracle/`).

Each seed is a script of some queries over the same rows, run in a random way and again in another; so operators are shared as they are
in a server. `make soak` goes on for SOAK_SECONDS with other seeds, and shrinks what fails to a golden case.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable

import pytest
from millstream.engine.plan.plan import PlanOptions, plan_select
from millstream.engine.plan.plan_writer import to_plan_object

from tests.property.oracle.scenario import Way, random_way, rows_of, same_rows, summed
from tests.property.oracle.shapes import SHAPES, TREES, failing
from tests.property.oracle.shrink import write_smallest
from tests.support.catalogs import catalog_of


def check_answers(shape: str, seed: int) -> None:
    """The reference's answers, in one way of running; and the same bytes, or near for floats, in another with rewrites off."""
    scenario = SHAPES[shape](seed)
    first, second = random_way(scenario.choice, rewrites=False), random_way(scenario.choice, rewrites=True)
    for way in (first, second):
        wrong = failing(scenario, way)
        assert not wrong, f"{shape} {seed} {way}\n{scenario.definitions}\n" + "\n".join(wrong)


def check_same_bytes(shape: str, seed: int) -> None:
    """K15, K20: the rows are the same, and in the same order, whatever the train, the workers and the policy."""
    scenario = SHAPES[shape](seed)
    scenario.queries = scenario.queries[:4]
    answers = []
    for train in (1, 7, None):
        outcomes = scenario.run(Way(train, scenario.choice.choice([1, 3]), random_way(scenario.choice, rewrites=False).policy))
        assert outcomes.failure is None, (shape, seed, outcomes.failure)
        answers.append([[repr(r) for r in rows_of(outcomes, name)] for name, query in scenario.named() if not query.added])
    assert answers[0] == answers[1] == answers[2], (shape, seed, scenario.script())


def check_changes(shape: str, seed: int) -> None:
    """K9: what stands at the end of a change log is the final answer."""
    scenario = SHAPES[shape](seed)
    scenario.queries = [q for q in scenario.queries if q.sums]
    script = ";\n".join([*scenario.definitions, *(q.sql.removesuffix(" EMIT FINAL") + " EMIT CHANGES" for q in scenario.queries)])
    way = random_way(scenario.choice, rewrites=False)
    outcomes = scenario.run(way, script)
    assert outcomes.failure is None, (shape, seed, outcomes.failure, script)
    for number, query in enumerate(scenario.queries, start=1):
        standing = summed(rows_of(outcomes, f"q{number}"))
        assert same_rows(query.rows, standing, ordered=False), (shape, seed, way, query.sql, query.rows, standing)


def check_plans(shape: str, seed: int) -> None:
    """A SELECT and the plan object that it is written as are planned alike, with rewrites and without."""
    if shape not in TREES:
        return
    scenario = SHAPES[shape](seed)
    catalog = catalog_of(scenario.definitions)
    for query in scenario.queries:
        for off in (frozenset[str](), frozenset(("all",))):
            planned = plan_select(query.sql, catalog, options=PlanOptions(rules_off=off))
            written = json.loads(json.dumps(to_plan_object(planned.bound, "q")))
            again = plan_select(written, catalog, options=PlanOptions(rules_off=off))
            assert again.physical == planned.physical, (shape, seed, query.sql, written)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("turn", range(6))
def test_a_random_query_is_answered_by_the_rules(shape: str, turn: int, seed: int) -> None:
    check_answers(shape, seed + turn)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_a_random_query_gives_the_same_bytes_however_it_is_run(shape: str, seed: int) -> None:
    check_same_bytes(shape, seed)


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["windows", "local_time", "unions", "joins", "nested", "sets"])
@pytest.mark.parametrize("turn", range(3))
def test_the_changes_of_a_random_query_add_up_to_its_final_answer(shape: str, turn: int, seed: int) -> None:
    check_changes(shape, seed + turn)


@pytest.mark.slow
@pytest.mark.parametrize("shape", TREES)
@pytest.mark.parametrize("turn", range(3))
def test_a_random_query_and_its_plan_object_are_planned_alike(shape: str, turn: int, seed: int) -> None:
    check_plans(shape, seed + turn)


CHECKS: list[Callable[[str, int], None]] = [check_answers, check_answers, check_same_bytes, check_changes, check_plans]


@pytest.mark.soak
@pytest.mark.timeout(float(os.environ.get("SOAK_SECONDS", "600")) + 300)
def test_many_random_queries_are_answered_by_the_rules(seed: int) -> None:
    until = time.monotonic() + float(os.environ.get("SOAK_SECONDS", "600"))
    turn = 0
    while time.monotonic() < until:
        turn += 1
        for shape in SHAPES:
            try:
                CHECKS[turn % len(CHECKS)](shape, seed + 1_000 * turn)
            except AssertionError as wrong:
                written = write_smallest(SHAPES[shape], failing, seed + 1_000 * turn, f"random_{shape}_{turn}")
                raise AssertionError(f"{wrong}\nthe smallest case that fails: {written}") from wrong
