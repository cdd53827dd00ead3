"""Weighted round-robin (Pajjuri 2004, 4.1.2).

    quantum(x) = w(x) * quantum

    w(x)  weight of operator x. By default a leaf weighs `leaf`, a join `join` (the greater holds for a join at a leaf), any other 1:
          leaves see every tuple and joins work longest on one.

All operators in turn, bottom-up; a heavier one takes more tuples in its turn.
"""

from __future__ import annotations

import math

from millstream.scheduler.errors import PolicyError
from millstream.scheduler.view import View


class WeightedRoundRobin:
    """Turns whose quantum follows the operator's weight."""

    def __init__(self, leaf: float = 2.0, join: float = 3.0) -> None:
        for name, weight in (("leaf", leaf), ("join", join)):
            if not 0.0 < weight < math.inf:
                raise PolicyError(f"policy option {name}={weight} is not a positive number")
        self.leaf = leaf
        self.join = join

    def share(self, view: View, unit: int) -> float:
        """Return w(x) of the unit's entry."""
        entry = int(view.units.entries[unit])
        weight = self.leaf if view.units.topology.is_leaf(entry) else 1.0
        if "join" in view.ledger.network.node(entry).kind:
            weight = max(weight, self.join)
        return weight
