"""What the host needs of whoever runs orders: the live scheduler with its threads, or the virtual driver in this thread.

Both run the same core over the same engine; they differ in who waits for what, and in the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from millstream.engine.data.graph import ClassId, GraphDelta, OperatorId, QueryId
from millstream.engine.flow.sources import Ingested
from millstream.engine.runtime.network import Network
from millstream.scheduler.core import SchedulerStatistics
from millstream.scheduler.instructions import InstructionHandler, OrderExecutor
from millstream.scheduler.load.contract import ClassLoad
from millstream.scheduler.measures import Measures, MeasuresReport, OutputReport
from millstream.scheduler.spec import PolicySpec
from millstream.server.host.queries import Query

if TYPE_CHECKING:
    from millstream.scheduler.drivers.live import LiveScheduler
    from millstream.server.host.live_runtime import RingBounds
    from millstream.server.host.load_ring import LoadRing
    from millstream.server.host.recordings import ArrivalRecording


class Runtime(Protocol):
    """Runs the network. Times: `now_us` since 1970 for processing time, `arrival_ns` monotonic for response times."""

    @property
    def scheduler(self) -> LiveScheduler | None:
        """The scheduler with its threads, None where no time passes: then nothing is measured, foreseen or recorded."""
        ...

    def record(self, recording: ArrivalRecording | None) -> None:
        """Note in `recording` what arrives from now on, or with None note nothing any more."""
        ...

    @property
    def ring(self) -> LoadRing | None:
        """The counts of what came lately; None where none are kept, or nothing has come."""
        ...

    @property
    def ring_bounds(self) -> RingBounds | None:
        """How much of that is kept; None where nothing is."""
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

    def measures(self) -> MeasuresSnapshot | None:
        """Return what was measured up to now, None where nothing is."""
        ...


RuntimeFactory = Callable[[OrderExecutor, Network, InstructionHandler], Runtime]


class MeasuresSnapshot:
    """A copy of the scheduler's measures and the moment it was made; reports are made on the thread that asks."""

    def __init__(self, measures: Measures, now_ns: int) -> None:
        self._measures = measures
        self._now_ns = now_ns

    @cached_property
    def report(self) -> MeasuresReport:
        """Everything together."""
        return self._measures.report(self._now_ns)

    @cached_property
    def _queries(self) -> dict[Any, OutputReport]:
        return self._measures.of_queries(self._now_ns)

    @cached_property
    def _classes(self) -> dict[ClassId, OutputReport]:
        return self._measures.of_classes(self._now_ns)

    def of_query(self, query: Query) -> OutputReport | None:
        """Return the measures of a query's present or last run; None when it has none (any more)."""
        return self._queries.get(query.last_id)

    def of_class(self, class_id: ClassId) -> OutputReport | None:
        """Return the measures of a class, None when no query of it has run."""
        return self._classes.get(class_id)
