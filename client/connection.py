"""The asyncio client: what a program holds of a connection."""

from __future__ import annotations

import asyncio
import datetime as dt
import html
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from millstream.client import data as conversion
from millstream.client.address import parse_address, tls_context
from millstream.client.errors import MillstreamError, NoServerHere
from millstream.client.notebook import ROWS_SHOWN_MAX, plan_svg, table_html
from millstream.client.publisher import Acknowledgement, Publisher
from millstream.client.reconnection import Reconnection
from millstream.client.statements import query_statement, quoted
from millstream.client.subscriber import DEFAULT_BYTES_WINDOW, DEFAULT_ROWS_WINDOW, Pending, Subscription
from millstream.client.typed import Made, maker
from millstream.client.wire import Wire
from millstream.protocol.batches import arrow_schema, decode_table
from millstream.protocol.errors import RemoteProtocolError
from millstream.protocol.messages import Finish, Hello, Reply, Statement, Submit, Welcome
from millstream.protocol.types import Column, parse_schema
from millstream.protocol.values.rows import rows_of
from millstream.protocol.version import VERSIONS

if TYPE_CHECKING:
    import pyarrow as pa

CONNECT_SECONDS_MAX = 10.0
_MICROSECOND = dt.timedelta(microseconds=1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
Tls = bool | str | Path | ssl.SSLContext | None


class Query:
    """A submitted query. The handle is only a name: dropping the handle does not drop the query."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self.name = name
        self._client = client

    def __repr__(self) -> str:
        return f"<query {self.name}>"

    def subscribe(self, **options: Any) -> Pending:
        """Subscribe to its results (see `AsyncClient.subscribe`)."""
        return self._client.subscribe(self.name, **options)

    async def start(self) -> None:
        """Start a stopped query; it begins anew."""
        await self._do("START")

    async def stop(self) -> None:
        """Stop reading and drop its state."""
        await self._do("STOP")

    async def pause(self) -> None:
        """Stand still, keeping state and queues."""
        await self._do("PAUSE")

    async def resume(self) -> None:
        """Go on after a pause."""
        await self._do("RESUME")

    async def drop(self, *, cascade: bool = False) -> None:
        """Remove it."""
        await self._client.execute(query_statement("DROP", self.name, cascade=cascade))

    async def fetch(self) -> pa.Table:
        """Return what its windows hold now: what it would still answer if its inputs ended here, or the rows that stand."""
        return (await self._client.execute(f"FETCH QUERY {quoted(self.name)}")).to_arrow()

    async def explain(self, what: str = "") -> Answer:
        """Return the plan; `what` may be SEMANTICS, ANALYZE or QOS."""
        return await self._client.execute(f"EXPLAIN {what} {quoted(self.name)}".replace("  ", " "))

    async def _do(self, verb: str) -> None:
        await self._client.execute(query_statement(verb, self.name))


class Answer:
    """What a statement answered: a table (perhaps empty), notices for people, `info` for programs.

    Iterating gives the rows as dicts. `query` is the query that the statement started or made, if it did; `continuous` says
    that the statement was a SELECT whose results come by subscribing to it, `durable` that it runs on without this connection. `first`
    names the columns of a wide table that a person needs first.
    """

    def __init__(self, client: AsyncClient, reply: Reply) -> None:
        self.notices: list[str] = [str(notice) for notice in reply.notices]
        self.info = reply.info
        try:
            self.columns: list[Column] = parse_schema(reply.columns)
            self._table = decode_table(reply.payload) if isinstance(reply.payload, memoryview) else None
        except (ValueError, RemoteProtocolError) as error:
            raise MillstreamError("protocol", f"the server sent a table that cannot be read: {error}") from error
        self._values = reply.values
        first = reply.info.get("first", [])
        self.first: list[str] = [str(name) for name in first] if isinstance(first, list) else []
        name = reply.info.get("query")
        self.query = Query(client, name) if isinstance(name, str) else None
        self.continuous = reply.info.get("continuous") is True
        self.durable = reply.info.get("durable") is True

    def __iter__(self) -> Iterator[dict[str, Any]]:
        yield from self.rows

    def __len__(self) -> int:
        return len(self._values) if self._table is None else int(self._table.num_rows)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows as dicts. MillstreamError when they come by subscribing."""
        self._check_is_whole()
        if self._table is not None:
            return rows_of(self._table)
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self._values]

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table. MillstreamError when they come by subscribing."""
        import pyarrow as pa

        self._check_is_whole()
        if self._table is not None:
            return self._table
        schema = arrow_schema(self.columns)
        columns = list(zip(*self._values, strict=True)) or [()] * len(schema)
        arrays = [_array(values, field.type) for values, field in zip(columns, schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=schema)

    def to_pandas(self) -> Any:
        """Return the rows as a pandas frame. MillstreamError when pandas is not installed, or the rows come by subscribing."""
        return conversion.to_pandas(self.to_arrow())

    def __repr__(self) -> str:
        """Return the rows as the shell shows them, notices below: an explanation as lines, of a SHOW what a person needs first."""
        from millstream.client.render import as_text  # only who prints an answer needs it

        rows = as_text(self.to_arrow(), self.first, ROWS_SHOWN_MAX) if self.columns and not (self.continuous and not self.durable) else []
        return "\n".join([*rows, *self.notices]) or "<an answer without rows>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: a plan as a picture, rows as a table, notices below."""
        plan = self.info.get("plan")
        parts = [plan_svg(plan)] if isinstance(plan, dict) else []
        if self.columns and not (self.continuous and not self.durable):
            parts.append(table_html(self.to_arrow()))
        return "".join([*parts, *(f"<p>{html.escape(notice)}</p>" for notice in self.notices)])

    def _check_is_whole(self) -> None:
        """A SELECT without a name has no rows of its own: an empty table would say that there are none."""
        if self.continuous and not self.durable and self.query is not None:
            raise MillstreamError(
                "invalid",
                "this SELECT runs on, so it has no table: its results come by subscribing",
                f'use subscribe("{self.query.name}"), or query_once(…) for one answer from what is there now',
            )


def _array(values: Any, data_type: pa.DataType) -> pa.Array:
    """Return wire values as an Arrow array; what travels as text (decimals) or integers (times) becomes what it stands for."""
    import pyarrow as pa

    if pa.types.is_decimal(data_type):
        return pa.array([None if value is None else str(value) for value in values], pa.string()).cast(data_type)
    return pa.array(values, data_type)


class AsyncClient:
    """A connection to a server. Get one from `connect_async`."""

    def __init__(self, wire: Wire, welcome: Welcome, address: str, connect: Callable[[], Coroutine[Any, Any, Wire]]) -> None:
        self._connect = connect
        self._reconnections: WeakSet[Reconnection] = WeakSet()
        self.address = address
        self.server = welcome.server
        self.server_id = welcome.server_id
        self.role = welcome.role
        self.limits = welcome.limits
        self.version = welcome.version
        self._wire = wire
        self._publishers: dict[str, asyncio.Task[Publisher]] = {}
        self._publishing: dict[str, asyncio.Lock] = {}

    @property
    def is_open(self) -> bool:
        """Whether anything can still be said."""
        return self._wire.error is None

    def on_notice(self, callback: Callable[[str, str], None] | None) -> None:
        """Have `callback(code, message)` called for each notice of the server."""
        self._wire.on_notice = callback

    async def execute(self, sql: str) -> Answer:
        """Run one statement."""
        return Answer(self, await self._wire.request(lambda request: Statement(request, sql)))

    async def query_once(self, sql: str) -> pa.Table:
        """Return the answer of a SELECT over what the server holds now, as FETCH gives it.

        The schema's metadata says up to which arrival number it answers (`millstream.position`).
        """
        return (await self.execute(f"FETCH {sql}")).to_arrow()

    async def submit(
        self,
        query: Any,
        name: str | None = None,
        *,
        start_at: dt.datetime | None = None,
        lifetime: dt.timedelta | None = None,
        **options: Any,
    ) -> Query:
        """Submit a continuous query (SELECT text, a plan as dict, or `plans.Plan`); returns once it is in force.

        With a `name` it is durable, without it belongs to this connection. `options` are those of WITH (…): `class_='gold'`, `qos=…`.
        """
        sql, plan = (query, None) if isinstance(query, str) else (None, query.to_dict() if hasattr(query, "to_dict") else query)
        start_at_us = None if start_at is None else (start_at.astimezone(dt.UTC) - _EPOCH) // _MICROSECOND
        lifetime_us = None if lifetime is None else lifetime // _MICROSECOND
        named = {key.removesuffix("_"): value for key, value in options.items()}
        reply = await self._wire.request(lambda request: Submit(request, sql, plan, name, start_at_us, lifetime_us, named))
        given = reply.info.get("query", name)
        if not isinstance(given, str):
            raise MillstreamError("protocol", "the server did not say the name of the query it started")
        return Query(self, given)

    def query(self, name: str) -> Query:
        """Return a handle on a query that exists."""
        return Query(self, name)

    def subscribe(
        self,
        query: str | Query,
        *,
        from_start: bool = False,
        resume_token: str | None = None,
        format: str = "arrow",
        rows_window: int = DEFAULT_ROWS_WINDOW,
        bytes_window: int = DEFAULT_BYTES_WINDOW,
        reconnect: bool | float = False,
    ) -> Pending:
        """Subscribe to a query's results: `await` it, or iterate over it with `async for`. In force once awaited.

        `rows_window` and `bytes_window` bound what may be under way and not yet taken.

        With `reconnect`, a lost connection is made anew, for this subscription alone, and the results go on after the last batch taken:
        each comes once. A number is for how many seconds to try, True for as long as it takes. `on_notice` is told of it (`disconnected`,
        `resumed`). MillstreamError when the query is gone, or its results cannot be continued, as after a restart without durability.
        """
        name = query.name if isinstance(query, Query) else query

        async def start() -> Subscription:
            reconnection = None
            if reconnect is not False:
                reconnection = Reconnection(self._connect, None if reconnect is True else float(reconnect), self._wire.notify)
                self._reconnections.add(reconnection)
            subscription = Subscription(self._wire, name, rows_window, bytes_window, reconnection)
            await subscription.open(from_start=from_start, resume_token=resume_token, format=format)
            return subscription

        return Pending(start)

    async def rows(self, query: str | Query, kind: type[Made], **options: Any) -> AsyncIterator[Made]:
        """Yield the results of a query as objects of a data class, by name of column; `options` are those of `subscribe`.

        MillstreamError (`data`) when the class is none, or wants a column that the query does not have.
        """
        async with self.subscribe(query, **options) as subscription:
            make = maker(kind, [column.name for column in subscription.columns])
            async for batch in subscription:
                for row in rows_of(batch):
                    yield make(row)

    async def publish(self, stream: str, data: Any) -> Acknowledgement:
        """Publish an Arrow table or batch, a pandas frame, or a list of dicts or data class objects; returns once all is settled.

        Rows that do not fit the stream are in `rejected`, the others are accepted. Columns are matched by name.
        """
        async with self._publishing.setdefault(stream, asyncio.Lock()):
            publisher = await self._publisher_of(stream)
            try:
                await publisher.send(data)
                return await publisher.flush()
            except BaseException:
                # What was sent before the failure must not be counted with the next call.
                self._publishers.pop(stream, None)
                publisher.abandon()
                raise

    async def _publisher_of(self, stream: str) -> Publisher:
        """Return the channel that `publish` keeps for a stream; opened at the first call."""
        task = self._publishers.get(stream)
        if task is None:
            task = self._publishers[stream] = asyncio.create_task(self.publisher(stream))
            task.add_done_callback(_retrieved)  # whoever waits for it may give up before it fails
        try:
            return await asyncio.shield(task)
        except Exception:
            self._publishers.pop(stream, None)
            raise

    async def publisher(self, stream: str, name: str | None = None) -> Publisher:
        """Open a channel of one's own: `send` without waiting for acks, `flush` to wait for them.

        With a `name` (up to 255 bytes) its sends are numbered, and the server takes each number once, also over connections: `last` and
        `position` say where to go on. A publisher that uses the name already is closed.
        """
        publisher = Publisher(self._wire, stream, name)
        await publisher.open()
        return publisher

    async def finish(self, stream: str) -> None:
        """Say that a stream has ended: its windows close, queries that read only it finish."""
        await self._wire.request(lambda request: Finish(request, stream))

    async def close(self) -> None:
        """Close the connection. Temporary queries end with it."""
        for task in self._publishers.values():
            task.cancel()
        await asyncio.gather(*self._publishers.values(), return_exceptions=True)
        self._publishers.clear()
        for reconnection in list(self._reconnections):
            await reconnection.close()
        await self._wire.close()

    async def abandon(self) -> None:
        """Close at once, without a word."""
        await _abandon(self._wire)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _retrieved(task: asyncio.Task[Publisher]) -> None:
    """Let nobody be told of an error that nobody waits for any more."""
    if not task.cancelled():
        task.exception()


class Connecting:
    """A connection about to be: `await` it, or use it in `async with`."""

    def __init__(self, start: Callable[[], Coroutine[Any, Any, AsyncClient]]) -> None:
        self._start = start

    def __await__(self) -> Generator[Any, None, AsyncClient]:
        return self._start().__await__()

    async def __aenter__(self) -> AsyncClient:
        self._client: AsyncClient = await self._start()
        return self._client

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()


def connect_async(
    address: str = "127.0.0.1:7415",
    token: str | None = None,
    tls: Tls = None,
    *,
    client_id: str | None = None,
    timeout: float = CONNECT_SECONDS_MAX,
) -> Connecting:
    """Return a connection to be awaited: `ms = await connect_async(…)` or `async with connect_async(…) as ms`. `timeout` in seconds.

    MillstreamError: `unreachable` if no server answers, `unauthorized` if the token is refused.
    """
    return Connecting(lambda: _connect(address, token, tls, client_id, timeout))


async def _connect(address: str, token: str | None, tls: Tls, client_id: str | None, timeout: float) -> AsyncClient:
    host, port = parse_address(address)

    async def again() -> Wire:
        """Connect for a subscription alone: not under the client's name, which belongs to one connection at a time."""
        return (await _greeted(host, port, token, tls, None, timeout))[0]

    wire, welcome = await _greeted(host, port, token, tls, client_id, timeout)
    return AsyncClient(wire, welcome, f"{host}:{port}", again)


async def _greeted(host: str, port: int, token: str | None, tls: Tls, client_id: str | None, timeout: float) -> tuple[Wire, Welcome]:
    context = tls_context(tls)
    loop = asyncio.get_running_loop()
    wire: Wire | None = None
    try:
        async with asyncio.timeout(timeout):
            _, wire = await loop.create_connection(Wire, host, port, ssl=context)
            welcome = await wire.greet(Hello(list(VERSIONS), client_id=client_id, token=token, agent="millstream python"))
    except TimeoutError:
        await _abandon(wire)
        raise MillstreamError("timeout", f"the server at {host}:{port} did not answer within {timeout:g} s") from None
    except ssl.SSLError as error:
        await _abandon(wire)
        reason = error.reason or str(error)
        raise MillstreamError("unreachable", f"no TLS connection to {host}:{port}: {reason}", "check --tls-ca (tls=…)") from error
    except OSError as error:
        await _abandon(wire)
        raise _unreachable(host, port, error) from error
    except BaseException:
        await _abandon(wire)
        raise
    return wire, welcome


def _unreachable(host: str, port: int, error: OSError) -> MillstreamError:
    reason = "" if isinstance(error, ConnectionRefusedError) or not error.strerror else f" ({error.strerror})"
    message = f"no server answers at {host}:{port}{reason}"
    return (
        NoServerHere(message)
        if host in ("127.0.0.1", "localhost", "::1")
        else MillstreamError("unreachable", message, "check host and port")
    )


async def _abandon(wire: Wire | None) -> None:
    if wire is not None:
        wire.abort()
        await wire.close()
