"""SHOW …: what there is, as tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from millstream.engine.data.schema import StreamDefinition
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN
from millstream.engine.language.statements import Show, ShowWhat
from millstream.engine.sharing.bill import bills
from millstream.scheduler import catalog as policies
from millstream.scheduler.spec import PolicySpec
from millstream.server.results.outcome import Outcome, table
from millstream.server.statements.decisions import show_decisions
from millstream.server.statements.describe import time_rule
from millstream.server.statements.functions import show_functions
from millstream.server.watch import loads, measured

NS_PER_MS = 1_000_000

if TYPE_CHECKING:
    from millstream.server.host.engine_host import Context, EngineHost

COUNTED = ("accepted", "processed", "late", "failed", "shed", "queued")  # of a query's input rows (K10)


def show(host: EngineHost, statement: Show, context: Context) -> Outcome:
    """Return the table asked for."""
    return _SHOWN[statement.what](host)


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
            rows.append((stream.name, "derived", "open", None, None, None, spelled, stream.text))
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
    return table(columns, rows)


def _tables(host: EngineHost) -> Outcome:
    rows = []
    for found in host.catalog.tables():
        spelled = ", ".join(f"{f.name} {f.type}" for f in found.schema.fields)
        rows.append((found.name, ", ".join(found.key), host.network.standing_rows(found.name), found.durability, spelled))
    return table([("name", "TEXT"), ("key", "TEXT"), ("rows", "BIGINT"), ("durability", "TEXT"), ("columns", "TEXT")], rows)


def _queries(host: EngineHost) -> Outcome:
    rows = []
    found = host.runtime.measures()
    for query in host.queries:
        counts = host.counts(query)
        outputs = measured.short(None if found is None else found.of_query(query))
        rows.append(
            (query.name, query.state.value, query.planned.physical.options.class_name, query.is_durable,
             *(counts.get(name) for name in COUNTED), *outputs, query.complete_from_us, *host.watch.shown(query),
             query.failure, query.shown_text)
        )  # fmt: skip
    columns = [("name", "TEXT"), ("state", "TEXT"), ("class", "TEXT"), ("durable", "BOOLEAN")]
    columns += [(name, "BIGINT") for name in COUNTED]
    columns += [*measured.SHORT, ("complete_from", "TIMESTAMP"), ("target", "TEXT"), ("target_since", "TIMESTAMP")]
    return table([*columns, ("failure", "TEXT"), ("text", "TEXT")], rows)


def _classes(host: EngineHost) -> Outcome:
    found = host.runtime.measures()
    shares = _losses(host)
    standings = host.runtime.loads()
    rows = []
    for one in host.catalog.classes():
        node = host.class_nodes[one.name]
        outputs = measured.short(None if found is None else found.of_class(node.id))
        shed, accepted = shares.get(one.name, (0, 0))
        loss = 100.0 * shed / accepted if accepted else None
        standing = loads.cells(standings.get(node.id))
        rows.append((one.name, one.priority, one.target_us, one.may_shed, accepted, shed, loss, *outputs, *standing))
    columns = [("name", "TEXT"), ("priority", "DOUBLE"), ("target", "INTERVAL"), ("may_shed", "BOOLEAN")]
    columns += [("accepted", "BIGINT"), ("shed", "BIGINT"), ("loss_percent", "DOUBLE")]
    return table([*columns, *measured.SHORT, *loads.COLUMNS], rows)


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
    return table([("name", "TEXT"), ("in_use", "BOOLEAN"), ("summary", "TEXT"), ("source", "TEXT"), ("options", "TEXT")], rows)


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
    return table(columns, rows)


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
    if found is not None:
        rows += [(name, f"{value:.6g}") for name, value in measured.system(found.report)]
    return table([("measure", "TEXT"), ("value", "TEXT")], rows)


def _measures(host: EngineHost) -> Outcome:
    return table([("scope", "TEXT"), ("name", "TEXT"), *((name, kind) for name, _, kind in measured.LONG)], measured.rows(host))


_SHOWN: dict[ShowWhat, Callable[[EngineHost], Outcome]] = {
    ShowWhat.STREAMS: _streams,
    ShowWhat.TABLES: _tables,
    ShowWhat.QUERIES: _queries,
    ShowWhat.CLASSES: _classes,
    ShowWhat.FUNCTIONS: show_functions,
    ShowWhat.POLICIES: _policies,
    ShowWhat.SHARING: _sharing,
    ShowWhat.WATERMARKS: _watermarks,
    ShowWhat.DECISIONS: show_decisions,
    ShowWhat.SCHEDULER: _scheduler,
    ShowWhat.MEASURES: _measures,
}
