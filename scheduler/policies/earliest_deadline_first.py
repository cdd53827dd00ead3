"""Earliest deadline first, EDF, over windowed aggregates (Sharaf 2007, 3.5).

    rank(q) = -D(q)

    D(q)  deadline of the oldest tuple that waits before query q: the next SLIDE boundary after its arrival; for a query without SLIDE
          its arrival plus the query's deadline

Aim: small tardiness. Moves with the queue, not with time.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from millstream.scheduler.contracts import FloatColumn, RankingBase
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

    def rank_one(self, view: View, unit: int) -> float:
        """Return -D of one unit, by the same operations on single numbers."""
        return -deadline_one_ns(view, unit)


def deadline_one_ns(view: View, unit: int) -> float:
    """Return D of one unit, in ns."""
    known = view.shared.get("slides and deadlines")
    period: float
    deadline: float
    period, deadline = known[unit] if isinstance(known, list) else slides_and_deadlines(view)[unit]
    head = float(view.units.head_at[unit])
    return (math.floor(head / period) + 1.0) * period if period > 0.0 else head + deadline


def slides_and_deadlines(view: View) -> list[tuple[float, float]]:
    """Return of every unit what D follows from: its SLIDE (0 for none) and its query's deadline, in ns."""
    known = view.shared.get("slides and deadlines")
    if not isinstance(known, list):
        units = view.only(np.arange(view.units.count))
        known = view.shared["slides and deadlines"] = list(zip(units.period_ns.tolist(), units.deadline_ns.tolist(), strict=True))
    return known
