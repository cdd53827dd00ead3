"""From a physical plan to operators, logs and edges: the instantiator.

Walks the plan in post-order (children before parents), gives ids, builds each operator, and writes down who will read whose log.
Nothing runs and nothing is attached until `Blueprint.attach`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from millstream.engine.data.graph import ClassNode, Edge, EdgeId, LogId, OperatorId, OperatorNode, QueryId, QueryNode
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Train
from millstream.engine.expressions.ir import ColumnRef
from millstream.engine.flow.queues import OutputLog
from millstream.engine.flow.running import RunningOperator
from millstream.engine.language.recipes import AggregateRecipe, JoinRecipe, ProjectRecipe, Recipe, SinkRecipe
from millstream.engine.operators.build import STATELESS_KINDS, build_operator, kind_of, prior_of
from millstream.engine.operators.contract import Operator
from millstream.engine.plan.physical import InputRef, PhysicalNode, PhysicalQuery, SourceNode
from millstream.engine.receipts.build import keeper_for, lineages_of
from millstream.engine.runtime.blueprint import Blueprint
from millstream.engine.sharing.merge import SYNOPSIS_RECIPE, Merging, leaves, moved, without_picks
from millstream.engine.sharing.registry import Key, Port, Registry, Shared, SharedOutput, Wire
from millstream.engine.synopses.answers import OutputColumns
from millstream.engine.synopses.shared_aggregate import SharedAggregate

NS_PER_US = 1_000


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


class Instantiator:
    """Builds the blueprint of one query. `find_port` tells where a stream of a name can be read, with which columns.

    With a `registry` it puts the plan on top of what runs (see `sharing/`); without `with_state` only of what keeps no state, and without
    `synopses` it begins synopses of its own.
    """

    def __init__(
        self,
        ids: Ids,
        find_port: Callable[[str, Schema], Port],
        registry: Registry | None = None,
        *,
        with_state: bool = True,
        synopses: bool = True,
    ) -> None:
        self._ids = ids
        self._find_port = find_port
        self._joins_synopses = synopses
        self._merging = None if registry is None else Merging(registry, with_state=with_state)
        self._used: list[RunningOperator] = []
        self._offers: list[Shared] = []
        self._subscriptions: list[SharedOutput] = []
        self._with_state: list[Shared] = []
        self._private: set[LogId] = set()
        self._operators: list[RunningOperator] = []
        self._nodes: list[OperatorNode] = []
        self._wires: list[Wire] = []
        self._ports: dict[int, list[Port]] = {}
        self._sources: dict[str, Port] = {}
        self._history = False

    def build(
        self,
        name: str,
        query: PhysicalQuery,
        deliver: Callable[[Train], None] | None,
        class_node: ClassNode,
        *,
        keep_progress: bool = False,
    ) -> Blueprint:
        """Build every operator of the plan; with `deliver` a sink at its end. `keep_progress`: others may read the root's log."""
        self._history = query.options.history
        root = self._visit(InputRef(query.root), class_node)
        if deliver is not None:
            recipe = SinkRecipe(query.schema, query=name)
            self._add(PhysicalNode(recipe, ()), [root], class_node, deliver)
        if deliver is not None and not keep_progress:
            self._mark_quiet()
        source_nodes = tuple(self._source_node(p) for p in self._sources.values() if p.source is not None)
        node = self._query_node(name, query, source_nodes, class_node)
        for running in self._used:
            running.queries += 1
        return Blueprint(
            node,
            root,
            self._operators,
            self._wires,
            tuple(self._nodes),
            tuple(Edge(w.edge, w.port.log.id, w.port.producer, w.consumer.id, _place(self._wires, w)) for w in self._wires),
            source_nodes,
            frozenset(self._sources),
            frozenset().union(*(p.base_streams for p in self._sources.values())),
            self._used,
            self._subscriptions,
            self._offers,
            self._to_awaken(),
            self._with_state,
            self._history,
        )

    def _to_awaken(self) -> list[OutputLog]:
        """Return the logs of running operators behind which progress matters from now on."""
        used = {running.id for running in self._used}
        read = [w for w in self._wires if w.port.producer in used and not _ignores_progress(w.consumer)]
        return [w.port.log for w in read if w.port.log.id not in self._private]

    def _mark_quiet(self) -> None:
        """Mark logs behind which only selections, projections and the sink stand: a moving W alone means nothing to those."""
        joined = [s.log for s in self._subscriptions if s.running in self._used]
        own = [log for running in self._operators if running not in self._used for log in running.outputs]
        for log in (*reversed(own), *joined):
            readers = [w.consumer for w in self._wires if w.port.log is log]
            log.quiet = bool(readers) and all(_ignores_progress(r) for r in readers)

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
            return self._source(node)
        if id(node) not in self._ports:
            self._ports[id(node)] = self._placed(node, class_node)
        return self._ports[id(node)][ref.output]

    def _source(self, node: SourceNode) -> Port:
        if node.stream not in self._sources:
            self._sources[node.stream] = self._find_port(node.stream, node.schema)
        return self._sources[node.stream]

    def _placed(self, node: PhysicalNode, class_node: ClassNode) -> list[Port]:
        """Put a node on top of its inputs: use what runs where it can be used, else build it."""
        if self._merging is None:
            return self._add(node, [self._visit(child, class_node) for child in node.inputs], class_node, None)
        picks = _picked(node)
        if picks is not None and self._is_carried(picks[0]):
            return self._aggregated(picks[0], class_node, OutputColumns(node.recipe.schema, picks[1]))
        if self._is_carried(node):
            return self._aggregated(node, class_node, OutputColumns(node.recipe.schema))
        inputs = [self._visit(child, class_node) for child in node.inputs]
        if self._history and isinstance(node.recipe, AggregateRecipe):
            return self._add(node, inputs, class_node, None)  # its windows begin where those of others do not
        placing = self._merging.place(node, inputs, class_node.id)
        for shared in placing.used:
            self._use(shared)
        if placing.node is None:
            return placing.used[-1].ports
        return self._add(placing.node, placing.inputs, class_node, None, placing.key)

    def _use(self, shared: Shared) -> None:
        if shared.running not in self._operators:
            self._operators.append(shared.running)
            self._used.append(shared.running)
        if shared.running.logic.stateful:
            self._with_state.append(shared)

    def _is_carried(self, node: PhysicalNode) -> bool:
        """Whether a shared aggregate can answer: its windows fit, and silence does not flush its streams (it has one W for all)."""
        if not isinstance(node.recipe, AggregateRecipe) or not SharedAggregate.carries(node.recipe):
            return False
        return not any(self._source(leaf).flushes for leaf in leaves(node))

    def _aggregated(self, node: PhysicalNode, class_node: ClassNode, shown: OutputColumns) -> list[Port]:
        """Subscribe to a running synopsis of the same rows by the same keys, or begin one."""
        assert self._merging is not None
        recipe, child = without_picks(node)
        port, recipe = self._argument_port(child, recipe, class_node)
        found = self._merging.synopsis(port, recipe, class_node.id) if self._joins_synopses else None
        log = OutputLog(self._ids.log(), shown.schema)
        if found is None:
            self._add(replace(node, recipe=recipe), [port], class_node, None)
            running = self._operators[-1]
            running.outputs.append(log)
            self._nodes[-1] = replace(self._nodes[-1], outputs=(log.id,), row_bytes_out=float(log.row_bytes))
            base, streams = port.base_streams, frozenset[str]().union(*running.port_streams)
            ports = [Port(log, running.id, None, base, None, streams, raw=False, lineages=port.lineages)]
            self._offers.append(Shared((class_node.id, SYNOPSIS_RECIPE, (port.log.id,)), running, ports))
        else:
            running, ports = found.running, [replace(found.ports[0], log=log)]
            if running not in self._operators:
                self._operators.append(running)
                self._used.append(running)
        log.producer = running
        self._subscriptions.append(SharedOutput(running, recipe, shown, log, None if found is not None else 0, self._history))
        self._private.add(log.id)
        return ports

    def _argument_port(self, child: InputRef, recipe: AggregateRecipe, class_node: ClassNode) -> tuple[Port, AggregateRecipe]:
        """Return where the keys and arguments of an aggregate stand, and the aggregate with their places there."""
        assert self._merging is not None
        if isinstance(child.node, PhysicalNode) and isinstance(child.node.recipe, ProjectRecipe):
            below = self._visit(child.node.inputs[0], class_node)
            wider = self._merging.wider(child.node.recipe, below, class_node.id)
            if wider is not None:
                self._use(wider[0])
                return wider[0].ports[0], moved(recipe, wider[1])
        return self._visit(child, class_node), recipe

    def _add(
        self, node: PhysicalNode, inputs: list[Port], class_node: ClassNode, deliver: Callable[[Train], None] | None, key: Key | None = None
    ) -> list[Port]:
        carried = self._merging is not None and deliver is None and self._is_carried(node)
        schemas = [p.log.schema for p in inputs]
        if carried and isinstance(node.recipe, AggregateRecipe):
            logic: Operator = SharedAggregate(node.recipe, schemas[0])
        else:
            logic = build_operator(node.recipe, schemas, deliver)
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
        shed = [p.lineages for p in inputs]
        running.keeper = keeper_for(node.recipe, logic, shed)
        lineages = lineages_of(node.recipe, shed)
        ports = [Port(log, running.id, None, base, None, streams, raw, lineages=lineages) for log in running.outputs]
        if any(p.log.id in self._private for p in inputs):
            self._private.update(p.log.id for p in ports)  # behind an output of its own nothing can be shared
        elif key is not None:
            self._offers.append(Shared(key, running, ports))
        return ports

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
            hub=running.logic.sparse,
        )

    def _source_node(self, port: Port) -> OperatorNode:
        source = port.source
        assert source is not None
        logs = tuple(log.id for log in source.logs)
        size = float(source.log.row_bytes)
        return OperatorNode(source.id, "source", (), logs, row_bytes_in=size, row_bytes_out=size, label=source.definition.name)


def _picked(node: PhysicalNode) -> tuple[PhysicalNode, tuple[int, ...]] | None:
    """Return the node below a projection that only picks columns, and which."""
    below = node.inputs[0].node
    if not isinstance(node.recipe, ProjectRecipe) or not isinstance(below, PhysicalNode):
        return None
    columns = tuple(c.position for c in node.recipe.columns if isinstance(c, ColumnRef))
    return (below, columns) if len(columns) == len(node.recipe.columns) else None


def _ignores_progress(running: RunningOperator) -> bool:
    if isinstance(running.recipe, SinkRecipe):
        return True
    return kind_of(running.recipe) in ("select", "project", "split") and all(log.quiet for log in running.outputs)


def _place(wires: list[Wire], wire: Wire) -> int:
    return [w for w in wires if w.consumer is wire.consumer].index(wire)


def window_ns(recipe: Recipe) -> int | None:
    """Return V of a windowed join (Sharaf 2007, 3.5): the longest distance in time of two rows that pair."""
    if not isinstance(recipe, JoinRecipe):
        return None
    bounds = [abs(b) for b in (recipe.lower_us, recipe.upper_us) if b is not None]
    return max(bounds, default=0) * NS_PER_US
