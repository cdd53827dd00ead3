"""Every query is a unit: application at a time (Carney 2005, 3.3.2)."""

from __future__ import annotations

from millstream.engine.graph import QueryId
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
        ledger = self.ledger
        rows, head = 0, int(self.head_ns[unit])
        for member in self.members(unit):
            rows += max(0, ledger.rows_at[member])
            head = min(head, ledger.head_at[member])
        self.rows[unit], self.head_ns[unit] = rows, head
