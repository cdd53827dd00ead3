"""Simplified segments (Pajjuri 2004, 4.1.5): at most two a path.

The first runs from the leaf while mrc(next) / mrc(current) > γ with γ < 1; the rest of the path is the second. An operator that gives
no memory back has no ratio: the run goes on from it to any operator that gives no less.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from millstream.scheduler.contracts import Cutter
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.estimates import Estimates
from millstream.scheduler.ledger import Ledger
from millstream.scheduler.units.segments import Segment, SegmentUnits


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
    """One unit a segment, at most two segments a path."""

    name: ClassVar[str] = "simplified-segments"

    def __init__(self, ledger: Ledger, estimates: Estimates, *, gamma: float) -> None:
        self.gamma = gamma
        super().__init__(ledger, estimates)

    def _cut(self, path: Segment, capacity: Callable[[int], float]) -> list[Segment]:
        return cut_in_two(path, capacity, self.gamma)


def simplified_segments(gamma: float) -> Cutter:
    """Return the cut with this γ; raises `PolicyError` unless 0 < γ < 1."""
    if not 0.0 < gamma < 1.0:
        raise PolicyError(f"policy option gamma={gamma} does not lie between 0 and 1")
    return partial(SimplifiedSegmentUnits, gamma=gamma)
