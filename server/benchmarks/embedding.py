"""The engine in this thread: what a host needs, without files, sockets, threads or virtual time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from millstream.engine.data.column import Column
from millstream.engine.data.event_time import NS_PER_US
from millstream.engine.data.graph import ClassId, GraphDelta, OperatorId, QueryId
from millstream.engine.data.train import Train
from millstream.engine.data.work import OrderId, Step, WorkOrder
from millstream.engine.flow.sources import Ingested
from millstream.engine.ingest.coerce import coerce_batch
from millstream.engine.runtime.executor import Executor
from millstream.engine.runtime.network import Network
from millstream.scheduler.core import CoreSettings, SchedulerCore, SchedulerStatistics
from millstream.scheduler.drivers.workers import run_order
from millstream.scheduler.events import Event, PolicyChanged, QueryAdded, QueryPaused, QueryRemoved, QueryResumed, Spliced
from millstream.scheduler.instructions import Dispatch, Report, Splice, splicer
from millstream.scheduler.load.contract import ClassLoad
from millstream.scheduler.names import SHARING_DEFAULT, SHARING_OFF
from millstream.scheduler.spec import PolicySpec
from millstream.server.assembly import assemble
from millstream.server.host.contract import Context, KeptResults
from millstream.server.host.queries import Query
from millstream.server.host.runtime import MeasuresSnapshot
from millstream.server.journal.store import Store
from millstream.server.statements.selects import Submission, submit

NO_COUNTS = SchedulerStatistics("", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, True)


class DirectRuntime:
    """No scheduler: when rows have arrived, every query's operators run once, in the order of the plan."""

    def __init__(self, executor: Executor, network: Network) -> None:
        self._executor = executor
        self._network = network
        self._steps: dict[QueryId, tuple[Step, ...]] = {}

    @property
    def scheduler(self) -> None:
        """There is none with threads."""

    def record(self, recording: object) -> None:
        """Nobody records here."""

    @property
    def ring(self) -> None:
        """Nobody asks what came."""

    @property
    def ring_bounds(self) -> None:
        """Nothing is kept."""

    def now_us(self) -> int:
        """Return the system's clock."""
        return time.time_ns() // NS_PER_US

    def arrival_ns(self) -> int:
        """Return the monotonic clock."""
        return time.monotonic_ns()

    def arrived(self, ingested: Ingested) -> None:
        """Nothing: `run` finds it."""

    def run(self) -> None:
        """Carry everything that waits to the ends."""
        for steps in self._steps.values():
            self._executor.run(WorkOrder(OrderId(1), steps), time.perf_counter_ns)

    def add(self, delta: GraphDelta) -> None:
        """Bring a query into force."""
        self._network.attach(delta.query.id)
        sources = {s.id for s in self._network.sources.values()}
        self._steps[delta.query.id] = tuple(Step(o) for o in delta.query.operators if o not in sources)

    def remove(self, query: QueryId, operators: tuple[OperatorId, ...]) -> None:
        """Take a query out."""
        del self._steps[query]
        self._network.remove_query(query)

    def pause(self, query: QueryId) -> None:
        """Nobody pauses here."""
        raise NotImplementedError

    resume = pause

    def still(self) -> AbstractContextManager[None]:
        """Nothing runs between two calls of `run`."""
        return nullcontext()

    def set_policy(self, spec: PolicySpec) -> None:
        """There is no policy."""

    def statistics(self) -> SchedulerStatistics:
        """There is nothing to count."""
        return NO_COUNTS

    def loads(self) -> Mapping[ClassId, ClassLoad]:
        """Return nothing: no load is managed here."""
        return {}

    def measures(self) -> MeasuresSnapshot | None:
        """Nobody asks here."""
        return None


class ScheduledRuntime(DirectRuntime):
    """The scheduler's core decides, this thread executes; both are timed. As the live scheduler does it when one order is out."""

    def __init__(self, executor: Executor, network: Network, policy: PolicySpec, settings: CoreSettings) -> None:
        super().__init__(executor, network)
        self.core = SchedulerCore(policy, settings)
        self.deciding_ns = self.running_ns = 0
        self._events: list[Event] = []
        self._splice = splicer(network)

    def arrived(self, ingested: Ingested) -> None:
        """Leave it for `run`."""
        self._events.extend(ingested.told())

    def add(self, delta: GraphDelta) -> None:
        """Splice in."""
        self._events.append(QueryAdded(delta))
        self.run()

    def remove(self, query: QueryId, operators: tuple[OperatorId, ...]) -> None:
        """Splice out."""
        self._events.append(QueryRemoved(query, operators))
        self.run()

    def pause(self, query: QueryId) -> None:
        """Tell the core."""
        self._events.append(QueryPaused(query))

    def resume(self, query: QueryId) -> None:
        """Tell the core."""
        self._events.append(QueryResumed(query))

    def set_policy(self, spec: PolicySpec) -> None:
        """Tell the core."""
        self._events.append(PolicyChanged(spec))

    def statistics(self) -> SchedulerStatistics:
        """Return the core's counts."""
        return self.core.statistics()

    def run(self, orders_max: int | None = None) -> None:
        """Decide and execute until nothing is left to do, or so many orders have run."""
        clock = time.thread_time_ns  # others that use the machine do not count
        left = -1 if orders_max is None else orders_max
        more = True
        while left and more:
            events, self._events = self._events, []
            started = clock()
            instructions = self.core.handle(events, time.monotonic_ns())
            decided = clock()
            for instruction in instructions:
                if isinstance(instruction, Dispatch):
                    self._events.append(run_order(self._executor, instruction.order, time.perf_counter_ns))
                    left -= 1
                elif isinstance(instruction, Splice):
                    cursors = self._splice(instruction) or {}
                    self._events.append(Spliced(instruction.query, tuple(sorted(cursors.items()))))
                elif isinstance(instruction, Report) and instruction.kind in ("refused", "query_failed", "policy_failed"):
                    raise RuntimeError(instruction.message)
            more = bool(self._events)
            self.deciding_ns += decided - started
            self.running_ns += clock() - decided


class Results:
    """Keeps the result trains of all queries, as they come."""

    def __init__(self) -> None:
        self.trains: list[Train] = []
        self.rows = 0
        self._of: dict[str, list[Train]] = {}

    def query_began(self, query: Query) -> None:
        """Nothing to prepare."""

    def results(self, query: Query, train: Train) -> None:
        """Gather the columns, which is the last of the work, and keep them."""
        if train.rows:
            train.columns()
            self.trains.append(train)
            self._of.setdefault(query.name, []).append(train)
            self.rows += train.rows

    def query_ended(self, query: Query, reason: str, message: str, counts: dict[str, Any]) -> None:
        """A query that fails fails the benchmark."""
        if reason == "failed":
            raise RuntimeError(message)

    def stream_dropped(self, name: str) -> None:
        """Nobody drops streams here."""

    def reported(self, kind: str, message: str) -> None:
        """Nothing goes wrong in silence."""
        raise RuntimeError(f"{kind}: {message}")

    def kept(self, query: Query) -> KeptResults:
        """Nothing is kept for later."""
        return KeptResults()

    def is_pressed(self, stream: str) -> bool:
        """Nobody waits."""
        return False

    def take(self) -> list[Train]:
        """Return the trains so far and begin anew."""
        taken, self.trains, self.rows = self.trains, [], 0
        self._of.clear()
        return taken

    def of(self, query: str) -> list[Train]:
        """Return the trains of one query so far."""
        return self._of.get(query, [])


class Embedded:
    """A host over one of these runtimes, fed with columns that are already the engine's. Plans run as they are written unless `rewrite`."""

    def __init__(
        self,
        *statements: str,
        policy: PolicySpec | None = None,
        settings: CoreSettings | None = None,
        fuse: bool = True,
        sharing: bool = False,
        rewrite: bool = False,
    ) -> None:
        self.results = Results()
        spec = policy or PolicySpec("round-robin")

        def runtime(executor: Any, network: Any, _told: Any) -> DirectRuntime:
            executor = executor if fuse else Executor(network, fuse=False)
            if policy is None:
                return DirectRuntime(executor, network)
            return ScheduledRuntime(executor, network, policy, settings or CoreSettings())

        self.host = assemble(self.results, Store(None), runtime, spec, rewrite=rewrite, sharing=SHARING_DEFAULT if sharing else SHARING_OFF)
        for number, statement in enumerate(statements, 1):
            self.execute(statement, f"q{number}")

    @property
    def runtime(self) -> Any:
        """The runtime, with what is its own."""
        return self.host.runtime

    def execute(self, statement: str, name: str | None = None) -> None:
        """Execute a statement."""
        self.host.execute(statement, Context(name=name))

    def submit(self, plan: dict[str, Any], name: str | None = None) -> None:
        """Start a query given as a plan."""
        submit(self.host, Submission(plan=plan, name=name), self)

    def columns(self, stream: str, batch: Any) -> list[Column]:
        """Return a record batch as the stream's columns."""
        coerced = coerce_batch(batch, self.host.intake(stream).definition)
        assert not coerced.rejected
        return list(coerced.columns)

    def push(self, stream: str, columns: Sequence[Column]) -> None:
        """Let rows in, without carrying them on."""
        self.host.intake(stream).take_columns(columns)

    def end(self, *streams: str) -> None:
        """End streams and carry everything to the ends."""
        for stream in streams:
            self.host.end_stream(stream)
        self.runtime.run()
