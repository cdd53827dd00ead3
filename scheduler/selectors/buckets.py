"""Buckets (Carney 2005, 4.4.3): slope-slack at the price of the moves, not of the boxes.

Gradients are cut into g buckets, slacks into s; buckets are served by gradient, then slack, first in first out inside (all boxes in one
bucket are turns of round-robin, 4.4.3, and not equal ranks). A box moves when
its queue changes, and when time takes its slack over a bucket's edge: that moment is known beforehand and kept in a calendar queue, a
list of boxes per day of a fixed number of ns.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import numpy as np
from millstream.scheduler.contracts import UrgencyRanking
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.qos import farthest_ns, steepest
from millstream.scheduler.view import View

_DAYS_PER_BUCKET = 4
_ONE_BY_ONE_MAX = 24


class BucketsSelector:
    """`gradients` x `slacks` buckets and one more for what is too late."""

    def __init__(self, ranking: UrgencyRanking, gradients: int, slacks: int) -> None:
        if gradients < 1 or slacks < 1:
            raise PolicyError(f"policy options gradients={gradients} and slacks={slacks} must be at least 1")
        self.ranking = ranking
        self.gradients = gradients
        self.slacks = slacks
        self.evaluations = 0
        self.moves = 0
        self._late = gradients * slacks
        self._steepest = 1.0
        self._width_ns = 1.0
        self._day_ns = 1
        self._buckets: list[dict[int, None]] = []
        self._filled = 0
        self._bucket_of: list[int] = []
        self._calendar: dict[int, list[int]] = {}
        self._days: list[int] = []

    def reset(self, view: View, now_ns: int) -> None:
        """Sort everything anew."""
        tables = self.ranking.tables(view)[1]
        self._steepest = steepest(tables) or 1.0
        self._width_ns = farthest_ns(tables) / self.slacks
        self._day_ns = max(1, int(self._width_ns / _DAYS_PER_BUCKET))
        self._buckets = [{} for _ in range(self._late + 1)]
        self._filled = 0
        self._bucket_of = [-1] * view.units.count
        self._calendar, self._days = {}, []
        self._place(view, np.flatnonzero(view.units.available), now_ns)

    def changed(self, view: View, units: Sequence[int], now_ns: int) -> None:
        """Move these units to where they belong now."""
        present = []
        for unit in dict.fromkeys(units):
            if view.units.available_at[unit]:
                present.append(unit)
            else:
                self._drop(unit)
        self._place_these(view, present, now_ns)

    def _place_these(self, view: View, units: list[int], now_ns: int) -> None:
        """Place a few units one by one, which costs less than a pass over columns, and many in one pass."""
        if len(units) > _ONE_BY_ONE_MAX or not units or self.ranking.urgency_one(view, units[0], now_ns) is None:
            self._place(view, np.array(units, dtype=np.int64), now_ns)
            return
        width, slacks, gradients, steepest_ = self._width_ns, self.slacks, self.gradients, self._steepest
        self.evaluations += len(units)
        for unit in units:
            found = self.ranking.urgency_one(view, unit, now_ns)
            assert found is not None
            utility, slack = found
            step = slacks - 1 if slack == math.inf else min(max(math.floor(slack / width), 0), slacks - 1)
            if utility < 0.0:
                self._put(unit, self._late)
                continue
            gradient = min(max(math.floor((1.0 - utility / steepest_) * gradients), 0), gradients - 1)
            self._put(unit, gradient * slacks + step)
            if slack != math.inf:
                self._note(unit, now_ns + int(slack - step * width) + 1)

    def _put(self, unit: int, bucket: int) -> None:
        if self._bucket_of[unit] != bucket:
            self._drop(unit)
            self._buckets[bucket][unit] = None
            self._filled |= 1 << bucket
            self._bucket_of[unit] = bucket
            self.moves += 1

    def _place(self, view: View, units: np.ndarray[tuple[int], np.dtype[np.int64]], now_ns: int) -> None:
        if not len(units):
            return
        utility, slack = self.ranking.urgency(view.only(units), now_ns)
        self.evaluations += len(units)
        steps = np.clip(np.floor(slack / self._width_ns), 0, self.slacks - 1)
        gradient = np.clip(np.floor((1.0 - utility / self._steepest) * self.gradients), 0, self.gradients - 1)
        buckets = np.where(utility < 0.0, self._late, gradient * self.slacks + steps)
        # The edge below the present slack, or the critical point itself when the slack is in the last bucket before it.
        left = np.where(np.isfinite(slack), slack - steps * self._width_ns, np.inf)
        for unit, bucket, due in zip(units.tolist(), buckets.astype(np.int64).tolist(), left.tolist(), strict=True):
            self._put(unit, bucket)
            if bucket != self._late and due != np.inf:
                self._note(unit, now_ns + int(due) + 1)

    def _note(self, unit: int, at_ns: int) -> None:
        day = at_ns // self._day_ns
        boxes = self._calendar.get(day)
        if boxes is None:
            self._calendar[day] = [unit]
            heapq.heappush(self._days, day)
        else:
            boxes.append(unit)

    def _drop(self, unit: int) -> None:
        bucket = self._bucket_of[unit]
        if bucket >= 0:
            del self._buckets[bucket][unit]
            if not self._buckets[bucket]:
                self._filled &= ~(1 << bucket)
            self._bucket_of[unit] = -1

    def _turn_calendar(self, view: View, now_ns: int) -> None:
        today = now_ns // self._day_ns
        due: dict[int, None] = {}
        while self._days and self._days[0] < today:
            due.update(dict.fromkeys(self._calendar.pop(heapq.heappop(self._days))))
        self._place_these(view, [unit for unit in due if self._bucket_of[unit] >= 0], now_ns)

    def pick(self, view: View, now_ns: int, count: int) -> list[int]:
        """Return units from the first buckets that hold any."""
        self._turn_calendar(view, now_ns)
        picked: list[int] = []
        while self._filled and len(picked) < count:
            bucket = (self._filled & -self._filled).bit_length() - 1
            unit = next(iter(self._buckets[bucket]))
            self._drop(unit)
            picked.append(unit)
        return picked
