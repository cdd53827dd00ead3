"""Fixed priority (Carney 2005, 4.4.1).

    rank(b) = -slack(b),   slack(b) = deadline - Σ over k in D(b) of cost(k)

    deadline  the first critical point of the query's QoS graph (the nearest where several lie below b)
    D(b)      b and all boxes below it

The least slack first; it does not change with the queues, hence the name. Moves with time: no.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from millstream.scheduler.contracts import FloatColumn, RankingBase
from millstream.scheduler.qos import first_critical_ns
from millstream.scheduler.view import View


class FixedPriority(RankingBase):
    """The least slack first."""

    def rank(self, view: View, now_ns: int) -> FloatColumn:
        """Return -slack."""
        return -slacks_ns(view)


def slacks_ns(view: View) -> FloatColumn:
    """Return the fixed slack of each unit, in ns. It is computed anew only when an estimate or the network changed."""
    name = f"fixed slacks {view.estimates.version}"
    column = view.shared.get(name)
    if not isinstance(column, np.ndarray):
        for outdated in [one for one in view.shared if one.startswith("fixed slacks")]:
            del view.shared[outdated]
        column = view.shared[name] = _all_slacks_ns(view)
    found: FloatColumn = column[view.index]
    return found


def _all_slacks_ns(view: View) -> FloatColumn:
    whole = view.only(np.arange(view.units.count))
    deadlines = whole.remembered("first critical point", lambda: _deadlines_ns(whole))
    slacks: FloatColumn = deadlines - _costs_below_ns(view)[view.units.entries]
    return slacks


def _deadlines_ns(view: View) -> FloatColumn:
    first = cache(first_critical_ns)
    return np.array([min(first(query.qos) for query in view.queries_of(unit)) for unit in range(view.units.count)], dtype=np.float64)


def _costs_below_ns(view: View) -> FloatColumn:
    """Return of every operator its cost and that of all below it, level by level from the outputs up."""
    topology, cost = view.units.topology, view.estimates.cost_ns
    below = np.zeros(len(cost))
    for slots, producers, consumers, _ in topology.levels:
        counts = np.bincount(producers, minlength=len(slots))
        below[slots] = cost[slots] + np.bincount(producers, weights=below[consumers], minlength=len(slots))
        for slot in slots[counts > 1].tolist():  # what lies below several consumers counts once
            below[slot] = sum(cost.item(one) for one in topology.downstream(slot))
    return below
