"""A core, a cost model and a driver put together: what the simulate command, the experiments and the tests run."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.engine.data.graph import GraphDelta, OperatorId
from millstream.engine.data.work import Emission, WorkReceipt
from millstream.scheduler.core import CoreSettings, SchedulerCore
from millstream.scheduler.drivers.virtual import DecisionCost, VirtualDriver
from millstream.scheduler.events import Arrived, PolicyChanged, QueryAdded
from millstream.scheduler.instructions import Instruction, Report
from millstream.scheduler.simulation.executor import BoxExecutor
from millstream.scheduler.simulation.networks import Box, NetworkBuilder, SimulatedSource
from millstream.scheduler.spec import PolicySpec


class World:
    """A simulated system. `emissions` holds every result, `order` the operators in the order they ran with the tuples each took.

    Costs and selectivities are the declared ones unless `settings` says that they are measured.
    """

    def __init__(
        self,
        policy: str | PolicySpec,
        deltas: Iterable[GraphDelta],
        *,
        settings: CoreSettings | None = None,
        charge: DecisionCost | None = None,
        seed: int = 1,
        builder: NetworkBuilder | None = None,
    ) -> None:
        spec = PolicySpec.parse(policy) if isinstance(policy, str) else policy
        self.builder = builder
        self.core = SchedulerCore(spec, settings or CoreSettings(adapt=False))
        self.executor = BoxExecutor(seed)
        self.emissions: list[Emission] = []
        self.order: list[tuple[OperatorId, int]] = []
        self.reports: list[Report] = []
        self.driver = VirtualDriver(
            self.core,
            self.executor,
            on_splice=self.executor.splice,
            on_receipt=self._receipt,
            on_instruction=self._instruction,
            charge=charge,
        )
        for delta in deltas:
            self.driver.add_query(QueryAdded(delta))

    def _receipt(self, receipt: WorkReceipt) -> None:
        self.emissions.extend(receipt.emissions)
        self.order.extend((step.operator, sum(count.rows for count in step.consumed)) for step in receipt.each_step())

    def _instruction(self, instruction: Instruction) -> None:
        if isinstance(instruction, Report):
            self.reports.append(instruction)

    def arrive(self, source: SimulatedSource | Box, *at_ns: int, rows: int = 1) -> None:
        """Post arrivals of `rows` tuples each."""
        assert self.builder is not None
        log = self.builder.log(source)
        for at in at_ns:
            self.driver.post(Arrived(log, rows, rows, at), at)

    def set_policy(self, policy: str, at_ns: int) -> None:
        """Post a change of policy."""
        self.driver.post(PolicyChanged(PolicySpec.parse(policy)), at_ns)

    def run(self, until_ns: int | None = None) -> int:
        """Run until idle, or until a time; return the time then."""
        return self.driver.run_until_idle() if until_ns is None else self.driver.run_until(until_ns)

    def steps(self) -> list[str]:
        """Return the labels of the operators in the order they ran, those only that took something."""
        network = self.core.network
        return [network.node(network.operators.slot_of[operator]).label for operator, rows in self.order if rows]

    def responses_ns(self) -> list[tuple[OperatorId, int]]:
        """Return operator and response time of every result, in the order they left."""
        return [
            (one.operator, one.finished_ns - arrival_ns)
            for one in self.emissions
            for arrival_ns, count in zip(one.arrivals_ns, one.counts, strict=True)
            for _ in range(count)
        ]
