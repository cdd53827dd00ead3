"""The running network in dense slots: every operator, edge and log has a small integer that NumPy columns are indexed by.

Ids are never reused; slots are. Orders that decide ties come from the queries (first added first, children before parents), never
from slots, so they do not depend on what ran before.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
from millstream.engine.graph import (
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
from millstream.scheduler.errors import GraphError
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
IdT = TypeVar("IdT", OperatorId, EdgeId, LogId)


class Slots(Generic[IdT]):
    """Gives ids small integers and takes them back."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.slot_of: dict[IdT, int] = {}
        self.ids: list[IdT | None] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, identity: IdT) -> int:
        """Give `identity` a slot; raises `GraphError` when it has one."""
        if identity in self.slot_of:
            raise GraphError(f"{self.word} {identity} is in the network already")
        if self._free:
            slot = self._free.pop()
            self.ids[slot] = identity
        else:
            slot = len(self.ids)
            self.ids.append(identity)
        self.slot_of[identity] = slot
        return slot

    def free(self, identity: IdT) -> int:
        """Take the slot of `identity` back and return it."""
        slot = self.slot_of.pop(identity)
        self.ids[slot] = None
        self._free.append(slot)
        return slot

    def identity(self, slot: int) -> IdT:
        """Return the id that stands in `slot`."""
        found = self.ids[slot]
        if found is None:
            raise GraphError(f"no {self.word} stands in slot {slot}")
        return found


class Readers:
    """The edges that read one log, and their consumers, as lists and as arrays; `repeated` when a consumer reads it twice."""

    __slots__ = ("consumers", "consumers_array", "edges", "edges_array", "repeated")

    def __init__(self, edges: list[int], consumers: list[int]) -> None:
        self.edges = edges
        self.consumers = consumers
        self.edges_array: IntArray = np.array(edges, dtype=np.int64)
        self.consumers_array: IntArray = np.array(consumers, dtype=np.int64)
        self.repeated = len(set(consumers)) != len(consumers)


class Network:
    """Operators, edges, logs, queries and classes that are in force. `version` grows with every change."""

    def __init__(self) -> None:
        self.version = 0
        self.operators: Slots[OperatorId] = Slots("operator")
        self.edges: Slots[EdgeId] = Slots("edge")
        self.logs: Slots[LogId] = Slots("log")
        self.nodes: list[OperatorNode | None] = []
        self.edge_log: list[int] = []
        self.edge_producer: list[int] = []
        self.edge_consumer: list[int] = []
        self.log_producer: list[int] = []
        self.log_readers: list[Readers] = []
        self.inputs: list[list[int]] = []
        self.outputs: list[list[int]] = []
        self.queries: dict[QueryId, QueryNode] = {}
        self.query_order: list[QueryId] = []
        self.classes: dict[ClassId, ClassNode] = {}
        self._topology: Topology | None = None

    def node(self, slot: int) -> OperatorNode:
        """Return the description of the operator in `slot`."""
        found = self.nodes[slot]
        if found is None:
            raise GraphError(f"no operator stands in slot {slot}")
        return found

    def is_source(self, slot: int) -> bool:
        """Tell whether rows enter this operator's logs from outside."""
        return not self.inputs[slot]

    def check(self, delta: GraphDelta) -> None:
        """Raise `GraphError` when the delta does not fit the running network."""
        new_operators = {node.id for node in delta.operators}
        new_logs = {log for node in delta.operators for log in node.outputs}
        if delta.query.id in self.queries:
            raise GraphError(f"query {delta.query.id} is in the network already")
        for operator in (node.id for node in delta.operators):
            if operator in self.operators.slot_of:
                raise GraphError(f"operator {operator} is in the network already")
        for edge in delta.edges:
            if edge.log not in new_logs and edge.log not in self.logs.slot_of:
                raise GraphError(f"edge {edge.id} reads log {edge.log}, which nobody writes")
            if edge.consumer not in new_operators:
                raise GraphError(f"edge {edge.id} leads to operator {edge.consumer}, which the same delta does not bring")
        self._check_order(delta, new_operators)

    def _check_order(self, delta: GraphDelta, new_operators: set[OperatorId]) -> None:
        place = {operator: index for index, operator in enumerate(delta.query.operators)}
        for operator in delta.query.operators:
            if operator not in new_operators and operator not in self.operators.slot_of:
                raise GraphError(f"query {delta.query.id} names operator {operator}, which nobody brings")
        for edge in delta.edges:
            if place.get(edge.producer, -1) > place.get(edge.consumer, len(place)):
                raise GraphError(f"query {delta.query.id} lists operator {edge.consumer} before its input {edge.producer}")
        missing = new_operators - set(place)
        if missing:
            raise GraphError(f"operator {min(missing)} is in the delta of query {delta.query.id} but not in its list")

    def touched(self, delta: GraphDelta) -> list[int]:
        """Return the slots of running operators whose logs the new edges read."""
        slots = self.operators.slot_of
        return sorted({slots[edge.producer] for edge in delta.edges if edge.producer in slots})

    def add(self, delta: GraphDelta) -> tuple[list[int], list[int]]:
        """Put the delta in force; return the slots of its operators and edges."""
        self.check(delta)
        new_operators = [self._add_operator(node) for node in delta.operators]
        new_edges = [self._add_edge(edge) for edge in delta.edges]
        for class_node in delta.classes:
            self.classes[class_node.id] = class_node
        self.queries[delta.query.id] = delta.query
        self.query_order.append(delta.query.id)
        self._changed()
        return new_operators, new_edges

    def _add_operator(self, node: OperatorNode) -> int:
        slot = self.operators.take(node.id)
        if slot == len(self.nodes):
            self.nodes.append(node)
            self.inputs.append([])
            self.outputs.append([])
        self.nodes[slot] = node
        self.inputs[slot] = []
        self.outputs[slot] = []
        for log in node.outputs:
            place = self.logs.take(log)
            if place == len(self.log_producer):
                self.log_producer.append(slot)
                self.log_readers.append(Readers([], []))
            self.log_producer[place] = slot
            self.log_readers[place] = Readers([], [])
            self.outputs[slot].append(place)
        return slot

    def _add_edge(self, edge: Edge) -> int:
        slot = self.edges.take(edge.id)
        log = self.logs.slot_of[edge.log]
        consumer = self.operators.slot_of[edge.consumer]
        if slot == len(self.edge_log):
            self.edge_log.append(log)
            self.edge_producer.append(0)
            self.edge_consumer.append(consumer)
        self.edge_log[slot] = log
        self.edge_producer[slot] = self.log_producer[log]
        self.edge_consumer[slot] = consumer
        self.inputs[consumer].append(slot)
        readers = self.log_readers[log]
        self.log_readers[log] = Readers([*readers.edges, slot], [*readers.consumers, consumer])
        return slot

    def remove(self, query: QueryId, gone: Iterable[OperatorId]) -> tuple[list[int], list[int]]:
        """Take the query out with the operators that served it alone; return the slots of operators and edges now free."""
        if query not in self.queries:
            raise GraphError(f"query {query} is not in the network")
        operators = [self.operators.slot_of[operator] for operator in gone]
        edges = sorted({edge for slot in operators for edge in self.inputs[slot]} | self._edges_from(operators))
        for edge in edges:
            self._remove_edge(edge)
        for slot in operators:
            for log in self.outputs[slot]:
                self.logs.free(self.logs.identity(log))
            self.operators.free(self.operators.identity(slot))
            self.nodes[slot] = None
            self.inputs[slot], self.outputs[slot] = [], []
        del self.queries[query]
        self.query_order.remove(query)
        self._changed()
        return operators, edges

    def _edges_from(self, operators: list[int]) -> set[int]:
        return {edge for slot in operators for log in self.outputs[slot] for edge in self.log_readers[log].edges}

    def _remove_edge(self, edge: int) -> None:
        log, consumer = self.edge_log[edge], self.edge_consumer[edge]
        readers = self.log_readers[log]
        kept = [(one, other) for one, other in zip(readers.edges, readers.consumers, strict=True) if one != edge]
        self.log_readers[log] = Readers([one for one, _ in kept], [other for _, other in kept])
        self.inputs[consumer] = [one for one in self.inputs[consumer] if one != edge]
        self.edges.free(self.edges.identity(edge))

    def _changed(self) -> None:
        self.version += 1
        self._topology = None

    @property
    def topology(self) -> Topology:
        """Orders and adjacency of the present network, built when first asked for after a change."""
        if self._topology is None:
            self._topology = Topology(self)
        return self._topology


class Topology:
    """What follows from the network's shape. Immutable; a new one is built after a change."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.version = network.version
        self.sources: list[int] = []
        self.order: list[int] = []
        """Slots of all operators that can run, children before parents, queries in the order they were added."""
        self.query_slots: dict[QueryId, list[int]] = {}
        """Per query the slots of its operators that can run, children before parents."""
        self.queries_of: dict[int, list[QueryId]] = {}
        self.roots_of: dict[int, list[QueryId]] = {}
        self._walk_queries()

    def _walk_queries(self) -> None:
        network, slot_of = self._network, self._network.operators.slot_of
        seen: set[int] = set()
        for query in network.query_order:
            node = network.queries[query]
            runnable: list[int] = []
            for operator in node.operators:
                slot = slot_of[operator]
                self.queries_of.setdefault(slot, []).append(query)
                source = network.is_source(slot)
                if not source:
                    runnable.append(slot)
                if slot not in seen:
                    seen.add(slot)
                    (self.sources if source else self.order).append(slot)
            self.query_slots[query] = runnable
            self.roots_of.setdefault(slot_of[node.root], []).append(query)

    @cached_property
    def place(self) -> dict[int, int]:
        """Position of each operator in `order`."""
        return {slot: index for index, slot in enumerate(self.order)}

    @cached_property
    def consumers(self) -> list[list[int]]:
        """Per slot the consumers of its logs, one entry an edge."""
        network = self._network
        return [
            [consumer for log in network.outputs[slot] for consumer in network.log_readers[log].consumers]
            for slot in range(len(network.nodes))
        ]

    @cached_property
    def producers(self) -> list[list[int]]:
        """Per slot the operators that can run and feed it, one entry an edge."""
        network = self._network
        found: list[list[int]] = [[] for _ in network.nodes]
        for slot in self.order:
            found[slot] = [
                network.edge_producer[edge] for edge in network.inputs[slot] if not network.is_source(network.edge_producer[edge])
            ]
        return found

    def downstream(self, slot: int) -> list[int]:
        """Return `slot` and every operator below it on the way to the outputs, children before parents."""
        found = {slot}
        stack = [slot]
        while stack:
            for consumer in self.consumers[stack.pop()]:
                if consumer not in found:
                    found.add(consumer)
                    stack.append(consumer)
        return sorted(found, key=self.place.__getitem__)

    def is_leaf(self, slot: int) -> bool:
        """Tell whether the operator reads a source."""
        network = self._network
        return any(network.is_source(network.edge_producer[edge]) for edge in network.inputs[slot])

    @cached_property
    def levels(self) -> list[tuple[IntArray, IntArray, IntArray]]:
        """Operators by greatest distance to an output, nearest first.

        Per level: slots; then of every edge out of them the index of its producer within the slots, and its consumer's slot.
        """
        distance: dict[int, int] = {}
        for slot in reversed(self.order):
            distance[slot] = 1 + max((distance[consumer] for consumer in self.consumers[slot]), default=-1)
        grouped: list[list[int]] = [[] for _ in range(1 + max(distance.values(), default=-1))]
        for slot in self.order:
            grouped[distance[slot]].append(slot)
        return [self._level(slots) for slots in grouped]

    def _level(self, slots: list[int]) -> tuple[IntArray, IntArray, IntArray]:
        pairs = [(index, consumer) for index, slot in enumerate(slots) for consumer in self.consumers[slot]]
        columns = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return np.array(slots, dtype=np.int64), columns[:, 0].copy(), columns[:, 1].copy()
