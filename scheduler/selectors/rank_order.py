"""Equal ranks go to the unit whose oldest tuple has waited longest, then to the lower unit: so no one of several like queries starves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.scheduler.contracts import FloatColumn
from millstream.scheduler.limits import NEVER_NS
from millstream.scheduler.view import View
from numpy.typing import NDArray


def oldest_of_best(ranks: FloatColumn, head_ns: NDArray[np.int64]) -> int:
    """Return the place of the greatest rank; of several, that of the oldest head; of several, the first."""
    best = int(ranks.argmax())
    tied = (ranks == ranks[best]).nonzero()[0]
    return best if len(tied) < 2 else int(tied[head_ns[tied].argmin()])


class RankOrder:
    """Units sorted by a rank that only estimates change, and which of them are on the list.

    Keeps in that order a byte a unit, 1 for listed, so that the first is found by a search of bytes; and the head of each, by which one
    of several equal ranks is chosen.
    """

    def __init__(self, ranks: FloatColumn) -> None:
        order = np.lexsort((np.arange(len(ranks)), -ranks))
        self.units: list[int] = order.tolist()
        self.place: list[int] = np.argsort(order).tolist()
        self._marks = bytearray(len(order))
        self._heads = np.full(len(order), NEVER_NS, dtype=np.int64)
        self._head_at: memoryview[int] = memoryview(self._heads)  # type: ignore[arg-type]
        ascending = -ranks[order]
        self._end: list[int] = np.searchsorted(ascending, ascending, side="right").tolist()

    def follow(self, view: View, units: Sequence[int]) -> None:
        """List those of these units that are available, by their heads, and no other of them."""
        available, heads = view.units.available_at, view.units.head_at
        places, marks, head_at = self.place, self._marks, self._head_at
        for unit in units:  # as `put` and `drop` do; this loop runs at every decision
            place = places[unit]
            if available[unit]:
                marks[place] = 1
                head_at[place] = heads[unit]
            else:
                marks[place] = 0
                head_at[place] = NEVER_NS

    def put(self, unit: int, head_ns: int) -> None:
        """List a unit whose oldest tuple arrived then."""
        place = self.place[unit]
        self._marks[place] = 1
        self._head_at[place] = head_ns

    def drop(self, unit: int) -> None:
        """Take a unit off the list."""
        place = self.place[unit]
        self._marks[place] = 0
        self._head_at[place] = NEVER_NS

    def first(self) -> int:
        """Return the unit to be chosen, -1 for none."""
        place = self._marks.find(1)
        if place < 0:
            return -1
        end = self._end[place]
        if end - place > 1:
            place += self._heads[place:end].argmin().item()
        return self.units[place]

    def listed(self) -> list[int]:
        """Return all units of the list, the one to be chosen first."""
        places = np.flatnonzero(np.frombuffer(self._marks, dtype=np.uint8))
        group = np.array(self._end, dtype=np.int64)[places]
        return [self.units[place] for place in places[np.lexsort((places, self._heads[places], group))].tolist()]
