"""The relative cost of a schedule per step (Golab 2006, 4.3): what is due together is read in one scan, as long as the longest window.

    cost = average over steps t of  scan(longest window due at t)  +  Σ answer_cost / period

The costs are entries of the synopsis that are read. A percentile and a top-k list each sort the different values of their window by
their counts (4.3: "sorting frequency counts to find the top-k largest ones"). A comparison costs far less than to add a counter to
those that were read before: COMPARISONS_PER_ENTRY of them are one entry.

Synopsis maintenance is left out, as it is the same in every schedule. The average is over the least common multiple of the periods, or over
HORIZON_MAX steps where that is longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import lcm, log2

import numpy as np
from millstream.scheduler.sharing.contract import ScanCost, SubGroup, comparisons

HORIZON_MAX = 2_520  # the least common multiple of 1 … 10; beyond that the average no longer moves a decision

COMPARISONS_PER_ENTRY = 20  # adding a counter to a hash table's against comparing two counters


def sorting(values: float) -> float:
    """Return what it costs to sort so many different values by their counts, in entries read."""
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
    """Return the relative cost per step of running each sub-group at its period."""
    scans: dict[int, int] = {}
    for group, period in zip(groups, periods, strict=True):
        scans[period] = max(scans.get(period, 0), group.scan)
    answers = sum(group.answer_cost / period for group, period in zip(groups, periods, strict=True))
    return scan_cost_per_step(scans, horizon(periods), scan_cost) + answers
