"""Latency QoS graphs: piecewise-linear utility over output latency (Carney 2005, 4.4).

A graph is a list of points (latency in s, utility), by latency; two points of one latency make a step. Before the first point the
utility is the first point's, after the last the last point's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from millstream.engine.data.graph import NS_PER_S
from numpy.typing import NDArray

Graph = Sequence[tuple[float, float]]


def utility(graph: Graph, latency_ns: float) -> float:
    """Return the utility of an output of this latency; at a step the value before it."""
    latency = latency_ns / NS_PER_S
    if latency <= graph[0][0]:
        return graph[0][1]
    for (start, before), (end, after) in pairwise(graph):
        if latency <= end:
            return before + (after - before) * (latency - start) / (end - start) if end > start else before
    return graph[-1][1]


def utilities(graph: Graph, latencies_ns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `utility` of every latency."""
    at = np.array([latency for latency, _ in graph])
    value = np.array([one for _, one in graph])
    latencies = latencies_ns / NS_PER_S
    after = np.searchsorted(at, latencies)
    before = np.maximum(after - 1, 0)
    after = np.minimum(after, len(at) - 1)
    width = at[after] - at[before]
    share = np.divide(latencies - at[before], width, out=np.zeros_like(latencies), where=width > 0.0)
    found: NDArray[np.float64] = value[before] + (value[after] - value[before]) * share
    return found


def late_from_ns(graph: Graph) -> float:
    """Return the latency, in ns, after which an output has missed its deadline: where utility begins to fall.

    A graph that falls from 0 on has its first bend for a deadline; one that never falls has none (infinite).
    """
    first = graph[0][1]
    for (at, value), (_, following) in pairwise(graph):
        if value >= first and following < first:
            return at * NS_PER_S if at > 0.0 else first_critical_ns(graph)
    return float("inf")


def critical_points_ns(graph: Graph) -> list[float]:
    """Return the latencies, in ns, at which the graph bends, beyond 0."""
    return sorted({latency * NS_PER_S for latency, _ in graph if latency > 0.0})


def first_critical_ns(graph: Graph) -> float:
    """Return the first latency beyond 0 at which the graph bends, in ns; infinite when there is none."""
    return next(iter(critical_points_ns(graph)), float("inf"))


def last_useful_ns(graph: Graph) -> float:
    """Return the latency, in ns, from which on no utility is left to lose: after it the graph is flat."""
    last = 0.0
    for (_, before), (end, after) in pairwise(graph):
        if after != before:
            last = end
    return last * NS_PER_S


def gradient(graph: Graph, latency_ns: float) -> float:
    """Return the utility lost per second just after this latency (0 on flat parts; a step counts as nothing until it is reached)."""
    latency = latency_ns / NS_PER_S
    for (start, before), (end, after) in pairwise(graph):
        if start <= latency < end:
            return (before - after) / (end - start)
    return 0.0


FloatColumn = NDArray[np.float64]


class GraphTable:
    """A QoS graph prepared for columns of latencies."""

    def __init__(self, graph: Graph) -> None:
        self.criticals = np.array([*critical_points_ns(graph), np.inf])
        self.last_ns = last_useful_ns(graph)
        self.starts = np.array([0.0, *critical_points_ns(graph)])
        self.slopes = np.array([gradient(graph, start) for start in self.starts.tolist()])
        self._start_list: list[float] = self.starts.tolist()
        self._slope_list: list[float] = self.slopes.tolist()
        self._critical_list: list[float] = self.criticals.tolist()

    def utility(self, latency_ns: FloatColumn) -> FloatColumn:
        """Return the gradient at each latency, -1 at or past the last useful point."""
        slopes: FloatColumn = self.slopes[np.searchsorted(self.starts, np.maximum(latency_ns, 0.0), side="right") - 1]
        return np.where(latency_ns >= self.last_ns, -1.0, slopes)

    def urgency_at(self, latency_ns: float) -> tuple[float, float]:
        """Return gradient and distance of one latency, by the same operations on single numbers."""
        late = latency_ns >= self.last_ns
        utility = -1.0 if late else self._slope_list[bisect_right(self._start_list, max(latency_ns, 0.0)) - 1]
        place = min(bisect_right(self._critical_list, latency_ns), len(self._critical_list) - 1)
        return utility, self._critical_list[place] - latency_ns

    def slack_ns(self, latency_ns: FloatColumn) -> FloatColumn:
        """Return the distance to the next critical point."""
        places = np.searchsorted(self.criticals, latency_ns, side="right")
        following: FloatColumn = self.criticals[np.minimum(places, len(self.criticals) - 1)]
        return following - latency_ns


def steepest(tables: list[GraphTable]) -> float:
    """Return the greatest gradient of the graphs, in utility per second."""
    return max((float(table.slopes.max()) for table in tables), default=0.0)


def farthest_ns(tables: list[GraphTable]) -> float:
    """Return the last critical point of the graphs."""
    return max((float(table.criticals[-2]) for table in tables if len(table.criticals) > 1), default=float(NS_PER_S))
