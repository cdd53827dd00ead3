"""Fixed priority (Carney 2005, 4.4.1).

    rank(b) = -slack(b),   slack(b) = deadline - Σ over k in D(b) of cost(k)

    deadline  the first critical point of the query's QoS graph (the nearest where several lie below b)
    D(b)      b and all boxes below it

The least slack first; it does not change with the queues, hence the name. Moves with time: no.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from millstream.scheduler.contracts import FloatColumn
from millstream.scheduler.policies.base import RankingBase
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
    topology, cost = view.units.topology, view.estimates.cost_ns
    below: dict[int, float] = {}
    for slot in reversed(topology.order):
        consumers = topology.consumers[slot]
        if len(consumers) <= 1:
            below[slot] = cost.item(slot) + sum(below[consumer] for consumer in consumers)
        else:  # what lies below several consumers counts once
            below[slot] = sum(cost.item(one) for one in topology.downstream(slot))
    deadline_ns = cache(first_critical_ns)
    slacks = [
        min(deadline_ns(query.qos) for query in view.queries_of(unit)) - below[int(view.units.entries[unit])]
        for unit in range(view.units.count)
    ]
    return np.array(slacks, dtype=np.float64)
