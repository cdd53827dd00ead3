"""One run of a workload under a policy: the shipped core in virtual time, over the express lane where the network allows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from millstream.engine.data.graph import GraphDelta, LogId, OperatorId
from millstream.engine.data.work import Emission, WorkReceipt
from millstream.scheduler.contracts import Selector
from millstream.scheduler.core import CoreSettings
from millstream.scheduler.drivers.virtual import DecisionCost, VirtualDriver
from millstream.scheduler.errors import SchedulerError, SimulationError
from millstream.scheduler.events import Arrived, Placed, QueryAdded
from millstream.scheduler.instructions import ROUND_ROBIN_GOES_ON, Instruction, Report
from millstream.scheduler.ledger import validate
from millstream.scheduler.limits import AGING, WINDOW_TUPLES
from millstream.scheduler.placement import WorkerLoad, choose
from millstream.scheduler.simulation.executor import BoxExecutor
from millstream.scheduler.simulation.express import ExpressCore, ExpressLane
from millstream.scheduler.simulation.outcome import RunOutcome, SimulatedQuery
from millstream.scheduler.simulation.path_outcomes import PathOutcomes
from millstream.scheduler.simulation.workloads import Workload
from millstream.scheduler.spec import PolicySpec
from millstream.scheduler.trains import TrainShape

_FOREVER_NS = 1 << 62


@dataclass(frozen=True)
class RunSettings:
    """How a workload is run.

    `train` and `schedule` for policies that name none; `workers` that work at a time, each on operators of its own, as a server's do
    (placement.py); `budget_ns` after which an order gives its worker back; `load` the load manager in place of the workload's; `charge`
    what deciding costs; `adapt` whether measurements replace what is declared; `lane` False keeps to one order at a time; `sample_ns` how
    often memory is looked at beside at arrivals; `until_ns` stops there, else the run ends when nothing waits.
    """

    train: TrainShape = field(default_factory=lambda: TrainShape(count=1))
    schedule: int = 1
    workers: int = 1
    budget_ns: int | None = None
    charge: DecisionCost = field(default_factory=DecisionCost)
    adapt: bool = False
    lane: bool = True
    sample_ns: int | None = None
    until_ns: int | None = None
    keep_dropped: bool = False
    window: int = WINDOW_TUPLES
    aging: float = AGING
    selector: Callable[[ExpressLane], Selector] | None = None
    load: str | None = None


def simulate(work: Workload, policy: str | PolicySpec, *, seed: int = 1, settings: RunSettings | None = None) -> RunOutcome:
    """Run a workload under a policy; returns the outcome, which the same arguments give again."""
    return _Run(work, PolicySpec.parse(policy) if isinstance(policy, str) else policy, seed, settings or RunSettings()).run()


def placed(deltas: Sequence[GraphDelta], workers: int) -> dict[OperatorId, int]:
    """Return the worker of each operator, for queries that come in this order to a server that is idle."""
    worker_of: dict[OperatorId, int] = {}
    pinned = {node.id: node.workers for delta in deltas for node in delta.classes}
    for delta in deltas:
        new = [node.id for node in delta.operators if node.inputs]
        beside = {worker_of[operator] for operator in delta.query.operators if operator in worker_of}
        counts = Counter(worker_of.values())
        loads = [WorkerLoad(number, 0.0, counts[number]) for number in range(1, workers + 1)]
        worker = choose(loads, sorted(beside), pinned.get(delta.query.class_id, ())).worker
        worker_of.update(dict.fromkeys(new, worker))
    return worker_of


class _Run:
    def __init__(self, work: Workload, policy: PolicySpec, seed: int, settings: RunSettings) -> None:
        self.work, self.policy, self.seed, self.settings = work, policy, seed, settings
        conditions = CoreSettings(
            orders_max=settings.workers,
            workers=settings.workers if settings.workers > 1 else 0,
            train=settings.train,
            schedule=settings.schedule,
            budget_ns=settings.budget_ns,
            adapt=settings.adapt,
            window=settings.window,
            aging=settings.aging,
            load=settings.load or work.load,
        )
        self.core = ExpressCore(policy, conditions)
        self.executor = BoxExecutor(seed)
        self.emissions: list[Emission] = []
        self.problems: list[str] = []
        self.busy_ns = 0
        self.samples: tuple[list[int], list[int]] = ([], [])
        self.driver = VirtualDriver(
            self.core,
            self.executor,
            on_splice=self.executor.splice,
            on_receipt=self._receipt,
            on_instruction=self._instruction,
            charge=settings.charge,
        )
        self._add(work)
        self.facts = self._facts()

    def _add(self, work: Workload) -> None:
        # All queries at once: the network is cut once, not once a query.
        for delta in work.deltas:
            self.driver.post(QueryAdded(delta))
        self.driver.run_until(0)
        if self.problems:
            raise SimulationError(self.problems[0])
        if self.settings.workers > 1:
            self.driver.post(Placed(tuple(placed(work.deltas, self.settings.workers).items())))
            self.driver.run_until(0)
        # What it took to take the queries in is not the policy's doing.
        self.driver.now_ns = 0
        self.driver.begin_charging()

    def _receipt(self, receipt: WorkReceipt) -> None:
        self.emissions.extend(receipt.emissions)
        self.busy_ns += receipt.finished_ns - receipt.started_ns

    def _instruction(self, instruction: Instruction) -> None:
        if isinstance(instruction, Report) and instruction.kind in ("refused", "policy_failed", "query_failed"):
            self.problems.append(instruction.message.removesuffix(ROUND_ROBIN_GOES_ON))  # a simulation does not go on

    def _facts(self) -> tuple[SimulatedQuery, ...]:
        estimates = self.core.estimates
        estimates.refresh(force=True)
        return tuple(
            SimulatedQuery(query.name, estimates.ideal_of_query[query.id], query.qos, query.weight, int(query.class_id), query.deadline_ns)
            for query in (delta.query for delta in self.work.deltas)
        )

    # ---- running

    def run(self) -> RunOutcome:
        lane = self._lane()
        if lane is None:
            self._run_orders()
            return self._outcome_of_orders()
        end_ns = self._run_lane(lane)
        return self._outcome_of_lane(lane, end_ns)

    def _lane(self) -> ExpressLane | None:
        if not self.settings.lane or self.settings.until_ns is not None:
            return None
        try:
            lane = self.core.express_lane(PathOutcomes(self.work.draws_for(self.seed)), self.settings.charge)
        except SimulationError:
            if self.settings.keep_dropped or self.settings.selector is not None:
                raise
            self._prescribe()
            return None
        lane.keep_dropped = self.settings.keep_dropped
        if self.settings.selector is not None:
            self.core.use_selector(self.settings.selector(lane))
        return lane

    def _prescribe(self) -> None:
        """Where orders run one at a time, tell the executor the fates that the workload's own draws decide."""
        if self.work.draws is None:
            return
        if len(self.work.arrivals) != 1:
            raise SimulationError("a workload with draws of its own has one stream where orders run one at a time")
        ((log, times),) = self.work.arrivals.items()
        operators = [node.id for node in self.work.nodes if node.inputs]
        passes = self.work.draws_for(self.seed).passes(operators, log, 0, len(times)).astype(np.uint8)
        self.executor.outcomes = {operator: row.tobytes() for operator, row in zip(operators, passes, strict=True)}

    def _size(self, log: LogId) -> int:
        return self.work.row_bytes.get(log, 1)

    def _run_lane(self, lane: ExpressLane) -> int:
        core, ledger = self.core, self.core.ledger
        columns = self.work.in_order()
        times, logs = columns[0].tolist(), [LogId(log) for log in columns[1].tolist()]
        count, place, now_ns = len(times), 0, 0
        sample_at, sample_size = self.samples[0].append, self.samples[1].append
        readers = {log: len(core.network.log_readers[core.network.logs.slot_of[log]].edges) for log in self.work.arrivals}
        while place < count:
            now_ns = max(now_ns, times[place])
            waiting = ledger.bytes_waiting
            sample_at(now_ns)
            sample_size(waiting)
            events = []
            while place < count and times[place] <= now_ns:
                log = logs[place]
                lane.arrive(log, (times[place],))
                events.append(Arrived(log, 1, self._size(log), times[place]))
                waiting += readers[log] * self._size(log)
                place += 1
            sample_at(now_ns)
            sample_size(waiting)
            now_ns = core.express(lane, events, now_ns, times[place] if place < count else _FOREVER_NS)
        lane.settle()
        validate(ledger)
        return now_ns

    def _run_orders(self) -> None:
        times, logs = self.work.in_order()
        begins = np.flatnonzero(np.concatenate(([True], (times[1:] != times[:-1]) | (logs[1:] != logs[:-1])))) if len(times) else times
        rows = np.diff(np.concatenate((begins, [len(times)])))
        for at_ns, log, count in zip(times[begins].tolist(), logs[begins].tolist(), rows.tolist(), strict=True):
            self.driver.post(Arrived(LogId(log), count, count * self._size(LogId(log)), at_ns), at_ns)
        span, until_ns = self.work.span_ns, self.settings.until_ns
        step = self.settings.sample_ns or max(1, span // 2_000)
        for at_ns in range(step, span + step, step):
            if until_ns is not None and at_ns > until_ns:
                break
            self.driver.run_until(at_ns)
            self.samples[0].append(at_ns)
            self.samples[1].append(self.core.ledger.bytes_waiting)
        if until_ns is None:
            self._drain(span + step, step)
        if self.problems:
            raise SchedulerError(self.problems[0])

    def _drain(self, at_ns: int, step: int) -> None:
        """Go on until nothing waits, looking at memory as often as before."""
        while not self.core.idle:
            at_ns = max(at_ns, self.driver.now_ns)
            self.driver.run_until(at_ns)
            self.samples[0].append(at_ns)
            self.samples[1].append(self.core.ledger.bytes_waiting)
            at_ns += step
            if self.core.next_wake_ns() is None and not self.core.ledger.rows_waiting:
                break
        self.driver.run_until_idle()

    # ---- what came of it

    def _losses(self) -> dict[str, float]:
        """Return the share of its tuples that each class lost, where load is managed."""
        load = self.core.load
        if load is None:
            return {}
        names = {one: node.name for one, node in load.monitors.shape.classes.items()}
        return {f"loss_share_{names[one]}": came.shed / max(1, came.rows) for one, came in load.totals.items() if one in names}

    def _queries_of_root(self) -> dict[OperatorId, list[int]]:
        found: dict[OperatorId, list[int]] = {}
        for index, delta in enumerate(self.work.deltas):
            found.setdefault(delta.query.root, []).append(index)
        return found

    def _outcome_of_lane(self, lane: ExpressLane, end_ns: int) -> RunOutcome:
        passed = lane.passed()
        slot_of = self.core.network.operators.slot_of
        query_of = np.full(len(self.core.network.nodes), -1, dtype=np.int64)
        for operator, queries in self._queries_of_root().items():
            query_of[slot_of[operator]] = queries[0]
        return self._outcome(
            query_of[passed.operator],
            passed.arrival_ns,
            passed.finished_ns,
            end_ns,
            lane.decisions,
            lane.runs,
            lane.busy_ns,
            lane.scheduling_ns,
        )

    def _outcome_of_orders(self) -> RunOutcome:
        queries_of = self._queries_of_root()
        query: list[int] = []
        columns: list[tuple[int, int, int]] = []
        for one in self.emissions:
            for index in queries_of[one.operator]:
                for arrival_ns, count in zip(one.arrivals_ns, one.counts, strict=True):
                    query.append(index)
                    columns.append((arrival_ns, one.finished_ns, count))
        table = np.array(columns, dtype=np.int64).reshape(-1, 3)
        repeats = table[:, 2]
        statistics = self.core.statistics()
        return self._outcome(
            np.repeat(np.array(query, dtype=np.int64), repeats),
            np.repeat(table[:, 0], repeats),
            np.repeat(table[:, 1], repeats),
            self.driver.now_ns,
            statistics.decisions,
            statistics.orders,
            self.busy_ns,
            self.driver.scheduling_ns,
        )

    def _outcome(
        self,
        query: np.ndarray,
        arrival_ns: np.ndarray,
        finished_ns: np.ndarray,
        end_ns: int,
        decisions: int,
        orders: int,
        busy_ns: int,
        scheduling_ns: int,
    ) -> RunOutcome:
        return RunOutcome(
            str(self.policy),
            self.facts,
            query,
            arrival_ns,
            finished_ns,
            np.array(self.samples[0], dtype=np.int64),
            np.array(self.samples[1], dtype=np.int64),
            self.work.span_ns,
            end_ns,
            self.work.tuples,
            decisions,
            orders,
            busy_ns,
            scheduling_ns,
            self.core.ledger.rows_waiting,
            {**dict(zip(("evaluations", "moves"), map(float, self.core.counters()[1:3]), strict=True)), **self._losses()},
        )
