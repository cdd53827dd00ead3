"""Metric families of the targets of queries and of the optimiser's decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from millstream.scheduler.optimiser.contract import Outcome, State
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from millstream.server.host.engine_host import EngineHost


def target_families(host: EngineHost) -> Iterator[Any]:
    """Yield whether each query with a target misses it and how often it began to; decisions by their outcome."""
    missed = GaugeMetricFamily("millstream_query_target_missed", "1 while a query misses a target, else 0", labels=["query"])
    misses = CounterMetricFamily("millstream_query_target_misses", "How often a query began to miss a target", labels=["query"])
    for name, verdict in list(host.watch.verdicts.items()):
        missed.add_metric([name], float(verdict.state is State.MISSED))
        misses.add_metric([name], verdict.misses)
    yield from (missed, misses)
    if host.optimiser is not None:
        outcomes = Counter(one.outcome for one in host.optimiser.decisions)
        decisions = GaugeMetricFamily("millstream_optimiser_decisions", "The last decisions of the optimiser", labels=["outcome"])
        for outcome in Outcome:
            decisions.add_metric([outcome.value], outcomes[outcome])
        yield decisions
