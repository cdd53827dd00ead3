"""Clusters of BSD (Sharaf 2007, 3.3.2) by hand: Φ = S / (Cbar T²) = c⁻³ for c = 1, 2, 4, 8: 1, 1/8, 1/64, 1/512.

Three logarithmic clusters have ε = 512^(1/3) = 8: [1/512, 1/64), [1/64, 1/8), [1/8, 1]. The first two queries share the last, whose
pseudo-priority is 1/8. When a tuple has waited 8 it ranks 1/8 · 8 = 1; one before the last query since 600 ranks 1/512 · 600 = 1.17.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.scheduler.policies.balance_slowdown import BalanceSlowdown
from millstream.scheduler.selectors.clusters import ClustersSelector, cluster_bounds
from millstream.scheduler.simulation.networks import Box, NetworkBuilder
from millstream.scheduler.simulation.world import World

from tests.support.scheduler_worlds import many_queries


def test_logarithmic_bounds_are_powers_and_uniform_ones_equal_steps() -> None:
    fixed = np.array([1.0, 4.0, 16.0, 64.0])
    assert cluster_bounds(fixed, 3, logarithmic=True).tolist() == pytest.approx([1.0, 4.0, 16.0])
    assert cluster_bounds(fixed, 3, logarithmic=False).tolist() == pytest.approx([1.0, 22.0, 43.0])
    assert cluster_bounds(np.array([2.0, 2.0]), 3, logarithmic=True).tolist() == [2.0]


def four_queries() -> tuple[World, ClustersSelector]:
    builder = NetworkBuilder()
    source = builder.source("s")
    world = World("bsd-log:clusters=3", [builder.query(f"q{index}", Box(2**index, 1.0, source)) for index in range(4)], builder=builder)
    selector = world.core._policy.selector
    assert isinstance(selector, ClustersSelector)
    world.core.view  # noqa: B018 (cuts the network)
    return world, selector


def test_units_fall_into_the_cluster_whose_range_holds_them() -> None:
    _, selector = four_queries()
    assert selector.cluster_of == [2, 2, 1, 0]
    assert selector.pseudo == pytest.approx([1 / 512, 1 / 64, 1 / 8])


@pytest.mark.parametrize(("wait", "picked"), [(600, [3]), (500, [0, 1])])
def test_all_units_of_the_best_cluster_that_hold_its_oldest_tuple_run_together(wait: int, picked: list[int]) -> None:
    world, selector = four_queries()
    units = world.core.view.units
    units.available[:] = [True, True, False, True]
    units.head_ns[:] = [1_000 - 8, 1_000 - 8, 0, 1_000 - wait]
    selector.changed(world.core.view, [0, 1, 2, 3], 1_000)
    # 1/512 · 600 = 1.17 is above 1/8 · 8 = 1, 1/512 · 500 = 0.98 below it.
    assert selector.pick(world.core.view, 1_000, 1) == picked


def test_a_tuple_stands_for_its_best_cluster_alone() -> None:
    world, selector = four_queries()
    units = world.core.view.units
    units.available[:] = True
    units.head_ns[:] = 0
    selector.changed(world.core.view, [0, 1, 2, 3], 100)
    before = selector.evaluations
    # One tuple is at the head of all three clusters: one rank is computed a decision, and the clusters are served from the best on.
    for picked in ([0, 1], [2], [3]):
        assert selector.pick(world.core.view, 100, 1) == picked
    assert selector.evaluations == before + 3


def plain(pseudo: list[float], heads: list[int | None], now_ns: int) -> tuple[int, int]:
    """The paper's search, as one reads it: returns the cluster and how many ranks were computed."""
    listed = [
        cluster
        for cluster, head_ns in enumerate(heads)
        if head_ns is not None and not any(above == head_ns for above in heads[cluster + 1 :])
    ]
    by_priority = sorted(listed, key=lambda cluster: -pseudo[cluster])
    by_wait = sorted(listed, key=lambda cluster: heads[cluster] or 0)

    def wait(cluster: int) -> int:
        return now_ns - (heads[cluster] or 0)

    ranks: dict[int, float] = {}
    for read in range(2 * len(listed)):
        cluster = (by_wait if read % 2 else by_priority)[read // 2]
        ranks[cluster] = pseudo[cluster] * wait(cluster)
        if read and max(ranks.values()) >= pseudo[by_priority[read // 2]] * wait(by_wait[(read - 1) // 2]):
            break
    return min(ranks, key=lambda cluster: (-ranks[cluster], heads[cluster] or 0)), len(ranks)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(data=st.data(), clusters=st.integers(1, 6))
def test_the_search_is_the_papers(data: st.DataObject, clusters: int) -> None:
    builder = NetworkBuilder()
    source = builder.source("s")
    queries = [builder.query(f"q{index}", Box(2**index, 1.0, source)) for index in range(clusters)]
    view = World(f"bsd-log:clusters={clusters}", queries, builder=builder).core.view
    selector = ClustersSelector(BalanceSlowdown(), clusters, logarithmic=True)
    selector.reset(view, 0)
    heads = data.draw(st.lists(st.one_of(st.none(), st.integers(0, 90)), min_size=clusters, max_size=clusters))
    for unit, head_ns in enumerate(heads):
        view.units.available[unit] = head_ns is not None
        view.units.head_ns[unit] = 0 if head_ns is None else head_ns
    selector.changed(view, list(range(clusters)), 91)
    by_cluster: list[int | None] = [None] * len(selector.pseudo)
    for unit, head_ns in enumerate(heads):
        if head_ns is not None:
            cluster = selector.cluster_of[unit]
            known = by_cluster[cluster]
            by_cluster[cluster] = head_ns if known is None else min(known, head_ns)
    if any(one is not None for one in heads):
        best, computed = plain(selector.pseudo, by_cluster, 91)
        before = selector.evaluations
        assert {selector.cluster_of[unit] for unit in selector.pick(view, 91, 1)} == {best}
        assert selector.evaluations == before + computed


def test_clusters_decide_far_less_often_and_serve_everybody() -> None:
    scan, clustered = many_queries("bsd-naive"), many_queries("bsd-log:clusters=6")
    assert sorted(clustered.order) == sorted(scan.order)
    assert clustered.core.statistics().decisions < scan.core.statistics().decisions / 3
    assert clustered.core.statistics().evaluations < scan.core.statistics().evaluations / 10
