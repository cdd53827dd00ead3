"""A copy of a running query, taken at any moment, answers what the query has not answered yet."""

from __future__ import annotations

import random
from typing import Any

import pytest
from millstream.engine.data.arrow import column_to_arrow
from millstream.engine.runtime import fork

from tests.engine.operators.test_snapshots import QUERIES, STREAMS
from tests.support.engine_run import SqlEngine

CHANGING = ("EMIT CHANGES", "GROUP BY k HAVING", "ISTREAM", "DSTREAM", "RSTREAM")


def rows_of(trains: list[Any]) -> list[str]:
    found: list[str] = []
    for train in trains:
        columns = [column_to_arrow(c).to_pylist() for c in train.columns()]
        found += [repr(row) for row in zip(*columns, strict=True)]
    return found


@pytest.mark.parametrize("query", [q for q in QUERIES if not any(word in q for word in CHANGING)])
@pytest.mark.parametrize("worked", [True, False])
def test_what_was_answered_and_what_the_copy_answers_are_together_the_whole(query: str, worked: bool) -> None:
    dice = random.Random(3)
    engine = SqlEngine(*STREAMS)
    delta = engine.select(query)
    now = 0
    for n in range(60):
        now += dice.randint(-1, 3)
        engine.put(dice.choice("sr"), [(now, dice.choice([0, 1, 2, None]), dice.random(), dice.choice(["a", "b", None]))])
        if n % 7 == 0 or (worked and n == 59):
            engine.work()
    blueprint = engine.network.queries[delta.query.id].blueprint
    before = [repr(tuple(row)) for row in engine.rows("q")]
    copied = fork.take([blueprint], engine.network.ingress.next_seq)
    engine.end()
    engine.work()
    whole = [repr(tuple(row)) for row in engine.rows("q")]
    assert sorted(before + rows_of(copied.finish())) == sorted(whole)
