"""Queries that must not run: failed, paused, or on their way out. An operator is halted when all queries it serves are marked."""

from __future__ import annotations

from millstream.engine.data.graph import QueryId
from millstream.scheduler.ledger import Ledger


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
