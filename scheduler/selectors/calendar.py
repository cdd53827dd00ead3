"""Calendar queue: for ranks that depend on how many tuples wait, and on nothing else that moves (Sharaf 2007, 4.4.1).

Buckets stand for classes of priorities and are looked at from the greatest on: sixteen to a doubling of the rank, 64 doublings; what is
smaller still shares the last. Inside a bucket a heap of (−rank, head, unit) keeps the order, so that it picks what a heap or a scan picks.

What a decision costs follows the units whose queues moved. Their ranks are computed together, each at the number of tuples that waits
now. Where a queue moves by a tuple at a time that would be one call for each, so the ranks of a unit at 1, 2, 3 … tuples are computed
ahead and looked up: of short queues at once, of longer ones when they grew from there or had many lengths in turn, never of very long ones.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import numpy as np
from millstream.scheduler.contracts import QueueRanking
from millstream.scheduler.view import View

_Entry = tuple[float, int, int]

_PER_DOUBLING = 16
_DOUBLINGS = 64
_LAST = _PER_DOUBLING * _DOUBLINGS - 1
_FIRST_ROWS = 16
_ALONE_MAX = 32  # lengths of a long queue that are ranked one by one before all shorter ones are
_LEARNT_MAX = 16  # units of which that is done at a time: a decision must not wait for thousands
_KEPT_MAX = 4_096  # ranks kept of one unit: a queue may be millions long


class CalendarSelector:
    """Buckets of heaps with outdated entries; a bucket is made anew when these outnumber the others."""

    def __init__(self, ranking: QueueRanking) -> None:
        self.ranking = ranking
        self.evaluations = 0
        self.moves = 0
        self._ranks: list[list[float]] = []
        self._alone: list[dict[int, float]] = []
        self._listed: list[_Entry | None] = []
        self._place: list[int] = []
        self._buckets: list[list[_Entry]] = []
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
        self._alone = [{} for _ in range(count)]
        self._listed = [None] * count
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

    def changed(self, view: View, units: Sequence[int], now_ns: int) -> None:
        """Move these units to the bucket of their present rank."""
        available, rows_at, heads = view.units.available_at, view.units.rows_at, view.units.head_at
        ranks, alone, places = self._ranks, self._alone, self._place
        unknown: list[int] = []
        for unit in units:
            if available[unit]:
                rows, known = rows_at[unit] or 1, ranks[unit]
                if rows <= len(known):
                    self._enter((-known[rows - 1], heads[unit], unit))
                elif (rank := alone[unit].get(rows)) is not None:
                    self._enter((-rank, heads[unit], unit))
                else:
                    unknown.append(unit)
            elif places[unit] >= 0:
                self._leave(unit)
        if unknown:
            self._rank_unknown(view, unknown)

    def _rank_unknown(self, view: View, units: list[int]) -> None:
        """Enter units at lengths of their queues of which no rank is known, and learn what will be asked for next."""
        rows_at, heads, ranks, alone = view.units.rows_at, view.units.head_at, self._ranks, self._alone
        to_learn: dict[int, int] = {}  # and up to how many tuples
        once: list[int] = []
        for unit in units:
            rows, known = rows_at[unit], len(ranks[unit])
            near = rows <= max(_FIRST_ROWS, 2 * known)
            if rows <= _KEPT_MAX and (near or (len(alone[unit]) >= _ALONE_MAX and len(to_learn) < _LEARNT_MAX)):
                to_learn[unit] = min(_KEPT_MAX, max(_FIRST_ROWS, 2 * known, rows))
            else:
                if len(alone[unit]) >= _KEPT_MAX:
                    alone[unit].clear()
                once.append(unit)
        if to_learn:
            self._learn(view, to_learn)
            for unit in to_learn:
                self._enter((-ranks[unit][(rows_at[unit] or 1) - 1], heads[unit], unit))
        if once:
            self.evaluations += len(once)
            index = np.array(once, dtype=np.int64)
            for unit, rank in zip(once, self.ranking.rank_at(view.only(index), view.units.rows[index]).tolist(), strict=True):
                alone[unit][rows_at[unit]] = rank
                self._enter((-rank, heads[unit], unit))

    def _learn(self, view: View, last_of: dict[int, int]) -> None:
        """Compute the ranks of units up to so many tuples, all together."""
        known = [len(self._ranks[unit]) for unit in last_of]
        numbers = [np.arange(first + 1, last + 1) for first, last in zip(known, last_of.values(), strict=True)]
        units = np.repeat(list(last_of), [len(one) for one in numbers])
        ranks = self.ranking.rank_at(view.only(units), np.concatenate(numbers)).tolist()
        self.evaluations += len(ranks)
        start = 0
        for unit, one in zip(last_of, numbers, strict=True):
            self._ranks[unit] += ranks[start : start + len(one)]
            start += len(one)

    def _enter(self, entry: _Entry) -> None:
        unit = entry[2]
        if self._listed[unit] == entry:
            return
        if self._place[unit] >= 0:
            self._leave(unit)
        place = self._bucket(-entry[0])
        heapq.heappush(self._buckets[place], entry)
        self._live[place] += 1
        if self._live[place] == 1:
            self._filled |= 1 << place
        self._listed[unit], self._place[unit] = entry, place
        self.moves += 1

    def _leave(self, unit: int) -> None:
        place = self._place[unit]
        self._listed[unit], self._place[unit] = None, -1
        left = self._live[place] = self._live[place] - 1
        bucket = self._buckets[place]
        if not left:
            bucket.clear()
            self._filled &= ~(1 << place)
        elif len(bucket) > 2 * left + _FIRST_ROWS:
            bucket[:] = {entry for entry in bucket if self._listed[entry[2]] == entry}
            heapq.heapify(bucket)

    def pick(self, view: View, now_ns: int, count: int) -> list[int]:
        """Return the best available units."""
        available, listed = view.units.available_at, self._listed
        picked: list[int] = []
        while self._filled and len(picked) < count:
            bucket = self._buckets[self._filled.bit_length() - 1]
            entry = bucket[0]
            unit = entry[2]
            if listed[unit] != entry:
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
