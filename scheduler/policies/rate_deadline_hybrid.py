"""EDF-HR, for windowed aggregates (Sharaf 2007, 3.5.2).

    A  the queries that can still meet their deadline, now + C_i <= D_i, by deadline
    B  the others, by output rate S_i / Cbar_i
    run the head of B if it ends before the head of A must end, now + C_B < D_A, else the head of A

    C_i  ns to work off what waits before query i: N_i tuples of Cbar_i each
    D_i  deadline, as in EDF

Under light load it is EDF, under overload HR; it never lets a query that is late anyway cost one that is not its deadline.
Moves with time: yes.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from millstream.scheduler.contracts import FloatColumn, RankingBase
from millstream.scheduler.policies.earliest_deadline_first import deadlines_ns, slides_and_deadlines
from millstream.scheduler.view import View


class RateDeadlineHybrid(RankingBase):
    """Deadlines while they can be met, rates for what is late."""

    moves_with_time: ClassVar[bool] = True
    moves_with_queue: ClassVar[bool] = True

    def slides_and_deadlines(self, view: View) -> list[tuple[float, float]]:
        """Return of every unit what D follows from: its SLIDE (0 for none) and its query's deadline, in ns."""
        return slides_and_deadlines(view)

    def rank(self, view: View, now_ns: int) -> FloatColumn:
        """Return 0 for the one to run, below that A by deadline and then B by rate."""
        deadline, cost = deadlines_ns(view), view.rows * view.cost_to_end_ns
        rate = view.output_per_tuple / view.cost_to_end_ns
        timely = (now_ns + cost <= deadline) & view.available
        late = view.available & ~timely
        order = np.lexsort((view.head_ns, np.where(timely, deadline, -rate), ~timely))
        ranks = np.empty(len(order))
        ranks[order] = -1.0 - np.arange(len(order))
        if late.any():
            head = int(order[late[order].argmax()])
            if not timely.any() or now_ns + cost[head] < deadline[timely].min():
                ranks[head] = 0.0
        return ranks
