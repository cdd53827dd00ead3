"""Balance response time, BRT (Sharaf 2007, 3.4.3).

    rank(x) = (S(x) / Cbar(x)) * W(x)

    S(x), Cbar(x)  outputs and ns expected of one tuple from x to the end of its query
    W(x)           time the tuple at the head of x's queue has waited in the system

Aim: small l2 norm of response times. Moves with time: yes. Factored: S/Cbar times W.
"""

from __future__ import annotations

from typing import ClassVar

from millstream.scheduler.contracts import FloatColumn, RankingBase
from millstream.scheduler.view import View


class BalanceResponseTime(RankingBase):
    """Rate, weighed by the wait."""

    moves_with_time: ClassVar[bool] = True
    moves_with_queue: ClassVar[bool] = True

    def fixed_part(self, view: View) -> FloatColumn:
        """Return S / Cbar."""
        return view.output_per_tuple / view.cost_to_end_ns

    def rank(self, view: View, now_ns: int) -> FloatColumn:
        """Return (S / Cbar) W."""
        return self.fixed_part(view) * view.wait_ns(now_ns)
