"""The periods in force: as asked (conservative), the group's shortest (aggressive), or shortened where that costs less (hybrid).

Hybrid goes through the sub-groups from the shortest period to the longest. Each keeps its period or takes that of a shorter one;
partial schedules that run the same windows at the same periods cost the same from there on, so only the cheapest of them is
kept (dynamic programming, Golab 2006, 4.3), and of those the best SCHEDULES_MAX. For up to five sub-groups that was always the optimum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import lcm, log2

import numpy as np
from millstream.scheduler.sharing.contract import PeriodAssignment, ScanCost, SubGroup, comparisons

HORIZON_MAX = 2_520  # the least common multiple of 1 … 10; beyond that the average no longer moves a decision
SCHEDULES_MAX = 48
SUB_GROUPS_FEW = 8  # with more, fewer partial schedules are kept and only periods that somebody runs at are taken
SCHEDULES_MAX_OF_MANY = 10
COMPARISONS_PER_ENTRY = 20

_Scans = tuple[tuple[int, int], ...]  # (period, longest window at it)


def conservative(groups: Sequence[SubGroup], scan_cost: ScanCost = comparisons) -> list[PeriodAssignment]:
    """Leave every period as it was asked for."""
    return _assigned(groups, [g.period for g in groups], scan_cost)


def aggressive(groups: Sequence[SubGroup], scan_cost: ScanCost = comparisons) -> list[PeriodAssignment]:
    """Run the whole group at its shortest period."""
    shortest = min((g.period for g in groups), default=1)
    return _assigned(groups, [shortest] * len(groups), scan_cost)


def hybrid(groups: Sequence[SubGroup], scan_cost: ScanCost = comparisons) -> list[PeriodAssignment]:
    """Shorten the periods that it pays to shorten."""
    if not groups:
        return []
    steps = horizon([g.period for g in groups])
    known: dict[_Scans, float] = {}

    def scanned(scans: _Scans) -> float:
        if scans not in known:
            known[scans] = scan_cost_per_step(dict(scans), steps, scan_cost)
        return known[scans]

    partial: dict[_Scans, tuple[float, list[int]]] = {(): (0.0, [])}
    few = len(groups) <= SUB_GROUPS_FEW
    for place, group in enumerate(groups):
        found: dict[_Scans, tuple[float, list[int]]] = {}
        for scans, (answers, periods) in partial.items():
            shorter = [g.period for g in groups[:place]] if few else [period for period, _ in scans]
            for period in (*shorter, group.period):
                merged = _with(scans, period, group.scan)
                cost = answers + group.answer_cost / period
                if merged not in found or cost < found[merged][0]:
                    found[merged] = cost, [*periods, period]
        kept = sorted(found.items(), key=lambda item: (scanned(item[0]) + item[1][0], item[1][1]))[
            : SCHEDULES_MAX if few else SCHEDULES_MAX_OF_MANY
        ]
        partial = dict(kept)
    best = min(partial.items(), key=lambda item: (scanned(item[0]) + item[1][0], [-p for p in item[1][1]]))
    return _assigned(groups, best[1][1], scan_cost)


def _with(scans: _Scans, period: int, scan: int) -> _Scans:
    merged = dict(scans)
    merged[period] = max(merged.get(period, 0), scan)
    return tuple(sorted(merged.items()))


def _assigned(groups: Sequence[SubGroup], periods: Sequence[int], scan_cost: ScanCost) -> list[PeriodAssignment]:
    cost = schedule_cost(groups, periods, scan_cost) if groups else 0.0
    return [PeriodAssignment(group, period, cost) for group, period in zip(groups, periods, strict=True)]


def sorting(values: float) -> float:
    """Return what it costs to sort so many different values by their counts, in entries read.

    A percentile and a top-k list each sort the values of their window (Golab 2006, 4.3). A comparison costs far less
    than to read an entry, which adds a counter to those read before.
    """
    return values * log2(max(2.0, values)) / COMPARISONS_PER_ENTRY


def horizon(periods: Sequence[int]) -> int:
    """Return over how many steps to average."""
    whole = lcm(*periods)
    return whole if whole <= HORIZON_MAX else HORIZON_MAX


def scan_cost_per_step(scans: Mapping[int, int], steps: int, scan_cost: ScanCost = comparisons) -> float:
    """Return the scans' cost per step; `scans` gives for each period the longest window that runs at it."""
    longest = np.zeros(steps, dtype=np.int64)
    for period, scan in scans.items():
        due = longest[period - 1 :: period]
        np.maximum(due, scan, out=due)
    counts = np.bincount(longest)
    total = sum(scan_cost(scan) * int(counts[scan]) for scan in set(scans.values()) if scan < len(counts))
    return float(total) / steps


def schedule_cost(groups: Sequence[SubGroup], periods: Sequence[int], scan_cost: ScanCost = comparisons) -> float:
    """Return the relative cost per step of running each sub-group at its period (Golab 2006, 4.3).

        cost = average over steps t of  scan(longest window due at t)  +  Σ answer_cost / period

    What is due together is read in one scan, as long as the longest window. Synopsis maintenance is left out, as it is the same in every
    schedule. The average is over the least common multiple of the periods, or over HORIZON_MAX steps where that is longer.
    """
    scans: dict[int, int] = {}
    for group, period in zip(groups, periods, strict=True):
        scans[period] = max(scans.get(period, 0), group.scan)
    answers = sum(group.answer_cost / period for group, period in zip(groups, periods, strict=True))
    return scan_cost_per_step(scans, horizon(periods), scan_cost) + answers
