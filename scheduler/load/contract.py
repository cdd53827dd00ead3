"""What a load manager sees of each class once a cycle, and what it says (Pham 2013, II to V).

Loads, headrooms and shares are in seconds of work a second, so that 1.0 is one processor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final, Protocol

from millstream.engine.data.graph import ClassId
from millstream.engine.data.records import dataclass

CYCLE_NS: Final = 150_000_000
"""Load management cycle (Pham 2013, V)."""

CYCLES_A_ROUND: Final = 10
"""Cycles after which shares are distributed anew (Pham 2013, V)."""

NANO: Final = 1e-9


@dataclass(frozen=True, slots=True)
class ClassCycle:
    """One class in the cycle that ends.

    `load` is L, the sum over its sources of rate times Cbar, of all that came, shed or not. `backlog_s` is the work that waits.
    `response_ns` is its response time: the mean of what it put out, or the age of its oldest tuple where it put out nothing; under a policy
    without source boxes, that of its query that fares worst. None when nothing came out and nothing waits. `target_ns` None means that no
    response is too late.
    """

    class_id: ClassId
    load: float
    backlog_s: float = 0.0
    response_ns: float | None = None
    target_ns: float | None = None
    may_shed: bool = True

    @property
    def lateness(self) -> float:
        """Response time by target; 0 where there is nothing to be late."""
        return 0.0 if self.response_ns is None or not self.target_ns else self.response_ns / self.target_ns


@dataclass(frozen=True, slots=True)
class Said:
    """What is in force from now on: headroom H, share of the processor, and share of the input that is dropped, each by class."""

    headroom: Mapping[ClassId, float] = field(default_factory=dict)
    share: Mapping[ClassId, float] = field(default_factory=dict)
    drop: Mapping[ClassId, float] = field(default_factory=dict)


class LoadManager(Protocol):
    """Decides once a cycle. A function of what it has been shown so far: no clock, no chance."""

    name: str

    def begin(self, shares: Mapping[ClassId, float]) -> None:
        """Take these classes, with the shares that their priorities give them; called again when classes come or leave."""
        ...

    def decide(self, seen: Sequence[ClassCycle]) -> Said:
        """Return what is in force from now on, for every class that was shown."""
        ...


@dataclass(frozen=True, slots=True)
class ClassLoad:
    """How a class stands: for whoever watches. Times in ns, loads and shares in seconds of work a second, drop between 0 and 1."""

    class_id: ClassId
    load: float
    headroom: float
    share: float
    drop: float
    backlog_s: float
    response_ns: float | None
    target_ns: float | None
