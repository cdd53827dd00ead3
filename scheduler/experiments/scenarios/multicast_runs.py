"""Runs for Sharaf 2007, 6.2.1 (future work): results that many clients subscribe to. Plain values in and out; the store keeps them."""

from __future__ import annotations

from typing import Any

import numpy as np
from millstream.engine.data.graph import GraphDelta
from millstream.scheduler.experiments.scenarios.sharaf_runs import traffic
from millstream.scheduler.simulation import generators
from millstream.scheduler.simulation.networks import Box, NetworkBuilder, SimulatedSource
from millstream.scheduler.simulation.simulate import simulate
from millstream.scheduler.simulation.workloads import Workload, utilisation, workload

WAYS = ("apart", "computed once", "encoded once", "contained")
"""Every subscription by itself; equal queries as one; results encoded once too; a narrower query asked of what a wider one lets through."""
_FAMILY = 4


def _network(builder: NetworkBuilder, source: SimulatedSource, way: str, families: int, subscriptions: int, seed: int) -> list[GraphDelta]:
    """Return a query a subscription: select, join, encode, send.

    A family has four queries that differ in the bound of their select alone. Which query a subscription is for follows a Zipf distribution
    (parameter 1). A narrower query that asks the wider one gets of its tuples the share that its own bound lets through.
    """
    chance = np.random.default_rng(seed)
    queries: list[tuple[float, float, list[float]]] = []
    for _ in range(families):
        cost = 1_000.0 * 2.0 ** int(chance.integers(0, generators.COST_CLASSES))
        bounds = sorted(generators.selectivities(_FAMILY, chance), reverse=True)
        queries += [(cost, bound, bounds[:place]) for place, bound in enumerate(bounds)]
    weights = 1.0 / np.arange(1, len(queries) + 1)
    popularity = chance.permutation(weights / weights.sum())
    joined: dict[int, Box] = {}
    encoded: dict[int, Box] = {}
    selected: dict[tuple[int, int], Box] = {}

    def select(number: int) -> Box:
        """Return the select of a query; contained in a wider one, a select of what that lets through."""
        cost, bound, wider = queries[number]
        if way != "contained":
            return Box(cost, bound, source)
        family, place = divmod(number, _FAMILY)
        if (family, place) not in selected:
            below = select(number - 1) if wider else source
            selected[family, place] = Box(cost, bound / wider[-1] if wider else bound, below)
        return selected[family, place]

    def join(number: int) -> Box:
        cost, bound, _ = queries[number]
        if way == "apart":
            return Box(cost, bound, select(number))
        if number not in joined:
            joined[number] = Box(cost, bound, select(number))
        return joined[number]

    def encode(number: int) -> Box:
        cost = queries[number][0]
        if way in ("apart", "computed once"):
            return Box(cost, 1.0, join(number))
        if number not in encoded:
            encoded[number] = Box(cost, 1.0, join(number))
        return encoded[number]

    chosen = np.sort(chance.choice(len(queries), subscriptions, p=popularity)).tolist()
    return [builder.query(f"s{index}", Box(queries[number][0] / 4.0, 1.0, encode(number))) for index, number in enumerate(chosen)]


def _work(way: str, families: int, subscriptions: int, tuples: int, seed: int) -> Workload:
    builder = NetworkBuilder()
    source = builder.source("packets")
    deltas = _network(builder, source, way, families, subscriptions, seed)
    return workload("multicast", builder, deltas, {source: traffic("dec-pkt-1", tuples, seed)})


def work(way: str, families: int, subscriptions: int, tuples: int, seed: int) -> dict[str, Any]:
    """Return the work of a second of arrivals, costs as drawn."""
    return {"utilisation": utilisation(_work(way, families, subscriptions, tuples, seed))}


def ranked(policy: str, way: str, load: float, families: int, subscriptions: int, tuples: int, seed: int) -> dict[str, Any]:
    """Run a policy; responses are those of the subscriptions' results."""
    made = _work(way, families, subscriptions, tuples, seed).at_utilisation(load)
    return simulate(made, policy, seed=seed).summary()
