"""An engine that runs pieces of queries that were cut: over rows whose arrival numbers and watermarks are known from elsewhere.

Its sources are named as in the pieces' plans. Results are taken as trains; what the operators hold can be kept and taken up again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from millstream.engine.data.column import Column, null_column
from millstream.engine.data.graph import QueryId
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema, StreamDefinition
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.flow.sources import GivenPart
from millstream.engine.language.recipes import EmitSpec
from millstream.engine.plan.physical import PhysicalNode, PhysicalQuery
from millstream.engine.runtime import fork
from millstream.engine.runtime.blueprint import RunningQuery
from millstream.engine.runtime.fork import OperatorState
from millstream.server.embedded.private_engine import PrivateEngine

NO_NUMBERS: Int64Array = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class PlacedRows:
    """Rows of one source in the order of their arrival numbers, with their event times (µs)."""

    columns: Sequence[Column]
    seqs: Int64Array
    times_us: Int64Array


@dataclass(frozen=True, slots=True)
class Moves:
    """How W of one source moves: after the item `seqs[i]` it is at least `values_us[i]`. Both never fall."""

    seqs: Int64Array
    values_us: Int64Array


_STILL = Moves(NO_NUMBERS, NO_NUMBERS)


class PieceEngine(PrivateEngine):
    """Runs one piece, or several over the same sources, which then share their windows. `next_seq` is the first number not let in.

    `late_seqs` has for each piece the arrival numbers of late rows, by train.
    """

    def __init__(self, roots: Sequence[PhysicalNode], sources: Sequence[StreamDefinition]) -> None:
        super().__init__(sharing=len(roots) > 1)
        self._results: list[list[Train]] = [[] for _ in roots]
        self.late_seqs: list[list[Int64Array]] = [[] for _ in roots]
        self._definitions = {definition.name: definition for definition in sources}
        for definition in sources:
            self.network.create_stream(definition)
        self._pieces: list[QueryId] = []
        for number, root in enumerate(roots):
            query = PhysicalQuery(root, root.recipe.schema, EmitSpec())
            delta = self.network.add_query(str(number), query, self._results[number].append)
            self.runtime.add(delta)
            self._work()
            self._pieces.append(delta.query.id)

    @property
    def next_seq(self) -> int:
        """The first arrival number that was not let in yet."""
        return self.network.ingress.next_seq

    def move(self, stream: str, watermark_us: int) -> None:
        """Let a source begin where W stands already; it takes one arrival number."""
        self.runtime.arrived(self.network.ingress.control(self.network.sources[stream], arrival_ns=0, watermark_us=watermark_us))
        self._work()

    def take(self, stream: str, columns: Sequence[Column]) -> None:
        """Let rows in with the next arrival numbers; W moves by them."""
        self.runtime.arrived(self.network.ingest(stream, columns, arrival_ns=0, now_us=0))
        self._work()

    def give(self, rows: dict[str, PlacedRows], moves: dict[str, Moves], upto: int) -> None:
        """Let in all that comes before the arrival number `upto`: rows and moves of W, by source."""
        parts = []
        for name, source in self.network.sources.items():
            if source.ended:
                continue
            placed, moved = rows.get(name) or self._nothing(name), moves.get(name, _STILL)
            parts.append(GivenPart(source, placed.columns, placed.seqs, placed.times_us, moved.seqs, moved.values_us))
        for ingested in self.network.ingress.push_given(parts, upto, arrival_ns=0):
            self.runtime.arrived(ingested)
        self._work()

    def end(self, names: Collection[str] | None = None) -> None:
        """End some sources, all when none are named, by one item."""
        upto = self.next_seq + 1
        ending = [s for s in self.network.sources.values() if not s.ended and (names is None or s.definition.name in names)]
        parts = []
        for source in ending:
            nothing = self._nothing(source.definition.name)
            parts.append(GivenPart(source, nothing.columns, nothing.seqs, nothing.times_us, NO_NUMBERS, NO_NUMBERS, ends=True))
        for ingested in self.network.ingress.push_given(parts, upto, arrival_ns=0):
            self.runtime.arrived(ingested)
        self._work()

    def results(self, piece: int = 0) -> list[Train]:
        """Return the results of a piece since the last call, trains without rows left out."""
        found = [train for train in self._results[piece] if train.rows]
        self._results[piece].clear()
        return found

    def late_count(self, piece: int = 0) -> int:
        """Return how many rows were late to a piece, each once; those at which an expression had failed count as failed."""
        return sum(account.late for account in self.network.conservation(self._pieces[piece]))

    def late(self, query: str, stream: str, rows: Train) -> None:
        """Note which."""
        super().late(query, stream, rows)
        self.late_seqs[int(query)].append(rows.seq.array())

    def states(self) -> list[OperatorState]:
        """Return what the operators of the only piece hold; nothing waits in the queues between two calls."""
        copied = fork.take([self._only.blueprint], self.next_seq)
        return copied.advance()[0][0]

    def take_up(self, states: Sequence[OperatorState], next_seq: int, watermarks_us: dict[str, int]) -> None:
        """Go on from what another engine of the same piece held, before any row was let in here."""
        moves = {name: Moves(np.array([next_seq - 1]), np.array([value])) for name, value in watermarks_us.items()}
        self.give({}, moves, next_seq)
        fork.restore(self._only.blueprint, states)

    @property
    def _only(self) -> RunningQuery:
        (piece,) = self._pieces
        return self.network.queries[piece]

    def _nothing(self, name: str) -> PlacedRows:
        schema: Schema = self._definitions[name].schema
        return PlacedRows([null_column(f.type, 0) for f in schema.fields], NO_NUMBERS, NO_NUMBERS)
