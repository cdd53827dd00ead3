"""The running operator network: streams, queries, and what connects them.

Knows which operators run and who reads whose log. Makes no choice of what to run: that is the scheduler's, and `executor.py` carries it
out. Threads: rows enter from any thread (`ingest`, `control` items); `attach` and `remove_query` change the graph and are called when
no touched operator is running; everything else is reading.

The life of a query: `add_query` plans and builds it, and returns what the scheduler must know; nothing runs yet. `attach` brings it into
force at an arrival number s: it sees every row with seq >= s. `remove_query` takes it out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from millstream.engine.data.column import Column
from millstream.engine.data.errors import (
    BoundReached,
    InUse,
    InvalidDefinition,
    NameTaken,
    SharingLost,
    StreamEnded,
    UnknownName,
    Unsupported,
)
from millstream.engine.data.graph import ClassId, ClassNode, EdgeId, GraphDelta, LogId, OperatorId, QueryId
from millstream.engine.data.schema import Schema, StreamDefinition, TableDefinition
from millstream.engine.data.train import Train
from millstream.engine.data.watermarks import TIME_MIN
from millstream.engine.data.work import EdgeStart
from millstream.engine.flow.accounts import Hooks as Hooks
from millstream.engine.flow.accounts import NoHooks as NoHooks
from millstream.engine.flow.accounts import StreamAccount, StreamLedger
from millstream.engine.flow.queues import OutputLog
from millstream.engine.flow.relations import TableContent, change_schema
from millstream.engine.flow.running import RunningOperator
from millstream.engine.flow.shedding import ShedLog, Utilities, UtilityOrder
from millstream.engine.flow.sources import Ingested, Ingress, Reservation, ShedLogs, Source, open_log
from millstream.engine.language.recipes import SinkRecipe
from millstream.engine.plan.physical import PhysicalQuery, ShedBy
from millstream.engine.runtime.blueprint import Blueprint, RunningQuery
from millstream.engine.runtime.branches import branches_of
from millstream.engine.runtime.handover import Handover
from millstream.engine.runtime.instantiator import Ids, Instantiator
from millstream.engine.runtime.memory import Memory
from millstream.engine.runtime.ticks import Ticks
from millstream.engine.sharing.registry import Port, Registry, Shared, counts_of
from millstream.engine.sharing.splicing import ChoosePeriods, regroup, take_out_of_force
from millstream.engine.synopses.answers import LateRule

if TYPE_CHECKING:
    from millstream.engine.flow.replay import PastSources

Deliver = Callable[[Train], None]


class Placement(Protocol):
    """Lets operators run in other processes (`RunningOperator.elsewhere`), and rows lie where those find them."""

    def place(self, operators: Sequence[RunningOperator]) -> None:
        """Decide where operators run that are in this process and idle; what serves one query, or is shared, stays together."""
        ...

    def placed_rows(self, columns: Sequence[Column]) -> Sequence[Column]:
        """Return the columns of rows that come in as they are to lie."""
        ...


DEFAULT_CLASS_NODE = ClassNode(ClassId(0), "default")


class Network:
    """Streams, running queries and what connects them. `sharing` lets a new query use running operators of equal recipe over equal inputs.

    `seed` decides which rows are shed; `sheds_when_full`: a class that may be shed also is when its own log fills up.
    """

    def __init__(
        self, hooks: Hooks | None = None, *, sharing: bool = False, seed: int = 0, next_seq: int = 0, sheds_when_full: bool = False
    ) -> None:
        self.hooks: Hooks = hooks or NoHooks()
        self.sharing = sharing
        self.version = 0  # grows with every query that comes or goes
        self.registry = Registry()
        self.lost_sharing = False  # the last `attach` raised SharingLost
        self.choose_periods: ChoosePeriods | None = None  # how SLIDE WITHIN is used; None: every period as asked
        self.late_rule: LateRule | None = None  # what SLIDE WITHIN allows when answers are late; None: nothing
        self.ingress = Ingress(seed, next_seq)
        self.shed_logs = ShedLogs(self.ingress, when_full=sheds_when_full)
        self.sources: dict[str, Source] = {}
        self.operators: dict[OperatorId, RunningOperator] = {}
        self.queries: dict[QueryId, RunningQuery] = {}
        self._derived: dict[str, tuple[QueryId, Port]] = {}
        self._handovers: dict[QueryId, Handover] = {}
        self._ids = Ids()
        self._announced: set[OperatorId] = set()
        self._served: dict[OperatorId, list[RunningQuery]] = {}
        self._watchers: dict[OperatorId, list[RunningQuery]] = {}
        self._outputs: dict[tuple[OperatorId, int], RunningQuery] = {}
        self.ticks = Ticks(self)
        self.memory = Memory(self)
        self.placement: Placement | None = None  # who lets operators run in other processes; None: all run in this one

    # Streams -----------------------------------------------------------------------------------------------------------

    def create_stream(self, definition: StreamDefinition) -> OperatorId:
        """Open a stream for rows. Its source is told to the scheduler with the first query that reads it."""
        self._must_be_free(definition.name)
        operator = self._ids.operator()
        log = OutputLog(self._ids.log(), definition.schema, hi=self.ingress.next_seq)
        source = Source(operator, definition, log, self.ingress)
        log.producer = source
        self.sources[definition.name] = source
        return operator

    def widen_stream(self, definition: StreamDefinition) -> None:
        """Give a stream more columns, behind those that it has. Queries that read it go on with the columns that they were planned with.

        Rows may still come without the new columns: they are NULL there.
        """
        source = self._source(definition.name)
        with self.ingress.lock:
            before, source.definition = source.log, definition
            source.log = open_log(source, OutputLog(self._ids.log(), definition.schema))
            if before.cursors:
                source.older.append(before)
            read = {key: shed for key, shed in source.shed_logs.items() if shed.log.cursors}
            source.shed_logs.clear()
            for (class_id, text), shed in read.items():
                source.shed_logs[class_id, _narrow_key(text, len(shed.log.schema))] = shed
        self._announced.discard(source.id)  # the scheduler must learn of the new output

    def create_table(self, definition: TableDefinition) -> OperatorId:
        """Open a stored relation: a stream of changes (its columns, then `op`) whose standing rows a new query finds."""
        log_schema = change_schema(definition.schema)
        operator = self.create_stream(StreamDefinition(definition.name, log_schema, durability=definition.durability))
        key = [definition.schema.names.index(name) for name in definition.key]
        self.sources[definition.name].table = TableContent(definition.schema, key)
        return operator

    def create_derived(
        self,
        name: str,
        query: PhysicalQuery,
        *,
        class_node: ClassNode = DEFAULT_CLASS_NODE,
        deliver: Deliver | None = None,
        share_state: bool = True,
        share: bool = True,
    ) -> GraphDelta:
        """Plan a derived stream (CREATE STREAM name AS SELECT): a query whose rows others may read under its name."""
        self._must_be_free(name)
        delta = self._plan(name, query, deliver, class_node, keep_progress=True, share_state=share_state, share=share)
        self._derived[name] = (delta.query.id, self.queries[delta.query.id].blueprint.root)
        return delta

    def drop_stream(self, name: str) -> tuple[OperatorId, ...]:
        """Close a stream or derived stream and return the operators that go. InUse names the queries that read it."""
        readers = self.readers(name)
        if readers:
            raise InUse(f"stream {name} is read by {', '.join(readers)}", hint="drop them first, or use CASCADE")
        if name in self._derived:
            return self.remove_query(self._derived.pop(name)[0])
        source = self._source(name)
        del self.sources[name]
        self.ticks.forget(name)
        self._announced.discard(source.id)
        return (source.id,)

    def forget_derived(self, name: str) -> None:
        """Free the name of a derived stream whose query has been taken out."""
        self._derived.pop(name, None)

    def standing_rows(self, table: str) -> int:
        """Return how many rows stand in a table."""
        content = self._source(table).table
        assert content is not None
        with self.ingress.lock:
            return content.content(self.ingress.next_seq).rows

    def derived_logs(self) -> list[tuple[str, OutputLog]]:
        """Return the output of each derived stream."""
        return [(name, port.log) for name, (_, port) in self._derived.items()]

    def readers(self, stream: str) -> list[str]:
        """Return the names of the queries that read a stream, in order of their coming."""
        return [q.node.name for q in self.queries.values() if stream in q.blueprint.streams and q.node.name != stream]

    # Queries -----------------------------------------------------------------------------------------------------------

    def add_query(
        self,
        name: str,
        query: PhysicalQuery,
        deliver: Deliver | None,
        *,
        class_node: ClassNode = DEFAULT_CLASS_NODE,
        share_state: bool = True,
        share: bool = True,
        replaces: QueryId | None = None,
        past: PastSources | None = None,
    ) -> GraphDelta:
        """Plan and build a query; `deliver` gets its result trains, in order, from worker threads. Call `attach` to start it.

        With `replaces` it is another plan of that running query, to be handed over to (see `handover`): it shares only what keeps no state.
        With `past` it reads its streams from sources of its own, and shares nothing; nor does the plan that replaces it.

        Raises UnknownName when a stream does not exist, Unsupported for a recipe that no operator carries out. Without `share_state` only
        operators without state, and synopses, are shared (see `attach`), without `share` nothing is.
        """
        delta = self._plan(
            name,
            query,
            deliver,
            class_node,
            keep_progress=query.options.materialized,
            share_state=share_state and replaces is None,
            share=share and past is None and (replaces is None or self.queries[replaces].past is None),
            alone=replaces is not None,
            past=past,
        )
        if replaces is not None:
            try:
                self._handovers[delta.query.id] = Handover(self.queries[replaces], self.queries[delta.query.id])
            except Unsupported:
                self.remove_query(delta.query.id)
                raise
            self.queries[delta.query.id].results_bytes = self.queries[replaces].results_bytes
        return delta

    def sketch(self, name: str, query: PhysicalQuery, class_node: ClassNode) -> GraphDelta:
        """Return what a query would bring, laid on top of what runs; nothing of it stays."""
        announced = set(self._announced)
        opened = {source.definition.name: set(source.shed_logs) for source in self.sources.values()}
        delta = self.add_query(name, query, lambda _: None, class_node=class_node)
        self.remove_query(delta.query.id)
        for stream, classes in opened.items():
            source = self.sources[stream]
            with self.ingress.lock:
                for class_id in source.shed_logs.keys() - classes:
                    del source.shed_logs[class_id]
        self._announced = announced
        return delta

    def handover(self, query_id: QueryId) -> Handover:
        """Return the handover to a query that was added with `replaces`."""
        return self._handovers[query_id]

    def _plan(
        self,
        name: str,
        query: PhysicalQuery,
        deliver: Deliver | None,
        class_node: ClassNode,
        *,
        keep_progress: bool,
        share_state: bool,
        share: bool,
        alone: bool = False,
        past: PastSources | None = None,
    ) -> GraphDelta:
        registry = self.registry if self.sharing and share else None
        shed_by = query.options.shed_by
        instantiator = Instantiator(
            self._ids,
            lambda stream, schema: self._port(stream, schema, class_node, shed_by, past),
            registry,
            with_state=share_state,
            synopses=not alone,
        )
        blueprint = instantiator.build(name, query, deliver, class_node, keep_progress=keep_progress)
        source_nodes = [n for n in blueprint.source_nodes if n.id not in self._announced]
        self._announced.update(n.id for n in source_nodes)
        self.queries[blueprint.query.id] = RunningQuery(
            blueprint.query,
            blueprint,
            bytes_max=query.options.memory_bytes_max,
            past=past,
            workers=class_node.workers,
        )
        return GraphDelta(blueprint.query, (*source_nodes, *blueprint.nodes), blueprint.edges, (class_node,), blueprint.ports)

    def attach(self, query_id: QueryId) -> tuple[tuple[EdgeId, EdgeStart], ...]:
        """Bring a query into force: from here on it sees every row.

        Returns for each edge that reads a log of others where it begins, for the scheduler's counts. SharingLost when
        rows have come, since it was planned, to an operator with state that it was to share: take it out and plan it without.
        """
        query = self.queries[query_id]
        blueprint, past = query.blueprint, query.past
        self.lost_sharing = False
        with self.ingress.lock:
            at = self.ingress.next_seq if past is None else past.start
            derived = [w.port.base_streams for w in blueprint.wires if w.stream is not None and w.port.derived is not None]
            if any(log.ended for log in blueprint.external_logs) or any(self._all("ended", base) for base in derived):
                ended = [name for name in sorted(blueprint.base_streams) if name in self.sources and self.sources[name].ended]
                what = f"stream {', '.join(ended)}" if ended else f"an input of query {query.node.name}"
                raise InvalidDefinition(
                    f"{what} has ended, so a query would never see a row of it",
                    hint="drop the stream and create it again, or FETCH the rows that are kept",
                )
            self.lost_sharing = not all(shared.is_untouched() for shared in blueprint.with_state)
            if self.lost_sharing:
                raise SharingLost(f"rows have reached an operator that query {query.node.name} was to share")
            if past is None:
                cursors = blueprint.attach(at, lambda names: self._all("idle", names), self._newest_us(blueprint.base_streams))
            else:
                cursors = blueprint.attach(at, lambda names: False, past.newest_before_us)
            if query_id in self._handovers:
                self._handovers[query_id].seal(at)
            for shared in blueprint.offers:
                shared.base_logs = tuple(self.sources[name].log for name in sorted(self._base_of(blueprint, shared)))
                shared.history = counts_of(shared.base_logs)
                self.registry.add(shared)
        query.from_seq = at
        for running in blueprint.operators:
            if running.id not in self.operators:
                self.operators[running.id] = running
                running.bytes_left = partial(self.memory.left, running)
                self._served[running.id] = []
            self._served[running.id].append(query)
            query.rows_before[running.id] = (running.statistics if running.chains else running.counted).rows_in
        for subscription in blueprint.subscriptions:
            assert subscription.port is not None
            self._outputs[subscription.running.id, subscription.port] = query
        self._follow(query)
        for stream, cursor in blueprint.stream_cursors():
            shed = self._shed_log(stream, cursor.log)
            total = cursor.log.rows_total
            ledger = StreamLedger(
                stream, cursor, shed, 0 if shed is None else shed.shed, rows_before=total, older=total - cursor.rows_before
            )
            query.ledgers.setdefault(stream, ledger)
        self._watch(query)
        query.attached = True
        self.version += 1
        self._regroup(blueprint)
        self._place(blueprint)
        return cursors

    def _follow(self, query: RunningQuery) -> None:
        """Find where rows are shed before a query. What a derived stream or view puts out waits on their account."""
        found: dict[LogId, ShedLog] = {}
        query.holds_up = False
        for stream, cursor in query.blueprint.stream_cursors():
            source = self.sources.get(stream)
            if source is not None:
                shed = self._shed_log(stream, cursor.log)
                above: tuple[ShedLog, ...] = () if shed is None else (shed,)
            else:
                producer = getattr(cursor.log.producer, "id", None)
                makers = [] if producer is None else self._served.get(producer, [])
                above = next((maker.shed_logs for maker in makers if maker.blueprint.root.log is cursor.log), ())
            query.holds_up |= not above and (source is None or source.table is None)
            found.update((shed.log.id, shed) for shed in above)
        query.shed_logs = tuple(found.values())
        if query.node.name in self._derived or query.blueprint.keeper is not None:
            for shed in query.shed_logs:
                shed.behind = (*shed.behind, query.blueprint.root.log)

    def _place(self, blueprint: Blueprint) -> None:
        """Let operators that are new, or had to come home for a change, run where they are to; the chains they are in are found anew."""
        if self.placement is not None:
            self.placement.place([o for o in blueprint.operators if o.elsewhere is None and o.id in self.operators])
            self.version += 1

    def _regroup(self, blueprint: Blueprint) -> None:
        """Let the owner choose the periods anew of all queries with SLIDE WITHIN that share a synopsis with one that came or left."""
        for running in {s.running.id: s.running for s in blueprint.subscriptions}.values():
            if self.choose_periods is not None and running.queries:
                regroup(running, partial(self._name_at, running.id), self.choose_periods, self.late_rule)

    def _name_at(self, operator: OperatorId, output: int) -> str:
        return self._outputs[operator, output].node.name

    def _watch(self, query: RunningQuery) -> None:
        """Have late rows judged across the places at which the query meets a stream, if these are several."""
        outputs: dict[OperatorId, list[int]] = {}
        for subscription in query.blueprint.subscriptions:
            assert subscription.port is not None
            outputs.setdefault(subscription.running.id, []).append(subscription.port)
        query.branches = branches_of(query.blueprint.operators, outputs)
        if query.branches is not None:
            for running in query.blueprint.operators:
                self._watchers.setdefault(running.id, []).append(query)
                running.watched += 1

    def _base_of(self, blueprint: Blueprint, shared: Shared) -> frozenset[str]:
        return frozenset[str]().union(*(p.base_streams for p in shared.ports)) or blueprint.base_streams

    def _all(self, state: str, streams: frozenset[str]) -> bool:
        """Say whether all of these streams are so. Tables are neither idle nor do they end: what joins one is as its stream is."""
        sources = [source for name in streams if (source := self.sources[name]).table is None]
        return bool(sources) and all(getattr(source, state) for source in sources)

    def _newest_us(self, streams: frozenset[str]) -> int | None:
        """Return the greatest event time that these streams have seen; None before the first row."""
        seen = [s.watermark_us + s.definition.time.delay_us for name in streams if (s := self.sources[name]).watermark_us > TIME_MIN]
        return max(seen, default=None)

    def remove_query(self, query_id: QueryId) -> tuple[OperatorId, ...]:
        """Take a query out and return the operators that served nobody else."""
        self._announced.difference_update(self.sources_alone(query_id))
        query = self.queries.pop(query_id)
        self._handovers = {new: h for new, h in self._handovers.items() if query_id not in (new, h.old.node.id)}
        if not query.attached:  # perhaps nobody heard what its plan announced; saying it twice does no harm
            self._announced.difference_update(node.id for node in query.blueprint.source_nodes)
        gone: list[OperatorId] = []
        for subscription in query.blueprint.subscriptions:
            place = (subscription.running.id, -1 if subscription.port is None else subscription.port)
            if self._outputs.get(place) is query:
                del self._outputs[place]
                if subscription.running.queries > 1:
                    take_out_of_force(subscription)
        for running in reversed(query.blueprint.operators):
            running.queries -= 1
            watchers = self._watchers.get(running.id, [])
            if query in watchers:
                watchers.remove(query)
                running.watched -= 1
            served = self._served.get(running.id, [])
            if query in served:
                served.remove(query)
            if running.queries == 0:
                gone.append(running.id)
                self.registry.remove(running.id)
                self.operators.pop(running.id, None)
                self._served.pop(running.id, None)
                self._watchers.pop(running.id, None)
                for cursor in running.inputs:
                    cursor.log.close_cursor(cursor.edge)
                running.leave()
        for shed in query.shed_logs:
            shed.behind = tuple(log for log in shed.behind if log is not query.blueprint.root.log)
        self._forget_unread(query)
        self.version += 1
        self._regroup(query.blueprint)
        self._place(query.blueprint)
        return tuple(gone)

    def end_query(self, query: RunningQuery, operator: OperatorId, error: Exception) -> None:
        """Let a query end for what one of its operators came to, and tell the owner, who takes it out; what serves others goes on."""
        if not query.failed:
            query.abandon()
            self.memory.ended += isinstance(error, BoundReached)
            self.hooks.query_failed(query.node.id, operator, error)

    def hold(self, query_id: QueryId, held: bool) -> None:
        """Keep a paused query's answers from leaving, or let them go again; the scheduler stops its operators itself."""
        for running in self.queries[query_id].blueprint.operators:
            if isinstance(running.recipe, SinkRecipe):
                running.held = held

    def sources_alone(self, query_id: QueryId) -> tuple[OperatorId, ...]:
        """Return the sources that only this query reads: whoever schedules needs them no longer when it goes."""
        others = {node.id for q in self.queries.values() if q.node.id != query_id for node in q.blueprint.source_nodes}
        return tuple(node.id for node in self.queries[query_id].blueprint.source_nodes if node.id not in others)

    def conservation(self, query_id: QueryId) -> tuple[StreamAccount, ...]:
        """Return a query's accounts, one per input stream (K10)."""
        return tuple(ledger.account() for ledger in self.queries[query_id].ledgers.values())

    # Rows --------------------------------------------------------------------------------------------------------------

    def ingest(
        self, stream: str, columns: Sequence[Column], *, arrival_ns: int, now_us: int, reservation: Reservation | None = None
    ) -> Ingested:
        """Let in one chunk of checked rows (at least one). `arrival_ns` is monotonic, `now_us` the processing clock since 1970."""
        source = self._source(stream)
        if source.ended:
            raise StreamEnded(stream)
        if source.table is not None:
            columns = source.table.with_op(columns)
        if self.placement is not None:
            columns = self.placement.placed_rows(columns)
        return self.ingress.push(source, columns, arrival_ns=arrival_ns, now_us=now_us, reservation=reservation)

    def reserve(self, stream: str, rows: int) -> Reservation:
        """Give out arrival numbers for rows that a journal must hold before they may be pushed."""
        return self.ingress.reserve(self._source(stream), rows)

    def end(self, stream: str, *, arrival_ns: int) -> Ingested | None:
        """End a stream (W = +∞); None when it had ended already."""
        source = self._source(stream)
        return None if source.ended else self.ingress.control(source, arrival_ns=arrival_ns, ended=True)

    def set_drop_ratio(self, stream: str, class_id: ClassId, ratio: float) -> None:
        """Shed this share of the stream's rows, from the next chunk on, before queries of a class that may be shed."""
        self.shed_logs.set_ratio(self._source(stream), class_id, ratio)

    def set_log_drop_ratio(self, log: LogId, ratio: float) -> None:
        """Do the same by the log of the class on the stream; nothing for a log that is no such, or is gone."""
        for source in list(self.sources.values()):
            with self.ingress.lock:
                for shed in source.shed_logs.values():
                    if shed.log.id == log:
                        shed.ratio = ratio

    # Inside ------------------------------------------------------------------------------------------------------------

    def queries_of_output(self, operator: OperatorId, output: int) -> list[RunningQuery]:
        """Return the queries behind one output of an operator whose outputs belong to different queries."""
        query = self._outputs.get((operator, output))
        return [] if query is None else [query]

    def queries_served(self, operator: OperatorId) -> list[RunningQuery]:
        """Return the queries that an operator serves."""
        return self._served.get(operator, [])

    def watchers_of(self, operator: OperatorId) -> list[RunningQuery]:
        """Return the queries that judge late rows across an operator and others (branches.py)."""
        return self._watchers.get(operator, [])

    def _source(self, name: str) -> Source:
        source = self.sources.get(name)
        if source is None:
            raise UnknownName(f"there is no stream {name}")
        return source

    def _must_be_free(self, name: str) -> None:
        if name in self.sources or name in self._derived:
            raise NameTaken(f"the name {name} is taken by a stream")

    def _port(self, stream: str, schema: Schema, class_node: ClassNode, shed_by: ShedBy | None, past: PastSources | None = None) -> Port:
        """Return where a stream can be read with the columns of `schema`: all, or those that it had before others were added."""
        if past is not None and (live := self._source(stream)).table is None:
            definition = live.definition
            if len(schema) < len(definition.schema):
                definition = replace(definition, schema=definition.schema.first(len(schema)))
            own = past.open(definition, self._ids.operator(), OutputLog(self._ids.log(), definition.schema))
            return Port(own.log, own.id, own, frozenset((stream,)), flushes=live.definition.time.idle_flush)
        if stream in self._derived:
            query_id, port = self._derived[stream]
            base = self.queries[query_id].blueprint.base_streams
            flushes = any(self.sources[b].definition.time.idle_flush for b in base)
            return Port(port.log, port.producer, None, base, derived=stream, flushes=flushes, lineages=port.lineages)
        if stream not in self.sources:
            return self._view_port(stream)
        source = self._source(stream)
        narrow = len(schema) < len(source.log.schema)
        log, lineages = source.log, 0
        if class_node.may_shed and source.table is None:
            text = "" if shed_by is None else shed_by.text
            key = (class_node.id, _narrow_key(text, len(schema)) if narrow else text)
            shed = source.shed_logs.get(key)
            if shed is None:
                utility = None if shed_by is None else UtilityOrder(Utilities(shed_by.expression))
                shed = self.shed_logs.open(source, key, lambda: self._log_of(source, schema), utility)
                self._announced.discard(source.id)  # the scheduler must learn of the new output
            log, lineages = shed.log, 1
        elif narrow:
            log = self._older_log(source, schema)
        return Port(log, source.id, source, frozenset((stream,)), flushes=source.definition.time.idle_flush, lineages=lineages)

    def _view_port(self, name: str) -> Port:
        """Return where the changes of a materialized view can be read. UnknownName where none of this name runs."""
        found = next((q for q in self.queries.values() if q.node.name == name and q.attached and q.past is None), None)
        keeper = None if found is None else found.blueprint.keeper
        if found is None or keeper is None:
            raise UnknownName(f"there is no stream {name}")
        port, base = found.blueprint.root, found.blueprint.base_streams
        flushes = any(self.sources[b].definition.time.idle_flush for b in base)
        return Port(port.log, port.producer, None, base, derived=name, flushes=flushes, lineages=port.lineages, keeper=keeper)

    def _log_of(self, source: Source, schema: Schema) -> OutputLog:
        return OutputLog(self._ids.log(), source.definition.schema.first(len(schema)))

    def _older_log(self, source: Source, schema: Schema) -> OutputLog:
        """Return the log of a source's first columns; one that is made here the scheduler must learn of."""
        with self.ingress.lock:
            found = next((log for log in source.older if len(log.schema) == len(schema)), None)
            if found is None:
                found = open_log(source, self._log_of(source, schema))
                source.older.append(found)
                self._announced.discard(source.id)
        return found

    def _forget_unread(self, query: RunningQuery) -> None:
        """Let go of logs of former columns that nobody reads any more."""
        for name in query.blueprint.base_streams:
            source = self.sources.get(name)
            if source is None or not (source.older or source.definition.added):
                continue
            with self.ingress.lock:
                source.older = [log for log in source.older if log.cursors]
                for key, shed in list(source.shed_logs.items()):
                    if len(shed.log.schema) < len(source.log.schema) and not shed.log.cursors:
                        del source.shed_logs[key]

    def _shed_log(self, stream: str, log: OutputLog) -> ShedLog | None:
        source = self.sources.get(stream)
        return None if source is None else next((shed for shed in source.shed_logs.values() if shed.log is log), None)


def _narrow_key(text: str, width: int) -> str:
    """Return the text by which the log of a class is found whose queries read the first columns of a stream alone."""
    return f"{text.split(chr(0))[0]}{chr(0)}{width}"
