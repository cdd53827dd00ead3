"""That a query costs no more to register because many others run, judged by the calls that this takes."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest
from millstream.engine.runtime import memory
from millstream.engine.sharing.merge import STACKED_MAX

from tests.support.engine_run import SECOND, SqlEngine

STREAM = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v BIGINT, x DOUBLE) TIMESTAMP BY ts"
TEXTS = (
    "SELECT ts, x FROM s WHERE k = {}",
    "SELECT ts, x FROM s WHERE k % {} = 1",
    "SELECT ts, x * {} AS y FROM s",
    "SELECT ts, x FROM s WHERE v > {}",
    "SELECT ts, x FROM s WHERE v < -{} AND x > 0.5",
    "SELECT k, COUNT(*) AS n FROM s [RANGE {} SECONDS SLIDE 1 SECOND] GROUP BY k",
)


def calls_of(function: Any, *arguments: Any) -> int:
    """Return how many calls a call makes, of Python and of C."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        function(*arguments)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("text", TEXTS)
def test_the_last_of_many_queries_takes_about_as_many_calls_as_an_early_one(text: str) -> None:
    engine = SqlEngine(STREAM, sharing=True)
    for number in range(30):
        engine.select(text.format(number + 2), f"q{number}")
    early = calls_of(engine.select, text.format(32), "early")
    for number in range(33, 130):
        engine.select(text.format(number), f"q{number}")
    late = calls_of(engine.select, text.format(130), "late")
    assert late < 1.1 * early + 100


def test_stricter_and_stricter_filters_stand_on_each_other_up_to_a_bound_and_answer_alike() -> None:
    bounds = random.Random(1).sample(range(60), 30) + list(range(60, 100))
    engine = SqlEngine(STREAM, sharing=True)
    for bound in bounds:
        engine.select(f"SELECT v FROM s WHERE v > {bound}", f"q{bound}")
    producers = {log.id: o for o in engine.network.operators.values() for log in o.outputs}
    depth: dict[int, int] = {}
    for operator in engine.network.operators.values():
        below = [producers[i.log.id] for i in operator.inputs if i.log.id in producers]
        depth[operator.id] = 1 + max((depth[one.id] for one in below), default=0)
    assert STACKED_MAX < max(depth.values()) <= STACKED_MAX + 3  # the last filter, the projection and the sink stand above
    engine.put("s", [(i * SECOND, 0, i, 0.5) for i in range(110)])
    engine.work()
    for bound in bounds:
        assert [row[0] for row in engine.rows(f"q{bound}")] == list(range(bound + 1, 110))


def test_filters_that_leave_are_used_no_more() -> None:
    engine = SqlEngine(STREAM, sharing=True)
    texts = ["v > 3", "v > 5", "k = 1", "v > 3 AND k = 1", "v < 9", "k % 2 = 1"]
    for turn in range(3):
        for text in texts:
            engine.select(f"SELECT v FROM s WHERE {text}", f"{text}{turn}")
        for text in texts[turn:] + texts[:turn]:
            engine.drop(f"{text}{turn}")
        assert not engine.network.operators
    registry = engine.network.registry
    assert not any((registry._by_key, registry._by_operator, registry._filters, registry._projections, registry._aggregates))


def test_a_look_at_the_memory_divides_what_many_share_once_and_only_where_a_bound_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = SqlEngine(STREAM, sharing=True)
    for number in range(40):
        engine.select(f"SELECT k, MAX(v) AS m FROM s [RANGE {number + 2} SECONDS SLIDE 1 SECOND] GROUP BY k", f"q{number}")
    engine.put("s", [(0, k, k, 0.5) for k in range(500)])
    engine.work()
    divided: list[int] = []
    weigh = memory.state_weights
    monkeypatch.setattr(memory, "state_weights", lambda operator, queries: divided.append(len(queries)) or weigh(operator, queries))
    engine.network.memory.look()
    assert divided == []
    total = engine.network.memory.total_bytes
    engine.network.memory.query_bytes_max = 2 * total
    engine.network.memory.look()
    assert divided == [40]
    assert sum(engine.network.memory.use_of(q).state for q in engine.network.queries.values()) <= total
    assert engine.network.memory.ended == 0


def test_nobody_is_asked_for_a_tick_of_the_clock_again_while_no_query_comes_or_goes_and_nothing_runs() -> None:
    engine = SqlEngine("CREATE STREAM s (v BIGINT) TIMESTAMP BY ARRIVAL", sharing=True)
    text = "SELECT COUNT(*) AS n FROM s [RANGE 8 SECONDS SLIDE 8 SECONDS] WHERE v % {} = 1"
    for number in range(2, 40):
        engine.select(text.format(number), f"q{number}")
    assert engine.network.ticks.next_us() is None
    assert calls_of(engine.network.ticks.next_us) < 20
    engine.tick(SECOND)
    engine.put("s", [(1,)])
    engine.work()
    assert engine.network.ticks.next_us() == 8 * SECOND
    assert calls_of(engine.network.ticks.next_us) < 20
    engine.select("SELECT COUNT(*) AS n FROM s [RANGE 2 SECONDS SLIDE 2 SECONDS] WHERE v > 0", "short")
    engine.put("s", [(3,)])
    engine.work()
    assert engine.network.ticks.next_us() == 2 * SECOND
    engine.drop("short")
    assert engine.network.ticks.next_us() == 8 * SECOND
    engine.tick(8 * SECOND)
    engine.work()
    assert engine.network.ticks.next_us() is None
    assert engine.rows("q2") == [(2,)]
