"""The measures by hand, and the histogram against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.graph import ClassId, OperatorId, QueryId, QueryNode
from millstream.engine.work import Emission
from millstream.scheduler.histogram import Histogram
from millstream.scheduler.measures import Measures, Staleness
from millstream.scheduler.qos import critical_points_ns, first_critical_ns, gradient, last_useful_ns, utility

MS = 1_000_000
S = 1_000_000_000
GRAPH = ((0.0, 1.0), (0.05, 0.8), (0.2, 0.0))


def emission(operator: int, finished_ns: int, *arrivals: tuple[int, int]) -> Emission:
    counts = tuple(count for _, count in arrivals)
    return Emission(OperatorId(operator), sum(counts), finished_ns, tuple(arrival for arrival, _ in arrivals), counts)


def test_responses_slowdowns_tardiness_and_utility() -> None:
    measures = Measures()
    measures.query_came(QueryNode(QueryId(1), "q", OperatorId(7), (), qos=GRAPH, period_ns=10 * MS))
    measures.emitted(emission(7, 20 * MS, (0, 1), (15 * MS, 2)), {QueryId(1): 5.0 * MS})
    report = measures.report(100 * MS)
    assert report.outputs == 3
    assert report.response_ms_mean == pytest.approx((20 + 5 + 5) / 3)
    assert report.response_ms_max == 20.0
    assert report.response_ms_norm == pytest.approx((400 + 25 + 25) ** 0.5)
    assert report.slowdown_mean == pytest.approx((4 + 1 + 1) / 3)
    # The boundaries after the arrivals are 10 and 20 ms: 10 ms late and on time.
    assert report.tardiness_ms_mean == pytest.approx(10 / 3)
    assert report.utility_per_tuple == pytest.approx((1 - 0.2 * 20 / 50 + 2 * (1 - 0.2 * 5 / 50)) / 3)
    # [0, 20) covers [15, 20): a fifth of 100 ms.
    assert report.staleness_mean == pytest.approx(0.2)
    assert report.missed_deadlines == 0


def test_utility_per_application_weighs_applications_alike() -> None:
    measures = Measures()
    for query in (1, 2):
        measures.query_came(QueryNode(QueryId(query), "q", OperatorId(query), (), qos=GRAPH))
    measures.emitted(emission(1, 200 * MS, (0, 9)), {})
    measures.emitted(emission(2, 200 * MS, (200 * MS, 1)), {})
    report = measures.report(S)
    assert report.utility_per_tuple == pytest.approx(0.1)
    assert report.utility_per_application == pytest.approx(0.5)
    assert report.missed_deadlines == 9


def test_memory_is_weighted_by_time_and_throughput_counted_by_the_second() -> None:
    measures = Measures()
    measures.query_came(QueryNode(QueryId(1), "q", OperatorId(1), ()))
    measures.sample_memory(0, 100)
    measures.sample_memory(S, 300)
    for second, outputs in enumerate((4, 8)):
        measures.emitted(emission(1, second * S + 1, (second * S, outputs)), {})
    report = measures.report(2 * S)
    assert report.memory_bytes_mean == pytest.approx(200.0)
    assert report.memory_bytes_max == 300
    assert report.throughput_mean == 6.0
    assert report.throughput_deviation == 2.0


def test_loss_is_the_share_shed_of_each_class() -> None:
    measures = Measures()
    measures.arrived(ClassId(1), 100, 0)
    measures.arrived(ClassId(3), 100, 36)
    assert measures.report(1).loss_share == {ClassId(1): 0.0, ClassId(3): 0.36}


def test_a_removed_query_is_forgotten() -> None:
    measures = Measures()
    measures.query_came(QueryNode(QueryId(1), "q", OperatorId(1), ()))
    measures.query_left(QueryId(1))
    measures.emitted(emission(1, 5, (0, 1)), {})
    assert measures.report(10).outputs == 0


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 60)), min_size=1, max_size=40))
def test_staleness_is_the_measure_of_the_union(intervals: list[tuple[int, int]]) -> None:
    staleness, covered = Staleness(), set()
    for start, length in sorted(intervals, key=lambda one: one[0] + one[1]):
        staleness.add(start, start + length)
        covered.update(range(start, start + length))
    assert staleness.stale_ns == len(covered)


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
