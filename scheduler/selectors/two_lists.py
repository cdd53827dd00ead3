"""Two lists, of what can meet its deadline and of what is late (Sharaf 2007, 3.5.2): for EDF-HR.

What the rank of a unit follows from, its deadline and the time to work off its queue, is kept in columns and renewed where a queue moved.
A pick compares the second with the first, takes the nearest deadline and the greatest rate, and decides between these two. It picks what
a scan picks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.scheduler.contracts import FloatColumn
from millstream.scheduler.policies.rate_deadline_hybrid import RateDeadlineHybrid
from millstream.scheduler.view import View
from numpy.typing import NDArray

_NEVER = np.inf


class TwoListsSelector:
    """Keeps deadline, time to work off and rate of every unit; one that is not available has no deadline and no rate."""

    def __init__(self, ranking: RateDeadlineHybrid) -> None:
        self.ranking = ranking
        self.evaluations = 0
        self.moves = 0
        self._cost: list[float] = []
        self._rates: list[float] = []
        self._deadline: FloatColumn = np.zeros(0)
        self._work: FloatColumn = np.zeros(0)
        self._rate: FloatColumn = np.zeros(0)
        self._end: FloatColumn = np.zeros(0)
        self._timely: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)

    def reset(self, view: View, now_ns: int) -> None:
        """Take costs and rates anew."""
        count = view.units.count
        whole = view.only(np.arange(count))
        self._cost = whole.cost_to_end_ns.tolist()
        self._rates = (whole.output_per_tuple / whole.cost_to_end_ns).tolist()
        self._deadline, self._work = np.full(count, _NEVER), np.full(count, _NEVER)
        self._rate, self._end = np.full(count, -_NEVER), np.empty(count)
        self._timely = np.empty(count, dtype=np.bool_)
        self.changed(view, np.flatnonzero(view.units.available).tolist(), now_ns)

    def changed(self, view: View, units: Sequence[int], now_ns: int) -> None:
        """Renew these units."""
        available, rows_at, due = view.units.available_at, view.units.rows_at, self.ranking.deadline_one
        deadline, work, rate = self._deadline, self._work, self._rate
        for unit in units:
            if available[unit]:
                deadline[unit] = due(view, unit)
                work[unit] = rows_at[unit] * self._cost[unit]
                rate[unit] = self._rates[unit]
            else:
                deadline[unit], work[unit], rate[unit] = _NEVER, _NEVER, -_NEVER
        self.moves += len(units)

    def pick(self, view: View, now_ns: int, count: int) -> list[int]:
        """Return the best available units."""
        if count > 1:
            return self._pick_many(view, now_ns, count)
        if not len(self._rate):
            return []
        self.evaluations += 2
        end, timely = self._end, self._timely
        np.add(self._work, now_ns, out=end)
        np.less_equal(end, self._deadline, out=timely)
        # What is not available has an endless deadline and endless work: it would look timely, and never is the nearest.
        first = int(np.where(timely, self._deadline, _NEVER).argmin())
        late = int(np.where(timely, -_NEVER, self._rate).argmax())
        has_first, has_late = self._deadline[first] < _NEVER and bool(timely[first]), self._rate[late] > -_NEVER and not timely[late]
        if has_late and (not has_first or end[late] < self._deadline[first]):
            chosen = late
        elif has_first:
            chosen = first
        else:
            return []
        return [chosen] if view.units.available_at[chosen] else self._pick_many(view, now_ns, 1)

    def _pick_many(self, view: View, now_ns: int, count: int) -> list[int]:
        candidates = np.flatnonzero(view.units.available)
        self.evaluations += len(candidates)
        ranks = self.ranking.rank(view.only(candidates), now_ns)
        picked: list[int] = candidates[np.lexsort((candidates, -ranks))[:count]].tolist()
        return picked
