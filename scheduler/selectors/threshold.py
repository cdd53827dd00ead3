"""Threshold pruning (Fagin, Lotem and Naor 2001, as Sharaf 2007, 3.7.2 uses it) for factored ranks: fixed part times wait.

Two sorted lists, by fixed part and by the oldest head, are read in step. What the two heads of the lists multiply to bounds everything
not yet met; once the best found reaches the bound the search ends.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

import numpy as np
from millstream.scheduler.contracts import FactoredRanking
from millstream.scheduler.view import View


class ThresholdSelector:
    """Picks what a scan picks, with fewer ranks computed. Equal ranks go by the oldest head, then by unit."""

    def __init__(self, ranking: FactoredRanking) -> None:
        self.ranking = ranking
        self.evaluations = 0
        self.moves = 0
        self._fixed: list[float] = []
        self._by_fixed: list[tuple[float, int]] = []
        self._by_head: list[tuple[int, int]] = []
        self._listed: list[tuple[float, int] | None] = []

    def reset(self, view: View, now_ns: int) -> None:
        """Sort anew."""
        self._fixed = self.ranking.fixed_part(view).tolist()
        self._listed = [None] * view.units.count
        self._by_fixed, self._by_head = [], []
        self.changed(view, np.flatnonzero(view.units.available).tolist(), now_ns)

    def changed(self, view: View, units: Sequence[int], now_ns: int) -> None:
        """Move these units to where they belong now."""
        for unit in dict.fromkeys(units):
            self._drop(unit)
            if view.units.available_at[unit]:
                head_ns = view.units.head_ns.item(unit)
                self._listed[unit] = (self._fixed[unit], head_ns)
                insort(self._by_fixed, (-self._fixed[unit], unit))
                insort(self._by_head, (head_ns, unit))
                self.moves += 2

    def _drop(self, unit: int) -> None:
        listed = self._listed[unit]
        if listed is not None:
            fixed, head_ns = listed
            del self._by_fixed[bisect_left(self._by_fixed, (-fixed, unit))]
            del self._by_head[bisect_left(self._by_head, (head_ns, unit))]
            self._listed[unit] = None

    def pick(self, view: View, now_ns: int, count: int) -> list[int]:
        """Return the best available units."""
        picked: list[int] = []
        while len(picked) < count and self._by_fixed:
            unit = self._best(now_ns)
            picked.append(unit)
            self._drop(unit)
        return picked

    def _rank(self, unit: int, now_ns: int) -> tuple[float, int]:
        listed = self._listed[unit]
        assert listed is not None
        self.evaluations += 1
        return listed[0] * max(0, now_ns - listed[1]), listed[1]

    def _best(self, now_ns: int) -> int:
        best, best_rank, best_head = -1, -1.0, 0
        seen: set[int] = set()
        for (negative, by_fixed), (head_ns, by_head) in zip(self._by_fixed, self._by_head, strict=True):
            for unit in (by_fixed, by_head):
                if unit not in seen:
                    seen.add(unit)
                    rank, head = self._rank(unit, now_ns)
                    if rank > best_rank or (rank == best_rank and (head, unit) < (best_head, best)):
                        best, best_rank, best_head = unit, rank, head
            # Strictly above, so that an older head of the same rank further down is not missed.
            if best_rank > -negative * max(0, now_ns - head_ns):
                break
        return best
