"""K15 with workers: the same bytes with one, two and three of them, and with workers that are killed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from millstream.server.run.embedded import Replay, run_replay

from tests.property.oracle.scenario import Scenario, Way, rows_of, summed
from tests.property.oracle.shapes import SHAPES, failing
from tests.property.test_split import split
from tests.support.worker_pools import Pool, kills, moves, replays_served_by


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    made = Pool(3)
    yield made
    made.close()


def scenario_of(shape: str, seed: int, queries: int = 4) -> Scenario:
    scenario = SHAPES[shape](seed)
    scenario.queries = scenario.queries[:queries]
    return scenario


def answers(scenario: Scenario, way: Way) -> list[list[str]]:
    outcomes = scenario.run(way)
    assert outcomes.failure is None, outcomes.failure
    found = [(rows_of(outcomes, name), query.added) for name, query in scenario.named()]
    return [[repr(r) for r in (sorted(summed(rows), key=repr) if added else rows)] for rows, added in found]


@pytest.mark.parametrize("shape", SHAPES)
def test_workers_answer_as_the_server_alone_does(shape: str, seed: int, pool: Pool) -> None:
    scenario = scenario_of(shape, seed)
    alone = answers(scenario, Way(7))
    for count, train in ((1, 7), (2, None), (3, 1)):
        with replays_served_by(pool, count) as served:
            assert answers(scenario, Way(train, workers=count)) == alone, (shape, seed, count, scenario.script())
            assert sum(worker.calls for worker in served[0].workers), "nothing ran in a worker"


def test_many_rows_at_once_through_one_operator_and_a_sink(pool: Pool, tmp_path: Path) -> None:
    rows = tmp_path / "s.csv"
    rows.write_text("ts,x\n" + "".join(f"{i},{i % 13}\n" for i in range(1_000)))
    script = "CREATE STREAM s (ts BIGINT, x BIGINT) TIMESTAMP BY ts UNIT s; SELECT x FROM s WHERE x > 3; SELECT ts, x + 1 AS y FROM s"
    alone = run_replay(Replay(script, [("s", rows)]))
    with replays_served_by(pool, 1) as served:
        found = run_replay(Replay(script, [("s", rows)]))
    assert alone.failure is None
    assert found.failure is None
    assert served[0].workers[0].calls
    assert [[b.to_pydict() for b in r.batches] for r in found.results] == [[b.to_pydict() for b in r.batches] for r in alone.results]


@pytest.mark.parametrize("shape", ["windows", "joins"])
def test_a_worker_that_is_killed_between_two_steps_takes_nothing_with_it(shape: str, seed: int) -> None:
    scenario, pool = scenario_of(shape, seed), Pool(2)
    try:
        with replays_served_by(pool, 2), kills(random.Random(seed), most=2, every=10) as ended:
            wrong = failing(scenario, Way(1, workers=2))
    finally:
        pool.close()
    assert not wrong, wrong
    assert ended
    assert sum(worker.deaths for worker in pool.workers)


@pytest.mark.parametrize("shape", ["windows", "joins", "tables"])
def test_groups_that_move_and_workers_that_are_killed_change_no_answer(shape: str, seed: int) -> None:
    scenario, pool, choice = scenario_of(shape, seed), Pool(3), random.Random(seed)
    try:
        with replays_served_by(pool, 3) as served, moves(choice, served, every=3) as moved, kills(choice, most=2, every=25):
            wrong = failing(scenario, Way(1, workers=3))
    finally:
        pool.close()
    assert not wrong, wrong
    assert len(moved) > 3
    assert sum(sum(one.moves) for one in served) == len(moved)


@pytest.mark.parametrize("shape", ["windows", "joins", "overs"])
def test_split_queries_whose_parts_move_and_whose_workers_are_killed_answer_as_whole_ones(shape: str, seed: int) -> None:
    pool, choice, number = Pool(3), random.Random(seed), seed
    try:
        while not split(scenario := scenario_of(shape, number, 6), 3):
            number += 1
        with replays_served_by(pool, 3) as served, moves(choice, served, every=4) as moved, kills(choice, most=2, every=30):
            wrong = failing(scenario, Way(1, workers=3))
    finally:
        pool.close()
    assert not wrong, wrong
    assert moved
