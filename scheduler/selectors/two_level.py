"""Two levels (Aurora; Sharaf 2007, 3.2): queries in turn, inside the query the unit of the greatest rank."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from millstream.scheduler.contracts import Ranking
from millstream.scheduler.selectors.rank_order import oldest_of_best
from millstream.scheduler.view import View


class TwoLevelSelector:
    """Keeps a cursor over queries. A shared operator belongs to the query that came first."""

    def __init__(self, ranking: Ranking) -> None:
        self.ranking = ranking
        self.evaluations = 0
        self.moves = 0
        self._cursor = 0
        self._query_of = np.zeros(0, dtype=np.int64)

    def reset(self, view: View, now_ns: int) -> None:
        """Number the queries anew."""
        order = view.ledger.network.query_order
        numbers = {query: number for number, query in enumerate(order)}
        column = view.remembered(
            "query_number", lambda: np.array([float(numbers[view.query_of(unit).id]) for unit in range(view.units.count)])
        )
        self._query_of = column.astype(np.int64)
        self._cursor = self._cursor % max(1, len(order))

    def changed(self, view: View, units: Sequence[int], now_ns: int) -> None:
        """Nothing is kept."""

    def pick(self, view: View, now_ns: int, count: int) -> list[int]:
        """Return the best unit of each of the next queries that have one."""
        candidates = np.flatnonzero(view.units.available)
        if not len(candidates):
            return []
        queries = self._query_of[candidates]
        turn = (queries - self._cursor) % max(1, int(self._query_of.max()) + 1)
        order = np.argsort(turn, kind="stable")
        candidates, turn = candidates[order], turn[order]
        starts = [0, *(np.flatnonzero(turn[1:] != turn[:-1]) + 1).tolist(), len(candidates)]
        picked: list[int] = []
        for first, last in pairwise(starts[: count + 1]):
            self.evaluations += last - first
            own = candidates[first:last]
            best = 0 if last - first == 1 else oldest_of_best(self.ranking.rank(view.only(own), now_ns), view.units.head_ns[own])
            picked.append(int(own[best]))
        self._cursor = int(self._query_of[picked[-1]]) + 1
        self.moves += len(picked)
        return picked
