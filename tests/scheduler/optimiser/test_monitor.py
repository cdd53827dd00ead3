"""The QoS monitor by hand: tolerance, hysteresis, since when, how often."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from millstream.engine.data.graph import OperatorId, QueryId, QueryNode
from millstream.engine.data.work import Emission
from millstream.scheduler.measures import Measures
from millstream.scheduler.optimiser.contract import Observation, ServiceTarget, TargetState
from millstream.scheduler.optimiser.monitor import Monitor

S = 1_000_000_000
Q = QueryId(1)
TWENTY = ServiceTarget(latency_ns=20.0 * S, tolerance=0.1)


def states(target: ServiceTarget, *latencies_s: float | None) -> list[TargetState]:
    monitor = Monitor()
    return [
        monitor.observe(Q, target, Observation(at, None if one is None else one * S, 0.0)).state for at, one in enumerate(latencies_s, 1)
    ]


def test_twenty_seconds_with_ten_percent_are_missed_beyond_22_and_met_again_at_20() -> None:
    met, missed = TargetState.MET, TargetState.MISSED
    assert states(TWENTY, 21.9, 22.0, 22.1, 21.0, 20.1, 20.0, 21.0) == [met, met, missed, missed, missed, met, met]


def test_before_the_first_result_nothing_is_said_and_a_miss_ends_when_nothing_waits() -> None:
    assert states(TWENTY, None, 30.0, None) == [TargetState.UNKNOWN, TargetState.MISSED, TargetState.MET]


def test_while_no_rows_come_nothing_is_said_of_latency() -> None:
    """Ten seconds after the last row, at once after a miss; by rows without results a target is met; memory is judged all the same."""
    met, missed, idle = TargetState.MET, TargetState.MISSED, TargetState.IDLE
    monitor = Monitor()

    def state(
        at_s: int, latency_s: float | None, memory: float = 0.0, *, came: bool = False, target: ServiceTarget = TWENTY
    ) -> TargetState:
        return monitor.observe(Q, target, Observation(at_s * S, None if latency_s is None else latency_s * S, memory, came)).state

    assert [state(1, 5.0, came=True), state(5, None, came=True), state(14, None), state(15, None), state(16, None)] == [
        met, met, met, idle, idle]  # fmt: skip
    assert [state(17, None, came=True), state(18, 30.0), state(19, None), state(20, 30.0), state(21, 3.0)] == [
        met,
        missed,
        idle,
        missed,
        met,
    ]
    held = ServiceTarget(latency_ns=20.0 * S, memory_bytes=100.0)
    assert [state(22, 1.0, target=held), state(40, None, 200.0, target=held), state(41, None, target=held)] == [met, missed, idle]
    only = ServiceTarget(memory_bytes=100.0)
    assert [state(42, 1.0, target=only), state(90, None, target=only)] == [met, met]


def test_a_verdict_says_since_when_by_how_much_and_how_often() -> None:
    monitor = Monitor()
    for at, latency in ((1, 10.0), (2, 30.0), (3, 40.0)):
        found = monitor.observe(Q, TWENTY, Observation(at, latency * S, 0.0))
    assert (found.since_ns, found.excess, found.misses) == (2, 1.0, 1)
    for at, latency in ((4, 19.0), (5, 50.0)):
        found = monitor.observe(Q, TWENTY, Observation(at, latency * S, 0.0))
    assert (found.since_ns, found.misses) == (5, 2)


def test_memory_and_latency_are_judged_apart_and_their_excess_adds_up() -> None:
    monitor = Monitor()
    both = ServiceTarget(latency_ns=S, memory_bytes=1000.0, tolerance=0.0)
    found = monitor.observe(Q, both, Observation(1, 1.5 * S, 1250.0))
    assert (found.latency_missed, found.memory_missed) == (True, True)
    assert math.isclose(found.excess, 0.75)
    found = monitor.observe(Q, both, Observation(2, 0.5 * S, 1250.0))
    assert (found.latency_missed, found.memory_missed, found.state) == (False, True, TargetState.MISSED)


def test_without_a_target_there_is_no_state_and_another_target_begins_anew() -> None:
    monitor = Monitor()
    assert monitor.observe(Q, ServiceTarget(), Observation(1, 9.0 * S, 9.0)).state is TargetState.NONE
    monitor.observe(Q, TWENTY, Observation(2, 30.0 * S, 0.0))
    assert monitor.observe(Q, ServiceTarget(latency_ns=40.0 * S), Observation(3, 30.0 * S, 0.0)).misses == 0


@given(st.lists(st.floats(0, 60), max_size=40))
def test_a_state_changes_only_across_the_whole_band(latencies: list[float]) -> None:
    found = states(TWENTY, *latencies)
    for before, after, latency in zip(found, found[1:], latencies[1:], strict=False):
        if before is not after:
            assert latency > 22.0 if after is TargetState.MISSED else latency <= 20.0


def test_results_of_the_plan_that_takes_over_count_on_those_of_the_one_before() -> None:
    measures = Measures()
    before, after = (QueryNode(QueryId(n), "q", OperatorId(n), (OperatorId(n),)) for n in (1, 2))
    measures.follow(before.id, before, 0)
    measures.emitted([Emission(OperatorId(1), 2, 10 * S, (4 * S,), (2,))], {})
    measures.follow(after.id, after, 10 * S)
    measures.take_over(before.id, after.id)
    measures.follow(before.id, None, 11 * S)  # the old plan leaves
    measures.emitted([Emission(OperatorId(2), 1, 12 * S, (9 * S,), (1,))], {})
    assert measures.latency_sums([before.id, after.id]) == {after.id: (3, 15.0 * S)}
    assert measures.of_queries(12 * S).keys() == {after.id}
