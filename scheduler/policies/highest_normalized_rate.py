"""Highest normalized rate, HNR (Sharaf 2007, 3.3.2, eq. 3.7).

    rank(x) = S(x) / (Cbar(x) * T)      where several queries lie below x:  (Σ S_i / T_i) / Cbar(x)

    S(x)     outputs expected of one tuple from x to the end of its query
    Cbar(x)  ns expected for one tuple from x to the end
    T        ideal time of an emitted tuple of the query, alone in the system

Aim: small average slowdown over queries of different length. Moves with time: no.
"""

from __future__ import annotations

from millstream.scheduler.contracts import FloatColumn, RankingBase
from millstream.scheduler.view import View


class HighestNormalizedRate(RankingBase):
    """Outputs per ns, each weighed by how short its query is."""

    def rank(self, view: View, now_ns: int) -> FloatColumn:
        """Return (Σ S_i / T_i) / Cbar."""
        return view.normalized_output / view.cost_to_end_ns
