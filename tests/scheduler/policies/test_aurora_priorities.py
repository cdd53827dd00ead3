"""Fixed priority, slope-slack and bucketing by the examples of Carney 2005, 4.4."""

import pytest
from millstream.scheduler.simulation.networks import Asked, Box, NetworkBuilder
from millstream.scheduler.simulation.world import World

S = 1_000_000_000


def chains(policy: str, lengths: list[int], deadlines: list[int], *, source_first: bool = True) -> World:
    """Chains of unit-cost boxes, numbered from the leaf on; each has a step graph and one tuple at its leaf at time 0."""
    builder = NetworkBuilder()
    deltas, sources, number = [], [], 0
    for length, deadline in zip(lengths, deadlines, strict=True):
        source = builder.source("s")
        sources.append(source)
        box: Box | None = None
        for _ in range(length):
            number += 1
            box = Box(S, 1.0, box or source, label=f"b{number}")
        assert box is not None
        qos = ((0.0, 1.0), (float(deadline), 1.0), (float(deadline), 0.0))
        deltas.append(builder.query(f"q{deadline}", box, Asked(qos=qos)))
    world = World(policy, deltas, builder=builder)
    for source in sources:
        world.arrive(source, 0)
    return world


def schedule(policy: str) -> tuple[str, dict[int, float]]:
    world = chains(policy, [4, 4, 4], [6, 10, 14])
    world.run()
    finished = {operator // 5: time / S for operator, time in world.responses_ns()}
    return " ".join(world.steps()), finished


IN_ORDER = "b1 b2 b3 b4 b5 b6 b7 b8 b9 b10 b11 b12"


def test_fixed_priority_slacks_are_deadline_less_the_cost_to_the_end() -> None:
    # b3 -> b2 -> b1 with deadline 4, b6 -> b5 -> b4 with deadline 8; here numbered from the leaf on.
    world = chains("fixed-priority", [3, 3], [4, 8])
    assert world.core.ranking is not None
    slacks = (-world.core.ranking.rank(world.core.view, 0) / S).tolist()
    assert slacks == [1.0, 2.0, 3.0, 5.0, 6.0, 7.0]
    world.run()
    assert world.steps() == ["b1", "b2", "b3", "b4", "b5", "b6"]


@pytest.mark.parametrize("policy", ["fixed-priority", "slope-slack"])
def test_size_one_meets_all_deadlines(policy: str) -> None:
    order, finished = schedule(policy)
    assert order == IN_ORDER
    assert list(finished.values()) == [4.0, 8.0, 12.0]


def test_fixed_priority_of_size_two() -> None:
    assert schedule("fixed-priority:schedule=2")[0] == "b1 b5 b2 b6 b3 b7 b4 b8 b9 b10 b11 b12"


def test_slope_slack_of_size_two() -> None:
    assert schedule("slope-slack:schedule=2")[0] == "b1 b5 b2 b6 b3 b7 b8 b9 b10 b4 b11 b12"


def test_slope_slack_of_size_three() -> None:
    assert schedule("slope-slack:schedule=3")[0] == "b1 b5 b9 b2 b6 b10 b7 b11 b3 b12 b4 b8"


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("policy", ["fixed-priority-push-through", "slope-slack-push-through"])
def test_push_through_of_any_size(policy: str, size: int) -> None:
    order, finished = schedule(f"{policy}:schedule={size}")
    assert order == IN_ORDER
    assert list(finished.values()) == [4.0, 8.0, 12.0]


def test_bucketing_serves_by_gradient_then_slack_and_the_late_last() -> None:
    # One gradient (flat up to the step), width of a slack bucket 14 / 7 = 2: slacks 5, 9 and 13 lie in buckets 2, 4 and 6.
    world = chains("bucketing:gradients=1,slacks=7", [4, 4, 4], [6, 10, 14])
    world.run()
    assert " ".join(world.steps()) == IN_ORDER
    pushed = chains("bucketing-push-through:gradients=1,slacks=7", [4, 4, 4], [6, 10, 14])
    pushed.run()
    assert [time / S for _, time in pushed.responses_ns()] == [4.0, 8.0, 12.0]


def test_boxes_move_between_buckets_by_the_calendar_alone() -> None:
    # The second query's box waits while the first, of ten tuples, runs; its slack shrinks from 13 to past 6 without an event of its own.
    builder = NetworkBuilder()
    busy, waiting = builder.source("busy"), builder.source("waiting")
    flat = Asked(qos=((0.0, 1.0), (12.0, 1.0), (12.0, 0.0)))
    later = Asked(qos=((0.0, 1.0), (14.0, 1.0), (14.0, 0.0)))
    deltas = [builder.query("a", Box(S, 1.0, busy, label="a"), flat), builder.query("b", Box(S, 1.0, waiting, label="b"), later)]
    world = World("bucketing:gradients=1,slacks=7", deltas, builder=builder)
    world.arrive(waiting, 0)
    world.arrive(busy, *[index * S for index in range(20)])
    world.run()
    # At 2 s: box a's newest tuple has slack 12 - 1 = 11 (bucket 5), box b's 14 - 2 - 1 = 11 (bucket 5 as well, and there first).
    assert world.steps().index("b") < 8
    assert world.steps().count("b") == 1
