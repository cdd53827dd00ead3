"""The plain cuts of a network into units: an operator, an operator with all that is below it, a path, a query.

A cut by operators is box at a time (Carney 2005, 3.3), with a scheduling point after every operator (Sharaf 2007, 3.3); by operators to
the end it is Sharaf's E_x (3.1), by paths MavStream's (Pajjuri 2004, 4.1), by queries application at a time (Carney 2005, 3.3.2).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from millstream.engine.data.graph import QueryId
from millstream.scheduler.estimates import Estimates
from millstream.scheduler.ledger import Ledger
from millstream.scheduler.paths import leaf_to_root_paths
from millstream.scheduler.unit_set import EntryUnits, IntColumn, UnitSet


class OperatorUnits(EntryUnits):
    """One unit an operator; its order is one step."""

    name = "operators"

    def _find_members(self, unit: int) -> tuple[int, ...]:
        return (int(self.entries[unit]),)

    def units_with(self, operator: int) -> IntColumn:
        """Return the one unit of the operator."""
        units = self.unit_of[operator : operator + 1]
        return units[units >= 0]


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


class PathUnits(UnitSet):
    """One unit a path; the entry is its leaf."""

    name = "paths"

    def __init__(self, ledger: Ledger, estimates: Estimates) -> None:
        super().__init__(ledger, leaf_to_root_paths(ledger.network.topology))


class QueryUnits(UnitSet):
    """One unit a query, with all of its operators; `queries` names them."""

    name = "queries"

    def __init__(self, ledger: Ledger, estimates: Estimates) -> None:
        slots = {query: members for query, members in ledger.network.topology.query_slots.items() if members}
        self.queries: list[QueryId] = list(slots)
        super().__init__(ledger, [tuple(members) for members in slots.values()])

    def _update_unit(self, unit: int) -> None:
        super()._update_unit(unit)
        rows_of, head_of = self.ledger.rows_at, self.ledger.head_at
        rows, head = 0, self.head_at[unit]
        for member in self.members(unit):
            if rows_of[member] > 0:
                rows += rows_of[member]
            if head_of[member] < head:
                head = head_of[member]
        self.rows_at[unit], self.head_at[unit] = rows, head
