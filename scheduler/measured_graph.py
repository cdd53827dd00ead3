"""The running network as deltas again, with measured costs and selectivities in the place of the declared ones: what a recording holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from millstream.engine.graph import Edge, GraphDelta, LogId, OperatorId, OperatorNode
from millstream.scheduler.estimates import Estimates, is_join
from millstream.scheduler.network import Network


def measured_deltas(network: Network, estimates: Estimates, rates: Mapping[LogId, float]) -> list[GraphDelta]:
    """Return a delta a query, in the order they were added; `rates` are the tuples per ns that came into the logs of sources."""
    flow = _Flow(network, estimates, rates)
    found: list[GraphDelta] = []
    seen: set[OperatorId] = set()
    for query in (network.queries[one] for one in network.query_order):
        new = [one for one in query.operators if one not in seen]
        seen.update(new)
        slots = [network.operators.slot_of[one] for one in new]
        edges = [edge for slot in slots for edge in _edges(network, slot)]
        operators = tuple(_measured(network, estimates, flow, slot) for slot in slots)
        classes = (network.classes[query.class_id],) if query.class_id in network.classes else ()
        found.append(GraphDelta(query, operators, tuple(edges), classes))
    return found


def _edges(network: Network, slot: int) -> list[Edge]:
    identity = network.operators.identity
    return [
        Edge(network.edges.identity(edge), network.logs.identity(network.edge_log[edge]), identity(network.edge_producer[edge]),
             identity(slot), port)
        for port, edge in enumerate(network.inputs[slot])
    ]  # fmt: skip


def _measured(network: Network, estimates: Estimates, flow: _Flow, slot: int) -> OperatorNode:
    node, measured = network.node(slot), estimates.measured[slot]
    if measured is None or network.is_source(slot):
        return node
    line = estimates.cost_line(slot)
    selectivity = measured.selectivity
    if node.window_ns and is_join(network, slot) and len(network.inputs[slot]) == 2:
        selectivity = _pair_chance(selectivity, node.window_ns, [flow.through(edge) for edge in network.inputs[slot]])
    return replace(node, selectivity=selectivity, cost_ns=line.tuple_ns, call_ns=line.call_ns)


def _pair_chance(selectivity: float, window_ns: int, rates: list[float]) -> float:
    """Return s_J from outputs per input: s (r_L + r_R) results a ns, of 2 V r_L r_R pairs (Sharaf 2007, 3.3.3)."""
    left, right = rates
    pairs = 2.0 * window_ns * left * right
    return min(1.0, selectivity * (left + right) / pairs) if pairs > 0.0 else 0.0


class _Flow:
    """Tuples per ns through edges: what came in times the selectivities on the way."""

    def __init__(self, network: Network, estimates: Estimates, rates: Mapping[LogId, float]) -> None:
        self._network, self._estimates, self._rates = network, estimates, rates
        self._known: dict[int, float] = {}

    def through(self, edge: int) -> float:
        """Return the flow through an edge."""
        network, producer = self._network, self._network.edge_producer[edge]
        if network.is_source(producer):
            return self._rates.get(network.logs.identity(network.edge_log[edge]), 0.0)
        if producer not in self._known:
            measured = self._estimates.measured[producer]
            taken = sum(self.through(one) for one in network.inputs[producer])
            self._known[producer] = taken * (1.0 if measured is None else measured.selectivity)
        return self._known[producer]
