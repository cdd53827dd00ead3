"""Metrics for Prometheus, read when they are asked for: nothing on the hot path keeps them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from millstream.engine.data.graph import ClassId
from millstream.scheduler.load.contract import ClassLoad
from millstream.server.host.worths import failures_of_shed_by
from millstream.server.net.http import Page
from millstream.server.watch.load_families import load_families
from millstream.server.watch.measured import Measured
from millstream.server.watch.measured_families import measured_families
from millstream.server.watch.target_families import target_families
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from millstream.server.app import Application

TEXT = "text/plain; version=0.0.4; charset=utf-8"
_ACCOUNT = ("accepted", "processed", "late", "partly_late", "shed", "failed", "failed_results")


def pages(collector: ApplicationCollector) -> dict[str, Page]:
    """Return the pages of the metrics port."""
    registry = CollectorRegistry()
    registry.register(collector)
    application = collector.application
    return {
        "/metrics": lambda: (200, TEXT, generate_latest(registry)),
        "/healthz": lambda: (503, "text/plain", b"broken\n") if application.broken else (200, "text/plain", b"ok\n"),
        "/readyz": lambda: (200, "text/plain", b"ready\n") if application.ready else (503, "text/plain", b"not ready\n"),
    }


class ApplicationCollector:
    """Turns the server's own counts into metric families."""

    def __init__(self, application: Application) -> None:
        self.application = application
        self._measured: Measured | None = None
        self._loads: Mapping[ClassId, ClassLoad] = {}

    async def measure(self) -> None:
        """Get the scheduler's measures, off the loop: the scheduler answers between two decisions."""
        self._measured = await asyncio.to_thread(self.application.host.runtime.measures)
        self._loads = await asyncio.to_thread(self.application.host.runtime.loads)

    def describe(self) -> list[Any]:
        """Nothing ahead of time: families depend on what there is."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield all families."""
        yield from self._server()
        yield from self._streams()
        yield from self._queries()
        yield from self._scheduler()
        yield from target_families(self.application.host)
        if self._measured is not None:
            yield from measured_families(self.application.host, self._measured)
            yield from load_families(self.application.host, self._loads)

    def _server(self) -> Iterator[Any]:
        application = self.application
        yield GaugeMetricFamily("millstream_connections", "Open connections", value=len(application.sessions))
        subscriptions = sum(len(f.feed.subscriptions) for f in application.feeds.values())
        yield GaugeMetricFamily("millstream_subscriptions", "Open subscriptions", value=subscriptions)
        yield GaugeMetricFamily(
            "millstream_results_waiting", "Result trains not yet handed to subscriptions", value=application.bridge.waiting
        )
        yield CounterMetricFamily(
            "millstream_slow_consumer", "Subscribers cut off, or gaps told, for slowness", value=application.slow_total
        )
        yield CounterMetricFamily(
            "millstream_conservation_broken", "Accounts that did not balance (K10)", value=application.unbalanced_total
        )

    def _streams(self) -> Iterator[Any]:
        accepted = CounterMetricFamily("millstream_stream_accepted", "Rows let in", labels=["stream"])
        refused = CounterMetricFamily("millstream_stream_refused", "Rows refused at ingest", labels=["stream"])
        skew = CounterMetricFamily("millstream_stream_future_skew", "Rows too far ahead of the clock", labels=["stream"])
        shed = CounterMetricFamily("millstream_stream_shed", "Rows dropped before the queries of a class", labels=["stream", "class"])
        names = {node.id: name for name, node in self.application.host.class_nodes.items()}
        for name, intake in list(self.application.host.intakes.items()):
            lost: dict[str, int] = {}
            for (class_id, _), log in list(self.application.host.network.sources[name].shed_logs.items()):
                lost[names[class_id]] = lost.get(names[class_id], 0) + log.shed
            for class_name, rows in lost.items():
                shed.add_metric([name, class_name], rows)
            accepted.add_metric([name], intake.accepted_total)
            refused.add_metric([name], intake.refused_total)
            skew.add_metric([name], self.application.host.network.sources[name].future_skew)
        yield from (accepted, refused, skew, shed)

    def _queries(self) -> Iterator[Any]:
        host = self.application.host
        families = {
            n: CounterMetricFamily(f"millstream_query_{n}", f"Input rows {n.replace('_', ' ')}", labels=["query"]) for n in _ACCOUNT
        }
        queued = GaugeMetricFamily("millstream_query_queued", "Input rows waiting", labels=["query"])
        results = CounterMetricFamily("millstream_query_results", "Result rows", labels=["query"])
        unworthy = CounterMetricFamily("millstream_query_shed_by_failed", "Rows at which the query's shed_by failed", labels=["query"])
        for query in host.queries:
            counts = host.counts(query)
            unworthy.add_metric([query.name], failures_of_shed_by(host, query)[0])
            for name in _ACCOUNT:
                families[name].add_metric([query.name], counts.get(name, 0))
            queued.add_metric([query.name], counts.get("queued", 0))
            found = self.application.feeds.get(query.name)
            results.add_metric([query.name], 0 if found is None else found.feed.log.rows_total)
        yield from (*families.values(), queued, results, unworthy)

    def _scheduler(self) -> Iterator[Any]:
        statistics = self.application.host.runtime.statistics()
        yield CounterMetricFamily("millstream_scheduler_decisions", "Decisions taken", value=statistics.decisions)
        yield CounterMetricFamily(
            "millstream_policy_failures", "Policies that failed and gave way to round-robin", value=self.application.policies_failed
        )
        yield CounterMetricFamily("millstream_scheduler_orders", "Work orders given out", value=statistics.orders)
        yield CounterMetricFamily("millstream_scheduler_busy_seconds", "Time spent in operators", value=statistics.busy_ns / 1e9)
        yield GaugeMetricFamily("millstream_scheduler_rows_waiting", "Rows in all queues", value=statistics.rows_waiting)
