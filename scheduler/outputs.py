"""Columns of outputs and what follows from them: the one place where response time, slowdown, lateness and staleness are computed.

`measures` feeds it live and simulated runs alike, some dozens of outputs at a time; `simulation.outcome` feeds it whole runs. Columns have
an entry an output, times are in ns. `Staleness` is the length of a union of intervals that grows (Sharaf 2007, 4.1).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import numpy as np
from numpy.typing import NDArray

IntColumn = NDArray[np.int64]
FloatColumn = NDArray[np.float64]


def responses_ns(arrival_ns: IntColumn, finished_ns: IntColumn) -> IntColumn:
    """Return R = D - A."""
    found: IntColumn = np.maximum(finished_ns - arrival_ns, 0)
    return found


def slowdowns(response_ns: IntColumn, ideal_ns: FloatColumn) -> FloatColumn:
    """Return H = R / T; for a joined tuple, whose arrival is its later parent's, this is 1 + (D - (A + T)) / T."""
    return np.asarray(response_ns / ideal_ns, dtype=np.float64)


def tardiness_ns(arrival_ns: IntColumn, finished_ns: IntColumn, period_ns: int) -> IntColumn:
    """Return max(0, D - deadline), the deadline being the SLIDE boundary after the arrival."""
    found: IntColumn = np.maximum(finished_ns - (arrival_ns // period_ns + 1) * period_ns, 0)
    return found


def unions(group: IntColumn, begin_ns: IntColumn, end_ns: IntColumn) -> tuple[IntColumn, IntColumn, IntColumn]:
    """Return the unions of the intervals [begin, end) of each group as disjoint intervals: columns of group, begin and end, sorted."""
    if not len(group):
        return group, begin_ns, end_ns
    order = np.lexsort((begin_ns, group))
    group, begin, end = group[order], begin_ns[order], end_ns[order]
    # Groups are laid one behind the other on one axis, so that one running maximum serves all.
    low, high = int(begin.min()), int(end.max())
    shift = group * (high - low + 1)
    reach = np.maximum.accumulate(end - low + shift)
    opens = np.concatenate(([True], begin[1:] - low + shift[1:] > reach[:-1]))
    first = np.flatnonzero(opens)
    last = np.concatenate((first[1:] - 1, [len(group) - 1]))
    return group[first], begin[first], reach[last] - shift[last] + low


def stale_ns(group: IntColumn, begin_ns: IntColumn, end_ns: IntColumn, groups: int) -> FloatColumn:
    """Return by group the time in which an input waits that will give an output (Sharaf 2007, eq. 4.1-4.3)."""
    which, begin, end = unions(group, begin_ns, end_ns)
    return np.bincount(which, weights=end - begin, minlength=groups).astype(np.float64)


_GAPS_MAX: Final = 128


class Staleness:
    """The measure of a union of intervals that come in order of their ends. Gaps are remembered as far back as bounded memory allows."""

    def __init__(self) -> None:
        self.stale_ns = 0
        self._end_ns = -(2**62)
        self._gaps: list[tuple[int, int]] = []

    def copy(self) -> Staleness:
        """Return one that measures on by itself."""
        found = Staleness()
        found.stale_ns, found._end_ns, found._gaps = self.stale_ns, self._end_ns, self._gaps[:]
        return found

    def add(self, start_ns: int, end_ns: int) -> None:
        """Add [start, end)."""
        if end_ns > self._end_ns:
            begin = max(start_ns, self._end_ns)
            if begin > self._end_ns:
                self._gaps.append((self._end_ns, begin))
                del self._gaps[:-_GAPS_MAX]
            self.stale_ns += end_ns - begin
            self._end_ns = end_ns
        self._fill(start_ns, end_ns)

    def add_many(self, starts_ns: NDArray[np.int64], ends_ns: NDArray[np.int64]) -> None:
        """Add disjoint intervals in order."""
        early = int(np.searchsorted(starts_ns, self._end_ns, "right"))
        for interval in zip(starts_ns[:early].tolist(), ends_ns[:early].tolist(), strict=True):
            self.add(*interval)
        starts_ns, ends_ns = starts_ns[early:], ends_ns[early:]
        if not len(starts_ns):
            return
        before = np.concatenate(([self._end_ns], ends_ns[:-1]))
        self._gaps.extend(zip(before[-_GAPS_MAX:].tolist(), starts_ns[-_GAPS_MAX:].tolist(), strict=True))
        del self._gaps[:-_GAPS_MAX]
        self.stale_ns += int((ends_ns - starts_ns).sum())
        self._end_ns = int(ends_ns[-1])

    def _fill(self, start_ns: int, end_ns: int) -> None:
        place = max(0, bisect_right(self._gaps, (start_ns, 0)) - 1)
        while place < len(self._gaps) and self._gaps[place][0] < end_ns:
            gap_start, gap_end = self._gaps[place]
            begin, end = max(gap_start, start_ns), min(gap_end, end_ns)
            if begin >= end:
                place += 1
                continue
            self.stale_ns += end - begin
            rest = [(low, high) for low, high in ((gap_start, begin), (end, gap_end)) if low < high]
            self._gaps[place : place + 1] = rest
            place += len(rest)
