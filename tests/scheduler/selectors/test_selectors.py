"""Selectors: threshold and heap pick what a scan picks; clusters do what the thesis says; the catalogue refuses what does not fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.scheduler.catalog import CATALOG, build
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.selectors.clusters import ClustersSelector, cluster_bounds
from millstream.scheduler.simulation.networks import Box, NetworkBuilder
from millstream.scheduler.simulation.random_networks import random_network
from millstream.scheduler.simulation.world import World
from millstream.scheduler.spec import PolicySpec
from millstream.scheduler.trains import Train


def order_of(policy: str, seed: int) -> tuple[list[tuple[int, int]], int]:
    network = random_network(seed, queries_max=6)
    world = World(policy, network.deltas, builder=network.builder)
    for at_ns, source, rows in network.arrivals:
        world.arrive(source, at_ns, rows=rows)
    world.run()
    return [(int(operator), rows) for operator, rows in world.order], world.core.statistics().evaluations


@pytest.mark.parametrize("policy", ["lsf", "brt", "bsd-naive"])
@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000))
def test_threshold_picks_what_the_scan_picks(policy: str, seed: int) -> None:
    assert order_of(f"{policy}:selector=threshold", seed)[0] == order_of(policy, seed)[0]


@pytest.mark.parametrize("policy", ["fcfs", "srpt", "hr", "hnr", "chain", "fas", "edf", "path-capacity", "segment", "fixed-priority"])
@settings(max_examples=8, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000))
def test_heap_picks_what_the_scan_picks(policy: str, seed: int) -> None:
    assert order_of(policy, seed)[0] == order_of(f"{policy}:selector=scan", seed)[0]


def many_queries(policy: str) -> World:
    builder = NetworkBuilder()
    source = builder.source("s")
    deltas = [builder.query(f"q{index}", Box(2 ** (index % 5) * 100, 0.1 + index / 45, source)) for index in range(40)]
    world = World(policy, deltas, builder=builder)
    world.arrive(source, *range(0, 400_000, 20_000))
    world.run()
    return world


def test_pruning_ranks_fewer_units_than_a_scan() -> None:
    scan, pruned = many_queries("bsd-naive"), many_queries("bsd-naive:selector=threshold")
    assert scan.order == pruned.order
    assert pruned.core.statistics().evaluations < scan.core.statistics().evaluations


def test_clusters_decide_far_less_often_and_serve_everybody() -> None:
    scan, clustered = many_queries("bsd-naive"), many_queries("bsd-log:clusters=6")
    assert sorted(clustered.order) == sorted(scan.order)
    assert clustered.core.statistics().decisions < scan.core.statistics().decisions / 3
    assert clustered.core.statistics().evaluations < scan.core.statistics().evaluations / 10


def test_logarithmic_bounds_are_powers_and_uniform_ones_equal_steps() -> None:
    fixed = np.array([1.0, 4.0, 16.0, 64.0])
    assert cluster_bounds(fixed, 3, logarithmic=True).tolist() == pytest.approx([1.0, 4.0, 16.0])
    assert cluster_bounds(fixed, 3, logarithmic=False).tolist() == pytest.approx([1.0, 22.0, 43.0])
    assert cluster_bounds(np.array([2.0, 2.0]), 3, logarithmic=True).tolist() == [2.0]


def test_units_fall_into_the_cluster_whose_range_holds_them() -> None:
    builder = NetworkBuilder()
    source = builder.source("s")
    # Φ = S / (Cbar T²) = s / c³: 1, 1/8, 1/64, 1/512.
    deltas = [builder.query(f"q{index}", Box(2**index, 1.0, source)) for index in range(4)]
    world = World("bsd-log:clusters=3", deltas, builder=builder)
    world.arrive(source, 0)
    selector = world.core._policy.selector
    assert isinstance(selector, ClustersSelector)
    world.core.view  # noqa: B018 (cuts the network)
    assert selector.cluster_of == [2, 2, 1, 0]
    assert selector.pseudo == pytest.approx([1 / 512, 1 / 64, 1 / 8])


def test_the_catalogue_refuses_what_does_not_fit() -> None:
    train = Train(count=1)
    for text, message in (
        ("best", "unknown policy 'best'"),
        ("lsf:selector=heap", "policy 'lsf' does not go with selector 'heap'"),
        ("hr:level=tuple", "level=tuple is neither 'query' nor 'operator'"),
        ("hr:beta=1", "policy 'hr' has no option 'beta'"),
        ("fas:beta=2", "beta=2.0 does not lie between 0 and 1"),
        ("simplified-segment:gamma=1", "gamma=1.0 does not lie between 0 and 1"),
        ("hr:sharing=all", "sharing=all is none of sum, max, pdt"),
        ("hr:train=0", "train '0' is neither a count"),
        ("hr:schedule=0", "schedule=0 is not a whole number of at least 1"),
        ("superbox:traversal=random", "unknown traversal 'random'"),
        ("hr:units=boxes", "unknown units 'boxes'"),
        ("user", "policy 'user' needs a file"),
        ("bsd-log:clusters=0", "clusters=0 is not a whole number"),
        ("hr:level", "policy option 'level' is not of the form key=value"),
    ):
        with pytest.raises(PolicyError, match=message):
            build(PolicySpec.parse(text), default_train=train)


def test_every_row_says_what_it_is_and_builds() -> None:
    for row in CATALOG.values():
        assert row.summary
        assert row.source
        if row.name != "user":
            assert build(PolicySpec(row.name), default_train=Train(count=1)).spec.name == row.name


@pytest.mark.parametrize("text", ["hnr", "hnr:level=operator,train=100", "bsd-log:clusters=12,adapt=False"])
def test_a_policy_reads_back_what_it_prints(text: str) -> None:
    assert PolicySpec.parse(str(PolicySpec.parse(text))) == PolicySpec.parse(text)
