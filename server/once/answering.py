"""The private engine of one FETCH: the SELECT runs over the held rows as a continuous query would, then its inputs end.

Network, executor and scheduling core are those of the live server, in virtual time and in the calling thread; nothing is shared with
the running network but immutable columns. So a one-time answer is the continuous query's over the same rows.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

from millstream.engine.data.errors import EngineError
from millstream.engine.data.graph import OperatorId, QueryId
from millstream.engine.data.schema import TableDefinition
from millstream.engine.data.train import Train
from millstream.engine.operators.contract import EvaluationErrors
from millstream.engine.plan.physical import PhysicalQuery
from millstream.engine.runtime.executor import Executor
from millstream.engine.runtime.network import Network
from millstream.scheduler.spec import PolicySpec
from millstream.server.host.contract import HeldBlock, HeldRows, slices
from millstream.server.host.virtual_runtime import VirtualRuntime

TRAIN_ROWS = 16_384


class PrivateEngine:
    """A network of its own, which answers once. `late` and `failed` count rows, as the notices of the answer say."""

    def __init__(self) -> None:
        self.network = Network(self)
        self.runtime = VirtualRuntime(Executor(self.network), self.network, PolicySpec.parse("fcfs"), lambda _: None)
        self.late_rows = 0
        self.failed_rows = 0
        self._failure: Exception | None = None

    # --- inputs, before the queries ---

    def add_table(self, definition: TableDefinition, held: HeldRows) -> None:
        """Let a table stand as it was held."""
        self.network.create_table(definition)
        for block in held.blocks():
            self._push(definition.name, block)

    def add_stream(self, held: HeldRows) -> None:
        """Make room for held rows; `run` lets them in."""
        self.network.create_stream(held.definition)

    def add_derived(self, name: str, physical: PhysicalQuery) -> None:
        """Let a derived stream follow from its inputs."""
        self.runtime.add(self.network.create_derived(name, physical, deliver=_forget))
        self._work()

    # --- the answer ---

    def run(self, physical: PhysicalQuery, held: Sequence[HeldRows]) -> list[Train]:
        """Return the answer's trains: all held rows in arrival order, then every input's end."""
        answer: list[Train] = []
        self.runtime.add(self.network.add_query("answer", physical, answer.append))
        self._work()
        names = [h.definition.name for h in held]
        for _, place, block in heapq.merge(*(_numbered(place, h.blocks()) for place, h in enumerate(held)), key=lambda item: item[:2]):
            self._push(names[place], block)
        for name in self.network.sources:
            ended = self.network.end(name, arrival_ns=0)
            if ended is not None:
                self.runtime.arrived(ended)
            self._work()
        return [train for train in answer if train.rows]

    def _push(self, stream: str, block: HeldBlock) -> None:
        if block.columns is None:
            ingested = self.network.ingress.control(self.network.sources[stream], arrival_ns=0, **block.control)
            self.runtime.arrived(ingested)
            self._work()
            return
        for columns in slices(block.columns, TRAIN_ROWS):
            self.runtime.arrived(self.network.ingest(stream, columns, arrival_ns=0, now_us=0))
            self._work()

    def _work(self) -> None:
        self.runtime.run()
        if self._failure is not None:
            raise self._failure

    # --- what the network tells ---

    def late(self, query: str, stream: str, rows: Train) -> None:
        """Count."""
        self.late_rows += rows.rows

    def evaluation_errors(self, query: str, stream: str | None, errors: EvaluationErrors) -> None:
        """Count."""
        self.failed_rows += errors.rows.rows

    def query_failed(self, query: QueryId, operator: OperatorId, error: Exception) -> None:
        """Fail the answer."""
        self._failure = error if isinstance(error, EngineError) else EngineError(f"the query failed: {type(error).__name__}: {error}")


def _forget(train: Train) -> Any:
    return None


def _numbered(place: int, blocks: Iterator[HeldBlock]) -> Iterator[tuple[int, int, HeldBlock]]:
    return ((block.seq, place, block) for block in blocks)
