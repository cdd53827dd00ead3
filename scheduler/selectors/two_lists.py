"""Two lists, of what can meet its deadline and of what is late (Sharaf 2007, 3.5.2): for EDF-HR.

    A  a heap of (deadline, unit)
    B  a row of bytes in the order of the rates, 1 where the unit is late
    a heap of (last moment, unit): when a unit of A turns late unless its queue moves

A unit goes from A to B when its last moment has passed, and back only when its queue moves, so a decision looks at the heads of both lists
and not at the units. Outdated entries of the heaps are dropped when they come up. It picks what a scan picks.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import numpy as np
from millstream.scheduler.policies.rate_deadline_hybrid import RateDeadlineHybrid
from millstream.scheduler.view import View

_NEVER = math.inf
_ROUNDING_NS = 1.0
"""The last moment is a difference and the condition a sum: where they might disagree the condition itself is asked."""


class TwoListsSelector:
    """Keeps deadline and time to work off of every unit that is available."""

    def __init__(self, ranking: RateDeadlineHybrid) -> None:
        self.ranking = ranking
        self.evaluations = 0
        self.moves = 0
        self._cost: list[float] = []
        self._slides: list[tuple[float, float]] = []
        self._deadline: list[float] = []
        self._work: list[float] = []
        self._timely = bytearray()
        self._timely_heap: list[tuple[float, int]] = []
        self._entered: list[float] = []
        self._moments: list[tuple[float, int]] = []
        self._noted: list[float] = []
        self._late = bytearray()
        self._by_rate: list[int] = []
        self._place: list[int] = []

    def reset(self, view: View, now_ns: int) -> None:
        """Take costs and rates anew."""
        count = view.units.count
        whole = view.only(np.arange(count))
        self._cost = whole.cost_to_end_ns.tolist()
        self._slides = self.ranking.slides_and_deadlines(view)
        order = np.lexsort((np.arange(count), -(whole.output_per_tuple / whole.cost_to_end_ns)))
        self._by_rate, self._place = order.tolist(), np.argsort(order).tolist()
        self._deadline, self._work = [_NEVER] * count, [_NEVER] * count
        self._timely, self._late = bytearray(count), bytearray(count)
        self._timely_heap, self._entered = [], [_NEVER] * count
        self._moments, self._noted = [], [_NEVER] * count
        self.changed(view, np.flatnonzero(view.units.available).tolist(), now_ns)

    def changed(self, view: View, units: Sequence[int], now_ns: int) -> None:
        """Put these units where they belong now."""
        available, rows_at, head_at = view.units.available_at, view.units.rows_at, view.units.head_at
        slides, costs, deadlines, works, timely = self._slides, self._cost, self._deadline, self._work, self._timely
        late, place, entered, noted = self._late, self._place, self._entered, self._noted
        for unit in units:
            if not available[unit]:
                timely[unit] = late[place[unit]] = 0
                continue
            period, relative = slides[unit]
            head = float(head_at[unit])
            deadline = deadlines[unit] = (math.floor(head / period) + 1.0) * period if period > 0.0 else head + relative
            work = works[unit] = rows_at[unit] * costs[unit]
            if now_ns + work <= deadline:
                timely[unit] = 1
                late[place[unit]] = 0
                if entered[unit] != deadline:
                    entered[unit] = deadline
                    heapq.heappush(self._timely_heap, (deadline, unit))
                moment = deadline - work
                if moment < noted[unit]:  # a later one is found when the one that is noted comes up
                    noted[unit] = moment
                    heapq.heappush(self._moments, (moment, unit))
            else:
                timely[unit] = 0
                late[place[unit]] = 1
        self.moves += len(units)

    def _let_pass(self, now_ns: int) -> None:
        """Move what has turned late."""
        moments = self._moments
        while moments and moments[0][0] <= now_ns + _ROUNDING_NS:
            moment, unit = heapq.heappop(moments)
            if self._noted[unit] != moment:
                continue
            self._noted[unit] = _NEVER
            if not self._timely[unit]:
                continue
            deadline, work = self._deadline[unit], self._work[unit]
            if now_ns + work <= deadline:
                self._noted[unit] = following = max(deadline - work, now_ns + 1.5 * _ROUNDING_NS)
                heapq.heappush(moments, (following, unit))
            else:
                self._timely[unit], self._late[self._place[unit]] = 0, 1

    def _nearest(self) -> int:
        """Return the unit of A with the nearest deadline, -1 for none."""
        heap, timely, deadlines = self._timely_heap, self._timely, self._deadline
        while heap:
            deadline, unit = heap[0]
            if timely[unit] and deadlines[unit] == deadline:
                return unit
            heapq.heappop(heap)
            if self._entered[unit] == deadline:
                self._entered[unit] = _NEVER
        return -1

    def pick(self, view: View, now_ns: int, count: int) -> list[int]:
        """Return the best available units."""
        if count > 1:
            return self._pick_many(view, now_ns, count)
        if not self._cost:
            return []
        self.evaluations += 2
        if self._moments and self._moments[0][0] <= now_ns + _ROUNDING_NS:
            self._let_pass(now_ns)
        first, place = -1, self._late.find(1)
        if self._timely_heap:
            deadline, first = self._timely_heap[0]
            if not self._timely[first] or self._deadline[first] != deadline:
                first = self._nearest()
        if place >= 0:
            chosen = self._by_rate[place]
            if first >= 0 and now_ns + self._work[chosen] >= self._deadline[first]:
                chosen = first
        elif first >= 0:
            chosen = first
        else:
            return []
        return [chosen] if view.units.available_at[chosen] else self._pick_many(view, now_ns, 1)

    def _pick_many(self, view: View, now_ns: int, count: int) -> list[int]:
        """Return the heads of A and B, then A and then B in their order, as far as they are available and asked for."""
        if self._moments and self._moments[0][0] <= now_ns + _ROUNDING_NS:
            self._let_pass(now_ns)
        available = view.units.available_at
        timely, late = self._first_timely(available, count), self._first_late(available, count)
        self.evaluations += len(timely) + len(late)
        if timely and late and now_ns + self._work[late[0]] < self._deadline[timely[0]]:
            timely.insert(0, late.pop(0))
        return (timely + late)[:count]

    def _first_timely(self, available: memoryview[int], count: int) -> list[int]:
        """Return the first available units of A; they stay in its heap, what is outdated goes."""
        heap, timely, deadlines = self._timely_heap, self._timely, self._deadline
        seen: dict[int, float] = {}
        found: list[int] = []
        while heap and len(found) < count:
            deadline, unit = heapq.heappop(heap)
            if timely[unit] and deadlines[unit] == deadline:
                if unit not in seen and available[unit]:
                    found.append(unit)
                seen[unit] = deadline
            elif self._entered[unit] == deadline:
                self._entered[unit] = _NEVER
        for unit, deadline in seen.items():
            heapq.heappush(heap, (deadline, unit))
        return found

    def _first_late(self, available: memoryview[int], count: int) -> list[int]:
        """Return the first available units of B."""
        late, by_rate = self._late, self._by_rate
        found: list[int] = []
        place = late.find(1)
        while place >= 0 and len(found) < count:
            unit = by_rate[place]
            if available[unit]:
                found.append(unit)
            place = late.find(1, place + 1)
        return found
