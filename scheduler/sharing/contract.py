"""The words of schedule sharing. Lengths and periods are counted in synopsis updates (steps s of the paper)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.engine.data.records import dataclass


@dataclass(frozen=True, slots=True)
class PeriodicQuery:
    """A query over a shared synopsis: `window` steps long, due at least every `period` steps.

    `answer_cost` is what its answer costs beyond reading the synopsis.
    """

    name: str
    window: int
    period: int
    answer_cost: float = 0.0


@dataclass(frozen=True, slots=True)
class SubGroup:
    """Queries of one group with the same SLIDE: always run together. `scan` is the longest window."""

    period: int
    queries: tuple[PeriodicQuery, ...]

    @property
    def scan(self) -> int:
        """The steps of the longest window."""
        return max(q.window for q in self.queries)

    @property
    def answer_cost(self) -> float:
        """What the answers cost beyond the scan."""
        return sum(q.answer_cost for q in self.queries)


@dataclass(frozen=True, slots=True)
class PeriodAssignment:
    """A sub-group and the period in force for it, never longer than its own; `cost` is the whole group's per step."""

    sub_group: SubGroup
    period: int
    cost: float = 0.0

    @property
    def shortened(self) -> bool:
        """The period was shortened to run with others."""
        return self.period < self.sub_group.period


ScanCost = Callable[[int], float]
"""What reading so many of the newest intervals costs: combining n values takes n - 1 operations where nothing better is known."""

Periods = Callable[[Sequence[SubGroup], ScanCost], list[PeriodAssignment]]


def comparisons(intervals: int) -> float:
    """Return the cost of the paper's example: a maximum of n values takes n - 1 comparisons."""
    return float(max(0, intervals - 1))


def sub_groups(queries: Sequence[PeriodicQuery]) -> list[SubGroup]:
    """Return the queries of a group by their SLIDE, shortest first."""
    by_period: dict[int, list[PeriodicQuery]] = {}
    for query in queries:
        by_period.setdefault(query.period, []).append(query)
    return [SubGroup(period, tuple(found)) for period, found in sorted(by_period.items())]
