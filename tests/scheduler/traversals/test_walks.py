"""The three walks of Carney 2005, 4.3, on its example tree.

b1 is the root with children b2 and b6; b2 has children b4 and b3; b3 has child b5. One tuple waits at each box.
"""

import pytest
from millstream.scheduler.core import CoreSettings
from millstream.scheduler.simulation.networks import Box, NetworkBuilder, Source
from millstream.scheduler.simulation.world import World
from millstream.scheduler.trains import Train

P, O = 1_000, 70  # noqa: E741 (the names of the thesis: cost of a tuple, overhead of a call)


def tree_world(policy: str, costs: dict[str, tuple[float, float]], call_ns: float) -> tuple[World, dict[str, Box], list[Source]]:
    builder = NetworkBuilder()
    sources: list[Source] = []

    def box(name: str, *children: Box) -> Box:
        source = builder.source(name)
        sources.append(source)
        selectivity, cost = costs[name]
        return Box(cost, selectivity, *children, source, call_ns=call_ns, label=name)

    b4, b5 = box("b4"), box("b5")
    b3 = box("b3", b5)
    b2 = box("b2", b4, b3)
    b6 = box("b6")
    b1 = box("b1", b2, b6)
    settings = CoreSettings(adapt=False, train=Train(share=1.0))
    world = World(policy, [builder.query("tree", b1)], builder=builder, settings=settings)
    return world, {"b1": b1}, sources


def run_example(traversal: str) -> tuple[World, list[str]]:
    world, _, sources = tree_world(f"superbox:traversal={traversal}", dict.fromkeys(("b1", "b2", "b3", "b4", "b5", "b6"), (1.0, P)), O)
    # The call overhead is no part of a box's cost in the walk's formulas.
    world.core.estimates.cost_ns[: len(world.core.network.nodes)] = P
    for source in sources:
        world.arrive(source, 0)
    world.run()
    return world, world.steps()


def test_min_cost_calls_every_box_once() -> None:
    world, steps = run_example("min-cost")
    assert steps == ["b4", "b5", "b3", "b2", "b6", "b1"]
    assert world.driver.now_ns == 15 * P + 6 * O
    times = [time for _, time in world.responses_ns()]
    assert len(times) == 6
    assert sum(times) / 6 == 12.5 * P + 6 * O


def test_min_latency_brings_every_tuple_out_at_once() -> None:
    world, steps = run_example("min-latency")
    assert steps == ["b1", "b2", "b1", "b6", "b1", "b4", "b2", "b1", "b3", "b2", "b1", "b5", "b3", "b2", "b1"]
    assert world.driver.now_ns == 15 * P + 15 * O
    times = [time for _, time in world.responses_ns()]
    assert sum(times) / 6 == pytest.approx(43 / 6 * (P + O))


def test_min_memory_follows_the_pseudocode_and_completes_it() -> None:
    costs = {"b1": (0.9, 2.0), "b2": (0.4, 2.0), "b3": (0.5, 1.0), "b4": (1.0, 2.0), "b5": (0.4, 3.0), "b6": (0.6, 1.0)}
    world, _, _ = tree_world("superbox:traversal=min-memory", costs, 0.0)
    core = world.core
    walk = core._policy.traversal(core.network, core.estimates, core.view.units.members(0))
    assert [core.network.node(slot).label for slot in walk] == ["b3", "b6", "b2", "b5", "b3", "b1", "b4", "b2", "b1"]


@pytest.mark.parametrize("traversal", ["min-cost", "min-latency", "min-memory"])
def test_no_walk_leaves_a_tuple_inside(traversal: str) -> None:
    world, _ = run_example(traversal)
    assert world.core.statistics().rows_waiting == 0
    assert world.core.statistics().orders == 1
