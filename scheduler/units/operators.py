"""Every operator is a unit of its own: box at a time (Carney 2005, 3.3), a scheduling point after every operator (Sharaf 2007, 3.3)."""

from __future__ import annotations

from millstream.scheduler.unit_set import EntryUnits, IntColumn


class OperatorUnits(EntryUnits):
    """One unit an operator; its order is one step."""

    name = "operators"

    def _find_members(self, unit: int) -> tuple[int, ...]:
        return (int(self.entries[unit]),)

    def units_with(self, operator: int) -> IntColumn:
        """Return the one unit of the operator."""
        units = self.unit_of[operator : operator + 1]
        return units[units >= 0]
