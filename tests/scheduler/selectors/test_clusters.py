"""Clusters of BSD (Sharaf 2007, 3.3.2) by hand: Φ = S / (Cbar T²) = c⁻³ for c = 1, 2, 4, 8: 1, 1/8, 1/64, 1/512.

Three logarithmic clusters have ε = 512^(1/3) = 8: [1/512, 1/64), [1/64, 1/8), [1/8, 1]. The first two queries share the last, whose
pseudo-priority is 1/8. When a tuple has waited 8 it ranks 1/8 · 8 = 1; one before the last query since 600 ranks 1/512 · 600 = 1.17.
"""

import numpy as np
import pytest
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


def test_clusters_decide_far_less_often_and_serve_everybody() -> None:
    scan, clustered = many_queries("bsd-naive"), many_queries("bsd-log:clusters=6")
    assert sorted(clustered.order) == sorted(scan.order)
    assert clustered.core.statistics().decisions < scan.core.statistics().decisions / 3
    assert clustered.core.statistics().evaluations < scan.core.statistics().evaluations / 10
