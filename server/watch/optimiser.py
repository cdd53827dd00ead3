"""The run-time optimiser at work: gathers the facts, lets `scheduler/optimiser` decide, carries that out, logs it.

Steps are made on the thread that executes statements, so that nobody else changes queries, plans or the policy meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from millstream.engine.data.errors import EngineError, Unsupported
from millstream.engine.data.graph import ClassId, OperatorId
from millstream.engine.data.records import dataclass
from millstream.engine.language.recipes import Recipe, TableJoinRecipe
from millstream.engine.plan.alternatives import NOTHING, Measured, OperatorRecord, alternatives
from millstream.engine.plan.logical import Node
from millstream.scheduler.errors import SchedulerError
from millstream.scheduler.events import QueryReweighed
from millstream.scheduler.optimiser.contract import (
    Decision,
    Facts,
    PlanChoice,
    PolicyChange,
    SetWeight,
    Shed,
    Subject,
    TargetState,
    TargetVerdict,
    UsePlan,
)
from millstream.scheduler.optimiser.optimiser import Optimiser, OptimiserSettings, ToDo
from millstream.scheduler.spec import PolicySpec
from millstream.server.host.queries import Query
from millstream.server.logs import logger
from millstream.server.watch.replanning import change_plan

if TYPE_CHECKING:
    from millstream.scheduler.drivers.live import LiveScheduler
    from millstream.server.host.engine_host import EngineHost
    from millstream.server.watch.watch import QosWatch

LOOKS_REMEMBERED = 10
"""Looks back over which operators are measured: what they did long ago says little of now."""


@dataclass(slots=True)
class _Plans:
    """The plans of a query's run by their keys, which is in force, and what its operators had done at the last looks."""

    run: int
    in_force: str = ""
    roots: dict[str, Node] = field(default_factory=dict)
    did: deque[dict[OperatorId, OperatorRecord]] = field(default_factory=lambda: deque(maxlen=LOOKS_REMEMBERED))


class RuntimeOptimiser:
    """The run-time optimiser. `settle_s` is the settling time; all other times follow from it."""

    def __init__(self, host: EngineHost, watch: QosWatch, settle_s: float) -> None:
        self.host = host
        self.watch = watch
        self._optimiser = Optimiser(OptimiserSettings.of_settling(settle_s))
        self._plans: dict[str, _Plans] = {}
        self._before: tuple[int, int] | None = None
        self._log = logger()

    @property
    def decisions(self) -> Sequence[Decision]:
        """The last decisions, the oldest first."""
        return tuple(self._optimiser.decisions)

    def step(self) -> None:
        """Look, judge, and do what is to be done."""
        scheduler = self.host.runtime.scheduler
        if scheduler is None:
            return
        self.watch.look()
        now_ns = self.host.runtime.arrival_ns()
        todo = self._optimiser.step(self._facts(scheduler), now_ns)
        if todo is None:
            return
        try:
            self._do(scheduler, todo)
        except (EngineError, SchedulerError) as problem:
            self._optimiser.failed(todo, problem.message, now_ns)
            self._log.info("optimiser_failed", query=todo.decision.query, action=str(todo.action), reason=problem.message)
            return
        word = "optimiser_undid" if todo.undoes else "optimiser_decided"
        self._log.info(word, query=todo.decision.query, action=str(todo.action), reason=todo.decision.reason)

    # ---- facts

    def _facts(self, scheduler: LiveScheduler) -> Facts:
        policy = PolicySpec.parse(scheduler.statistics().policy)
        queries = [q for q in self.host.queries if q.id is not None]
        self._plans = {q.name: self._plans_of(q) for q in queries}
        return Facts(policy, self._busy(scheduler), tuple(self._subject(q) for q in queries))

    def _busy(self, scheduler: LiveScheduler) -> float:
        """Return the share of the time since the last look in which something was done.

        One worker runs on the scheduler's thread, which then decides, runs or waits. With several it is the time in operators by theirs.
        """
        now = scheduler.spent()
        waited_ns = now.waiting_ns if scheduler.workers == 1 else -scheduler.statistics().busy_ns
        before, self._before = self._before, (now.at_ns, waited_ns)
        if before is None or now.at_ns <= before[0]:
            return 0.0
        part = (waited_ns - before[1]) / (now.at_ns - before[0])
        return max(0.0, min(1.0, 1.0 - part if scheduler.workers == 1 else -part / scheduler.workers))

    def _plans_of(self, query: Query) -> _Plans:
        plans = self._plans.get(query.name)
        if plans is None or plans.run != query.run:
            plans = _Plans(query.run, roots={"": query.planned.logical.root})
        if query.name in self.watch.verdicts and query.id is not None:
            done = [(o.id, o.statistics) for o in self.host.network.queries[query.id].blueprint.operators]
            plans.did.append({one: OperatorRecord(did.rows_in, did.rows_out, did.cost_ns) for one, did in done})
        return plans

    def _subject(self, query: Query) -> Subject:
        host, plans = self.host, self._plans[query.name]
        assert query.id is not None
        options = query.planned.physical.options
        node = host.class_node(options)
        target = self.watch.target(query)
        verdict = self.watch.verdicts.get(query.name) or TargetVerdict(TargetState.NONE, 0)
        choices = self._choices(query, plans) if verdict.state is TargetState.MISSED else ()
        weight = self._weight(query)
        drop = self._drop_ratio(query, node.id)
        may_shed = node.may_shed and self._sheds_alone
        return Subject(query.id, query.name, node.id, target, verdict, weight, may_shed, drop, plans.in_force, choices)

    @property
    def _sheds_alone(self) -> bool:
        """Whether no load manager sheds, so that the optimiser may."""
        scheduler = self.host.runtime.scheduler
        return scheduler is not None and scheduler.settings.load in (None, "none")

    def _weight(self, query: Query) -> float:
        assert query.id is not None
        return self.host.network.queries[query.id].node.weight

    def _drop_ratio(self, query: Query, class_id: ClassId) -> float:
        sources = [self.host.network.sources[name] for name in self.host.base_streams(query.reads)]
        return max((log.ratio for source in sources for log in source.shed_logs_of(class_id)), default=0.0)

    def _choices(self, query: Query, plans: _Plans) -> tuple[PlanChoice, ...]:
        found = alternatives(query.planned.logical.root, self._measured(query, plans), rewritten=not self.host.rules_off)
        for one in found:
            plans.roots.setdefault(one.key, one.root)
        return tuple(PlanChoice(one.key, one.kind, one.saving, one.why) for one in found)

    def _measured(self, query: Query, plans: _Plans) -> Measured:
        """Return what the operators did since the oldest look that is remembered; of a table that is joined twice nothing is known."""
        operators: dict[Recipe, OperatorRecord] = {}
        lookups: dict[str, list[OperatorRecord]] = {}
        assert query.id is not None
        for operator in self.host.network.queries[query.id].blueprint.operators:
            now, then = plans.did[-1][operator.id], plans.did[0].get(operator.id, NOTHING)
            did = OperatorRecord(now.rows_in - then.rows_in, now.rows_out - then.rows_out, now.cost_ns - then.cost_ns)
            operators[operator.recipe] = operators.get(operator.recipe, NOTHING) + did
            if isinstance(operator.recipe, TableJoinRecipe):
                for table in operator.port_streams[1]:
                    lookups.setdefault(table, []).append(did)
        return Measured(operators, {table: found[0] for table, found in lookups.items() if len(found) == 1})

    # ---- deeds

    def _do(self, scheduler: LiveScheduler, todo: ToDo) -> None:
        action = todo.action
        if isinstance(action, PolicyChange):
            self.host.runtime.set_policy(action.after)
            self.host.policy = action.after
        elif isinstance(action, SetWeight):
            weight, query = action.after, action.query
            scheduler.post(QueryReweighed(query, weight))
            running = self.host.network.queries[query]
            running.node = replace(running.node, weight=weight)
        elif isinstance(action, Shed):
            self._shed(action)
        else:
            self._use_plan(action)

    def _use_plan(self, action: UsePlan) -> None:
        query = self.host.queries.of_id(action.query)
        if query is None:
            raise Unsupported("the query has left")
        plans = self._plans[query.name]
        change_plan(self.host, query, plans.roots[action.after])
        assert query.id is not None
        plans.in_force = action.after
        plans.did.clear()
        self.watch.moved(action.query, query.id)
        self._optimiser.moved(action.query, query.id)

    def _shed(self, action: Shed) -> None:
        """Set the share at every stream that queries of the class read."""
        network = self.host.network
        for name, source in list(network.sources.items()):
            if source.shed_logs_of(action.class_id):
                network.set_drop_ratio(name, action.class_id, action.after)
