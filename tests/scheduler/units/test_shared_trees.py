"""Shared operators (Sharaf 2007, 3.6), by an example worked out by hand.

x costs 2 and passes all; behind it A (cost 2, s 1), B (cost 4, s 0.5) and C (cost 30, s 0.1).

    T_A = 4, T_B = 6, T_C = 32      segments from x: Cbar = 4, 6, 32; S = 1, 0.5, 0.1
    S/T = 1/4, 1/12, 1/320          priorities S/(Cbar T) = 1/16, 1/72, 1/10240
    sum: (1/4 + 1/12 + 1/320) / (4 + 6 + 32 - 2 · 2) = 0.33646 / 38
    pdt: A alone 1/16 = .0625; with B (1/3) / (4 + 6 - 2) = .0417, less: only A runs with x
"""

import pytest
from millstream.scheduler.simulation.networks import Box, NetworkBuilder
from millstream.scheduler.simulation.world import World
from millstream.scheduler.units.shared_trees import priority_defining


def shared(policy: str) -> World:
    builder = NetworkBuilder()
    source = builder.source("s")
    x = Box(2, 1.0, source, label="x")
    deltas = [
        builder.query("A", Box(2, 1.0, x, label="A")),
        builder.query("B", Box(4, 0.5, x, label="B")),
        builder.query("C", Box(30, 0.1, x, label="C")),
    ]
    world = World(policy, deltas, builder=builder)
    world.arrive(source, 0)
    return world


def rank_of_x(world: World) -> float:
    view, ranking = world.core.view, world.core.ranking
    assert ranking is not None
    return float(ranking.rank(view, 0)[0])


def members_of_x(world: World) -> list[str]:
    return [world.core.network.node(slot).label for slot in world.core.view.units.members(0)]


def test_sum_ranks_by_all_segments() -> None:
    for policy in ("hnr", "hnr:sharing=sum"):
        world = shared(policy)
        assert rank_of_x(world) == pytest.approx((1 / 4 + 1 / 12 + 1 / 320) / 38)
        assert members_of_x(world) == ["x", "A", "B", "C"]


def test_max_ranks_by_the_best_segment_and_runs_all() -> None:
    world = shared("hnr:sharing=max")
    assert rank_of_x(world) == pytest.approx(1 / 16)
    assert members_of_x(world) == ["x", "A", "B", "C"]


def test_pdt_keeps_the_segments_that_raise_the_rank() -> None:
    world = shared("hnr:sharing=pdt")
    assert rank_of_x(world) == pytest.approx(1 / 16)
    assert members_of_x(world) == ["x", "A"]
    world.run()
    # The others go on by themselves from the operator after x, by their own rank: B 0.5/(4 · 6), C 0.1/(30 · 32).
    assert world.steps() == ["x", "A", "B", "C"]


def test_pdt_of_hr_weighs_outputs_alone() -> None:
    # A 1/4; with B 1.5/8 < 1/4.
    assert rank_of_x(shared("hr:sharing=pdt")) == pytest.approx(1 / 4)
    # All of S over SC.
    assert rank_of_x(shared("hr")) == pytest.approx(1.6 / 38)


def test_pdt_adds_while_the_rank_grows() -> None:
    # The shared cost is 10: 1/11 alone; (1 + 1)/(11 + 12 - 10) = 2/13 more; (2 + 0.1)/(13 + 20 - 10) = 2.1/23 less.
    assert priority_defining([(0.1, 20.0), (1.0, 11.0), (1.0, 12.0)], 10.0) == [1, 2]


def test_bsd_weighs_by_the_square_of_the_ideal_time() -> None:
    world = shared("bsd-naive:sharing=sum")
    phi = (1 / 16 + 0.5 / 36 + 0.1 / 1024) / 38
    ranking = world.core.ranking
    assert ranking is not None
    world.core.ledger.append(0, 1, 1, 0, 0)
    world.core.view.units.update_all()
    assert float(ranking.rank(world.core.view, 7)[0]) == pytest.approx(7 * phi)
