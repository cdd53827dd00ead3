"""What the scheduler can be told. Plain facts, with the time they happened where it matters.

A driver hands a list of these to `SchedulerCore.handle`; nothing else changes what the scheduler believes, so that a story of them can be
told again. Nobody changes one either; those that come with every train are not frozen, since that makes them dearer to make.
"""

from __future__ import annotations

from millstream.engine.data.graph import ClassNode, EdgeId, GraphDelta, OperatorId, QueryId
from millstream.engine.data.records import dataclass
from millstream.engine.data.work import Arrived as Arrived  # the one event that the engine words: what it appended
from millstream.engine.data.work import EdgeStart, WorkReceipt
from millstream.scheduler.spec import PolicySpec


@dataclass(frozen=True, slots=True)
class TimerDue:
    """A timer of this operator is due: it is runnable until its next step, also without a row."""

    operator: OperatorId


@dataclass(frozen=True, slots=True)
class QueryAdded:
    """A query was planned; it comes into force with the `Splice` that answers this and the `Spliced` that follows."""

    delta: GraphDelta


@dataclass(frozen=True, slots=True)
class QueryRemoved:
    """A query is to leave. `operators` are those that served nobody else (they and their edges go; rows before them are dropped)."""

    query: QueryId
    operators: tuple[OperatorId, ...]


@dataclass(frozen=True, slots=True)
class QueryPaused:
    """Operators that serve only paused queries stop being runnable; rows before them stay."""

    query: QueryId


@dataclass(frozen=True, slots=True)
class QueryResumed:
    """The reverse of `QueryPaused`."""

    query: QueryId


@dataclass(frozen=True, slots=True)
class QueryReweighed:
    """A query counts more or less from now on, for policies that rank by weights."""

    query: QueryId
    weight: float


@dataclass(frozen=True, slots=True)
class ClassChanged:
    """A class has another priority or target from now on."""

    node: ClassNode


@dataclass(frozen=True, slots=True)
class SumsWanted:
    """Somebody is about to read the sums of the estimates: what was put off because nothing waited is done now."""


@dataclass(frozen=True, slots=True)
class Spliced:
    """The driver carried out a `Splice`.

    `cursors` gives for each new edge on a log that existed before what had ever been appended to that log at the moment of attachment:
    what came before is not the new reader's. An edge left out starts at what the scheduler knows. `failure` is set when the engine
    refused; the network is then unchanged.
    """

    query: QueryId
    cursors: tuple[tuple[EdgeId, EdgeStart], ...] = ()
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class WorkFailure:
    """An order ended with an error: the operator where it is known, and one sentence."""

    message: str
    operator: OperatorId | None = None


@dataclass(slots=True)
class WorkDone:
    """An order ended. With `failure` set the receipt tells what had been done before."""

    receipt: WorkReceipt
    failure: WorkFailure | None = None


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """Use another policy from the next decision on. Nothing that waits is lost or reordered."""

    spec: PolicySpec


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed: what depends on the clock alone (load managers, waiting heads) may act."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Operators are in these workers from now on (0: in none), whether the scheduler knows them already or not."""

    workers: tuple[tuple[OperatorId, int], ...]


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """Treat every waiting row as runnable (no threshold) until all queues are empty, then report `drained`."""


Event = (
    Arrived
    | TimerDue
    | QueryAdded
    | QueryRemoved
    | QueryPaused
    | QueryResumed
    | QueryReweighed
    | ClassChanged
    | SumsWanted
    | Spliced
    | WorkDone
    | PolicyChanged
    | Tick
    | Placed
    | DrainRequested
)
