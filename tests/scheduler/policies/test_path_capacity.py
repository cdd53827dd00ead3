"""Path capacity (Pajjuri 2004, 4.1.3): C = 1 / (1/C_1 + s_1/C_2 + …).

Left: costs 2 and 4, half pass the first: 1 / (2 + 0.5 · 4) = 1/4. Right: costs 3 and 2, all pass: 1 / (3 + 2) = 1/5. Left goes first.
"""

import pytest
from millstream.scheduler.simulation.networks import Box, NetworkBuilder
from millstream.scheduler.simulation.world import World

from tests.support.scheduler_worlds import ranks


def test_the_path_of_the_greatest_capacity_goes_first_with_all_of_its_operators() -> None:
    builder = NetworkBuilder()
    left, right = builder.source("left"), builder.source("right")
    first = builder.query("left", Box(4, 1.0, Box(2, 0.5, left, label="l1"), label="l2"))
    second = builder.query("right", Box(2, 1.0, Box(3, 1.0, right, label="r1"), label="r2"))
    world = World("path-capacity", [first, second], builder=builder)
    assert ranks(world, 0) == pytest.approx([1 / 4, 1 / 5])
    world.executor.outcomes[world.core.network.operators.identity(1)] = (1, 1)
    world.arrive(right, 0, rows=2)
    world.arrive(left, 0, rows=2)
    world.run()
    assert world.steps() == ["l1", "l2", "l1", "l2", "r1", "r2", "r1", "r2"]
