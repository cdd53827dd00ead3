"""What the host needs of whoever runs orders: the live scheduler with its threads, or the virtual driver in this thread.

Both run the same core over the same engine; they differ in who waits for what, and in the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from millstream.engine.data.graph import ClassId, GraphDelta, OperatorId, QueryId
from millstream.engine.flow.sources import Ingested
from millstream.engine.runtime.network import Network
from millstream.scheduler.core import SchedulerStatistics
from millstream.scheduler.events import Arrived, Event
from millstream.scheduler.executor import InstructionHandler, OrderExecutor, SpliceHandler
from millstream.scheduler.instructions import Splice
from millstream.scheduler.load.contract import ClassLoad
from millstream.scheduler.spec import PolicySpec
from millstream.server.host.measured import Measured

if TYPE_CHECKING:
    from millstream.scheduler.live import LiveScheduler
    from millstream.server.host.recordings import ArrivalRecording

NS_PER_US = 1_000


class Runtime(Protocol):
    """Runs the network. Times: `now_us` since 1970 for processing time, `arrival_ns` monotonic for response times."""

    @property
    def scheduler(self) -> LiveScheduler | None:
        """The scheduler with its threads, None where no time passes: then nothing is measured, foreseen or recorded."""
        ...

    def record(self, recording: ArrivalRecording | None) -> None:
        """Note in `recording` what arrives from now on, or with None note nothing any more."""
        ...

    def now_us(self) -> int:
        """Return the processing time, never less than before; live it is the arrival time of arrival_clock.py."""
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

    def still(self) -> AbstractContextManager[None]:
        """Return a context in which no order runs: what operators hold can be looked at."""
        ...

    def set_policy(self, spec: PolicySpec) -> None:
        """Use another scheduling policy; PolicyError when there is none such."""
        ...

    def statistics(self) -> SchedulerStatistics:
        """Return the scheduler's counts."""
        ...

    def loads(self) -> Mapping[ClassId, ClassLoad]:
        """Return how each class stood when its load was last looked at; empty where nobody looks."""
        ...

    def measures(self) -> Measured | None:
        """Return what was measured up to now, None where nothing is."""
        ...


def splicer(network: Network) -> SpliceHandler:
    """Return the handler that carries out a splice in `network`."""

    def splice(order: Splice) -> dict[int, int]:
        if order.added is not None:
            return dict(network.attach(order.query))
        network.remove_query(order.query)
        return {}

    return splice  # type: ignore[return-value]


def arrivals(ingested: Ingested) -> list[Event]:
    """Return what the scheduler is to be told of rows or control items that were let in."""
    if len(ingested.arrivals) == 1:
        a = ingested.arrivals[0]
        return [Arrived(a.log, a.rows, a.bytes, a.arrival_ns, a.controls, a.total, a.shed)] if a.rows or a.controls or a.shed else []
    return [
        Arrived(a.log, a.rows, a.bytes, a.arrival_ns, a.controls, a.total, a.shed)
        for a in ingested.arrivals
        if a.rows or a.controls or a.shed
    ]


RuntimeFactory = Callable[[OrderExecutor, Network, InstructionHandler], Runtime]
