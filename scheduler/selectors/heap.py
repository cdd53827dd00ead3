"""Heap: for ranks that do not drift with time. A unit is put in when it becomes available and taken out when it is picked."""

from __future__ import annotations

import heapq
from collections import Counter
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

    Where nothing but an estimate changes a rank, `head` is 0 for a unit whose rank no other has: its entry is made once.
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
        self._entries: list[_Entry | None] = []

    def reset(self, view: View, now_ns: int) -> None:
        """Rank everything anew and heap what is available."""
        self._ranks = np.ascontiguousarray(self.ranking.rank(view, now_ns), dtype=np.float64).copy()
        self._rank_at = memoryview(self._ranks)  # type: ignore[arg-type]
        self.evaluations += view.units.count
        self._present = [None] * view.units.count
        self._heap = []
        self._entries = self._lasting_entries()
        for unit in np.flatnonzero(view.units.available).tolist():
            entry = self._present[unit] = self._entry(view, unit)
            self._heap.append(entry)
        heapq.heapify(self._heap)

    def _lasting_entries(self) -> list[_Entry | None]:
        """Return the entries of units whose rank stays and is theirs alone."""
        if self.ranking.moves_with_queue:
            return [None] * len(self._ranks)
        ranks: list[float] = self._ranks.tolist()
        times = Counter(ranks)
        return [(-rank, 0, unit) if times[rank] == 1 else None for unit, rank in enumerate(ranks)]

    def _entry(self, view: View, unit: int) -> _Entry:
        return self._entries[unit] or (-self._rank_at[unit], view.units.head_at[unit], unit)

    def changed(self, view: View, units: Sequence[int], now_ns: int) -> None:
        """Put in what became available, again where its key moved."""
        if self.ranking.moves_with_queue and units:
            self._rank_again(view, units, now_ns)
        available, present, heap, entries = view.units.available_at, self._present, self._heap, self._entries
        ranks, heads = self._rank_at, view.units.head_at
        for unit in units:
            if not available[unit]:
                continue
            entry = entries[unit] or (-ranks[unit], heads[unit], unit)
            if present[unit] != entry:
                present[unit] = entry
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
