"""The load that queries put on the machine, and what one more would add, before it runs (Pham 2013, II; Sharaf 2007, 3.1).

    L = Σ over the sources of rate · Cbar          seconds of work per second

For what runs, Cbar is the measured cost of a tuple along all it meets. For a new query each operator counts with the rate that reaches it
and its declared or prior cost a / E[n] + b; E[n] is what comes within `TRAIN_NS`, since a live server takes what has come meanwhile. So
do operators that run and have taken no tuple yet: the same query must not weigh a hundred times more once it is in force. A join that
declares nothing is taken to put out one row a row. Operators that run already and are shared cost nothing more.

Latency. Rows come in batches, and the batch of a source is work V for all that reads it, one query after the other; a row leaves when its
batch has gone through its query (own work U). With batches of source s at the rate λ_s, ρ the share of the machine in use:

    mean  U + (V - U) / 2 + Σ λ_s V_s² / 2 / (1 - ρ)        its query is somewhere among the others; and the work found on arrival
    from  U                                                  first, and nothing was found
    to    V + Σ λ_s V_s² / (1 - ρ)                           last, and twice as much was found

(Pollaczek and Khinchine's mean for M/G/1, batches being the customers.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from millstream.engine.data.graph import ClassId, Edge, GraphDelta, OperatorId, OperatorNode, QueryId
from millstream.engine.data.records import dataclass
from millstream.scheduler.estimates import Estimates
from millstream.scheduler.limits import COST_NS_MIN
from millstream.scheduler.network import NetworkModel

TRAIN_NS: Final = 1_000_000.0
"""The time over which rows gather before they are run together."""

Rates = Mapping[OperatorId, float]
"""Tuples per ns that enter each source."""

Batches = Mapping[OperatorId, float]
"""Rows that come at a time to each source."""


@dataclass(frozen=True, slots=True)
class AddedLoad:
    """What a query would add: `load` in seconds of work per second; `ideal_ns` is T, what one emitted tuple costs it by itself.

    `rate_per_s` are the tuples that would reach it.
    """

    load: float
    ideal_ns: float
    rate_per_s: float


@dataclass(frozen=True, slots=True)
class Work:
    """What a row waits for, in ns of work: `own_ns` is U, `batch_ns` V, `found_ns` Σ λ V² / 2."""

    own_ns: float
    batch_ns: float
    found_ns: float

    def latency_ns(self, share: float) -> tuple[float, float, float]:
        """Return the mean, and from where to where; infinite where the machine has no time left. `share` is ρ."""
        if share >= 1.0:
            return math.inf, self.own_ns, math.inf
        found = self.found_ns / (1.0 - share)
        return self.own_ns + (self.batch_ns - self.own_ns) / 2.0 + found, self.own_ns, self.batch_ns + 2.0 * found


def work_of(
    network: NetworkModel,
    estimates: Estimates,
    rates: Rates,
    batches: Batches,
    sources: Sequence[OperatorId],
    own_load: float,
    added: float,
) -> Work:
    """Return what a row of a query over these sources waits for. `own_load` is the query's, `added` what of it does not run yet."""
    return _work(_batch_work(network, estimates, batches), rates, batches, sources, own_load, added)


def works_of_running(network: NetworkModel, estimates: Estimates, rates: Rates, batches: Batches) -> dict[QueryId, Work]:
    """Return what a row of each query that runs waits for."""
    batch_ns, flow = _batch_work(network, estimates, batches), Flow(network, estimates, rates)
    found = {}
    for name, query in network.queries.items():
        sources = [operator for operator in query.operators if operator in rates]
        found[name] = _work(batch_ns, rates, batches, sources, _running_load(network, estimates, flow, name), 0.0)
    return found


def _batch_work(network: NetworkModel, estimates: Estimates, batches: Batches) -> dict[OperatorId, float]:
    """Return what a batch of each source is for all that reads it, in ns."""
    batch_ns: dict[OperatorId, float] = {}
    for slot in network.topology.order:
        for edge in network.inputs[slot]:
            producer = network.edge_producer[edge]
            if network.is_source(producer):
                source = network.operators.identity(producer)
                batch_ns[source] = batch_ns.get(source, 0.0) + batches.get(source, 1.0) * _cost_through(estimates, slot, edge)
    return batch_ns


def _work(
    batch_ns: Mapping[OperatorId, float], rates: Rates, batches: Batches, sources: Sequence[OperatorId], own_load: float, added: float
) -> Work:
    batch_ns = dict(batch_ns)
    per_ns = {source: rate / batches.get(source, 1.0) for source, rate in rates.items() if rate > 0.0}
    comes = sum(per_ns.get(source, 0.0) for source in sources)
    if not comes:
        return Work(0.0, 0.0, 0.0)
    for source in sources:
        batch_ns[source] = batch_ns.get(source, 0.0) + added / comes
    mean_ns = sum(per_ns.get(source, 0.0) * batch_ns[source] for source in sources) / comes
    found_ns = sum(each * batch_ns.get(source, 0.0) ** 2 / 2.0 for source, each in per_ns.items())
    own_ns = own_load / comes
    return Work(own_ns, max(mean_ns, own_ns), found_ns)


def _running_load(network: NetworkModel, estimates: Estimates, flow: Flow, query: QueryId) -> float:
    """Return the load of a query that runs, in seconds of work per second; what it shares counts whole."""
    slots = network.topology.query_slots[query]
    return sum(flow.into(slot) * estimates.cost_ns.item(slot) for slot in slots if not network.is_source(slot))


class Flow:
    """Tuples per ns through the running network: what enters its sources times the selectivities on the way."""

    def __init__(self, network: NetworkModel, estimates: Estimates, rates: Rates) -> None:
        self._network = network
        self._estimates = estimates
        self._rates = rates
        self._known: dict[int, float] = {}

    def over(self, edge: Edge) -> float:
        """Return the flow over an edge from what runs; 0 from a source that nobody knows."""
        place = self._network.logs.slot_of.get(edge.log)
        return self._rates.get(edge.producer, 0.0) if place is None else self._into(place)

    def into(self, slot: int) -> float:
        """Return what an operator takes from all its inputs."""
        return sum(self._into(self._network.edge_log[edge]) for edge in self._network.inputs[slot])

    def _into(self, place: int) -> float:
        network = self._network
        producer = network.log_producer[place]
        if network.is_source(producer):
            return self._rates.get(network.operators.identity(producer), 0.0)
        if producer not in self._known:
            self._known[producer] = self.into(producer) * self._estimates.selectivity.item(producer)
        return self._known[producer]


def class_loads(network: NetworkModel, estimates: Estimates, rates: Rates) -> dict[ClassId, float]:
    """Return the load of each class that has queries, in seconds of work per second."""
    found: dict[ClassId, float] = {query.class_id: 0.0 for query in network.queries.values()}
    for slot in network.topology.order:
        node = network.node(slot)
        for edge in network.inputs[slot]:
            if network.is_source(network.edge_producer[edge]):
                rate = rates.get(network.operators.identity(network.edge_producer[edge]), 0.0)
                found[node.class_id] = found.get(node.class_id, 0.0) + rate * _cost_through(estimates, slot, edge)
    _expect_trains(network, estimates, Flow(network, estimates, rates), found)
    return found


def _expect_trains(network: NetworkModel, estimates: Estimates, flow: Flow, found: dict[ClassId, float]) -> None:
    """Take from the loads what operators that nothing was measured of count too much: their prior is that of a call a tuple."""
    for slot in network.topology.order:
        means, node = estimates.means, network.node(slot)
        if not means.known[slot] or means.seen[slot] or not node.call_ns or node.class_id not in found:
            continue
        taken = flow.into(slot)
        spared = taken * max(0.0, estimates.cost_ns.item(slot) - per_tuple_ns(node, taken))
        found[node.class_id] = max(0.0, found[node.class_id] - spared)


def _cost_through(estimates: Estimates, slot: int, edge: int) -> float:
    """Return what a tuple on the edge costs from there on, in ns."""
    own = estimates.cost_ns.item(slot)
    factor = estimates.edge_factor.item(edge) if edge < len(estimates.edge_factor) else 1.0
    return own + (estimates.cost_to_end_ns.item(slot) - own) * factor


def added_load(network: NetworkModel, estimates: Estimates, rates: Rates, delta: GraphDelta, batches: Batches | None = None) -> AddedLoad:
    """Return what the operators of a delta would add to what runs. A call takes a batch at least, where these are known."""
    together = max((batches or {}).values(), default=1.0)
    flow = Flow(network, estimates, rates)
    brought = {node.id: node for node in delta.operators}
    reads: dict[OperatorId, list[Edge]] = {}
    for edge in delta.edges:
        reads.setdefault(edge.consumer, []).append(edge)
    through: dict[OperatorId, float] = {}
    load = ideal_ns = rate_in = 0.0
    for operator in delta.query.operators:
        node = brought.get(operator)
        edges = reads.get(operator, [])
        if node is None or not edges:
            ideal_ns += _running_cost(network, estimates, operator)
            continue
        flows = [through[e.producer] if e.producer in through else flow.over(e) for e in edges]
        taken = sum(flows)
        rate_in += sum(f for f, e in zip(flows, edges, strict=True) if e.producer not in through)
        through[operator] = taken * node.selectivity
        cost_ns = per_tuple_ns(node, taken, together * taken / max(rate_in, taken, 1e-300))
        load += taken * cost_ns
        ideal_ns += node.cost_ns + node.call_ns
    return AddedLoad(load, ideal_ns, rate_in * 1e9)


def per_tuple_ns(node: OperatorNode, rate_per_ns: float, together: float = 1.0) -> float:
    """Return c = a / E[n] + b at this rate, if at least so many tuples come together."""
    return max(COST_NS_MIN, node.call_ns / max(1.0, rate_per_ns * TRAIN_NS, together) + node.cost_ns)


def _running_cost(network: NetworkModel, estimates: Estimates, operator: OperatorId) -> float:
    """Return the measured cost of an operator that the query is to share; nothing for a source."""
    slot = network.operators.slot_of.get(operator)
    return 0.0 if slot is None or network.is_source(slot) else estimates.cost_ns.item(slot)
