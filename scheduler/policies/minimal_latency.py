"""Minimal latency inside a query, ML (Carney 2005, 4.3.2, as a rank of operators).

    rank(x) = -output_cost(x),   output_cost(x) = Σ over k in D(x) of cost(k) / o_sel(k)

    D(x)      x and everything below it
    o_sel(k)  outputs per tuple from k on

The operator from which an output is cheapest to get goes first. Moves with time: no.
"""

from __future__ import annotations

import numpy as np
from millstream.scheduler.contracts import FloatColumn, RankingBase
from millstream.scheduler.traversals import output_costs
from millstream.scheduler.view import View


class MinimalLatency(RankingBase):
    """The cheapest output first."""

    def rank(self, view: View, now_ns: int) -> FloatColumn:
        """Return -output_cost."""
        costs = output_costs(view.ledger.network, view.estimates, view.units.topology.order)
        return -np.array([costs[slot] for slot in view.units.entries[view.index].tolist()])
