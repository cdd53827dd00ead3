"""What the host takes from the rooms above it, and whom it tells: each is set once, where the parts are put together.

The host knows queries, rows and results. How they outlive the process (`server/journal`), what statements do (`server/statements`) and
whether targets are met (`server/watch`) is the work of others, of whom it uses no more than this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Protocol

from millstream.engine.data.column import Column
from millstream.engine.data.graph import OperatorId
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import StreamDefinition
from millstream.engine.data.train import Train
from millstream.server.errors import StorageError
from millstream.server.host.queries import Query

if TYPE_CHECKING:
    from millstream.engine.data.schema import TableDefinition
    from millstream.engine.flow.replay import PastItem, PastSources
    from millstream.engine.plan.demands import Demand
    from millstream.scheduler.optimiser.contract import Decision, TargetVerdict
    from millstream.server.archive.archiver import Archives
    from millstream.server.archive.history import StoredPast, TimeBounds
    from millstream.server.host.server_files import Asks
    from millstream.server.host.table_files import TablePoll, TableRows


@dataclass(frozen=True, slots=True)
class Context:
    """Who executes a statement: `owner` of temporary queries, the statement's own `text`, and a name for a bare SELECT.

    `restoring`: the statement comes from the store, so it is not stored again; `number` is its definition's there. `prepared` is what was
    read for it aside (`statements/aside.py`), None when it reads for itself.
    """

    owner: object | None = None
    text: str = ""
    name: str | None = None
    restoring: bool = False
    number: int | None = None
    prepared: Any = None


class Observer(Protocol):
    """Who is told what happens. Calls may come from any thread, must return soon and never raise."""

    def query_began(self, query: Query) -> None:
        """A run of a query is about to start: the next results of it belong to this run."""

    def results(self, query: Query, train: Train) -> None:
        """Rows of the answer, in order; perhaps none."""

    def query_ended(self, query: Query, reason: str, message: str, counts: dict[str, Any]) -> None:
        """No more results of this run: `finished`, `stopped`, `dropped`, `lifetime` or `failed`."""

    def stream_dropped(self, name: str) -> None:
        """A stream or table is gone."""

    def reported(self, kind: str, message: str) -> None:
        """Something for whoever operates the server."""

    def kept(self, query: Query) -> KeptResults:
        """The results of a query that are kept now."""

    def is_pressed(self, stream: str) -> bool:
        """Whether results that come from a stream wait for their readers, so that its publishers should too."""


class WorkerFacts(Protocol):
    """Processes that run operators, as statements show them."""

    def shown(self) -> Sequence[tuple[Any, ...]]:
        """Return a row for each worker with the values of `WORKER_COLUMNS`."""
        ...

    def why(self, operator: OperatorId) -> str:
        """Return where an operator runs, and why."""
        ...


WORKER_COLUMNS = (
    ("worker", "BIGINT"),
    ("pid", "BIGINT"),
    ("queries", "BIGINT"),
    ("operators", "BIGINT"),
    ("load_percent", "DOUBLE"),
    ("calls", "BIGINT"),
    ("moves", "BIGINT"),
    ("state_bytes", "BIGINT"),
    ("kept_bytes", "BIGINT"),
    ("ends", "BIGINT"),
    ("last_end", "TEXT"),
)
"""What SHOW WORKERS says of each: the part of the time that it was at work, groups of queries that moved to it, input kept to do again,
how often it ended, how last."""


class PastFeeding(Protocol):
    """What lets the past into queries that begin there."""

    def past_of(self, query: Query) -> PastSources:
        """Return sources for a query that begins in the past. Unsupported, naming what is in the way."""
        ...

    def begin(self, query: Query, past: PastSources) -> None:
        """Let the past into a query that was just spliced in."""
        ...

    def went_live(self, query: Query) -> None:
        """Note that a query which began in the past has caught up, as a checkpoint says."""
        ...


class Durability(Protocol):
    """Rows that outlive the process. Calls come from the thread that executes statements where nothing else is said."""

    @property
    def numbers(self) -> Mapping[str, int]:
        """The durable streams and tables by name, with their numbers in the catalogue."""
        ...

    @property
    def archives(self) -> Archives | None:
        """The archives of streams, None while no stream has one."""
        ...

    def add(self, name: str, number: int, *, record: bool = True) -> None:
        """Keep a stream or table from now on; with `record` False its rows are written down only once that is asked for."""
        ...

    def record(self, name: str) -> None:
        """Begin to write down what enters a stream or table that is kept."""
        ...

    def define(self, number: int) -> None:
        """Write down a column that is about to be added to what is kept."""
        ...

    def widen(self, definition: StreamDefinition) -> None:
        """Keep a stream with more columns from now on."""
        ...

    @property
    def catching_up(self) -> PastFeeding:
        """What lets the past into queries that begin there."""
        ...

    def forget(self, name: str) -> None:
        """Keep a dropped stream no longer."""
        ...

    def keeps_all_of(self, query: Query) -> bool:
        """Whether a query can be rebuilt after a crash."""
        ...

    def held(self, definition: StreamDefinition) -> HeldRows:
        """Return the rows of a stream that are kept. To be called under the ingress lock."""
        ...

    def past(self, definition: StreamDefinition, bounds: TimeBounds | None, demands: tuple[Demand, ...] = ()) -> HeldPast:
        """Return the whole history of a stream within bounds, with None what the journal has of it. To be called under the ingress lock.

        Stored rows that do not meet `demands` may be left out.
        """
        ...

    def take_sync(
        self, name: str, columns: Sequence[Column], shed: dict[str, int], lost: Callable[[StorageError], object]
    ) -> tuple[int, int, int]:
        """Write rows that enter once the disk has them, and return their arrival numbers [lo, hi) and their place in the journal.

        `shed` is told, when they enter, how many are dropped before each class; `lost` is called when the disk did not keep them, and they
        never enter. Under the ingress lock, from any thread. Raises UnknownName, InvalidDefinition or StorageError.
        """
        ...

    @property
    def failures(self) -> int:
        """How often the disk did not keep what had been written: then rows that waited for it were lost."""
        ...

    @property
    def is_failing(self) -> bool:
        """Whether nothing durable is accepted for now."""
        ...

    @property
    def is_behind(self) -> bool:
        """Whether so much waits for the disk that publishers should wait too."""
        ...

    def when_safe(self, place: int, safe: Callable[[], object], lost: Callable[[StorageError], object]) -> None:
        """Have `safe` called, from another thread, once all before a place is on disk and has entered, or `lost` if it never will."""
        ...

    def wait_safe(self, place: int | None = None) -> None:
        """Return once all before a place, by default all that was written, is on disk and has entered. StorageError if it never will.

        From any thread but the loop's.
        """
        ...


class Postponing(Protocol):
    """The replay of a journal, which begins queries at their places in it."""

    def defer(self, query: Query) -> None:
        """Begin a query when its place has come."""
        ...

    def pause(self, query: Query) -> None:
        """Pause a query once it has caught up."""
        ...


class TargetWatch(Protocol):
    """Whether queries keep their targets; read from any thread."""

    @property
    def verdicts(self) -> Mapping[str, TargetVerdict]:
        """The verdicts of the last look, by the query's name."""
        ...

    @property
    def has_work(self) -> bool:
        """Whether any running query has a target."""
        ...

    def look(self) -> object:
        """Judge every running query that has a target, on the thread that executes statements."""
        ...

    def shown(self, query: Query) -> tuple[str | None, int | None]:
        """Return the state of a query's targets and since when (µs since 1970), None for both where it has none."""
        ...


class Optimising(Protocol):
    """What changes plans, weights, policy and shedding while queries run."""

    @property
    def decisions(self) -> Sequence[Decision]:
        """The last decisions, the oldest first."""
        ...

    def step(self) -> None:
        """Look, judge, and do what is to be done, on the thread that executes statements."""
        ...


class Refresh(Protocol):
    """What polls the files of tables."""

    def begin(self, definition: TableDefinition) -> None:
        """Poll a table from now on."""
        ...

    def forget(self, name: str) -> None:
        """Poll a table no longer, if it was."""
        ...

    def asked(self, names: Iterable[str]) -> None:
        """Note that somebody read these streams and tables."""
        ...

    def standing(self, name: str) -> PolledTable | None:
        """Return how fresh a table is; None where it is not polled."""
        ...

    def wake_ns(self) -> int | None:
        """Return when there may be something to poll; None while there is nothing. From any thread."""
        ...

    def take(self) -> TablePoll | None:
        """Return the poll that is due now, if one is."""
        ...

    def read(self, poll: TablePoll, given_up: Asks) -> TableRows | None:
        """Read the file of a poll, from any thread; None where it is as it was. Raises what reading the file of CREATE TABLE does."""
        ...

    def put(self, poll: TablePoll, found: TableRows | Exception | None) -> None:
        """Let a poll's outcome change its table: rows, None where the file is as it was, or why it could not be read."""
        ...


@dataclass(frozen=True, slots=True)
class PolledTable:
    """What SHOW TABLES tells of a table that is polled: `freshness` is the share of the time for which it is expected to be fresh."""

    age_us: int
    freshness: float
    polls: int
    changes: int
    period_us: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class HeldBlock:
    """Rows that stand at the arrival number `seq`, or a control item of the stream (`columns` None): its end, or what a clock did."""

    seq: int
    columns: Sequence[Column] | None
    control: Any = None


@dataclass(frozen=True, slots=True)
class HeldRows:
    """The rows of one input. `missing` counts older ones that are held no longer."""

    definition: StreamDefinition
    position: int
    blocks: Callable[[], Iterator[HeldBlock]]
    missing: int = 0

    def over(self, blocks: Callable[[], Iterator[Any]]) -> HeldRows:
        """Return the same input with other blocks."""
        return replace(self, blocks=blocks)


@dataclass(frozen=True, slots=True)
class HeldPast:
    """What came of one stream with the arrival numbers and W of then: what `past` has in files, then `blocks`, from the journal."""

    definition: StreamDefinition
    position: int
    blocks: Callable[[], Iterator[PastItem]]
    past: StoredPast | None = None
    missing: int = 0

    def over(self, blocks: Callable[[], Iterator[Any]]) -> HeldPast:
        """Return the same input with other blocks behind its files."""
        return replace(self, blocks=blocks)

    def items(self) -> Iterator[PastItem]:
        """Yield all of it in arrival order."""
        if self.past is not None:
            yield from self.past.items()
        yield from self.blocks()


@dataclass(slots=True)
class KeptResults:
    """What a query's result log keeps: (position, batch) each, and the number of rows before the first of them."""

    entries: list[tuple[int, Any]] = field(default_factory=list)
    missing: int = 0
