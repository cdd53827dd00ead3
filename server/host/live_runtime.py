"""The live runtime: the scheduler's thread and its workers, on the machine's clocks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from millstream.engine.data.graph import ClassId, GraphDelta, OperatorId, QueryId
from millstream.engine.data.records import dataclass
from millstream.engine.data.work import WorkOrder, WorkReceipt
from millstream.engine.flow.sources import Ingested
from millstream.engine.runtime.network import Network
from millstream.scheduler.core import SchedulerStatistics
from millstream.scheduler.drivers.live import LiveScheduler, Spent
from millstream.scheduler.events import QueryPaused, QueryResumed
from millstream.scheduler.instructions import ClockNs, InstructionHandler, OrderExecutor, splicer
from millstream.scheduler.limits import AGING, WINDOW_TUPLES
from millstream.scheduler.load.contract import ClassLoad
from millstream.scheduler.spec import PolicySpec
from millstream.server.host.arrival_clock import ArrivalClock
from millstream.server.host.runtime import MeasuresSnapshot

if TYPE_CHECKING:
    from millstream.server.host.load_ring import LoadRing
    from millstream.server.host.recordings import ArrivalRecording

MARKS_MAX = 60
_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class RingBounds:
    """How long counts are kept, and in how many bytes."""

    kept_ns: int
    bytes_max: int

    @property
    def mark_ns(self) -> int:
        """Return the time between two marks: a sixtieth of what is kept, at least a second."""
        return max(_NS_PER_S, self.kept_ns // MARKS_MAX)


class LiveRuntime:
    """The scheduler's thread and its workers, and the loop's thread for a few rows."""

    def __init__(
        self,
        executor: OrderExecutor,
        network: Network,
        policy: PolicySpec,
        workers: int,
        on_instruction: InstructionHandler,
        clock_ns: ClockNs = time.monotonic_ns,
        *,
        arrival_clock: ArrivalClock | None = None,
        window: int = WINDOW_TUPLES,
        aging: float = AGING,
        load: str | None = None,
        placed: bool = False,
        kept: RingBounds | None = None,
    ) -> None:
        self.clock_ns = clock_ns
        self._arrival_clock = arrival_clock or ArrivalClock()
        self._recording: ArrivalRecording | None = None
        self._kept = kept  # None: no counts are kept
        self._ring: LoadRing | None = None  # made when the first rows arrive
        self._ring_lock = threading.Lock()
        self._started_ns = clock_ns()
        self._gate = Gate(executor)
        self._scheduler = LiveScheduler(
            self._gate,
            policy=policy,
            workers=workers,
            clock_ns=clock_ns,
            on_splice=splicer(network),
            on_instruction=on_instruction,
            window=window,
            aging=aging,
            load=load,
            placed=placed,
        )
        self._home = 0  # the thread that started this one: the event loop's
        self._is_stopping = False

    @property
    def scheduler(self) -> LiveScheduler:
        """The scheduler with its threads."""
        return self._scheduler

    def record(self, recording: ArrivalRecording | None) -> None:
        """Note arrivals in `recording` from now on."""
        self._recording = recording

    @property
    def ring(self) -> LoadRing | None:
        """The counts of what came lately; None where none are kept, or nothing has come."""
        return self._ring

    @property
    def ring_bounds(self) -> RingBounds | None:
        """How much of that is kept; None where nothing is."""
        return self._kept

    def _begin_ring(self, bounds: RingBounds) -> LoadRing:
        from millstream.server.host.load_ring import LoadRing, Mark, packed  # not before there is something to count

        with self._ring_lock:  # rows may come on two threads
            if self._ring is None:
                self._ring = LoadRing(bounds, Mark(self._started_ns, Spent(self._started_ns, 0, 0, 0), packed({})))
            return self._ring

    def start(self) -> None:
        """Start the threads."""
        self._home = threading.get_ident()
        self._started_ns = self.clock_ns()
        self._scheduler.start()

    def stop(self, drain_s: float) -> bool:
        """Stop the threads, after at most `drain_s` for what is queued. Returns whether everything was worked off."""
        drained = self._scheduler.quiesce(drain_s) if drain_s > 0 else False
        self._is_stopping = True
        self._scheduler.stop(drain=False)
        return drained

    def now_us(self) -> int:
        """Return the arrival time (arrival_clock.py)."""
        return self._arrival_clock.now_us()

    def arrival_ns(self) -> int:
        """Return the scheduler's clock, which is monotonic."""
        return self.clock_ns()

    def arrived(self, ingested: Ingested) -> None:
        """Tell the scheduler; on the event loop's thread a few rows are run at once.

        An order that is still out when the threads are stopped may put rows into a stream (INSERT INTO, derived streams). They lie in the
        stream's log and journal, and nobody decides about them any more.
        """
        events = ingested.told()
        if self._recording is not None:
            self._recording.note(events)
        if self._kept is not None and events:
            (self._ring or self._begin_ring(self._kept)).note(events)
        is_home = threading.get_ident() == self._home
        if self._is_stopping and not is_home:
            return
        if is_home and not self._gate.is_closed:
            self._scheduler.offer(events)
            return
        for event in events:
            self._scheduler.post(event)

    def add(self, delta: GraphDelta) -> None:
        """Splice in and wait."""
        self._scheduler.add_query(delta)

    def remove(self, query: QueryId, operators: tuple[OperatorId, ...]) -> None:
        """Splice out and wait."""
        self._scheduler.remove_query(query, operators)

    def pause(self, query: QueryId) -> None:
        """Post it."""
        self._scheduler.post(QueryPaused(query))

    def resume(self, query: QueryId) -> None:
        """Post it."""
        self._scheduler.post(QueryResumed(query))

    def still(self) -> AbstractContextManager[None]:
        """Let the orders that run end, and the others wait."""
        return self._gate.closed()

    def set_policy(self, spec: PolicySpec) -> None:
        """Check it here, post it, and return once it is in force."""
        self._scheduler.set_policy(spec)
        self._scheduler.ask(lambda core: core.policy)

    def measures(self) -> MeasuresSnapshot | None:
        """Return what was measured up to now."""
        measures = self._scheduler.measures()
        return None if measures is None else MeasuresSnapshot(measures, self.clock_ns())

    def loads(self) -> Mapping[ClassId, ClassLoad]:
        """Return how the classes stood at the end of the last cycle."""
        return self._scheduler.ask(lambda core: {} if core.load is None else core.load.present)

    def statistics(self) -> SchedulerStatistics:
        """Return the counts as of the scheduler's last breath."""
        return self._scheduler.statistics()


class Gate:
    """Runs orders through `executor`. An order that finds the door closed waits before its first step."""

    def __init__(self, executor: OrderExecutor) -> None:
        self._executor = executor
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._running = 0
        self._closed = 0

    @property
    def is_closed(self) -> bool:
        """Whether an order would have to wait now."""
        return self._closed > 0

    def run(self, order: WorkOrder, clock_ns: ClockNs) -> WorkReceipt:
        """Run the order, once the door is open."""
        with self._lock:  # the condition's own: entering that takes four times as many calls
            while self._closed:
                self._changed.wait()
            self._running += 1
        try:
            return self._executor.run(order, clock_ns)
        finally:
            with self._lock:
                self._running -= 1
                if self._closed and not self._running:
                    self._changed.notify_all()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Close the door, wait until nothing runs behind it, and open it again at the end."""
        with self._changed:
            self._closed += 1
            while self._running:
                self._changed.wait()
        try:
            yield
        finally:
            with self._changed:
                self._closed -= 1
                self._changed.notify_all()
