"""The live driver: one scheduler thread that empties the mailbox, reads the clock once, calls the core, and gives out orders.

An order is run on the scheduler thread itself when it is the only one and no worker is busy: that saves the hand-off, some 20 µs. With
one worker that is always so, and no other thread is started: deciding and running would only take turns at the interpreter's lock
(measured on small orders: a quarter to two fifths less processor time an order than with a thread of its own).

For a few rows even the way to the scheduler thread and back costs more than they do. So deciding is a turn that whoever has work may
take (`offer`): while the scheduler thread sleeps and nothing is under way, the thread that brings a few rows decides and runs at once
what they call for. Whoever adds or removes a query takes it likewise, and waits only where somebody else has it. The core still sees one
batch of events after another, and an order runs while no other is out, as ever.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from typing import Any, TypeVar

from millstream.engine.data.graph import GraphDelta, OperatorId, QueryId
from millstream.engine.data.records import dataclass
from millstream.scheduler import catalog
from millstream.scheduler.core import FALLBACK, CoreSettings, SchedulerCore, SchedulerStatistics
from millstream.scheduler.drivers.mailbox import Mailbox
from millstream.scheduler.drivers.user_code import UserCode
from millstream.scheduler.drivers.workers import WorkerPool, run_order
from millstream.scheduler.errors import GraphError, SchedulerError
from millstream.scheduler.events import Arrived, DrainRequested, Event, PolicyChanged, QueryAdded, QueryRemoved, Spliced, Tick, WorkDone
from millstream.scheduler.instructions import (
    ROUND_ROBIN_GOES_ON,
    ClockNs,
    Dispatch,
    Instruction,
    InstructionHandler,
    OrderExecutor,
    Report,
    Splice,
    SpliceHandler,
)
from millstream.scheduler.limits import (
    AGING,
    ESTIMATE_CALLS_LIVE,
    NEVER_NS,
    OFFER_COST_FADE,
    OFFER_COST_NS_MAX,
    OFFER_NS_MAX,
    OFFER_ROWS_MAX,
    OFFERS_DUE_NS,
    ORDER_BUDGET_NS,
    ORDERS_PER_WORKER,
    SCHEDULE_UNITS_LIVE,
    USER_DECISION_NS_MAX,
    USER_SLOW_DECISIONS_MAX,
    USER_WAIT_NS_MAX,
    WINDOW_TUPLES,
)
from millstream.scheduler.measures import Measures
from millstream.scheduler.spec import PolicySpec
from millstream.scheduler.story import Story
from millstream.scheduler.trains import TrainShape

_NS_PER_S = 1_000_000_000
_COUNT_EVERY_NS = 50_000_000  # a statement that asks meanwhile sees counts as old as that; making them takes as long as a row does
_OFFER_S = 0.05  # how long whoever asks for counts waits for the end of a turn that rows were brought to, which takes a ms or two
_ANSWER_S = 0.05  # how often a question is looked after, should the thread have ended with it unanswered


Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Spent:
    """What the scheduler thread has spent its time on up to `at_ns`: waiting, deciding; and how many orders it gave out."""

    at_ns: int
    waiting_ns: int
    deciding_ns: int
    orders: int


@dataclass(slots=True)
class _Question:
    """Someone waits for what a function makes of the core."""

    ask: Callable[[SchedulerCore], Any]
    answered: threading.Event = field(default_factory=threading.Event)
    answer: Any = None
    problem: Exception | None = None

    def settle(self, core: SchedulerCore) -> None:
        """Ask, and let the asker go on."""
        try:
            self.answer = self.ask(core)
        except Exception as problem:
            self.problem = problem
        self.answered.set()


@dataclass(slots=True)
class _Change:
    """Someone waits for a query to come into force or to leave."""

    settled: threading.Event
    refused: str | None = None


def live_settings(workers: int, *, placed: bool = False) -> CoreSettings:
    """Return the conditions under which a live core decides. `placed`: workers have operators of their own."""
    return CoreSettings(
        orders_max=1 if workers == 1 and not placed else (workers + placed) * ORDERS_PER_WORKER,
        workers=workers if placed else 0,
        worker_orders_max=ORDERS_PER_WORKER,
        train=TrainShape(adaptive=True),
        schedule=SCHEDULE_UNITS_LIVE,
        budget_ns=ORDER_BUDGET_NS,
        estimate_calls=ESTIMATE_CALLS_LIVE,
        measure=True,
        declared=False,
    )


def _threads(settings: CoreSettings, workers: int) -> int:
    """Return how many threads run orders: where workers are processes, one waits for each order that is out."""
    if settings.orders_max == 1:
        return 0
    return settings.orders_max if settings.workers else workers


class LiveScheduler:
    """Drives a `SchedulerCore` with threads.

    `on_splice` carries out changes of the network in the engine, on the thread that decides, while the operators concerned are idle.
    `on_instruction` hears everything else that is not an order: `Report` (failures of queries and policies among them),
    `SetDropRatio`, `SetClassShare`. Both must return soon. An exception of the executor stops the queries concerned and is
    reported; an exception of the scheduler itself ends the thread, is reported as `fatal` and raised by `stop`.
    """

    def __init__(
        self,
        executor: OrderExecutor,
        *,
        policy: PolicySpec,
        workers: int = 1,
        clock_ns: ClockNs = time.monotonic_ns,
        on_splice: SpliceHandler | None = None,
        on_instruction: InstructionHandler | None = None,
        settings: CoreSettings | None = None,
        record: bool = False,
        window: int = WINDOW_TUPLES,
        aging: float = AGING,
        load: str | None = None,
        user_code: UserCode | None = None,
        placed: bool = False,
    ) -> None:
        if workers < 1:
            raise SchedulerError(f"workers is {workers} and must be at least 1")
        self.workers = workers
        self._executor = executor
        self._clock_ns = clock_ns
        self._on_splice = on_splice
        self._on_instruction = on_instruction
        conditions = settings or live_settings(workers, placed=placed)
        self._user_code = user_code or UserCode()
        self._core = SchedulerCore(
            policy,
            conditions if settings else replace(conditions, record=record, window=window, aging=aging, load=load),
            user_calls=self._user_code,
        )
        if self._core.measures is not None:
            # Read once, so that no jump of the system's clock moves what deadlines are measured against.
            self._core.measures.epoch_ns = time.time_ns() - clock_ns()
        self._mailbox = Mailbox()
        self._pool = WorkerPool(executor, _threads(self._core.settings, workers), clock_ns, self._mailbox.post)
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._lock = threading.Lock()
        self._drained = threading.Condition(self._lock)
        self._drains_asked = self._drains_taken = self._drains_done = 0
        self._changes: dict[QueryId, _Change] = {}
        self._orders_out = 0
        self._slow_decisions = self._long_decisions = 0
        self._questions: deque[_Question] = deque()
        self._stopping = False
        self._statistics, self._counted_ns = self._core.statistics(), 0
        self._turn = threading.Lock()  # who holds it decides
        self._own: list[Event] = []  # events that deciding itself made, to be handled next
        self._wakes_ns = NEVER_NS  # until when the scheduler thread sleeps if nothing is posted
        self._offer_cost_ns = 0.0
        self._offers_seen = 0
        self._offering = False  # the turn is taken by whoever brought rows
        self._fatal: BaseException | None = None
        self.scheduling_ns = 0
        """Time the scheduler thread spent deciding (not waiting, not running orders itself)."""
        self.waiting_ns = 0
        """Time it waited for something to happen."""
        self.on_run: Callable[[], None] | None = None
        """Called in `offer` when an order has been run and before it is booked: its results need not wait for that. Must not raise."""
        self.offers_taken = 0  # turns taken by the thread that brought rows

    # ---- life

    def start(self) -> None:
        """Start the threads."""
        self._pool.start()
        self._thread.start()

    def stop(self, drain: bool = True) -> None:
        """Stop: after all queues are empty, or after the orders that are out. Raises what ended the thread, if anything did."""
        if drain and self._fatal is None:
            self.quiesce(None)
        self._stopping = True
        self._mailbox.close(last=Tick())
        self._thread.join()
        self._pool.stop()
        self._user_code.close()
        if self._fatal is not None:
            raise SchedulerError(f"the scheduler thread ended: {self._fatal}") from self._fatal

    # ---- what others call

    @property
    def failure(self) -> BaseException | None:
        """What ended the scheduler itself, if anything did: it decides nothing any more."""
        return self._fatal

    def post(self, event: Event) -> None:
        """Leave an event for the scheduler thread. Cheap, from any thread."""
        self._mailbox.post(event)

    def offer(self, events: Sequence[Event]) -> None:
        """Leave arrivals; where they are few and nothing is under way, decide and run at once what they call for, on this thread.

        Results are then delivered, and failures reported, before this returns. For threads that would otherwise wait for just that.
        """
        if not (self._may_take_turn(events) and self._taken_here(events, self._take_turn)):
            for event in events:
                self._mailbox.post(event)

    def _taken_here(self, events: Sequence[Event], take: Callable[[list[Event]], None]) -> bool:
        """Have the turn, on this thread, for `take` of these events; False, with nothing done, while somebody has it or something runs."""
        if not self._turn.acquire(blocking=False):
            return False
        self._offering = True
        try:
            if self._own or self._orders_out or not self._mailbox.is_quiet:
                return False
            take(list(events))
        except BaseException as problem:
            self._end(problem)
        finally:
            self._offering = False
            self._turn.release()
        return True

    def _may_take_turn(self, events: Sequence[Event]) -> bool:
        if self._core.policy.name == "user":
            return False  # nobody knows how long it takes, and whoever brings rows has more to do
        if self._offer_cost_ns > OFFER_COST_NS_MAX:
            self._offer_cost_ns *= OFFER_COST_FADE  # so that it is tried again some time
            return False
        for event in events:  # noqa: SIM110  (a generator would be two more calls for every row that comes alone)
            if type(event) is not Arrived or event.rows > OFFER_ROWS_MAX:
                return False
        return True

    def _take_turn(self, events: list[Event]) -> None:
        began_ns, started_ns = self._clock_ns(), time.thread_time_ns()
        self.offers_taken += 1
        spent_ns = 0
        while events and spent_ns <= OFFER_NS_MAX:
            events = self._step(events)
            now_ns = self._clock_ns()
            spent_ns = now_ns - began_ns
            if spent_ns > OFFER_NS_MAX:  # what others do with the processor meanwhile does not count, but asking takes long
                spent_ns = min(spent_ns, time.thread_time_ns() - started_ns)
            if events and self.on_run is not None:
                self.on_run()
                began_ns += self._clock_ns() - now_ns
        self._offer_cost_ns += (spent_ns - self._offer_cost_ns) * (1.0 - OFFER_COST_FADE)
        self._give_back(events)

    def _give_back(self, events: list[Event]) -> None:
        """End a turn: the scheduler thread handles what is left of it, and does not sleep for longer than it may now."""
        for event in events:
            self._mailbox.post(event)
        wake_ns = self._core.next_wake_ns()
        if not events and wake_ns is not None and wake_ns < self._wakes_ns:
            self._mailbox.post(Tick())  # the scheduler thread means to sleep for longer

    def set_policy(self, spec: PolicySpec) -> None:
        """Use another policy from the next decision on; raises `PolicyError` when it cannot be put together."""
        user_code = UserCode()
        try:
            catalog.build(spec, default_train=self._core.settings.train, user_calls=user_code)
        finally:
            user_code.close()
        self.post(PolicyChanged(spec))

    def statistics(self) -> SchedulerStatistics:
        """Return the counts; while the scheduler thread decides those of some tens of ms ago, and `idle` is False; also if events wait."""
        if self._turn.acquire(timeout=_OFFER_S if self._offering else 0):
            try:
                self._statistics = self._core.statistics()
                waits = bool(self._own) or not (self._mailbox.is_quiet or self._stopping)
            finally:
                self._turn.release()
        else:
            waits = True
        return replace(self._statistics, idle=False) if waits else self._statistics

    def ask(self, question: Callable[[SchedulerCore], Answer]) -> Answer:
        """Let the scheduler thread, between two decisions, make something of its core; returns that, or raises what it raised.

        Keep it short: nothing is decided meanwhile.
        """
        asked = _Question(question)
        if self._thread.is_alive():
            self._questions.append(asked)
            with suppress(SchedulerError):  # a mailbox that is closed: the thread answers before it ends, or is found dead below
                self._mailbox.post(Tick())
            while not asked.answered.wait(_ANSWER_S) and self._thread.is_alive():
                pass
        if not asked.answered.is_set():
            with self._lock:
                asked.settle(self._core)
        if asked.problem is not None:
            raise asked.problem
        answer: Answer = asked.answer
        return answer

    def spent(self) -> Spent:
        """Return what the scheduler thread has spent its time on so far."""
        return self.ask(lambda core: Spent(self._clock_ns(), self.waiting_ns, self.scheduling_ns, core.counters()[3]))

    def measures(self) -> Measures | None:
        """Return a copy of what was measured so far, None when nothing is."""

        def copied(core: SchedulerCore) -> Measures | None:
            if core.measures is None:
                return None
            core.measures.scheduling_ns = self.scheduling_ns
            return core.measures.copy()

        return self.ask(copied)

    @property
    def settings(self) -> CoreSettings:
        """The settings of the core."""
        return self._core.settings

    @property
    def story(self) -> Story | None:
        """What was recorded (`record=True`); read it when the scheduler has stopped."""
        return self._core.story

    def add_query(self, delta: GraphDelta, timeout_s: float | None = 30.0) -> None:
        """Add a query and return once it is in force; raises `GraphError` when it was refused."""
        self._change(delta.query.id, QueryAdded(delta), timeout_s)

    def remove_query(self, query: QueryId, operators: tuple[OperatorId, ...], timeout_s: float | None = 30.0) -> None:
        """Take a query out, with the operators that served it alone, and return once it is gone."""
        self._change(query, QueryRemoved(query, operators), timeout_s)

    def _change(self, query: QueryId, event: Event, timeout_s: float | None) -> None:
        change = _Change(threading.Event())
        with self._lock:
            if query in self._changes:
                raise GraphError(f"query {query} is being changed already")
            self._changes[query] = change
        try:
            # Two threads that wake each other for each of ten thousand queries take a tenth of a start's processor time, and more to wait.
            if self._core.policy.name == "user" or not self._taken_here([event], partial(self._settle_here, change)):
                self.post(event)
            if not change.settled.wait(timeout_s):
                raise SchedulerError(f"query {query} did not settle within {timeout_s} s")
        finally:
            with self._lock:
                self._changes.pop(query, None)
        if change.refused is not None:
            raise GraphError(change.refused)

    def _settle_here(self, change: _Change, events: list[Event]) -> None:
        while events and not change.settled.is_set():
            events = self._step(events)
        self._give_back(events)

    def quiesce(self, timeout_s: float | None) -> bool:
        """Wait until everything posted before is worked off as far as it can be; False when that took longer than `timeout_s`."""
        with self._lock:
            if self._fatal is not None:
                return False
            self._drains_asked += 1
            ticket = self._drains_asked
            self._mailbox.post(DrainRequested())
            self._drained.wait_for(lambda: self._drains_done >= ticket or self._fatal is not None, timeout_s)
            return self._drains_done >= ticket

    # ---- the scheduler thread

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as problem:
            self._end(problem)

    def _end(self, problem: BaseException) -> None:
        self._fatal = problem
        self._mailbox.close()
        with self._lock:
            for change in self._changes.values():
                change.refused = f"the scheduler thread ended: {problem}"
                change.settled.set()
            self._drained.notify_all()
        self._tell(Report("fatal", f"the scheduler thread ended: {type(problem).__name__}: {problem}"))

    def _loop(self) -> None:
        timeout_s: float | None = None
        while self._fatal is None:
            if not self._own:
                began_ns = self._clock_ns()
                self._mailbox.wait(timeout_s)
                self.waiting_ns += self._clock_ns() - began_ns
            with self._turn:
                events = self._mailbox.take(0)
                events.extend(self._own)
                if events or self._is_due():
                    self._count_now_and_then()
                    self._own = self._step(events)
                if self._stopping and not self._orders_out and not self._own:
                    return
                timeout_s = None if self._own else self._timeout_s()

    def _count_now_and_then(self) -> None:
        """Count for those who ask while this thread has the turn, which may be for long; whoever else takes it has it for a moment."""
        now_ns = self._clock_ns()
        if now_ns - self._counted_ns > _COUNT_EVERY_NS:
            self._counted_ns, self._statistics = now_ns, self._core.statistics()

    def step(self, own: Sequence[Event] = ()) -> list[Event]:
        """Take one step in the caller's thread, where none was started: for rigs that keep a clock of their own.

        Handles what was posted and `own`, what the step before returned; returns likewise.
        """
        events = self._mailbox.take(0)
        events.extend(own)
        made = self._step(events)
        self._statistics = self._core.statistics()
        return made

    def _is_due(self) -> bool:
        wake_ns = self._core.next_wake_ns()
        return wake_ns is not None and wake_ns <= self._clock_ns()

    def _timeout_s(self) -> float | None:
        """Return how long to sleep: a little longer while rows are offered, as whoever brings them does then what is due."""
        wake_ns = self._core.next_wake_ns()
        self._wakes_ns = NEVER_NS if wake_ns is None else wake_ns
        offered, self._offers_seen = self.offers_taken - self._offers_seen, self.offers_taken
        if wake_ns is None:
            return None
        return max(0.0, (wake_ns - self._clock_ns() + (OFFERS_DUE_NS if offered else 0)) / _NS_PER_S)

    def _step(self, events: list[Event]) -> list[Event]:
        """Handle one batch; return events that this thread made itself."""
        asked = False
        for event in events:
            kind = type(event)
            if kind is WorkDone:
                self._orders_out -= 1
            elif kind is DrainRequested:
                self._drains_taken += 1
            elif kind is PolicyChanged:
                self._slow_decisions = self._long_decisions = 0
            elif kind is Tick:
                asked = True
        started_ns, calls, used_ns = self._clock_ns(), self._user_code.calls, self._user_code.used_ns
        instructions = self._core.handle(events, started_ns)
        spent_ns = self._clock_ns() - started_ns
        self.scheduling_ns += spent_ns
        own: list[Event] = []
        if self._user_code.calls > calls and self._core.policy.name == "user":
            self._judge_policy(self._user_code.used_ns - used_ns, spent_ns, own)
        orders = []
        for instruction in instructions:
            if type(instruction) is Dispatch:
                orders.append(instruction.order)
            else:
                self._carry_out(instruction, own)
        if asked:  # not whenever a question waits: what its asker posted before it must have been handled
            self._answer()
        if not orders:
            return own
        self._orders_out += len(orders)
        if self._orders_out == 1 and not orders[0].worker:
            own.append(run_order(self._executor, orders[0], self._clock_ns))
            return own
        for order in orders:
            self._pool.give(order)
        return own

    def _answer(self) -> None:
        self._statistics = self._core.statistics()
        while self._questions:
            self._questions.popleft().settle(self._core)

    def _judge_policy(self, used_ns: int, spent_ns: int, own: list[Event]) -> None:
        """Replace a user policy whose decisions take too much processor time, or that waits in one after the other."""
        self._slow_decisions += used_ns > USER_DECISION_NS_MAX
        self._long_decisions = self._long_decisions + 1 if spent_ns > USER_WAIT_NS_MAX else 0
        if max(self._slow_decisions, self._long_decisions) <= USER_SLOW_DECISIONS_MAX:
            return
        took = f"{used_ns / 1e6:.1f} ms of processor time" if self._slow_decisions > USER_SLOW_DECISIONS_MAX else f"{spent_ns / 1e6:.1f} ms"
        self._slow_decisions = self._long_decisions = 0
        own.append(PolicyChanged(FALLBACK))
        self._tell(Report("policy_failed", f"policy {self._core.policy} took {took} for one decision{ROUND_ROBIN_GOES_ON}"))

    def _carry_out(self, instruction: Instruction, own: list[Event]) -> None:
        if isinstance(instruction, Splice):
            own.append(self._splice(instruction))
            return
        if isinstance(instruction, Report):
            self._count_changed(instruction)
            self._settle(instruction)
        self._tell(instruction)

    def _count_changed(self, report: Report) -> None:
        """Let whoever waits for a report find in the counts what it tells of. A query that came brings nothing that waits yet."""
        if report.kind == "added":
            self._statistics = self._core.with_queries(self._statistics)  # to count all takes a look at each operator
        else:
            self._statistics = self._core.statistics()

    def _splice(self, splice: Splice) -> Spliced:
        if self._on_splice is None:
            return Spliced(splice.query)
        try:
            cursors = self._on_splice(splice) or {}
        except Exception as problem:
            return Spliced(splice.query, failure=str(problem))
        return Spliced(splice.query, tuple(sorted(cursors.items())))

    def _settle(self, report: Report) -> None:
        if report.kind == "drained":
            with self._lock:
                self._drains_done = self._drains_taken
                self._drained.notify_all()
        elif report.kind in ("added", "removed", "refused") and report.query is not None:
            with self._lock:
                change = self._changes.get(report.query)
            if change is not None:
                change.refused = report.message if report.kind == "refused" else None
                change.settled.set()

    def _tell(self, instruction: Instruction) -> None:
        if self._on_instruction is not None:
            self._on_instruction(instruction)
