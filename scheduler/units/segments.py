"""Segments by memory release capacity (Pajjuri 2004, 4.1.4): runs of operators that give memory back ever faster.

    mrc(x) = C_x (in_bytes(x) - s_x out_bytes(x)),   C_x = 1 / c_x

Per path from the leaf: the segment is extended while the next operator's mrc is greater than the current one's, else it is closed and
a new one begins. Over all paths: a new segment that equals a listed one or lies inside it is dropped; one that contains listed ones
replaces them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import ClassVar

from millstream.scheduler.estimates import Estimates
from millstream.scheduler.ledger import Ledger
from millstream.scheduler.network import Network
from millstream.scheduler.paths import leaf_to_root_paths
from millstream.scheduler.unit_set import UnitSet

Segment = tuple[int, ...]


def memory_release_capacity(network: Network, estimates: Estimates, slot: int) -> float:
    """Return mrc(x) in bytes per ns."""
    node = network.node(slot)
    released = node.row_bytes_in - float(estimates.selectivity[slot]) * node.row_bytes_out
    return released / float(estimates.cost_ns[slot])


def is_inside(part: Segment, whole: Segment) -> bool:
    """Tell whether `part` is a run of neighbours in `whole`."""
    return any(whole[start : start + len(part)] == part for start in range(len(whole) - len(part) + 1))


def prune(segments: Sequence[Segment]) -> list[Segment]:
    """Drop segments inside listed ones; let a segment that contains listed ones replace them."""
    listed: list[Segment] = []
    for segment in segments:
        if any(is_inside(segment, other) for other in listed):
            continue
        listed = [other for other in listed if not is_inside(other, segment)]
        listed.append(segment)
    return listed


def cut_path(path: Segment, capacity: Callable[[int], float]) -> list[Segment]:
    """Cut one path, leaf first."""
    segments: list[list[int]] = [[path[0]]]
    for current, following in pairwise(path):
        if capacity(following) > capacity(current):
            segments[-1].append(following)
        else:
            segments.append([following])
    return [tuple(segment) for segment in segments]


class SegmentUnits(UnitSet):
    """One unit a segment; the entry is its first operator."""

    name = "segments"
    depends_on_estimates: ClassVar[bool] = True

    def __init__(self, ledger: Ledger, estimates: Estimates) -> None:
        network = ledger.network
        capacities = {slot: memory_release_capacity(network, estimates, slot) for slot in network.topology.order}
        paths = leaf_to_root_paths(network.topology)
        super().__init__(ledger, prune([segment for path in paths for segment in self._cut(path, capacities.__getitem__)]))

    def _cut(self, path: Segment, capacity: Callable[[int], float]) -> list[Segment]:
        return cut_path(path, capacity)
