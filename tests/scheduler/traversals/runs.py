"""Runs the example tree of the three walks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.scheduler_worlds import tree

if TYPE_CHECKING:
    from millstream.scheduler.simulation.world import World

P, O = 1_000, 70  # noqa: E741 (the names of the thesis: cost of a tuple, overhead of a call)


def run_example(traversal: str) -> tuple[World, list[str]]:
    """Run the superbox once with a tuple at each box."""
    world, sources = tree(f"superbox:traversal={traversal}", dict.fromkeys(("b1", "b2", "b3", "b4", "b5", "b6"), (1.0, P)), O)
    # The call overhead is no part of a box's cost in the walk's formulas.
    world.core.estimates.cost_ns[: len(world.core.network.nodes)] = P
    for source in sources:
        world.arrive(source, 0)
    world.run()
    return world, world.steps()
