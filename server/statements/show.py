"""SHOW …: what there is, as tables; and DESCRIBE: columns and time of a stream, table or query, properties of a class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from millstream.engine.data.schema import ArchiveRule, Schema, StreamDefinition, TableDefinition
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN
from millstream.engine.language.statements import ClassDefinition, ConnectorKind, Describe, ObjectKind, Show, ShowWhat
from millstream.engine.runtime.bill import bills
from millstream.protocol.values.names import CHANGE_NOTE
from millstream.scheduler import catalog as policies
from millstream.scheduler.load.contract import ClassLoad
from millstream.scheduler.measures import MeasuresReport, OutputReport
from millstream.scheduler.optimiser.contract import Decision, Observation
from millstream.scheduler.spec import PolicySpec
from millstream.server.host.contract import WORKER_COLUMNS
from millstream.server.results.outcome import Outcome, table
from millstream.server.statements.functions import describe_function, show_functions
from millstream.server.statements.operators import show_operators
from millstream.server.watch import admission

if TYPE_CHECKING:
    from millstream.server.host.contract import Context
    from millstream.server.host.engine_host import EngineHost

NS_PER_MS = 1_000_000
NS_PER_US = 1_000
COUNTED = ("accepted", "processed", "late", "failed", "shed", "queued")  # of a query's input rows (K10)
OUTPUT_COLUMNS = (
    ("results", "BIGINT"),
    ("latency_ms", "DOUBLE"),
    ("latency_p99_ms", "DOUBLE"),
    ("slowdown", "DOUBLE"),
    ("utility", "DOUBLE"),
)
"""Columns beside a query or a class."""

MEASURE_COLUMNS = (
    ("results", "outputs", "BIGINT"),
    ("latency_ms", "response_ms_mean", "DOUBLE"),
    ("latency_p50_ms", "response_ms_p50", "DOUBLE"),
    ("latency_p95_ms", "response_ms_p95", "DOUBLE"),
    ("latency_p99_ms", "response_ms_p99", "DOUBLE"),
    ("latency_max_ms", "response_ms_max", "DOUBLE"),
    ("latency_l2_ms", "response_ms_norm", "DOUBLE"),
    ("slowdown", "slowdown_mean", "DOUBLE"),
    ("slowdown_max", "slowdown_max", "DOUBLE"),
    ("slowdown_l2", "slowdown_norm", "DOUBLE"),
    ("tardiness_ms", "tardiness_ms_mean", "DOUBLE"),
    ("tardiness_max_ms", "tardiness_ms_max", "DOUBLE"),
    ("staleness", "staleness", "DOUBLE"),
    ("utility", "utility", "DOUBLE"),
    ("missed_deadlines", "missed_deadlines", "BIGINT"),
)
"""Column, field of a report, type: everything that is measured of outputs."""
LOAD_COLUMNS = (("load", "DOUBLE"), ("headroom", "DOUBLE"), ("quota", "DOUBLE"), ("drop_percent", "DOUBLE"), ("response_ms", "DOUBLE"))
"""Load and headroom in seconds of work a second, quota as a share of the processor, drop and response as of the last cycle."""
POLL_COLUMNS = (
    ("age", "age_us", "INTERVAL"),
    ("freshness", "freshness", "DOUBLE"),
    ("polls", "polls", "BIGINT"),
    ("changes", "changes", "BIGINT"),
    ("poll_period", "period_us", "INTERVAL"),
    ("poll_error", "error", "TEXT"),
)
"""Column, field of `PolledTable`, type: NULL for a table that is not polled."""
_DESCRIBED = [["column", "TEXT", False], ["type", "TEXT", False], ["nullable", "BOOLEAN", False], ["note", "TEXT", True]]


_COMMENTED = {
    ShowWhat.STREAMS: "stream",
    ShowWhat.TABLES: "table",
    ShowWhat.QUERIES: "query",
    ShowWhat.CLASSES: "class",
    ShowWhat.FUNCTIONS: "function",
    ShowWhat.SOURCES: "source",
    ShowWhat.SINKS: "sink",
}
"""What COMMENT ON may speak of: a last column says what it said."""


def show(host: EngineHost, statement: Show, context: Context) -> Outcome:
    """Return the table asked for."""
    shown = _SHOWN[statement.what](host)
    kind = _COMMENTED.get(statement.what)
    if kind is None:
        return shown
    comments = host.store.comments(kind)
    values = [[*row, comments.get(row[0])] for row in shown.values]
    first = shown.info.get("first", [])
    info = {**shown.info, "first": [*first, "comment"]} if first and comments else shown.info
    return Outcome([*shown.columns, ["comment", "TEXT", True]], values, shown.notices, info)


def _connectors(host: EngineHost, kind: ConnectorKind) -> Outcome:
    from millstream.server.statements.connectors import shown  # loaded by the first that is asked for

    return shown(host, kind)


def _streams(host: EngineHost) -> Outcome:
    rows: list[tuple[object, ...]] = []
    for stream in host.catalog.streams():
        spelled = ", ".join(f"{f.name} {f.type}" for f in stream.schema.fields)
        if isinstance(stream, StreamDefinition):
            intake = host.intakes[stream.name]
            state = "ended" if host.network.sources[stream.name].ended else "open"
            shed = sum(one.shed for one in host.network.sources[stream.name].shed_logs.values())
            rows.append((stream.name, "stream", state, intake.accepted_total, intake.refused_total, shed, spelled, time_rule(stream)))
        else:
            counts = host.counts(host.derived[stream.name])
            rows.append((stream.name, "derived", "open", counts.get("accepted"), None, counts.get("shed"), spelled, stream.text))
    columns = [
        ("name", "TEXT"),
        ("kind", "TEXT"),
        ("state", "TEXT"),
        ("accepted", "BIGINT"),
        ("refused", "BIGINT"),
        ("shed", "BIGINT"),
        ("columns", "TEXT"),
        ("definition", "TEXT"),
    ]
    return table(columns, rows, "name kind state accepted refused shed columns")


def _tables(host: EngineHost) -> Outcome:
    rows = []
    for found in host.catalog.tables():
        spelled = ", ".join(f"{f.name} {f.type}" for f in found.schema.fields)
        polled = None if host.refresh is None else host.refresh.standing(found.name)
        cells = (None,) * len(POLL_COLUMNS) if polled is None else tuple(getattr(polled, field) for _, field, _ in POLL_COLUMNS)
        rows.append((found.name, ", ".join(found.key), host.network.standing_rows(found.name), found.durability, *cells, spelled))
    columns = [("name", "TEXT"), ("key", "TEXT"), ("rows", "BIGINT"), ("durability", "TEXT")]
    columns += [(name, kind) for name, _, kind in POLL_COLUMNS]
    return table([*columns, ("columns", "TEXT")], rows, "name key rows durability columns freshness age poll_error")


def _archives(host: EngineHost) -> Outcome:
    rows = []
    archives = None if host.journaling is None else host.journaling.archives
    for one in () if archives is None else tuple(archives.by_number.values()):
        state = one.state
        mark = None if state.watermark_us in (TIME_MIN, TIME_MAX) else state.watermark_us
        rows.append(
            (one.definition.name, one.where.text, len(state.files), one.rows, one.bytes, archives.behind_bytes(one),  # type: ignore[union-attr]
             state.upto, mark, state.complete_from_us, one.pending_since_us, one.failures, one.last_error)
        )  # fmt: skip
    columns = [("stream", "TEXT"), ("place", "TEXT"), ("files", "BIGINT"), ("rows", "BIGINT"), ("bytes", "BIGINT")]
    columns += [("behind_bytes", "BIGINT"), ("upto", "BIGINT"), ("watermark", "TIMESTAMP"), ("complete_from", "TIMESTAMP")]
    columns += [("waits_since", "TIMESTAMP"), ("failures", "BIGINT"), ("last_error", "TEXT")]
    return table(columns, rows, "stream place files rows bytes behind_bytes last_error")


def _queries(host: EngineHost) -> Outcome:
    rows = []
    found = host.runtime.measures()
    expected = admission.expected_latencies(host)
    for query in host.queries:
        foretold = None if query.id is None else expected.get(query.id)
        counts = host.counts(query)
        outputs = _outputs(None if found is None else found.of_query(query))
        rows.append(
            (query.name, query.state.value, query.planned.physical.options.class_name, query.is_durable,
             *(counts.get(name) for name in COUNTED), *host.memory_of(query), *outputs,
             None if foretold is None else foretold[0] / NS_PER_MS, query.complete_from_us,
             None if query.catching_up is None else query.catching_up.text(), *host.watch.shown(query), query.failure, query.shown_text)
        )  # fmt: skip
    columns = [("name", "TEXT"), ("state", "TEXT"), ("class", "TEXT"), ("durable", "BOOLEAN")]
    columns += [(name, "BIGINT") for name in COUNTED]
    columns += [("memory_bytes", "BIGINT"), ("memory_bytes_max", "BIGINT"), ("spilled_bytes", "BIGINT")]
    columns += [*OUTPUT_COLUMNS, ("latency_expected_ms", "DOUBLE"), ("complete_from", "TIMESTAMP"), ("progress", "TEXT")]
    columns += [("target", "TEXT"), ("target_since", "TIMESTAMP")]
    columns += [("failure", "TEXT"), ("text", "TEXT")]
    progress = "progress " if any(query.catching_up is not None for query in host.queries) else ""
    return table(columns, rows, f"name state {progress}class results late queued latency_p99_ms target shed accepted")


def _classes(host: EngineHost) -> Outcome:
    found = host.runtime.measures()
    shares = _losses(host)
    standings = host.runtime.loads()
    rows = []
    for one in host.catalog.classes():
        node = host.class_nodes[one.name]
        outputs = _outputs(None if found is None else found.of_class(node.id))
        shed, accepted = shares.get(one.name, (0, 0))
        loss = 100.0 * shed / accepted if accepted else None
        standing = _load_cells(standings.get(node.id))
        rows.append((one.name, one.priority, one.target_us, one.may_shed, accepted, shed, loss, *outputs, *standing))
    columns = [("name", "TEXT"), ("priority", "DOUBLE"), ("target", "INTERVAL"), ("may_shed", "BOOLEAN")]
    columns += [("accepted", "BIGINT"), ("shed", "BIGINT"), ("loss_percent", "DOUBLE")]
    return table([*columns, *OUTPUT_COLUMNS, *LOAD_COLUMNS], rows, "name priority target results latency_p99_ms loss_percent load headroom")


def _losses(host: EngineHost) -> dict[str, tuple[int, int]]:
    """Return by class the input rows shed and accepted, over its queries' present or last runs (data loss, Pham 2013)."""
    sums: dict[str, tuple[int, int]] = {}
    for query in (*host.queries, *host.derived.values()):
        counts, name = host.counts(query), query.planned.physical.options.class_name
        shed, accepted = sums.get(name, (0, 0))
        sums[name] = shed + counts.get("shed", 0), accepted + counts.get("accepted", 0)
    return sums


def _policies(host: EngineHost) -> Outcome:
    text = host.runtime.statistics().policy
    used = host.policy if text in ("", str(host.policy)) else PolicySpec.parse(text)  # what was set last may have failed
    rows = []
    for row in policies.CATALOG.values():
        options = {**row.options, **dict(used.options)} if row.name == used.name else row.options
        rows.append((row.name, row.name == used.name, row.summary, row.source, ", ".join(f"{k}={v}" for k, v in options.items())))
    columns = [("name", "TEXT"), ("in_use", "BOOLEAN"), ("summary", "TEXT"), ("source", "TEXT"), ("options", "TEXT")]
    answer = table(columns, rows, "name in_use summary")
    if used.name == host.policy.name:
        return answer
    reason = host.policy_failure or "the server's log says why (policy_failed)"
    return Outcome(answer.columns, answer.values, (f"{host.policy.name}, which was set last, failed: {reason}",), answer.info)


def _sharing(host: EngineHost) -> Outcome:
    """A row a query: its bill, and its part in a synopsis (docs/sharing.md)."""
    rows: list[tuple[object, ...]] = []
    for bill, parts in bills(host.network):
        part = parts[0] if parts else None
        costs = (
            bill.operators,
            bill.shared,
            bill.cpu_ns / NS_PER_MS,
            bill.cpu_unshared_ns / NS_PER_MS,
            bill.state_bytes,
            bill.state_unshared_bytes,
        )
        if part is None:
            rows.append((bill.query, *costs, None, None, None, None, None, None, None, None, None))
            continue
        rows.append(
            (
                bill.query,
                *costs,
                part.operator,
                part.members,
                part.step_us,
                part.asked_us,
                part.period_us,
                part.why,
                part.complete_from_us,
                part.late_runs,
                part.skipped,
            )
        )
    columns = [("query", "TEXT"), ("operators", "BIGINT"), ("shared", "BIGINT"), ("cpu_ms", "DOUBLE"), ("cpu_ms_unshared", "DOUBLE")]
    columns += [("state_bytes", "BIGINT"), ("state_bytes_unshared", "BIGINT"), ("group", "BIGINT"), ("group_queries", "BIGINT")]
    columns += [("step", "INTERVAL"), ("slide", "INTERVAL"), ("period", "INTERVAL"), ("why", "TEXT"), ("complete_from", "TIMESTAMP")]
    columns += [("late_runs", "BIGINT"), ("skipped", "BIGINT")]
    return table(columns, rows, "query operators shared cpu_ms cpu_ms_unshared state_bytes group period")


def _watermarks(host: EngineHost) -> Outcome:
    rows = []
    for source in list(host.network.sources.values()):
        if source.table is not None:
            continue
        mark = source.watermark_us
        shown = None if mark in (TIME_MIN, TIME_MAX) else mark
        rows.append((source.definition.name, shown, source.idle, source.ended, source.future_skew))
    for name, log in host.network.derived_logs():
        shown = None if log.watermark_us in (TIME_MIN, TIME_MAX) else log.watermark_us
        rows.append((name, shown, log.idle, log.ended, 0))
    return table(
        [("stream", "TEXT"), ("watermark", "TIMESTAMP"), ("idle", "BOOLEAN"), ("ended", "BOOLEAN"), ("future_skew", "BIGINT")], rows
    )


def _scheduler(host: EngineHost) -> Outcome:
    found = host.runtime.measures()  # first: that brings the counts up to date
    statistics = asdict(host.runtime.statistics())
    rows = [(name, str(value)) for name, value in statistics.items()]
    if (scheduler := host.runtime.scheduler) is not None:
        rows.insert(1, ("workers", str(scheduler.workers)))
    if found is not None:
        rows += [(name, f"{value:.6g}") for name, value in _system(found.report)]
    return table([("measure", "TEXT"), ("value", "TEXT")], rows)


def _workers(host: EngineHost) -> Outcome:
    rows = [] if host.workers is None else list(host.workers.shown())
    return table(list(WORKER_COLUMNS), rows, "worker pid queries operators load_percent state_bytes ends last_end")


def _measures(host: EngineHost) -> Outcome:
    columns = [("scope", "TEXT"), ("name", "TEXT"), *((name, kind) for name, _, kind in MEASURE_COLUMNS)]
    return table(columns, _measure_rows(host), "scope name results latency_p50_ms latency_p99_ms slowdown utility")


def _outputs(report: OutputReport | None) -> tuple[object, ...]:
    """Return the values of `OUTPUT_COLUMNS`; NULL where nothing was measured."""
    if report is None:
        return (None,) * len(OUTPUT_COLUMNS)
    if not report.outputs:
        return (0, *(None,) * (len(OUTPUT_COLUMNS) - 1))
    return (report.outputs, report.response_ms_mean, report.response_ms_p99, report.slowdown_mean, report.utility)


def _measure_rows(host: EngineHost) -> list[tuple[object, ...]]:
    """Return the rows of SHOW MEASURES: all outputs, those of each class, those of each query, with the values of `MEASURE_COLUMNS`."""
    measured = host.runtime.measures()
    if measured is None:
        return []
    found: list[tuple[object, ...]] = [("all", None, *_measured(measured.report.output))]
    for name, node in host.class_nodes.items():
        report = measured.of_class(node.id)
        if report is not None:
            found.append(("class", name, *_measured(report)))
    for query in host.queries:
        report = measured.of_query(query)
        if report is not None:
            found.append(("query", query.name, *_measured(report)))
    return found


def _measured(report: OutputReport) -> tuple[object, ...]:
    return tuple(getattr(report, field) for _, field, _ in MEASURE_COLUMNS)


def _system(report: MeasuresReport) -> list[tuple[str, float]]:
    """Return what is measured of the system as a whole, by name: for SHOW SCHEDULER."""
    return [
        ("memory_bytes_mean", report.memory_bytes_mean),
        ("memory_bytes_max", report.memory_bytes_max),
        ("results_per_s", report.throughput_mean),
        ("results_per_s_deviation", report.throughput_deviation),
        ("staleness_weighted", report.staleness_weighted),
        ("utility_per_application", report.utility_per_application),
        ("deciding_share", report.scheduling_share),
    ]


def _load_cells(found: ClassLoad | None) -> tuple[object, ...]:
    """Return the values of `LOAD_COLUMNS`; NULL for a class that has no query, or where nobody looks."""
    if found is None:
        return (None,) * len(LOAD_COLUMNS)
    response_ms = None if found.response_ns is None else found.response_ns / NS_PER_MS
    return (found.load, found.headroom, found.share, 100.0 * found.drop, response_ms)


def _decisions(host: EngineHost) -> Outcome:
    """A row a decision, the oldest first. Latencies and memory are those of the query for whose sake it was taken."""
    columns = [("number", "BIGINT"), ("time", "TIMESTAMP"), ("query", "TEXT"), ("action", "TEXT"), ("reason", "TEXT")]
    columns += [("latency_ms_before", "DOUBLE"), ("memory_bytes_before", "DOUBLE"), ("distance_before", "DOUBLE")]
    columns += [("latency_ms_after", "DOUBLE"), ("memory_bytes_after", "DOUBLE"), ("distance_after", "DOUBLE")]
    columns += [("outcome", "TEXT"), ("undone", "BOOLEAN"), ("note", "TEXT")]
    runtime, optimiser = host.runtime, host.optimiser
    shift_us = runtime.now_us() - runtime.arrival_ns() // NS_PER_US
    rows = [] if optimiser is None else [_decision_row(one, shift_us) for one in optimiser.decisions]
    return table(columns, rows, "number time query action outcome")


def _decision_row(one: Decision, shift_us: int) -> tuple[object, ...]:
    before, after = _observed(one.observed_before), _observed(one.observed_after)
    undone = one.outcome.value == "undone"
    head = (one.number, one.at_ns // NS_PER_US + shift_us, one.query, str(one.action), one.reason)
    return (*head, *before, one.distance_before, *after, one.distance_after, one.outcome.value, undone, one.note or None)


def _observed(seen: Observation | None) -> tuple[float | None, float | None]:
    if seen is None:
        return None, None
    return None if seen.latency_ns is None else seen.latency_ns / NS_PER_MS, seen.memory_bytes


_SHOWN: dict[ShowWhat, Callable[[EngineHost], Outcome]] = {
    ShowWhat.STREAMS: _streams,
    ShowWhat.TABLES: _tables,
    ShowWhat.ARCHIVES: _archives,
    ShowWhat.QUERIES: _queries,
    ShowWhat.CLASSES: _classes,
    ShowWhat.FUNCTIONS: show_functions,
    ShowWhat.POLICIES: _policies,
    ShowWhat.SHARING: _sharing,
    ShowWhat.WATERMARKS: _watermarks,
    ShowWhat.WORKERS: _workers,
    ShowWhat.OPERATORS: show_operators,
    ShowWhat.DECISIONS: _decisions,
    ShowWhat.SCHEDULER: _scheduler,
    ShowWhat.MEASURES: _measures,
    ShowWhat.SOURCES: partial(_connectors, kind=ConnectorKind.SOURCE),
    ShowWhat.SINKS: partial(_connectors, kind=ConnectorKind.SINK),
}


def describe(host: EngineHost, statement: Describe, context: Context) -> Outcome:
    """Return a row a column; of a class a row a property. Without a kind a name is looked for among streams and tables first."""
    name, kind = statement.name.text, statement.kind
    found = host.catalog.find(name) if kind in (None, ObjectKind.STREAM, ObjectKind.TABLE) else None
    if kind is ObjectKind.QUERY or (kind is None and found is None and host.queries.find(name) is not None):
        physical = host.queries.get(name).planned.physical
        change = None if physical.change_kind is None else physical.schema.fields[physical.change_kind].name
        return _columns(physical.schema, None, {} if change is None else {change: CHANGE_NOTE})
    if kind is ObjectKind.CLASS or (kind is None and found is None and host.catalog.find_class(name) is not None):
        return _class(host.catalog.query_class(name))
    function = host.catalog.find_function(name) if found is None and kind in (None, ObjectKind.FUNCTION) else None
    if function is not None:
        return describe_function(function)
    relation = host.catalog.relation(name)
    return _columns(relation.schema, relation)


def _class(found: ClassDefinition) -> Outcome:
    target = "none" if found.target_us is None else f"{found.target_us / 1_000:g} ms"
    rows = [("priority", f"{found.priority:g}"), ("target", target), ("shedding", "allowed" if found.may_shed else "never")]
    rows.append(("workers", ", ".join(map(str, found.workers)) or "any"))
    return table([("property", "TEXT"), ("value", "TEXT")], rows)


def _columns(schema: Schema, relation: object, notes: Mapping[str | None, str] = MappingProxyType({})) -> Outcome:
    """Return a row a column, and of a stream or table one line with its clauses."""
    notices: tuple[str, ...] = ()
    if isinstance(relation, StreamDefinition):
        notes, notices = {relation.time.column: "event time"}, (time_rule(relation),)
    elif isinstance(relation, TableDefinition):
        notes, notices = dict.fromkeys(relation.key, "primary key"), (table_rule(relation),)
    return Outcome(_DESCRIBED, [[f.name, str(f.type), f.nullable, notes.get(f.name)] for f in schema.fields], notices)


def table_rule(table: TableDefinition) -> str:
    """Return one line that says where a table's rows come from and whether they are kept."""
    parts = [] if table.file is None else [f"FROM '{table.file}'"]
    if table.fresh_min is not None:
        parts.append(f"REFRESH MIN FRESHNESS {table.fresh_min:g}" if table.fresh_min else "REFRESH")
    return " ".join([*parts, f"DURABILITY {table.durability}"])


def _archive_rule(rule: ArchiveRule) -> str:
    parts = ["ARCHIVE"]
    if rule.into is not None:
        parts.append(f"INTO '{rule.into}'")
    if rule.by_day:
        parts.append("PARTITION BY DAY")
    if rule.keep_days is not None:
        parts.append(f"KEEP {rule.keep_days} DAYS")
    return " ".join(parts)


def time_rule(stream: StreamDefinition) -> str:
    """Return one line that says how event time and watermark follow."""
    rule = stream.time
    parts = [f"TIMESTAMP BY {rule.column}" if rule.column is not None else "TIMESTAMP BY ARRIVAL"]
    if rule.unit is not None:
        parts.append(f"UNIT {rule.unit}")
    if rule.unit_round:
        parts.append("ROUND")
    if rule.zone is not None:
        parts.append(f"ZONE '{rule.zone}'")
    parts += [
        f"{word} {us / 1_000_000:g} SECONDS"
        for word, us in (("DELAY", rule.delay_us), ("SKEW", rule.skew_us), ("IDLE", rule.idle_us))
        if us
    ]
    if rule.idle_flush:
        parts.append("FLUSH")
    parts.append(f"LATE INTO {stream.late_into}" if stream.late_into else "LATE DROP")
    parts.append(f"ON ERROR INTO {stream.errors_into}" if stream.errors_into else f"ON ERROR {stream.on_error.value}")
    parts.append(f"DURABILITY {stream.durability}")
    if stream.archive is not None:
        parts.append(_archive_rule(stream.archive))
    if stream.rate_per_second_max is not None:
        parts.append(f"RATE {stream.rate_per_second_max:g} PER SECOND")
    return " ".join(parts)
