"""Earliest deadline first, EDF, over windowed aggregates (Sharaf 2007, 3.5).

    rank(q) = -D(q)

    D(q)  deadline of the oldest tuple that waits before query q: the next SLIDE boundary after its arrival; for a query without SLIDE
          its arrival plus the query's deadline

Aim: small tardiness. Moves with the queue, not with time.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from millstream.scheduler.contracts import FloatColumn
from millstream.scheduler.policies.base import RankingBase
from millstream.scheduler.view import View


def deadlines_ns(view: View) -> FloatColumn:
    """Return D of each unit, in ns."""
    head, period = view.head_ns.astype(np.float64), view.period_ns
    with np.errstate(divide="ignore", invalid="ignore"):
        boundary = (np.floor(head / period) + 1.0) * period
    return np.where(period > 0.0, boundary, head + view.deadline_ns)


class EarliestDeadlineFirst(RankingBase):
    """The nearest deadline."""

    moves_with_queue: ClassVar[bool] = True

    def rank(self, view: View, now_ns: int) -> FloatColumn:
        """Return -D."""
        return -deadlines_ns(view)
