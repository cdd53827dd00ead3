"""Virtual time: the core's world in which nothing takes time but what receipts say.

Orders are run when they are given out and come back at the time their receipt says they ended; events posted for a later time are
handed over when time gets there. With the real engine and a clock that stands still, everything happens at the posted times.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from millstream.engine.data.graph import LogId
from millstream.engine.data.records import dataclass
from millstream.engine.data.work import WorkReceipt
from millstream.scheduler.core import SchedulerCore
from millstream.scheduler.drivers.workers import run_order
from millstream.scheduler.errors import SchedulerError
from millstream.scheduler.events import Arrived, Event, QueryAdded, QueryRemoved, Spliced
from millstream.scheduler.instructions import (
    Dispatch,
    Instruction,
    InstructionHandler,
    OrderExecutor,
    Report,
    SetDropRatio,
    Splice,
    SpliceHandler,
)


@dataclass(frozen=True, slots=True)
class DecisionCost:
    """What deciding costs in virtual time: ns a decision, a rank computed, a queue operation, an order given out."""

    decision_ns: int = 0
    evaluation_ns: int = 0
    move_ns: int = 0
    order_ns: int = 0

    @property
    def free(self) -> bool:
        """Whether nothing is charged."""
        return not (self.decision_ns or self.evaluation_ns or self.move_ns or self.order_ns)


@runtime_checkable
class AcceptsArrivals(Protocol):
    """An executor that keeps modelled queues and must hear of arrivals when they happen."""

    def accept(self, event: Arrived) -> Arrived:
        """Append the rows to the log; returns the event as it is to be told, which is less what was dropped."""
        ...


@runtime_checkable
class DropsRows(Protocol):
    """An executor that drops rows before a log."""

    def set_drop_ratio(self, log: LogId, ratio: float) -> None:
        """Drop this share of the rows that enter the log, from now on."""
        ...


class VirtualDriver:
    """Drives a core and an executor through virtual time. `now_ns` is the present; `scheduling_ns` what deciding was charged."""

    def __init__(
        self,
        core: SchedulerCore,
        executor: OrderExecutor,
        *,
        on_splice: SpliceHandler | None = None,
        on_instruction: InstructionHandler | None = None,
        on_receipt: Callable[[WorkReceipt], None] | None = None,
        charge: DecisionCost | None = None,
        start_ns: int = 0,
    ) -> None:
        self.core = core
        self.now_ns = start_ns
        self.scheduling_ns = 0
        self._executor = executor
        self._accept = executor.accept if isinstance(executor, AcceptsArrivals) else None
        self._drop = executor.set_drop_ratio if isinstance(executor, DropsRows) else None
        self._on_splice = on_splice
        self._on_instruction = on_instruction
        self._on_receipt = on_receipt
        self._charge = None if charge is None or charge.free else charge
        self._charged = (0, 0, 0, 0)
        self._start_ns = start_ns
        self._waiting: list[tuple[int, int, Event]] = []
        self._sequence = 0

    def post(self, event: Event, at_ns: int | None = None) -> None:
        """Leave an event, now or for a later time (never for an earlier one: that counts as now)."""
        self._sequence += 1
        heapq.heappush(self._waiting, (self.now_ns if at_ns is None else max(at_ns, self.now_ns), self._sequence, event))

    def begin_charging(self) -> None:
        """Charge for what is decided from now on; what it took to take the first queries in is nobody's cost."""
        # Looking at the units cuts and ranks them where that was put off.
        assert self.core.view.units.count >= 0
        self._charged = self.core.counters()
        self.scheduling_ns = 0

    def add_query(self, event: QueryAdded | QueryRemoved) -> None:
        """Post a change of the network and run until it is in force; raises `SchedulerError` when it is refused."""
        refused: list[str] = []
        query = event.delta.query.id if isinstance(event, QueryAdded) else event.query
        before = self._on_instruction

        def listen(instruction: Instruction) -> None:
            if isinstance(instruction, Report) and instruction.kind == "refused" and instruction.query == query:
                refused.append(instruction.message)
            if before is not None:
                before(instruction)

        self._on_instruction = listen
        try:
            self.post(event)
            self.run_until(self.now_ns)
        finally:
            self._on_instruction = before
        if refused:
            raise SchedulerError(refused[0])

    def run_until_idle(self, now_ns: int | None = None) -> int:
        """Move time to at least `now_ns` and on until nothing is posted, running or runnable; return the time then."""
        return self._run(now_ns, None)

    def run_until(self, end_ns: int) -> int:
        """Do everything that begins up to `end_ns`; return the time then, which is later when an order ended later."""
        return self._run(None, end_ns)

    def _run(self, now_ns: int | None, end_ns: int | None) -> int:
        if now_ns is not None:
            self._run(None, now_ns)
            self.now_ns = max(self.now_ns, now_ns)
        self._turn(self._due())
        while (next_ns := self._next_ns()) is not None and (end_ns is None or next_ns <= end_ns):
            self.now_ns = max(self.now_ns, next_ns)
            self._turn(self._due())
        return self.now_ns

    def _next_ns(self) -> int | None:
        """When something happens next. Arrivals wait for the end of an order while no other can be given out: fewer decisions."""
        wake_ns = self.core.next_wake_ns()
        if self._waiting and (wake_ns is None or self._waiting[0][0] <= wake_ns):
            return self._waiting[0][0]
        return wake_ns

    def _due(self) -> list[Event]:
        waiting, events = self._waiting, []
        while waiting and waiting[0][0] <= self.now_ns:
            event = heapq.heappop(waiting)[2]
            if type(event) is Arrived and self._accept is not None:
                event = self._accept(event)
            events.append(event)
        return events

    def _turn(self, events: list[Event]) -> None:
        """Call the core and carry out what it asks for; again at once while splices answer."""
        while True:
            own: list[Event] = []
            instructions = self.core.handle(events, self.now_ns)
            if self._charge is not None:
                self._take_time(self._charge)
            for instruction in instructions:
                if type(instruction) is Dispatch:
                    self._run_order(instruction)
                elif type(instruction) is Splice:
                    own.append(self._splice(instruction))
                else:
                    self._tell(instruction)
            if not own:
                return
            events = own

    def _tell(self, instruction: Instruction) -> None:
        if self._drop is not None and type(instruction) is SetDropRatio:
            self._drop(instruction.log, instruction.ratio)
        if self._on_instruction is not None:
            self._on_instruction(instruction)

    def _run_order(self, instruction: Dispatch) -> None:
        self._start_ns = self.now_ns
        done = run_order(self._executor, instruction.order, self._clock)
        if self._on_receipt is not None:
            self._on_receipt(done.receipt)
        self._sequence += 1
        heapq.heappush(self._waiting, (max(self.now_ns, done.receipt.finished_ns), self._sequence, done))

    def _clock(self) -> int:
        return self._start_ns

    def _splice(self, splice: Splice) -> Spliced:
        cursors = self._on_splice(splice) if self._on_splice is not None else None
        return Spliced(splice.query, tuple(sorted((cursors or {}).items())))

    def _take_time(self, charge: DecisionCost) -> None:
        statistics = self.core.counters()
        spent = [after - before for after, before in zip(statistics, self._charged, strict=True)]
        self._charged = statistics
        costs = (charge.decision_ns, charge.evaluation_ns, charge.move_ns, charge.order_ns)
        taken = sum(count * cost for count, cost in zip(spent, costs, strict=True))
        self.scheduling_ns += taken
        self.now_ns += taken
