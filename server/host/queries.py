"""The queries of this server: what each was given as, where it stands, what it reads and feeds.

The book is changed by the thread that executes statements and by nobody else; others read single members, which are replaced and
never changed in place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from millstream.engine.data.errors import NameTaken, UnknownName
from millstream.engine.data.graph import QueryId
from millstream.engine.data.nearest import SHOWN_QUERIES, did_you_mean
from millstream.engine.data.records import dataclass
from millstream.engine.language.names import validate_name
from millstream.server.errors import TooMany
from millstream.server.host.lifecycle import QueryState
from millstream.server.host.side_streams import ColumnAssignment
from millstream.server.results.trains import ResultShape, WaitingResults

if TYPE_CHECKING:
    from millstream.engine.data.train import Train
    from millstream.engine.plan.plan import PlannedQuery


class Progress(Protocol):
    """How far a query is that began in the past."""

    def text(self) -> str:
        """Return what is shown of it."""
        ...


class QueryKind(Enum):
    """What becomes of a query's results."""

    SELECT = "select"  # subscribers read them
    DERIVED = "derived"  # CREATE STREAM … AS: a stream that others may read
    INSERT = "insert"  # INSERT INTO … SELECT: they enter another stream


@dataclass(slots=True)
class Query:
    """One query. `owner` is the connection of a temporary one, None for a durable one. Times in microseconds since 1970.

    `run` rises with each START, `ended_run` is the last one whose inputs have ended; `id` is that of the run in the network, None while
    it is not in it, `last_id` that of the last run. `target` is the stream that a derived or inserting query feeds. `shape` turns its
    results into batches. `last_counts` are the accounts' sums of a run that has ended. `identity` is that of its present results,
    `earlier` those from before restarts that they continue (store.StoredRun), `warnings` what admission had to say of it,
    `complete_from_us` the start of the first window that the run sees whole, None when that is every one it answers, `rows_out` the
    result rows of the run so far, `rows_before` those of them that a checkpoint stands for, `waiting` those that the event loop has yet
    to take, `catching_up` how far it is while it is given the past, `stands` whether a checkpoint is about to say what its next run
    holds, `order` its place among all queries that ever began (0: it has not), `unfed` the results of an INSERT whose statement is not on
    disk yet (None once it is), `widths` how many columns a stream had when the query was planned, for those that have more since: it goes
    on with these until it is started anew.
    """

    name: str
    planned: PlannedQuery
    kind: QueryKind = QueryKind.SELECT
    text: str | None = None
    plan: dict[str, Any] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    owner: object | None = None
    target: str | None = None
    state: QueryState = QueryState.SUBMITTED
    id: QueryId | None = None
    last_id: QueryId | None = None
    run: int = 0
    shape: ResultShape | None = None
    ended_run: int = 0
    assignment: ColumnAssignment | None = None
    start_at_us: int | None = None
    lifetime_us: int | None = None
    created_us: int = 0
    started_us: int | None = None
    failure: str | None = None
    last_counts: dict[str, int] = field(default_factory=dict)
    identity: str = ""
    earlier: dict[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    rows_out: int = 0
    rows_before: int = 0
    complete_from_us: int | None = None
    waiting: WaitingResults = field(default_factory=WaitingResults)
    unfed: list[Train] | None = None
    catching_up: Progress | None = None
    stands: bool = False
    order: int = 0
    widths: dict[str, int] = field(default_factory=dict)

    @property
    def is_durable(self) -> bool:
        """Whether it outlives its connection and the server's restart."""
        return self.owner is None

    @property
    def is_view(self) -> bool:
        """Whether it is a materialized view, which others read as a table."""
        return self.kind is QueryKind.SELECT and self.is_durable and self.planned.physical.options.materialized

    @property
    def key(self) -> str:
        """The name under which its run is remembered: derived streams have names of their own."""
        return f"stream {self.name}" if self.kind is QueryKind.DERIVED else f"query {self.name}"

    @property
    def reads(self) -> tuple[str, ...]:
        """The streams and tables that it reads, in order of appearance."""
        return (*self.planned.streams, *self.planned.tables)

    @property
    def shown_text(self) -> str:
        """What SHOW QUERIES shows: the text, or the plan object as JSON."""
        if self.plan is not None:
            return json.dumps(self.plan, ensure_ascii=False)
        return self.text if self.text is not None else self.planned.text


class QueryBook:
    """All queries by name, in the order they came. `owned_max`: temporary ones of a connection at most; 0: any number."""

    def __init__(self) -> None:
        self.owned_max = 0
        self._by_name: dict[str, Query] = {}
        self._timed: dict[str, Query] = {}
        self._promised: dict[str, Query] = {}
        self._of_class: dict[str, dict[str, Query]] = {}
        self._last_numbers: dict[str, int] = {}

    def __iter__(self) -> Iterator[Query]:
        return iter(tuple(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, name: str) -> Query | None:
        """Return the query called `name`, or None."""
        return self._by_name.get(name)

    def get(self, name: str) -> Query:
        """Return the query called `name`; UnknownName with the nearest name otherwise."""
        found = self._by_name.get(name)
        if found is None:
            raise UnknownName(f"there is no query {name}", hint=did_you_mean(name, self._by_name) or SHOWN_QUERIES, token=name)
        return found

    def of_id(self, identity: QueryId) -> Query | None:
        """Return the query whose run in the network is `identity`."""
        return next((q for q in self._by_name.values() if q.id == identity), None)

    def check_free(self, name: str) -> str:
        """Return `name` if a query may be called so now; InvalidDefinition or NameTaken otherwise."""
        validate_name(name, "query name")
        if name in self._by_name:
            raise NameTaken(f"the name {name} is taken by a query", hint=f"write DROP QUERY {name} first, or take another name")
        return name

    @property
    def timed(self) -> tuple[Query, ...]:
        """Those that have a time to begin or to end."""
        return tuple(self._timed.values())

    def promised(self, classes: Iterable[str]) -> Iterator[Query]:
        """Yield those with a target of their own, and those of these classes; some perhaps twice."""
        yield from tuple(self._promised.values())
        for name in classes:
            yield from tuple(self._of_class.get(name, {}).values())

    def next_name(self, is_relation: Callable[[str], object], stem: str = "q") -> str:
        """Return the next free name of the form q1, q2, …, which no stream or table has either."""
        while True:
            number = self._last_numbers[stem] = self._last_numbers.get(stem, 0) + 1
            name = f"{stem}{number}"
            if name not in self._by_name and not is_relation(name):
                return name

    def add(self, query: Query) -> None:
        """Enter a query, whose times stand."""
        self._by_name[query.name] = query
        if query.start_at_us is not None or query.lifetime_us is not None:
            self._timed[query.name] = query
        options = query.planned.physical.options
        if options.latency_target_ns is not None or options.memory_bytes_max is not None:
            self._promised[query.name] = query
        self._of_class.setdefault(options.class_name, {})[query.name] = query

    def remove(self, query: Query) -> None:
        """Strike a query out; its name is free at once."""
        del self._by_name[query.name]
        self._forget(query)

    def take_up(self, query: Query) -> None:
        """Enter what a query's options say now, at its place."""
        self._forget(query)
        self.add(query)

    def _forget(self, query: Query) -> None:
        self._timed.pop(query.name, None)
        self._promised.pop(query.name, None)
        for of_class in self._of_class.values():
            of_class.pop(query.name, None)

    def readers_of(self, name: str) -> list[Query]:
        """Return the queries that read, or feed, the stream or table called `name`."""
        return [q for q in self._by_name.values() if name in q.reads or q.target == name]

    def owned_by(self, owner: object) -> list[Query]:
        """Return the temporary queries of a connection; from any thread, as others come and go meanwhile."""
        return [q for q in tuple(self._by_name.values()) if q.owner is owner]

    def check_owner(self, owner: object | None) -> None:
        """Raise TooMany when a connection has as many temporary queries as it may."""
        if owner is not None and self.owned_max and len(self.owned_by(owner)) >= self.owned_max:
            raise TooMany(
                f"this connection has {self.owned_max} unnamed queries (connection_queries_max)", hint="drop some of them, or name queries"
            )


def base_streams(maker: Callable[[str], Query | None], names: Iterable[str]) -> tuple[str, ...]:
    """Return the streams that rows enter and that these names come from, in order of appearance.

    `maker` finds the query behind a derived stream or a view.
    """
    found: dict[str, None] = {}
    for name in names:
        query = maker(name)
        found.update(dict.fromkeys(base_streams(maker, query.reads) if query is not None else (name,)))
    return tuple(found)
