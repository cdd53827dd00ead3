"""The cost model: universal boxes with a cost and a selectivity instead of code (Carney 2005, 4.1; Sharaf 2007, 3.8).

A call of a box on n tuples takes `call_ns` + `cost_ns` · n. A tuple of identity i leaves box x as floor(s) or floor(s) + 1 tuples,
decided by a seeded hash of (seed, x, i): what comes out does not depend on policy, train or workers. A join with a window pairs its
inputs: the pair (i, j) of tuples that arrived within the window of each other joins when the hash of (seed, x, i, j) says so.
A result carries the arrival time of its tuple, a joined one the later of its parents'.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from heapq import heapify, heappop, heappush

import numpy as np
from millstream.engine.data.graph import EdgeId, GraphDelta, LogId, OperatorId, OperatorNode
from millstream.engine.data.records import dataclass
from millstream.engine.data.work import EdgeCount, EdgeStart, Emission, LogCount, Step, StepReceipt, WorkOrder, WorkReceipt
from millstream.scheduler.events import Arrived
from millstream.scheduler.hashing import MASK, mix, mix_many, salt, uniform
from millstream.scheduler.instructions import ClockNs, Splice

Tuple = tuple[int, int]
"""Arrival in ns, identity."""

_TRIM_ROWS = 4_096

# From so many partners or tuples on, hashing them in columns is quicker than one by one.
_VECTOR_MIN = 48


@dataclass(slots=True)
class _Log:
    rows: list[Tuple] = field(default_factory=list)
    base: int = 0
    arrived: int = 0
    readers: list[EdgeId] = field(default_factory=list)
    held_from: int = 0
    held_until_ns: int = -1
    """Rows from the position `held_from` on belong to an order that ends at this time; before it only that order sees them."""

    @property
    def end(self) -> int:
        return self.base + len(self.rows)

    def visible(self, now_ns: int) -> int:
        """Return the position up to which an order that starts now may read."""
        return min(self.held_from, self.end) if self.held_until_ns > now_ns else self.end


class _Oldest:
    """What waits before one edge, the oldest first, though a log below a union may hold tuples out of their order."""

    def __init__(self) -> None:
        self._heap: list[tuple[Tuple, int]] = []
        self._seen = 0

    def first(self, log: _Log, cursor: int, end: int, count: int) -> list[Tuple]:
        """Return up to `count` of the rows from the cursor to the end, in their order."""
        heap = self._heap
        if self._seen < cursor:
            heap.clear()  # all that it knows has been taken
            self._seen = cursor
        fresh = log.rows[self._seen - log.base : end - log.base]
        if len(fresh) > len(heap):
            heap += zip(fresh, range(self._seen, end), strict=True)
            heapify(heap)
        else:
            for entry in zip(fresh, range(self._seen, end), strict=True):
                heappush(heap, entry)
        self._seen = end
        found: list[tuple[Tuple, int]] = []
        while heap and len(found) < count:
            entry = heappop(heap)
            if entry[1] >= cursor:
                found.append(entry)
        for entry in found:
            heappush(heap, entry)
        return [row for row, _ in found]


@dataclass(slots=True)
class _Window:
    """Tuples that a join may still meet, in the order of arrival, and beside them their identities and what these are mixed to."""

    rows: list[Tuple] = field(default_factory=list)
    identities: array[int] = field(default_factory=lambda: array("Q"))
    mixed: array[int] = field(default_factory=lambda: array("Q"))

    def add(self, row: Tuple) -> None:
        """Put a tuple where it belongs."""
        place = bisect_right(self.rows, row)
        self.rows.insert(place, row)
        self.identities.insert(place, row[1])
        self.mixed.insert(place, mix(row[1]))


@dataclass(slots=True)
class _Pairs:
    """Tuples that a call of a join meets, with their partners, and what of both is mixed."""

    rows: list[Tuple] = field(default_factory=list)
    partners: list[Tuple] = field(default_factory=list)
    own: array[int] = field(default_factory=lambda: array("Q"))
    other: array[int] = field(default_factory=lambda: array("Q"))

    def joined(self, operator_salt: int, bound: int) -> list[Tuple]:
        """Return what comes of the pairs that the hash lets through, in their order."""
        if len(self.rows) < _VECTOR_MIN:
            mixed = [mix(operator_salt ^ mix(own ^ other)) for own, other in zip(self.own, self.other, strict=True)]
            through = [(place, one) for place, one in enumerate(mixed) if one <= bound]
        else:
            inner = np.frombuffer(self.own, dtype=np.uint64) ^ np.frombuffer(self.other, dtype=np.uint64)
            every = mix_many(np.uint64(operator_salt) ^ mix_many(inner))
            places = (every <= np.uint64(bound)).nonzero()[0]
            through = list(zip(places.tolist(), every[places].tolist(), strict=True))
        return [(max(self.rows[place][0], self.partners[place][0]), one) for place, one in through]


class BoxExecutor:
    """Runs orders on modelled queues. `rows_emitted` counts results at roots."""

    def __init__(self, seed: int = 1) -> None:
        self.seed = seed
        self.rows_emitted = 0
        self._nodes: dict[OperatorId, OperatorNode] = {}
        self._salts: dict[OperatorId, int] = {}
        self._logs: dict[LogId, _Log] = {}
        self._edge_log: dict[EdgeId, _Log] = {}
        self._cursors: dict[EdgeId, int] = {}
        self._roots: dict[OperatorId, int] = {}
        self._windows: dict[EdgeId, _Window] = {}
        self._oldest: dict[EdgeId, _Oldest] = {}
        self._started_ns = 0
        self._arrived = 0
        self._ratios: dict[LogId, float] = {}
        self._written: dict[LogId, tuple[_Log, int]] = {}
        self.outcomes: dict[OperatorId, Sequence[int]] = {}
        """Outcomes by arrival order for boxes whose results are prescribed instead of hashed: outputs of the 1st, 2nd … tuple."""

    # ---- the network

    def splice(self, splice: Splice) -> dict[EdgeId, EdgeStart]:
        """Carry out a change of the network; return the cursors of the new edges."""
        if splice.removed is not None:
            self._remove(splice.removed.operators)
            return {}
        assert splice.added is not None
        return self.add(splice.added)

    def add(self, delta: GraphDelta) -> dict[EdgeId, EdgeStart]:
        """Put a delta in force."""
        for node in delta.operators:
            self._nodes[node.id] = node
            self._salts[node.id] = salt(self.seed, node.id)
            for output in node.outputs:
                self._logs[output] = _Log()
        cursors = {}
        for edge in delta.edges:
            log = self._logs[edge.log]
            log.readers.append(edge.id)
            self._edge_log[edge.id] = log
            self._cursors[edge.id] = log.end
            cursors[edge.id] = EdgeStart(log.end)
        self._roots[delta.query.root] = self._roots.get(delta.query.root, 0) + 1
        return cursors

    def _remove(self, operators: tuple[OperatorId, ...]) -> None:
        for operator in operators:
            node = self._nodes.pop(operator)
            for edge in node.inputs:
                self._edge_log.pop(edge).readers.remove(edge)
                del self._cursors[edge]
                self._oldest.pop(edge, None)
            for log in node.outputs:
                del self._logs[log]
            self._roots.pop(operator, None)

    def accept(self, event: Arrived) -> Arrived:
        """Append arriving tuples; the n-th tuple of a log has the same identity under every policy.

        Which are dropped is decided as in the engine, by a hash of the seed and the arrival number, counted over all logs.
        """
        log = self._logs[event.log]
        first, number = (event.log << 40) + log.arrived, self._arrived
        log.arrived += event.rows
        self._arrived += event.rows
        kept: Sequence[int] = range(event.rows)
        ratio = self._ratios.get(event.log, 0.0)
        if ratio > 0.0:
            kept = [index for index in kept if uniform(number + index, self.seed) >= ratio]
        log.rows.extend((event.arrival_ns, first + index) for index in kept)
        shed = event.rows - len(kept)
        return event if not shed else replace(event, rows=len(kept), bytes=event.bytes * len(kept) // event.rows, shed=shed)

    def set_drop_ratio(self, log: LogId, ratio: float) -> None:
        """Drop this share of the tuples that enter the log, from now on."""
        self._ratios[log] = ratio

    # ---- orders

    def run(self, order: WorkOrder, clock_ns: ClockNs) -> WorkReceipt:
        """Do the steps; time passes by their modelled cost from the clock's present on."""
        started_ns = now_ns = self._started_ns = clock_ns()
        self._written = {}
        receipts: list[StepReceipt] = []
        emissions: list[Emission] = []
        for index, step in enumerate(order.steps):
            if order.budget_ns is not None and index and now_ns - started_ns >= order.budget_ns:
                self._hold(now_ns)
                return WorkReceipt(order.id, tuple(receipts), order.steps[index:], tuple(emissions), started_ns, now_ns)
            receipt, results = self._step(step)
            now_ns += receipt.cost_ns
            receipts.append(receipt)
            if results:
                self._emit(step.operator, results, receipt.cost_ns, now_ns, emissions)
        self._hold(now_ns)
        return WorkReceipt(order.id, tuple(receipts), (), tuple(emissions), started_ns, now_ns)

    def _hold(self, finished_ns: int) -> None:
        """What the order made is there for others when it has ended, not before: several orders may be under way."""
        for log, start in self._written.values():
            log.held_from, log.held_until_ns = start, finished_ns

    def _step(self, step: Step) -> tuple[StepReceipt, list[Tuple]]:
        node = self._nodes[step.operator]
        taken = self._take(node, step.rows_max)
        count, consumed = 0, []
        for edge, tuples in zip(node.inputs, taken, strict=True):
            rows = len(tuples)
            count += rows
            consumed.append(EdgeCount(edge, rows, int(rows * node.row_bytes_in), self._head(edge)))
        if not count:
            return StepReceipt(step.operator, tuple(consumed), (), 0), []
        cost_ns = round(node.call_ns + node.cost_ns * count)
        if node.output_selectivity:
            return StepReceipt(step.operator, tuple(consumed), self._each_output(node, taken), cost_ns), []
        results = self._join(node, taken) if node.window_ns is not None and len(taken) > 1 else self._filter(node, taken, node.selectivity)
        produced = tuple(self._append(log, results, node) for log in node.outputs) if results else ()
        emitted = results if step.operator in self._roots else []
        return StepReceipt(step.operator, tuple(consumed), produced, cost_ns), emitted

    def _take(self, node: OperatorNode, rows_max: int | None) -> list[list[Tuple]]:
        if len(node.inputs) == 1:
            return [self._advance(node.inputs[0], rows_max)]
        if rows_max is not None and sum(map(self._waiting, node.inputs)) > rows_max:
            oldest = sorted((row, port) for port, edge in enumerate(node.inputs) for row in self._first(edge, rows_max))
            counts = Counter(port for _, port in oldest[:rows_max])
            return [self._advance(edge, counts[port]) for port, edge in enumerate(node.inputs)]
        return [self._advance(edge, None) for edge in node.inputs]

    def _waiting(self, edge: EdgeId) -> int:
        return self._edge_log[edge].visible(self._started_ns) - self._cursors[edge]

    def _first(self, edge: EdgeId, count: int) -> list[Tuple]:
        log = self._edge_log[edge]
        return self._oldest.setdefault(edge, _Oldest()).first(log, self._cursors[edge], log.visible(self._started_ns), count)

    def _advance(self, edge: EdgeId, rows_max: int | None) -> list[Tuple]:
        log, cursor = self._edge_log[edge], self._cursors[edge]
        start, end = cursor - log.base, log.visible(self._started_ns) - log.base
        taken = log.rows[start : end if rows_max is None else min(end, start + rows_max)]
        self._cursors[edge] = cursor + len(taken)
        if len(log.rows) > 2 * _TRIM_ROWS:
            self._trim(log)
        return taken

    def _trim(self, log: _Log) -> None:
        least = min(self._cursors[edge] for edge in log.readers)
        if least - log.base > _TRIM_ROWS:
            del log.rows[: least - log.base]
            log.base = least

    def _head(self, edge: EdgeId) -> int | None:
        log = self._edge_log[edge]
        place = self._cursors[edge] - log.base
        return log.rows[place][0] if place + log.base < log.visible(self._started_ns) else None

    def _each_output(self, node: OperatorNode, taken: list[list[Tuple]]) -> tuple[LogCount, ...]:
        """Append to each output what it gets by itself, the same tuples as far as they go."""
        made = [(log, self._filter(node, taken, share)) for log, share in zip(node.outputs, node.output_selectivity, strict=True)]
        return tuple(self._append(log, results, node) for log, results in made if results)

    def _filter(self, node: OperatorNode, taken: list[list[Tuple]], selectivity: float) -> list[Tuple]:
        rows = taken[0] if len(taken) == 1 else [row for tuples in taken for row in tuples]
        whole = int(selectivity)
        bound = int((selectivity - whole) * (MASK + 1))
        prescribed = self.outcomes.get(node.id)
        if prescribed is None:
            if whole == 1 and not bound:
                return rows
            drawn: Iterable[int] = self._drawn(node, rows, whole, bound)
        else:
            drawn = (prescribed[identity & ((1 << 40) - 1)] for _, identity in rows)
        results: list[Tuple] = []
        for row, copies in zip(rows, drawn, strict=True):
            if copies:
                results.append(row)
                if copies > 1:
                    arrival_ns, identity = row
                    results.extend((arrival_ns, mix(identity ^ copy)) for copy in range(1, copies))
        return results

    def _drawn(self, node: OperatorNode, rows: list[Tuple], whole: int, bound: int) -> list[int]:
        """Return how many tuples each of these leaves the box as."""
        operator_salt = self._salts[node.id]
        if len(rows) < _VECTOR_MIN:
            return [whole + (mix(operator_salt ^ identity) < bound) for _, identity in rows]
        mixed = mix_many(np.array([identity for _, identity in rows], dtype=np.uint64) ^ np.uint64(operator_salt))
        drawn: list[int] = (whole + (mixed < np.uint64(bound))).tolist()
        return drawn

    def _join(self, node: OperatorNode, taken: list[list[Tuple]]) -> list[Tuple]:
        assert node.window_ns is not None
        bound = min(MASK, int(node.selectivity * (MASK + 1)))
        operator_salt = self._salts[node.id]
        windows = [self._windows.setdefault(edge, _Window()) for edge in node.inputs]
        met = _Pairs()
        for row, port in sorted((row, port) for port, tuples in enumerate(taken) for row in tuples):
            partners = windows[1 - port]
            # Below a union or another join tuples may come out of arrival order, so nothing is forgotten: it may still be met.
            first = bisect_left(partners.rows, (row[0] - node.window_ns, 0))
            last = bisect_right(partners.rows, (row[0] + node.window_ns, MASK))
            if last > first:
                met.rows += [row] * (last - first)
                met.partners += partners.rows[first:last]
                # A pair is mixed as left ^ mix(right), whichever came last.
                met.own += array("Q", [mix(row[1]) if port else row[1]]) * (last - first)
                met.other += (partners.identities if port else partners.mixed)[first:last]
            windows[port].add(row)
        return met.joined(operator_salt, bound)

    def _append(self, log: LogId, results: list[Tuple], node: OperatorNode) -> LogCount:
        target = self._logs[log]
        self._written.setdefault(log, (target, target.end))
        if target.readers:
            target.rows.extend(results)
        else:
            target.base += len(results)
        oldest_ns = min(arrival_ns for arrival_ns, _ in results)
        return LogCount(log, len(results), int(len(results) * node.row_bytes_out), oldest_ns)

    def _emit(self, operator: OperatorId, results: list[Tuple], cost_ns: int, now_ns: int, emissions: list[Emission]) -> None:
        """Add the results of one call: the tuples of a train leave a root one after the other as it works through them."""
        self.rows_emitted += len(results)
        if len(results) == 1:
            emissions.append(Emission(operator, 1, now_ns, (results[0][0],), (1,)))
            return
        node = self._nodes[operator]
        each_ns = (cost_ns - node.call_ns) / len(results)
        for left, (arrival_ns, _) in enumerate(reversed(results)):
            emissions.append(Emission(operator, 1, round(now_ns - left * each_ns), (arrival_ns,), (1,)))
        emissions[-len(results) :] = reversed(emissions[-len(results) :])
