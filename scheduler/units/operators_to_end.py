"""Sharaf's E_x: a unit an operator, running from it down to the outputs (Sharaf 2007, 3.1).

With empty interior queues only the units of leaves hold rows, so a scheduling point is reached when a query has finished with a train
(level = query). After a switch of policy, or after an order ran out of its budget, rows may stand before an inner operator: then its
own unit is ready.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from millstream.scheduler.unit_set import EntryUnits, IntColumn


class OperatorToEndUnits(EntryUnits):
    """One unit an operator; its order runs the operator and everything below it.

    Behind a hub (an operator that feeds many queries, few of them at a time) the order ends: what it put out is for the queries' own units.
    """

    name = "operators-to-end"

    def _find_members(self, unit: int) -> tuple[int, ...]:
        return tuple(self.topology.downstream_to_hub(int(self.entries[unit])))

    def _full_blocks(self) -> bool:
        return False

    def units_with(self, operator: int) -> IntColumn:
        """Return the units of the operator and of everything above it."""
        return self.conflicts_of((operator,))

    def conflicts_of(self, operators: Iterable[int]) -> IntColumn:
        """Return the units of these operators and of everything above them."""
        seen: dict[int, None] = dict.fromkeys(operators)
        stack = list(seen)
        producers, node = self.topology.producers, self.ledger.network.node
        while stack:
            for producer in producers[stack.pop()]:
                if producer not in seen and not node(producer).hub:
                    seen[producer] = None
                    stack.append(producer)
        units = self.unit_of[np.fromiter(seen, dtype=np.int64, count=len(seen))]
        return np.sort(units[units >= 0])
