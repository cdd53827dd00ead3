"""The live server's wiring: one event loop, one thread that executes statements, the scheduler's thread and its workers.

The loop's thread owns sessions, feeds and channels. Statements run on a thread of their own, one after the other, so that planning
never keeps the loop from its sockets. Results and ends of queries come to the loop over the bridge, in order.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from importlib import import_module
from operator import call
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.engine.data.errors import EngineError, UnknownName
from millstream.engine.data.graph import ClassId
from millstream.engine.data.train import Train
from millstream.engine.language.names import quote_name
from millstream.engine.language.statements import (
    ChangeQuery,
    Describe,
    Explain,
    ExplainConnector,
    Fetch,
    InsertValues,
    ReportConnector,
    SelectStatement,
    Show,
    Statement,
)
from millstream.engine.plan.catalog import noun_of
from millstream.engine.runtime.memory import NO_BOUND
from millstream.protocol.messages import Submit
from millstream.scheduler.errors import PolicyError, SchedulerError
from millstream.scheduler.events import Placed
from millstream.scheduler.names import REFRESH_DEFAULT
from millstream.scheduler.spec import PolicySpec
from millstream.server.assembly import assemble, open_journal, restore
from millstream.server.config import Config, policy_at_start, workers_of
from millstream.server.errors import ConfigError, GivenUp, ServerError, StorageError
from millstream.server.functions.process import Confinement
from millstream.server.host import running
from millstream.server.host.arrival_clock import ArrivalClock, Report
from millstream.server.host.contract import Context, KeptResults
from millstream.server.host.intake import StreamIntake
from millstream.server.host.live_runtime import LiveRuntime, RingBounds
from millstream.server.host.queries import Query, QueryKind
from millstream.server.host.server_files import FileRules
from millstream.server.journal.store import Store
from millstream.server.logs import logger
from millstream.server.net import handlers
from millstream.server.net.loop import Bridge, Outbox, TurnQueue
from millstream.server.net.pacing import Pacer
from millstream.server.net.peer_memory import PeerMemory
from millstream.server.net.security import AccessRole, require
from millstream.server.net.session import Handlers, Session
from millstream.server.net.turn import Turn
from millstream.server.results.feeds import Feeds, KeptBounds, QueryFeed, RunOfResults
from millstream.server.results.outcome import Outcome
from millstream.server.results.subscriptions import ReaderBounds
from millstream.server.results.trains import ResultRows, pieces_of
from millstream.server.version import program
from millstream.server.watch.memory_watch import KEPT_PART, MemoryWatch

if TYPE_CHECKING:
    from millstream.engine.runtime.network import Network
    from millstream.scheduler.instructions import InstructionHandler, OrderExecutor
    from millstream.server.aside import Aside
    from millstream.server.durability.journaling import Journaling
    from millstream.server.host.spilling import Spiller
    from millstream.server.net.publishing import PublishingChannel
    from millstream.server.workers.pool import Workers

FAREWELL = "the server is about to stop"
FAREWELL_S = 2.0  # how long a peer that is told to go may take to read that
PLACES_KEPT_PART = 16  # of the connections: one of so many is kept for those who may more than read
SEEN_S = 0.001  # between two looks at whether a stream's end has been seen
LANGUAGE = "millstream.server.statements.language"
NS_PER_S = 1_000_000_000
RESULTS_AHEAD_MAX = 64  # trains of a query that is given the past, which the loop has yet to take
_READER_STATEMENTS = (SelectStatement, Fetch, Show, Describe, Explain, ExplainConnector)

# Reports of what is in order by now.
_NOTICES = ("journal_noted", "journal_converted", "checkpoint_ignored", "archive_goes_on", "spill_goes_on")

Given = TypeVar("Given")


class _Results(partial[None]):
    """A call that passes results of a query on."""


class Application:
    """A server without its sockets. `start` and `stop` are called once each, on the loop."""

    def __init__(self, config: Config, store: Store, clock: Callable[[Report], ArrivalClock] = ArrivalClock) -> None:
        self.config = config
        self._arrival_clock = clock(self._clock_told)
        self.store = store
        self.log = logger()
        self.server_id = store.server_id
        self.program = program()
        self.sessions: dict[int, Session] = {}
        self._greeting: dict[int, Session] = {}  # those that have not been let in yet, oldest first
        readers = ReaderBounds(config.subscriber_bytes_max, config.slow_subscriber)
        kept = KeptBounds(config.results_kept_bytes_max, config.results_kept_total_bytes_max, int(config.results_kept_s * NS_PER_S))
        self.feeds = Feeds(readers, kept, self.now_ns, lambda delay_s, look: self.loop.call_later(delay_s, look), self._press)
        self.held: dict[PublishingChannel, None] = {}
        self.outbox = Outbox()
        self.turn = Turn(self)
        self.turns = TurnQueue(lambda call: self.loop.call_soon(call), self.outbox)
        self.handlers: Handlers = handlers
        self.peer_memory = PeerMemory(config.connections_bytes_max)
        self.pacer = Pacer(config.messages_per_s_max, self.now_ns, lambda seconds, call: self.loop.call_later(seconds, call))
        self.journaling: Journaling | None = None
        self.look_at_processes: Callable[[int], None] = lambda now_ns: None  # called on the loop, now and then
        self.unbalanced_total = 0
        self.policies_failed = 0
        self.ready = False
        self.stopping = False
        self.is_stuck = False  # a statement did not end when the server was told to stop
        self.broken = ""
        """Why nothing is run any more, if that is so: a fault of ours that only another start mends."""
        self.when_broken: Callable[[], object] = lambda: None  # called on the loop
        self._speaks = False
        self._connections = 0
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="statements")
        self._aside: Aside | None = None
        self.workers: Workers | None = None  # None: operators run in this process
        self._archiving = asyncio.Lock()

    async def start(self) -> None:
        """Bring the engine up and the stored catalogue back."""
        self.loop = asyncio.get_running_loop()
        self.bridge: Bridge[Any] = Bridge(self.loop, call, self.fault, self.outbox)
        spec = PolicySpec.parse(policy_at_start(self.config))
        config = self.config
        self.host = assemble(
            self,
            self.store,
            partial(self._live_runtime, spec),
            spec,
            rewrite=config.rewrite,
            sharing=config.sharing,
            shed_seed=config.shed_seed,
            sheds_when_full=True,
            admission=config.admission,
            optimise_settle_s=config.optimise_settle_s if config.optimise else None,
            step_ns_max=int(config.step_s_max * NS_PER_S),
        )
        self._start_workers()
        self.memory = MemoryWatch(self.host.network, config)
        self.spiller: Spiller | None = None  # made when rows are to leave memory for the first time
        self.host.spills = bool(config.data_dir and config.spill_bytes_max)
        self.host.network.memory.spills = lambda: self.host.spills and (self.spiller is None or self.spiller.has_room)
        hidden = (self.config.data_dir,) if self.config.data_dir else ()
        self.host.confinement = Confinement(config.function_memory_bytes_max, config.functions_confined, hidden)
        self.host.file_rules = FileRules(config.files_dir, config.file_bytes_max)
        self.host.refresh_rules = (self.config.refresh, float(self.config.refresh_budget))
        if self.config.refresh != REFRESH_DEFAULT:  # a policy that is not there ends the start, not the first table's statement
            from millstream.server.watch.refreshing import Refreshing

            try:
                self.host.refresh = Refreshing(self.host, *self.host.refresh_rules)
            except PolicyError as refused:
                raise ConfigError(f"refresh: {refused}", hint=refused.hint) from refused
        self.host.queries.owned_max = config.connection_queries_max
        self.host.policy_dir = Path(self.config.policy_dir) if self.config.policy_dir else None
        if self.config.data_dir:
            try:
                self.journaling = open_journal(self.host, config)
                self._arrival_clock.begin_no_earlier(self.journaling.last_time_us)
                self.journaling.execute, self.journaling.holds_back = self._executed_soon, self._readers_are_behind
                self.journaling.went_live = self._went_live
            except ServerError:
                self._executor.shutdown()
                if self.journaling is not None:
                    self.journaling.stop()
                self.store.close()
                raise
        self.runtime.scheduler.on_run = self._pass_results_on
        self.runtime.start()
        try:
            problems = await self.call(partial(restore, self.host, self.journaling, policy_too=config.policy == "auto"))
        except ServerError:  # journal and catalogue do not fit each other
            await self.stop()
            raise
        for problem in problems:
            self.log.error("not_restored", reason=problem)
        self.bridge.drain()
        self.ready = True

    def _start_workers(self) -> None:
        """Let operators run in processes of their own, where there are to be several workers."""
        count = workers_of(self.config)
        if count < 2:
            return
        from millstream.server.workers.pool import Workers, started
        from millstream.server.workers.process import WorkerBounds

        bounds = WorkerBounds(self.config.worker_bytes_max, self.config.step_s_max)
        self.workers = self.host.workers = Workers(self.host.network, *started(count, bounds))
        self.workers.on_place = lambda placed: self.runtime.scheduler.post(Placed(tuple(placed.items())))

    def spill(self) -> None:
        """Let rows that wait leave memory, where there are too many and they may."""
        if not self.host.spills or not self.host.network.memory.wants_to_spill:
            return
        if self.spiller is None:
            from millstream.server.host.spilling import Spiller, SpillFiles

            files = SpillFiles(Path(self.config.data_dir), self.store.disk, self.config.spill_bytes_max)
            self.spiller = Spiller(self.host.network, files, self.reported)
        self.spiller.look()

    def _live_runtime(self, spec: PolicySpec, executor: OrderExecutor, network: Network, told: InstructionHandler) -> LiveRuntime:
        config = self.config
        self.runtime = LiveRuntime(
            executor,
            network,
            spec,
            workers_of(config),
            told,
            arrival_clock=self._arrival_clock,
            window=config.estimate_rows,
            aging=config.estimate_aging,
            load=config.load,
            placed=workers_of(config) > 1,
            kept=self._ring_bounds(),
        )
        return self.runtime

    def _ring_bounds(self) -> RingBounds | None:
        kept_s = self.config.recording_kept_s
        return RingBounds(int(kept_s * NS_PER_S), self.config.recording_bytes_max) if kept_s else None

    async def stop(self) -> bool:
        """Drain, tell every subscriber and peer, stop the threads. Returns whether all that was queued was answered."""
        self.ready, self.stopping = False, True
        self.turn.take()
        if self.journaling is not None:
            self.journaling.stop_catching_up()
        for session in self.sessions.values():
            session.give_up()
        if self._aside is not None:
            self._aside.close()
        executing = self.loop.create_task(self.call(lambda: None))  # what is being executed ends first
        await asyncio.wait((executing,), timeout=self.config.drain_s)
        drained = False
        with suppress(SchedulerError):  # it had ended before, which has been told
            drained = await self.loop.run_in_executor(None, self.runtime.stop, self.config.drain_s)
        self.bridge.drain()
        now_ns = self.now_ns()
        self.each(self.feeds, lambda found: found.feed.finish("stopping", FAREWELL, {}, now_ns))
        for session in tuple(self.sessions.values()):
            self.each(session.subscriptions.values(), lambda subscription: subscription.finish("stopping", FAREWELL))
        self.each(self.sessions.values(), lambda session: session.say_goodbye(FAREWELL))
        self.is_stuck = not executing.done()
        self._executor.shutdown(wait=not self.is_stuck)
        if self.journaling is not None:
            await self.loop.run_in_executor(None, self.journaling.stop)
        self.host.close_functions()
        if self.spiller is not None:
            await self.loop.run_in_executor(None, self.spiller.close)
        if self.workers is not None:
            await self.loop.run_in_executor(None, self.workers.close)
        self.store.close()
        return drained

    def fault(self, error: Exception) -> None:
        """Write down a fault of ours that concerns one peer or query: the others have their turn nevertheless."""
        self.log.error("fault", exc_info=error)

    def each(self, things: Iterable[Given], deed: Callable[[Given], object]) -> None:
        """Do something for each of several peers or queries: what goes wrong with one is written down, and the next has its turn."""
        for thing in tuple(things):
            try:
                deed(thing)
            except Exception as error:
                self.fault(error)

    def now_ns(self) -> int:
        """Return the loop's monotonic clock."""
        return int(self.loop.time() * NS_PER_S)

    async def call(self, function: Callable[..., Given], *arguments: Any) -> Given:
        """Run a function on the thread that executes statements."""
        return await self.loop.run_in_executor(self._executor, partial(function, *arguments))

    @property
    def aside(self) -> Aside:
        """What does what takes long; it is loaded when first asked for."""
        if self._aside is None:
            from millstream.server.aside import Aside

            self._aside = Aside(self.loop, self.host, self.config, self.call)
        return self._aside

    # --- sessions ---

    def is_full(self, role: AccessRole) -> bool:
        """Whether there are as many connections as the settings allow to a role: readers cannot take the last places from the others."""
        most = self.config.connections_max
        if role is AccessRole.READER:
            most -= most // PLACES_KEPT_PART
        return len(self.sessions) - len(self._greeting) >= most

    def next_connection_number(self) -> int:
        """Return a number for a connection."""
        self._connections += 1
        return self._connections

    def session_began(self, session: Session) -> None:
        """Note a new connection."""
        self.sessions[session.number] = session
        self._greeting[session.number] = session
        if len(self._greeting) > self.config.connections_max:  # whoever has something to say has said hello before that many others came
            next(iter(self._greeting.values())).break_off("overloaded", "too many connections have not said hello")

    def session_greeted(self, session: Session) -> None:
        """Note that a connection has been let in."""
        self._greeting.pop(session.number, None)

    def session_ended(self, session: Session, error: Exception | None) -> None:
        """Forget a connection and drop the queries that it owned."""
        self.sessions.pop(session.number, None)
        self._greeting.pop(session.number, None)
        if session.role is not None:
            session.log.info("disconnected", reason=str(error) if error is not None else None)
            if not self.stopping:
                running.abandon(self.host, session)
                self.loop.create_task(self._release(session))

    async def _release(self, session: Session) -> None:
        if self.stopping:
            return
        if self.host.recordings:
            from millstream.server.statements.control import release_recordings

            await self.call(release_recordings, self.host, session)
        released = await self.call(running.release, self.host, session)
        if released:
            session.log.info("queries_released", count=released)

    def close_later(self, session: Session) -> None:
        """Cut a connection that was told to go, if it does not go by itself."""
        self.loop.call_later(FAREWELL_S, session.transport.abort)

    # --- requests ---

    async def load_language(self) -> None:
        """Load what statements need, on their thread, if that was not done yet."""
        if not self._speaks:
            await self.call(import_module, LANGUAGE)
            self._speaks = True

    async def execute(self, session: Session, text: str) -> Outcome:
        """Execute one statement for a session."""
        await self.load_language()
        from millstream.server.statements import language

        statement, place = await self.call(language.parse_placed, text)
        require(session.role, _role_for(statement), _called(statement))
        try:
            if isinstance(statement, Fetch):
                return await self.aside.fetched(session, statement)
            preparing = language.preparing_of(self.host, statement)
            prepared = None if preparing is None else await self.aside.prepared(session, preparing)
            _check_there(session)
            return await self.call(self.host.execute, statement, Context(owner=session, text=text, prepared=prepared))
        except EngineError as problem:
            raise language.placed_in_script(problem, place) from None

    async def poll(self) -> None:
        """Poll the table that is due, if one is: its file is read aside, and its table changed among the statements."""
        refresh = self.host.refresh
        poll = None if refresh is None or self.stopping else await self.call(refresh.take)
        if refresh is None or poll is None:
            return
        found = await self.aside.polled(refresh, poll)
        if not self.stopping:
            await self.call(refresh.put, poll, found)

    async def submit(self, session: Session, message: Submit) -> Outcome:
        """Start a query for a session: a durable one needs the admin role."""
        named = message.name is not None or bool(message.plan and message.plan.get("name"))
        require(session.role, AccessRole.ADMIN if named else AccessRole.READER, "submitting a named query" if named else "submitting")
        await self.load_language()
        from millstream.server.statements import language

        _check_there(session)
        options = dict(message.options)
        submission = language.Submission(message.sql, message.plan, message.name, message.start_at_us, message.lifetime_us, options)
        return await self.call(language.submit, self.host, submission, session)

    def intake_of(self, name: str) -> StreamIntake:
        """Return where rows of a stream enter."""
        return self.host.intake(name)

    async def finish_stream(self, name: str) -> None:
        """End a stream and wait until every running query that reads it has seen the end."""
        try:
            await self._written_out(name)
            seq = await self.call(self.host.end_stream, name)
        except StorageError:
            self.host.intake(name).is_ending = False
            raise
        while seq is not None and not self.host.have_seen(name, seq):
            await asyncio.sleep(SEEN_S)
        self.bridge.drain()

    async def _written_out(self, name: str) -> None:
        """Wait until rows that wait for the disk have entered: what comes next on the stream comes after them."""
        intake = self.host.intakes.get(name)
        if intake is not None and intake.is_sync and self.host.journaling is not None:
            with self.host.network.ingress.lock:
                intake.is_ending = True  # else rows could begin to wait between this and the end
            await self.loop.run_in_executor(None, self.host.journaling.wait_safe)

    async def checkpoint(self) -> None:
        """Let the journal's segment end and old ones go, when it is time."""
        if self.journaling is not None and not self.stopping and self.journaling.wants_checkpoint:
            await self.call(self.journaling.checkpoint)

    async def archive(self) -> None:
        """Do all that is due for archives; StorageError or OSError when the server's own disk refuses what is to count."""
        journaling = self.journaling
        async with self._archiving:
            while journaling is not None and journaling.archives is not None and not self.stopping:
                step = await self.aside.behind(journaling.archives.next_step, "archive")
                if step is None or self.stopping:
                    return
                await self.call(journaling.archived, step)

    # --- credit held back ---

    def hold(self, channel: PublishingChannel) -> None:
        """Note a channel whose credit is held back; it is asked again soon."""
        if not self.held:
            self.loop.call_later(0.001, self._release_held)
        self.held[channel] = None

    def _release_held(self) -> None:
        held, self.held = self.held, {}
        self.each(held, lambda channel: channel.release())

    def feed_of(self, name: str) -> QueryFeed:
        """Return the results of a query; UnknownName when there is none such."""
        if name not in self.feeds.by_query and self.host.catalog.find(name) is not None:
            hint = f"CREATE QUERY all_rows AS SELECT * FROM {quote_name(name)}, and read all_rows; FETCH SELECT … reads a table"
            raise UnknownName(f"{name} is a stream or table, and readers follow queries", hint=hint, token=name)
        return self.feeds.of(name)

    def is_pressed(self, stream: str) -> bool:
        """Whether results that come from a stream wait for the loop or for a reader that still takes them."""
        return self.feeds.is_pressed(stream, self.bridge.waiting)

    # --- what the host tells, from any thread ---

    def query_began(self, query: Query) -> None:
        """Make the feed of a run, before its first result."""
        if query.kind is not QueryKind.DERIVED:
            run = RunOfResults(query.identity or secrets.token_hex(6), query.rows_before, query.earlier)
            node = self.host.class_nodes.get(query.planned.physical.options.class_name)
            shed_class = node.id if node is not None and node.may_shed and self.host.may_lose(query) else None
            schema, past = query.planned.physical.schema, query.planned.physical.options.archive
            streams = () if past else self.host.base_streams(query.reads)  # until it has caught up its readers hold up nobody
            own = query.planned.physical.options.memory_bytes_max
            kept = None if not query.is_durable else (NO_BOUND if own is None else own) // KEPT_PART
            opened = partial(self.feeds.open, query.name, run, schema, streams, query.waiting, shed_class)
            # While the catalogue comes back nobody can ask for a feed yet, and to wake the loop for each takes as long as to plan a query.
            leave = self.bridge.post if self.ready else self.bridge.leave
            leave(partial(opened, kept_bytes_max=kept, owner=query.owner))

    def results(self, query: Query, train: Train) -> None:
        """Gather a train's columns here, on the worker's thread, and pass them to the loop."""
        if query.kind is QueryKind.SELECT and train.rows and query.shape is not None:
            pieces = pieces_of(query.shape, train, query.complete_from_us)
            size_bytes = pieces[0][0].nbytes if len(pieces) == 1 else sum([rows.nbytes for rows, _ in pieces])
            query.waiting.add(size_bytes)
            self.bridge.post(_Results(self._publish, query, pieces, size_bytes))

    def query_ended(self, query: Query, reason: str, message: str, counts: dict[str, Any]) -> None:
        """End the feed once all results before have been passed on; where a derived stream fails, all that reads it."""
        if query.kind is QueryKind.DERIVED:
            if reason == "failed":
                self.bridge.post(partial(self._lose_derived, query, message))
        else:
            self.bridge.post(partial(self._close_feed, query, query.run, reason, message, counts))

    def _went_live(self, query: Query) -> None:
        """Let its readers hold up the publishers of its streams, as those of other queries do."""
        self.bridge.post(partial(self._take_streams, query.name, self.host.base_streams(query.reads)))

    def _take_streams(self, name: str, streams: tuple[str, ...]) -> None:
        found = self.feeds.by_query.get(name)
        if found is not None:
            found.streams = streams

    def _executed_soon(self, deed: Callable[[], None]) -> None:
        """Have the statements' thread do something, from another thread."""
        with suppress(RuntimeError):  # the loop has ended
            self.loop.call_soon_threadsafe(lambda: None if self.stopping else self.loop.create_task(self.call(deed)))

    def _readers_are_behind(self, query: Query) -> bool:
        """Whether results of a query wait for the loop or for its readers; asked on a thread of its own."""

        async def look() -> bool:
            found = self.feeds.by_query.get(query.name)
            return found is not None and bool(found.feed.subscriptions) and found.feed.is_pressed(self.now_ns())

        if query.waiting.trains > RESULTS_AHEAD_MAX:
            return True
        try:
            return asyncio.run_coroutine_threadsafe(look(), self.loop).result(FAREWELL_S)
        except (TimeoutError, RuntimeError):  # the loop is busy, or has ended
            return True

    def kept(self, query: Query) -> KeptResults:
        """Read the feed on the loop's thread, after all results that are on their way to it."""
        return asyncio.run_coroutine_threadsafe(self._kept(query.name), self.loop).result()

    async def _kept(self, name: str) -> KeptResults:
        self.bridge.drain()
        found = self.feeds.by_query.get(name)
        if found is None:
            return KeptResults()
        entries = found.feed.log.kept()
        missing = entries[0].rows_before if entries else 0
        return KeptResults([(e.meta["position"], e.batch) for e in entries if e.batch is not None], missing)

    def stream_dropped(self, name: str) -> None:
        """Close the channels into a stream that is gone."""
        self.bridge.post(partial(self._revoke_channels, name))

    def reported(self, kind: str, message: str) -> None:
        """Log it."""
        if kind == "fatal":
            self.log.error(kind, reason=message, exc_info=self.runtime.scheduler.failure)
            self.broken = message
            self.loop.call_soon_threadsafe(self.when_broken)
            return
        (self.log.warning if kind in _NOTICES else self.log.error)(kind, reason=message)
        if kind == "policy_failed":
            self.policies_failed += 1

    def _press(self, stream: str, class_id: ClassId, ratio: float) -> None:
        """Let a share of a stream fall before a class, whose readers are behind."""
        source = self.host.network.sources.get(stream)
        if source is not None:
            self.host.network.shed_logs.press(source, class_id, ratio)

    def _clock_told(self, kind: str, message: str) -> None:
        """Log what was done to the system's clock, from whatever thread saw it first."""
        self.log.warning(kind, reason=message)

    def _pass_results_on(self) -> None:
        """Write what an order on the loop's thread has just brought, before anything is booked."""
        self.bridge.drain_early(_Results, self.outbox.pass_on)

    def _publish(self, query: Query, pieces: list[tuple[ResultRows, dict[str, Any]]], size_bytes: int) -> None:
        query.waiting.take(size_bytes)
        self.feeds.publish(query.name, pieces)

    def _close_feed(self, query: Query, run: int, reason: str, message: str, counts: dict[str, Any]) -> None:
        if self.feeds.finish(query.name, reason, message, counts):
            self.log.info("query_ended", query=query.name, reason=reason, detail=message, counts=counts)
        if reason in ("finished", "failed") and not self.stopping:
            self.loop.create_task(self.call(running.finished, self.host, query, run))

    def _lose_derived(self, query: Query, message: str) -> None:
        self.log.info("query_ended", query=query.name, reason="failed", detail=message)
        if not self.stopping:
            self.loop.create_task(self.call(running.derived_failed, self.host, query))

    def _revoke_channels(self, name: str) -> None:
        channels = [c for session in self.sessions.values() for c in session.channels.values() if c.intake.name == name]
        self.each(channels, lambda c: c.revoke(f"{noun_of(c.intake.table or c.intake.definition)} {name} was dropped"))


def _check_there(session: Session) -> None:
    """Begin nothing for a peer that has left meanwhile: what it owned is released already, or is in line to be."""
    if session.closed:
        raise GivenUp("the client has left")


def _called(statement: Statement) -> str:
    """Return how a statement is called: CREATE STREAM, PAUSE QUERY."""
    if isinstance(statement, ChangeQuery):
        return f"{statement.verb.value} QUERY"
    return "".join(f" {letter}" if letter.isupper() else letter for letter in type(statement).__name__).strip().upper()


def _role_for(statement: Statement) -> AccessRole:
    if isinstance(statement, _READER_STATEMENTS):
        return AccessRole.READER
    return AccessRole.WRITER if isinstance(statement, InsertValues | ReportConnector) else AccessRole.ADMIN
