"""Turns: the next available unit after the last one, in the order of the cut, or in a random order that is drawn once.

Aurora's round-robin runs runnable boxes "in a pre-determined random order" (Carney 2005, 3.4.2 and 4.2.1). The order follows from a seed
and the operators' numbers alone, so that a query that comes or goes leaves the order of the others as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from millstream.scheduler.view import View
from numpy.typing import NDArray

Arrangement = Callable[[View], NDArray[np.int64]]
"""Returns the units in the order of their turns."""


def random_order(seed: int) -> Arrangement:
    """Return the arrangement that this seed draws."""
    from millstream.scheduler.hashing import mix_many, salt  # few servers ask for it

    def arranged(view: View) -> NDArray[np.int64]:
        identity = view.ledger.network.operators.identity
        numbers = np.array([int(identity(slot)) for slot in view.units.entries.tolist()], dtype=np.uint64)
        order: NDArray[np.int64] = mix_many(numbers ^ np.uint64(salt(seed))).argsort(kind="stable").astype(np.int64)
        return order

    return arranged


class TurnsSelector:
    """Keeps a cursor. One search of a column of marks a decision, whatever the number of units."""

    def __init__(self, arrangement: Arrangement | None = None) -> None:
        self.arrangement = arrangement
        self.cursor = 0
        self.evaluations = 0
        self.moves = 0
        self._order: NDArray[np.int64] | None = None

    def reset(self, view: View, now_ns: int) -> None:
        """Keep the cursor where it still points at a unit."""
        self.cursor = self.cursor % view.units.count if view.units.count else 0
        self._order = None if self.arrangement is None else self.arrangement(view)

    def changed(self, view: View, units: Sequence[int], now_ns: int) -> None:
        """Nothing to do: the marks are read at each decision."""

    def pick(self, view: View, now_ns: int, count: int) -> list[int]:
        """Return the next available units in turn."""
        order = self._order
        places = self._places(view.units.available if order is None else view.units.available[order], count)
        return places if order is None else [int(order[place]) for place in places]

    def _places(self, available: NDArray[np.bool_], count: int) -> list[int]:
        if count > 1:
            return self._many(available, count)
        for start, end in ((self.cursor, len(available)), (0, self.cursor)):
            if start < end:
                place = start + int(available[start:end].argmax())
                if available[place]:
                    self.moves += 1
                    self.cursor = (place + 1) % len(available)
                    return [place]
        return []

    def _many(self, available: NDArray[np.bool_], count: int) -> list[int]:
        found = np.flatnonzero(available)
        if not len(found):
            return []
        first = int(np.searchsorted(found, self.cursor))
        picked: list[int] = np.concatenate((found[first:], found[:first]))[:count].tolist()
        self.moves += len(picked)
        self.cursor = (picked[-1] + 1) % len(available)
        return picked
