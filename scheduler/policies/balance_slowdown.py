"""Balance slowdown, BSD (Sharaf 2007, 3.4.2, eq. 3.18).

    rank(x) = (S(x) / (Cbar(x) T)) * (W(x) / T) = Φ(x) W(x),   Φ = S / (Cbar T²)

    S(x), Cbar(x)  outputs and ns expected of one tuple from x to the end of its query
    T              ideal time of an emitted tuple of that query; where several lie below x, Φ = (Σ S_i / T_i²) / Cbar(x)
    W(x)           time the tuple at the head of x's queue has waited in the system

Aim: small l2 norm of slowdowns, between HNR (average) and LSF (maximum). Moves with time: yes. Factored: Φ times W.
"""

from __future__ import annotations

from typing import ClassVar

from millstream.scheduler.contracts import FloatColumn, RankingBase
from millstream.scheduler.view import View


class BalanceSlowdown(RankingBase):
    """Normalized rate, weighed by the slowdown so far."""

    moves_with_time: ClassVar[bool] = True
    moves_with_queue: ClassVar[bool] = True

    def fixed_part(self, view: View) -> FloatColumn:
        """Return Φ."""
        return view.normalized_square / view.cost_to_end_ns

    def rank(self, view: View, now_ns: int) -> FloatColumn:
        """Return Φ W."""
        return self.fixed_part(view) * view.wait_ns(now_ns)
