"""What the papers measure, the same live and simulated, in bounded memory (Sharaf 2007, 3.1 and 4.1; Carney 2005, 3.2; Pajjuri 2004, 6.1).

response time   R = D - A of an emitted tuple (filtered ones do not count); of a joined one A is the later parent's
slowdown        H = R / T_k, for a joined tuple 1 + (D - (A + T_k)) / T_k, which is the same
tardiness       max(0, D - deadline) of a windowed aggregate; the deadline is the SLIDE boundary after A
staleness       share of time in which an input tuple that will give an output waits: the union of [A, D) over the outputs
utility         of the QoS graph at R; averaged per tuple, and per application (first per application, then over them)
memory          bytes in queues over time: greatest, and mean weighted by time
throughput      outputs of each second: mean and standard deviation
loss            share of tuples shed, per class
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.engine.graph import NS_PER_S, ClassId, OperatorId, QueryId, QueryNode
from millstream.engine.work import Emission
from millstream.scheduler.histogram import Histogram
from millstream.scheduler.qos import first_critical_ns, utility

_GAPS_MAX = 128


class Staleness:
    """The measure of a union of intervals that come in order of their ends. Gaps are remembered as far back as bounded memory allows."""

    def __init__(self) -> None:
        self.stale_ns = 0
        self._end_ns = -(2**62)
        self._gaps: list[tuple[int, int]] = []

    def add(self, start_ns: int, end_ns: int) -> None:
        """Add [start, end)."""
        if end_ns > self._end_ns:
            begin = max(start_ns, self._end_ns)
            if begin > self._end_ns:
                self._gaps.append((self._end_ns, begin))
                del self._gaps[:-_GAPS_MAX]
            self.stale_ns += end_ns - begin
            self._end_ns = end_ns
        self._fill(start_ns, end_ns)

    def _fill(self, start_ns: int, end_ns: int) -> None:
        place = max(0, bisect_right(self._gaps, (start_ns, 0)) - 1)
        while place < len(self._gaps) and self._gaps[place][0] < end_ns:
            gap_start, gap_end = self._gaps[place]
            begin, end = max(gap_start, start_ns), min(gap_end, end_ns)
            if begin >= end:
                place += 1
                continue
            self.stale_ns += end - begin
            rest = [(low, high) for low, high in ((gap_start, begin), (end, gap_end)) if low < high]
            self._gaps[place : place + 1] = rest
            place += len(rest)


@dataclass(slots=True)
class QueryMeasures:
    """One query's outputs. Times in ns."""

    query: QueryNode
    response_ns: Histogram = field(default_factory=Histogram)
    slowdown: Histogram = field(default_factory=lambda: Histogram(1e-3))
    tardiness_ns: Histogram = field(default_factory=Histogram)
    staleness: Staleness = field(default_factory=Staleness)
    utility_total: float = 0.0
    missed: int = 0
    bend_ns: float = field(init=False)
    """The first latency at which the QoS graph bends: before it nothing is lost."""

    def __post_init__(self) -> None:
        self.bend_ns = first_critical_ns(self.query.qos)

    def emitted(self, arrival_ns: int, finished_ns: int, count: int, ideal_ns: float) -> None:
        """Count results of one arrival."""
        response = max(0, finished_ns - arrival_ns)
        self.response_ns.add(response, count)
        self.slowdown.add(response / ideal_ns, count)
        self.staleness.add(arrival_ns, finished_ns)
        self.utility_total += utility(self.query.qos, response) * count
        if response > self.bend_ns:
            self.missed += count
        if self.query.period_ns:
            deadline = (arrival_ns // self.query.period_ns + 1) * self.query.period_ns
            self.tardiness_ns.add(max(0, finished_ns - deadline), count)

    @property
    def utility(self) -> float:
        """Mean utility of the outputs, 0 when there are none."""
        return self.utility_total / self.response_ns.count if self.response_ns.count else 0.0


@dataclass(frozen=True, slots=True)
class MeasuresReport:
    """All measures at one moment; times in ms where the name says so."""

    outputs: int
    response_ms_mean: float
    response_ms_max: float
    response_ms_norm: float
    response_ms_p50: float
    response_ms_p95: float
    response_ms_p99: float
    slowdown_mean: float
    slowdown_max: float
    slowdown_norm: float
    tardiness_ms_mean: float
    staleness_mean: float
    staleness_weighted: float
    utility_per_tuple: float
    utility_per_application: float
    missed_deadlines: int
    memory_bytes_mean: float
    memory_bytes_max: int
    throughput_mean: float
    throughput_deviation: float
    scheduling_share: float
    loss_share: Mapping[ClassId, float]


class Measures:
    """Takes emissions, samples of memory and counts of shed tuples in."""

    def __init__(self, start_ns: int = 0) -> None:
        self.start_ns = start_ns
        self.queries: dict[QueryId, QueryMeasures] = {}
        self._of_root: dict[OperatorId, list[QueryMeasures]] = {}
        self._memory_max = 0
        self._memory_area = 0.0
        self._memory_last: tuple[int, int] = (start_ns, 0)
        self._second = start_ns // NS_PER_S
        self._second_outputs = 0
        self._seconds = 0
        self._outputs_sum = self._outputs_square = 0.0
        self._arrived: dict[ClassId, int] = {}
        self._shed: dict[ClassId, int] = {}
        self.scheduling_ns = 0

    def query_came(self, query: QueryNode) -> None:
        """Begin to measure a query."""
        one = self.queries[query.id] = QueryMeasures(query)
        self._of_root.setdefault(query.root, []).append(one)

    def query_left(self, query: QueryId) -> None:
        """Stop measuring a query and forget it."""
        one = self.queries.pop(query)
        self._of_root[one.query.root].remove(one)

    def follow(self, query: QueryId, node: QueryNode | None, now_ns: int) -> None:
        """A query came into force (with its description), left (None), or its change was refused. Time counts from the first on."""
        if node is not None and query not in self.queries:
            if not self.queries and not self._memory_max:
                self.start_ns, self._second = now_ns, now_ns // NS_PER_S
                self._memory_last = (now_ns, 0)
            self.query_came(node)
        elif node is None and query in self.queries:
            self.query_left(query)

    def emitted(self, emission: Emission, ideal_of_query: Mapping[QueryId, float]) -> None:
        """Count the results that left at a root."""
        self._count_seconds(emission.finished_ns, emission.rows)
        for one in self._of_root.get(emission.operator, ()):
            ideal_ns = ideal_of_query.get(one.query.id, 1.0)
            for arrival_ns, count in zip(emission.arrivals_ns, emission.counts, strict=True):
                one.emitted(arrival_ns, emission.finished_ns, count, ideal_ns)

    def _count_seconds(self, now_ns: int, outputs: int) -> None:
        second = now_ns // NS_PER_S
        if second > self._second:
            self._seconds += second - self._second
            self._outputs_sum += self._second_outputs
            self._outputs_square += self._second_outputs * self._second_outputs
            self._second_outputs = 0
            self._second = second
        self._second_outputs += outputs

    def sample_memory(self, now_ns: int, size_bytes: int) -> None:
        """Note the bytes in queues from now on."""
        last_ns, last_bytes = self._memory_last
        self._memory_area += float(last_bytes) * max(0, now_ns - last_ns)
        self._memory_last = (max(now_ns, last_ns), size_bytes)
        self._memory_max = max(self._memory_max, size_bytes)

    def arrived(self, class_id: ClassId, rows: int, shed: int) -> None:
        """Count tuples of a class that came in, and how many of them were shed."""
        self._arrived[class_id] = self._arrived.get(class_id, 0) + rows
        self._shed[class_id] = self._shed.get(class_id, 0) + shed

    def report(self, now_ns: int) -> MeasuresReport:
        """Return everything measured up to now."""
        self.sample_memory(now_ns, self._memory_last[1])
        self._count_seconds(now_ns, 0)
        response, slowdown, tardiness = Histogram(), Histogram(1e-3), Histogram()
        for one in self.queries.values():
            response.merge(one.response_ns)
            slowdown.merge(one.slowdown)
            tardiness.merge(one.tardiness_ns)
        elapsed = max(1, now_ns - self.start_ns)
        stale = [(one.staleness.stale_ns / elapsed, one.query.weight) for one in self.queries.values()]
        active = [one for one in self.queries.values() if one.response_ns.count]
        seconds, mean = max(1, self._seconds), self._outputs_sum / max(1, self._seconds)
        milli = 1e-6
        return MeasuresReport(
            outputs=response.count,
            response_ms_mean=response.average * milli,
            response_ms_max=response.maximum * milli,
            response_ms_norm=response.norm * milli,
            response_ms_p50=response.quantile(0.5) * milli,
            response_ms_p95=response.quantile(0.95) * milli,
            response_ms_p99=response.quantile(0.99) * milli,
            slowdown_mean=slowdown.average,
            slowdown_max=slowdown.maximum,
            slowdown_norm=slowdown.norm,
            tardiness_ms_mean=tardiness.average * milli,
            staleness_mean=sum(share for share, _ in stale) / max(1, len(stale)),
            staleness_weighted=sum(share * weight for share, weight in stale) / (sum(weight for _, weight in stale) or 1.0),
            utility_per_tuple=sum(one.utility_total for one in active) / max(1, response.count),
            utility_per_application=sum(one.utility for one in active) / max(1, len(active)),
            missed_deadlines=sum(one.missed for one in self.queries.values()),
            memory_bytes_mean=self._memory_area / elapsed,
            memory_bytes_max=self._memory_max,
            throughput_mean=mean,
            throughput_deviation=math.sqrt(max(0.0, self._outputs_square / seconds - mean * mean)),
            scheduling_share=self.scheduling_ns / elapsed,
            loss_share={one: self._shed[one] / rows if rows else 0.0 for one, rows in self._arrived.items()},
        )
