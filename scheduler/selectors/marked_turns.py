"""Marked turns: what turns pick, from a row of bytes that follows the units' changes instead of a search of their columns."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.scheduler.view import View


class MarkedTurnsSelector:
    """Keeps a cursor, and a byte a unit: 1 where the unit was available when it was last heard of."""

    def __init__(self) -> None:
        self.cursor = 0
        self.evaluations = 0
        self.moves = 0
        self._marks = bytearray()
        self._available_at: memoryview[int] = memoryview(b"")

    def reset(self, view: View, now_ns: int) -> None:
        """Take the marks anew; keep the cursor where it still points at a unit."""
        self.cursor = self.cursor % view.units.count if view.units.count else 0
        self._marks = bytearray(view.units.available.tobytes())
        self._available_at = memoryview(view.units.available)  # type: ignore[arg-type]

    def changed(self, view: View, units: Sequence[int], now_ns: int) -> None:
        """Mark what became available, unmark what no longer is."""
        marks, available = self._marks, self._available_at
        for unit in units:
            marks[unit] = available[unit]

    def pick(self, view: View, now_ns: int, count: int) -> list[int]:
        """Return the next available units in turn."""
        marks, available = self._marks, self._available_at
        picked: list[int] = []
        cursor = self.cursor
        for first, last in ((cursor, len(marks)), (0, cursor)):
            unit = first - 1
            while len(picked) < count:
                unit = marks.find(1, unit + 1, last)
                if unit < 0:
                    break
                if available[unit]:
                    picked.append(unit)
                else:
                    # Locked since it was marked; it is heard of again when it is let go.
                    marks[unit] = 0
        if picked:
            self.moves += len(picked)
            self.cursor = (picked[-1] + 1) % len(marks)
        return picked
