"""QoS graphs prepared for whole columns of latencies."""

from __future__ import annotations

import numpy as np
from millstream.engine.data.graph import NS_PER_S
from millstream.scheduler.qos import Graph, critical_points_ns, gradient, last_useful_ns
from numpy.typing import NDArray

FloatColumn = NDArray[np.float64]


class GraphTable:
    """A QoS graph prepared for columns of latencies."""

    def __init__(self, graph: Graph) -> None:
        self.criticals = np.array([*critical_points_ns(graph), np.inf])
        self.last_ns = last_useful_ns(graph)
        self.starts = np.array([0.0, *critical_points_ns(graph)])
        self.slopes = np.array([gradient(graph, start) for start in self.starts.tolist()])

    def utility(self, latency_ns: FloatColumn) -> FloatColumn:
        """Return the gradient at each latency, -1 at or past the last useful point."""
        slopes: FloatColumn = self.slopes[np.searchsorted(self.starts, np.maximum(latency_ns, 0.0), side="right") - 1]
        return np.where(latency_ns >= self.last_ns, -1.0, slopes)

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
