"""How a restart rebuilds what durable queries held: from the oldest checkpoint, the journal's records in their one order (K11).

Definitions come back first; queries all of whose inputs are journaled wait here until the replay has reached the arrival number at which
they once began, the others until its end. While rows are replayed nothing is written to the journal, and nothing that queries feed to
other streams enters those: what they fed before is in the journal itself, what they had not fed yet follows at the end.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from millstream.engine.data.errors import EngineError
from millstream.engine.data.records import dataclass
from millstream.engine.runtime import fork
from millstream.server.durability import checkpoints
from millstream.server.durability.checkpoints import Checkpoint
from millstream.server.errors import StoreError
from millstream.server.host import running
from millstream.server.host.lifecycle import Verb
from millstream.server.host.queries import QueryKind
from millstream.server.host.side_streams import DirectFeeder
from millstream.server.journal.known import way_out
from millstream.server.journal.records import DEFINITION, ROWS, Record
from millstream.server.journal.store import StoredRun
from millstream.server.lean import one_by_one

if TYPE_CHECKING:
    from millstream.engine.data.column import Column
    from millstream.engine.data.train import Int64Array
    from millstream.server.durability.journaling import Journaling
    from millstream.server.host.engine_host import EngineHost
    from millstream.server.host.queries import Query

STEP_S = 0.001


@dataclass(frozen=True, slots=True)
class _FedRows:
    stream: str
    order: int
    seqs: Int64Array
    columns: Sequence[Column]


class Recovery:
    """The replay of a journal. `defer` takes queries while the catalogue comes back; `run` does the rest and returns what went wrong."""

    def __init__(self, host: EngineHost, journaling: Journaling) -> None:
        self.host = host
        self.journaling = journaling
        self.problems: list[str] = []
        self._deferred: dict[str, Query] = {}  # by key, in the order they came
        self._next: list[tuple[int, str]] = []  # of those that once began at a record, when and which; the next one last
        self._paused: list[Query] = []
        self._fed: list[_FedRows] = []
        self._fed_upto: dict[str, int] = {}
        self._from_the_past: list[Query] = []  # which is let into them anew, as nothing says what they held

    def defer(self, query: Query) -> None:
        """Begin a query when its time has come."""
        self._deferred[query.key] = query

    def pause(self, query: Query) -> None:
        """Pause a query once it has caught up."""
        self._paused.append(query)

    def feed(self, stream: str, order: int, seqs: Int64Array, columns: Sequence[Column]) -> None:
        """Take what a query feeds during the replay: kept for its end where the journal does not have it."""
        query = self.host.query_of_order(order)
        found = None if query is None else self.host.queries.find(query)
        if stream not in self.journaling.numbers or found is None or found.kind is not QueryKind.INSERT:
            return  # a stream in memory lost what it held; late rows and errors were told at the time
        new = np.asarray(seqs) > self._fed_upto.get(found.name, -1)
        if new.any():
            index = np.flatnonzero(new)
            self._fed.append(_FedRows(stream, order, np.asarray(seqs)[index], [c.take(index) for c in columns]))

    def run(self) -> list[str]:
        """Replay."""
        host, journal = self.host, self.journaling.journal
        host.feeder = self
        segments = journal.segments
        floor = segments[0].stands_at
        checkpoint = checkpoints.read(self.journaling.disk, self.journaling.directory, host.store.identity, floor)
        self._read_fed(self._records())
        host.network.ingress.advance_to(floor)
        if checkpoint is not None:
            self._stand(checkpoint)
        for key, query in tuple(self._deferred.items()):
            if query.planned.physical.options.archive:
                self._from_the_past.append(self._deferred.pop(key))
        self._replay(floor, checkpoint)
        host.network.ingress.advance_to(journal.end)
        self._begin_due(None)
        self._caught_up()
        self._go_on()
        return self.problems

    def _records(self) -> Iterator[Record]:
        for segment in self.journaling.journal.segments:
            yield from segment.records(self.journaling.disk)

    def _read_fed(self, records: Iterator[Record]) -> None:
        """Learn up to which row each INSERT's results are in the journal."""
        for record in records:
            if record.kind == DEFINITION:
                self._compare(record)
            fed = record.meta.get("fed") if record.kind == ROWS else None
            if fed is not None:
                self._fed_upto[fed[0]] = max(self._fed_upto.get(fed[0], -1), fed[1])

    def _compare(self, record: Record) -> None:
        """The journal has each definition too, so one that the catalogue remembers otherwise is noticed."""
        if record.stream not in self.journaling.numbers.values():
            return
        stored = self.host.store.definition(record.stream)
        if stored.content != record.meta:
            message = f"catalogue and journal do not agree on {record.meta['kind']} {record.meta['name']}: the catalogue is damaged"
            raise StoreError(message, hint=way_out(self.journaling.directory))

    # --- the checkpoint ---

    def _stand(self, checkpoint: Checkpoint) -> None:
        """Let streams, tables and queries stand as they did at the checkpoint."""
        host = self.host
        runs = host.store.runs()
        for name, number in self.journaling.numbers.items():
            state = checkpoint.sources.get(number)
            if state is None:
                continue
            source = host.network.sources[name]
            if number in checkpoint.producers:
                host.intakes[name].producers.load(checkpoint.producers[number])
            for member, value in state.items():
                setattr(source, member, value)
            source.log.watermark_us, source.log.idle, source.log.ended = source.watermark_us, source.idle, source.ended
            if source.table is not None:
                source.table.load(checkpoint.tables[number])
        for query in one_by_one(tuple(self._deferred.values())):
            held = checkpoint.queries.get(query.key)
            run = runs.get(query.key)
            # A run that began where the checkpoint stands had seen nothing then, so what is held under its key is another's.
            if held is None or run is None or run.began_at >= checkpoint.at:
                continue
            del self._deferred[query.key]
            query.rows_out = held.rows
            query.stands = True
            if self._begin(query) and query.id is not None:
                self._take_up(query, held.operators)

    def _take_up(self, query: Query, operators: list[fork.OperatorState]) -> None:
        host = self.host
        assert query.id is not None
        try:
            with host.runtime.still():
                fork.restore(host.network.queries[query.id].blueprint, operators)
        except EngineError as error:
            query.earlier.clear()
            query.rows_out = query.rows_before = 0
            host.remember_run(query)  # else the next restart would take tokens of the former results for those of these
            host.observer.query_began(query)  # else those would be counted on from the former ones
            self.problems.append(f"{query.key}: it begins anew: {error}")

    # --- the records ---

    def _replay(self, floor: int, checkpoint: Checkpoint | None) -> None:
        host = self.host
        names = {number: name for name, number in self.journaling.numbers.items()}
        self._begin_incomplete_anew(floor if checkpoint is None else checkpoint.at)
        for record in self._records():
            if record.lo < floor:
                continue  # the checkpoint has what came of it
            self._begin_due(record.lo)
            name = names.get(record.stream)
            if name is None or record.kind == DEFINITION:
                continue
            host.network.ingress.advance_to(record.lo)
            source = host.network.sources[name]
            arrival_ns = host.runtime.arrival_ns()
            if record.kind == ROWS:
                columns = record.columns(source.definition.schema, source.definition.added)
                ingested = host.network.ingest(name, columns, arrival_ns=arrival_ns, now_us=record.now_us)
                intake = host.intakes[name]
                intake.accepted_total += record.hi - record.lo
                if "produced" in record.meta:
                    from millstream.server.host.producers import Produced

                    intake.producers.note(Produced(*record.meta["produced"]), record.now_us)
            else:
                ingested = host.network.ingress.control(source, arrival_ns=arrival_ns, **record.meta)
            host.runtime.arrived(ingested)
            while any(log.is_full for log in source.logs):
                self._take_out_failed()
                time.sleep(STEP_S)

    def _begin_incomplete_anew(self, at: int) -> None:
        """A query that began before the journal does, and whose state no checkpoint has, begins anew with the first row that is kept."""
        runs = self.host.store.runs()
        began: dict[str, int] = {}
        with self.host.store.change():
            for key, query in self._deferred.items():
                run = runs.get(key) if self.journaling.keeps_all_of(query) else None
                if run is not None and run.began_at < at:
                    self.problems.append(f"{key}: rows that it was made of are kept no longer, so it begins anew with those that are")
                    self.host.store.set_run(key, StoredRun(at, secrets.token_hex(6)))  # an identity that no token has
                if run is not None:
                    began[key] = max(run.began_at, at)
        # The sort keeps the order of those that began at once, and so does turning it round.
        self._next = sorted(((began_at, key) for key, began_at in began.items()), key=lambda one: one[0])[::-1]

    def _begin_due(self, upto: int | None) -> None:
        """Begin what once began before the record at `upto`; with None all that is left."""
        while self._next and (upto is None or self._next[-1][0] <= upto):
            began_at, key = self._next.pop()
            self.host.network.ingress.advance_to(began_at)
            self._begin(self._deferred.pop(key))
        if upto is None:
            rest, self._deferred = self._deferred, {}
            for query in one_by_one(rest.values()):
                self._begin(query)

    def _begin(self, query: Query) -> bool:
        try:
            running.begin(self.host, query, recovering=True)
        except EngineError as error:
            self.problems.append(f"{query.key}: {error}")
            return False
        return True

    # --- the end ---

    def _caught_up(self) -> None:
        host = self.host
        at = host.network.ingress.next_seq - 1
        while not all(host.have_seen(name, at) for name in self.journaling.numbers):
            time.sleep(STEP_S)
        self._take_out_failed()

    def _take_out_failed(self) -> None:
        """A query that failed while rows were replayed holds nobody up."""
        for query in self.host.queries:
            if query.failure is not None and query.id is not None:
                self.problems.append(f"{query.key} failed: {query.failure}")
                running.finished(self.host, query, query.run)

    def _go_on(self) -> None:
        """Write and feed again; remember how far each query's results go that were given before."""
        host = self.host
        for name in self.journaling.numbers:
            self.journaling.record(name)
        with host.store.change():  # one commit: each by itself is forced to the disk, which took longer than all else of a start
            for query in (*host.queries, *host.derived.values()):
                if query.identity and query.earlier:
                    host.remember_run(query)
        host.recovery = None
        for query in (*host.queries, *host.derived.values()):
            if query.id is not None:
                running.show_tables(host, query)
        host.feeder = DirectFeeder(host.feed)
        for fed in self._fed:
            host.feeder.feed(fed.stream, fed.order, fed.seqs, fed.columns)
        for query in self._from_the_past:
            self._begin(query)
        for query in self._paused:
            running.move(host, query, Verb.PAUSE)
