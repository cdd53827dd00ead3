"""The measures by hand, and the histogram against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.graph import ClassId, OperatorId, QueryId, QueryNode
from millstream.engine.data.work import Emission
from millstream.scheduler.histogram import Histogram
from millstream.scheduler.measures import Measures
from millstream.scheduler.outputs import Staleness, unions
from millstream.scheduler.qos import critical_points_ns, first_critical_ns, gradient, last_useful_ns, late_from_ns, utilities, utility
from millstream.scheduler.simulation.outcome import RunOutcome, SimulatedQuery

MS = 1_000_000
S = 1_000_000_000
GRAPH = ((0.0, 1.0), (0.05, 0.8), (0.2, 0.0))


def emission(operator: int, finished_ns: int, *arrivals: tuple[int, int]) -> Emission:
    counts = tuple(count for _, count in arrivals)
    return Emission(OperatorId(operator), sum(counts), finished_ns, tuple(arrival for arrival, _ in arrivals), counts)


def test_responses_slowdowns_tardiness_and_utility() -> None:
    measures = Measures()
    measures.query_came(QueryNode(QueryId(1), "q", OperatorId(7), (), qos=GRAPH, period_ns=10 * MS))
    measures.emitted([emission(7, 20 * MS, (0, 1), (15 * MS, 2))], {QueryId(1): 5.0 * MS})
    report = measures.report(100 * MS)
    assert report.output.outputs == 3
    assert report.output.response_ms_mean == pytest.approx((20 + 5 + 5) / 3)
    assert report.output.response_ms_max == 20.0
    assert report.output.response_ms_norm == pytest.approx((400 + 25 + 25) ** 0.5)
    assert report.output.slowdown_mean == pytest.approx((4 + 1 + 1) / 3)
    # The boundaries after the arrivals are 10 and 20 ms: 10 ms late and on time.
    assert report.output.tardiness_ms_mean == pytest.approx(10 / 3)
    assert report.output.utility == pytest.approx((1 - 0.2 * 20 / 50 + 2 * (1 - 0.2 * 5 / 50)) / 3)
    # [0, 20) covers [15, 20): a fifth of 100 ms.
    assert report.output.staleness == pytest.approx(0.2)
    assert report.output.missed_deadlines == 0


def test_a_result_whose_ideal_time_is_not_known_has_no_slowdown() -> None:
    measures = Measures()
    measures.query_came(QueryNode(QueryId(1), "q", OperatorId(7), ()))
    measures.emitted([emission(7, 20 * MS, (0, 3))], {})
    measures.emitted([emission(7, 20 * MS, (10 * MS, 1))], {QueryId(1): 5.0 * MS})
    report = measures.report(100 * MS).output
    assert (report.outputs, report.slowdown_mean, report.slowdown_max) == (4, 2.0, 2.0)


def test_utility_per_application_weighs_applications_alike() -> None:
    measures = Measures()
    for query in (1, 2):
        measures.query_came(QueryNode(QueryId(query), "q", OperatorId(query), (), qos=GRAPH))
    measures.emitted([emission(1, 200 * MS, (0, 9))], {})
    measures.emitted([emission(2, 200 * MS, (200 * MS, 1))], {})
    report = measures.report(S)
    assert report.output.utility == pytest.approx(0.1)
    assert report.utility_per_application == pytest.approx(0.5)
    assert report.output.missed_deadlines == 9


def test_memory_is_weighted_by_time_and_throughput_counted_by_the_second() -> None:
    measures = Measures()
    measures.query_came(QueryNode(QueryId(1), "q", OperatorId(1), ()))
    measures.sample_memory(0, 100)
    measures.sample_memory(S, 300)
    for second, outputs in enumerate((4, 8)):
        measures.emitted([emission(1, second * S + 1, (second * S, outputs))], {})
    report = measures.report(2 * S)
    assert report.memory_bytes_mean == pytest.approx(200.0)
    assert report.memory_bytes_max == 300
    assert report.throughput_mean == 6.0
    assert report.throughput_deviation == 2.0


def test_outputs_are_counted_in_the_second_in_which_they_left_whatever_the_order_in_which_they_are_told() -> None:
    early, late = emission(1, S - 1, (0, 4)), emission(1, S + 1, (0, 8))
    for told in ((early, late), (late, early)):
        measures = Measures()
        measures.query_came(QueryNode(QueryId(1), "q", OperatorId(1), ()))
        for one in told:
            measures.emitted([one], {})
        report = measures.report(2 * S)
        assert (report.throughput_mean, report.throughput_deviation) == (6.0, 2.0)


def test_loss_is_the_share_shed_of_each_class() -> None:
    measures = Measures()
    measures.arrived(ClassId(1), 100, 0)
    measures.arrived(ClassId(3), 100, 36)
    assert measures.report(1).loss_share == {ClassId(1): 0.0, ClassId(3): 0.36}


def test_a_removed_query_is_forgotten() -> None:
    measures = Measures()
    measures.query_came(QueryNode(QueryId(1), "q", OperatorId(1), ()))
    measures.query_left(QueryId(1), 5)
    measures.emitted([emission(1, 5, (0, 1))], {})
    assert measures.report(10).output.outputs == 0


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 60)), min_size=1, max_size=40))
def test_staleness_is_the_measure_of_the_union(intervals: list[tuple[int, int]]) -> None:
    staleness, together, covered = Staleness(), Staleness(), set()
    ordered = sorted(intervals, key=lambda one: one[0] + one[1])
    for start, length in ordered:
        staleness.add(start, start + length)
        covered.update(range(start, start + length))
    for part in (ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]):
        begin, length = (np.array([one[place] for one in part], dtype=np.int64) for place in range(2))
        together.add_many(*unions(np.zeros(len(part), np.int64), begin, begin + length)[1:])
    assert staleness.stale_ns == together.stale_ns == len(covered)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=60), st.sampled_from([0.01, 0.5, 0.95, 0.99, 1.0]))
def test_quantiles_are_right_to_one_part_in_a_hundred(values: list[int], share: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    exact = float(np.quantile(np.array(values, dtype=np.float64), share, method="inverted_cdf"))
    assert histogram.quantile(share) == pytest.approx(exact, rel=0.012)
    assert histogram.total == sum(values)
    assert histogram.maximum == max(values)


def test_a_qos_graph_is_piecewise_linear_with_steps() -> None:
    step = ((0.0, 1.0), (4.0, 1.0), (4.0, 0.0))
    assert [utility(step, one * S) for one in (0, 4, 4.1)] == [1.0, 1.0, 0.0]
    assert first_critical_ns(step) == 4 * S
    assert last_useful_ns(step) == 4 * S
    assert utility(GRAPH, 125 * MS) == pytest.approx(0.4)
    assert gradient(GRAPH, 10 * MS) == pytest.approx(4.0)
    assert gradient(GRAPH, 60 * MS) == pytest.approx(0.8 / 0.15)
    assert gradient(GRAPH, S) == 0.0
    assert critical_points_ns(GRAPH) == [0.05 * S, 0.2 * S]
    assert first_critical_ns(((0.0, 1.0),)) == float("inf")


def test_a_query_that_left_counts_for_its_class_and_can_be_asked_about() -> None:
    measures = Measures()
    for query in (1, 2):
        measures.query_came(QueryNode(QueryId(query), "q", OperatorId(query), (), class_id=ClassId(5)))
    measures.emitted([emission(1, 20 * MS, (0, 2))], {})
    measures.emitted([emission(2, 40 * MS, (0, 2))], {})
    measures.query_left(QueryId(1), 50 * MS)
    copied = measures.copy()
    measures.emitted([emission(2, 90 * MS, (0, 8))], {})
    for one in (copied, measures):
        assert one.of_queries(S)[QueryId(1)].response_ms_mean == 20.0
    assert copied.of_classes(S)[ClassId(5)].outputs == copied.report(S).output.outputs == 4
    assert copied.of_classes(S)[ClassId(5)].response_ms_mean == pytest.approx(30.0)
    assert measures.of_classes(S)[ClassId(5)].outputs == 12


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.floats(0, 1e13, allow_nan=False), max_size=50), st.integers(1, 9))
def test_counting_many_at_once_is_counting_one_by_one(values: list[float], count: int) -> None:
    together, singly = Histogram(), Histogram()
    together.add_many(np.array(values), np.full(len(values), count))
    for value in values:
        singly.add(value, count)
    for share in (0.0, 0.3, 0.5, 0.99, 1.0):
        assert together.quantile(share) == pytest.approx(singly.quantile(share), rel=0.012)
    assert (together.count, together.maximum) == (singly.count, singly.maximum)
    assert together.norm == pytest.approx(singly.norm)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.floats(0, 9), st.floats(0, 1)), min_size=1, max_size=6), st.lists(st.floats(0, 1e10), min_size=1, max_size=20))
def test_utilities_of_a_column_are_those_of_its_values(points: list[tuple[float, float]], latencies: list[float]) -> None:
    graph = sorted(points, key=lambda one: one[0])
    latencies += [at * S for at, _ in graph]
    assert utilities(graph, np.array(latencies)).tolist() == pytest.approx([utility(graph, one) for one in latencies])


def test_a_deadline_is_where_utility_begins_to_fall() -> None:
    assert late_from_ns(((0.0, 1.0), (1.0, 1.0), (5.0, 1.0), (10.0, 0.0))) == 5 * S
    assert late_from_ns(GRAPH) == 50 * MS
    assert late_from_ns(((0.0, 1.0), (9.0, 1.0))) == float("inf")


results = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 10**9), st.integers(1, 10**9), st.integers(1, 3)), min_size=1, max_size=200)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(results)
def test_a_simulated_outcome_and_live_measures_say_the_same_of_the_same_results(made: list[tuple[int, int, int, int]]) -> None:
    made.sort(key=lambda one: one[1] + one[2])
    end_ns, ideals = 3 * S, (1e6, 5e6, 2e7)
    measures = Measures()
    for query in range(3):
        measures.query_came(QueryNode(QueryId(query), "q", OperatorId(query), (), qos=GRAPH, weight=1.0 + query))
    for query, arrival_ns, taken_ns, rows in made:
        one = emission(query, arrival_ns + taken_ns, (arrival_ns, rows))
        measures.emitted([one], {QueryId(query): ideal for query, ideal in enumerate(ideals)})
    rows = np.array([one[3] for one in made])
    query, arrival, taken = (np.repeat(np.array([one[place] for one in made]), rows) for place in range(3))
    facts = tuple(SimulatedQuery("q", ideal, GRAPH, 1.0 + place, 0, S) for place, ideal in enumerate(ideals))
    nothing = np.zeros(0, dtype=np.int64)
    outcome = RunOutcome("fcfs", facts, query, arrival, arrival + taken, nothing, nothing, end_ns, end_ns, 0, 0, 0, 0, 0)
    live, simulated = measures.report(end_ns), outcome.summary()
    assert live.output.outputs == simulated["results"]
    for ours, theirs in (
        (live.output.response_ms_mean, "response_ms_mean"), (live.output.response_ms_max, "response_ms_max"),
        (live.output.response_ms_norm, "response_ms_l2"), (live.output.slowdown_mean, "slowdown_mean"),
        (live.output.slowdown_norm, "slowdown_l2"), (live.output.utility, "utility_per_tuple"),
        (live.utility_per_application, "utility_per_application"), (live.output.missed_deadlines, "missed"),
        (live.output.staleness, "staleness"),
    ):  # fmt: skip
        assert ours == pytest.approx(simulated[theirs]), theirs
    assert live.staleness_weighted == pytest.approx(outcome.staleness(weighted=True))
