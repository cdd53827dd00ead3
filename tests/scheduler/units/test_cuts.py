"""Operators, operators to the end, paths and queries as units, on one small network by hand.

s feeds x, x feeds a (query A) and b; b and c (from t) meet in j (query B).

    operators          x, a, b, c, j, one each
    operators-to-end   x with a, b and j behind it; a; b with j; c with j; j
    paths              x a, x b j, c j
    queries            x a; x b c j
"""

import pytest
from millstream.scheduler.simulation.networks import Box, NetworkBuilder
from millstream.scheduler.simulation.world import World

from tests.support.scheduler_worlds import unit_labels


def network(policy: str) -> World:
    builder = NetworkBuilder()
    s, t = builder.source("s"), builder.source("t")
    x = Box(1, 1.0, s, label="x")
    first = builder.query("A", Box(1, 1.0, x, label="a"))
    second = builder.query("B", Box(1, 1.0, Box(1, 1.0, x, label="b"), Box(1, 1.0, t, label="c"), label="j"))
    return World(policy, [first, second], builder=builder)


@pytest.mark.parametrize(
    ("policy", "units"),
    [
        ("hr:level=operator", ["a", "b", "c", "j", "x"]),
        ("hr", ["a", "b j", "c j", "j", "x a b j"]),
        ("path-capacity", ["c j", "x a", "x b j"]),
        ("superbox", ["x a", "x b c j"]),
    ],
)
def test_the_units_of_a_cut(policy: str, units: list[str]) -> None:
    assert sorted(" ".join(labels) for labels in unit_labels(network(policy))) == units


def test_a_scheduling_point_is_reached_after_each_operator_or_after_the_query() -> None:
    def steps(policy: str) -> str:
        builder = NetworkBuilder()
        s, t = builder.source("s"), builder.source("t")
        # From p on a result costs 4, from q on 1 (8 with what is before it); r costs 2.
        deltas = [
            builder.query("A", Box(1, 1.0, Box(3, 1.0, s, label="p"), label="q")),
            builder.query("B", Box(2, 1.0, t, label="r")),
        ]
        world = World(policy, deltas, builder=builder)
        world.arrive(s, 0)
        world.arrive(t, 1)
        world.run()
        return " ".join(world.steps())

    # r comes while p runs. At operator level q (rate 1/1) goes before r (1/2) though p (1/4) would not; at query level q is in p's run.
    assert steps("hr:level=operator") == "p q r"
    assert steps("hr") == "p q r"
    # By the oldest head the same; by SRPT r (T = 2) goes before q (T = 4) where there is a scheduling point between p and q.
    assert steps("srpt:level=operator") == "p r q"
    assert steps("srpt") == "p q r"
