"""The virtual runtime: the same core in this thread, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from millstream.engine.data.event_time import NS_PER_US
from millstream.engine.data.graph import ClassId, GraphDelta, OperatorId, QueryId
from millstream.engine.flow.sources import Ingested
from millstream.engine.runtime.network import Network
from millstream.scheduler import catalog
from millstream.scheduler.core import CoreSettings, SchedulerCore, SchedulerStatistics
from millstream.scheduler.drivers.virtual import VirtualDriver
from millstream.scheduler.events import PolicyChanged, QueryAdded, QueryPaused, QueryRemoved, QueryResumed
from millstream.scheduler.instructions import InstructionHandler, OrderExecutor, splicer
from millstream.scheduler.load.contract import ClassLoad
from millstream.scheduler.spec import PolicySpec
from millstream.scheduler.trains import TrainShape


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

    @property
    def scheduler(self) -> None:
        """None: no time passes."""

    def record(self, recording: object) -> None:
        """Nothing is recorded in virtual time."""

    @property
    def ring(self) -> None:
        """None: no counts are kept."""

    @property
    def ring_bounds(self) -> None:
        """None: no counts are kept."""

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
        for event in ingested.told():
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

    def still(self) -> AbstractContextManager[None]:
        """Nothing runs between two calls of `run`."""
        return nullcontext()

    def set_policy(self, spec: PolicySpec) -> None:
        """Change it with the next `run`; PolicyError when there is none such."""
        catalog.build(spec, default_train=self.core.settings.train)
        self.driver.post(PolicyChanged(spec))

    def statistics(self) -> SchedulerStatistics:
        """Return the core's counts."""
        return self.core.statistics()

    def loads(self) -> Mapping[ClassId, ClassLoad]:
        """Return nothing: no load is managed where time stands still."""
        return {}

    def measures(self) -> None:
        """Nothing is: no time passes but what a timeline says."""
