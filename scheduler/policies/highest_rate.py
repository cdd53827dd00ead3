"""Highest rate, HR (Sharaf 2007, 3.3.1).

    rank(x) = S(x) / Cbar(x)

    S(x)     outputs expected of one tuple from x to the end of its query (global selectivity)
    Cbar(x)  ns expected for one tuple from x to the end

Aim: small average response time. Moves with time: no.
"""

from __future__ import annotations

from millstream.scheduler.contracts import FloatColumn, RankingBase
from millstream.scheduler.view import View


class HighestRate(RankingBase):
    """Outputs per ns."""

    def rank(self, view: View, now_ns: int) -> FloatColumn:
        """Return S / Cbar."""
        return view.output_per_tuple / view.cost_to_end_ns
