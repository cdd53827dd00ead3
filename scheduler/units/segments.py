"""Segments by memory release capacity (Pajjuri 2004, 4.1.4): runs of operators that give memory back ever faster.

    mrc(x) = C_x (in_bytes(x) - s_x out_bytes(x)),   C_x = 1 / c_x

Per path from the leaf: the segment is extended while the next operator's mrc is greater than the current one's, else it is closed and
a new one begins. Over all paths: a new segment that equals a listed one or lies inside it is dropped; one that contains listed ones
replaces them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import ClassVar

import numpy as np
from millstream.scheduler.contracts import Cutter
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.estimates import Estimates
from millstream.scheduler.ledger import Ledger
from millstream.scheduler.network import NetworkModel
from millstream.scheduler.paths import leaf_to_root_paths
from millstream.scheduler.unit_set import UnitSet

Segment = tuple[int, ...]


class Capacities:
    """mrc(x) in bytes per ns of every operator of a network, as the estimates have it now."""

    def __init__(self, network: NetworkModel, estimates: Estimates) -> None:
        self._estimates = estimates
        self._slots = np.array(network.topology.order, dtype=np.int64)
        nodes = [network.node(slot) for slot in network.topology.order]
        self._bytes_in = np.array([node.row_bytes_in for node in nodes])
        self._bytes_out = np.array([node.row_bytes_out for node in nodes])

    def by_slot(self) -> dict[int, float]:
        """Return the capacities by operator."""
        released = self._bytes_in - self._estimates.selectivity[self._slots] * self._bytes_out
        return dict(zip(self._slots.tolist(), (released / self._estimates.cost_ns[self._slots]).tolist(), strict=True))


def is_inside(part: Segment, whole: Segment) -> bool:
    """Tell whether `part` is a run of neighbours in `whole`."""
    return any(whole[start : start + len(part)] == part for start in range(len(whole) - len(part) + 1))


def prune(segments: Sequence[Segment]) -> list[Segment]:
    """Drop segments inside listed ones; let a segment that contains listed ones replace them.

    One segment can lie inside another only where they share operators, so each is compared with those that have operators of its own.
    """
    listed: dict[int, Segment] = {}  # by the number of its turn
    having: dict[int, dict[int, None]] = {}  # the listed ones that have an operator
    for number, segment in enumerate(segments):
        if any(is_inside(segment, listed[other]) for other in having.get(segment[0], ())):
            continue
        sharing = dict.fromkeys(other for operator in segment for other in having.get(operator, ()))
        for other in [other for other in sharing if is_inside(listed[other], segment)]:
            for operator in listed.pop(other):
                del having[operator][other]
        listed[number] = segment
        for operator in segment:
            having.setdefault(operator, {})[number] = None
    return list(listed.values())


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
        self._capacities = Capacities(ledger.network, estimates)
        self._paths = leaf_to_root_paths(ledger.network.topology)
        self._segments = self._cut_all()
        super().__init__(ledger, prune(self._segments))

    def holds(self) -> bool:
        """Whether no path would be cut in another place."""
        return self._cut_all() == self._segments

    def _cut_all(self) -> list[Segment]:
        capacity = self._capacities.by_slot().__getitem__
        return [segment for path in self._paths for segment in self._cut(path, capacity)]

    def _cut(self, path: Segment, capacity: Callable[[int], float]) -> list[Segment]:
        return cut_path(path, capacity)


def cut_in_two(path: Segment, capacity: Callable[[int], float], gamma: float) -> list[Segment]:
    """Cut one path, leaf first."""
    end = 1
    while end < len(path):
        current, following = capacity(path[end - 1]), capacity(path[end])
        if not (following > gamma * current if current > 0.0 else following >= current):
            break
        end += 1
    return [path[:end], path[end:]] if end < len(path) else [path]


class SimplifiedSegmentUnits(SegmentUnits):
    """One unit a segment, at most two segments a path (Pajjuri 2004, 4.1.5).

    The first runs from the leaf while mrc(next) / mrc(current) > γ with γ < 1; the rest of the path is the second. An operator that gives
    no memory back has no ratio: the run goes on from it to any operator that gives no less.
    """

    name: ClassVar[str] = "simplified-segments"

    def __init__(self, ledger: Ledger, estimates: Estimates, *, gamma: float) -> None:
        self.gamma = gamma
        super().__init__(ledger, estimates)

    def _cut(self, path: Segment, capacity: Callable[[int], float]) -> list[Segment]:
        return cut_in_two(path, capacity, self.gamma)


def simplified_segments(gamma: float) -> Cutter:
    """Return the cut with this γ; raises `PolicyError` unless 0 < γ < 1."""
    if not 0.0 < gamma < 1.0:
        raise PolicyError(f"policy option gamma={gamma} is not between 0 and 1")
    return partial(SimplifiedSegmentUnits, gamma=gamma)
