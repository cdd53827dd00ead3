"""A cut that the estimates may change is made anew only where they do: what is decided is the same as if it always were."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.scheduler.core import CoreSettings
from millstream.scheduler.simulation.world import World
from millstream.scheduler.unit_set import UnitSet
from millstream.scheduler.units.segments import Segment, SegmentUnits, is_inside, prune
from millstream.scheduler.units.shared_trees import SharedTreeUnits

from tests.support.random_networks import random_network

POLICIES = ["segment", "simplified-segment", "segment:traversal=min-memory", "hnr:sharing=pdt", "hr:sharing=max", "bsd-naive:sharing=sum"]


def run(policy: str, seed: int) -> tuple[World, int]:
    """Run a random network whose costs are measured; return the world, and how many times it was cut."""
    network = random_network(seed, queries_max=6)
    world = World(policy, network.deltas, settings=CoreSettings(window=2), builder=network.builder)
    cuts: dict[int, UnitSet] = {}
    for at_ns, source, rows in network.arrivals:
        world.arrive(source, at_ns, rows=rows)
        world.run()
        cuts[id(world.core.view.units)] = world.core.view.units
    return world, len(cuts)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000))
def test_a_cut_that_is_kept_decides_as_one_made_anew(policy: str, seed: int) -> None:
    kept, _ = run(policy, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SegmentUnits, "holds", lambda self: False)
        patch.setattr(SharedTreeUnits, "holds", lambda self: False)
        anew, _ = run(policy, seed)
    assert kept.order == anew.order
    assert kept.emissions == anew.emissions


@pytest.mark.parametrize("policy", ["segment", "hnr:sharing=pdt"])
def test_estimates_that_cut_nothing_elsewhere_leave_the_cut(policy: str) -> None:
    cuts = [run(policy, seed)[1] for seed in range(10)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SegmentUnits, "holds", lambda self: False)
        patch.setattr(SharedTreeUnits, "holds", lambda self: False)
        anew = [run(policy, seed)[1] for seed in range(10)]
    assert sum(cuts) < sum(anew)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4)), max_size=12))
def test_pruning_by_shared_operators_is_pruning_by_comparing_all(runs: list[tuple[int, int]]) -> None:
    segments = [tuple(range(start, start + length)) for start, length in runs]
    listed: list[Segment] = []
    for segment in segments:
        if not any(is_inside(segment, other) for other in listed):
            listed = [other for other in listed if not is_inside(other, segment)] + [segment]
    assert prune(segments) == listed
