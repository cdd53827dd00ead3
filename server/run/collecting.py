"""The observer of `millstream run`: keeps the results of each query, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Train
from millstream.server.host.contract import KeptResults
from millstream.server.host.queries import Query, QueryKind
from millstream.server.results.render import NamedResult


class Collector:
    """Keeps results by query in the order in which they were announced. `messages` are for standard error."""

    def __init__(self) -> None:
        self.batches: dict[str, list[Any]] = {}
        self.placed: dict[str, list[tuple[int, Any]]] = {}
        self.schemas: dict[str, Schema] = {}
        self.counts: dict[str, dict[str, int]] = {}
        self.failures: list[str] = []
        self.messages: list[str] = []
        self.stream_to: Callable[[Any], None] | None = None

    def query_began(self, query: Query) -> None:
        """Make room for the results."""
        if query.kind is QueryKind.SELECT:
            self.batches.setdefault(query.name, [])
            self.schemas[query.name] = query.planned.physical.schema

    def results(self, query: Query, train: Train) -> None:
        """Keep the rows."""
        if query.kind is QueryKind.SELECT and train.rows and query.shape is not None:
            batch = query.shape.batch(train)
            self.batches[query.name].append(batch)
            self.placed.setdefault(query.name, []).append((train.hi - 1, batch))

    def query_ended(self, query: Query, reason: str, message: str, counts: dict[str, Any]) -> None:
        """Keep the counts; a failed query fails the run."""
        self.counts[query.name] = counts
        if reason == "failed":
            self.failures.append(f"query {query.name} failed: {message}")

    def stream_dropped(self, name: str) -> None:
        """Nothing reads along."""

    def reported(self, kind: str, message: str) -> None:
        """Keep it for standard error."""
        self.messages.append(message)

    def kept(self, query: Query) -> KeptResults:
        """Everything is kept."""
        return KeptResults(list(self.placed.get(query.name, ())))

    def is_pressed(self, stream: str) -> bool:
        """Nobody waits: results are kept in memory."""
        return False

    def result(self, name: str) -> NamedResult:
        """Return the whole answer of a query."""
        return NamedResult(name, self.schemas[name], self.batches[name])
