"""Longest stretch first, LSF (Sharaf 2007, 3.4.1; Acharya and Muthukrishnan).

    rank(x) = W(x) / T

    W(x)  time the tuple at the head of x's queue has waited in the system
    T     ideal time of an emitted tuple of the query below x

Aim: small maximum slowdown. Moves with time: yes. Factored: 1/T times W.
"""

from __future__ import annotations

from typing import ClassVar

from millstream.scheduler.contracts import FloatColumn, RankingBase
from millstream.scheduler.view import View


class LongestStretchFirst(RankingBase):
    """The greatest slowdown so far."""

    moves_with_time: ClassVar[bool] = True
    moves_with_queue: ClassVar[bool] = True

    def fixed_part(self, view: View) -> FloatColumn:
        """Return 1 / T."""
        return 1.0 / view.ideal_time_ns

    def rank(self, view: View, now_ns: int) -> FloatColumn:
        """Return W / T."""
        return self.fixed_part(view) * view.wait_ns(now_ns)
