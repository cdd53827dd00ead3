"""Columns of outputs and what follows from them: the one place where response time, slowdown, lateness and staleness are computed.

`measures` feeds it live and simulated runs alike, some dozens of outputs at a time; `simulation.outcome` feeds it whole runs. Columns have
an entry an output, times are in ns.
"""

from __future__ import annotations

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
