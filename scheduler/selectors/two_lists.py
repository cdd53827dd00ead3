"""Two lists, of what can meet its deadline and of what is late (Sharaf 2007, 3.5.2): for EDF-HR.

    A  a heap of (deadline, head, unit)
    B  the late units in the order of their rates (`rank_order.py`)
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
from millstream.scheduler.selectors.rank_order import RankOrder
from millstream.scheduler.view import View

_Entry = tuple[float, float, int]

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
        self._timely_heap: list[_Entry] = []
        self._entered: list[_Entry | None] = []
        self._moments: list[tuple[float, int]] = []
        self._noted: list[float] = []
        self._late = RankOrder(np.zeros(0))

    def reset(self, view: View, now_ns: int) -> None:
        """Take costs and rates anew."""
        count = view.units.count
        whole = view.only(np.arange(count))
        self._cost = whole.cost_to_end_ns.tolist()
        self._slides = self.ranking.slides_and_deadlines(view)
        self._late = RankOrder(whole.output_per_tuple / whole.cost_to_end_ns)
        self._deadline, self._work = [_NEVER] * count, [_NEVER] * count
        self._timely = bytearray(count)
        self._timely_heap, self._entered = [], [None] * count
        self._moments, self._noted = [], [_NEVER] * count
        self.changed(view, np.flatnonzero(view.units.available).tolist(), now_ns)

    def changed(self, view: View, units: Sequence[int], now_ns: int) -> None:
        """Put these units where they belong now."""
        available, rows_at, head_at = view.units.available_at, view.units.rows_at, view.units.head_at
        slides, costs, deadlines, works, timely = self._slides, self._cost, self._deadline, self._work, self._timely
        late, entered, noted = self._late, self._entered, self._noted
        for unit in units:
            if not available[unit]:
                timely[unit] = 0
                late.drop(unit)
                continue
            period, relative = slides[unit]
            head = float(head_at[unit])
            deadline = deadlines[unit] = (math.floor(head / period) + 1.0) * period if period > 0.0 else head + relative
            work = works[unit] = rows_at[unit] * costs[unit]
            if now_ns + work <= deadline:
                timely[unit] = 1
                late.drop(unit)
                entry = (deadline, head, unit)
                if entered[unit] != entry:
                    entered[unit] = entry
                    heapq.heappush(self._timely_heap, entry)
                moment = deadline - work
                if moment < noted[unit]:  # a later one is found when the one that is noted comes up
                    noted[unit] = moment
                    heapq.heappush(self._moments, (moment, unit))
            else:
                timely[unit] = 0
                late.put(unit, head_at[unit])
        self.moves += len(units)

    def _let_pass(self, view: View, now_ns: int) -> None:
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
                self._timely[unit] = 0
                self._late.put(unit, view.units.head_at[unit])

    def _nearest(self) -> int:
        """Return the unit of A with the nearest deadline, -1 for none."""
        heap, timely, entered = self._timely_heap, self._timely, self._entered
        while heap:
            entry = heap[0]
            unit = entry[2]
            if timely[unit] and entered[unit] == entry:
                return unit
            heapq.heappop(heap)
            if entered[unit] == entry:
                entered[unit] = None
        return -1

    def pick(self, view: View, now_ns: int, count: int) -> list[int]:
        """Return the best available units."""
        if count > 1:
            return self._pick_many(view, now_ns, count)
        if not self._cost:
            return []
        self.evaluations += 2
        if self._moments and self._moments[0][0] <= now_ns + _ROUNDING_NS:
            self._let_pass(view, now_ns)
        first, chosen = self._nearest(), self._late.first()
        if chosen >= 0:
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
            self._let_pass(view, now_ns)
        available = view.units.available_at
        timely, late = self._first_timely(available, count), [unit for unit in self._late.listed() if available[unit]][:count]
        self.evaluations += len(timely) + len(late)
        if timely and late and now_ns + self._work[late[0]] < self._deadline[timely[0]]:
            timely.insert(0, late.pop(0))
        return (timely + late)[:count]

    def _first_timely(self, available: memoryview[int], count: int) -> list[int]:
        """Return the first available units of A; they stay in its heap, what is outdated goes."""
        heap, timely, entered = self._timely_heap, self._timely, self._entered
        seen: dict[int, _Entry] = {}
        found: list[int] = []
        while heap and len(found) < count:
            entry = heapq.heappop(heap)
            unit = entry[2]
            if timely[unit] and entered[unit] == entry:
                if unit not in seen and available[unit]:
                    found.append(unit)
                seen[unit] = entry
            elif entered[unit] == entry:
                entered[unit] = None
        for entry in seen.values():
            heapq.heappush(heap, entry)
        return found
