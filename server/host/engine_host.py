"""The assembly of catalogue, network and scheduler, the same for the live server and for `millstream run`.

One thread at a time executes statements. Rows may be taken in from any thread. What happens meanwhile (results, ends, failures) is told
to an `Observer`, from worker threads.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from millstream.engine.data.column import Column
from millstream.engine.data.errors import BoundReached, InvalidDefinition, NameTaken, UnknownName
from millstream.engine.data.graph import ClassId, ClassNode, OperatorId, QueryId
from millstream.engine.data.nearest import SHOWN_RELATIONS, did_you_mean, near_or_listed
from millstream.engine.data.schema import StreamDefinition, TableDefinition
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.flow.accounts import StreamAccount
from millstream.engine.flow.frontier import edge_frontier
from millstream.engine.flow.shedding import ShedLog
from millstream.engine.flow.sources import Ingested, MergedPart
from millstream.engine.language.statements import ClassDefinition, Recorded, Statement
from millstream.engine.operators.contract import EvaluationErrors
from millstream.engine.plan.catalog import Catalog, noun_of
from millstream.engine.plan.physical import QueryOptions
from millstream.engine.runtime.executor import Executor
from millstream.engine.runtime.memory import NO_BOUND
from millstream.engine.runtime.network import Network
from millstream.scheduler.instructions import Instruction, Report, SetDropRatio
from millstream.scheduler.names import SHARING_DEFAULT, SHARING_OFF
from millstream.scheduler.spec import PolicySpec
from millstream.server.errors import StorageError
from millstream.server.functions.process import Confinement, FunctionProcess
from millstream.server.host.contract import (
    Context,
    Durability,
    HeldRows,
    Observer,
    Optimising,
    Postponing,
    Refresh,
    TargetWatch,
    WorkerFacts,
)
from millstream.server.host.intake import StreamIntake
from millstream.server.host.lifecycle import QueryState
from millstream.server.host.queries import Query, QueryBook, base_streams
from millstream.server.host.runtime import Runtime, RuntimeFactory
from millstream.server.host.server_files import FileRules
from millstream.server.host.sharing import late_rule, period_chooser
from millstream.server.host.side_streams import DirectFeeder, Feeder, error_columns, late_columns
from millstream.server.journal.store import Store, StoredRun
from millstream.server.results.outcome import Outcome

if TYPE_CHECKING:
    from millstream.server.host.connectors import Connectors
    from millstream.server.host.recordings import ArrivalRecording, DecisionRecording

SEEN_S = 1.0  # how long a FETCH waits for a query to have seen what arrived before it
SEEN_STEP_S = 0.001
SHARED_NAMES = "streams, tables and queries share their names"
COUNTS = ("accepted", "processed", "late", "partly_late", "shed", "failed", "queued", "failed_results")


class EngineHost:
    """Catalogue, network and runtime, and the queries on them.

    What stands in the first block of members is set by `server/assembly.py`, which puts the parts together.
    """

    execute: Callable[[Statement | str, Context], Outcome]
    """Execute one statement, parsed or as text. Raises the errors of the engine, the scheduler and the server."""
    admit: Callable[[Query], None]
    """Let a query that is to begin in, perhaps with warnings, or raise Refused."""
    watch: TargetWatch
    make_refresh: Callable[[str, float], Refresh]
    """Makes what polls the files of tables, when the first of them is there."""

    def __init__(
        self,
        observer: Observer,
        store: Store,
        runtime: RuntimeFactory,
        policy: PolicySpec,
        *,
        rewrite: bool = True,
        sharing: str = SHARING_DEFAULT,
        shed_seed: int = 0,
        sheds_when_full: bool = False,
        step_ns_max: int | None = None,
    ) -> None:
        self.observer = observer
        self.store = store
        self.catalog = Catalog()
        self.queries = QueryBook()
        self.derived: dict[str, Query] = {}
        self.functions: dict[str, FunctionProcess] = {}
        self.confinement = Confinement()
        """What functions may do, and what must stay hidden from them."""
        self.spills = False
        """Whether rows that wait may leave memory."""
        self.file_rules = FileRules()
        """Which files statements may name."""
        self.intakes: dict[str, StreamIntake] = {}
        self.unfed: dict[str, StreamIntake] = {}
        """Those for which rows of the server's own wait until the disk takes them."""
        self._connectors: Connectors | None = None
        self.feeder: Feeder = DirectFeeder(self.feed)
        self._last_order = 0
        self.journaling: Durability | None = None
        self.recovery: Postponing | None = None  # while the journal is replayed
        self.optimiser: Optimising | None = None
        self.workers: WorkerFacts | None = None  # None: operators run in this process
        self.refresh: Refresh | None = None  # made with the first table that is polled
        self.refresh_rules: tuple[str, float] | None = None
        """The policy of polls and their budget in bytes a second; None where nothing is polled."""
        self.is_durable = True  # False: nothing that happens here outlives it, so that DURABILITY promises nothing
        self.recordings: dict[Recorded, tuple[object | None, ArrivalRecording | DecisionRecording]] = {}
        self.policy = policy
        self.policy_failure: str | None = None  # why a policy was last replaced by another than was set
        self.policy_dir: Path | None = None
        self.rules_off = frozenset() if rewrite else frozenset(("all",))
        self.network = Network(self, sharing=sharing != SHARING_OFF, seed=shed_seed, sheds_when_full=sheds_when_full)
        self.network.choose_periods = period_chooser(sharing)
        self.sharing = sharing
        processor_ns = None if step_ns_max is None else time.thread_time_ns
        self.executor = Executor(self.network, processor_ns=processor_ns, step_ns_max=step_ns_max or 0)
        self.class_nodes: dict[str, ClassNode] = {}
        self.register_class(ClassDefinition("default"))
        self.runtime: Runtime = runtime(self.executor, self.network, self._instructed)
        self.network.late_rule = late_rule(sharing, self.runtime.arrival_ns)

    # --- definitions ---

    @property
    def connectors(self) -> Connectors:
        """The sources and sinks."""
        if self._connectors is None:
            from millstream.server.host.connectors import Connectors  # loaded by the first that is asked for

            self._connectors = Connectors()
        return self._connectors

    @property
    def has_connectors(self) -> bool:
        """Whether there are sources or sinks."""
        return self._connectors is not None and any(True for _ in self._connectors)

    def register_class(self, definition: ClassDefinition, identity: ClassId | None = None) -> None:
        """Give a class its node in the network, or another one of the same number."""
        target_ns = None if definition.target_us is None else definition.target_us * 1_000
        may_shed, workers = definition.may_shed, definition.workers
        identity = ClassId(len(self.class_nodes)) if identity is None else identity
        node = ClassNode(identity, definition.name, definition.priority, target_ns, may_shed, workers)
        self.class_nodes[definition.name] = node

    def forget_class(self, name: str) -> None:
        """Take a class that no query is of out of memory."""
        self.catalog.drop_class(name)
        del self.class_nodes[name]

    def forget_function(self, name: str) -> None:
        """Take a function that nobody calls out of memory, and end its process."""
        self.catalog.drop_function(name)
        self.functions.pop(name).close()

    def shed_by_class(self, stream: str, ingested: Ingested) -> dict[str, int]:
        """Return how many rows of a chunk were dropped before each class."""
        if len(ingested.arrivals) == 1:
            return {}
        lost = {a.log: a.shed for a in ingested.arrivals if a.shed}
        if not lost:
            return {}
        names = {node.id: name for name, node in self.class_nodes.items()}
        found: dict[str, int] = {}
        for (class_id, _), shed in self.network.sources[stream].shed_logs.items():
            if shed.log.id in lost:
                name = names[class_id]
                found[name] = found.get(name, 0) + lost[shed.log.id]
        return found

    def lag_of(self, query: str, stream: str) -> int:
        """Return how many rows of a stream's own log a query has yet to take."""
        logs = self.network.sources[stream].whole_logs
        running = next((q for q in list(self.network.queries.values()) if q.node.name == query), None)
        cursors = [] if running is None else [c for name, c in running.blueprint.stream_cursors() if name == stream and c.log in logs]
        return max((c.log.rows_total - c.rows_before - c.rows_taken for c in cursors), default=0)

    def close_functions(self) -> None:
        """End the processes of users' functions."""
        for process in self.functions.values():
            process.close()

    def class_node(self, options: QueryOptions) -> ClassNode:
        """Return the node of a query's class; UnknownName when there is none such."""
        found = self.class_nodes.get(options.class_name)
        if found is None:
            hint = near_or_listed(options.class_name, self.class_nodes, "classes")
            raise UnknownName(f"there is no class {options.class_name}", hint=hint)
        return found

    def may_lose(self, query: Query) -> bool:
        """Whether load may be shed before a query: where its own class reads a stream, or before a derived stream or view that it reads."""
        makers = {name: self.maker(name) for name in query.reads}
        if any(self.may_lose(made) for made in makers.values() if made is not None):
            return True
        node = self.class_nodes.get(query.planned.physical.options.class_name)
        streams = [name for name, made in makers.items() if made is None and isinstance(self.catalog.find(name), StreamDefinition)]
        return node is not None and node.may_shed and bool(streams)

    def make_relation(self, definition: StreamDefinition | TableDefinition) -> StreamIntake:
        """Make a stream's or table's place in the network; rows enter by what this returns, which others find once it is opened."""
        if isinstance(definition, StreamDefinition):
            self.network.create_stream(definition)
            return StreamIntake(self, definition)
        self.network.create_table(definition)
        return StreamIntake(self, self.network.sources[definition.name].definition, definition)

    def widen_stream(self, definition: StreamDefinition) -> None:
        """Give a stream more columns; what runs goes on with those that it knows."""
        name = definition.name
        self.catalog.widen(definition)
        self.network.widen_stream(definition)
        self.intakes[name].widen(definition)
        for query in self.queries:
            if query.target == name and query.assignment is not None:
                query.assignment.widen(definition.schema)
        if self.journaling is not None:
            self.journaling.widen(definition)

    def begin_polling(self, definition: TableDefinition) -> None:
        """Have the file of a table that says REFRESH read again and again, where files are polled."""
        if definition.fresh_min is None or self.refresh_rules is None:
            return
        if self.refresh is None:
            self.refresh = self.make_refresh(*self.refresh_rules)
        self.refresh.begin(definition)

    def open_relation(self, intake: StreamIntake) -> None:
        """Let publishers find a stream or table."""
        self.intakes[intake.name] = intake

    def close_relation(self, name: str) -> None:
        """Take a stream or table out of memory, whether it was open or not."""
        self.network.drop_stream(name)
        intake = self.intakes.pop(name, None)
        self.unfed.pop(name, None)
        if self.refresh is not None:
            self.refresh.forget(name)
        if intake is not None:
            intake.is_gone = True
        if self.journaling is not None:
            self.journaling.forget(name)

    def intake(self, name: str) -> StreamIntake:
        """Return where rows of a stream enter; UnknownName when there is none such."""
        found = self.intakes.get(name)
        if found is None:
            if self.catalog.find(name) is not None:
                raise UnknownName(f"{name} is a derived stream; rows come from its SELECT alone", token=name)
            raise UnknownName(f"there is no stream {name}", hint=did_you_mean(name, self.intakes) or SHOWN_RELATIONS, token=name)
        return found

    def base_streams(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the streams that rows enter and that these names, derived streams and views among them, come from."""
        return base_streams(self.maker, names)

    def maker(self, name: str) -> Query | None:
        """Return the query behind a derived stream or a materialized view, None for what rows enter."""
        return self.derived.get(name) or self.view(name)

    def view(self, name: str) -> Query | None:
        """Return the query of a materialized view, None for any other name."""
        found = self.queries.find(name)
        return found if found is not None and found.is_view and self.catalog.find(name) is None else None

    def readers_of_view(self, query: Query) -> list[Query]:
        """Return the running queries that read a materialized view; none of another query."""
        return [q for q in self.queries if q.id is not None and query.name in q.reads] if query.is_view else []

    def is_pressed(self, stream: str) -> bool:
        """Whether publishers of a stream should wait for those who read results."""
        if self.unfed and any(q.target in self.unfed and stream in self.base_streams(q.reads) for q in self.queries):
            return True
        return self.observer.is_pressed(stream)

    def feed_held(self) -> None:
        """Let in what waited for the disk, as far as it takes that now."""
        for name, intake in tuple(self.unfed.items()):
            if intake.feed_held():
                self.unfed.pop(name, None)

    def rows_lost(self, stream: str, rows: int) -> None:
        """Tell that rows which the server made for a stream were lost, as too many waited for the disk."""
        self.observer.reported("rows_not_kept", f"{rows} rows made for {stream} were dropped: too many wait for the disk")

    # --- what is held ---

    def holds(self, stream: str) -> bool:
        """Whether rows of a stream are held beyond what its queries have yet to read."""
        return self.journaling is not None and stream in self.journaling.numbers

    def held(self, definition: StreamDefinition) -> HeldRows:
        """Return the rows of a stream that are held. To be called under the ingress lock, and read afterwards."""
        assert self.journaling is not None
        return self.journaling.held(definition)

    def let_see(self, query: Query) -> None:
        """Wait, SEEN_S at most, until a running query has seen all that has arrived."""
        at = self.network.ingress.next_seq - 1
        deadline = time.monotonic() + SEEN_S
        while not self.has_seen(query, at) and time.monotonic() < deadline:
            time.sleep(SEEN_STEP_S)

    # --- names: streams, tables and queries share theirs, as FETCH reads all of them ---

    def check_query_name(self, name: str) -> str:
        """Return `name` if a query of a user may be called so now; InvalidDefinition or NameTaken otherwise."""
        found = self.catalog.find(self.queries.check_free(name))
        if found is not None:
            raise NameTaken(f"the name {name} is taken by a {noun_of(found)}; {SHARED_NAMES}", hint="take another name")
        return name

    def check_relation_names(self, *names: str) -> None:
        """Raise NameTaken when a durable query has the name of a stream or table to be."""
        for name in names:
            found = self.queries.find(name)
            if found is not None and found.is_durable:
                raise NameTaken(f"the name {name} is taken by a query; {SHARED_NAMES}", hint="take another name")

    def has_seen(self, query: Query, at: int) -> bool:
        """Whether a query, unless it does not run, has seen all that has arrived up to `at`."""
        return query.state is not QueryState.RUNNING or all(self.have_seen(s, at) for s in self.base_streams(query.reads))

    # --- time ---

    def tick(self) -> None:
        """Let the processing time that has passed have its effect: arrival-time windows, idle inputs.

        StorageError, once all streams had their tick, when the journal did not take a durable one's: its time stands still until then.
        """
        now_us, arrival_ns = self.runtime.now_us(), self.runtime.arrival_ns()
        refused: StorageError | None = None
        for source in list(self.network.sources.values()):
            try:
                for ingested in self.network.ticks.tick_source(source, now_us, arrival_ns=arrival_ns):
                    self.runtime.arrived(ingested)
            except StorageError as error:
                refused = error
        if refused is not None:
            raise refused

    def end_stream(self, name: str) -> int | None:
        """End a stream; returns the arrival number of the end, None when it had ended before. UnknownName when there is none such."""
        self.intake(name)
        ingested = self.network.end(name, arrival_ns=self.runtime.arrival_ns())
        if ingested is None:
            return None
        self.runtime.arrived(ingested)
        return ingested.lo

    def have_seen(self, stream: str, seq: int) -> bool:
        """Whether all that has arrived on a stream up to `seq` has passed through every running query that reads it."""
        for query in (*self.queries, *self.derived.values()):
            running = None if query.id is None or query.state is not QueryState.RUNNING else self.network.queries.get(query.id)
            if (
                running is None
                or not running.attached
                or running.past is not None
                or query.failure is not None
                or stream not in running.blueprint.base_streams
            ):
                continue
            # Not the cursors' positions: a stretch without rows or marks is work for nobody, so no cursor need ever move past it.
            if any(edge_frontier(cursor) <= seq for operator in running.blueprint.operators for cursor in operator.inputs):
                return False
            # What has been taken may still be on its way out; a call counts as begun before it takes anything.
            if any(operator.started != operator.finished for operator in running.blueprint.operators):
                return False
        return True

    def take_merged(self, parts: Sequence[MergedPart], places: Sequence[Int64Array], rows: int) -> None:
        """Let in rows of several streams that take turns row by row; `places` as in `StreamIntake.take_columns`, for each part."""
        pushed = self.network.ingress.push_merged(parts, rows, arrival_ns=self.runtime.arrival_ns(), now_us=self.runtime.now_us())
        for part, numbers, ingested in zip(parts, places, pushed, strict=True):
            self.intakes[ingested.stream].note_accepted(part.positions + ingested.lo, numbers)
            self.runtime.arrived(ingested)

    def feed(self, stream: str, columns: Sequence[Column], cause: tuple[int, int] | None = None) -> None:
        """Let rows that the server itself made into a stream; nothing when it has been dropped meanwhile.

        `cause`: the order of the query that made them, and the arrival number of the last row that caused them.
        """
        intake = self.intakes.get(stream)
        if intake is not None:
            query = None if cause is None or not self.holds(stream) else self.query_of_order(cause[0])
            intake.feed(columns, None if query is None or cause is None else (query, cause[1]))

    def query_of_order(self, order: int) -> str | None:
        """Return the query that has a place among all that were ever made."""
        return next((query.name for query in (*self.queries, *tuple(self.derived.values())) if query.order == order), None)

    # --- durability ---

    def check_durable(self, what: str, level: str) -> None:
        """Raise InvalidDefinition for what is to be durable when nothing is kept."""
        if level != "none" and self.is_durable and self.journaling is None:
            raise InvalidDefinition(f"{what} says DURABILITY {level} and the server keeps nothing", hint="start it with --data-dir DIR")

    def keep(self, name: str, level: str, number: int | None) -> None:
        """Journal a stream or table from now on, if it says so; during a recovery only afterwards."""
        if level != "none" and self.journaling is not None and number is not None:
            self.journaling.add(name, number, record=self.recovery is None)

    def identify(self, query: Query, *, recovering: bool) -> None:
        """Give a run's results an identity, which outlives the server where the run can be rebuilt."""
        rows, query.rows_out, query.rows_before, query.earlier, query.identity = query.rows_out, 0, 0, {}, ""
        if self.journaling is None or not self.journaling.keeps_all_of(query):
            return
        query.identity = secrets.token_hex(6)
        before = self.store.run_of(query.key) if recovering else None
        if before is not None:
            query.rows_out = query.rows_before = rows
            # A change log's rows depend on how trains were cut, so it is not continued in the middle.
            query.earlier = {} if query.planned.physical.change_kind is not None else {**before.earlier, before.identity: -1}

    def remember_run(self, query: Query) -> None:
        """Keep where a run began; what was given under earlier identities is known to go as far as the results do now."""
        before = self.store.run_of(query.key)
        began_at = self.network.queries[query.id].from_seq if query.id is not None else 0
        if query.earlier and before is not None:
            began_at = before.began_at
            for identity, rows in query.earlier.items():
                query.earlier[identity] = query.rows_out if rows < 0 else min(rows, query.rows_out)
        self.store.set_run(query.key, StoredRun(began_at, query.identity, query.earlier))

    def order_of(self, query: str) -> int:
        """Return the place of a query among all that were ever made, to order what several of them feed to one stream."""
        found = self.queries.find(query) or self.derived.get(query)
        return 0 if found is None else found.order

    def note_order(self, query: Query) -> None:
        """Give a new query its place; one that begins anew keeps its own."""
        if not query.order:
            self._last_order += 1
            query.order = self._last_order

    # --- accounts ---

    def accounts(self, query: Query) -> tuple[StreamAccount, ...]:
        """Return the accounts of a running query, one an input stream (K10)."""
        if query.id is None or query.id not in self.network.queries:
            return ()
        return self.network.conservation(query.id)

    def counts(self, query: Query) -> dict[str, int]:
        """Return the sums over a query's input streams, by name; those of the last run while it is not in the network."""
        accounts = self.accounts(query)
        if accounts:
            query.last_counts = {name: sum(getattr(account, name) for account in accounts) for name in COUNTS}
        return query.last_counts

    def unbalanced(self) -> list[tuple[str, StreamAccount]]:
        """Return the accounts that do not balance now, by query or derived stream; they all must once everything is quiescent."""
        return [(q.name, a) for q in (*self.queries, *self.derived.values()) for a in self.accounts(q) if not a.balances]

    def failures_of_shed_by(self, query: Query) -> tuple[int, str]:
        """Return at how many rows since the query's log was opened its `shed_by` failed, and why at the last; (0, "") where it did not.

        It is computed where rows enter, before any operator could report an error.
        """
        running = None if query.id is None else self.network.queries.get(query.id)
        for ledger in () if running is None else running.ledgers.values():
            if isinstance(ledger.shed_log, ShedLog) and ledger.shed_log.utility is not None:
                return ledger.shed_log.utility.failures
        return 0, ""

    def memory_of(self, query: Query) -> tuple[int | None, int | None, int | None]:
        """Return the bytes that a running query holds, those that it may hold (None where nothing bounds it), and those in files beside."""
        running = None if query.id is None else self.network.queries.get(query.id)
        if running is None:
            return None, None, None
        memory = self.network.memory
        bound, use = memory.bound_of(running), memory.use_of(running)
        return use.total, None if bound >= NO_BOUND else bound, use.spilled

    # --- what the network and the scheduler tell ---

    def deliver(self, query: Query, run: int, train: Train) -> None:
        """Take a result train of a run from the network."""
        if run != query.run:
            return
        query.rows_out += train.rows
        self.observer.results(query, train)
        if train.ended and query.ended_run < run:
            query.ended_run = run
            self.observer.query_ended(query, "finished", "its input streams have ended", self.counts(query))

    def late(self, query: str, stream: str, rows: Train) -> None:
        """Pass late rows on to the stream's late output, if it has one."""
        source = self.network.sources.get(stream)
        name = None if source is None or self._is_given_past(query) else source.definition.late_into
        late = None if name is None else self.intakes.get(name)
        if late is not None and rows.rows:
            columns = late_columns(query, rows, late.definition.schema)
            self.feeder.feed(late.name, self.order_of(query), rows.seq.array(), columns)

    def _is_given_past(self, query: str) -> bool:
        """Whether what a query says of rows concerns the past, of which streams for late rows and errors were told at the time."""
        found = self.queries.find(query)
        return found is not None and found.catching_up is not None

    def evaluation_errors(self, query: str, stream: str | None, errors: EvaluationErrors) -> None:
        """Pass evaluation errors on to the error output of the stream whose row failed, if it has one."""
        intake = None if stream is None or self._is_given_past(query) else self.intakes.get(stream)
        name = None if intake is None else intake.definition.errors_into
        if intake is None or name is None:
            return
        records = errors.records()
        seqs = np.array([r.seq for r in records], dtype=np.int64)
        columns = error_columns(query, intake.places_of(seqs), [r.reason for r in records], [r.raw for r in records])
        self.feeder.feed(name, self.order_of(query), seqs, columns)

    def query_failed(self, query: QueryId, operator: OperatorId, error: Exception) -> None:
        """An operator raised, or a bound was reached. The query does nothing more; whoever subscribed is told."""
        found = self.queries.of_id(query) or next((q for q in tuple(self.derived.values()) if q.id == query), None)
        if found is not None:
            found.failure = str(error) if isinstance(error, BoundReached) else f"{type(error).__name__}: {error}"
            self.observer.query_ended(found, "failed", found.failure, {})

    def _instructed(self, instruction: Instruction) -> None:
        if isinstance(instruction, SetDropRatio):
            self.network.set_log_drop_ratio(instruction.log, instruction.ratio)
        if isinstance(instruction, Report) and instruction.kind in ("query_failed", "policy_failed", "fatal"):
            if instruction.kind == "policy_failed":
                self.policy_failure = instruction.message
            self.observer.reported(instruction.kind, instruction.message)
