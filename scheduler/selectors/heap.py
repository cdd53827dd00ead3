"""Heap: for ranks that do not drift with time. A unit is put in when it becomes available and taken out when it is picked."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from millstream.scheduler.contracts import FloatColumn, Ranking
from millstream.scheduler.view import View

_Entry = tuple[float, int, int]

# Up to so many units are ranked one by one where the ranking can; above it one pass over columns is quicker.
_ONE_BY_ONE_MAX = 16


@runtime_checkable
class SingleRanking(Protocol):
    """A ranking that can also rank one unit by itself, without a column."""

    def rank_one(self, view: View, unit: int) -> float:
        """Return the rank that the column would hold."""
        ...


class HeapSelector:
    """A heap of (−rank, head, unit) whose outdated entries are dropped when they come up.

    `head` is 0 unless the ranking decides ties by the oldest tuple.
    """

    def __init__(self, ranking: Ranking) -> None:
        self.ranking = ranking
        self._single = ranking if isinstance(ranking, SingleRanking) else None
        self.evaluations = 0
        self.moves = 0
        self._heap: list[_Entry] = []
        self._present: list[_Entry | None] = []
        self._ranks: FloatColumn = np.zeros(0)
        self._rank_at: memoryview[float] = memoryview(self._ranks)  # type: ignore[arg-type]
        self._keyed = ranking.moves_with_queue or ranking.oldest_first
        self._entries: list[_Entry] = []

    def reset(self, view: View, now_ns: int) -> None:
        """Rank everything anew and heap what is available."""
        self._ranks = np.ascontiguousarray(self.ranking.rank(view, now_ns), dtype=np.float64).copy()
        self._rank_at = memoryview(self._ranks)  # type: ignore[arg-type]
        self.evaluations += view.units.count
        self._present = [None] * view.units.count
        self._heap = []
        # Where nothing but an estimate changes a key, the entries are made once.
        self._entries = [] if self._keyed else [(-rank, 0, unit) for unit, rank in enumerate(self._ranks.tolist())]
        for unit in np.flatnonzero(view.units.available).tolist():
            entry = self._present[unit] = self._entry(view, unit)
            self._heap.append(entry)
        heapq.heapify(self._heap)

    def _entry(self, view: View, unit: int) -> _Entry:
        if not self._keyed:
            return self._entries[unit]
        return (-self._rank_at[unit], view.units.head_at[unit] if self.ranking.oldest_first else 0, unit)

    def changed(self, view: View, units: Sequence[int], now_ns: int) -> None:
        """Put in what became available, again where its key moved."""
        if not self._keyed:
            self._enter(view, units)
            return
        if self.ranking.moves_with_queue and units:
            self._rank_again(view, units, now_ns)
        available, present, heap = view.units.available_at, self._present, self._heap
        ranks, heads, oldest_first = self._rank_at, view.units.head_at, self.ranking.oldest_first
        for unit in units:
            if not available[unit]:
                continue
            entry = (-ranks[unit], heads[unit] if oldest_first else 0, unit)
            if present[unit] != entry:
                present[unit] = entry
                heapq.heappush(heap, entry)
                self.moves += 1

    def _enter(self, view: View, units: Sequence[int]) -> None:
        available, present, entries, heap = view.units.available_at, self._present, self._entries, self._heap
        for unit in units:
            if available[unit] and present[unit] is None:
                entry = present[unit] = entries[unit]
                heapq.heappush(heap, entry)
                self.moves += 1

    def _rank_again(self, view: View, units: Sequence[int], now_ns: int) -> None:
        count = len(units)
        self.evaluations += count
        if self._single is not None and count <= _ONE_BY_ONE_MAX:
            rank_one, ranks = self._single.rank_one, self._rank_at
            for unit in units:
                ranks[unit] = rank_one(view, unit)
            return
        index = np.array(units, dtype=np.int64)
        self._ranks[index] = self.ranking.rank(view.only(index), now_ns)

    def pick(self, view: View, now_ns: int, count: int) -> list[int]:
        """Return the best available units."""
        heap, present, available, pop = self._heap, self._present, view.units.available_at, heapq.heappop
        picked: list[int] = []
        if not heap:
            return picked
        before = len(heap)
        while heap and len(picked) < count:
            entry = pop(heap)
            unit = entry[2]
            if present[unit] != entry:
                continue
            present[unit] = None
            if available[unit]:
                picked.append(unit)
        self.moves += before - len(heap)
        return picked
