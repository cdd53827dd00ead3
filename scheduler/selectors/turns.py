"""Turns: the next available unit after the last one, in the order of the cut."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.scheduler.view import View


class TurnsSelector:
    """Keeps a cursor. One search of a column of marks a decision, whatever the number of units."""

    def __init__(self) -> None:
        self.cursor = 0
        self.evaluations = 0
        self.moves = 0

    def reset(self, view: View, now_ns: int) -> None:
        """Keep the cursor where it still points at a unit."""
        self.cursor = self.cursor % view.units.count if view.units.count else 0

    def changed(self, view: View, units: Sequence[int], now_ns: int) -> None:
        """Nothing to do: the marks are read at each decision."""

    def pick(self, view: View, now_ns: int, count: int) -> list[int]:
        """Return the next available units in turn."""
        available = view.units.available
        if count > 1:
            return self._pick_many(view, count)
        for start, end in ((self.cursor, len(available)), (0, self.cursor)):
            if start < end:
                unit = start + int(available[start:end].argmax())
                if available[unit]:
                    self.moves += 1
                    self.cursor = (unit + 1) % len(available)
                    return [unit]
        return []

    def _pick_many(self, view: View, count: int) -> list[int]:
        found = np.flatnonzero(view.units.available)
        if not len(found):
            return []
        first = int(np.searchsorted(found, self.cursor))
        picked: list[int] = np.concatenate((found[first:], found[:first]))[:count].tolist()
        self.moves += len(picked)
        self.cursor = (picked[-1] + 1) % view.units.count
        return picked
