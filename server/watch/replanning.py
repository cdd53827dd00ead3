"""Another plan for a running query, spliced in while it runs: see `engine/runtime/handover.py` for what changes hands and when."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.engine.data.errors import Unsupported
from millstream.engine.data.graph import OperatorId, QueryId
from millstream.engine.plan.alternatives import physical_of
from millstream.engine.plan.logical import Node
from millstream.engine.plan.physical import PhysicalQuery
from millstream.engine.runtime.handover import Handover
from millstream.scheduler.events import TimerDue
from millstream.server.host import running
from millstream.server.host.lifecycle import QueryState
from millstream.server.host.queries import Query, QueryKind

if TYPE_CHECKING:
    from millstream.scheduler.drivers.live import LiveScheduler
    from millstream.server.host.engine_host import EngineHost

DRAIN_S = 5.0  # how long the old plan may take for what waits before it
STEP_S = 0.001


def change_plan(host: EngineHost, query: Query, root: Node) -> None:
    """Answer a query by the plan with this root; returns once it is in force. Raises Unsupported, and nothing has changed then."""
    runtime, scheduler = host.runtime, host.runtime.scheduler
    if scheduler is None:
        raise Unsupported("plans change while time passes, and here none does")
    before = _may_change(host, query)
    physical = physical_of(query.planned.logical, root)
    _must_fit(query, physical)
    planned = replace(
        query.planned,
        logical=replace(query.planned.logical, root=root),
        physical=replace(physical, notes=query.planned.physical.notes),
    )
    delta = host.network.add_query(
        query.name,
        physical,
        running.deliverer(host, query),
        class_node=host.class_node(physical.options),
        share=not query.identity,
        replaces=before,
    )
    after = delta.query.id
    try:
        if query.identity:
            _must_be_rebuilt(host, before, after)
        runtime.add(delta)
    except BaseException:
        host.network.remove_query(after)
        raise
    handover = host.network.handover(after)
    if not _drained(query, handover):
        _wake(scheduler, handover.give_up())
        runtime.remove(after, running.operators_alone(host, after))
        raise Unsupported(f"what waited before the old plan was not done within {DRAIN_S:g} s")
    with runtime.still():
        handover.carry()
        query.id = query.last_id = after
        query.planned = planned
    # Before the new plan gives its first result, so that all results are measured together.
    scheduler.ask(lambda core: None if core.measures is None else core.measures.take_over(before, after))
    _wake(scheduler, handover.open())
    runtime.remove(before, running.operators_alone(host, before))


def _may_change(host: EngineHost, query: Query) -> QueryId:
    if query.state is not QueryState.RUNNING or query.id is None or query.failure is not None:
        raise Unsupported(f"query {query.name} is {query.state.value}")
    if query.kind is QueryKind.DERIVED:
        raise Unsupported(f"others may read {query.name}")
    names = [name for name in host.base_streams(query.reads) if host.network.sources[name].open_reservations]
    if names:
        raise Unsupported(f"rows of {', '.join(names)} wait for the disk")
    return query.id


def _must_fit(query: Query, physical: PhysicalQuery) -> None:
    if physical.schema != query.planned.physical.schema or physical.change_kind != query.planned.physical.change_kind:
        raise Unsupported("the plans give other columns")


def _must_be_rebuilt(host: EngineHost, before: QueryId, after: QueryId) -> None:
    """What a restart rebuilds has its state kept in the order of the operators of the first plan."""
    shapes = [[o.logic.state_fields for o in host.network.queries[one].blueprint.operators] for one in (before, after)]
    if shapes[0] != shapes[1]:
        raise Unsupported("a restart could not rebuild the query from the state that is kept")


def _drained(query: Query, handover: Handover) -> bool:
    deadline = time.monotonic() + DRAIN_S
    while not handover.is_drained():
        if time.monotonic() > deadline or query.failure is not None:
            return False
        time.sleep(STEP_S)
    return True


def _wake(scheduler: LiveScheduler, operators: tuple[OperatorId, ...]) -> None:
    for operator in operators:
        scheduler.post(TimerDue(operator))
