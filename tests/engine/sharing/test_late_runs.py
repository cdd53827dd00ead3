"""Late answers under hybrid-late and hybrid-late-pending: together, once, right, and only where SLIDE WITHIN allows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.runtime.bill import bills
from millstream.engine.sharing.splicing import InForce, Periodic
from millstream.engine.synopses.answers import LateRule
from millstream.engine.synopses.shared_aggregate import SharedAggregate

from tests.support.engine_run import SECOND, SqlEngine

STREAM = "CREATE STREAM s (ts TIMESTAMP, v BIGINT) TIMESTAMP BY ts"
WITHIN = "SELECT window_start, window_end, SUM(v) AS total FROM s [RANGE {} SECONDS SLIDE WITHIN {} SECONDS]"
LONG_NS = 10**15


def as_asked(queries: Sequence[Periodic], step_us: int) -> dict[str, InForce]:
    return {query.name: InForce(query.slide_us) for query in queries}


def engine_with(age_ns: Callable[[int], int], all_due: bool, **queries: str) -> SqlEngine:
    engine = SqlEngine(STREAM, sharing=True)
    engine.network.choose_periods = as_asked
    engine.network.late_rule = LateRule(age_ns, all_due)
    for name, text in queries.items():
        engine.select(text, name)
    return engine


def put(engine: SqlEngine, start: int, stop: int) -> int:
    """Let in a row a second, each its own arrival; return when the last one came."""
    engine.put("s", [(ts * SECOND, ts) for ts in range(start, stop)], chunk=1)
    return engine._now


def ends(engine: SqlEngine, name: str) -> list[int]:
    rows = engine.rows(name)
    for start, end, total in rows:
        assert total == sum(ts for ts in range(max(0, start // SECOND), end // SECOND))
    return [end // SECOND for _, end, _ in rows]


def test_a_late_query_is_answered_once_at_the_newest_border_and_again_a_period_later() -> None:
    overload = [True]
    second = WITHIN.format(1, 1).replace("WITHIN ", "")  # makes an update of each second
    engine = engine_with(lambda _: LONG_NS if overload[0] else 0, False, q=WITHIN.format(6, 2), second=second)
    put(engine, 0, 3)
    engine.work()
    put(engine, 3, 10)
    engine.work()
    overload[0] = False
    put(engine, 10, 16)
    engine.work()
    assert ends(engine, "q") == [2, 9, 11, 13, 15]
    part = bills(engine.network)[0][1][0]
    assert (part.late_runs, part.skipped) == (1, 2)


def test_with_time_enough_every_window_is_answered() -> None:
    engine = engine_with(lambda _: 999_999_999, False, q=WITHIN.format(6, 2))  # less than an update ago
    put(engine, 0, 10)
    engine.work()
    assert ends(engine, "q") == [2, 4, 6, 8]


def test_an_exact_slide_misses_no_window_however_late() -> None:
    engine = engine_with(lambda _: LONG_NS, True, q=WITHIN.format(6, 2).replace("WITHIN ", ""), w=WITHIN.format(6, 2))
    put(engine, 0, 3)
    engine.work()
    put(engine, 3, 10)
    engine.work()
    assert ends(engine, "q") == [2, 4, 6, 8]
    assert ends(engine, "w") == [2, 8]


def test_late_tasks_run_together_and_pending_ones_only_with_late_pending() -> None:
    found = {}
    for all_due in (False, True):
        turn = [0]
        asked = {"a": WITHIN.format(6, 2), "b": WITHIN.format(9, 3), "c": WITHIN.format(9, 9)}
        engine = engine_with(lambda arrived, turn=turn: LONG_NS if arrived < turn[0] else 0, all_due, **asked)  # type: ignore[misc]
        put(engine, 0, 4)
        engine.work()  # a and b have answered
        turn[0] = put(engine, 4, 8) + 1
        put(engine, 8, 11)
        engine.work()
        found[all_due] = {name: ends(engine, name) for name in "abc"}
    assert found[False] == {"a": [2, 10], "b": [3, 10], "c": [9]}
    assert found[True] == {"a": [2, 10], "b": [3, 10], "c": [10]}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=2, max_size=12), st.booleans())
def test_answers_are_right_and_come_as_often_as_asked_while_nobody_is_late(steps: list[tuple[int, bool]], all_due: bool) -> None:
    overload = [False]
    engine = engine_with(
        lambda _: LONG_NS if overload[0] else 0, all_due, a=WITHIN.format(6, 2), b=WITHIN.format(9, 3), c=WITHIN.format(4, 4)
    )
    now, calm_since = 0, 0
    for seconds, late in steps:
        overload[0] = late
        put(engine, now, now + seconds)
        engine.work()
        now += seconds
        calm_since = now if late else calm_since
    for name, slide in (("a", 2), ("b", 3), ("c", 4)):
        found = ends(engine, name)
        assert found == sorted(set(found))
        calm = [end for end in found if end > calm_since]
        assert all(after - before <= slide for before, after in pairwise(calm))
        if calm:
            assert now - 1 - calm[-1] < slide
    (logic,) = {id(o.logic): o.logic for o in engine.network.operators.values() if isinstance(o.logic, SharedAggregate)}.values()
    skipped: Any = [logic.lateness(port)[1] for port in logic._members]
    assert all(count == 0 for count in skipped) or calm_since > 0


def test_what_chooses_periods_is_told_how_many_values_an_answer_sorts() -> None:
    told: list[Periodic] = []

    def choose(queries: Sequence[Periodic], step_us: int) -> dict[str, InForce]:
        told[:] = queries
        return as_asked(queries, step_us)

    engine = SqlEngine(STREAM, sharing=True)
    engine.network.choose_periods = choose
    ranked = "SELECT window_end, {} AS found FROM s [RANGE 4 SECONDS SLIDE WITHIN 2 SECONDS]"
    engine.select(ranked.format("TOP(v, 2)"), "q")
    assert told[0].sorts == ()  # no row has come
    engine.put("s", [(3 * SECOND, value) for value in (3, 5, 3, 8)] + [(5 * SECOND, 1)])
    engine.work()
    engine.select(ranked.format("SUM(v)"), "r")
    assert {one.name: one.sorts for one in told} == {"q": (3,), "r": ()}
