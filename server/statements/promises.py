"""EXPLAIN QOS: what a query was promised, and beside it what was measured; of one that does not run, what it would do to the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.engine.plan.physical import QueryOptions
from millstream.engine.plan.plan import PlannedQuery
from millstream.scheduler.measures import OutputReport
from millstream.scheduler.optimiser.contract import TOLERANCE_PERCENT
from millstream.server.host.queries import Query
from millstream.server.results.outcome import Outcome, table
from millstream.server.watch import admission

if TYPE_CHECKING:
    from millstream.server.host.engine_host import EngineHost


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
        state = sum(operator.logic.state_bytes() for operator in operators)
        found["memory"] = f"{state} bytes of state, {sum(cursor.pending_rows() for o in operators for cursor in o.inputs)} rows waiting"
    verdict = host.watch.verdicts.get(query.name)
    if verdict is not None:
        found["tolerance"] = f"targets are {verdict.state.value}" + (f", by {verdict.excess:.0%}" if verdict.excess else "")
    measured = host.runtime.measures()
    report = None if measured is None else measured.of_query(query)
    if report is not None and report.outputs:
        found.update(_outputs(report, in_windows=bool(query.planned.physical.options.period_ns)))
    return found


def _outputs(report: OutputReport, *, in_windows: bool) -> dict[str, str]:
    late = f"{report.tardiness_ms_mean:.3g} ms past the end of its SLIDE on average, at most {report.tardiness_ms_max:.3g} ms"
    return {
        "latency target": f"{report.response_ms_mean:.3g} ms on average",
        "delay target": f"{report.response_ms_mean:.3g} ms on average, p99 {report.response_ms_p99:.3g} ms, at most "
        f"{report.response_ms_max:.3g} ms, of {report.outputs} results",
        "latency utility": f"{report.utility:.3g} on average, {report.missed_deadlines} results later than where it begins to fall",
        "deadline": late if in_windows else f"p99 {report.response_ms_p99:.3g} ms after its row, at most {report.response_ms_max:.3g} ms",
        "weight": f"slowdown {report.slowdown_mean:.3g} on average, staleness {report.staleness:.3g}",
    }
