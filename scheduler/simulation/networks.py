"""Networks of universal boxes, written as trees, and the deltas that bring them into force.

    source = builder.source("packets")
    select = Box(1_000_000, 0.5, source)          # 1 ms, half of the tuples pass
    delta = builder.query("q1", Box(2_000_000, 1.0, select))

A box that is used in several queries is one shared operator.
"""

from __future__ import annotations

from millstream.engine.data.graph import (
    DEFAULT_CLASS,
    DEFAULT_QOS,
    NS_PER_S,
    ClassId,
    ClassNode,
    Edge,
    EdgeId,
    GraphDelta,
    LogId,
    OperatorId,
    OperatorNode,
    QueryId,
    QueryNode,
)
from millstream.engine.data.records import dataclass


@dataclass(frozen=True, eq=False, slots=True)
class SimulatedSource:
    """A stream that tuples enter from outside."""

    name: str


class Box:
    """A universal box: `cost_ns` a tuple, `selectivity` outputs a tuple, `call_ns` a call, reading sources or other boxes."""

    __slots__ = ("call_ns", "cost_ns", "inputs", "kind", "label", "selectivity", "size_in", "size_out", "window_ns")

    def __init__(
        self,
        cost_ns: float,
        selectivity: float,
        *inputs: Box | SimulatedSource,
        call_ns: float = 0.0,
        label: str = "",
        size: float = 1.0,
        size_out: float | None = None,
        window_ns: int | None = None,
        kind: str | None = None,
    ) -> None:
        self.cost_ns = cost_ns
        self.selectivity = selectivity
        self.inputs = inputs
        self.call_ns = call_ns
        self.label = label
        self.size_in = size
        self.size_out = size if size_out is None else size_out
        self.window_ns = window_ns
        self.kind = kind or ("join" if window_ns is not None else "union" if len(inputs) > 1 else "box")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a query asks for beside its boxes."""

    class_id: ClassId = DEFAULT_CLASS
    weight: float = 1.0
    qos: tuple[tuple[float, float], ...] = DEFAULT_QOS
    deadline_ns: int = NS_PER_S
    period_ns: int | None = None


class NetworkBuilder:
    """Gives ids in the order things are met. Operator, log and edge ids all count from 1."""

    def __init__(self) -> None:
        self._operators: dict[Box | SimulatedSource, OperatorId] = {}
        self._logs: dict[Box | SimulatedSource, LogId] = {}
        self._next_edge = 1
        self._next_query = 1

    def source(self, name: str) -> SimulatedSource:
        """Return a new stream."""
        return SimulatedSource(name)

    def log(self, of: Box | SimulatedSource) -> LogId:
        """Return the log a source or box writes; known once a query has used it."""
        return self._logs[of]

    def operator(self, of: Box | SimulatedSource) -> OperatorId:
        """Return the operator of a source or box; known once a query has used it."""
        return self._operators[of]

    def query(self, name: str, root: Box, asked: Asked | None = None, classes: tuple[ClassNode, ...] = ()) -> GraphDelta:
        """Return the delta of a query that ends in `root`; boxes of earlier queries are shared."""
        asked = asked or Asked()
        nodes: list[OperatorNode] = []
        edges: list[Edge] = []
        order: list[Box | SimulatedSource] = []
        self._visit(root, asked, order, nodes, edges)
        identity = QueryId(self._next_query)
        self._next_query += 1
        query = QueryNode(
            identity,
            name,
            self._operators[root],
            tuple(self._operators[one] for one in order),
            class_id=asked.class_id,
            weight=asked.weight,
            qos=asked.qos,
            deadline_ns=asked.deadline_ns,
            period_ns=asked.period_ns,
        )
        return GraphDelta(query, tuple(nodes), tuple(edges), classes)

    def _visit(
        self, one: Box | SimulatedSource, asked: Asked, order: list[Box | SimulatedSource], nodes: list[OperatorNode], edges: list[Edge]
    ) -> None:
        if one in order:
            return
        inputs: tuple[Box | SimulatedSource, ...] = () if isinstance(one, SimulatedSource) else one.inputs
        for child in inputs:
            self._visit(child, asked, order, nodes, edges)
        order.append(one)
        if one in self._operators:
            return
        operator, log = OperatorId(len(self._operators) + 1), LogId(len(self._logs) + 1)
        self._operators[one], self._logs[one] = operator, log
        if isinstance(one, SimulatedSource):
            nodes.append(OperatorNode(operator, "source", (), (log,), label=one.name))
            return
        own: list[EdgeId] = []
        for port, child in enumerate(inputs):
            edge = EdgeId(self._next_edge)
            self._next_edge += 1
            own.append(edge)
            edges.append(Edge(edge, self._logs[child], self._operators[child], operator, port))
        nodes.append(self._node(one, operator, tuple(own), log, asked))

    def _node(self, box: Box, operator: OperatorId, edges: tuple[EdgeId, ...], log: LogId, asked: Asked) -> OperatorNode:
        return OperatorNode(
            operator,
            box.kind,
            edges,
            (log,),
            selectivity=box.selectivity,
            cost_ns=box.cost_ns,
            call_ns=box.call_ns,
            row_bytes_in=box.size_in,
            row_bytes_out=box.size_out,
            stateful=box.window_ns is not None,
            class_id=asked.class_id,
            label=box.label,
            window_ns=box.window_ns,
        )
