"""Metric families of what was measured of outputs: latency, slowdown, utility, staleness, by query and by class; memory and deciding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from millstream.scheduler.measure_reports import OutputReport
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from millstream.server.host.engine_host import EngineHost
    from millstream.server.watch.measured import Measured

_QUANTILES = (("0.5", "response_ms_p50"), ("0.95", "response_ms_p95"), ("0.99", "response_ms_p99"), ("1", "response_ms_max"))


def measured_families(host: EngineHost, measured: Measured) -> Iterator[Any]:
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
