"""The results of one query, as they come. Credit is given back as batches are taken, so not reading is back-pressure."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millstream.client.data import check_pandas, to_pandas
from millstream.client.errors import MillstreamError
from millstream.client.receipts import METADATA_PREFIX
from millstream.client.reconnection import PASSING_CODES, PASSING_ENDS, Reconnection
from millstream.client.wire import Wire
from millstream.protocol import limits
from millstream.protocol.batches import BatchDecoder, arrow_schema, decode_schema
from millstream.protocol.errors import RemoteProtocolError
from millstream.protocol.flow import Refill
from millstream.protocol.messages import Credit, End, Gap, Message, Result, Subscribe, Subscribed, Unsubscribe
from millstream.protocol.types import Column, parse_schema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a subscription ended: `reason` as in docs/protocol.md (finished, dropped, stopped, slow, …), and the query's final counts."""

    reason: str
    message: str = ""
    counts: dict[str, Any] = field(default_factory=dict)
    resume_token: str | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """A gap: `rows` results are missing here."""

    rows: int
    reason: str


class Subscription:
    """An async iterator of `pyarrow.RecordBatch` (of lists of dicts with format `msgpack`).

    It stops when the query ends or is dropped; `end` then says why. A batch's schema metadata carries
    `millstream.resume_token` and what else the server said of it. `gaps` lists results that were lost, `resume_token` is the
    one of the last batch taken. A lost connection raises MillstreamError (`disconnected`) after the batches that had arrived; with a
    `reconnection` it is made anew instead, and the results go on after the last batch taken, each once.
    """

    def __init__(self, wire: Wire, query: str, rows_window: int, bytes_window: int, reconnection: Reconnection | None = None) -> None:
        self.query = query
        self.columns: list[Column] = []
        self.schema: pa.Schema | None = None
        self.end: Ending | None = None
        self.gaps: list[Lost] = []
        self.resume_token: str | None = None
        self.meta: dict[str, Any] = {}
        self._wire = wire
        self._number = 0
        self._refill = Refill(rows_window, bytes_window)
        self._waiting: deque[tuple[Message, int]] = deque()
        self._arrived = asyncio.Event()
        self._error: MillstreamError | None = None
        self._decoder: BatchDecoder | None = None
        self._reconnection = reconnection
        self._format = "arrow"
        self._is_closed = False

    async def open(self, *, from_start: bool, resume_token: str | None, format: str) -> None:
        """Subscribe; returns once in force."""
        self._format = format
        rows, bytes_ = self._refill.rows_window, self._refill.bytes_window
        await self._wire.request(
            lambda request: Subscribe(request, self.query, from_start, resume_token, format, rows, bytes_), self._opened
        )
        if self._error is not None:
            raise self._error

    def _opened(self, answer: Subscribed) -> None:
        self._number = answer.subscription
        self.resume_token = answer.resume_token
        self._wire.own_subscription(answer.subscription, self)
        try:
            self.columns = parse_schema(answer.schema)
            if answer.payload is not None:
                assert not isinstance(answer.payload, list), "what arrives is one piece"
                self.schema = decode_schema(answer.payload)
                self._decoder = BatchDecoder(self.schema)
        except (ValueError, RemoteProtocolError) as error:
            self._error = MillstreamError("protocol", f"the server sent a schema that cannot be read: {error}")

    # --- taking ---

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Any:
        """Return the next batch of at least one row."""
        while True:
            item = await self.next_item()
            if item is None:
                raise StopAsyncIteration
            if not isinstance(item, Lost):
                return item

    async def next_item(self) -> Any:
        """Return the next batch or `Lost`, in order; None at the end."""
        while True:
            while self._waiting:
                message, frame_bytes = self._waiting.popleft()
                item = self._taken(message, frame_bytes)
                if item is not None:
                    return item
            if self.end is not None and (self._reconnection is None or self._is_closed or self.end.reason not in PASSING_ENDS):
                return None
            if self.end is not None:
                await self._resume(MillstreamError("disconnected", f"the subscription ended: {self.end.message or self.end.reason}"))
                continue
            if self._error is not None:
                if self._reconnection is None or self._is_closed or self._error.code not in PASSING_CODES:
                    raise self._error
                await self._resume(self._error)
                continue
            self._arrived.clear()
            await self._arrived.wait()

    @property
    def reconnects(self) -> int:
        """How often the connection was made anew."""
        return 0 if self._reconnection is None else self._reconnection.count

    async def _resume(self, lost: MillstreamError) -> None:
        """Go on over a new connection after the last batch taken. Whatever interrupts this leaves the subscription lost, as it was."""
        assert self._reconnection is not None
        token, columns = self.resume_token, self.columns

        async def resume(wire: Wire) -> None:
            self._wire, self._number = wire, 0
            self._refill = Refill(self._refill.rows_window, self._refill.bytes_window)
            self._waiting.clear()
            self._error = None
            try:
                await self.open(from_start=False, resume_token=token, format=self._format)
                self._check_columns(columns)
            except BaseException:
                self._error, self.resume_token = lost, token
                raise
            self.resume_token = token or self.resume_token
            self.end = None

        await self._reconnection.run(lost, resume)

    def _check_columns(self, before: list[Column]) -> None:
        if self.columns != before:
            raise MillstreamError("invalid", f"{self.query} has other columns since the connection was lost", "subscribe again")

    def _taken(self, message: Message, frame_bytes: int) -> Any:
        match message:
            case Gap():
                lost = Lost(message.rows_lost, message.reason)
                self.gaps.append(lost)
                return lost
            case End():
                self.end = Ending(message.reason, message.message, message.counts, message.resume_token)
                return None
            case Result():
                self._give_back(message.rows, frame_bytes)
                self.meta = message.meta
                token = message.meta.get("resume_token")
                if isinstance(token, str):
                    self.resume_token = token
                return self._batch_of(message) if message.rows else None
            case _:
                raise AssertionError(f"a subscription does not get {message!r}")

    def _give_back(self, rows: int, frame_bytes: int) -> None:
        granted = self._refill.done(rows, frame_bytes)
        if granted is not None and self._wire.error is None and self._wire.protocol.subscription_window(self._number) is not None:
            self._wire.send(Credit(subscription=self._number, rows=granted[0], bytes=granted[1]))

    def _batch_of(self, result: Result) -> Any:
        if result.payload is None:
            names = [column.name for column in self.columns]
            return [dict(zip(names, row, strict=True)) for row in result.values]
        assert not isinstance(result.payload, list), "what arrives is one piece"
        if self._decoder is None:
            raise MillstreamError("protocol", "the server sent an Arrow result in a subscription without an Arrow schema")
        try:
            batch = self._decoder.decode(result.payload, result.rows)
        except RemoteProtocolError as error:
            raise MillstreamError.of_protocol(error) from error
        metadata = {f"{METADATA_PREFIX}{name}": _as_text(value) for name, value in result.meta.items()}
        return batch.replace_schema_metadata({**(batch.schema.metadata or {}), **metadata}) if metadata else batch

    async def to_arrow(self) -> pa.Table:
        """Return all results until the end as one table. Only for queries that end."""
        import pyarrow as pa

        schema = self.schema if self.schema is not None else arrow_schema(self.columns)
        batches = [batch.replace_schema_metadata(schema.metadata) async for batch in self]
        return pa.Table.from_batches(batches, schema)

    async def to_pandas(self) -> Any:
        """Return all results until the end as one pandas frame. MillstreamError when pandas is not installed."""
        check_pandas()
        return to_pandas(await self.to_arrow())

    # --- ending ---

    async def close(self) -> None:
        """Stop the subscription. What had arrived can still be taken; `end.reason` is then `unsubscribed`."""
        self._is_closed = True
        if self._number and self._wire.error is None and self._wire.protocol.subscription_window(self._number) is not None:
            await self._wire.request(lambda request: Unsubscribe(request, self._number))
        if self._reconnection is not None:
            await self._reconnection.close()

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def heard(self, message: Message, frame_bytes: int) -> None:
        """Keep what arrived until it is taken. Credit bounds how much that can be."""
        self._waiting.append((message, frame_bytes))
        self._arrived.set()

    def lost(self, error: MillstreamError) -> None:
        """The connection is gone."""
        self._error = self._error or error
        self._arrived.set()


def _as_text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, list | dict) else str(value)


class Pending:
    """A subscription about to be: `await` it, use it in `async with`, or iterate over it directly.

    It has the attributes of `Subscription` from the beginning: `resume_token`, `end`, `gaps`, `columns`, `schema`, `meta`. Until it is in
    force, nothing is known: None, or empty.
    """

    def __init__(self, start: Callable[[], Coroutine[Any, Any, Subscription]]) -> None:
        self._start = start
        self._opened: Subscription | None = None

    async def _open(self) -> Subscription:
        self._opened = await self._start()
        return self._opened

    def __await__(self) -> Generator[Any, None, Subscription]:
        return self._open().__await__()

    async def __aiter__(self) -> AsyncIterator[Any]:
        async with await self._open() as subscription:
            async for batch in subscription:
                yield batch

    async def __aenter__(self) -> Subscription:
        return await self._open()

    async def __aexit__(self, *_: object) -> None:
        assert self._opened is not None
        await self._opened.close()

    @property
    def resume_token(self) -> str | None:
        """The token of the last batch taken."""
        return None if self._opened is None else self._opened.resume_token

    @property
    def end(self) -> Ending | None:
        """Why it ended; None while it has not."""
        return None if self._opened is None else self._opened.end

    @property
    def gaps(self) -> list[Lost]:
        """Results that were lost."""
        return [] if self._opened is None else self._opened.gaps

    @property
    def columns(self) -> list[Column]:
        """The columns of the results."""
        return [] if self._opened is None else self._opened.columns

    @property
    def schema(self) -> pa.Schema | None:
        """The Arrow schema of the results."""
        return None if self._opened is None else self._opened.schema

    @property
    def meta(self) -> dict[str, Any]:
        """What the server said of the last batch taken."""
        return {} if self._opened is None else self._opened.meta

    @property
    def reconnects(self) -> int:
        """How often the connection was made anew."""
        return 0 if self._opened is None else self._opened.reconnects


DEFAULT_ROWS_WINDOW = limits.CREDIT_ROWS
DEFAULT_BYTES_WINDOW = limits.CREDIT_BYTES
