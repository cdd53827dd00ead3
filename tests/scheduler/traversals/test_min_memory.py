"""Min-memory (Carney 2005, 3.3.1.2) on the thesis's tree with (selectivity, cost) b1 (.9, 2) b2 (.4, 2) b3 (.5, 1) b4 (1, 2) b5 (.4, 3)

b6 (.6, 1) and size 1: mem_rr .05 .3 .5 0 .2 .4. The pseudocode gives b3 b6 b2 b5 b3 b1 b4 b2, and b1 completes it. (The order printed in
the thesis, b3 b2 b1 b6 b1 b2 b5 b3 b2 b1 b4 b2 b1, does not follow from its pseudocode.)
"""

import pytest
from millstream.scheduler.traversals import release_rate

from tests.scheduler.traversals.runs import run_example
from tests.support.scheduler_worlds import tree

COSTS = {"b1": (0.9, 2.0), "b2": (0.4, 2.0), "b3": (0.5, 1.0), "b4": (1.0, 2.0), "b5": (0.4, 3.0), "b6": (0.6, 1.0)}


def test_the_walk_follows_the_pseudocode_and_is_completed() -> None:
    world, _ = tree("superbox:traversal=min-memory", COSTS, 0.0)
    core = world.core
    members = core.view.units.members(0)
    rates = {core.network.node(slot).label: release_rate(core.network, core.estimates, slot) for slot in members}
    assert [rates[f"b{number}"] for number in range(1, 7)] == pytest.approx([0.05, 0.3, 0.5, 0.0, 0.2, 0.4])
    walk = core._policy.traversal(core.network, core.estimates, members)
    assert " ".join(core.network.node(slot).label for slot in walk) == "b3 b6 b2 b5 b3 b1 b4 b2 b1"


@pytest.mark.parametrize("traversal", ["min-cost", "min-latency", "min-memory"])
def test_no_walk_leaves_a_tuple_inside(traversal: str) -> None:
    world, _ = run_example(traversal)
    assert world.core.statistics().rows_waiting == 0
    assert world.core.statistics().orders == 1
