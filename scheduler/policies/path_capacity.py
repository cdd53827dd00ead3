"""Path capacity (Pajjuri 2004, 4.1.3).

    rank(p) = C_p = 1 / (1/C_1 + s_1/C_2 + s_1 s_2/C_3 + … + s_1…s_{k-1}/C_k)

    p        path from a leaf (operator 1) to a root (operator k)
    C_i, s_i processing capacity (tuples per ns) and selectivity of its i-th operator

Aim: small latency. Moves with time: no.
"""

from __future__ import annotations

from millstream.scheduler.contracts import FloatColumn, RankingBase
from millstream.scheduler.view import View


class PathCapacity(RankingBase):
    """Tuples per ns that the path can carry."""

    def rank(self, view: View, now_ns: int) -> FloatColumn:
        """Return C_p."""
        return 1.0 / view.chain_cost_ns
