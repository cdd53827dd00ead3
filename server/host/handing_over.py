"""From one plan of a running query to another while it runs: see `engine/runtime/handover.py` for what changes hands and when."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.engine.data.errors import Unsupported
from millstream.engine.data.graph import OperatorId, QueryId
from millstream.engine.runtime.handover import Handover
from millstream.scheduler.events import TimerDue
from millstream.server.host import running
from millstream.server.host.queries import Query

if TYPE_CHECKING:
    from millstream.engine.plan.plan import PlannedQuery
    from millstream.scheduler.drivers.live import LiveScheduler
    from millstream.server.host.engine_host import EngineHost

DRAIN_S = 5.0  # how long the old plan may take for what waits before it
STEP_S = 0.001


class NotYet(Unsupported):
    """The plan cannot change now, and can perhaps later."""


def hand_over(
    host: EngineHost,
    query: Query,
    planned: PlannedQuery,
    before: QueryId,
    *,
    check: Callable[[EngineHost, QueryId, QueryId], object] | None = None,
    meanwhile: Callable[[int], object] = lambda at: None,
) -> None:
    """Answer a query by another plan than that of the run `before`; returns once it is in force.

    `check` may refuse the new run; `meanwhile` is called with the arrival number at which the new plan begins, before the old one is to
    have answered all rows below it. Raises Unsupported, NotYet where it is worth another try, and nothing has changed then.
    """
    runtime, scheduler, physical = host.runtime, host.runtime.scheduler, planned.physical
    if scheduler is None:
        raise Unsupported("plans change while time passes, and here none does")
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
        if check is not None:
            check(host, before, after)
        runtime.add(delta)
    except BaseException:
        host.network.remove_query(after)
        raise
    handover = host.network.handover(after)
    try:
        meanwhile(handover.at)
        _drain(query, handover)
    except BaseException:
        _wake(scheduler, handover.give_up())
        runtime.remove(after, running.operators_alone(host, after))
        raise
    with runtime.still():
        handover.carry()
        query.id = query.last_id = after
        query.planned = planned
    # Before the new plan gives its first result, so that all results are measured together.
    scheduler.ask(lambda core: None if core.measures is None else core.measures.take_over(before, after))
    _wake(scheduler, handover.open())
    runtime.remove(before, running.operators_alone(host, before))


def _drain(query: Query, handover: Handover) -> None:
    deadline = time.monotonic() + DRAIN_S
    while not handover.is_drained():
        if time.monotonic() > deadline or query.failure is not None:
            raise NotYet(f"what waited before the old plan was not done within {DRAIN_S:g} s")
        time.sleep(STEP_S)


def _wake(scheduler: LiveScheduler, operators: tuple[OperatorId, ...]) -> None:
    for operator in operators:
        scheduler.post(TimerDue(operator))
