"""Scan: rank every unit at every decision. The yardstick of the other selectors, and the only one for ranks that move anyhow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.scheduler.contracts import Ranking
from millstream.scheduler.selectors.rank_order import oldest_of_best
from millstream.scheduler.view import View
from numpy.typing import NDArray


class ScanSelector:
    """Ranks the available units and takes the greatest; equal ranks by the oldest head, then by unit."""

    def __init__(self, ranking: Ranking) -> None:
        self.ranking = ranking
        self.evaluations = 0
        self.moves = 0

    def reset(self, view: View, now_ns: int) -> None:
        """Nothing is kept."""

    def changed(self, view: View, units: Sequence[int], now_ns: int) -> None:
        """Nothing is kept."""

    def pick(self, view: View, now_ns: int, count: int) -> list[int]:
        """Return the best available units."""
        candidates = np.flatnonzero(view.units.available)
        if not len(candidates):
            return []
        self.evaluations += len(candidates)
        return best_of(self.ranking, view, candidates, now_ns, count)


def best_of(ranking: Ranking, view: View, candidates: NDArray[np.int64], now_ns: int, count: int) -> list[int]:
    """Rank these units and return up to `count`, the best first."""
    part = view if len(candidates) == view.units.count else view.only(candidates)
    ranks = ranking.rank(part, now_ns)
    if count == 1:
        return [int(candidates[oldest_of_best(ranks, part.head_ns)])]
    best = np.lexsort((candidates, part.head_ns, -ranks))[:count]
    picked: list[int] = candidates[best].tolist()
    return picked
