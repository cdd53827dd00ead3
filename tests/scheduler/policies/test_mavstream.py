"""Path capacity, segments and weighted turns (Pajjuri 2004, 4.1), by examples worked out by hand."""

import pytest
from millstream.scheduler.simulation.networks import Box, NetworkBuilder
from millstream.scheduler.simulation.world import World
from millstream.scheduler.units.segments import cut_path, is_inside, prune
from millstream.scheduler.units.simplified_segments import cut_in_two


def two_paths(policy: str) -> tuple[World, NetworkBuilder, list[object]]:
    builder = NetworkBuilder()
    left, right = builder.source("left"), builder.source("right")
    # Left: costs 2 and 4, half pass the first. Right: costs 3 and 2, all pass.
    first = builder.query("left", Box(4, 1.0, Box(2, 0.5, left, label="l1", size=10), label="l2", size=10))
    second = builder.query("right", Box(2, 1.0, Box(3, 1.0, right, label="r1", size=10), label="r2", size=10))
    return World(policy, [first, second], builder=builder), builder, [left, right]


def test_path_capacity_is_the_inverse_of_the_expected_cost() -> None:
    # 1 / (2 + 0.5 · 4) = 1/4 and 1 / (3 + 1 · 2) = 1/5.
    world, _, (left, right) = two_paths("path-capacity")
    assert world.core.ranking is not None
    assert world.core.ranking.rank(world.core.view, 0).tolist() == pytest.approx([1 / 4, 1 / 5])
    world.executor.outcomes[world.core.network.operators.identity(1)] = (1, 1)
    world.arrive(right, 0, rows=2)
    world.arrive(left, 0, rows=2)
    world.run()
    assert world.steps() == ["l1", "l2", "l1", "l2", "r1", "r2", "r1", "r2"]


def test_memory_release_of_a_segment() -> None:
    # Sizes 10 everywhere. mrc(l1) = (10 - 5)/2 = 2.5, mrc(l2) = (10 - 10)/4 = 0: two segments. mrc(r1) = 0, mrc(r2) = 0: two more.
    world, _, _ = two_paths("segment")
    units = world.core.view.units
    labels = [[world.core.network.node(slot).label for slot in units.members(unit)] for unit in range(units.count)]
    assert labels == [["l1"], ["l2"], ["r1"], ["r2"]]
    assert world.core.ranking is not None
    assert world.core.ranking.rank(world.core.view, 0).tolist() == pytest.approx([2.5, 0.0, 0.0, 0.0])


def test_a_segment_is_ranked_as_a_whole() -> None:
    # mrc 0.5 = (10 - 9)/2, then 8 = (10 - 2)/1: one segment; C = 1/(2 + 0.9) and 10 - 0.18 · 10 released: 8.2/2.9.
    builder = NetworkBuilder()
    source = builder.source("s")
    delta = builder.query("q", Box(1, 0.2, Box(2, 0.9, source, size=10), size=10))
    world = World("segment", [delta], builder=builder)
    assert world.core.ranking is not None
    assert world.core.view.units.count == 1
    assert world.core.ranking.rank(world.core.view, 0).tolist() == pytest.approx([8.2 / 2.9])


def test_a_path_is_cut_where_the_release_does_not_grow() -> None:
    capacities = {1: 1.0, 2: 3.0, 3: 2.0, 4: 5.0, 5: 5.0}
    assert cut_path((1, 2, 3, 4, 5), capacities.__getitem__) == [(1, 2), (3, 4), (5,)]


def test_pruning_keeps_the_longest() -> None:
    assert is_inside((2, 3), (1, 2, 3))
    assert not is_inside((1, 3), (1, 2, 3))
    assert prune([(2, 3), (4,), (4,), (1, 2, 3), (3,)]) == [(4,), (1, 2, 3)]


def test_a_simplified_path_has_at_most_two_segments() -> None:
    capacities = {1: 4.0, 2: 3.0, 3: 1.0, 4: 9.0, 5: 1.0}
    # Ratios 0.75, 0.33: with γ = 0.5 the first segment ends after 2, whatever follows.
    assert cut_in_two((1, 2, 3, 4, 5), capacities.__getitem__, 0.5) == [(1, 2), (3, 4, 5)]
    assert cut_in_two((1, 2), capacities.__getitem__, 0.5) == [(1, 2)]


def test_turns_give_every_operator_the_same_quantum_and_weights_change_it() -> None:
    def run(policy: str) -> list[tuple[str, int]]:
        builder = NetworkBuilder()
        source = builder.source("s")
        world = World(policy, [builder.query("q", Box(1, 1.0, Box(1, 1.0, source, label="a"), label="b"))], builder=builder)
        world.arrive(source, 0, rows=6)
        world.run()
        network = world.core.network
        return [(network.node(network.operators.slot_of[operator]).label, rows) for operator, rows in world.order]

    assert run("round-robin:train=2") == [("a", 2), ("b", 2), ("a", 2), ("b", 2), ("a", 2), ("b", 2)]
    # A leaf weighs 2: it takes four of the six in its first turn.
    assert run("weighted-round-robin:train=2") == [("a", 4), ("b", 2), ("a", 2), ("b", 2), ("b", 2)]
