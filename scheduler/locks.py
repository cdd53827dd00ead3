"""What must not run now: operators that an order holds, and operators all of whose queries are failed, paused or on their way out."""

from __future__ import annotations

import numpy as np
from millstream.engine.data.graph import QueryId
from millstream.engine.data.records import dataclass
from millstream.engine.data.work import WorkOrder, WorkReceipt
from millstream.scheduler.ledger import Ledger
from millstream.scheduler.unit_set import UnitSet
from numpy.typing import NDArray


@dataclass(slots=True)
class Outstanding:
    """An order that is out, the units it was made for, and the operators and units that are locked meanwhile.

    `events` is how many the core had taken when it was made.

    Where only one order may be out, nothing is locked: nobody decides before it is back, and `locked` is found when someone asks.
    """

    order: WorkOrder
    cut: UnitSet
    units: list[int]
    worker: int = 0
    events: int = 0
    conflicts: NDArray[np.int64] | None = None
    operators: list[int] | None = None

    @property
    def locked(self) -> list[int]:
        """The operators that the order may run."""
        if self.operators is not None:
            return self.operators  # the units may have got more members since
        return list(dict.fromkeys(slot for unit in self.units for slot in self.cut.members(unit)))

    def unit_ns(self, receipt: WorkReceipt) -> float:
        """Return what a unit took on average, those that were not reached counting by the steps of the others."""
        if len(self.units) == 1 and not receipt.unfinished:
            return float(receipt.finished_ns - receipt.started_ns)
        steps = len(self.order.steps)
        done = max(1, steps - len(receipt.unfinished))
        return (receipt.finished_ns - receipt.started_ns) * steps / (done * max(1, len(self.units)))


class QueryMarks:
    """Keeps the marks and the ledger's `halted` column in step."""

    def __init__(self, ledger: Ledger) -> None:
        self.failed: dict[QueryId, str] = {}
        self._paused: dict[QueryId, None] = {}
        self._leaving: dict[QueryId, None] = {}
        self._ledger = ledger

    def fail(self, query: QueryId, message: str) -> None:
        """An error stopped the query."""
        self.failed[query] = message
        self._refresh(query)

    def pause(self, query: QueryId) -> None:
        """The query keeps its state and queues and does not run."""
        self._paused[query] = None
        self._refresh(query)

    def resume(self, query: QueryId) -> None:
        """The query runs again."""
        self._paused.pop(query, None)
        self._refresh(query)

    def leave(self, query: QueryId) -> None:
        """The query is about to be removed: no new work for it."""
        self._leaving[query] = None
        self._refresh(query)

    def settled(self, query: QueryId) -> None:
        """The query came into force, left, or its change was refused."""
        self._leaving.pop(query, None)
        if query in self._ledger.network.queries:
            self._refresh(query)
        else:
            self._paused.pop(query, None)
            self.failed.pop(query, None)

    def _refresh(self, query: QueryId) -> None:
        topology = self._ledger.network.topology
        for slot in topology.query_slots.get(query, []):
            self._ledger.set_halted(slot, all(self._stopped(other) for other in topology.queries_of[slot]))

    def _stopped(self, query: QueryId) -> bool:
        return query in self.failed or query in self._paused or query in self._leaving
