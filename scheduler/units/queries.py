"""Every query is a unit: application at a time (Carney 2005, 3.3.2)."""

from __future__ import annotations

from millstream.engine.data.graph import QueryId
from millstream.scheduler.estimates import Estimates
from millstream.scheduler.ledger import Ledger
from millstream.scheduler.unit_set import UnitSet


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
