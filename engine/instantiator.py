"""From a physical plan to operators, logs and edges: the instantiator.

Walks the plan in post-order (children before parents), gives ids, builds each operator, and writes down who will read whose log.
Nothing runs and nothing is attached until `Blueprint.attach`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from millstream.engine.graph import ClassNode, Edge, EdgeId, LogId, OperatorId, OperatorNode, QueryId, QueryNode
from millstream.engine.operators.build import build_operator, kind_of, prior_of
from millstream.engine.operators.recipes import JoinRecipe, Recipe, SinkRecipe
from millstream.engine.planner.physical import InputRef, PhysicalNode, PhysicalQuery, SourceNode
from millstream.engine.queues import Cursor, OutputLog
from millstream.engine.running import RunningOperator
from millstream.engine.sources import Source
from millstream.engine.train import Train

NS_PER_US = 1_000
STATELESS_KINDS = ("select", "project", "split", "union")


class Ids:
    """Counters of ids that are never reused."""

    def __init__(self) -> None:
        self._operator = self._log = self._edge = self._query = 0

    def operator(self) -> OperatorId:
        """Return a new operator id, from 1."""
        self._operator += 1
        return OperatorId(self._operator)

    def log(self) -> LogId:
        """Return a new log id, from 1."""
        self._log += 1
        return LogId(self._log)

    def edge(self) -> EdgeId:
        """Return a new edge id, from 1."""
        self._edge += 1
        return EdgeId(self._edge)

    def query(self) -> QueryId:
        """Return a new query id, from 1."""
        self._query += 1
        return QueryId(self._query)


@dataclass(frozen=True, slots=True)
class Port:
    """An output that can be read: its log, who fills it, the source if it is a stream's, the streams and base streams behind it."""

    log: OutputLog
    producer: OperatorId
    source: Source | None
    base_streams: frozenset[str]
    derived: str | None = None
    streams: frozenset[str] = frozenset()
    raw: bool = True


@dataclass(slots=True)
class Wire:
    """An input to be: which port of the consumer reads which log through which edge. `stream` names an external log's stream."""

    consumer: RunningOperator
    edge: EdgeId
    port: Port
    stream: str | None


@dataclass(slots=True)
class Blueprint:
    """All that one query brings, ready to be attached."""

    query: QueryNode
    root: Port
    operators: list[RunningOperator]
    wires: list[Wire]
    nodes: tuple[OperatorNode, ...]
    edges: tuple[Edge, ...]
    source_nodes: tuple[OperatorNode, ...]
    streams: frozenset[str]
    base_streams: frozenset[str]
    cursors: list[tuple[str, Cursor]] = field(default_factory=list)

    @property
    def external_logs(self) -> list[OutputLog]:
        """Logs of streams that the query reads."""
        return [w.port.log for w in self.wires if w.stream is not None]

    def attach(self, at: int) -> tuple[tuple[EdgeId, int], ...]:
        """Open all cursors at the arrival number `at`; return for each edge on an external log its rows ever appended."""
        before: list[tuple[EdgeId, int]] = []
        for running in self.operators:
            wires = [w for w in self.wires if w.consumer is running]
            for wire in wires:
                cursor = wire.port.log.open_cursor(wire.edge, from_seq=at)
                running.inputs.append(cursor)
                if wire.stream is not None:
                    before.append((wire.edge, wire.port.log.rows_total))
                    self.cursors.append((wire.stream, cursor))
            logs = [w.port.log for w in wires]
            watermark = running.logic.attached([log.watermark_us for log in logs], [log.idle for log in logs])
            for place, wire in enumerate(wires):
                source = wire.port.source
                if source is not None and source.table is not None:
                    running.logic.preload(place, source.table.content(at))
            for log in running.outputs:
                log.hi, log.watermark_us, log.idle = at, watermark, all(x.idle for x in logs)
        return tuple(before)

    def stream_cursors(self) -> list[tuple[str, Cursor]]:
        """Return the cursors on external logs with the stream's name."""
        return self.cursors


class Instantiator:
    """Builds the blueprint of one query. `find_port` tells where a stream of a name can be read."""

    def __init__(self, ids: Ids, find_port: Callable[[str], Port]) -> None:
        self._ids = ids
        self._find_port = find_port
        self._operators: list[RunningOperator] = []
        self._nodes: list[OperatorNode] = []
        self._wires: list[Wire] = []
        self._ports: dict[int, list[Port]] = {}
        self._sources: dict[str, Port] = {}

    def build(self, name: str, query: PhysicalQuery, deliver: Callable[[Train], None] | None, class_node: ClassNode) -> Blueprint:
        """Build every operator of the plan; with `deliver` a sink at its end."""
        root = self._visit(InputRef(query.root), class_node)
        if deliver is not None:
            recipe = SinkRecipe(query.schema, query=name)
            self._add(PhysicalNode(recipe, ()), [root], class_node, deliver)
        streams = frozenset(w.stream for w in self._wires if w.stream is not None)
        source_nodes = tuple(self._source_node(p) for p in self._sources.values() if p.source is not None)
        node = self._query_node(name, query, source_nodes, class_node)
        return Blueprint(
            node,
            root,
            self._operators,
            self._wires,
            tuple(self._nodes),
            tuple(Edge(w.edge, w.port.log.id, w.port.producer, w.consumer.id, _place(self._wires, w)) for w in self._wires),
            source_nodes,
            streams,
            frozenset().union(*(p.base_streams for p in self._sources.values())),
        )

    def _query_node(self, name: str, query: PhysicalQuery, sources: Iterable[OperatorNode], class_node: ClassNode) -> QueryNode:
        options = query.options
        return QueryNode(
            self._ids.query(),
            name,
            self._operators[-1].id,
            (*(s.id for s in sources), *(o.id for o in self._operators)),
            class_node.id,
            options.weight,
            options.qos,
            options.deadline_ns,
            options.period_ns,
        )

    def _visit(self, ref: InputRef, class_node: ClassNode) -> Port:
        node = ref.node
        if isinstance(node, SourceNode):
            if node.stream not in self._sources:
                self._sources[node.stream] = self._find_port(node.stream)
            return self._sources[node.stream]
        if id(node) not in self._ports:
            inputs = [self._visit(child, class_node) for child in node.inputs]
            self._ports[id(node)] = self._add(node, inputs, class_node, None)
        return self._ports[id(node)][ref.output]

    def _add(self, node: PhysicalNode, inputs: list[Port], class_node: ClassNode, deliver: Callable[[Train], None] | None) -> list[Port]:
        logic = build_operator(node.recipe, [p.log.schema for p in inputs], deliver)
        running = RunningOperator(self._ids.operator(), logic, node.recipe)
        kind = kind_of(node.recipe)
        running.raw = all(p.raw for p in inputs)
        for port in inputs:
            stream = self._stream_of(port)
            running.port_streams.append(frozenset((stream,)) if stream is not None else port.streams)
            self._wires.append(Wire(running, self._ids.edge(), port, stream))
        for schema in logic.schemas:
            log = OutputLog(self._ids.log(), schema)
            log.producer = running
            running.outputs.append(log)
        base = frozenset[str]().union(*(p.base_streams for p in inputs))
        streams = frozenset[str]().union(*running.port_streams)
        self._operators.append(running)
        self._nodes.append(self._operator_node(running, node, kind, class_node))
        raw = running.raw and kind in STATELESS_KINDS
        return [Port(log, running.id, None, base, None, streams, raw) for log in running.outputs]

    def _stream_of(self, port: Port) -> str | None:
        if port.source is not None:
            return port.source.definition.name
        return port.derived

    def _operator_node(self, running: RunningOperator, node: PhysicalNode, kind: str, class_node: ClassNode) -> OperatorNode:
        selectivity, cost_ns, call_ns = prior_of(kind)
        wires = [w for w in self._wires if w.consumer is running]
        return OperatorNode(
            running.id,
            kind,
            tuple(w.edge for w in wires),
            tuple(log.id for log in running.outputs),
            selectivity if node.selectivity is None else node.selectivity,
            cost_ns if node.cost_us is None else node.cost_us * NS_PER_US,
            call_ns,
            float(wires[0].port.log.row_bytes),
            float(running.outputs[0].row_bytes) if running.outputs else 0.0,
            running.logic.stateful,
            class_node.id,
            label=kind,
            window_ns=window_ns(node.recipe),
        )

    def _source_node(self, port: Port) -> OperatorNode:
        source = port.source
        assert source is not None
        logs = tuple(log.id for log in source.logs)
        size = float(source.log.row_bytes)
        return OperatorNode(source.id, "source", (), logs, row_bytes_in=size, row_bytes_out=size, label=source.definition.name)


def _place(wires: list[Wire], wire: Wire) -> int:
    return [w for w in wires if w.consumer is wire.consumer].index(wire)


def window_ns(recipe: Recipe) -> int | None:
    """Return V of a windowed join (Sharaf 2007, 3.5): the longest distance in time of two rows that pair."""
    if not isinstance(recipe, JoinRecipe):
        return None
    bounds = [abs(b) for b in (recipe.lower_us, recipe.upper_us) if b is not None]
    return max(bounds, default=0) * NS_PER_US
