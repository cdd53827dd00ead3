"""No shedder (Pham 2013, IV-A): loads are watched, nothing is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.engine.data.graph import ClassId
from millstream.scheduler.load.contract import ClassCycle, Said


class NoShedder:
    """Says that every class has what its priority gives it, and drops nothing."""

    name = "none"

    def __init__(self) -> None:
        self._shares: dict[ClassId, float] = {}

    def begin(self, shares: Mapping[ClassId, float]) -> None:
        """Take the classes."""
        self._shares = dict(shares)

    def decide(self, seen: Sequence[ClassCycle]) -> Said:
        """Return the shares that the priorities give."""
        return Said(dict(self._shares), dict(self._shares), dict.fromkeys(self._shares, 0.0))
