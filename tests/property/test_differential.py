"""Random queries of every shape over random streams: the engine's answer is that of a second reading of the rules (`oracle/`).

Each seed is a script of some queries over the same rows, run in a random way and again in another; so operators are shared as they are
in a server. `make soak` goes on for SOAK_SECONDS with other seeds, and shrinks what fails to a golden case.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable

import pytest
from millstream.engine.plan.plan import PlanOptions, plan_select
from millstream.engine.plan.plan_writer import to_plan_object

from tests.property.oracle import values
from tests.property.oracle.join_queries import asof_query, join_query, table_query, union_query
from tests.property.oracle.nested import nested_query
from tests.property.oracle.nested_types import nested_columns, nested_row, nested_values_query
from tests.property.oracle.over import over_query
from tests.property.oracle.queries import (
    distinct_query,
    empty_keys_query,
    empty_query,
    grouped_query,
    hopped_rows,
    lag_query,
    random_window,
    selection,
    top_query,
)
from tests.property.oracle.scenario import (
    Scenario,
    Way,
    late_of,
    random_row,
    random_times,
    random_way,
    rows_of,
    same_rows,
    summed,
)
from tests.property.oracle.sets import groupings_query, set_query
from tests.property.oracle.shrink import write_smallest
from tests.property.oracle.subqueries import table_subquery, window_subquery
from tests.support.catalogs import catalog_of

QUERIES = 8
CLOCK_CHANGES = (1_772_863_200, 1_793_491_200, 1_541_289_600, 1_550_368_800, 1_774_746_000, 1_792_886_400)


Kept = frozenset[int] | None  # the places of the arrivals that are left in, all of them for None; queries do not depend on it


def one_stream(choice: random.Random, kept: Kept, *, start: int | None = None, scale: int = 1) -> Scenario:
    scenario = Scenario(choice, choice.choice([0, 2, 5]) * scale)
    columns = scenario.stream("s")
    for number, moment in enumerate(random_times(choice, choice.randint(0, 40), start, scale)):
        scenario.arrivals.append(("s", random_row(choice, columns, moment, number)))
    scenario.keep(kept)
    return scenario


def two_streams(choice: random.Random, kept: Kept, *, table: bool = False) -> Scenario:
    scenario = Scenario(choice, choice.choice([0, 2, 5]))
    a, b = scenario.stream("a"), scenario.stream("b")
    if table:
        scenario.schemas["t"] = [("id", values.INT), *((f"v{i}", k) for i, k in enumerate(choice.sample(values.TYPES, 2)))]
        listed = ", ".join(f"{n} {t}" for n, t in scenario.schemas["t"])
        scenario.definitions.append(f"CREATE TABLE t ({listed}, PRIMARY KEY (id))")
    for number, moment in enumerate(random_times(choice, choice.randint(0, 30))):
        turn = choice.random()
        if table and turn < 0.25:
            row = {n: values.random_value(choice, t) for n, t in scenario.schemas["t"]} | {"id": choice.randint(0, 5)}
            scenario.arrivals.append(("t", row | ({"op": "-"} if choice.random() < 0.3 else {})))
        else:
            name, columns = ("a", a) if turn < 0.6 else ("b", b)
            scenario.arrivals.append((name, random_row(choice, columns, moment, number)))
    scenario.keep(kept)
    return scenario


def windows(seed: int, kept: Kept = None) -> Scenario:
    scenario = one_stream(random.Random(seed), kept)
    scenario.queries = [grouped_query(scenario.choice, scenario.feed("s")) for _ in range(QUERIES)]
    return scenario


def local_time(seed: int, kept: Kept = None) -> Scenario:
    choice = random.Random(seed)
    scenario = one_stream(choice, kept, start=choice.choice(CLOCK_CHANGES), scale=choice.choice([600, 3_000, 9_000]))
    feed = scenario.feed("s")
    scenario.queries = [grouped_query(choice, feed, random_window(choice, feed, "zoned")) for _ in range(QUERIES)]
    return scenario


def selections(seed: int, kept: Kept = None) -> Scenario:
    scenario = one_stream(random.Random(seed), kept)
    makers = [selection, selection, distinct_query, top_query, lag_query, hopped_rows, empty_query, empty_keys_query]
    scenario.queries = [scenario.choice.choice(makers)(scenario.choice, scenario.feed("s")) for _ in range(QUERIES)]
    return scenario


def overs(seed: int, kept: Kept = None) -> Scenario:
    scenario = one_stream(random.Random(seed), kept)
    scenario.queries = [over_query(scenario.choice, scenario.feed("s")) for _ in range(QUERIES)]
    return scenario


def nested(seed: int, kept: Kept = None) -> Scenario:
    scenario = one_stream(random.Random(seed), kept)
    scenario.queries = [nested_query(scenario, number) for number in range(QUERIES)]
    return scenario


def unions(seed: int, kept: Kept = None) -> Scenario:
    scenario = two_streams(random.Random(seed), kept)
    scenario.queries = [union_query(scenario.choice, scenario.feed("a"), scenario.feed("b")) for _ in range(QUERIES)]
    return scenario


def joins(seed: int, kept: Kept = None) -> Scenario:
    scenario = two_streams(random.Random(seed), kept)
    scenario.queries = [join_query(scenario.choice, scenario.feed("a"), scenario.feed("b")) for _ in range(QUERIES)]
    return scenario


def tables(seed: int, kept: Kept = None) -> Scenario:
    scenario = two_streams(random.Random(seed), kept, table=True)
    changes = [(seq, row) for seq, (stream, row) in enumerate(scenario.arrivals) if stream == "t"]
    scenario.queries = [table_query(scenario.choice, scenario.feed("a"), changes, scenario.schemas["t"]) for _ in range(QUERIES)]
    return scenario


def as_of(seed: int, kept: Kept = None) -> Scenario:
    scenario = two_streams(random.Random(seed), kept)
    scenario.queries = [asof_query(scenario.choice, scenario.feed("a"), scenario.feed("b")) for _ in range(QUERIES)]
    return scenario


def table_subqueries(seed: int, kept: Kept = None) -> Scenario:
    scenario = two_streams(random.Random(seed), kept, table=True)
    changes = [(seq, row) for seq, (stream, row) in enumerate(scenario.arrivals) if stream == "t"]
    scenario.queries = [table_subquery(scenario.choice, scenario.feed("a"), changes, scenario.schemas["t"]) for _ in range(QUERIES)]
    return scenario


def window_subqueries(seed: int, kept: Kept = None) -> Scenario:
    scenario = two_streams(random.Random(seed), kept)
    scenario.queries = [window_subquery(scenario.choice, scenario.feed("a"), scenario.feed("b")) for _ in range(QUERIES)]
    return scenario


def sets(seed: int, kept: Kept = None) -> Scenario:
    scenario = two_streams(random.Random(seed), kept)
    choice, a, b = scenario.choice, scenario.feed("a"), scenario.feed("b")
    scenario.queries = [choice.choice([set_query(choice, a, b), groupings_query(choice, a)]) for _ in range(QUERIES)]
    return scenario


def nested_values(seed: int, kept: Kept = None) -> Scenario:
    choice = random.Random(seed)
    scenario = Scenario(choice, choice.choice([0, 2, 5]))
    columns = scenario.stream("s", nested_columns(choice))
    for number, moment in enumerate(random_times(choice, choice.randint(0, 30))):
        scenario.arrivals.append(("s", nested_row(choice, columns, moment, number)))
    scenario.keep(kept)
    scenario.queries = [nested_values_query(choice, scenario.feed("s")) for _ in range(QUERIES)]
    return scenario


SUBQUERIES = (table_subqueries, window_subqueries, sets)
SHAPES = {f.__name__: f for f in (windows, local_time, selections, overs, nested, nested_values, unions, joins, tables, as_of, *SUBQUERIES)}
TREES = [shape for shape in SHAPES if SHAPES[shape] not in SUBQUERIES]  # of these there is no plan object


def failing(scenario: Scenario, way: Way) -> list[str]:
    """What is wrong with the answers of a scenario, run in a way; nothing when all is right."""
    outcomes = scenario.run(way)
    if outcomes.failure is not None:
        return [f"failed: {outcomes.failure}"]
    wrong = []
    for number, query in enumerate(scenario.queries, start=1):
        found = rows_of(outcomes, f"q{number}")
        if not same_rows(query.rows, found, ordered=query.ordered):
            wrong.append(f"{query.shape}: {query.sql}\n  right {query.rows}\n  found {found}")
        late = late_of(outcomes, f"q{number}")
        if query.late is not None and late not in (None, query.late):
            wrong.append(f"{query.shape}: {query.sql}\n  {late} late, right {query.late}")
    return wrong


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
        answers.append([[repr(r) for r in rows_of(outcomes, f"q{i + 1}")] for i in range(len(scenario.queries))])
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
@pytest.mark.parametrize("turn", range(10))
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
