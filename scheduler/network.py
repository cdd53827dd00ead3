"""The running network in dense slots: every operator, edge and log has a small integer that NumPy columns are indexed by.

Ids are never reused; slots are. Orders that decide ties come from the queries (first added first, children before parents), never
from slots, so they do not depend on what ran before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Generic, TypeVar

import numpy as np
from millstream.engine.data.graph import (
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
Level = tuple[IntArray, IntArray, IntArray, IntArray]
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
    """The edges that read one log, and their consumers, as lists and as arrays."""

    __slots__ = ("_arrays", "consumers", "edges", "marks")

    def __init__(self) -> None:
        self.edges: list[int] = []
        self.consumers: list[int] = []
        self.marks: dict[int, None] = {}
        self._arrays: tuple[IntArray, IntArray] | None = None

    def add(self, edge: int, consumer: int) -> None:
        """Add a reader."""
        self.edges.append(edge)
        self.consumers.append(consumer)
        self.marks[consumer] = None
        self._arrays = None

    def remove(self, edge: int) -> None:
        """Take a reader away."""
        place = self.edges.index(edge)
        del self.edges[place], self.consumers[place]
        self.marks = dict.fromkeys(self.consumers)
        self._arrays = None

    @property
    def arrays(self) -> tuple[IntArray, IntArray]:
        """Edges and consumers as columns."""
        if self._arrays is None:
            self._arrays = np.array(self.edges, dtype=np.int64), np.array(self.consumers, dtype=np.int64)
        return self._arrays

    @property
    def repeated(self) -> bool:
        """Whether a consumer reads the log twice."""
        return len(self.marks) != len(self.consumers)


class NetworkModel:
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
        self._ports: dict[LogId, None] = {}
        """Outputs that a running operator got for one query; they go with their readers."""
        self.topology = Topology(self)

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
        new_logs = {log for node in delta.operators for log in node.outputs} | {log for _, log in delta.ports}
        if delta.query.id in self.queries:
            raise GraphError(f"query {delta.query.id} is in the network already")
        for node in delta.operators:
            slot = self.operators.slot_of.get(node.id)
            if slot is not None and (node.inputs or not self.is_source(slot)):
                raise GraphError(f"operator {node.id} is in the network already")
        for edge in delta.edges:
            if edge.log not in new_logs and edge.log not in self.logs.slot_of:
                raise GraphError(f"edge {edge.id} reads log {edge.log}, which nobody writes")
            if edge.consumer not in new_operators:
                raise GraphError(f"edge {edge.id} leads to operator {edge.consumer}, which the same delta does not bring")
        for operator, log in delta.ports:
            if operator not in self.operators.slot_of:
                raise GraphError(f"log {log} is to be an output of operator {operator}, which does not run")
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

    def widened(self, delta: GraphDelta) -> list[tuple[OperatorId, LogId]]:
        """Return the logs that the delta adds to sources that run already: a class that may be shed has its own."""
        known = [node for node in delta.operators if node.id in self.operators.slot_of]
        return [(node.id, log) for node in known for log in node.outputs if log not in self.logs.slot_of]

    def touched(self, delta: GraphDelta) -> list[int]:
        """Return the slots of running operators whose logs the new edges read, and of those that are to serve the query too."""
        slots = self.operators.slot_of
        shared = {slots[one] for one in delta.query.operators if one in slots and not self.is_source(slots[one])}
        return sorted({slots[edge.producer] for edge in delta.edges if edge.producer in slots} | shared)

    def add(self, delta: GraphDelta) -> tuple[list[int], list[int]]:
        """Put the delta in force; return the slots of its operators and edges."""
        self.check(delta)
        for operator, log in self.widened(delta):
            self._add_log(self.operators.slot_of[operator], log)
        new_operators = [self._add_operator(node) for node in delta.operators if node.id not in self.operators.slot_of]
        for operator, log in delta.ports:
            self._add_log(self.operators.slot_of[operator], log)
            self._ports[log] = None
        new_edges = [self._add_edge(edge) for edge in delta.edges]
        for class_node in delta.classes:
            self.classes[class_node.id] = class_node
        self.queries[delta.query.id] = delta.query
        self.query_order.append(delta.query.id)
        self.version += 1
        self.topology.query_came(delta.query, new_operators, new_edges)
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
            self._add_log(slot, log)
        return slot

    def _add_log(self, slot: int, log: LogId) -> None:
        place = self.logs.take(log)
        if place == len(self.log_producer):
            self.log_producer.append(slot)
            self.log_readers.append(Readers())
        self.log_producer[place] = slot
        self.log_readers[place] = Readers()
        self.outputs[slot].append(place)

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
        self.log_readers[log].add(slot, consumer)
        return slot

    def remove(self, query: QueryId, gone: Iterable[OperatorId]) -> tuple[list[int], list[int]]:
        """Take the query out with the operators that served it alone; return the slots of operators and edges now free."""
        if query not in self.queries:
            raise GraphError(f"query {query} is not in the network")
        operators = [self.operators.slot_of[operator] for operator in gone]
        self.topology.query_goes(self.queries[query], operators)
        edges = sorted({edge for slot in operators for edge in self.inputs[slot]} | self._edges_from(operators))
        for edge in edges:
            self._remove_edge(edge)
        for slot in operators:
            for log in self.outputs[slot]:
                self.logs.free(self.logs.identity(log))
            self.operators.free(self.operators.identity(slot))
            self.nodes[slot] = None
            self.inputs[slot], self.outputs[slot] = [], []
        self._close_ports()
        del self.queries[query]
        self.query_order.remove(query)
        self.version += 1
        return operators, edges

    def reweigh(self, query: QueryId, weight: float) -> None:
        """Give a query another weight, if it is still here; units are cut anew, since rankings remember weights."""
        if query not in self.queries:
            return
        self.queries[query] = replace(self.queries[query], weight=weight)
        self.version += 1

    def redefine(self, node: ClassNode) -> None:
        """Give a class other properties; units are cut anew, since rankings remember them."""
        if node.id in self.classes:
            self.classes[node.id] = node
            self.version += 1

    def _close_ports(self) -> None:
        for log in [log for log in self._ports if log not in self.logs.slot_of or not self.log_readers[self.logs.slot_of[log]].edges]:
            del self._ports[log]
            if log in self.logs.slot_of:
                place = self.logs.free(log)
                self.outputs[self.log_producer[place]].remove(place)

    def _edges_from(self, operators: list[int]) -> set[int]:
        return {edge for slot in operators for log in self.outputs[slot] for edge in self.log_readers[log].edges}

    def _remove_edge(self, edge: int) -> None:
        consumer = self.edge_consumer[edge]
        self.log_readers[self.edge_log[edge]].remove(edge)
        self.inputs[consumer] = [one for one in self.inputs[consumer] if one != edge]
        self.edges.free(self.edges.identity(edge))


class Topology:
    """Orders and adjacency that follow from the network's shape, kept up to date query by query."""

    def __init__(self, network: NetworkModel) -> None:
        self._network = network
        self.order: list[int] = []
        """Slots of all operators that can run, children before parents, queries in the order they were added."""
        self.place: dict[int, int] = {}
        """A number per operator that grows along `order`."""
        self.query_slots: dict[QueryId, list[int]] = {}
        """Per query the slots of its operators that can run, children before parents."""
        self.queries_of: dict[int, list[QueryId]] = {}
        self.roots_of: dict[int, list[QueryId]] = {}
        self.consumers: list[list[int]] = []
        """Per slot the consumers of its logs, one entry an edge."""
        self.consumer_edges: list[list[int]] = []
        """Per slot the edges that lead to `consumers`, in the same order."""
        self.producers: list[list[int]] = []
        """Per slot the operators that can run and feed it, one entry an edge."""
        self._next_place = 0
        self._levels: list[Level] | None = None

    def query_came(self, query: QueryNode, operators: list[int], edges: list[int]) -> None:
        """Take in a query, with the operators and edges it brought."""
        network = self._network
        self._levels = None
        while len(self.consumers) < len(network.nodes):
            self.consumers.append([])
            self.consumer_edges.append([])
            self.producers.append([])
        for slot in operators:
            self.consumers[slot], self.consumer_edges[slot], self.producers[slot] = [], [], []
        for edge in edges:
            producer, consumer = network.edge_producer[edge], network.edge_consumer[edge]
            self.consumers[producer].append(consumer)
            self.consumer_edges[producer].append(edge)
            if not network.is_source(producer):
                self.producers[consumer].append(producer)
        slots = [network.operators.slot_of[operator] for operator in query.operators]
        self.query_slots[query.id] = [slot for slot in slots if not network.is_source(slot)]
        for slot in slots:
            self.queries_of.setdefault(slot, []).append(query.id)
            if slot not in self.place and not network.is_source(slot):
                self.order.append(slot)
                self.place[slot] = self._next_place
                self._next_place += 1
        self.roots_of.setdefault(network.operators.slot_of[query.root], []).append(query.id)

    def query_goes(self, query: QueryNode, operators: list[int]) -> None:
        """Forget a query and the operators that served it alone. Call it before the network forgets them."""
        network, gone = self._network, set(operators)
        self._levels = None
        for operator in query.operators:
            self._leave(self.queries_of, network.operators.slot_of[operator], query.id)
        self._leave(self.roots_of, network.operators.slot_of[query.root], query.id)
        del self.query_slots[query.id]
        for slot in operators:
            for producer in dict.fromkeys(network.edge_producer[edge] for edge in network.inputs[slot]):
                self.consumer_edges[producer] = [edge for edge in self.consumer_edges[producer] if network.edge_consumer[edge] not in gone]
                self.consumers[producer] = [one for one in self.consumers[producer] if one not in gone]
            for consumer in dict.fromkeys(self.consumers[slot]):
                self.producers[consumer] = [one for one in self.producers[consumer] if one not in gone]
            self.place.pop(slot, None)
        for slot in operators:
            self.consumers[slot], self.consumer_edges[slot], self.producers[slot] = [], [], []
        self.order = [slot for slot in self.order if slot not in gone]

    @staticmethod
    def _leave(table: dict[int, list[QueryId]], slot: int, query: QueryId) -> None:
        left = [one for one in table[slot] if one != query]
        if left:
            table[slot] = left
        else:
            del table[slot]

    def downstream(self, slot: int) -> list[int]:
        """Return `slot` and every operator below it on the way to the outputs, children before parents."""
        return self._closure((slot,), self.consumers)

    def downstream_to_hub(self, slot: int) -> list[int]:
        """Return what `downstream` does, without what lies behind a hub."""
        node = self._network.node
        found, stack = {slot}, [slot]
        while stack:
            one = stack.pop()
            if node(one).hub:
                continue
            for consumer in self.consumers[one]:
                if consumer not in found:
                    found.add(consumer)
                    stack.append(consumer)
        return sorted(found, key=self.place.__getitem__)

    def upstream(self, slots: Iterable[int]) -> list[int]:
        """Return the slots and every operator above them that can run, children before parents."""
        return self._closure(slots, self.producers)

    def _closure(self, slots: Iterable[int], neighbours: list[list[int]]) -> list[int]:
        found = set(slots)
        stack = list(found)
        while stack:
            for other in neighbours[stack.pop()]:
                if other not in found:
                    found.add(other)
                    stack.append(other)
        return sorted(found, key=self.place.__getitem__)

    def is_leaf(self, slot: int) -> bool:
        """Tell whether the operator reads a source."""
        network = self._network
        return any(network.is_source(network.edge_producer[edge]) for edge in network.inputs[slot])

    @property
    def levels(self) -> list[Level]:
        """Operators by greatest distance to an output, nearest first; built when first asked for after a change.

        Per level: slots; then of every edge out of them the index of its producer within the slots, its consumer's slot, and its own.
        """
        if self._levels is None:
            distance: dict[int, int] = {}
            for slot in reversed(self.order):
                distance[slot] = 1 + max([distance[consumer] for consumer in self.consumers[slot]], default=-1)
            grouped: list[list[int]] = [[] for _ in range(1 + max(distance.values(), default=-1))]
            for slot in self.order:
                grouped[distance[slot]].append(slot)
            self._levels = [self._level(slots) for slots in grouped]
        return self._levels

    def _level(self, slots: list[int]) -> Level:
        triples = [
            (index, consumer, edge)
            for index, slot in enumerate(slots)
            for consumer, edge in zip(self.consumers[slot], self.consumer_edges[slot], strict=True)
        ]
        columns = np.array(triples, dtype=np.int64).reshape(-1, 3)
        return np.array(slots, dtype=np.int64), columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].copy()


def classes_in_use(network: NetworkModel) -> dict[ClassId, ClassNode]:
    """Return the classes of the running queries, by ascending number; one that nobody described has priority 1 and no target."""
    used = sorted({query.class_id for query in network.queries.values()})
    return {one: network.classes.get(one) or ClassNode(one, f"class {one}") for one in used}


def shares_in_use(network: NetworkModel) -> dict[ClassId, float]:
    """Return P_i by the sum of all P (Pham 2013, II)."""
    classes = classes_in_use(network)
    total = sum(node.priority for node in classes.values())
    return {one: node.priority / total for one, node in classes.items()}
