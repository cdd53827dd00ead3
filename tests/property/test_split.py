"""K15: a query that is split by key answers as the whole one does, in the same order, and calls the same rows late."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.server.run.embedded import Replay, run_replay

from tests.property.oracle.scenario import Scenario, random_way
from tests.property.oracle.shapes import SHAPES, failing
from tests.support.engine_run import SECOND, SqlEngine

REFUSED = "option split: this query cannot be split by key, as "
SPLIT = ("windows", "local_time", "joins", "overs", "gaps", "nested", "bytes_and_times", "ordered_aggregates", "window_subqueries")


def split(scenario: Scenario, parts: int) -> int:
    """Split those queries of a scenario that can be; return how many."""
    count = 0
    for place, query in enumerate(scenario.queries):
        if query.name or " WITH (" in query.sql:
            continue
        sql = f"{query.sql} WITH (split = {parts})"
        failure = run_replay(Replay(";\n".join([*scenario.definitions, sql]), ())).failure
        assert failure is None or REFUSED in str(failure), (sql, failure)
        if failure is None:
            scenario.queries[place] = replace(query, sql=sql)
            count += 1
    return count


@pytest.mark.parametrize("shape", SPLIT)
def test_split_queries_answer_as_the_oracle_says(shape: str, seed: int) -> None:
    choice, found = random.Random(seed), 0
    for number in range(3):
        scenario = SHAPES[shape](seed + number)
        found += split(scenario, choice.randint(2, 4))
        wrong = failing(scenario, random_way(choice, rewrites=True))
        assert not wrong, wrong
    assert found, "nothing was split"


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=30), st.sampled_from([1, 3, 4096]))
@settings(max_examples=40, deadline=None)
def test_a_stream_joined_with_itself_gives_its_pairs_in_the_same_order(keys: list[tuple[int, int]], train: int) -> None:
    query = "SELECT x.n AS a, y.n AS b FROM s AS x JOIN s AS y ON x.k = y.j WITHIN 9 SECONDS"
    found = []
    for option in ("", " WITH (split = 3)"):
        engine = SqlEngine("CREATE STREAM s (ts TIMESTAMP, k BIGINT, j BIGINT, n BIGINT) TIMESTAMP BY ts", train=train)
        engine.select(query + option)
        engine.put("s", [(place * SECOND, *pair, place) for place, pair in enumerate(keys)])
        engine.end()
        engine.work()
        found.append(engine.rows("q"))
    assert found[0] == found[1]
