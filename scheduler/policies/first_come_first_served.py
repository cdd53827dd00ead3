"""First come, first served (Sharaf 2007, 3.2).

    rank(x) = W(x) = now - A(x)

    A(x)  arrival in the system of the tuple at the head of x's queue

Aim: small maximum response time. As every W grows at the same pace, -A(x) orders the same and needs no clock.
Moves with time: no. Moves with the queue: yes.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from millstream.scheduler.contracts import FloatColumn, RankingBase
from millstream.scheduler.view import View


class FirstComeFirstServed(RankingBase):
    """The oldest head first."""

    moves_with_queue: ClassVar[bool] = True

    def rank(self, view: View, now_ns: int) -> FloatColumn:
        """Return -A(x)."""
        return -view.head_ns.astype("float64")

    def rank_one(self, view: View, unit: int) -> float:
        """Return -A(x) of one unit."""
        return -float(view.units.head_at[unit])

    def fixed_part(self, view: View) -> FloatColumn:
        """Return 1: W by itself is the rank."""
        return np.ones(len(view.index))
