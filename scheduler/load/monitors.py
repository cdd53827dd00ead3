"""What load managers see: the load monitor, from statistics, and the response-time monitor (Pham 2013, II and III-B).

    L of a class = Σ over its sources of rate · Cbar        (seconds of work a second)

The rate counts what came, shed or not; Cbar is what a tuple costs from the operator that reads the source to the outputs. L is halfway
between the cycle before and this one, as a cycle is short for a slow stream. Where a class reads another one's derived stream, what lies
behind it is taken off the other one's account. The backlog is Σ rows · Cbar over its operators.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np
from millstream.engine.data.graph import ClassId, ClassNode, LogId, OperatorId
from millstream.engine.data.records import dataclass
from millstream.engine.data.work import RUN_FIELDS, ChainRuns, Emission
from millstream.scheduler.estimates import Estimates
from millstream.scheduler.ledger import Ledger
from millstream.scheduler.limits import NEVER_NS
from millstream.scheduler.load.contract import NANO, ClassCycle
from millstream.scheduler.network import NetworkModel, classes_in_use
from numpy.typing import NDArray

IntColumn = NDArray[np.int64]
FloatColumn = NDArray[np.float64]

SMOOTHED = 0.5
"""Weight of the newest cycle in L."""


class Shape:
    """What follows from the network alone: which edges bring work into which class, which operators and queries are whose."""

    def __init__(self, network: NetworkModel) -> None:
        self.version = network.version
        self.classes: dict[ClassId, ClassNode] = classes_in_use(network)
        place = {one: index for index, one in enumerate(self.classes)}
        entries: list[tuple[int, int, int, int, int]] = []
        self.logs: dict[ClassId, list[int]] = {one: [] for one in self.classes}
        for edge in sorted(network.edges.slot_of.values()):
            producer, consumer, log = network.edge_producer[edge], network.edge_consumer[edge], network.edge_log[edge]
            own, from_outside = network.node(consumer).class_id, network.is_source(producer)
            giver = own if from_outside else network.node(producer).class_id
            if not from_outside and giver == own:
                continue
            entries.append((edge, log, consumer, place[own], -1 if from_outside else place[giver]))
            if from_outside and log not in self.logs[own]:
                self.logs[own].append(log)
        columns = np.array(entries, dtype=np.int64).reshape(-1, 5).T
        self.edges, self.edge_logs, self.consumers, self.edge_class, self.giver = (column.copy() for column in columns)
        order = network.topology.order
        self.operators = np.array(order, dtype=np.int64)
        self.operator_class = np.array([place[network.node(slot).class_id] for slot in order], dtype=np.int64)
        self._queries(network, place)
        self.sheddable = {one: self._sheddable(network, node) for one, node in self.classes.items()}

    def _queries(self, network: NetworkModel, place: dict[ClassId, int]) -> None:
        self.roots: dict[OperatorId, list[int]] = {}
        classes: list[int] = []
        pairs: list[tuple[int, int]] = []
        for number, (query, slots) in enumerate(network.topology.query_slots.items()):
            node = network.queries[query]
            self.roots.setdefault(node.root, []).append(number)
            classes.append(place[node.class_id])
            pairs.extend((number, slot) for slot in slots)
        self.query_class = np.array(classes, dtype=np.int64)
        self.pair_query, self.pair_slot = np.array(pairs, dtype=np.int64).reshape(-1, 2).T

    def _sheddable(self, network: NetworkModel, node: ClassNode) -> list[int]:
        """Return the logs at which the class can be shed: those that nobody else reads."""
        if not node.may_shed:
            return []
        readers = network.log_readers
        return [log for log in self.logs[node.id] if {network.node(one).class_id for one in readers[log].consumers} == {node.id}]


@dataclass(slots=True)
class _Output:
    rows: int = 0
    response_ns: int = 0


@dataclass(slots=True)
class Came:
    """Rows that came for a class in a cycle, and how many of these were shed."""

    rows: int = 0
    shed: int = 0


@dataclass(slots=True)
class Monitors:
    """Counts through a cycle; `look` ends it."""

    ledger: Ledger
    estimates: Estimates
    began_ns: int = 0
    class_means: bool = False
    """Whether a class's response time is the mean of its results: under a policy that lets no query of a class starve for another."""
    came: dict[ClassId, Came] = field(default_factory=dict)
    _shape: Shape | None = None
    _base: dict[LogId, int] = field(default_factory=dict)
    _shed: dict[int, int] = field(default_factory=dict)
    _outputs: dict[OperatorId, _Output] = field(default_factory=dict)
    _loads: dict[ClassId, float] = field(default_factory=dict)

    @property
    def shape(self) -> Shape:
        """The shape of the network as it is."""
        network = self.ledger.network
        if self._shape is None or self._shape.version != network.version:
            self._shape = Shape(network)
        return self._shape

    def begin(self, now_ns: int) -> None:
        """Begin a cycle after a time in which nothing came."""
        self.began_ns = now_ns
        self._outputs.clear()
        self._loads.clear()
        self._note_logs()

    def _note_logs(self) -> None:
        identity, rows = self.ledger.network.logs.identity, self.ledger.log_rows
        logs = dict.fromkeys(self.shape.edge_logs.tolist())
        self._base = {identity(log): int(rows[log]) for log in logs}
        self._shed.clear()

    def shed(self, log: int, rows: int) -> None:
        """Note rows that were dropped before a log."""
        self._shed[log] = self._shed.get(log, 0) + rows

    def emitted(self, emission: Emission) -> None:
        """Note results."""
        one = self._output(emission.operator)
        one.rows += emission.rows
        finished_ns = emission.finished_ns
        for arrival_ns, count in zip(emission.arrivals_ns, emission.counts, strict=True):
            one.response_ns += (finished_ns - arrival_ns) * count

    def passed(self, runs: ChainRuns) -> None:
        """Note the results of runs of chains."""
        taken = runs.taken
        if len(runs.shapes) == 1:
            if taken[6]:
                one = self._output(runs.shapes[0].operators[-1])
                one.rows += taken[6]
                one.response_ns += (taken[4] - taken[5]) * taken[6]
            return
        results = zip(runs.shapes, taken[4::RUN_FIELDS], taken[5::RUN_FIELDS], taken[6::RUN_FIELDS], strict=True)
        for shape, finished_ns, arrival_ns, rows in results:
            if rows:
                one = self._output(shape.operators[-1])
                one.rows += rows
                one.response_ns += (finished_ns - arrival_ns) * rows

    def _output(self, operator: OperatorId) -> _Output:
        one = self._outputs.get(operator)
        if one is None:
            one = self._outputs[operator] = _Output()
        return one

    # ---- the end of a cycle

    def look(self, now_ns: int) -> list[ClassCycle]:
        """Return what the cycle showed, a class each, and begin the next."""
        self.ledger.settle()
        shape = self.shape
        loads, backlogs, responses = self._load(now_ns), self._backlog(), self._responses(now_ns)
        found = []
        for index, (one, node) in enumerate(shape.classes.items()):
            before = self._loads.get(one)
            load = max(0.0, loads.item(index))
            load = self._loads[one] = load if before is None else SMOOTHED * load + (1.0 - SMOOTHED) * before
            response_ns = responses.item(index)
            found.append(
                ClassCycle(
                    one, load, backlogs.item(index), None if np.isnan(response_ns) else response_ns, node.target_ns, bool(node.may_shed)
                )
            )
        self.began_ns = now_ns
        self._outputs.clear()
        self._note_logs()
        return found

    def _through_ns(self) -> FloatColumn:
        """Cost of a tuple of each entering edge, to the outputs."""
        shape, estimates = self.shape, self.estimates
        own = estimates.cost_ns[shape.consumers]
        factors = np.ones(len(shape.edges))
        known = shape.edges < len(estimates.edge_factor)
        factors[known] = estimates.edge_factor[shape.edges[known]]
        return own + (estimates.cost_to_end_ns[shape.consumers] - own) * factors

    def _load(self, now_ns: int) -> FloatColumn:
        shape, ledger = self.shape, self.ledger
        rows: dict[int, int] = {}
        identity = ledger.network.logs.identity
        for log in dict.fromkeys(shape.edge_logs.tolist()):
            now = int(ledger.log_rows[log])
            rows[log] = max(0, now - self._base.get(identity(log), now)) + self._shed.get(log, 0)
        self._count(rows)
        work = np.array([rows[log] for log in shape.edge_logs.tolist()], dtype=np.float64) * self._through_ns()
        work /= max(1, now_ns - self.began_ns)
        size = len(shape.classes)
        total = np.bincount(shape.edge_class, weights=work, minlength=size)
        given = shape.giver >= 0
        return np.asarray(total - np.bincount(shape.giver[given], weights=work[given], minlength=size), dtype=np.float64)

    def _count(self, rows: dict[int, int]) -> None:
        self.came = {}
        for one, logs in self.shape.logs.items():
            self.came[one] = Came(sum(rows[log] for log in logs), sum(self._shed.get(log, 0) for log in logs))

    def _can_run(self, slots: IntColumn) -> NDArray[np.bool_]:
        ledger = self.ledger
        return np.asarray((ledger.rows[slots] > 0) & (ledger.halted[slots] == 0) & (ledger.stalled[slots] == 0), dtype=np.bool_)

    def _backlog(self) -> FloatColumn:
        shape, slots = self.shape, self.shape.operators
        work = np.where(self._can_run(slots), self.ledger.rows[slots] * self.estimates.cost_to_end_ns[slots], 0.0)
        return np.asarray(np.bincount(shape.operator_class, weights=work, minlength=len(shape.classes)) * NANO, dtype=np.float64)

    def _responses(self, now_ns: int) -> FloatColumn:
        """Return the response time of each class in ns, NaN where it has none.

        It is the mean of what the class put out (Pham 2013, V), and the age of its oldest tuple where it put out nothing. Where a query can
        starve beside others of its class, which the mean would hide, it is that of the query that fares worst.
        """
        if self.class_means:
            return self._mean_responses(now_ns)
        shape, slots = self.shape, self.shape.pair_slot
        oldest = np.full(len(shape.query_class), NEVER_NS, dtype=np.int64)
        np.minimum.at(oldest, shape.pair_query, np.where(self._can_run(slots), self.ledger.head_ns[slots], NEVER_NS))
        responses = np.where(oldest < NEVER_NS, (now_ns - np.minimum(oldest, now_ns)).astype(np.float64), np.nan)
        for root, one in self._outputs.items():
            for query in shape.roots.get(root, ()):
                responses[query] = one.response_ns / one.rows
        found = np.full(len(shape.classes), np.nan)
        np.fmax.at(found, shape.query_class, responses)
        return found

    def _mean_responses(self, now_ns: int) -> FloatColumn:
        shape, slots = self.shape, self.shape.operators
        size = len(shape.classes)
        oldest = np.full(size, NEVER_NS, dtype=np.int64)
        np.minimum.at(oldest, shape.operator_class, np.where(self._can_run(slots), self.ledger.head_ns[slots], NEVER_NS))
        rows, total_ns = np.zeros(size), np.zeros(size)
        for root, one in self._outputs.items():
            for query in shape.roots.get(root, ()):
                rows[shape.query_class[query]] += one.rows
                total_ns[shape.query_class[query]] += one.response_ns
        age_ns = np.where(oldest < NEVER_NS, (now_ns - np.minimum(oldest, now_ns)).astype(np.float64), np.nan)
        return np.where(rows > 0.0, total_ns / np.maximum(rows, 1.0), age_ns)
