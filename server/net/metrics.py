"""What the metrics port says: /metrics, /healthz and /readyz.

Metrics for Prometheus are read when they are asked for: nothing on the hot path keeps them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from millstream.engine.data.graph import ClassId
from millstream.scheduler.load.contract import ClassLoad
from millstream.scheduler.measures import OutputReport
from millstream.scheduler.optimiser.contract import DecisionOutcome, TargetState
from millstream.server.host.contract import WORKER_COLUMNS
from millstream.server.host.engine_host import EngineHost
from millstream.server.host.runtime import MeasuresSnapshot
from millstream.server.net.loop import Bridge
from millstream.server.net.pacing import Pacer
from millstream.server.net.pages import Page
from millstream.server.net.peer_memory import PeerMemory
from millstream.server.net.session import Session
from millstream.server.results.feeds import Feeds
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from millstream.server.host.spilling import Spiller

TEXT = "text/plain; version=0.0.4; charset=utf-8"
_QUANTILES = (("0.5", "response_ms_p50"), ("0.95", "response_ms_p95"), ("0.99", "response_ms_p99"), ("1", "response_ms_max"))
_LOAD_FAMILIES = (
    ("load", "Seconds of work a second that come for the class, shed or not", "load"),
    ("headroom", "Seconds of work a second that the class can have", "headroom"),
    ("quota", "Share of the processor that the class is given", "share"),
    ("drop_ratio", "Share of the input of the class that is shed now", "drop"),
    ("backlog_seconds", "Work that waits before operators of the class", "backlog_s"),
)
_ACCOUNT = ("accepted", "processed", "late", "partly_late", "shed", "failed", "failed_results")


class ServerFigures(Protocol):
    """What the pages say of the server, beside its engine."""

    host: EngineHost
    feeds: Feeds
    sessions: dict[int, Session]
    bridge: Bridge[Any]
    peer_memory: PeerMemory
    pacer: Pacer
    spiller: Spiller | None
    unbalanced_total: int
    policies_failed: int
    ready: bool
    broken: str


def pages(collector: ServerCollector) -> dict[str, Page]:
    """Return the pages of the metrics port."""
    registry = CollectorRegistry()
    registry.register(collector)
    server = collector.server
    return {
        "/metrics": lambda: (200, TEXT, generate_latest(registry)),
        "/healthz": lambda: (503, "text/plain", b"broken\n") if server.broken else (200, "text/plain", b"ok\n"),
        "/readyz": lambda: (200, "text/plain", b"ready\n") if server.ready else (503, "text/plain", b"not ready\n"),
    }


class ServerCollector:
    """Turns the server's own counts into metric families."""

    def __init__(self, server: ServerFigures) -> None:
        self.server = server
        self._measured: MeasuresSnapshot | None = None
        self._loads: Mapping[ClassId, ClassLoad] = {}

    async def measure(self) -> None:
        """Get the scheduler's measures, off the loop: the scheduler answers between two decisions."""
        self._measured = await asyncio.to_thread(self.server.host.runtime.measures)
        self._loads = await asyncio.to_thread(self.server.host.runtime.loads)

    def describe(self) -> list[Any]:
        """Nothing ahead of time: families depend on what there is."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield all families."""
        yield from self._connections()
        yield from self._streams()
        yield from self._archives()
        yield from self._queries()
        yield from self._scheduler()
        yield from _connector_families(self.server.host)
        yield from _worker_families(self.server.host)
        yield from _target_families(self.server.host)
        if self._measured is not None:
            yield from _measured_families(self.server.host, self._measured)
            yield from _load_families(self.server.host, self._loads)

    def _connections(self) -> Iterator[Any]:
        server = self.server
        yield GaugeMetricFamily("millstream_connections", "Open connections", value=len(server.sessions))
        subscriptions = sum(len(f.feed.subscriptions) for f in server.feeds)
        yield GaugeMetricFamily("millstream_subscriptions", "Open subscriptions", value=subscriptions)
        yield GaugeMetricFamily("millstream_results_waiting", "Result trains not yet handed to subscriptions", value=server.bridge.waiting)
        yield CounterMetricFamily(
            "millstream_slow_consumer", "Subscribers disconnected, or told of a gap, for being slow", value=server.feeds.slow_total
        )
        held, evicted = server.peer_memory.total_bytes, server.peer_memory.evicted_total
        yield GaugeMetricFamily("millstream_connections_bytes", "What peers have sent in part, asked and not read", value=held)
        yield CounterMetricFamily("millstream_connections_evicted", "Connections closed as they held more than their share", value=evicted)
        yield GaugeMetricFamily("millstream_connections_paced", "Connections that wait for their turn", value=server.pacer.waiting)
        memory = server.host.network.memory
        yield GaugeMetricFamily("millstream_memory_bytes", "Bytes that all queries hold", value=memory.total_bytes)
        yield GaugeMetricFamily("millstream_memory_bytes_max", "The bound on them", value=memory.server_bytes_max)
        spiller = self.server.spiller
        files, rows = (0, 0) if spiller is None else (spiller.files.bytes_total, spiller.rows_total)
        yield GaugeMetricFamily("millstream_spill_bytes", "Bytes of the files of rows that left memory", value=files)
        yield CounterMetricFamily("millstream_spilled_rows", "Rows that left memory because they had to wait", value=rows)
        yield CounterMetricFamily("millstream_queries_ended_by_bound", "Queries ended by a bound on memory or time", value=memory.ended)
        yield CounterMetricFamily("millstream_conservation_broken", "Accounts that did not balance (K10)", value=server.unbalanced_total)

    def _streams(self) -> Iterator[Any]:
        accepted = CounterMetricFamily("millstream_stream_accepted", "Rows let in", labels=["stream"])
        refused = CounterMetricFamily("millstream_stream_refused", "Rows refused at ingest", labels=["stream"])
        skew = CounterMetricFamily("millstream_stream_future_skew", "Rows too far ahead of the clock", labels=["stream"])
        shed = CounterMetricFamily("millstream_stream_shed", "Rows dropped before the queries of a class", labels=["stream", "class"])
        names = {node.id: name for name, node in self.server.host.class_nodes.items()}
        for name, intake in list(self.server.host.intakes.items()):
            lost: dict[str, int] = {}
            for (class_id, _), log in list(self.server.host.network.sources[name].shed_logs.items()):
                lost[names[class_id]] = lost.get(names[class_id], 0) + log.shed
            for class_name, rows in lost.items():
                shed.add_metric([name, class_name], rows)
            accepted.add_metric([name], intake.accepted_total)
            refused.add_metric([name], intake.refused_total)
            skew.add_metric([name], self.server.host.network.sources[name].future_skew)
        yield from (accepted, refused, skew, shed)

    def _archives(self) -> Iterator[Any]:
        journaling = self.server.host.journaling
        archives = None if journaling is None else journaling.archives
        if archives is None:
            return
        families = {
            name: GaugeMetricFamily(f"millstream_archive_{name}", text, labels=["stream"])
            for name, text in (
                ("rows", "Rows in committed files"),
                ("bytes", "Bytes of committed files"),
                ("files", "Committed files"),
                ("behind_bytes", "Bytes of the journal that have yet to be looked through"),
                ("failures", "Tries in a row that the store refused"),
            )
        }
        for one in tuple(archives.by_number.values()):
            figures = (one.rows, one.bytes, len(one.state.files), archives.behind_bytes(one), one.failures)
            for family, value in zip(families.values(), figures, strict=True):
                family.add_metric([one.definition.name], value)
        yield from families.values()

    def _queries(self) -> Iterator[Any]:
        host = self.server.host
        families = {
            n: CounterMetricFamily(f"millstream_query_{n}", f"Input rows {n.replace('_', ' ')}", labels=["query"]) for n in _ACCOUNT
        }
        queued = GaugeMetricFamily("millstream_query_queued", "Input rows waiting", labels=["query"])
        results = CounterMetricFamily("millstream_query_results", "Result rows", labels=["query"])
        unworthy = CounterMetricFamily("millstream_query_shed_by_failed", "Rows at which the query's shed_by failed", labels=["query"])
        memory = GaugeMetricFamily("millstream_query_memory_bytes", "Bytes of state, queues and results", labels=["query"])
        memory_max = GaugeMetricFamily("millstream_query_memory_bytes_max", "The bound on them", labels=["query"])
        spilled = GaugeMetricFamily("millstream_query_spilled_bytes", "Bytes of input rows waiting that lie in files", labels=["query"])
        for query in host.queries:
            counts = host.counts(query)
            unworthy.add_metric([query.name], host.failures_of_shed_by(query)[0])
            for name in _ACCOUNT:
                families[name].add_metric([query.name], counts.get(name, 0))
            queued.add_metric([query.name], counts.get("queued", 0))
            found = self.server.feeds.by_query.get(query.name)
            results.add_metric([query.name], 0 if found is None else found.feed.log.rows_total)
            held, bound, out = host.memory_of(query)
            spilled.add_metric([query.name], out or 0)
            if held is not None:
                memory.add_metric([query.name], held)
            if bound is not None:
                memory_max.add_metric([query.name], bound)
        yield from (*families.values(), queued, results, unworthy, memory, memory_max, spilled)

    def _scheduler(self) -> Iterator[Any]:
        statistics = self.server.host.runtime.statistics()
        yield CounterMetricFamily("millstream_scheduler_decisions", "Decisions taken", value=statistics.decisions)
        yield CounterMetricFamily(
            "millstream_policy_failures", "Policies that failed and gave way to round-robin", value=self.server.policies_failed
        )
        yield CounterMetricFamily("millstream_scheduler_orders", "Work orders given out", value=statistics.orders)
        yield CounterMetricFamily("millstream_scheduler_busy_seconds", "Time spent in operators", value=statistics.busy_ns / 1e9)
        yield GaugeMetricFamily("millstream_scheduler_rows_waiting", "Rows in all queues", value=statistics.rows_waiting)


def _worker_families(host: EngineHost) -> Iterator[Any]:
    """Yield how busy each worker process was and what it has; nothing where operators run in the server."""
    if host.workers is None:
        return
    load = GaugeMetricFamily("millstream_worker_load", "Part of the last seconds that a worker was at work", labels=["worker"])
    operators = GaugeMetricFamily("millstream_worker_operators", "Operators that a worker has", labels=["worker"])
    state = GaugeMetricFamily("millstream_worker_state_bytes", "State of its operators", labels=["worker"])
    calls = CounterMetricFamily("millstream_worker_calls", "Steps that it has done", labels=["worker"])
    moves = CounterMetricFamily("millstream_worker_moves", "Groups of queries that moved to it", labels=["worker"])
    ends = CounterMetricFamily("millstream_worker_ends", "How often its process ended", labels=["worker"])
    names = [name for name, _ in WORKER_COLUMNS]
    for shown in host.workers.shown():
        row = dict(zip(names, shown, strict=True))
        label = [str(row["worker"])]
        load.add_metric(label, row["load_percent"] / 100.0)
        for family, name in ((operators, "operators"), (state, "state_bytes"), (calls, "calls"), (moves, "moves"), (ends, "ends")):
            family.add_metric(label, row[name])
    yield from (load, operators, state, calls, moves, ends)


def _connector_families(host: EngineHost) -> Iterator[Any]:
    """Yield what was told of each source and sink; nothing where there are none."""
    if not host.has_connectors:
        return
    labels = ["kind", "name"]
    running = GaugeMetricFamily("millstream_connector_running", "1 while a source or sink runs, else 0", labels=labels)
    counts: dict[str, Any] = {
        "rows": CounterMetricFamily("millstream_connector_rows", "Rows brought in, or given out, since it was opened", labels=labels),
        "refused": CounterMetricFamily("millstream_connector_refused", "Rows that the stream refused", labels=labels),
        "restarts": CounterMetricFamily("millstream_connector_restarts", "Times that it was opened again after a fault", labels=labels),
        "lag_messages": GaugeMetricFamily("millstream_connector_lag_messages", "Messages that wait at the other side", labels=labels),
        "lag_s": GaugeMetricFamily("millstream_connector_lag_seconds", "Age of the oldest of them", labels=labels),
    }
    for one in host.connectors:
        label = [one.definition.kind.noun, one.definition.name]
        running.add_metric(label, float(one.state == "running"))
        for name, family in counts.items():
            if (told := one.report.get(name)) is not None:
                family.add_metric(label, told)
    yield from (running, *counts.values())


def _target_families(host: EngineHost) -> Iterator[Any]:
    """Yield whether each query with a target misses it and how often it began to; decisions by their outcome."""
    missed = GaugeMetricFamily("millstream_query_target_missed", "1 while a query misses a target, else 0", labels=["query"])
    misses = CounterMetricFamily("millstream_query_target_misses", "How often a query began to miss a target", labels=["query"])
    for name, verdict in list(host.watch.verdicts.items()):
        missed.add_metric([name], float(verdict.state is TargetState.MISSED))
        misses.add_metric([name], verdict.misses)
    yield from (missed, misses)
    if host.optimiser is not None:
        outcomes = Counter(one.outcome for one in host.optimiser.decisions)
        decisions = GaugeMetricFamily("millstream_optimiser_decisions", "The last decisions of the optimiser", labels=["outcome"])
        for outcome in DecisionOutcome:
            decisions.add_metric([outcome.value], outcomes[outcome])
        yield decisions


def _measured_families(host: EngineHost, measured: MeasuresSnapshot) -> Iterator[Any]:
    """Yield the families of every query, of every class, and of the scheduler as a whole."""
    queries = [(q.name, report) for q in host.queries if (report := measured.of_query(q)) is not None and report.outputs]
    yield from _outputs("query", queries)
    classes = [(name, measured.of_class(node.id)) for name, node in host.class_nodes.items()]
    yield from _outputs("class", [(name, report) for name, report in classes if report is not None and report.outputs])
    whole = measured.report
    yield GaugeMetricFamily("millstream_queue_bytes_max", "Greatest number of bytes in queues", value=whole.memory_bytes_max)
    yield GaugeMetricFamily("millstream_queue_bytes_mean", "Bytes in queues, averaged over time", value=whole.memory_bytes_mean)
    yield GaugeMetricFamily("millstream_scheduler_deciding_share", "Share of time spent deciding", value=whole.scheduling_share)


def _outputs(kind: str, reports: list[tuple[str, OutputReport]]) -> Iterator[Any]:
    stem = f"millstream_{kind}"
    latency = GaugeMetricFamily(f"{stem}_latency_seconds", "Latency of results since the query began", labels=[kind, "quantile"])
    total = CounterMetricFamily(f"{stem}_latency_seconds_sum", "Sum of the latencies of results", labels=[kind])
    count = CounterMetricFamily(f"{stem}_latency_results", "Results whose latency was measured", labels=[kind])
    missed = CounterMetricFamily(f"{stem}_missed_deadlines", "Results later than where utility begins to fall", labels=[kind])
    slowdown = GaugeMetricFamily(f"{stem}_slowdown", "Mean slowdown: latency by ideal processing time", labels=[kind])
    utility = GaugeMetricFamily(f"{stem}_utility", "Mean utility of results", labels=[kind])
    staleness = GaugeMetricFamily(f"{stem}_staleness", "Share of time in which a waiting row would give a result", labels=[kind])
    for name, report in reports:
        for quantile, field in _QUANTILES:
            latency.add_metric([name, quantile], getattr(report, field) / 1e3)
        total.add_metric([name], report.response_ms_mean * report.outputs / 1e3)
        count.add_metric([name], report.outputs)
        missed.add_metric([name], report.missed_deadlines)
        for family, value in ((slowdown, report.slowdown_mean), (utility, report.utility), (staleness, report.staleness)):
            family.add_metric([name], value)
    yield from (latency, total, count, missed, slowdown, utility, staleness)


def _load_families(host: EngineHost, loads: Mapping[ClassId, ClassLoad]) -> Iterator[Any]:
    """Yield a family for each of the values, by class."""
    known = [(name, loads[node.id]) for name, node in host.class_nodes.items() if node.id in loads]
    for name, words, field in _LOAD_FAMILIES:
        family = GaugeMetricFamily(f"millstream_class_{name}", words, labels=["class"])
        for class_name, one in known:
            family.add_metric([class_name], getattr(one, field))
        yield family
