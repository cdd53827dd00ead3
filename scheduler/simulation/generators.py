"""Networks as the papers draw them, from a seed: select–join–project queries, chains of boxes, trees, two-stream joins."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from millstream.engine.data.graph import GraphDelta
from millstream.scheduler.simulation.networks import Asked, Box, NetworkBuilder, SimulatedSource

COST_CLASSES = 5


def selectivities(count: int, chance: np.random.Generator, low: float = 0.1, high: float = 1.0) -> list[float]:
    """Draw selectivities as predicates on an attribute of 1 to 100 give them: whole hundredths."""
    drawn: list[float] = (chance.integers(round(low * 100), round(high * 100) + 1, count) / 100).tolist()
    return drawn


def select_join_project(
    builder: NetworkBuilder,
    sources: Sequence[SimulatedSource],
    queries: int,
    seed: int,
    *,
    selectivity: Callable[[np.random.Generator], float] | None = None,
    cost_classes: int = COST_CLASSES,
    unit_ns: float = 1_000.0,
    shared: int = 1,
) -> list[GraphDelta]:
    """Return queries drawn at random, of a select, a join with a stored relation and a projection (Sharaf 2007, 3.7).

    All operators of a query cost `unit_ns` · 2^i, i uniform over the classes; select and join have one selectivity, the projection 1.
    Queries go to the sources in turn. With `shared` over 1, so many queries have their select in common (3.8.4).
    """
    chance = np.random.default_rng(seed)
    deltas = []
    select: Box | None = None
    for index in range(queries):
        cost = unit_ns * 2.0 ** int(chance.integers(0, cost_classes))
        share = selectivity(chance) if selectivity is not None else selectivities(1, chance)[0]
        if select is None or index % shared == 0:
            select = Box(cost, share, sources[(index // shared) % len(sources)], label=f"q{index} select")
        join = Box(cost, share, select, label=f"q{index} join")
        deltas.append(builder.query(f"q{index}", Box(cost, 1.0, join, label=f"q{index} project")))
    return deltas


def window_joins(
    builder: NetworkBuilder,
    left: SimulatedSource,
    right: SimulatedSource,
    queries: int,
    seed: int,
    *,
    window_s: tuple[float, float] = (1.0, 10.0),
    unit_ns: float = 1_000.0,
) -> list[GraphDelta]:
    """Draw queries that select from two streams, join them over a window and project (Sharaf 2007, 3.8.1.12)."""
    chance = np.random.default_rng(seed)
    deltas = []
    for index in range(queries):
        cost = unit_ns * 2.0 ** int(chance.integers(0, COST_CLASSES))
        share = selectivities(1, chance)[0]
        window_ns = round(float(chance.uniform(*window_s)) * 1e9)
        sides = [Box(cost, share, source, label=f"q{index} select") for source in (left, right)]
        join = Box(cost, share, *sides, window_ns=window_ns, label=f"q{index} join")
        deltas.append(builder.query(f"q{index}", Box(cost, 1.0, join, label=f"q{index} project")))
    return deltas


def chains(
    builder: NetworkBuilder,
    sources: Sequence[SimulatedSource],
    depth: int,
    cost_ns: float,
    *,
    asked: Sequence[Asked],
    selectivity: float = 1.0,
    call_ns: float = 0.0,
) -> list[GraphDelta]:
    """Make one chain of equal boxes a source; what is asked of them goes round (Carney 2005, tables 4.2 and 4.4)."""
    deltas = []
    for index, source in enumerate(sources):
        below: Box | SimulatedSource = source
        for level in range(depth):
            below = Box(cost_ns, selectivity, below, call_ns=call_ns, label=f"a{index} b{level}")
        assert isinstance(below, Box)
        deltas.append(builder.query(f"a{index}", below, asked[index % len(asked)]))
    return deltas


def tree(
    builder: NetworkBuilder,
    name: str,
    depth: int,
    fan_out: int,
    cost_ns: Callable[[], float],
    *,
    asked: Asked | None = None,
    selectivity: Callable[[], float] = lambda: 1.0,
    call_ns: float = 0.0,
    size_ratio: float = 1.0,
) -> tuple[GraphDelta, list[SimulatedSource]]:
    """Make an application tree: `depth` levels of boxes, each but the leaves with `fan_out` children; every leaf has its own source."""
    sources: list[SimulatedSource] = []

    def grow(level: int) -> Box:
        if level == depth:
            source = builder.source(f"{name}.{len(sources)}")
            sources.append(source)
            inputs: tuple[Box | SimulatedSource, ...] = (source,)
        else:
            inputs = tuple(grow(level + 1) for _ in range(fan_out))
        return Box(cost_ns(), selectivity(), *inputs, call_ns=call_ns, label=f"{name} level {level}", size=100.0 * size_ratio)

    return builder.query(name, grow(1), asked), sources
