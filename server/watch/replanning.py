"""Another plan for a running query, spliced in while it runs: see `host/handing_over.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.engine.data.errors import Unsupported
from millstream.engine.data.graph import QueryId
from millstream.engine.plan.alternatives import physical_of
from millstream.engine.plan.logical import Node
from millstream.engine.plan.physical import PhysicalQuery
from millstream.server.host.handing_over import hand_over
from millstream.server.host.lifecycle import QueryState
from millstream.server.host.queries import Query, QueryKind

if TYPE_CHECKING:
    from millstream.server.host.engine_host import EngineHost


def change_plan(host: EngineHost, query: Query, root: Node) -> None:
    """Answer a query by the plan with this root; returns once it is in force. Raises Unsupported, and nothing has changed then."""
    before = _may_change(host, query)
    physical = physical_of(query.planned.logical, root)
    _must_fit(query, physical)
    planned = replace(
        query.planned,
        logical=replace(query.planned.logical, root=root),
        physical=replace(physical, notes=query.planned.physical.notes),
    )
    hand_over(host, query, planned, before, check=_must_be_rebuilt if query.identity else None)


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
