"""Small simulated worlds that the worked examples of the scheduler's policies, cuts and selectors share."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.scheduler.simulation.networks import Asked, Box, NetworkBuilder
from millstream.scheduler.simulation.world import World

from tests.support.random_networks import random_network

S = 1_000_000_000
NOW = 10


def two_queries(policy: str) -> World:
    """A costs 4 and passes all, B costs 2 and passes a quarter; three tuples wait at A since 4, two at B since 0, and it is NOW = 10.

    S_A = 1, Cbar_A = T_A = 4, W_A = 6; S_B = 1/4, Cbar_B = T_B = 2, W_B = 10. A has weight 1/2 and SLIDE 8, B a deadline of 15.
    """
    builder = NetworkBuilder()
    first, second = builder.source("a"), builder.source("b")
    deltas = [
        builder.query("A", Box(4, 1.0, first, label="A"), Asked(weight=0.5, deadline_ns=20, period_ns=8)),
        builder.query("B", Box(2, 0.25, second, label="B"), Asked(weight=1.0, deadline_ns=15)),
    ]
    world = World(policy, deltas, builder=builder)
    world.core.ledger.append(world.core.network.logs.slot_of[builder.log(first)], 3, 3, 4, 0)
    world.core.ledger.append(world.core.network.logs.slot_of[builder.log(second)], 2, 2, 0, 0)
    world.core.view.units.update_all()
    return world


def ranks(world: World, now_ns: int = NOW) -> list[float]:
    """Return the ranks of all units of a world."""
    assert world.core.ranking is not None
    found: list[float] = world.core.ranking.rank(world.core.view, now_ns).tolist()
    return found


def unit_labels(world: World) -> list[list[str]]:
    """Return the labels of the members of every unit."""
    units, network = world.core.view.units, world.core.network
    return [[network.node(slot).label for slot in units.members(unit)] for unit in range(units.count)]


def chains(policy: str, lengths: Sequence[int], deadlines: Sequence[int]) -> World:
    """Chains of boxes of cost 1 s, b1, b2 … from the leaf on; each has a step graph and one tuple at its leaf at time 0."""
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


def schedule(policy: str) -> tuple[str, list[float]]:
    """Run three chains of four boxes with deadlines 6, 10 and 14; return the order of boxes and when each chain's result left."""
    world = chains(policy, [4, 4, 4], [6, 10, 14])
    world.run()
    finished = {operator // 5: time / S for operator, time in world.responses_ns()}
    return " ".join(world.steps()), [finished[chain] for chain in sorted(finished)]


IN_ORDER = "b1 b2 b3 b4 b5 b6 b7 b8 b9 b10 b11 b12"


def tree(policy: str, costs: dict[str, tuple[float, float]], call_ns: float) -> tuple[World, list[object]]:
    """The tree of Carney 2005, 3.3.1.2: root b1 with children b2 and b6, b2 with b4 and b3, b3 with b5; each has a source too."""
    from millstream.scheduler.core import CoreSettings
    from millstream.scheduler.trains import TrainShape

    builder = NetworkBuilder()
    sources: list[object] = []

    def box(name: str, *children: Box) -> Box:
        source = builder.source(name)
        sources.append(source)
        selectivity, cost = costs[name]
        return Box(cost, selectivity, *children, source, call_ns=call_ns, label=name)

    b4, b5 = box("b4"), box("b5")
    b2 = box("b2", b4, box("b3", b5))
    root = box("b1", b2, box("b6"))
    settings = CoreSettings(adapt=False, train=TrainShape(share=1.0))
    return World(policy, [builder.query("tree", root)], builder=builder, settings=settings), sources


def order_of(policy: str, seed: int) -> tuple[list[tuple[int, int]], int]:
    """Run a random network; return operators and tuples in the order they ran, and how many ranks were computed."""
    network = random_network(seed, queries_max=6)
    world = World(policy, network.deltas, builder=network.builder)
    for at_ns, source, rows in network.arrivals:
        world.arrive(source, at_ns, rows=rows)
    world.run()
    return [(int(operator), rows) for operator, rows in world.order], world.core.statistics().evaluations


def many_queries(policy: str) -> World:
    """Run forty queries of one box, five costs, on twenty tuples."""
    builder = NetworkBuilder()
    source = builder.source("s")
    deltas = [builder.query(f"q{index}", Box(2 ** (index % 5) * 100, 0.1 + index / 45, source)) for index in range(40)]
    world = World(policy, deltas, builder=builder)
    world.arrive(source, *range(0, 400_000, 20_000))
    world.run()
    return world
