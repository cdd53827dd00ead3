"""Clusters of BSD without the pruning of 3.3.2.2 (Sharaf 2007): every cluster that holds something is ranked at every decision.

Picks what the product's clusters pick, and counts more ranks for it: the middle step of figure 28.
"""

from __future__ import annotations

from millstream.scheduler.policies.balance_slowdown import BalanceSlowdown
from millstream.scheduler.selectors.clusters import ClustersSelector
from millstream.scheduler.view import View


class LinearClustersSelector(ClustersSelector):
    """Logarithmic clusters of BSD, read one by one."""

    def __init__(self, clusters: int) -> None:
        super().__init__(BalanceSlowdown(), clusters, logarithmic=True)

    def _heads(self, view: View) -> list[tuple[int, int]]:
        heads = [(self._clean(view, cluster), cluster) for cluster in range(len(self._queues) - 1, -1, -1)]
        return [(head_ns, cluster) for head_ns, cluster in heads if head_ns is not None]

    def _best(self, by_priority: list[tuple[int, int]], now_ns: int) -> tuple[int, int]:
        self.evaluations += len(by_priority)
        # Of several clusters with one head the best is the first; of equal ranks the oldest head.
        return max(by_priority, key=lambda one: (self.pseudo[one[1]] * max(0, now_ns - one[0]), -one[0]))
