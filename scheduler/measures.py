"""What the papers measure, the same live and simulated, in bounded memory (Sharaf 2007, 3.1 and 4.1; Carney 2005, 3.2; Pajjuri 2004, 6.1).

response time   R = D - A of an emitted tuple (filtered ones do not count). A is when the item arrived that caused it: of a joined one the
                later parent, of a window the item that moved W past its end, of an as-of join the one that made the answer certain
slowdown        H = R / T_k, for a joined tuple 1 + (D - (A + T_k)) / T_k, which is the same
tardiness       max(0, D - deadline) of a windowed aggregate; the deadline is the SLIDE boundary after A
staleness       share of time in which an input tuple that will give an output waits: the union of [A, D) over the outputs
utility         of the QoS graph at R; averaged per tuple, and per application (first per application, then over them)
memory          bytes in queues over time: greatest, and mean weighted by time
throughput      outputs of each second: mean and standard deviation
loss            share of tuples shed, per class

The columns are computed in `outputs`; here they are gathered. An output costs a live scheduler four appends: some hundreds are kept per
query and then counted together.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from millstream.engine.data.graph import NS_PER_S, ClassId, OperatorId, QueryId, QueryNode
from millstream.engine.data.records import dataclass
from millstream.engine.data.work import RUN_FIELDS, ChainRuns, Emission
from millstream.scheduler import outputs
from millstream.scheduler.histogram import Histogram
from millstream.scheduler.outputs import Staleness
from millstream.scheduler.qos import late_from_ns, utilities
from numpy.typing import NDArray

_WAITING_MAX: Final = 256
"""Outputs of a query that wait to be counted together: NumPy's own cost is shared by them, and they take 8 KiB."""

_KEPT_A_QUERY: Final = 256
"""Results a query, on average, that wait to be given to theirs, so that NumPy sorts them: of one query it is done in half a millisecond."""

_KEPT_MAX: Final = 4_096
"""Results of all queries that wait for that at most."""

_FEW_ARRIVALS: Final = 64
"""Arrivals of one call's results up to which they are kept likewise; more are given to the queries at once."""

_IDEALS_MAX: Final = 64
"""Changes of the ideal times among those that wait; queries' times change with the estimates, some times a second."""

_LEFT_MAX: Final = 256
"""Queries that have left whose report can still be had."""


class OutputSums:
    """Sums over outputs. Times in ns."""

    __slots__ = ("missed", "response_ns", "slowdown", "tardiness_ns", "utility_total")

    def __init__(self) -> None:
        self.response_ns = Histogram()
        self.slowdown = Histogram(1e-3)
        self.tardiness_ns = Histogram()
        self.utility_total = 0.0
        self.missed = 0

    def merge(self, other: OutputSums) -> None:
        """Count everything that another one counted."""
        self.response_ns.merge(other.response_ns)
        self.slowdown.merge(other.slowdown)
        self.tardiness_ns.merge(other.tardiness_ns)
        self.utility_total += other.utility_total
        self.missed += other.missed

    def copy(self) -> OutputSums:
        """Return one that counts on by itself."""
        found = OutputSums()
        found.merge(self)
        return found

    @property
    def utility(self) -> float:
        """Mean utility of the outputs, 0 when there are none."""
        return self.utility_total / self.response_ns.count if self.response_ns.count else 0.0

    def report(self, staleness: float) -> OutputReport:
        """Return the measures of these outputs."""
        response, slowdown, tardiness, milli = self.response_ns, self.slowdown, self.tardiness_ns, 1e-6
        return OutputReport(
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
            tardiness_ms_max=tardiness.maximum * milli,
            staleness=staleness,
            utility=self.utility,
            missed_deadlines=self.missed,
        )


class QueryMeasures:
    """One query's outputs. The last ones wait in columns (arrival, finish, rows, ideal time) until `settle` counts them."""

    __slots__ = ("_arrivals", "_counts", "_epoch_ns", "_finished", "_ideals", "_late_from_ns", "identity", "query", "staleness", "tally")

    def __init__(self, query: QueryNode, epoch_ns: int = 0) -> None:
        self.query, self.identity = query, query.id
        self._epoch_ns = epoch_ns
        self.tally = OutputSums()
        self.staleness = Staleness()
        self._late_from_ns = late_from_ns(query.qos)
        self._clear()

    def _clear(self) -> None:
        self._arrivals, self._finished, self._counts, self._ideals = array("q"), array("q"), array("q"), array("d")

    def copy(self) -> QueryMeasures:
        """Return one that counts on by itself; what waits is counted there anew, so that copying takes microseconds."""
        found = QueryMeasures(self.query, self._epoch_ns)
        found.tally, found.staleness = self.tally.copy(), self.staleness.copy()
        found._arrivals, found._finished, found._counts, found._ideals = (
            self._arrivals[:], self._finished[:], self._counts[:], self._ideals[:]
        )  # fmt: skip
        return found

    def emitted(self, emission: Emission, ideal_ns: float) -> None:
        """Note the results of a call."""
        count = len(emission.arrivals_ns)
        self.add(emission.arrivals_ns, (emission.finished_ns,) * count, emission.counts, (ideal_ns,) * count)

    def add(self, arrivals_ns: Iterable[int], finished_ns: Iterable[int], counts: Iterable[int], ideals_ns: Iterable[float]) -> None:
        """Note results: their arrivals, when they left, how many of each, and the ideal times that held then."""
        self._arrivals.extend(arrivals_ns)
        self._finished.extend(finished_ns)
        self._counts.extend(counts)
        self._ideals.extend(ideals_ns)
        if len(self._arrivals) >= _WAITING_MAX:
            self.settle()

    def add_columns(
        self, arrivals_ns: NDArray[np.int64], finished_ns: NDArray[np.int64], counts: NDArray[np.int64], ideals_ns: NDArray[np.float64]
    ) -> None:
        """Do the same with columns."""
        self._arrivals.frombytes(arrivals_ns.tobytes())
        self._finished.frombytes(finished_ns.tobytes())
        self._counts.frombytes(counts.tobytes())
        self._ideals.frombytes(ideals_ns.tobytes())
        if len(self._arrivals) >= _WAITING_MAX:
            self.settle()

    def settle(self) -> None:
        """Count what waits."""
        if not self._arrivals:
            return
        arrival, finished = np.frombuffer(self._arrivals, np.int64), np.frombuffer(self._finished, np.int64)
        count, ideal = np.frombuffer(self._counts, np.int64), np.frombuffer(self._ideals, np.float64)
        self._clear()
        response = outputs.responses_ns(arrival, finished)
        self._count(response, count, outputs.slowdowns(response, ideal))
        if self.query.period_ns:
            late = outputs.tardiness_ns(arrival + self._epoch_ns, finished + self._epoch_ns, self.query.period_ns)
            self.tally.tardiness_ns.add_many(late.astype(np.float64), count)
        _, begin, end = outputs.unions(np.zeros(len(arrival), np.int64), arrival, finished)
        self.staleness.add_many(begin, end)

    def _count(self, response: NDArray[np.int64], count: NDArray[np.int64], slowdown: NDArray[np.float64]) -> None:
        tally, latencies = self.tally, response.astype(np.float64)
        tally.response_ns.add_many(latencies, count)
        known = np.isfinite(slowdown)  # T_k is not known before anything of the query has been measured
        tally.slowdown.add_many(slowdown[known], count[known])
        tally.utility_total += float((utilities(self.query.qos, latencies) * count).sum())
        tally.missed += int(count[response > self._late_from_ns].sum())


class Measures:
    """Takes emissions, samples of memory and counts of shed tuples in. Outputs of queries that left still count for their class."""

    def __init__(self, start_ns: int = 0, epoch_ns: int = 0) -> None:
        self.start_ns = start_ns
        self.epoch_ns = epoch_ns
        """What a time of this clock is short of the time since 1970: boundaries of SLIDE are multiples of it there."""
        self.queries: dict[QueryId, QueryMeasures] = {}
        self.left: dict[QueryId, OutputReport] = {}
        """The last reports of queries that left, the latest some hundred."""
        self.scheduling_ns = 0
        """Time spent deciding, told by whoever drives the core."""
        self._left_of_class: dict[ClassId, OutputSums] = {}
        self._left_utility: tuple[float, int] = (0.0, 0)  # sum over queries that left with outputs, and their number
        self._of_root: dict[OperatorId, list[QueryMeasures]] = {}
        self._kept = array("q")  # results that are not yet given to their queries, as `ChainRuns.taken` has them
        self._kept_roots = array("q")  # the operator where each left
        self._kept_max = _KEPT_A_QUERY
        self._ideals: list[tuple[int, dict[QueryId, float]]] = []  # from which of those on which ideal times hold
        self._ideal_version = -1
        self._memory_max = 0
        self._memory_area = 0.0
        self._memory_last: tuple[int, int] = (start_ns, 0)
        self._begin_second(start_ns // NS_PER_S)
        self._second_outputs = self._previous_outputs = 0
        self._seconds = 0
        self._outputs_sum = self._outputs_square = 0.0  # of the seconds before the previous one
        self._arrived: dict[ClassId, int] = {}
        self._shed: dict[ClassId, int] = {}

    def query_came(self, query: QueryNode) -> None:
        """Begin to measure a query."""
        self._hand_out()
        one = self.queries[query.id] = QueryMeasures(query, self.epoch_ns)
        self._of_root.setdefault(query.root, []).append(one)

    def query_left(self, query: QueryId, now_ns: int) -> None:
        """Stop measuring a query; its outputs stay in the sums of its class."""
        self._hand_out()
        one = self.queries.pop(query)
        self._of_root[one.query.root].remove(one)
        if not self._of_root[one.query.root]:
            del self._of_root[one.query.root]
        one.settle()
        self.left[query] = one.tally.report(self._staleness(one, now_ns))
        if len(self.left) > _LEFT_MAX:
            del self.left[next(iter(self.left))]
        self._left_of_class.setdefault(one.query.class_id, OutputSums()).merge(one.tally)
        if one.tally.response_ns.count:
            self._left_utility = (self._left_utility[0] + one.tally.utility, self._left_utility[1] + 1)

    def take_over(self, query: QueryId, by: QueryId) -> None:
        """Go on measuring a query under the id of the plan that has replaced its first one, which may leave now without a trace."""
        self._hand_out()
        one, other = self.queries.pop(query), self.queries[by]
        for root in (one.query.root, other.query.root):
            self._of_root[root] = [found for found in self._of_root[root] if found is not one and found is not other]
            if not self._of_root[root]:
                del self._of_root[root]
        one.query, one.identity = other.query, other.identity
        self.queries[by] = one
        self._of_root.setdefault(one.query.root, []).append(one)

    def latency_sums(self, queries: Iterable[QueryId]) -> dict[QueryId, tuple[int, float]]:
        """Return how many results these queries in force have given, and the sums of their latencies in ns."""
        self._hand_out()
        found: dict[QueryId, tuple[int, float]] = {}
        for query in queries:
            one = self.queries.get(query)
            if one is not None:
                one.settle()
                found[query] = (one.tally.response_ns.count, one.tally.response_ns.total)
        return found

    def follow(self, query: QueryId, node: QueryNode | None, now_ns: int) -> None:
        """A query came into force (with its description), left (None), or its change was refused. Time counts from the first on."""
        if node is not None and query not in self.queries:
            if not self.queries and not self.left and not self._memory_max:
                self.start_ns = now_ns
                self._begin_second(now_ns // NS_PER_S)
                self._memory_last = (now_ns, 0)
            self.query_came(node)
        elif node is None and query in self.queries:
            self.query_left(query, now_ns)

    def emitted(self, emissions: Sequence[Emission], ideal_of_query: Mapping[QueryId, float], version: int | None = None) -> None:
        """Count the results that left at roots, told in the order in which they left. `version` as in `passed`; None: not known."""
        for emission in emissions:
            self._count(emission.finished_ns, emission.rows)
            if 0 < len(emission.arrivals_ns) <= _FEW_ARRIVALS:
                self._follow_ideals(ideal_of_query, version)
                for arrival_ns, count in zip(emission.arrivals_ns, emission.counts, strict=True):
                    self._kept.extend((0, 0, 0, 0, emission.finished_ns, arrival_ns, count))
                    self._kept_roots.append(emission.operator)
                continue
            self._hand_out()
            for one in self._of_root.get(emission.operator, ()):
                one.emitted(emission, ideal_of_query.get(one.identity, math.nan))
        if len(self._kept_roots) >= self._kept_max:
            self._hand_out()

    def _follow_ideals(self, ideal_of_query: Mapping[QueryId, float], version: int | None) -> None:
        """Remember which ideal times hold for results that are kept from now on."""
        if version is None or version != self._ideal_version:
            if len(self._ideals) >= _IDEALS_MAX:
                self._hand_out()
            self._ideal_version = -1 if version is None else version
            self._ideals.append((len(self._kept_roots), dict(ideal_of_query)))

    def passed(self, runs: ChainRuns, ideal_of_query: Mapping[QueryId, float], version: int) -> int:
        """Count the results of runs of chains, told in the order in which they left; return their number.

        `version` tells whether `ideal_of_query` may be another than the last time. Many are kept until they are given to their queries.
        """
        if version != self._ideal_version:
            self._follow_ideals(ideal_of_query, version)
        taken, shapes = runs.taken, runs.shapes
        if len(shapes) == 1 and self._second_start_ns <= taken[4] < self._second_end_ns:
            rows = taken[6]
            self._second_outputs += rows
            self._kept_roots.append(shapes[0].operators[-1])
        else:
            rows = self._count_by_second(taken)
            self._kept_roots.extend([shape.operators[-1] for shape in shapes])
        self._kept.extend(taken)
        if len(self._kept_roots) >= self._kept_max:
            self._hand_out()
        return rows

    def _count_by_second(self, taken: array[int]) -> int:
        counts = taken[6::RUN_FIELDS]
        rows = sum(counts)
        if self._second_start_ns <= taken[4] and taken[4 - RUN_FIELDS] < self._second_end_ns:
            self._second_outputs += rows
        else:
            for finished_ns, count in zip(taken[4::RUN_FIELDS], counts, strict=True):
                self._count(finished_ns, count)
        return rows

    def _hand_out(self) -> None:
        """Give the results that are kept to their queries."""
        self._kept_max = max(_KEPT_A_QUERY, min(_KEPT_MAX, _KEPT_A_QUERY * len(self.queries)))
        if not self._kept_roots:
            return
        roots, results = np.frombuffer(self._kept_roots, np.int64), np.frombuffer(self._kept, np.int64).reshape(-1, RUN_FIELDS)[:, 4:7]
        self._kept, self._kept_roots = array("q"), array("q")
        ideals, self._ideals = self._ideals, [(0, self._ideals[-1][1])]
        held = np.searchsorted(np.array([first for first, _ in ideals]), np.arange(len(roots)), side="right") - 1
        kept = np.flatnonzero(results[:, 2])
        kept = kept[np.argsort(roots[kept], kind="stable")]
        roots, results, held = roots[kept], results[kept], held[kept]
        bounds = np.flatnonzero(np.concatenate(([True], roots[1:] != roots[:-1], [True]))).tolist() if len(roots) else [0]
        for first, last in pairwise(bounds):
            finished, arrivals, counts = results[first:last].T
            versions = held[first:last]
            few = last - first <= len(ideals)
            valid = [ideals[version][1] for version in (versions.tolist() if few else range(len(ideals)))]
            for one in self._of_root.get(OperatorId(int(roots[first])), ()):
                times = np.array([ideal_of.get(one.identity, math.nan) for ideal_of in valid], dtype=np.float64)
                one.add_columns(arrivals, finished, counts, times if few else times[versions])

    def _count(self, finished_ns: int, rows: int) -> None:
        """Count outputs in the second in which they left. The one before stays open, as orders of several workers end in any order."""
        if finished_ns >= self._second_end_ns:
            self._next_second(finished_ns // NS_PER_S)
        if finished_ns >= self._second_start_ns:
            self._second_outputs += rows
        else:
            self._previous_outputs += rows

    def _next_second(self, second: int) -> None:
        passed = second - self._second
        if passed <= 0:
            return
        self._seconds += passed
        done = (self._previous_outputs,) if passed == 1 else (self._previous_outputs, self._second_outputs)
        self._outputs_sum += sum(done)
        self._outputs_square += sum(outputs * outputs for outputs in done)
        self._previous_outputs, self._second_outputs = self._second_outputs if passed == 1 else 0, 0
        self._begin_second(second)

    def _begin_second(self, second: int) -> None:
        self._second, self._second_start_ns, self._second_end_ns = second, second * NS_PER_S, (second + 1) * NS_PER_S

    def sample_memory(self, now_ns: int, size_bytes: int) -> None:
        """Note the bytes in queues from now on."""
        last_ns, last_bytes = self._memory_last
        if now_ns > last_ns:
            self._memory_area += float(last_bytes) * (now_ns - last_ns)
            last_ns = now_ns
        self._memory_last = (last_ns, size_bytes)
        if size_bytes > self._memory_max:
            self._memory_max = size_bytes

    def arrived(self, class_id: ClassId, rows: int, shed: int) -> None:
        """Count tuples of a class that came in, and how many of them were shed."""
        self._arrived[class_id] = self._arrived.get(class_id, 0) + rows
        self._shed[class_id] = self._shed.get(class_id, 0) + shed

    # ---- reports

    def copy(self) -> Measures:
        """Return everything measured so far, so that another thread can make reports of it."""
        self._hand_out()
        found = Measures(self.start_ns, self.epoch_ns)
        found.scheduling_ns, found._left_utility = self.scheduling_ns, self._left_utility
        found._memory_max, found._memory_area, found._memory_last = self._memory_max, self._memory_area, self._memory_last
        found._begin_second(self._second)
        found._second_outputs, found._previous_outputs, found._seconds = self._second_outputs, self._previous_outputs, self._seconds
        found._outputs_sum, found._outputs_square = self._outputs_sum, self._outputs_square
        found._arrived, found._shed, found.left = dict(self._arrived), dict(self._shed), dict(self.left)
        for class_id, tally in self._left_of_class.items():
            found._left_of_class[class_id] = tally.copy()
        found.queries = {query: one.copy() for query, one in self.queries.items()}
        return found

    def _staleness(self, one: QueryMeasures, now_ns: int) -> float:
        return one.staleness.stale_ns / max(1, now_ns - self.start_ns)

    def of_queries(self, now_ns: int) -> dict[QueryId, OutputReport]:
        """Return the measures of every query in force, and of the last ones that left."""
        self._hand_out()
        found = dict(self.left)
        for query, one in self.queries.items():
            one.settle()
            found[query] = one.tally.report(self._staleness(one, now_ns))
        return found

    def of_classes(self, now_ns: int) -> dict[ClassId, OutputReport]:
        """Return the measures of every class that has or had queries; staleness is the mean over those in force."""
        self._hand_out()
        members: dict[ClassId, list[QueryMeasures]] = {one: [] for one in self._left_of_class}
        for query in self.queries.values():
            query.settle()
            members.setdefault(query.query.class_id, []).append(query)
        return {one: self._of_class(one, queries, now_ns) for one, queries in members.items()}

    def _of_class(self, class_id: ClassId, queries: list[QueryMeasures], now_ns: int) -> OutputReport:
        tally = _sum([one.tally for one in queries])
        if class_id in self._left_of_class:
            tally.merge(self._left_of_class[class_id])
        stale = sum(self._staleness(one, now_ns) for one in queries)
        return tally.report(stale / max(1, len(queries)))

    def report(self, now_ns: int) -> MeasuresReport:
        """Return everything measured up to now."""
        self._hand_out()
        self.sample_memory(now_ns, self._memory_last[1])
        self._next_second(now_ns // NS_PER_S)
        for one in self.queries.values():
            one.settle()
        stale = [(self._staleness(one, now_ns), one.query.weight) for one in self.queries.values()]
        active = [one.tally for one in self.queries.values() if one.tally.response_ns.count]
        left_utility, left = self._left_utility
        elapsed = max(1, now_ns - self.start_ns)
        seconds, previous = max(1, self._seconds), self._previous_outputs
        mean = (self._outputs_sum + previous) / seconds
        return MeasuresReport(
            output=_sum([*active, *self._left_of_class.values()]).report(sum(share for share, _ in stale) / max(1, len(stale))),
            staleness_weighted=sum(share * weight for share, weight in stale) / (sum(weight for _, weight in stale) or 1.0),
            utility_per_application=(sum(one.utility for one in active) + left_utility) / max(1, len(active) + left),
            memory_bytes_mean=self._memory_area / elapsed,
            memory_bytes_max=self._memory_max,
            throughput_mean=mean,
            throughput_deviation=math.sqrt(max(0.0, (self._outputs_square + previous * previous) / seconds - mean * mean)),
            scheduling_share=self.scheduling_ns / elapsed,
            loss_share={one: self._shed[one] / rows if rows else 0.0 for one, rows in self._arrived.items()},
        )


def _sum(tallies: Iterable[OutputSums]) -> OutputSums:
    found = OutputSums()
    for one in tallies:
        found.merge(one)
    return found


@dataclass(frozen=True, slots=True)
class OutputReport:
    """Measures of the outputs of one query, of a class, or of all."""

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
    tardiness_ms_max: float
    staleness: float
    utility: float
    missed_deadlines: int


@dataclass(frozen=True, slots=True)
class MeasuresReport:
    """All measures at one moment. `output` is about all outputs together: its utility is the average per tuple, its staleness that
    over queries. `scheduling_share` is the share of elapsed time spent deciding.
    """

    output: OutputReport
    staleness_weighted: float
    utility_per_application: float
    memory_bytes_mean: float
    memory_bytes_max: int
    throughput_mean: float
    throughput_deviation: float
    scheduling_share: float
    loss_share: Mapping[ClassId, float]
