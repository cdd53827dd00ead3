"""Shortest remaining processing time, SRPT (Sharaf 2007, 3.2).

    rank(x) = 1 / T

    T  ideal time of an emitted tuple of the query below x

Blind to selectivity: the yardstick that shows what knowing it brings. Moves with time: no.
"""

from __future__ import annotations

from millstream.scheduler.contracts import FloatColumn, RankingBase
from millstream.scheduler.view import View


class ShortestRemainingProcessingTime(RankingBase):
    """The query of the least ideal time."""

    def rank(self, view: View, now_ns: int) -> FloatColumn:
        """Return 1 / T."""
        return 1.0 / view.ideal_time_ns
