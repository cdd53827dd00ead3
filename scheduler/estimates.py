"""What an operator costs and lets through: a prior, then measured; and the sums along paths that policies rank by.

Measuring (Sharaf 2007, 3.3.3 and 3.8.5). A window is 100 input tuples. A step that took n tuples counts as n/100 windows:

    s <- (1 - g) s + g (out / in)        g = 1 - (1 - α)^(n / 100),  α = 0.175

Until an operator has seen as much as the prior is worth, g is n over all tuples seen, so that the first measurements displace the
prior at once. The cost of a call is a + b n. Policies use a / E[n] + b, which is the mean cost of a call over its mean length; both
means age as the selectivity does. The pair (a, b) comes from the aged least-squares line.

Sums (Sharaf 2007, 3.1). E_x are the operators from x to the outputs. With children y of x, and 1 per query rooted at x:

    S_x    = s_x (roots + Σ S_y)                      output per input tuple
    Cbar_x = c_x + s_x Σ Cbar_y                       cost of one tuple along E_x, in ns
    N_x    = s_x (Σ 1/T_k over roots + Σ N_y)         Σ S_i / T_i over the queries below x; M_x the same with 1/T_k²
    T_k    = ideal cost of an emitted tuple of query k; a join counts once an input and adds its inputs' paths (3.3.2)

Joins (3.3.3). A join with window V has a selectivity per input port: a tuple of the left meets the tuples of the right that came
within V. Before the first measurement, with the arrival rates known, port L lets through s_J V r_R tuples a tuple, r_R being the rate
at which the right input brings tuples to the join (1/τ_R times the selectivities on the way); a measured one (out per in) already
contains that and replaces it, whole: where event time runs faster than the clock, as in a replay, the formula is wrong by millions.
`edge_factor` of an edge is the port's selectivity by the operator's own, and enters the sums above:
through edge e to join y an operator sees S_y f_e and c_y + (Cbar_y - c_y) f_e.

Estimates are never zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from millstream.engine.data.graph import OperatorNode, QueryId
from millstream.engine.data.records import dataclass
from millstream.scheduler.limits import AGING, COST_NS_MIN, SELECTIVITY_MIN, WINDOW_TUPLES
from millstream.scheduler.means import PRIOR_TUPLES, MeansColumns, has_repeats
from millstream.scheduler.network import NetworkModel
from millstream.scheduler.paths import IdealPaths, is_join, sums_at
from numpy.typing import NDArray

FloatColumn = NDArray[np.float64]
IntColumn = NDArray[np.int64]

CHANGE_MIN: Final = 0.03
"""A measured value that moved by less than this share does not disturb the sums."""

RUNS_PER_OPERATOR: Final = 4
"""Measurements of operators in chains, for each operator of the network, after which the sums follow them."""

_SINGLE_QUERIES_MAX = 4

# Above so many operators, passes over columns are quicker than a loop.
_VECTOR_OPERATORS_MIN = 48

_COLUMNS = (
    "selectivity",
    "cost_ns",
    "learnt_ns",
    "output_per_tuple",
    "cost_to_end_ns",
    "normalized_output",
    "normalized_square",
    "ideal_time_ns",
)


@dataclass(frozen=True, slots=True)
class CostLine:
    """Cost of a call on n tuples: `call_ns` + `tuple_ns` · n."""

    call_ns: float
    tuple_ns: float


@dataclass(slots=True)
class PortMeans:
    """The aged selectivity of an input port of a join; `prior`: the tuples that the first value weighs."""

    selectivity: float
    prior: int = PRIOR_TUPLES
    seen: int = 0


class Estimates:
    """Means and path sums, indexed by the network's operator slots.

    Published columns (`selectivity`, `cost_ns` and the sums) change only in `refresh`; `version` grows when they do.
    """

    selectivity: FloatColumn
    cost_ns: FloatColumn
    learnt_ns: FloatColumn
    output_per_tuple: FloatColumn
    cost_to_end_ns: FloatColumn
    normalized_output: FloatColumn
    normalized_square: FloatColumn
    ideal_time_ns: FloatColumn

    def __init__(
        self, network: NetworkModel, *, adapt: bool = True, aging: float = AGING, window: int = WINDOW_TUPLES, declared: bool = True
    ) -> None:
        self.network = network
        self.adapt = adapt
        self._declared = declared
        self.means = MeansColumns(window, aging)
        self.version = 0
        self.ideal_of_query: dict[QueryId, float] = {}
        """T_k of each query, by which policies rank."""
        self.learnt_of_query: dict[QueryId, float] = self.ideal_of_query if declared else {}
        """T_k of what has been measured of each query, by which its results are: NaN before anything was, if costs are not declared."""
        self._capacity = 0
        self._dirty: dict[int, None] = {}
        self._dirty_runs: dict[int, None] = {}  # what runs of chains have moved, which come fast: it waits for many of them
        self._runs = 0  # calls measured since the sums followed any
        self.calls_per_operator = 0
        self.hurry = False
        """The next sums are not to wait for more measurements: somebody decides by them."""
        self._first = False  # something is measured for the first time, so that the sums rest on a guess
        self._new: list[QueryId] = []
        self._kept: dict[int, None] = {}
        self._paths: IdealPaths | None = None
        self._ideal_times: FloatColumn = np.zeros(0)
        self.edge_factor: FloatColumn = np.ones(16)
        self._ports: dict[int, PortMeans] = {}
        self.has_ports = False
        """Whether any operator has, or had, a selectivity per input port."""
        self._join_priors: dict[int, None] = {}
        self._rates: dict[int, float] = {}
        self._arrivals: dict[int, tuple[int, int]] = {}
        self._grow(16)

    def _grow(self, needed: int) -> None:
        if needed <= self._capacity:
            return
        capacity = max(needed, 2 * self._capacity)
        for name in _COLUMNS:
            column = np.ones(capacity)
            if self._capacity:
                column[: self._capacity] = getattr(self, name)
            setattr(self, name, column)
        self._capacity = capacity

    def query_came(self, query: QueryId, operators: Iterable[OperatorNode]) -> None:
        """Give the operators of a new query their prior: declared selectivity and cost, as if measured over calls of one tuple."""
        for node in operators:
            slot = self.network.operators.slot_of[node.id]
            self._grow(slot + 1)
            cost = max(COST_NS_MIN, node.cost_ns + node.call_ns)
            selectivity = max(SELECTIVITY_MIN, node.selectivity)
            self.means.begin(slot, selectivity, cost)
            self.selectivity[slot], self.cost_ns[slot] = selectivity, cost
            self.learnt_ns[slot] = cost if self._declared else math.nan
            self._not_dirty(slot)
            for edge in self.network.inputs[slot]:
                if edge < len(self.edge_factor):
                    self.edge_factor[edge] = 1.0
            if is_join(self.network, slot):
                self._start_ports(slot, selectivity)
        self._new.append(query)

    def _not_dirty(self, slot: int) -> None:
        self._dirty.pop(slot, None)
        self._dirty_runs.pop(slot, None)

    def _start_ports(self, slot: int, selectivity: float) -> None:
        """Give a join's input ports the operator's own selectivity until more is known."""
        edges = self.network.inputs[slot]
        if len(self.edge_factor) <= max(edges):
            self.edge_factor = np.concatenate((self.edge_factor, np.ones(max(edges) + 1)))
        for edge in edges:
            self.edge_factor[edge] = 1.0
            self._ports[edge] = PortMeans(selectivity)
            self.has_ports = True
        if self.network.node(slot).window_ns is not None:
            self._join_priors[slot] = None

    def declare_rate(self, log: int, inter_arrival_ns: float) -> None:
        """State the mean time between the tuples of a source's log, for joins not measured yet."""
        self._rates[log] = 1.0 / inter_arrival_ns

    def arrived(self, log: int, rows: int, now_ns: int) -> None:
        """Measure a source's rate while a join below it has no selectivity of its own."""
        if not self._join_priors or not self.adapt:
            return
        first_ns, seen = self._arrivals.get(log, (now_ns, 0))
        self._arrivals[log] = (first_ns, seen + rows)
        if seen < self.means.window <= seen + rows and now_ns > first_ns:
            self._rates[log] = (seen + rows) / (now_ns - first_ns)

    def _apply_join_priors(self) -> list[int]:
        """Put the formula's selectivity into joins whose input rates are known; return their slots."""
        settled = []
        for slot in self._join_priors:
            node, edges = self.network.node(slot), self.network.inputs[slot]
            rates = [self._rate_of(edge) for edge in edges]
            if len(edges) != 2 or node.window_ns is None or None in rates:
                continue
            left, right = (float(rate or 0.0) for rate in rates)
            ports = [max(SELECTIVITY_MIN, node.selectivity * node.window_ns * rate) for rate in (right, left)]
            mean = (left * ports[0] + right * ports[1]) / (left + right) if left + right > 0.0 else ports[0]
            if not self.means.seen[slot]:
                self.means.expect(slot, max(SELECTIVITY_MIN, mean))
            for edge, value in zip(edges, ports, strict=True):
                port = self._ports[edge]
                if not port.seen:
                    port.selectivity, port.prior = max(SELECTIVITY_MIN, value), 0
            self.selectivity[slot] = self.means.selectivity[slot]
            self._publish_ports(slot)
            settled.append(slot)
        for slot in settled:
            del self._join_priors[slot]
        return settled

    def _rate_of(self, edge: int) -> float | None:
        """Return tuples per ns that an edge brings, None while a source above has no known rate."""
        network = self.network
        producer = network.edge_producer[edge]
        if network.is_source(producer):
            return self._rates.get(network.edge_log[edge])
        rates = [self._rate_of(one) for one in network.inputs[producer]]
        if None in rates:
            return None
        return self.selectivity.item(producer) * sum(rate for rate in rates if rate is not None)

    def record_ports(self, slot: int, taken: Sequence[tuple[int, int]], rows_out: int) -> None:
        """Take in what a step of a join took as (edge, rows) and let through: of several ports each has the part that is expected of it."""
        ports = [(edge, one, rows) for edge, rows in taken if rows and (one := self._ports.get(edge)) is not None]
        if not self.adapt:
            return
        expected = sum(one.selectivity * rows for _, one, rows in ports)
        for edge, one, rows in ports:
            found = one.selectivity * rows_out / expected
            gain = max(self.means.gain(rows), rows / (one.prior + one.seen + rows) if one.seen < self.means.window else 0.0)
            one.selectivity = max(SELECTIVITY_MIN, (1.0 - gain) * one.selectivity + gain * found)
            one.seen += rows
            factor, known = one.selectivity / self.selectivity.item(slot), self.edge_factor.item(edge)
            if abs(factor - known) > CHANGE_MIN * known:
                self._dirty[slot] = None

    def _publish_ports(self, slot: int) -> None:
        for edge in self.network.inputs[slot]:
            port = self._ports.get(edge)
            if port is not None:
                self.edge_factor[edge] = port.selectivity / self.selectivity.item(slot)

    def query_left(self, query: QueryId, gone: Iterable[int], kept: Iterable[int]) -> None:
        """Forget a query and the slots of the operators that left with it; those that serve others are summed anew."""
        for slot in gone:
            self.means.forget(slot)
            self._not_dirty(slot)
            self._join_priors.pop(slot, None)
        self.ideal_of_query.pop(query, None)
        self.learnt_of_query.pop(query, None)
        self._new = [one for one in self._new if one != query]
        self._kept.update(dict.fromkeys(kept))

    def record(self, slot: int, rows_in: int, rows_out: int, cost_ns: int) -> None:
        """Take one step's measurement in."""
        if not self.means.known[slot] or rows_in <= 0 or not self.adapt:
            return
        self._runs += 1
        if self.means.add(slot, rows_in, rows_out, cost_ns) and self._take_window(slot):
            self._dirty[slot] = None

    def record_runs(
        self,
        slots: IntColumn,
        calls: IntColumn,
        rows_in: IntColumn,
        rows_out: IntColumn,
        cost_ns: FloatColumn,
        squares: IntColumn,
        products: FloatColumn,
    ) -> None:
        """Take several steps' measurements of each of these operators in at once, as the one train that they add up to.

        Sums of calls, rows in, rows out and cost, of rows in squared and of rows in times cost.
        """
        columns = (slots, calls, rows_in, rows_out, cost_ns, squares, products)
        if len(slots) < _VECTOR_OPERATORS_MIN or has_repeats(slots):
            for sums in zip(*(column.tolist() for column in columns), strict=True):
                self.record_sums(*sums)
            return
        if not self.adapt:
            return
        self._runs += int(calls.sum())
        counts = (rows_in > 0) & np.array(list(map(self.means.known.__getitem__, slots.tolist())))
        due = self.means.add_columns(*(columns if counts.all() else (column[counts] for column in columns)))
        if len(due):
            self._dirty_runs.update(dict.fromkeys(self._take_windows(due).tolist()))

    def record_sums(self, slot: int, calls: int, rows_in: int, rows_out: int, cost_ns: float, squares: int, products: float) -> None:
        """Do the same for one operator."""
        if not self.adapt:
            return
        self._runs += calls
        if not self.means.known[slot] or not rows_in:
            return
        if self.means.add_sums(slot, calls, rows_in, rows_out, cost_ns, squares, products) and self._take_window(slot):
            self._dirty_runs[slot] = None

    def _take_window(self, slot: int) -> bool:
        """Take the sums into the means; return whether those have moved enough to be told."""
        means = self.means
        self._first = self._first or not means.seen.item(slot)
        means.take(slot, len(self.network.outputs[slot]))
        before, cost_before = self.selectivity.item(slot), self.cost_ns.item(slot)
        cost = means.call_ns.item(slot) / means.length.item(slot)
        return abs(means.selectivity.item(slot) - before) > CHANGE_MIN * before or abs(cost - cost_before) > CHANGE_MIN * cost_before

    def _take_windows(self, slots: IntColumn) -> IntColumn:
        """Do the same for several operators; return those whose means have moved enough to be told."""
        means, outputs = self.means, self.network.outputs
        self._first = self._first or not means.seen[slots].all()
        means.take_columns(slots, np.array(list(map(len, map(outputs.__getitem__, slots.tolist()))), dtype=np.int64))
        before, cost_before = self.selectivity[slots], self.cost_ns[slots]
        cost = means.call_ns[slots] / means.length[slots]
        moved = np.abs(means.selectivity[slots] - before) > CHANGE_MIN * before
        return slots[moved | (np.abs(cost - cost_before) > CHANGE_MIN * cost_before)]

    def cost_line(self, slot: int) -> CostLine:
        """Return the fitted cost of a call; where all calls had one length, everything counts as cost per tuple."""
        one = self.means.of(slot)
        assert one is not None
        spread = one.length_square - one.length * one.length
        if spread <= 1e-9 * max(1.0, one.length * one.length):
            return CostLine(0.0, one.cost_ns)
        slope = (one.product - one.length * one.call_ns) / spread
        slope = min(max(slope, 0.0), one.call_ns / one.length)
        return CostLine(max(0.0, one.call_ns - slope * one.length), slope)

    # ---- sums along paths

    def refresh(self, *, force: bool = False) -> bool:
        """Bring the sums up to date where that is due; return True when any changed.

        New queries are summed at once. Measurements wait until a 64th of the operators have news, and until there were `calls_per_operator`
        for each; those of chains until there are some for each operator, so that their cost stays a small share of the work measured. What
        was measured for the first time does not wait for more calls, as the sums rest on a guess till then; nor does anything where
        somebody decides by the sums (`hurry`). Few queries are summed one by one, many all together in NumPy.
        """
        if not (self._dirty or self._dirty_runs or self._new or self._kept or self._join_priors):
            return False
        kept, self._kept = self._kept, {}
        affected: dict[QueryId, None] = dict.fromkeys(self._new)
        self._new = []
        if self._join_priors and self._rates:
            for slot in self._apply_join_priors():
                affected.update(dict.fromkeys(self.network.topology.queries_of[slot]))
        operators = len(self.network.topology.order)
        if self._dirty_runs and (force or self.hurry or self._first or self._runs >= RUNS_PER_OPERATOR * operators):
            self._dirty.update(self._dirty_runs)
            self._dirty_runs.clear()
            force = True
        many = len(self._dirty) * 64 >= operators
        if self._dirty and (force or self.hurry or (many and (self._first or self._runs >= self.calls_per_operator * operators))):
            self._runs = 0
            self._first = self.hurry = False
            dirty = np.array(list(self._dirty), dtype=np.int64)
            self.selectivity[dirty], self.cost_ns[dirty] = self.means.selectivity[dirty], self.means.cost_ns(dirty)
            self.learnt_ns[dirty] = self.cost_ns[dirty] if self._declared else self.means.learnt_ns(dirty)
            if self.has_ports:
                for slot in self._dirty:
                    self._publish_ports(slot)
            for slot in self._dirty:
                affected.update(dict.fromkeys(self.network.topology.queries_of[slot]))
                if len(affected) > _SINGLE_QUERIES_MAX:
                    break  # all are summed then
            self._dirty.clear()
        if not affected and not kept:
            return False
        if len(affected) <= _SINGLE_QUERIES_MAX:
            self._sum_queries(list(affected), kept)
        else:
            self._sum_everything()
        self.version += 1
        return True

    def _sum_queries(self, queries: list[QueryId], others: Iterable[int]) -> None:
        topology = self.network.topology
        for query in queries:
            self.ideal_of_query[query] = max(COST_NS_MIN, self._ideal_of(query, self.cost_ns))
            if not self._declared:
                self.learnt_of_query[query] = self._ideal_of(query, np.nan_to_num(self.learnt_ns)) or math.nan
        # A shared operator is above operators of other queries too; those keep their sums, it gets its own anew.
        slots = {slot for query in queries for slot in topology.query_slots[query]}
        slots.update(slot for slot in others if slot in topology.place)
        for slot in reversed(topology.upstream(slots)):
            self._sum_operator(slot)

    def _sum_operator(self, slot: int) -> None:
        topology = self.network.topology
        outputs = cost = normal = square = 0.0
        ideal = math.inf
        for query in topology.roots_of.get(slot, ()):
            time = self.ideal_of_query[query]
            outputs += 1.0
            normal += 1.0 / time
            square += 1.0 / (time * time)
            ideal = min(ideal, time)
        for consumer, edge in zip(topology.consumers[slot], topology.consumer_edges[slot], strict=True):
            factor = self.edge_factor.item(edge) if edge < len(self.edge_factor) else 1.0
            outputs += self.output_per_tuple.item(consumer) * factor
            own = self.cost_ns.item(consumer)
            cost += own + (self.cost_to_end_ns.item(consumer) - own) * factor
            normal += self.normalized_output.item(consumer) * factor
            square += self.normalized_square.item(consumer) * factor
            ideal = min(ideal, self.ideal_time_ns.item(consumer))
        selectivity = self.selectivity.item(slot)
        self.output_per_tuple[slot] = selectivity * outputs
        self.cost_to_end_ns[slot] = self.cost_ns.item(slot) + selectivity * cost
        self.normalized_output[slot] = selectivity * normal
        self.normalized_square[slot] = selectivity * square
        self.ideal_time_ns[slot] = ideal

    def _ideal_of(self, query: QueryId, costs: FloatColumn) -> float:
        """T_k of one query, by walking it: what an emitted tuple passes, of a union's inputs the dearest, shared operators once."""
        network = self.network
        passed: dict[int, frozenset[int]] = {}

        def cost_of(slots: frozenset[int]) -> float:
            counted = sorted(slots)
            return sum(costs.item(one) * (len(network.inputs[one]) if is_join(network, one) else 1) for one in counted)

        for slot in network.topology.query_slots[query]:
            before = [passed[producer] for producer in network.topology.producers[slot] if producer in passed]
            if not is_join(network, slot) and len(before) > 1:
                before = [max(before, key=cost_of)]
            passed[slot] = frozenset({slot}).union(*before)
        root = network.operators.slot_of[network.queries[query].root]
        return cost_of(passed.get(root, frozenset()))

    def _sum_everything(self) -> None:
        self._sum_ideal_times()
        self._sum_by_level()

    def _sum_ideal_times(self) -> None:
        """T_k of every query: one weighted count over all (query, operator) pairs; queries with a union go one by one."""
        self._ideal_times = np.maximum(self._times_by(self.cost_ns), COST_NS_MIN)
        queries = self._ideal_paths().queries
        self.ideal_of_query = self.learnt_of_query = dict(zip(queries, self._ideal_times.tolist(), strict=True))
        if not self._declared:
            learnt = self._times_by(np.nan_to_num(self.learnt_ns))
            self.learnt_of_query = dict(zip(queries, np.where(learnt > 0.0, learnt, np.nan).tolist(), strict=True))

    def _times_by(self, costs: FloatColumn) -> FloatColumn:
        paths = self._ideal_paths()
        times = sums_at(paths.query_index, paths.times_counted * costs[paths.slots], len(paths.queries))
        for index in paths.with_union:
            times[index] = self._ideal_of(paths.queries[index], costs)
        return times

    def _ideal_paths(self) -> IdealPaths:
        if self._paths is None or self._paths.version != self.network.version:
            self._paths = IdealPaths(self.network)
        return self._paths

    def _roots(self) -> tuple[FloatColumn, FloatColumn, FloatColumn, FloatColumn]:
        size = len(self.network.nodes)
        roots, times = self._ideal_paths().roots, self._ideal_times
        least = np.full(size, np.inf)
        np.minimum.at(least, roots, times)
        count = sums_at(roots, minlength=size)
        inverse = sums_at(roots, weights=1.0 / times, minlength=size)
        square = sums_at(roots, weights=1.0 / (times * times), minlength=size)
        return count, inverse, square, least

    def _sum_by_level(self) -> None:
        count, inverse, square, least = self._roots()
        factors = np.ones(len(self.network.edges))
        known = min(len(factors), len(self.edge_factor))
        factors[:known] = self.edge_factor[:known]
        for slots, producers, consumers, edges in self.network.topology.levels:
            selectivity, factor, size = self.selectivity[slots], factors[edges], len(slots)
            own = self.cost_ns[consumers]
            cost = sums_at(producers, own + (self.cost_to_end_ns[consumers] - own) * factor, size)
            self.cost_to_end_ns[slots] = self.cost_ns[slots] + selectivity * cost
            for column, rooted in (
                (self.output_per_tuple, count),
                (self.normalized_output, inverse),
                (self.normalized_square, square),
            ):
                column[slots] = selectivity * (rooted[slots] + sums_at(producers, column[consumers] * factor, size))
            times = least[slots]
            np.minimum.at(times, producers, self.ideal_time_ns[consumers])
            self.ideal_time_ns[slots] = times
