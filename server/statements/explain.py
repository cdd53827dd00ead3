"""EXPLAIN [SEMANTICS | ANALYZE | QOS]: how a query is planned, what its answers mean, what its operators cost, what it was promised.

Beyond the plan it says how the time of each source comes about (also when nothing comes), and what runs for others too. EXPLAIN QOS puts
beside each promise what was measured; of a query that does not run it says what it would do to the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from millstream.engine.data.durations import duration_text
from millstream.engine.data.errors import InvalidDefinition
from millstream.engine.data.schema import StreamDefinition
from millstream.engine.data.types import DECIMAL_NARROW_PRECISION_MAX
from millstream.engine.expressions.values import format_timestamp
from millstream.engine.language.statements import Explain, ExplainMode
from millstream.engine.operators.build import kind_of
from millstream.engine.plan.explain import explain as plan_text
from millstream.engine.plan.explain import explain_semantics
from millstream.engine.plan.physical import PhysicalNode, QueryOptions, SourceNode
from millstream.engine.plan.plan import PlannedQuery
from millstream.engine.plan.plan_writer import to_plan_object
from millstream.engine.plan.state import operator_name, state_bound
from millstream.engine.runtime.bill import memberships
from millstream.scheduler.measures import OutputReport
from millstream.scheduler.optimiser.contract import TOLERANCE_PERCENT, TargetState
from millstream.server.host import running
from millstream.server.host.queries import Query
from millstream.server.results.outcome import Outcome, table
from millstream.server.statements.operators import OPERATOR_COLUMNS, operator_row
from millstream.server.statements.show import time_rule
from millstream.server.watch import admission

if TYPE_CHECKING:
    from millstream.server.host.contract import Context
    from millstream.server.host.engine_host import EngineHost

_STANDS = {
    TargetState.NONE: "there is no target",
    TargetState.UNKNOWN: "no result has left yet",
    TargetState.IDLE: "nothing has come in for a while",
    TargetState.MET: "targets are met",
    TargetState.MISSED: "targets are missed",
}
NAMES_SHOWN_MAX = 8
ARRIVAL_TIME = (
    "arrival time never runs backwards; it follows the system clock at most 10% faster or slower, "
    "and a jump of more than a second after 10 s"
)


def explain(host: EngineHost, statement: Explain, context: Context) -> Outcome:
    """Explain a query by name, a derived stream, or a SELECT that is not started for it."""
    query = _named(host, statement.name.text) if statement.name is not None else None
    planned = query.planned if query is not None else running.plan(host, statement.query, {}, statement.text)
    if statement.mode is ExplainMode.ANALYZE:
        if query is None:
            raise InvalidDefinition(
                "EXPLAIN ANALYZE needs a running query, because it shows measured costs",
                hint="create a query from the SELECT, and give its name",
            )
        return _analyzed(host, query)
    if statement.mode is ExplainMode.QOS:
        return promises(host, planned, query)
    text = explain_semantics(planned) if statement.mode is ExplainMode.SEMANTICS else plan_text(planned)
    sharing = [] if statement.mode is ExplainMode.SEMANTICS else sharing_lines(host, planned, query)
    placed = [] if statement.mode is ExplainMode.SEMANTICS else [*worker_lines(host, query), *memory_lines(host, planned)]
    text = "\n".join([text, *source_lines(host, planned), *sharing, *placed])
    name = None if query is None else query.name
    info: dict[str, Any] = {} if statement.mode is ExplainMode.SEMANTICS else {"plan": to_plan_object(planned.bound, name)}
    return Outcome([["explanation", "TEXT", False]], [[line] for line in text.splitlines()], info=info)


def _named(host: EngineHost, name: str) -> Query:
    return host.derived[name] if name in host.derived and host.queries.find(name) is None else host.queries.get(name)


def _analyzed(host: EngineHost, query: Query) -> Outcome:
    """A row an operator, in the order in which rows pass them: what it did since it began."""
    if query.id is None:
        raise InvalidDefinition(
            f"query {query.name} is {query.state.value}, so it has no running operators", hint=f"START QUERY {query.name}"
        )
    return table(list(OPERATOR_COLUMNS), [operator_row(operator) for operator in host.network.queries[query.id].blueprint.operators])


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


def memory_lines(host: EngineHost, planned: PlannedQuery) -> list[str]:
    """Return the lines of the section Memory: what can leave it when it gets short, and which operators hold state in it."""
    lines = ["Memory"]
    for name in host.base_streams(planned.streams):
        definition = host.catalog.find(name)
        if not isinstance(definition, StreamDefinition):
            continue
        sheds = host.class_node(planned.physical.options).may_shed
        if sheds:
            lines.append(f"  rows of {name} that wait: in memory; too many are shed")
        elif not host.spills:
            lines.append(f"  rows of {name} that wait: in memory; the server has no data directory, or spill_bytes_max is 0")
        elif any(field.type.is_wide for field in definition.schema.fields):
            lines.append(f"  rows of {name} that wait: in memory, as they hold decimals of more than {DECIMAL_NARROW_PRECISION_MAX} digits")
        else:
            lines.append(f"  rows of {name} that wait: can spill to disk")
    nodes = list(_nodes(planned.physical.root))
    stateful = dict.fromkeys(operator_name(node.recipe) for node in nodes if state_bound(node.recipe) is not None)
    lines.append(f"  state of {', '.join(stateful)}: in memory" if stateful else "  no operator holds state")
    return lines


def worker_lines(host: EngineHost, query: Query | None) -> list[str]:
    """Return the lines of the section Workers: where a running query's operators run, and why; nothing where there are no workers."""
    running = None if query is None or query.id is None else host.network.queries.get(query.id)
    if host.workers is None or running is None:
        return []
    told: dict[str, list[str]] = {}
    for operator in running.blueprint.operators:
        told.setdefault(host.workers.why(operator.id), []).append(kind_of(operator.recipe))
    return ["Workers", *(f"  {', '.join(kinds)}: {why}" for why, kinds in told.items())]


def _silence(stream: StreamDefinition) -> str:
    """What ends a window when no row comes (K14)."""
    if stream.time.column is None:
        return "without new rows, windows close by the clock"
    if stream.time.idle_us and stream.time.idle_flush:
        return "without new rows, windows close when the stream is idle"
    idle = "; while idle, the stream delays no other input" if stream.time.idle_us else ""
    return f"without new rows, windows stay open until the stream ends{idle}"


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


def promises(host: EngineHost, planned: PlannedQuery, query: Query | None) -> Outcome:
    """Return a row a promise; `measured` is NULL for a SELECT that does not run, and for what nothing is measured of."""
    options = planned.physical.options
    definition = host.catalog.query_class(options.class_name)
    target = "none" if definition.target_us is None else f"{definition.target_us / 1_000:g} ms"
    points = ", ".join(f"{latency * 1_000:g} ms: {utility:g}" for latency, utility in options.qos)
    rows = [
        ("class", f"{definition.name}, priority {definition.priority:g}"),
        ("delay target", target),
        ("shedding", _shedding(options, definition.may_shed)),
        ("latency utility", points),
        ("deadline", f"{options.deadline_ns / 1e6:g} ms"),
        ("weight", f"{options.weight:g}"),
    ]
    if options.latency_target_ns is not None:
        rows.append(("latency target", f"{options.latency_target_ns / 1e6:g} ms on average"))
    if options.memory_bytes_max is not None:
        rows.append(("memory", f"at most {options.memory_bytes_max} bytes"))
    if options.tolerance_percent is not None or options.latency_target_ns is not None or options.memory_bytes_max is not None:
        percent = TOLERANCE_PERCENT if options.tolerance_percent is None else options.tolerance_percent
        rows.append(("tolerance", f"{percent:g} %"))
    if query is None:
        expected = admission.asked(host, planned)
        rows += [] if expected is None else admission.lines(expected)
    else:
        now = admission.expected(host, query)
        rows += [] if now is None else [("expected latency", now)]
    found = {} if query is None else _measured(host, query)
    return table([("promise", "TEXT"), ("value", "TEXT"), ("measured", "TEXT")], [(name, value, found.get(name)) for name, value in rows])


def _shedding(options: QueryOptions, may_shed: bool) -> str:
    if not may_shed:
        return "never"
    order = "by chance" if options.shed_by is None else f"least {options.shed_by.text} first"
    return f"allowed, {order}{', counts and sums scaled up' if options.scale_up else ''}"


def _measured(host: EngineHost, query: Query) -> dict[str, str]:
    """Return sentences on what a query got, by the promise that they answer."""
    found: dict[str, str] = {}
    counts = host.counts(query)
    if counts.get("accepted"):
        found["shedding"] = f"{counts['shed']} of {counts['accepted']} rows shed"
        failed, reason = host.failures_of_shed_by(query)
        if failed:
            found["shedding"] += f"; shed_by failed at {failed} rows, which are worth least ({reason})"
    if query.id is not None:
        operators = host.network.queries[query.id].blueprint.operators
        state = sum(operator.held_bytes() for operator in operators)
        found["memory"] = f"{state} bytes of state, {sum(cursor.pending_rows() for o in operators for cursor in o.inputs)} rows waiting"
    verdict = host.watch.verdicts.get(query.name)
    if verdict is not None:
        found["tolerance"] = _STANDS[verdict.state] + (f", by {verdict.excess:.0%}" if verdict.excess else "")
    measured = host.runtime.measures()
    report = None if measured is None else measured.of_query(query)
    if report is not None and report.outputs:
        found.update(_outputs(report, in_windows=bool(query.planned.physical.options.period_ns)))
    return found


def _outputs(report: OutputReport, *, in_windows: bool) -> dict[str, str]:
    late = f"{report.tardiness_ms_mean:.3g} ms past the end of its SLIDE on average, at most {report.tardiness_ms_max:.3g} ms"
    return {
        "latency target": f"{report.response_ms_mean:.3g} ms on average",
        "expected latency": f"{report.response_ms_mean:.3g} ms on average since it runs",
        "delay target": f"{report.response_ms_mean:.3g} ms on average, p99 {report.response_ms_p99:.3g} ms, at most "
        f"{report.response_ms_max:.3g} ms, of {report.outputs} results",
        "latency utility": f"{report.utility:.3g} on average, {report.missed_deadlines} results later than where it begins to fall",
        "deadline": late if in_windows else f"p99 {report.response_ms_p99:.3g} ms after its row, at most {report.response_ms_max:.3g} ms",
        "weight": f"slowdown {report.slowdown_mean:.3g} on average, staleness {report.staleness:.3g}",
    }
