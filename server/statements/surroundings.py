"""What EXPLAIN says beyond the plan: how the time of each source comes about (also when nothing comes), and what runs for others too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from millstream.engine.data.durations import duration_text
from millstream.engine.data.schema import StreamDefinition
from millstream.engine.expressions.values import format_timestamp
from millstream.engine.plan.physical import PhysicalNode, SourceNode
from millstream.engine.plan.plan import PlannedQuery
from millstream.engine.plan.state import operator_name, state_bound
from millstream.engine.runtime.bill import memberships
from millstream.server.host.queries import Query
from millstream.server.statements.describe import time_rule

if TYPE_CHECKING:
    from millstream.server.host.engine_host import EngineHost

NAMES_SHOWN_MAX = 8
ARRIVAL_TIME = (
    "arrival time never runs back; it follows the system's clock at most 10% faster or slower, and a jump of more than a second after 10 s"
)


def source_lines(host: EngineHost, planned: PlannedQuery) -> list[str]:
    """Return the lines of the section Sources."""
    lines = ["Sources"]
    for name in host.base_streams(planned.streams):
        definition = host.catalog.find(name)
        if isinstance(definition, StreamDefinition):
            lines.append(f"  {name}: {time_rule(definition)}; {_silence(definition)}")
            if definition.time.column is None:
                lines.append(f"  {name}: {ARRIVAL_TIME}")
    return lines


def sharing_lines(host: EngineHost, planned: PlannedQuery, query: Query | None) -> list[str]:
    """Return the lines of the section Sharing."""
    runs = query is not None and query.id is not None and query.id in host.network.queries
    shared = _running(host, query) if query is not None and runs else _equal(host, planned, query)
    return ["Sharing", *(shared or ["  nothing"])]


def _silence(stream: StreamDefinition) -> str:
    """What ends a window when no row comes (K14)."""
    if stream.time.column is None:
        return "in silence windows close by the clock"
    if stream.time.idle_us and stream.time.idle_flush:
        return "in silence windows close when the stream is idle"
    return "in silence windows stay open until the stream ends" + (", idle it holds no other input back" if stream.time.idle_us else "")


def _running(host: EngineHost, query: Query) -> list[str]:
    """The operators of a running query that serve others too, then its part in a synopsis: the period in force, and why."""
    assert query.id is not None
    lines = []
    for operator in host.network.queries[query.id].blueprint.operators:
        names = sorted({served.node.name for served in host.network.queries_served(operator.id)} - {query.name})
        if names:
            lines.append(f"  {operator_name(operator.recipe)}: with {_listed(names)}")
    for part in memberships(host.network.queries[query.id]):
        lines.append(f"  synopsis {part.operator}: {part.members} queries, panes of {duration_text(part.step_us)}")
        lines.append(f"  answered every {duration_text(part.period_us)}: {part.why}")
    if query.complete_from_us is not None:
        answered = "are not answered" if query.planned.physical.options.history else "lack the rows from before the query"
        lines.append(f"  windows that begin before {format_timestamp(query.complete_from_us)} {answered}")
    return lines


def _equal(host: EngineHost, planned: PlannedQuery, query: Query | None) -> list[str]:
    """The operators with state that some running query has alike."""
    if not host.network.sharing:
        return []
    alike: dict[PhysicalNode, list[str]] = {n: [] for n in _nodes(planned.physical.root) if state_bound(n.recipe) is not None}
    for other in (*host.queries, *host.derived.values()):
        if other is not query and other.id is not None:
            for node in dict.fromkeys(_nodes(other.planned.physical.root)):
                if node in alike:
                    alike[node].append(other.name)
    return [f"  {operator_name(node.recipe)}: as in {_listed(names)}" for node, names in alike.items() if names]


def _nodes(node: PhysicalNode | SourceNode) -> Iterator[PhysicalNode]:
    if isinstance(node, PhysicalNode):
        for ref in node.inputs:
            yield from _nodes(ref.node)
        yield node


def _listed(names: list[str]) -> str:
    more = len(names) - NAMES_SHOWN_MAX
    return ", ".join(names[:NAMES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
