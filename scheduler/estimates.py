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

Estimates are never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from millstream.engine.graph import OperatorNode, QueryId
from millstream.scheduler.limits import AGING, COST_NS_MIN, SELECTIVITY_MIN, WINDOW_TUPLES
from millstream.scheduler.network import Network
from numpy.typing import NDArray

FloatColumn = NDArray[np.float64]

PRIOR_TUPLES: Final = 20
"""What a declared value weighs against measured tuples."""

_SCALAR_OPERATORS_MAX = 24
_MEASURED = ("selectivity_now", "call_mean_ns", "length_mean", "length_square_mean", "product_mean", "seen", "unpublished")
_PUBLISHED = ("selectivity", "cost_ns", "output_per_tuple", "cost_to_end_ns", "normalized_output", "normalized_square", "ideal_time_ns")


@dataclass(frozen=True, slots=True)
class CostLine:
    """Cost of a call on n tuples: `call_ns` + `tuple_ns` · n."""

    call_ns: float
    tuple_ns: float


def is_join(network: Network, slot: int) -> bool:
    """Tell whether the operator pairs the tuples of several inputs, so that a result has a parent on each."""
    return len(network.inputs[slot]) > 1 and "join" in network.node(slot).kind


def _sums(places: NDArray[np.int64], weights: FloatColumn | None = None, minlength: int = 0) -> FloatColumn:
    """Sum the weights that fall on each place (1 each without weights)."""
    return np.bincount(places, weights=weights, minlength=minlength).astype(np.float64, copy=False)


class IdealPaths:
    """Which operators count how often in the ideal time of which query. Follows from the network's shape alone."""

    def __init__(self, network: Network) -> None:
        topology = network.topology
        self.version = network.version
        self.queries = list(topology.query_slots)
        self.with_union: list[int] = []
        index: list[int] = []
        slots: list[int] = []
        counted: list[float] = []
        for place, (_query, members) in enumerate(topology.query_slots.items()):
            joins = [is_join(network, slot) for slot in members]
            index.extend([place] * len(members))
            slots.extend(members)
            counted.extend(float(len(network.inputs[slot])) if join else 1.0 for slot, join in zip(members, joins, strict=True))
            if any(len(network.inputs[slot]) > 1 and not join for slot, join in zip(members, joins, strict=True)):
                self.with_union.append(place)
        self.query_index = np.array(index, dtype=np.int64)
        self.slots = np.array(slots, dtype=np.int64)
        self.times_counted = np.array(counted)
        slot_of = network.operators.slot_of
        self.roots = np.array([slot_of[network.queries[query].root] for query in self.queries], dtype=np.int64)


class Estimates:
    """Measured columns and path sums, indexed by the network's operator slots.

    Published columns (`selectivity`, `cost_ns` and the sums) change only in `refresh`; `version` grows when they do.
    """

    selectivity_now: FloatColumn
    call_mean_ns: FloatColumn
    length_mean: FloatColumn
    length_square_mean: FloatColumn
    product_mean: FloatColumn
    seen: FloatColumn
    unpublished: FloatColumn
    selectivity: FloatColumn
    cost_ns: FloatColumn
    output_per_tuple: FloatColumn
    cost_to_end_ns: FloatColumn
    normalized_output: FloatColumn
    normalized_square: FloatColumn
    ideal_time_ns: FloatColumn

    def __init__(self, network: Network, *, adapt: bool = True, aging: float = AGING, window: int = WINDOW_TUPLES) -> None:
        self.network = network
        self.adapt = adapt
        self.window = window
        self.version = 0
        self.ideal_of_query: dict[QueryId, float] = {}
        self._log_keep = float(np.log(1.0 - aging)) / window
        self._capacity = 0
        self._network_version = -1
        self._dirty: dict[int, None] = {}
        self._paths: IdealPaths | None = None
        self._ideal_times: FloatColumn = np.zeros(0)
        self._grow(16)

    def _grow(self, needed: int) -> None:
        if needed <= self._capacity:
            return
        capacity = max(needed, 2 * self._capacity)
        for name in (*_MEASURED, *_PUBLISHED):
            column = np.ones(capacity) if name in _PUBLISHED else np.zeros(capacity)
            if self._capacity:
                column[: self._capacity] = getattr(self, name)
            setattr(self, name, column)
        self._capacity = capacity

    def start(self, slot: int, node: OperatorNode) -> None:
        """Give a new operator its prior: the declared selectivity and cost, measured over calls of one tuple."""
        self._grow(slot + 1)
        cost = max(COST_NS_MIN, node.cost_ns + node.call_ns)
        self.selectivity[slot] = self.selectivity_now[slot] = max(SELECTIVITY_MIN, node.selectivity)
        self.cost_ns[slot] = self.call_mean_ns[slot] = self.product_mean[slot] = cost
        self.length_mean[slot] = self.length_square_mean[slot] = 1.0
        self.seen[slot] = self.unpublished[slot] = 0.0

    def record(self, slot: int, rows_in: int, rows_out: int, cost_ns: int) -> None:
        """Take one step's measurement in."""
        if not self.adapt or rows_in <= 0:
            return
        seen = self.seen[slot]
        gain = max(1.0 - float(np.exp(self._log_keep * rows_in)), rows_in / (PRIOR_TUPLES + seen + rows_in))
        keep = 1.0 - gain
        self.selectivity_now[slot] = max(SELECTIVITY_MIN, keep * self.selectivity_now[slot] + gain * rows_out / rows_in)
        self.call_mean_ns[slot] = keep * self.call_mean_ns[slot] + gain * cost_ns
        self.length_mean[slot] = keep * self.length_mean[slot] + gain * rows_in
        self.length_square_mean[slot] = keep * self.length_square_mean[slot] + gain * rows_in * rows_in
        self.product_mean[slot] = keep * self.product_mean[slot] + gain * rows_in * cost_ns
        self.seen[slot] = seen + rows_in
        unpublished = self.unpublished[slot] + rows_in
        self.unpublished[slot] = unpublished
        if unpublished >= self.window or seen < self.window:
            self._dirty[slot] = None

    def record_many(self, slots: NDArray[np.int64], rows_in: FloatColumn, rows_out: FloatColumn, cost_ns: FloatColumn) -> None:
        """Take many steps' measurements in at once; each operator at most once in `slots`, each with rows."""
        if not self.adapt or not len(slots):
            return
        seen = self.seen[slots]
        gain = np.maximum(1.0 - np.exp(self._log_keep * rows_in), rows_in / (PRIOR_TUPLES + seen + rows_in))
        keep = 1.0 - gain
        self.selectivity_now[slots] = np.maximum(SELECTIVITY_MIN, keep * self.selectivity_now[slots] + gain * rows_out / rows_in)
        self.call_mean_ns[slots] = keep * self.call_mean_ns[slots] + gain * cost_ns
        self.length_mean[slots] = keep * self.length_mean[slots] + gain * rows_in
        self.length_square_mean[slots] = keep * self.length_square_mean[slots] + gain * rows_in * rows_in
        self.product_mean[slots] = keep * self.product_mean[slots] + gain * rows_in * cost_ns
        self.seen[slots] = seen + rows_in
        unpublished = self.unpublished[slots] + rows_in
        self.unpublished[slots] = unpublished
        for slot in slots[(unpublished >= self.window) | (seen < self.window)].tolist():
            self._dirty[slot] = None

    def cost_now(self, slot: int) -> float:
        """Return the present a / E[n] + b of an operator, in ns per tuple."""
        return max(COST_NS_MIN, float(self.call_mean_ns[slot]) / max(float(self.length_mean[slot]), 1e-9))

    def cost_line(self, slot: int) -> CostLine:
        """Return the fitted cost of a call; where all calls had one length, everything counts as cost per tuple."""
        mean, call = float(self.length_mean[slot]), float(self.call_mean_ns[slot])
        spread = float(self.length_square_mean[slot]) - mean * mean
        if spread <= 1e-9 * max(1.0, mean * mean):
            return CostLine(0.0, self.cost_now(slot))
        slope = (float(self.product_mean[slot]) - mean * call) / spread
        slope = min(max(slope, 0.0), call / mean)
        return CostLine(max(0.0, call - slope * mean), max(slope, COST_NS_MIN / max(mean, 1.0)))

    # ---- sums along paths

    @property
    def stale(self) -> bool:
        """Tell whether the sums no longer follow from the network and the measurements."""
        return bool(self._dirty) or self._network_version != self.network.version

    def refresh(self, *, force: bool = False) -> bool:
        """Bring the sums up to date where that is due; return True when they changed.

        In a large network the sums wait until a 64th of the operators have news, so that their cost stays a small share.
        """
        fresh_network = self._network_version != self.network.version
        if not fresh_network and not self._dirty:
            return False
        if not (fresh_network or force) and len(self._dirty) * 64 < len(self.network.topology.order):
            return False
        for slot in self._dirty:
            self.selectivity[slot] = self.selectivity_now[slot]
            self.cost_ns[slot] = self.cost_now(slot)
            self.unpublished[slot] = 0.0
        self._dirty.clear()
        self._network_version = self.network.version
        self._sum_ideal_times()
        if len(self.network.topology.order) <= _SCALAR_OPERATORS_MAX:
            self._sum_one_by_one()
        else:
            self._sum_by_level()
        self.version += 1
        return True

    def _sum_ideal_times(self) -> None:
        """T_k of every query: one weighted count over all (query, operator) pairs; queries with a union go one by one."""
        paths = self._ideal_paths()
        times = _sums(paths.query_index, weights=paths.times_counted * self.cost_ns[paths.slots], minlength=len(paths.queries))
        for index in paths.with_union:
            times[index] = self._ideal_with_union(paths.queries[index])
        times = np.maximum(times, COST_NS_MIN)
        self.ideal_of_query = dict(zip(paths.queries, times.tolist(), strict=True))
        self._ideal_times = times

    def _ideal_paths(self) -> IdealPaths:
        if self._paths is None or self._paths.version != self.network.version:
            self._paths = IdealPaths(self.network)
        return self._paths

    def _ideal_with_union(self, query: QueryId) -> float:
        network = self.network
        ideal: dict[int, float] = {}
        slots = network.topology.query_slots[query]
        for slot in slots:
            before = [ideal[producer] for producer in network.topology.producers[slot] if producer in ideal]
            ports, cost = len(network.inputs[slot]), float(self.cost_ns[slot])
            if is_join(network, slot):
                ideal[slot] = ports * cost + sum(before)
            else:
                ideal[slot] = cost + max(before, default=0.0)
        return ideal[slots[-1]] if slots else 0.0

    def _roots(self) -> tuple[FloatColumn, FloatColumn, FloatColumn, FloatColumn]:
        size = len(self.network.nodes)
        roots, times = self._ideal_paths().roots, self._ideal_times
        least = np.full(size, np.inf)
        np.minimum.at(least, roots, times)
        count = _sums(roots, minlength=size)
        inverse = _sums(roots, weights=1.0 / times, minlength=size)
        square = _sums(roots, weights=1.0 / (times * times), minlength=size)
        return count, inverse, square, least

    def _sum_by_level(self) -> None:
        count, inverse, square, least = self._roots()
        for slots, producers, consumers in self.network.topology.levels:
            size = len(slots)
            selectivity = self.selectivity[slots]

            def below(column: FloatColumn, producers: NDArray[np.int64] = producers, consumers: NDArray[np.int64] = consumers,
                      size: int = size) -> FloatColumn:
                return _sums(producers, weights=column[consumers], minlength=size)

            self.output_per_tuple[slots] = selectivity * (count[slots] + below(self.output_per_tuple))
            self.cost_to_end_ns[slots] = self.cost_ns[slots] + selectivity * below(self.cost_to_end_ns)
            self.normalized_output[slots] = selectivity * (inverse[slots] + below(self.normalized_output))
            self.normalized_square[slots] = selectivity * (square[slots] + below(self.normalized_square))
            times = least[slots]
            np.minimum.at(times, producers, self.ideal_time_ns[consumers])
            self.ideal_time_ns[slots] = times

    def _sum_one_by_one(self) -> None:
        count, inverse, square, least = (column.tolist() for column in self._roots())
        topology = self.network.topology
        for slot in reversed(topology.order):
            outputs, cost, normal, normal_square, ideal = count[slot], 0.0, inverse[slot], square[slot], least[slot]
            for consumer in topology.consumers[slot]:
                outputs += float(self.output_per_tuple[consumer])
                cost += float(self.cost_to_end_ns[consumer])
                normal += float(self.normalized_output[consumer])
                normal_square += float(self.normalized_square[consumer])
                ideal = min(ideal, float(self.ideal_time_ns[consumer]))
            selectivity = float(self.selectivity[slot])
            self.output_per_tuple[slot] = selectivity * outputs
            self.cost_to_end_ns[slot] = float(self.cost_ns[slot]) + selectivity * cost
            self.normalized_output[slot] = selectivity * normal
            self.normalized_square[slot] = selectivity * normal_square
            self.ideal_time_ns[slot] = ideal
