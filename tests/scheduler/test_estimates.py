"""Measured costs and selectivities, and the sums along paths (Sharaf 2007, 3.1, 3.3.3), against values worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.scheduler.estimates import Estimates
from millstream.scheduler.ledger import Ledger
from millstream.scheduler.network import NetworkModel
from millstream.scheduler.simulation.networks import Box, NetworkBuilder

from tests.support.random_networks import random_network


def estimate(*deltas: object) -> tuple[NetworkModel, Estimates]:
    network = NetworkModel()
    estimates, ledger = Estimates(network), Ledger(network)
    for delta in deltas:
        ledger.add(delta, {})  # type: ignore[arg-type]
        estimates.query_came(delta.query.id, delta.operators)  # type: ignore[attr-defined]
    estimates.refresh()
    return network, estimates


def test_sums_along_a_chain() -> None:
    builder = NetworkBuilder()
    x = Box(2, 0.5, builder.source("s"))
    y = Box(4, 0.25, x)
    z = Box(8, 1.0, y)
    network, estimates = estimate(builder.query("q", z))
    slot = network.operators.slot_of[builder.operator(x)]
    assert estimates.output_per_tuple[slot] == pytest.approx(0.5 * 0.25)
    assert estimates.cost_to_end_ns[slot] == pytest.approx(2 + 0.5 * 4 + 0.5 * 0.25 * 8)
    assert estimates.ideal_time_ns[slot] == 14
    assert estimates.normalized_output[slot] == pytest.approx(0.125 / 14)


def test_a_join_has_a_selectivity_per_port_before_it_is_measured() -> None:
    # Sharaf 3.3.3: S = S_L S_J (S_R V / τ_R) S_C and Cbar = C_L + S_L C_J + S_L S_J S_R (V / τ_R) C_C, and so for the right.
    builder = NetworkBuilder()
    left_source, right_source = builder.source("l"), builder.source("r")
    left, right = Box(3, 0.5, left_source), Box(5, 0.2, right_source)
    join = Box(7, 0.01, left, right, window_ns=1_000)
    network, estimates = estimate(builder.query("q", Box(2, 0.9, join)))
    estimates.declare_rate(network.logs.slot_of[builder.log(left_source)], 10.0)
    estimates.declare_rate(network.logs.slot_of[builder.log(right_source)], 4.0)
    assert estimates.refresh()
    slot = network.operators.slot_of
    x, y = slot[builder.operator(left)], slot[builder.operator(right)]
    assert estimates.output_per_tuple[x] == pytest.approx(0.5 * 0.01 * (0.2 * 1_000 / 4.0) * 0.9)
    assert estimates.cost_to_end_ns[x] == pytest.approx(3 + 0.5 * 7 + 0.5 * 0.01 * 0.2 * (1_000 / 4.0) * 2)
    assert estimates.output_per_tuple[y] == pytest.approx(0.2 * 0.01 * (0.5 * 1_000 / 10.0) * 0.9)
    assert estimates.cost_to_end_ns[y] == pytest.approx(5 + 0.2 * 7 + 0.2 * 0.01 * 0.5 * (1_000 / 10.0) * 2)
    assert estimates.ideal_time_ns[x] == 3 + 5 + 2 * 7 + 2


def joined(window_ns: float) -> tuple[NetworkModel, Estimates, list[int], int]:
    """A join below two selections, its rates known: a tuple a µs from each side. Returns its edges and the left selection's slot too."""
    builder = NetworkBuilder()
    sources = builder.source("l"), builder.source("r")
    left, right = (Box(3, 1.0, source) for source in sources)
    join = Box(7, 1.0, left, right, window_ns=window_ns)
    network, estimates = estimate(builder.query("q", Box(2, 1.0, join)))
    for source in sources:
        estimates.declare_rate(network.logs.slot_of[builder.log(source)], 1_000.0)
    estimates.refresh()
    slot_of = network.operators.slot_of
    return network, estimates, network.inputs[slot_of[builder.operator(join)]], slot_of[builder.operator(left)]


@pytest.mark.parametrize("together", [True, False])
def test_the_first_measurement_of_a_join_replaces_the_formula(together: bool) -> None:
    # Half an hour of a replay that takes milliseconds: the formula expects 1.8e9 results of a tuple, and there is one for each.
    network, estimates, (left, right), below = joined(window_ns=1.8e12)
    assert estimates.output_per_tuple[below] == pytest.approx(1.8e9)
    slot = network.edge_consumer[left]
    for step in ([(left, 10), (right, 10)],) if together else ([(left, 10), (right, 0)], [(left, 0), (right, 10)]):
        rows = sum(taken for _, taken in step)
        estimates.record(slot, rows, rows, 7 * rows)
        estimates.record_ports(slot, step, rows)
    estimates.refresh(force=True)
    assert estimates.output_per_tuple[below] == pytest.approx(1.0)
    assert estimates.cost_to_end_ns[below] == pytest.approx(3 + 7 + 2)


def test_a_join_that_was_measured_before_its_rates_were_known_keeps_what_was_measured() -> None:
    builder = NetworkBuilder()
    sources = builder.source("l"), builder.source("r")
    join = Box(7, 1.0, *sources, window_ns=1.8e12)
    network, estimates = estimate(builder.query("q", join))
    slot = network.operators.slot_of[builder.operator(join)]
    estimates.record(slot, 40, 40, 280)
    estimates.record_ports(slot, [(edge, 20) for edge in network.inputs[slot]], 40)
    for source in sources:
        estimates.declare_rate(network.logs.slot_of[builder.log(source)], 1_000.0)
    estimates.refresh(force=True)
    assert estimates.selectivity[slot] == pytest.approx(1.0)
    assert [estimates.edge_factor[edge] for edge in network.inputs[slot]] == [pytest.approx(1.0)] * 2


def one_operator(selectivity: float = 1.0, cost: float = 100.0) -> Estimates:
    builder = NetworkBuilder()
    return estimate(builder.query("q", Box(cost, selectivity, builder.source("s"))))[1]


def test_a_train_counts_as_many_windows_as_it_has_hundreds_of_tuples() -> None:
    estimates = one_operator()
    estimates.record(1, 500, 250, 50_000)
    means = estimates.means
    settled = means.selectivity[1]
    estimates.record(1, 200, 0, 20_000)
    # (1 - α)^2 of the old value is left after two windows.
    assert means.selectivity[1] == pytest.approx((1 - 0.175) ** 2 * settled)
    # Short trains add up to a window.
    estimates.record(1, 50, 50, 5_000)
    assert means.selectivity[1] == pytest.approx((1 - 0.175) ** 2 * settled)
    estimates.record(1, 100, 25, 5_000)
    assert means.selectivity[1] == pytest.approx((1 - 0.175) ** 3.5 * settled + (1 - (1 - 0.175) ** 1.5) * 0.5)


def test_the_first_measurements_displace_the_declared_values() -> None:
    estimates = one_operator(selectivity=1.0, cost=100.0)
    for _ in range(100):
        estimates.record(1, 1, 0, 500)
    assert estimates.refresh()
    assert estimates.selectivity[1] < 0.2
    assert estimates.cost_ns[1] == pytest.approx(500, rel=0.2)
    assert estimates.selectivity[1] > 0.0


def test_cost_is_split_into_a_call_and_a_tuple() -> None:
    estimates = one_operator()
    for _ in range(200):
        for length in (1, 10, 100, 1_000):
            estimates.record(1, length, length, 2_000 + 3 * length)
    line = estimates.cost_line(1)
    assert line.call_ns == pytest.approx(2_000, rel=0.01)
    assert line.tuple_ns == pytest.approx(3, rel=0.01)


def test_small_changes_do_not_disturb_the_sums() -> None:
    estimates = one_operator(selectivity=1.0, cost=100.0)
    for _ in range(300):
        estimates.record(1, 1, 1, 101)
    assert not estimates.refresh()


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000))
def test_summing_by_level_gives_what_summing_one_by_one_gives(seed: int) -> None:
    network, estimates = estimate(*random_network(seed, queries_max=6).deltas)
    estimates._sum_everything()
    columns = ("output_per_tuple", "cost_to_end_ns", "normalized_output", "normalized_square", "ideal_time_ns")
    order = network.topology.order
    by_level = {name: getattr(estimates, name)[order].tolist() for name in columns}
    for name in columns:
        getattr(estimates, name)[:] = 0.0
    estimates.ideal_of_query = {}
    estimates._sum_queries(list(network.query_order), ())
    for name in columns:
        assert getattr(estimates, name)[order].tolist() == pytest.approx(by_level[name])
