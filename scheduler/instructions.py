"""What the scheduler can ask for. The driver carries each out and answers with events."""

from __future__ import annotations

from millstream.engine.data.graph import ClassId, GraphDelta, LogId, OperatorId, QueryId
from millstream.engine.data.records import dataclass
from millstream.engine.data.work import WorkOrder
from millstream.scheduler.events import QueryRemoved


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
