"""Clusters (Sharaf 2007, 3.7): units of like fixed part share a pseudo-priority and a queue in arrival order.

The fixed parts Φ range from Φ_min to Φ_max, Δ = Φ_max / Φ_min. With m clusters

    logarithmic   cluster i covers [Φ_min ε^i, Φ_min ε^(i+1)),  ε = Δ^(1/m), pseudo-priority Φ_min ε^i
    uniform       cluster i covers the i-th of m equal parts of [Φ_min, Φ_max], pseudo-priority its lower end

The rank of a cluster is its pseudo-priority times the wait of its oldest tuple. A tuple at the head of several clusters stands for the
one of the greatest pseudo-priority alone (3.3.2.3, example 2); the others are passed over until it has been served there. The best is
found by Fagin's algorithm over two sorted lists of what is left, by pseudo-priority and by oldest head, read in turn one entry at a
time. All units of the cluster that hold that tuple run together (clustered processing): one decision serves them all.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from itertools import chain

import numpy as np
from millstream.scheduler.contracts import FactoredRanking, FloatColumn
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.view import View


def cluster_bounds(fixed: FloatColumn, clusters: int, *, logarithmic: bool) -> FloatColumn:
    """Return the lower ends of the clusters, ascending."""
    least, greatest = float(fixed.min()), float(fixed.max())
    if greatest <= least * (1.0 + 1e-12):
        return np.array([least])
    steps = np.arange(clusters, dtype=np.float64)
    if logarithmic:
        return np.asarray(least * np.exp(math.log(greatest / least) / clusters * steps))
    return np.asarray(least + (greatest - least) / clusters * steps)


class ClustersSelector:
    """A queue of (head, unit) per cluster; outdated entries are dropped when they come up."""

    def __init__(self, ranking: FactoredRanking, clusters: int, *, logarithmic: bool) -> None:
        if clusters < 1:
            raise PolicyError(f"policy option clusters={clusters} is not at least 1")
        self.ranking = ranking
        self.clusters = clusters
        self.logarithmic = logarithmic
        self.evaluations = 0
        self.moves = 0
        self.pseudo: list[float] = []
        self.cluster_of: list[int] = []
        self._queues: list[list[tuple[int, int]]] = []
        self._listed: list[int | None] = []

    def reset(self, view: View, now_ns: int) -> None:
        """Cluster anew."""
        self._listed = [None] * view.units.count
        if not view.units.count:
            self._queues = []
            return
        fixed = self.ranking.fixed_part(view)
        bounds = cluster_bounds(fixed, self.clusters, logarithmic=self.logarithmic)
        # The bounds are computed by exponentials: a value on a bound may fall a rounding below it.
        places = np.searchsorted(bounds * (1.0 - 1e-12), fixed, side="right") - 1
        self.cluster_of = np.clip(places, 0, len(bounds) - 1).tolist()
        self.pseudo = bounds.tolist()
        self._queues = [[] for _ in self.pseudo]
        self.evaluations += view.units.count
        self.changed(view, np.flatnonzero(view.units.available).tolist(), now_ns)

    def changed(self, view: View, units: Sequence[int], now_ns: int) -> None:
        """Queue these units by their heads."""
        head, available = view.units.head_ns, view.units.available_at
        for unit in units:
            head_ns = head.item(unit)
            if available[unit] and self._listed[unit] != head_ns:
                self._listed[unit] = head_ns
                heapq.heappush(self._queues[self.cluster_of[unit]], (head_ns, unit))
                self.moves += 1

    def _clean(self, view: View, cluster: int) -> int | None:
        """Drop what is outdated at the front; return the oldest head of the cluster."""
        queue, available = self._queues[cluster], view.units.available_at
        while queue:
            head_ns, unit = queue[0]
            if self._listed[unit] == head_ns and available[unit]:
                return head_ns
            heapq.heappop(queue)
            if self._listed[unit] == head_ns:
                self._listed[unit] = None
        return None

    def pick(self, view: View, now_ns: int, count: int) -> list[int]:
        """Return the units of the best cluster that hold its oldest tuple: all of them, whatever `count` says."""
        by_priority = self._heads(view)
        if not by_priority:
            return []
        oldest, cluster = self._best(by_priority, now_ns)
        queue = self._queues[cluster]
        picked: list[int] = []
        while queue and queue[0][0] == oldest:
            unit = heapq.heappop(queue)[1]
            if self._listed[unit] == oldest and view.units.available_at[unit]:
                picked.append(unit)
            if self._listed[unit] == oldest:
                self._listed[unit] = None
            self.moves += 1
        return picked

    def _heads(self, view: View) -> list[tuple[int, int]]:
        """Return head and cluster, the greatest pseudo-priority first; a tuple stands for its best cluster alone."""
        best_of: dict[int, int] = {}
        for cluster in range(len(self._queues) - 1, -1, -1):
            head_ns = self._clean(view, cluster)
            if head_ns is not None:
                best_of.setdefault(head_ns, cluster)
        return list(best_of.items())

    def _best(self, by_priority: list[tuple[int, int]], now_ns: int) -> tuple[int, int]:
        """Read the two lists in turn until nothing unread can be better. Returns head and cluster; of equal ranks the oldest head."""
        best, best_rank = by_priority[0], -1.0
        seen: set[int] = set()
        bound, wait = math.inf, math.inf
        lists = zip(by_priority, sorted(by_priority), strict=True)
        for place, (head_ns, cluster) in enumerate(chain.from_iterable(lists)):
            if cluster not in seen:
                seen.add(cluster)
                self.evaluations += 1
                rank = self.pseudo[cluster] * max(0, now_ns - head_ns)
                if (rank, -head_ns) > (best_rank, -best[0]):
                    best, best_rank = (head_ns, cluster), rank
            if place % 2:
                wait = max(0, now_ns - head_ns)
            else:
                bound = self.pseudo[cluster]
            if best_rank >= bound * wait:
                break
        return best
