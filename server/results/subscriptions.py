"""Who gets which result: a feed a query, a subscription a reader.

A subscription is a cursor in its query's result log. It sends while the client has granted credit and the socket takes bytes. What
it has not sent is bounded by `subscriber_bytes_max`; beyond that it is cut off with a token to resume with, or loses the oldest results
and is told how many rows (`slow_subscriber`). A reader that keeps taking results, only slower than they come, is waited for: its
feed says `is_pressed`, which withholds credit from the publishers it depends on, until it has caught up or has stood still for
`STALLED_NS`. So a reader that has gone away costs others at most that long. Publishers never wait for a reader that may not publish
itself: else a token that only reads could slow whole streams down.

No socket and no clock in here: a `Reader` sends, and time is an argument. All calls come from the event loop's thread.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any, Protocol

from millstream.engine.data.arrow import arrow_schema
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.protocol.batches import BatchEncoder, encode_schema
from millstream.protocol.errors import LocalProtocolError
from millstream.protocol.messages import End, Gap, Result
from millstream.server.results.outcome import spell
from millstream.server.results.results import ResultEntry, ResultLog, ResumePoint, read_token
from millstream.server.results.trains import ResultRows

STALLED_NS = 1_000_000_000
RESULTS_AT_ONCE = 256  # 2 ms; a reader that has more before it sends the rest in turns, so that nobody else waits for them all


class ResultReader(Protocol):
    """What a subscription needs of the connection it belongs to. `client_id` is that of its role: two roles never have the same."""

    client_id: str | None

    def can_send(self, subscription: int, rows: int) -> bool:
        """Whether the client's credit and the socket let a result of `rows` rows go now."""
        ...

    def send(self, message: Any) -> None:
        """Send a message."""
        ...

    def in_turn(self, call: Callable[[int], None]) -> None:
        """Make a call with the time (ns) in a later turn of the loop, behind those of others."""
        ...

    def replaced(self) -> None:
        """Note that the same client subscribed anew over another connection: this one is dead."""
        ...

    def report(self, error: Exception) -> None:
        """Write down a fault of ours that ends a subscription."""
        ...

    def fail(self, error: Exception) -> None:
        """End the connection, whose peer cannot even be told that its subscription ended."""
        ...


@dataclass(frozen=True, slots=True)
class ReaderBounds:
    """What one subscriber may hold up, and what happens then: `disconnect` or `gap`."""

    bytes_max: int
    slow: str = "disconnect"


class Subscription:
    """One reader of one feed. `cursor` is the number of the next result to send."""

    __slots__ = ("cursor", "encode", "ended", "feed", "has_turn", "number", "presses", "progress_ns", "reader", "skip_rows")

    def __init__(
        self,
        feed: Feed,
        reader: ResultReader,
        number: int,
        cursor: int,
        encode: Callable[[ResultEntry], dict[str, Any]],
        now_ns: int,
        *,
        presses: bool = True,
    ) -> None:
        self.feed = feed
        self.reader = reader
        self.number = number
        self.cursor = cursor
        self.encode = encode
        self.progress_ns = now_ns
        self.ended = False
        self.presses = presses  # whether publishers wait for it: not for one who may not publish
        self.has_turn = False  # it sends the next results when it is called, whatever asks it to before
        self.skip_rows = 0  # of the first result, for a token that ends inside it

    @property
    def waiting_bytes(self) -> int:
        """Bytes of results that were not sent yet."""
        log = self.feed.log
        return 0 if self.cursor == log.next_number else log.bytes_total - log.bytes_before(self.cursor)

    def pump(self, now_ns: int, *, shared: ResultEntry | None = None) -> None:
        """Send what can be sent; the last message when the feed has ended and all is sent.

        What is made of a result for sending is let go of again, save that of `shared`, which others are about to send too.
        Of many results it sends some, and the others in turns of the loop's.
        """
        log = self.feed.log
        if self.has_turn:
            return
        last = self.cursor + RESULTS_AT_ONCE
        while not self.ended and self.cursor < log.next_number:
            entry = shared if shared is not None and shared.number == self.cursor else log.entry(self.cursor)
            if not self.reader.can_send(self.number, entry.rows):
                return
            if self.cursor == last:
                self.has_turn = True
                self.reader.in_turn(self._take_turn)
                return
            if self.skip_rows:
                entry, self.skip_rows = entry.without(self.skip_rows), 0
            self.cursor += 1
            self.progress_ns = now_ns
            meta = {"resume_token": log.token_before(self.cursor), **entry.meta}
            try:
                self.reader.send(Result(self.number, entry.rows, meta=meta, **self.encode(entry)))
            except Exception as error:  # nobody else is to suffer for it
                self.cursor -= 1
                self._unsendable(entry, error)
                return
            finally:
                if entry is not shared:
                    entry.forget_made()
        if self.feed.end is not None and not self.ended:
            reason, message, counts = self.feed.end
            self.finish(reason, message, counts)

    def _take_turn(self, now_ns: int) -> None:
        self.has_turn = False
        self.pump(now_ns)

    def _unsendable(self, entry: ResultEntry, error: Exception) -> None:
        what = f"a result of {entry.rows} rows cannot be sent to this reader"
        if isinstance(error, LocalProtocolError):  # larger than a frame of this reader's
            self.finish("failed", f"{what}: {error.message}")
            return
        self.reader.report(error)
        self.finish("failed", f"{what}: {type(error).__name__}")

    def finish(self, reason: str, message: str = "", counts: dict[str, Any] | None = None) -> None:
        """Send the last message, whatever is still waiting."""
        if self.ended:
            return
        self.ended = True
        self.feed.leave(self)
        try:
            self.reader.send(End(self.number, reason, message, counts or {}, self.feed.log.token_before(self.cursor)))
        except Exception as error:
            self.reader.fail(error)

    def forget(self) -> None:
        """Leave without a word: the connection is gone."""
        self.ended = True
        self.feed.leave(self)


class Feed:
    """The results of one query, and who reads them. `end` is (reason, message, counts) once nothing more comes.

    `hold_for_first`: results wait for the first reader; if there is an `owner`, for that one, whoever else reads meanwhile.
    """

    def __init__(self, query: str, log: ResultLog, bounds: ReaderBounds, *, hold_for_first: bool, owner: object | None = None) -> None:
        self.query = query
        self.log = log
        self.bounds = bounds
        self.subscriptions: list[Subscription] = []
        self.end: tuple[str, str, dict[str, Any]] | None = None
        self.slow_total = 0
        self._hold_for_first = hold_for_first
        self._owner = owner
        self._is_deserted = False

    @property
    def is_at_rest(self) -> bool:
        """Whether it has neither readers nor results, so that time changes nothing of it."""
        return not self.subscriptions and self.log.first_number == self.log.next_number

    def tell_deserted(self) -> bool:
        """Say, once, that the feed of an unnamed query has lost its readers for their slowness, so that nobody waits for what it does."""
        if self._is_deserted or self._owner is None or self._hold_for_first or self.subscriptions:
            return False
        self._is_deserted = self.slow_total > 0 and self.end is None
        return self._is_deserted

    def publish(self, batch: Any, meta: dict[str, Any], now_ns: int) -> None:
        """Take a result, send it to whoever can take it now, and deal with those who are too slow."""
        entry = self.log.append(batch, meta, now_ns)
        for subscription in tuple(self.subscriptions):
            subscription.pump(now_ns, shared=entry)
            behind = subscription.cursor != self.log.next_number and not subscription.ended
            if behind and subscription.waiting_bytes > self.bounds.bytes_max:
                self._too_slow(subscription, now_ns)
        self.log.settle(entry)
        self._trim(now_ns)

    def finish(self, reason: str, message: str, counts: dict[str, Any], now_ns: int) -> None:
        """Note that nothing more comes; each subscription ends once it has sent what it holds."""
        if self.end is None:
            self.end = (reason, message, counts)
        for subscription in tuple(self.subscriptions):
            subscription.pump(now_ns)

    def _is_held_for(self, reader: object) -> bool:
        return self._hold_for_first and (self._owner is None or reader is self._owner)

    def start_of(self, *, from_start: bool, token: str | None, reader: object = None) -> tuple[int, int]:
        """Return (cursor, rows lost) for a new subscription. ValueError when the token is not of this run of the query."""
        if token is not None:
            point = read_token(token)
            if point is not None and point.log in self.log.earlier:
                return self._continued(point)
            if point is None or point.log != self.log.identity or point.number >= self.log.next_number:
                raise ValueError("the resume token is not of this run of the query")
            cursor = max(point.number + 1, self.log.first_number)
            rows_lost = self.log.rows_before(cursor) - point.rows
            if rows_lost < 0:
                raise ValueError(f"the resume token says {point.rows} rows, which are more than there were")
            return cursor, rows_lost
        if from_start or self._is_held_for(reader):
            cursor = self.log.first_number
            return cursor, self.log.rows_before(cursor)
        return self.log.next_number, 0

    def _continued(self, point: ResumePoint) -> tuple[int, int]:
        """Return where a token from before a restart goes on: its rows are counted, as results may be cut otherwise now."""
        known = self.log.earlier[point.log]
        if 0 <= known < point.rows:
            raise ValueError(f"the rows behind the last {point.rows - known} results of the resume token were lost when the server ended")
        if point.rows > self.log.rows_total:
            raise ValueError(f"the resume token says {point.rows} rows, which are more than there were")
        cursor = self.log.number_at(point.rows)
        return cursor, max(0, self.log.rows_before(cursor) - point.rows)

    def rows_to_skip(self, token: str | None, cursor: int) -> int:
        """Return how many rows of the result at `cursor` a token has had already."""
        point = None if token is None else read_token(token)
        return 0 if point is None else max(0, point.rows - self.log.rows_before(cursor))

    def join(self, subscription: Subscription, rows_lost: int, now_ns: int) -> None:
        """Let a subscription begin. The same client's older one ends: it replaces itself, it does not get everything twice."""
        client_id = subscription.reader.client_id
        for other in tuple(self.subscriptions):
            if other.reader is subscription.reader or (client_id is not None and other.reader.client_id == client_id):
                other.finish("replaced")
                if other.reader is not subscription.reader:
                    other.reader.replaced()
        if self._is_held_for(subscription.reader):
            self._hold_for_first = False
        self.subscriptions.append(subscription)
        if rows_lost:
            subscription.reader.send(Gap(subscription.number, rows_lost, "expired"))
        subscription.pump(now_ns)

    def leave(self, subscription: Subscription) -> None:
        """Take a subscription off the list."""
        if subscription in self.subscriptions:
            self.subscriptions.remove(subscription)

    def fail(self) -> None:
        """End all subscriptions: a result was lost before it came to be kept."""
        for subscription in tuple(self.subscriptions):
            subscription.finish("failed", "a result was lost by a fault of the server, which its log tells")

    def is_pressed(self, now_ns: int) -> bool:
        """Whether a reader that still takes results is more than half of its bound behind."""
        if self.bounds.slow != "disconnect":
            return False
        for s in self.subscriptions:
            if s.cursor == self.log.next_number or not s.presses:
                continue  # has everything, as most have at all times
            if 2 * s.waiting_bytes > self.bounds.bytes_max and (s.has_turn or now_ns - s.progress_ns < STALLED_NS):
                return True
        return False

    @property
    def fullness(self) -> float:
        """How full the slowest reader's share of what may wait is: 1 and more is too much."""
        return max((s.waiting_bytes / self.bounds.bytes_max for s in self.subscriptions), default=0.0)

    def check(self, now_ns: int) -> None:
        """Deal with readers that were waited for and have stood still; let go of results that are too old."""
        for subscription in tuple(self.subscriptions):
            if subscription.waiting_bytes > self.bounds.bytes_max:
                self._too_slow(subscription, now_ns)
        self._trim(now_ns)

    def _too_slow(self, subscription: Subscription, now_ns: int) -> None:
        if subscription.has_turn:  # it is the loop that has more to do than to serve it
            return
        if self.bounds.slow == "gap":
            self._skip(subscription)
            self.slow_total += 1
        elif subscription.waiting_bytes > 2 * self.bounds.bytes_max or now_ns - subscription.progress_ns >= STALLED_NS:
            self.slow_total += 1
            subscription.finish("slow", f"more than {self.bounds.bytes_max} bytes of results were waiting to be read")

    def _skip(self, subscription: Subscription) -> None:
        """Let the oldest results go until the subscriber is half full, and tell it how many rows that were."""
        log = self.log
        rows_before = log.rows_before(subscription.cursor)
        while 2 * subscription.waiting_bytes > self.bounds.bytes_max:
            subscription.cursor += 1
        try:
            subscription.reader.send(Gap(subscription.number, log.rows_before(subscription.cursor) - rows_before, "slow"))
        except Exception as error:
            subscription.reader.fail(error)

    def _trim(self, now_ns: int) -> None:
        needed = self.log.next_number
        if self._hold_for_first and self.log.kept_bytes <= self.bounds.bytes_max:
            needed = self.log.first_number
        for s in self.subscriptions:
            if s.cursor < needed:
                needed = s.cursor
        self.log.trim(now_ns, needed)


class ResultEncoder:
    """Turns entries of a result log into members of Result; `format_` is arrow or msgpack."""

    def __init__(self, schema: Schema, format_: str) -> None:
        self.spelled = spell(schema)
        arrow = arrow_schema(schema)
        self._batches = BatchEncoder(arrow) if format_ == "arrow" else None
        self.schema_payload = encode_schema(arrow) if format_ == "arrow" else None

    def encode(self, entry: ResultEntry) -> dict[str, Any]:
        """Return the members that carry the rows."""
        result: ResultRows | None = entry.batch
        if result is None:
            return {}
        if self._batches is not None:
            return {"payload": result.payload() or self._batches.encode(result.to_arrow())}
        columns = [[plain_value(v) for v in column.to_pylist(maps_as_pydicts="strict")] for column in _as_plain(result.to_arrow())]
        return {"values": [list(row) for row in zip(*columns, strict=True)]}


def _as_plain(batch: Any) -> list[Any]:
    """Return the columns with times as integers (µs, days), which pyarrow would give as objects of less range."""
    plain = []
    for column in batch.columns:
        storage = _storage(column.type)
        plain.append(column if storage == column.type else column.cast(storage))
    return plain


def _storage(data_type: Any) -> Any:
    """Return the integer type behind a type of times, inside nested types too, else the type itself."""
    import pyarrow as pa

    if pa.types.is_list(data_type):
        return pa.list_(_storage(data_type.value_type))
    if pa.types.is_map(data_type):
        return pa.map_(data_type.key_type, _storage(data_type.item_type))
    if pa.types.is_struct(data_type):
        return pa.struct([(part.name, _storage(part.type)) for part in data_type])
    if pa.types.is_timestamp(data_type) or pa.types.is_duration(data_type) or pa.types.is_time64(data_type):
        return pa.int64()
    return pa.int32() if pa.types.is_date32(data_type) else data_type


def plain_value(value: Any) -> Any:
    """Return a value as rows without Arrow carry it: DECIMAL as text."""
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    if isinstance(value, list):
        return [plain_value(v) for v in value]
    if isinstance(value, dict):
        return {name: plain_value(v) for name, v in value.items()}
    return value
