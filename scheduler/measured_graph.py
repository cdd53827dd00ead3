"""The running network as deltas again, with measured costs and selectivities in the place of the declared ones: what a recording holds.

What operators did while the recording went on counts. The fitted line says how their cost divides into calls and tuples, and where an
operator did too little, the estimates stand in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from millstream.engine.data.graph import Edge, GraphDelta, LogId, OperatorId, OperatorNode
from millstream.engine.data.records import dataclass
from millstream.scheduler.estimates import CostLine, Estimates
from millstream.scheduler.network import NetworkModel
from millstream.scheduler.paths import is_join


@dataclass(frozen=True, slots=True)
class OperatorActivity:
    """What an operator did during a while. `made` are the rows of each output, also those that went past its log."""

    calls: int
    rows_in: int
    cost_ns: int
    made: Mapping[LogId, int]

    def since(self, then: OperatorActivity) -> OperatorActivity:
        """Return what it did after it had done that."""
        made = {log: rows - then.made.get(log, 0) for log, rows in self.made.items()}
        return OperatorActivity(self.calls - then.calls, self.rows_in - then.rows_in, self.cost_ns - then.cost_ns, made)


def measured_deltas(
    network: NetworkModel,
    estimates: Estimates,
    rates: Mapping[LogId, float],
    did: Mapping[OperatorId, OperatorActivity],
    span_ns: int,
) -> list[GraphDelta]:
    """Return a delta a query, in the order they were added.

    `rates` are the tuples per ns that came into the logs of sources in `span_ns`, `did` tells what operators did meanwhile. Whoever brings
    an operator brings all its outputs, also those that it got for queries that came later.
    """
    measures = _Measures(network, estimates, did)
    flow = _Flow(network, measures, rates, span_ns)
    found: list[GraphDelta] = []
    seen: set[OperatorId] = set()
    for query in (network.queries[one] for one in network.query_order):
        new = [one for one in query.operators if one not in seen]
        seen.update(new)
        slots = [network.operators.slot_of[one] for one in new]
        edges = [edge for slot in slots for edge in _edges(network, slot)]
        operators = tuple(_measured(network, measures, flow, slot) for slot in slots)
        classes = (network.classes[query.class_id],) if query.class_id in network.classes else ()
        found.append(GraphDelta(query, operators, tuple(edges), classes))
    return found


def _edges(network: NetworkModel, slot: int) -> list[Edge]:
    identity = network.operators.identity
    return [
        Edge(network.edges.identity(edge), network.logs.identity(network.edge_log[edge]), identity(network.edge_producer[edge]),
             identity(slot), port)
        for port, edge in enumerate(network.inputs[slot])
    ]  # fmt: skip


class _Measures:
    """Cost lines and selectivities by slot."""

    def __init__(self, network: NetworkModel, estimates: Estimates, did: Mapping[OperatorId, OperatorActivity]) -> None:
        self._network, self._estimates, self._did = network, estimates, did

    def knows(self, slot: int) -> bool:
        """Tell whether the operator is measured at all; a source is not."""
        return self._estimates.means.known[slot] and not self._network.is_source(slot)

    def selectivity(self, slot: int) -> float:
        """Return outputs per input. What a sink takes are results."""
        if not self._network.outputs[slot]:
            return 1.0
        did, measured = self._did.get(self._network.operators.identity(slot)), self._estimates.means.of(slot)
        if did is not None and did.rows_in > 0:
            return sum(did.made.values()) / did.rows_in  # also of few: these rows come again
        return 1.0 if measured is None else measured.selectivity

    def of_outputs(self, slot: int) -> tuple[float, ...]:
        """Return the outputs per input of each output; nothing where the operator did too little to tell."""
        did = self._did.get(self._network.operators.identity(slot))
        if did is None or did.rows_in < 1:
            return ()
        return tuple(did.made.get(self._network.logs.identity(place), 0) / did.rows_in for place in self._network.outputs[slot])

    def line(self, slot: int) -> CostLine:
        """Return the fitted line, scaled to what the operator cost in all."""
        line, did = self._estimates.cost_line(slot), self._did.get(self._network.operators.identity(slot))
        if did is None or did.rows_in < 1:
            return line
        told_ns = line.call_ns * min(did.calls, did.rows_in) + line.tuple_ns * did.rows_in
        factor = did.cost_ns / told_ns if told_ns > 0.0 else 1.0
        return CostLine(line.call_ns * factor, line.tuple_ns * factor)


def _measured(network: NetworkModel, measures: _Measures, flow: _Flow, slot: int) -> OperatorNode:
    outputs = tuple(network.logs.identity(place) for place in network.outputs[slot])
    node = replace(network.node(slot), outputs=outputs)
    if not measures.knows(slot):
        return node
    line, selectivity, window_ns = measures.line(slot), measures.selectivity(slot), node.window_ns
    each = measures.of_outputs(slot) if len(outputs) > 1 else ()
    if each:
        selectivity = sum(each) / len(each)
    if window_ns is not None and is_join(network, slot) and len(network.inputs[slot]) == 2:
        selectivity, window_ns = flow.pairing(selectivity, window_ns, network.inputs[slot])
    return replace(node, selectivity=selectivity, cost_ns=line.tuple_ns, call_ns=line.call_ns, window_ns=window_ns, output_selectivity=each)


class _Flow:
    """Tuples per ns through edges: what came in times the selectivities on the way."""

    def __init__(self, network: NetworkModel, measures: _Measures, rates: Mapping[LogId, float], span_ns: int) -> None:
        self._network, self._measures, self._rates, self._span_ns = network, measures, rates, span_ns
        self._known: dict[int, float] = {}

    def pairing(self, selectivity: float, window_ns: int, inputs: list[int]) -> tuple[float, int]:
        """Return s_J from outputs per input, and the window of the model: of so many pairs that come within V of each other, that share.

        s (r_L + r_R) results a ns, of (2 V - V²/T) r_L r_R pairs, T being the time recorded (Sharaf 2007, 3.3.3, has 2 V: V far below T).
        Where event time runs slower than the clock, so that there are fewer pairs than results, all that was recorded may pair.
        """
        left, right = (self.through(edge) for edge in inputs)
        results = selectivity * (left + right)
        for window in (min(window_ns, self._span_ns), self._span_ns):
            pairs = (2.0 - window / self._span_ns) * window * left * right
            if results <= pairs:
                return (results / pairs if pairs > 0.0 else 0.0), window
        return 1.0, self._span_ns

    def through(self, edge: int) -> float:
        """Return the flow through an edge."""
        network, producer = self._network, self._network.edge_producer[edge]
        if network.is_source(producer):
            return self._rates.get(network.logs.identity(network.edge_log[edge]), 0.0)
        if producer not in self._known:
            taken = sum(self.through(one) for one in network.inputs[producer])
            self._known[producer] = taken * self._measures.selectivity(producer) / max(1, len(network.outputs[producer]))
        return self._known[producer]
