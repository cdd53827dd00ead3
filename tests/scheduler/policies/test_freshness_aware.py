"""FAS: rank α (1 - (1 - S)^(N^β)) / (N^β Cbar).

In the example N_A = 3, α_A = 1/2, S_A = 1, Cbar_A = 4: with β = 1 it is 1/2 · (1 - 0³) / (3 · 4) = 1/24; N_B = 2, α_B = 1, S_B = 1/4,
Cbar_B = 2: (1 - (3/4)²) / (2 · 2) = 7/64. With β = 0 it is weighted HR: 1/2 · 1/4 and 1/8. With β = 1/2 N counts as √3 and √2.
"""

import pytest
from millstream.scheduler.simulation.networks import Box, NetworkBuilder
from millstream.scheduler.simulation.world import World

from tests.support.scheduler_worlds import ranks, two_queries


def test_the_chance_of_news_over_the_cost_of_emptying_the_queue() -> None:
    assert ranks(two_queries("fas")) == pytest.approx([1 / 24, 7 / 64])


def test_beta_nought_is_weighted_highest_rate() -> None:
    assert ranks(two_queries("fas:beta=0")) == pytest.approx([1 / 8, 1 / 8])


def test_beta_between_counts_fewer_tuples() -> None:
    assert ranks(two_queries("fas:beta=0.5")) == pytest.approx([0.5 / (4 * 3**0.5), (1 - 0.75**2**0.5) / (2 * 2**0.5)])


def steps(policy: str) -> str:
    builder = NetworkBuilder()
    long, short = builder.source("long"), builder.source("short")
    deltas = [builder.query("a", Box(1, 1.0, long, label="a")), builder.query("b", Box(2, 1.0, short, label="b"))]
    world = World(policy, deltas, builder=builder)
    world.arrive(long, 0, rows=3)
    world.arrive(short, 0)
    world.run()
    return " ".join(world.steps())


def test_a_short_queue_goes_before_a_long_one_that_has_the_higher_rate() -> None:
    # a: 3 tuples of cost 1, b: one of cost 2. HR: 1/1 against 1/2. FAS: 1/3 against 1/2, then a alone: 1/3, 1/2, 1.
    assert steps("hr") == "a a a b"
    assert steps("fas") == "b a a a"
    # β = 1/2: 1/√3 = .577 against 1/2: a; then 1/√2 and 1: a again.
    assert steps("fas:beta=0.5") == "a a a b"
