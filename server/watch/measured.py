"""What was measured of outputs, by query and by class: for SHOW, EXPLAIN QOS and the metrics port."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from millstream.engine.data.graph import ClassId
from millstream.scheduler.measure_reports import MeasuresReport, OutputReport
from millstream.scheduler.measures import Measures

if TYPE_CHECKING:
    from millstream.server.host.engine_host import EngineHost
    from millstream.server.host.queries import Query

SHORT = (("results", "BIGINT"), ("latency_ms", "DOUBLE"), ("latency_p99_ms", "DOUBLE"), ("slowdown", "DOUBLE"), ("utility", "DOUBLE"))
"""Columns beside a query or a class."""

LONG = (
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


class Measured:
    """A copy of the scheduler's measures and the moment it was made; reports are made on the thread that asks."""

    def __init__(self, measures: Measures, now_ns: int) -> None:
        self._measures = measures
        self._now_ns = now_ns

    @cached_property
    def report(self) -> MeasuresReport:
        """Everything together."""
        return self._measures.report(self._now_ns)

    @cached_property
    def _queries(self) -> dict[Any, OutputReport]:
        return self._measures.of_queries(self._now_ns)

    @cached_property
    def _classes(self) -> dict[ClassId, OutputReport]:
        return self._measures.of_classes(self._now_ns)

    def of_query(self, query: Query) -> OutputReport | None:
        """Return the measures of a query's present or last run; None when it has none (any more)."""
        return self._queries.get(query.last_id)

    def of_class(self, class_id: ClassId) -> OutputReport | None:
        """Return the measures of a class, None when no query of it has run."""
        return self._classes.get(class_id)


def short(report: OutputReport | None) -> tuple[object, ...]:
    """Return the values of `SHORT`; NULL where nothing was measured."""
    if report is None:
        return (None,) * len(SHORT)
    if not report.outputs:
        return (0, *(None,) * (len(SHORT) - 1))
    return (report.outputs, report.response_ms_mean, report.response_ms_p99, report.slowdown_mean, report.utility)


def rows(host: EngineHost) -> list[tuple[object, ...]]:
    """Return the rows of SHOW MEASURES: all outputs, those of each class, those of each query, with the values of `LONG`."""
    measured = host.runtime.measures()
    if measured is None:
        return []
    found: list[tuple[object, ...]] = [("all", None, *_long(measured.report.output))]
    for name, node in host.class_nodes.items():
        report = measured.of_class(node.id)
        if report is not None:
            found.append(("class", name, *_long(report)))
    for query in host.queries:
        report = measured.of_query(query)
        if report is not None:
            found.append(("query", query.name, *_long(report)))
    return found


def _long(report: OutputReport) -> tuple[object, ...]:
    return tuple(getattr(report, field) for _, field, _ in LONG)


def system(report: MeasuresReport) -> list[tuple[str, float]]:
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
