"""Changes of the network that wait for the operators they touch to be idle: one at a time, first come first."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from millstream.scheduler.errors import GraphError
from millstream.scheduler.estimates import Estimates
from millstream.scheduler.events import QueryAdded, QueryRemoved, Spliced
from millstream.scheduler.instructions import Report, Splice
from millstream.scheduler.ledger import Ledger


class Splices:
    """The waiting changes. While one is with the driver (`in_flight`) the core decides nothing: the answer is a moment away.

    `waiting`: some change is not yet in force. Both are asked at every decision, and change seldom.
    """

    def __init__(self, ledger: Ledger, estimates: Estimates) -> None:
        self._ledger = ledger
        self._network = ledger.network
        self._estimates = estimates
        self._waiting: deque[QueryAdded | QueryRemoved] = deque()
        self._flying: QueryAdded | QueryRemoved | None = None
        self.in_flight = self.waiting = False

    def add(self, change: QueryAdded | QueryRemoved) -> None:
        """Queue a change."""
        self._waiting.append(change)
        self.waiting = True

    def _note(self) -> None:
        self.in_flight = self._flying is not None
        self.waiting = self.in_flight or bool(self._waiting)

    def due(self, busy: Collection[int]) -> list[Splice | Report]:
        """Return what can be done now: refusals, then at most one splice. `busy` are the operators of orders that are out."""
        found: list[Splice | Report] = []
        while self._waiting and self._flying is None:
            change = self._waiting[0]
            try:
                touched = self._touched(change)
            except GraphError as problem:
                self._waiting.popleft()
                query = change.delta.query.id if isinstance(change, QueryAdded) else change.query
                found.append(Report("refused", str(problem), query))
                continue
            if any(slot in busy for slot in touched):
                break
            self._flying = self._waiting.popleft()
            found.append(self._splice(change))
        self._note()
        return found

    def _splice(self, change: QueryAdded | QueryRemoved) -> Splice:
        if isinstance(change, QueryAdded):
            return Splice(change.delta.query.id, added=change.delta)
        return Splice(change.query, removed=change)

    def _touched(self, change: QueryAdded | QueryRemoved) -> list[int]:
        network = self._network
        if isinstance(change, QueryAdded):
            network.check(change.delta)
            return network.touched(change.delta)
        if change.query not in network.queries:
            raise GraphError(f"query {change.query} is not in the network")
        slots = self.gone(change)
        producers = {network.edge_producer[edge] for slot in slots for edge in network.inputs[slot]}
        return sorted({*slots, *producers})

    def gone(self, change: QueryRemoved) -> list[int]:
        """Return the slots of the operators that leave with a query; raises `GraphError` for one that is not there."""
        slot_of = self._network.operators.slot_of
        for operator in change.operators:
            if operator not in slot_of:
                raise GraphError(f"operator {operator} of query {change.query} is not in the network")
        return [slot_of[operator] for operator in change.operators]

    def settle(self, event: Spliced) -> Report:
        """Take the driver's answer: put the change in force, or report that the engine refused."""
        change, self._flying = self._flying, None
        self._note()
        if change is None:
            raise GraphError(f"query {event.query} was spliced though nobody asked")
        if event.failure is not None:
            return Report("refused", event.failure, event.query)
        if isinstance(change, QueryRemoved):
            kept = self._kept(change)
            gone = self._ledger.remove(change.query, change.operators)
            self._estimates.query_left(change.query, gone, kept)
            return Report("removed", f"query {change.query} left", change.query)
        self._ledger.add(change.delta, dict(event.cursors))
        self._estimates.query_came(change.delta.query.id, change.delta.operators)
        return Report("added", f"query '{change.delta.query.name}' is in force", event.query)

    def _kept(self, change: QueryRemoved) -> list[int]:
        gone, slot_of = set(change.operators), self._network.operators.slot_of
        return [slot_of[operator] for operator in self._network.queries[change.query].operators if operator not in gone]
