"""What the host needs of whoever runs orders: the live scheduler with its threads, or the virtual driver in this thread.

Both run the same core over the same engine; they differ in who waits for what, and in the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from millstream.engine.graph import GraphDelta, OperatorId, QueryId
from millstream.engine.network import Network
from millstream.engine.sources import Ingested
from millstream.scheduler.core import CoreSettings, SchedulerCore, SchedulerStatistics
from millstream.scheduler.events import Arrived, Event, PolicyChanged, QueryAdded, QueryPaused, QueryRemoved, QueryResumed
from millstream.scheduler.executor import InstructionHandler, OrderExecutor, SpliceHandler
from millstream.scheduler.instructions import Splice
from millstream.scheduler.live import LiveScheduler
from millstream.scheduler.simulation.driver import VirtualDriver
from millstream.scheduler.spec import PolicySpec
from millstream.scheduler.trains import Train as TrainShape

NS_PER_US = 1_000


class Runtime(Protocol):
    """Runs the network. Times: `now_us` since 1970 for processing time, `arrival_ns` monotonic for response times."""

    def now_us(self) -> int:
        """Return the processing time."""
        ...

    def arrival_ns(self) -> int:
        """Return the time that stands on rows that arrive now."""
        ...

    def arrived(self, ingested: Ingested) -> None:
        """Note that rows or control items stand in source logs."""
        ...

    def add(self, delta: GraphDelta) -> None:
        """Bring a planned query into force; returns once it is."""
        ...

    def remove(self, query: QueryId, operators: tuple[OperatorId, ...]) -> None:
        """Take a query out; returns once it is gone."""
        ...

    def pause(self, query: QueryId) -> None:
        """Let a query's own operators stand still, with what waits before them."""
        ...

    def resume(self, query: QueryId) -> None:
        """Let them go on."""
        ...

    def set_policy(self, spec: PolicySpec) -> None:
        """Use another scheduling policy; PolicyError when there is none such."""
        ...

    def statistics(self) -> SchedulerStatistics:
        """Return the scheduler's counts."""
        ...


def splicer(network: Network) -> SpliceHandler:
    """Return the handler that carries out a splice in `network`."""

    def splice(order: Splice) -> dict[int, int]:
        if order.added is not None:
            return dict(network.attach(order.query))
        network.remove_query(order.query)
        return {}

    return splice  # type: ignore[return-value]


def _arrivals(ingested: Ingested) -> list[Event]:
    return [Arrived(a.log, a.rows, a.bytes, a.arrival_ns, a.controls) for a in ingested.arrivals if a.rows or a.controls]


class LiveRuntime:
    """The scheduler's thread and its workers."""

    def __init__(
        self, executor: OrderExecutor, network: Network, policy: PolicySpec, workers: int, on_instruction: InstructionHandler
    ) -> None:
        self.scheduler = LiveScheduler(executor, policy=policy, workers=workers, on_splice=splicer(network), on_instruction=on_instruction)

    def start(self) -> None:
        """Start the threads."""
        self.scheduler.start()

    def stop(self, drain_s: float) -> bool:
        """Stop the threads, after at most `drain_s` for what is queued. Returns whether everything was worked off."""
        drained = self.scheduler.quiesce(drain_s) if drain_s > 0 else False
        self.scheduler.stop(drain=False)
        return drained

    def now_us(self) -> int:
        """Return the system's clock."""
        return time.time_ns() // NS_PER_US

    def arrival_ns(self) -> int:
        """Return the monotonic clock."""
        return time.monotonic_ns()

    def arrived(self, ingested: Ingested) -> None:
        """Post it to the scheduler's mailbox."""
        for event in _arrivals(ingested):
            self.scheduler.post(event)

    def add(self, delta: GraphDelta) -> None:
        """Splice in and wait."""
        self.scheduler.add_query(delta)

    def remove(self, query: QueryId, operators: tuple[OperatorId, ...]) -> None:
        """Splice out and wait."""
        self.scheduler.remove_query(query, operators)

    def pause(self, query: QueryId) -> None:
        """Post it."""
        self.scheduler.post(QueryPaused(query))

    def resume(self, query: QueryId) -> None:
        """Post it."""
        self.scheduler.post(QueryResumed(query))

    def set_policy(self, spec: PolicySpec) -> None:
        """Check it here and post it."""
        self.scheduler.set_policy(spec)

    def statistics(self) -> SchedulerStatistics:
        """Return the counts as of the scheduler's last breath."""
        return self.scheduler.statistics()


class VirtualRuntime:
    """The same core in this thread, in virtual time: nothing takes time, and time moves only by `advance`.

    `train` is how many rows an order takes at most where the policy says nothing, None for all that wait. Orders run when `run` is called.
    """

    def __init__(
        self,
        executor: OrderExecutor,
        network: Network,
        policy: PolicySpec,
        on_instruction: InstructionHandler,
        *,
        workers: int = 1,
        train: int | None = None,
        start_us: int = 0,
    ) -> None:
        settings = CoreSettings(orders_max=workers, train=TrainShape(share=1.0) if train is None else TrainShape(count=train))
        self.core = SchedulerCore(policy, settings)
        self._now_us = start_us
        self.driver = VirtualDriver(
            self.core, executor, on_splice=splicer(network), on_instruction=on_instruction, start_ns=start_us * NS_PER_US
        )

    def run(self) -> None:
        """Run until nothing is left to do at this moment."""
        self.driver.run_until_idle()

    def advance_to(self, now_us: int) -> None:
        """Let time move on."""
        self._now_us = now_us
        self.driver.run_until(now_us * NS_PER_US)

    def now_us(self) -> int:
        """Return virtual time."""
        return self._now_us

    def arrival_ns(self) -> int:
        """Return virtual time in ns."""
        return self._now_us * NS_PER_US

    def arrived(self, ingested: Ingested) -> None:
        """Leave it for the next `run`."""
        for event in _arrivals(ingested):
            self.driver.post(event)

    def add(self, delta: GraphDelta) -> None:
        """Splice in."""
        self.driver.add_query(QueryAdded(delta))

    def remove(self, query: QueryId, operators: tuple[OperatorId, ...]) -> None:
        """Splice out."""
        self.driver.add_query(QueryRemoved(query, operators))

    def pause(self, query: QueryId) -> None:
        """Leave it for the next `run`."""
        self.driver.post(QueryPaused(query))

    def resume(self, query: QueryId) -> None:
        """Leave it for the next `run`."""
        self.driver.post(QueryResumed(query))

    def set_policy(self, spec: PolicySpec) -> None:
        """Change it with the next `run`."""
        self.driver.post(PolicyChanged(spec))

    def statistics(self) -> SchedulerStatistics:
        """Return the core's counts."""
        return self.core.statistics()


RuntimeFactory = Callable[[OrderExecutor, Network, InstructionHandler], Runtime]
