"""Calendar queue: for ranks that depend on how many tuples wait, and on nothing else that moves (Sharaf 2007, 4.4.1).

Buckets stand for classes of priorities and are looked at from the greatest on: sixteen to a doubling of the rank, 64 doublings; what is
smaller still shares the last. Inside a bucket a heap of (−rank, unit) keeps the order, so that it picks what a heap or a scan picks. The
rank of a unit at n tuples is computed once and looked up after that, for queues that grow tuple by tuple; where a queue is long already, or
jumps, only the rank it has is computed. So what a decision costs follows the units whose queues moved, never how long these are.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import numpy as np
from millstream.scheduler.contracts import QueueRanking
from millstream.scheduler.view import View

_PER_DOUBLING = 16
_DOUBLINGS = 64
_LAST = _PER_DOUBLING * _DOUBLINGS - 1
_FIRST_ROWS = 16
_LOOKED_UP_ROWS = 4096  # of one unit at most


class CalendarSelector:
    """Buckets of heaps with outdated entries; a bucket is made anew when these outnumber the others."""

    def __init__(self, ranking: QueueRanking) -> None:
        self.ranking = ranking
        self.evaluations = 0
        self.moves = 0
        self._ranks: list[list[float]] = []
        self._bucket_of: list[list[int]] = []
        self._listed: list[float] = []
        self._place: list[int] = []
        self._buckets: list[list[tuple[float, int]]] = []
        self._live: list[int] = []
        self._filled = 0
        self._top = 0

    def reset(self, view: View, now_ns: int) -> None:
        """Forget all ranks and enter what is available."""
        count = view.units.count
        ones = np.maximum(self.ranking.rank_at(view, np.ones(count, dtype=np.int64)), 0.0)
        # A longer queue has no greater rank, so the greatest rank of one tuple is the greatest of all.
        self._top = math.frexp(float(ones.max(initial=0.0)))[1]
        self._ranks = [[] for _ in range(count)]
        self._bucket_of = [[] for _ in range(count)]
        self._listed = [-1.0] * count
        self._place = [-1] * count
        self._buckets = [[] for _ in range(_LAST + 1)]
        self._live = [0] * (_LAST + 1)
        self._filled = 0
        self.changed(view, np.flatnonzero(view.units.available).tolist(), now_ns)

    def _bucket(self, rank: float) -> int:
        """Return the bucket of a rank; the greatest ranks are in the greatest bucket."""
        if rank <= 0.0:
            return 0
        mantissa, exponent = math.frexp(rank)
        place = (exponent - self._top + _DOUBLINGS - 1) * _PER_DOUBLING + int(mantissa * 2 * _PER_DOUBLING) - _PER_DOUBLING
        return min(_LAST, max(0, place))

    def _learn(self, view: View, unit: int) -> None:
        """Compute the ranks of a unit up to twice as many tuples as are known."""
        known = len(self._ranks[unit])
        numbers = np.arange(known + 1, max(_FIRST_ROWS, 2 * known) + 1)
        ranks = self.ranking.rank_at(view.only(np.full(len(numbers), unit)), numbers).tolist()
        self._ranks[unit].extend(ranks)
        self._bucket_of[unit].extend(map(self._bucket, ranks))
        self.evaluations += len(numbers)

    def _rank(self, view: View, unit: int, rows: int) -> float:
        self.evaluations += 1
        return float(self.ranking.rank_at(view.only(np.array([unit])), np.array([rows]))[0])

    def changed(self, view: View, units: Sequence[int], now_ns: int) -> None:
        """Move these units to the bucket of their present rank."""
        available, rows_at, listed, places, live = view.units.available_at, view.units.rows_at, self._listed, self._place, self._live
        for unit in units:
            if not available[unit]:
                if places[unit] >= 0:
                    self._leave(unit)
                continue
            rows = rows_at[unit] or 1
            ranks = self._ranks[unit]
            if rows > len(ranks) and rows <= min(_LOOKED_UP_ROWS, max(_FIRST_ROWS, 2 * len(ranks))):
                self._learn(view, unit)
            if rows <= len(ranks):
                rank, place = ranks[rows - 1], self._bucket_of[unit][rows - 1]
            else:
                rank = self._rank(view, unit, rows)
                place = self._bucket(rank)
            if listed[unit] == rank:
                continue
            if places[unit] >= 0:
                self._leave(unit)
            heapq.heappush(self._buckets[place], (-rank, unit))
            live[place] += 1
            if live[place] == 1:
                self._filled |= 1 << place
            listed[unit], places[unit] = rank, place
            self.moves += 1

    def _leave(self, unit: int) -> None:
        place = self._place[unit]
        self._listed[unit], self._place[unit] = -1.0, -1
        left = self._live[place] = self._live[place] - 1
        bucket = self._buckets[place]
        if not left:
            bucket.clear()
            self._filled &= ~(1 << place)
        elif len(bucket) > 2 * left + _FIRST_ROWS:
            bucket[:] = {entry for entry in bucket if self._listed[entry[1]] == -entry[0]}
            heapq.heapify(bucket)

    def pick(self, view: View, now_ns: int, count: int) -> list[int]:
        """Return the best available units."""
        available, listed = view.units.available_at, self._listed
        picked: list[int] = []
        while self._filled and len(picked) < count:
            bucket = self._buckets[self._filled.bit_length() - 1]
            rank, unit = bucket[0]
            if listed[unit] != -rank:
                heapq.heappop(bucket)
            elif not available[unit]:
                # Locked since it was entered; it is heard of again when it is let go.
                self._leave(unit)
            elif count == 1:
                # It stays where it is: what happens to its queue is heard of.
                return [unit]
            else:
                picked.append(unit)
                self._leave(unit)
        return picked
