"""Round-robin (Pajjuri 2004, 4.1.1).

All operators in turn, bottom-up, each with the same quantum of tuples. No rank; nothing starves.
"""

from __future__ import annotations

from millstream.scheduler.view import View


class RoundRobin:
    """Equal turns."""

    equal = True

    def share(self, view: View, unit: int) -> float:
        """Return 1: every unit has the same quantum."""
        return 1.0
