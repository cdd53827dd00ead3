"""The running network in plain words: operators, ports, edges, queries, classes. No data, no pyarrow.

This is all that the scheduler ever learns about a query. Ids are integers that are never reused.

An operator has numbered input ports and numbered output ports. Each output port has one append-only log that any number of
edges read, each with a cursor of its own; so an edge is (log, consumer, port), and pending rows of an edge are the rows the log
ever received less the rows this edge has consumed. A source is an operator without inputs: rows enter its log from outside.
"""

from __future__ import annotations

from dataclasses import field
from typing import NewType

from millstream.engine.data.records import dataclass

OperatorId = NewType("OperatorId", int)
LogId = NewType("LogId", int)
EdgeId = NewType("EdgeId", int)
QueryId = NewType("QueryId", int)
ClassId = NewType("ClassId", int)

DEFAULT_CLASS = ClassId(0)
NS_PER_S = 1_000_000_000

# Latency utility of a query that says nothing: 1 until 1 s, falling to 0 at 10 s. Points are (latency in seconds, utility).
DEFAULT_QOS: tuple[tuple[float, float], ...] = ((0.0, 1.0), (1.0, 1.0), (10.0, 0.0))


@dataclass(frozen=True, slots=True)
class OperatorNode:
    """One operator as the scheduler sees it.

    `selectivity` is outputs per input tuple, `cost_ns` the time for one input tuple: the declared values or a prior, replaced
    by measured ones. `call_ns` is the fixed cost of one call. `row_bytes_in` and `row_bytes_out` are mean tuple sizes. In a recording
    `output_selectivity` holds the outputs per input tuple of each of several outputs, and `selectivity` their mean.
    """

    id: OperatorId
    kind: str
    inputs: tuple[EdgeId, ...]
    outputs: tuple[LogId, ...]
    selectivity: float = 1.0
    cost_ns: float = 1_000.0
    call_ns: float = 0.0
    row_bytes_in: float = 64.0
    row_bytes_out: float = 64.0
    stateful: bool = False
    class_id: ClassId = DEFAULT_CLASS
    label: str = ""
    window_ns: int | None = None  # V of a windowed join (Sharaf 2007, 3.5)
    hub: bool = False  # feeds many queries, few of them at a time: an order that runs it ends with it
    output_selectivity: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Edge:
    """A reader of a log: `consumer` reads it on input port `port`."""

    id: EdgeId
    log: LogId
    producer: OperatorId
    consumer: OperatorId
    port: int = 0


@dataclass(frozen=True, slots=True)
class QueryNode:
    """A continuous query: the sink operator it ends in and what was asked of it.

    `operators` lists every operator that serves it, sources first (post-order of its tree, children before parents).
    """

    id: QueryId
    name: str
    root: OperatorId
    operators: tuple[OperatorId, ...]
    class_id: ClassId = DEFAULT_CLASS
    weight: float = 1.0
    qos: tuple[tuple[float, float], ...] = DEFAULT_QOS
    deadline_ns: int = NS_PER_S
    period_ns: int | None = None


@dataclass(frozen=True, slots=True)
class ClassNode:
    """A query class: priority (greater is more important), delay target, whether its input may be shed, its workers (none named: all)."""

    id: ClassId
    name: str
    priority: float = 1.0
    target_ns: int | None = None
    may_shed: bool = False
    workers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphDelta:
    """What one added query brings: only the operators and edges that were not running before.

    `ports` are new outputs of running operators (operator, log): a shared aggregate has one for each query.
    """

    query: QueryNode
    operators: tuple[OperatorNode, ...] = ()
    edges: tuple[Edge, ...] = ()
    classes: tuple[ClassNode, ...] = field(default=())
    ports: tuple[tuple[OperatorId, LogId], ...] = field(default=())
