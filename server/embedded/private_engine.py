"""The private engine of one answer: the SELECT runs over given rows as a continuous query would, then its inputs end.

Network, executor and scheduling core are those of the live server, in virtual time and in the calling thread; nothing is shared with
the running network but immutable columns. So a one-time answer is the continuous query's over the same rows.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from millstream.engine.data.column import Column
from millstream.engine.data.errors import EngineError
from millstream.engine.data.graph import OperatorId, QueryId
from millstream.engine.data.schema import StreamDefinition, TableDefinition
from millstream.engine.data.train import Train
from millstream.engine.operators.contract import EvaluationErrors
from millstream.engine.plan.physical import PhysicalQuery
from millstream.engine.runtime.executor import Executor
from millstream.engine.runtime.network import Network
from millstream.scheduler.spec import PolicySpec
from millstream.server.embedded.virtual_runtime import VirtualRuntime

if TYPE_CHECKING:
    from millstream.engine.flow.replay import PastItem

TRAIN_ROWS = 16_384


class GivenBlock(Protocol):
    """Rows that stand at the arrival number `seq`, or a control item of the stream (`columns` None)."""

    @property
    def seq(self) -> int:
        """The arrival number."""
        ...

    @property
    def columns(self) -> Sequence[Column] | None:
        """The rows."""
        ...

    @property
    def control(self) -> Any:
        """Arguments of the control item."""
        ...


class GivenRows(Protocol):
    """The rows of one input."""

    @property
    def definition(self) -> StreamDefinition:
        """The stream, or the stream of a table's changes."""
        ...

    @property
    def blocks(self) -> Callable[[], Iterator[GivenBlock]]:
        """Yields the blocks in order of arrival."""
        ...


class PrivateEngine:
    """A network of its own, which answers once. `late` and `failed` count rows, as the notices of the answer say."""

    def __init__(self, *, sharing: bool = False) -> None:
        self.network = Network(self, sharing=sharing)
        self.runtime = VirtualRuntime(Executor(self.network), self.network, PolicySpec.parse("fcfs"), lambda _: None)
        self.late_rows = 0
        self.failed_rows = 0
        self._failure: Exception | None = None

    # --- inputs, before the queries ---

    def add_table(self, definition: TableDefinition, held: GivenRows) -> None:
        """Let a table stand as it was held."""
        self.network.create_table(definition)
        table = self.network.sources[definition.name].table
        assert table is not None
        for block in held.blocks():
            assert block.columns is not None
            table.load(block.columns)

    def add_stream(self, definition: StreamDefinition) -> None:
        """Make room for the rows of a stream; `run` or `replay` lets them in."""
        self.network.create_stream(definition)

    def add_derived(self, name: str, physical: PhysicalQuery) -> None:
        """Let a derived stream follow from its inputs."""
        self.runtime.add(self.network.create_derived(name, physical, deliver=_forget))
        self._work()

    # --- the answer ---

    def run(self, physical: PhysicalQuery, held: Sequence[GivenRows]) -> list[Train]:
        """Return the answer's trains: all held rows in arrival order, then every input's end."""
        answer = self._begin(physical)
        names = [h.definition.name for h in held]
        for _, place, block in heapq.merge(*(_numbered(place, h.blocks()) for place, h in enumerate(held)), key=lambda item: item[:2]):
            self._push(names[place], block)
        return self._end(answer)

    def replay(self, physical: PhysicalQuery, pasts: Mapping[str, Iterator[PastItem]]) -> list[Train]:
        """Return the answer's trains over what came once on each stream, with the arrival numbers and watermarks of then."""
        from millstream.engine.flow.replay import Replay  # most answers need none

        answer = self._begin(physical)
        replay = Replay(self.network.ingress, [(self.network.sources[name], items) for name, items in pasts.items()], TRAIN_ROWS)
        while (step := replay.step(0)) is not None:
            for ingested in step:
                self.runtime.arrived(ingested)
            self._work()
        return self._end(answer)

    def _begin(self, physical: PhysicalQuery) -> list[Train]:
        answer: list[Train] = []
        self.runtime.add(self.network.add_query("answer", physical, answer.append))
        self._work()
        return answer

    def _end(self, answer: list[Train]) -> list[Train]:
        for name in self.network.sources:
            ended = self.network.end(name, arrival_ns=0)
            if ended is not None:
                self.runtime.arrived(ended)
            self._work()
        return [train for train in answer if train.rows]

    def _push(self, stream: str, block: GivenBlock) -> None:
        if block.columns is None:
            ingested = self.network.ingress.control(self.network.sources[stream], arrival_ns=0, **block.control)
            self.runtime.arrived(ingested)
            self._work()
            return
        rows = len(block.columns[0])
        for start in range(0, rows, TRAIN_ROWS):
            columns = [c.slice(start, min(start + TRAIN_ROWS, rows)) for c in block.columns]
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
        told = isinstance(error, EngineError | MemoryError)
        self._failure = error if told else EngineError(f"the query failed: {type(error).__name__}: {error}")


def _forget(train: Train) -> Any:
    return None


def _numbered(place: int, blocks: Iterator[GivenBlock]) -> Iterator[tuple[int, int, GivenBlock]]:
    return ((block.seq, place, block) for block in blocks)
