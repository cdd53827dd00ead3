"""Chain (Babcock, Babu, Datar and Motwani 2003; as in Sharaf 2007, 3.6).

    rank(x) = slope of the lower envelope of the progress chart over the segment on which x lies

Steepest first; equal slopes by the oldest tuple. Aim: least memory in queues. Moves with time: no.

The chart of a path shows the size of what is left of a tuple against the time spent on it: point 0 is (0, size of an input tuple);
after operator i the time has grown by the expected time it works on the tuple (its cost times the share that reaches it) and the size
is the bytes it leaves behind (its output size times the share that passes). The end of the path has size 0: results leave the queues.

From each point the envelope goes on to the point with the steepest descent, the farthest of equal ones. All operators between two
points of the envelope form a segment and have its slope.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.scheduler.contracts import FloatColumn, RankingBase
from millstream.scheduler.estimates import Estimates
from millstream.scheduler.network import NetworkModel
from millstream.scheduler.paths import leaf_to_root_paths
from millstream.scheduler.view import View


class Chain(RankingBase):
    """Bytes per ns along the envelope."""

    def rank(self, view: View, now_ns: int) -> FloatColumn:
        """Return the slope of each entry's segment."""
        slopes = envelope_slopes(view.ledger.network, view.estimates)
        return np.array([slopes[slot] for slot in view.units.entries[view.index].tolist()])


Point = tuple[float, float]


def progress_chart(network: NetworkModel, estimates: Estimates, path: Sequence[int]) -> list[Point]:
    """Return the points (time in ns, size in bytes) of a path, one more than it has operators."""
    points: list[Point] = [(0.0, network.node(path[0]).row_bytes_in)]
    time = 0.0
    share = 1.0
    for slot in path:
        time += share * estimates.cost_ns.item(slot)
        share *= estimates.selectivity.item(slot)
        points.append((time, share * network.node(slot).row_bytes_out))
    points[-1] = (time, 0.0)
    return points


def slopes_of(points: Sequence[Point]) -> list[float]:
    """Return for each operator between two points the descent of its envelope segment, in bytes per ns."""
    slopes: list[float] = []
    start = 0
    while start < len(points) - 1:
        time, size = points[start]
        descents = [(size - points[end][1]) / (points[end][0] - time) for end in range(start + 1, len(points))]
        best = max(descents)
        end = max(index for index, descent in enumerate(descents, start + 1) if descent == best)
        slopes.extend([best] * (end - start))
        start = end
    return slopes


def envelope_slopes(network: NetworkModel, estimates: Estimates) -> dict[int, float]:
    """Return the slope of every operator; one on several paths has its steepest."""
    found: dict[int, float] = {}
    for path in leaf_to_root_paths(network.topology):
        for slot, slope in zip(path, slopes_of(progress_chart(network, estimates, path)), strict=True):
            found[slot] = max(slope, found.get(slot, slope))
    return found
