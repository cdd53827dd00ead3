"""Runs for Sharaf 2007, 3.8.3: what the implementations of BSD cost. Plain values in and out; the store keeps them."""

from __future__ import annotations

from typing import Any

from millstream.scheduler.drivers.virtual import DecisionCost
from millstream.scheduler.experiments.scenarios.sharaf_runs import single_stream
from millstream.scheduler.policies.balance_slowdown import BalanceSlowdown
from millstream.scheduler.selectors.clusters import ClustersSelector
from millstream.scheduler.simulation.simulate import RunSettings, simulate
from millstream.scheduler.spec import PolicySpec
from millstream.scheduler.view import View


def clusters(policy: str, load: float, seed: int, queries: int, tuples: int, charged: bool, pruned: bool = True) -> dict[str, Any]:
    """Every priority computed and every comparison of it costs what the cheapest operator costs (3.8.3).

    Without pruning every cluster that holds something is ranked at every decision.
    """
    work = single_stream(load, seed, queries, tuples, "dec-pkt-1")
    cheapest = min(node.cost_ns for node in work.nodes if node.inputs)
    charge = DecisionCost(evaluation_ns=round(2 * cheapest)) if charged else DecisionCost()
    linear = None if pruned else lambda lane: LinearClustersSelector(int(PolicySpec.parse(policy).get("clusters", 12)))
    return simulate(work, policy, seed=seed, settings=RunSettings(charge=charge, selector=linear)).summary()


class LinearClustersSelector(ClustersSelector):
    """Logarithmic clusters of BSD without the pruning of 3.3.2.2: every cluster that holds something is ranked at every decision.

    Picks what the product's clusters pick, and counts more ranks for it: the middle step of figure 28.
    """

    def __init__(self, clusters: int) -> None:
        super().__init__(BalanceSlowdown(), clusters, logarithmic=True)

    def _heads(self, view: View) -> list[tuple[int, int]]:
        heads = [(self._clean(view, cluster), cluster) for cluster in range(len(self._queues) - 1, -1, -1)]
        return [(head_ns, cluster) for head_ns, cluster in heads if head_ns is not None]

    def _best(self, by_priority: list[tuple[int, int]], now_ns: int) -> tuple[int, int]:
        self.evaluations += len(by_priority)
        # Of several clusters with one head the best is the first; of equal ranks the oldest head.
        return max(by_priority, key=lambda one: (self.pseudo[one[1]] * max(0, now_ns - one[0]), -one[0]))
