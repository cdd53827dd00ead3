"""The feeds of all queries: made when a run begins, filled by it, ended with it; and who has to wait for the readers of which.

Readers who are behind make the publishers of their query's streams wait. Not so where the query's class may be shed: a query of such a
class that nobody reads fast enough would hold up every publisher of its streams, and so every other class. There the class sheds
instead, the more the fuller its readers' share of what may wait is; that is looked at while there are such readers.

On the event loop's thread alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from millstream.engine.data.errors import UnknownName
from millstream.engine.data.graph import ClassId
from millstream.engine.data.nearest import SHOWN_QUERIES, did_you_mean
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.language.names import NAME_LENGTH_MAX
from millstream.server.results.results import KeptShare, ResultLog
from millstream.server.results.subscriptions import Feed, ReaderBounds, Subscription
from millstream.server.results.trains import LOOKED_AT_FROM, ResultRows, WaitingResults, are_too_many

LOOK_S = 0.01
CHECKED_MAX = 128  # feeds looked at in one round; each takes a µs or two
COMPARED_MAX = 16  # names that one that is no query's is compared with: 3 ms at most, as the loop waits meanwhile


@dataclass(slots=True)
class QueryFeed:
    """The feed of a query's present run, and the columns of its results. It may keep `kept_bytes_max` of them, less where many do."""

    feed: Feed
    schema: Schema
    streams: tuple[str, ...]
    waiting: WaitingResults
    shed_class: ClassId | None  # the query's class, if it may be shed
    kept_bytes_max: int


@dataclass(frozen=True, slots=True)
class KeptBounds:
    """What durable queries keep of their results: bytes of one and of all together, and how long."""

    bytes_max: int
    total_bytes_max: int
    ns_max: int


@dataclass(frozen=True, slots=True)
class RunOfResults:
    """The name of a run's results: its identity, how many rows came before them, and the identities that they continue (ResultLog)."""

    identity: str
    rows_before: int
    earlier: dict[str, int]


class Feeds:
    """The feeds by query; `shedding` has those that a reader held up when last looked at, of classes that may be shed.

    `later` calls a function after so many seconds, `press` sheds a share of a stream before a class.
    """

    def __init__(
        self,
        reader_bounds: ReaderBounds,
        kept: KeptBounds,
        now_ns: Callable[[], int],
        later: Callable[[float, Callable[[], None]], object],
        press: Callable[[str, ClassId, float], None],
    ) -> None:
        self.by_query: dict[str, QueryFeed] = {}
        self._reader_bounds = reader_bounds
        self._kept = kept
        self._share = KeptShare(kept.total_bytes_max)
        self._awake: dict[str, QueryFeed] = {}  # those that have readers or keep results; the next to be looked at first
        self._now_ns = now_ns
        self._later = later
        self._press = press
        self._slow_before = 0
        self._pressed: dict[str, QueryFeed] = {}  # feeds that a reader held up when last looked at, of classes that are never shed
        self.shedding: dict[str, QueryFeed] = {}
        self._asked: dict[tuple[str, ClassId], float] = {}
        self._is_due = False

    def __iter__(self) -> Iterator[QueryFeed]:
        return iter(tuple(self.by_query.values()))

    def __len__(self) -> int:
        return len(self.by_query)

    def __getitem__(self, query: str) -> QueryFeed:
        return self.by_query[query]

    def of(self, query: str) -> QueryFeed:
        """Return the feed of a query; UnknownName when there is none such."""
        found = self.by_query.get(query)
        if found is None:
            raise UnknownName(
                f"there is no query {query[:NAME_LENGTH_MAX]}",
                hint=did_you_mean(query, self.by_query, COMPARED_MAX) or SHOWN_QUERIES,
                token=query[:NAME_LENGTH_MAX],
            )
        return found

    @property
    def slow_total(self) -> int:
        """Subscribers that were cut off or lost results for slowness."""
        return self._slow_before + sum(f.feed.slow_total for f in self.by_query.values())

    # --- runs ---

    def open(
        self,
        query: str,
        run: RunOfResults,
        schema: Schema,
        streams: tuple[str, ...],
        waiting: WaitingResults,
        shed_class: ClassId | None,
        *,
        kept_bytes_max: int | None,
        owner: object | None = None,
    ) -> None:
        """Make the feed of a run in the place of the one before.

        `kept_bytes_max`: what a durable query may keep of its results, None for one that goes with its connection `owner`, for which the
        first results wait.
        """
        kept = min(self._kept.bytes_max, kept_bytes_max or 0)
        log = ResultLog(run.identity, kept, self._kept.ns_max, run.rows_before, run.earlier, self._share)
        feed = Feed(query, log, self._reader_bounds, hold_for_first=kept_bytes_max is None, owner=owner)
        self.forget(query)
        waiting.kept_bytes = lambda: log.kept_bytes
        self.by_query[query] = QueryFeed(feed, schema, streams, waiting, shed_class, kept)
        self._share.count(1 if kept else 0)

    def forget(self, query: str) -> None:
        """Let go of a query's feed and all that is kept."""
        found = self.by_query.pop(query, None)
        self._awake.pop(query, None)
        if found is not None:
            self._slow_before += found.feed.slow_total
            self._share.count(-1 if found.kept_bytes_max else 0)

    # --- now and then ---

    def take_awake(self) -> list[QueryFeed]:
        """Return the feeds whose turn it is to be looked at, CHECKED_MAX at most; `settle` must follow for each."""
        names = list(islice(self._awake, CHECKED_MAX))
        return [self._awake.pop(name) for name in names]

    def settle(self, found: QueryFeed) -> None:
        """Put a feed that was looked at behind the others; one without readers and results is left alone until it has some."""
        if not found.feed.is_at_rest and self.by_query.get(found.feed.query) is found:
            self._awake[found.feed.query] = found

    def join(self, found: QueryFeed, subscription: Subscription, rows_lost: int) -> None:
        """Let a subscription to a feed begin (Feed.join)."""
        if self.by_query.get(found.feed.query) is found:
            self._awake[found.feed.query] = found
        found.feed.join(subscription, rows_lost, self._now_ns())

    def publish(self, query: str, pieces: list[tuple[ResultRows, dict[str, Any]]]) -> None:
        """Give results to the readers of a query, nothing when its feed is gone. What goes wrong ends its subscriptions and is raised."""
        found = self.by_query.get(query)
        if found is None:
            return
        now_ns = self._now_ns()
        self._awake[query] = found
        try:
            for result, meta in pieces:
                found.feed.publish(result, meta, now_ns)
        except Exception:
            found.feed.fail()
            raise
        if found.feed.subscriptions and found.feed.is_pressed(now_ns):
            (self._pressed if found.shed_class is None else self.shedding)[query] = found
            self._look_again()

    def finish(self, query: str, reason: str, message: str, counts: dict[str, Any]) -> bool:
        """End a query's feed; a dropped one is forgotten. Returns whether there was one."""
        found = self.by_query.get(query)
        if found is None:
            return False
        found.feed.finish(reason, message, counts, self._now_ns())
        if reason == "dropped":
            self.forget(query)
        return True

    # --- pressure ---

    def is_pressed(self, stream: str, waiting: int) -> bool:
        """Whether results that come from a stream wait for the loop (`waiting` items do), or for a reader that still takes them."""
        if waiting > LOOKED_AT_FROM and are_too_many(f.waiting for f in self.by_query.values() if stream in f.streams):
            return True
        if not self._pressed:
            return False
        now_ns = self._now_ns()
        self._pressed = {name: f for name, f in self._pressed.items() if f.feed.is_pressed(now_ns)}
        return any(stream in f.streams for f in self._pressed.values())

    def _look_again(self) -> None:
        """Look soon, if there is anything to look at."""
        if not self._is_due and (self.shedding or self._asked):
            self._is_due = True
            self._later(LOOK_S, self._look)

    def _look(self) -> None:
        self._is_due = False
        now_ns = self._now_ns()
        self.shedding = {name: found for name, found in self.shedding.items() if found.feed.is_pressed(now_ns)}
        wanted: dict[tuple[str, ClassId], float] = {}
        for found in self.shedding.values():
            assert found.shed_class is not None
            ratio = min(1.0, max(0.0, 2.0 * found.feed.fullness - 1.0))
            for stream in found.streams:
                key = stream, found.shed_class
                wanted[key] = max(wanted.get(key, 0.0), ratio)
        for key in {**self._asked, **wanted}:
            ratio = wanted.get(key, 0.0)
            if ratio != self._asked.get(key, 0.0):
                self._press(*key, ratio)
        self._asked = wanted
        self._look_again()
