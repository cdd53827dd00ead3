"""What the scheduler can ask for, and of whom: the driver has each carried out by the engine, or a cost model, and answers with events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from millstream.engine.data.graph import ClassId, EdgeId, GraphDelta, LogId, OperatorId, QueryId
from millstream.engine.data.records import dataclass
from millstream.engine.data.work import EdgeStart, WorkOrder, WorkReceipt
from millstream.scheduler.events import QueryRemoved

ROUND_ROBIN_GOES_ON = "; round-robin goes on"
"""Ends the report of a policy that failed."""


@dataclass(slots=True)
class Dispatch:
    """Give this order to a worker. Its operators are locked until the `WorkDone` that answers it."""

    order: WorkOrder


@dataclass(frozen=True, slots=True)
class Splice:
    """Change the engine's network now: no operator it touches is running or in a queued order. Answer with `Spliced`.

    Exactly one of `added` and `removed` is set.
    """

    query: QueryId
    added: GraphDelta | None = None
    removed: QueryRemoved | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """A fact for whoever watches. Kinds: added, removed, refused, query_failed, policy_set, policy_failed, drained, load."""

    kind: str
    message: str
    query: QueryId | None = None
    operator: OperatorId | None = None


@dataclass(frozen=True, slots=True)
class SetDropRatio:
    """Drop this share of the rows that enter the log, from now on."""

    log: LogId
    ratio: float


@dataclass(frozen=True, slots=True)
class SetClassShare:
    """The class may use this share of the processor, from now on."""

    class_id: ClassId
    share: float


Instruction = Dispatch | Splice | Report | SetDropRatio | SetClassShare

ClockNs = Callable[[], int]
SpliceHandler = Callable[[Splice], Mapping[EdgeId, EdgeStart] | None]
"""Carries out a `Splice` in the engine; returns where each edge begins that it attached to an existing log."""

InstructionHandler = Callable[[Instruction], None]


class SplicedNetwork(Protocol):
    """What a splice needs of the engine's network."""

    def attach(self, query_id: QueryId) -> Iterable[tuple[EdgeId, EdgeStart]]:
        """Bring a query into force; return for each edge that reads a log of others where it begins."""
        ...

    def remove_query(self, query_id: QueryId) -> object:
        """Take a query out."""
        ...


def splicer(network: SplicedNetwork) -> SpliceHandler:
    """Return the handler that carries out a splice in `network`."""

    def splice(order: Splice) -> dict[EdgeId, EdgeStart]:
        if order.added is not None:
            return dict(network.attach(order.query))
        network.remove_query(order.query)
        return {}

    return splice


class OrderExecutor(Protocol):
    """Follows orders and makes no choice."""

    def run(self, order: WorkOrder, clock_ns: ClockNs) -> WorkReceipt:
        """Do the order's steps one after the other and tell what was done; raise `OrderFailed` when a step fails.

        `rows_max` of a step: None takes everything waiting; a number at most so many rows over all inputs; 0 takes only control
        items that stand before the next row. Control items reached on the way are always taken.
        """
        ...
