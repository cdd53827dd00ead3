"""Plain calls over the asyncio client: the same code, run by an event loop in a thread of its own.

The thread ends with `close` (or the end of the `with` block). A client that is forgotten is closed when it is collected, with a
ResourceWarning. Ctrl-C while a call waits cancels that call; the connection stays usable.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.client.connection import CONNECT_SECONDS_MAX, Answer, AsyncClient, Query, Tls, connect_async
from millstream.client.errors import MillstreamError
from millstream.client.notebook import POINTS_MAX, REDRAW_S, LivePlot
from millstream.client.publisher import Acknowledgement, Publisher
from millstream.client.subscriber import Ending, Lost, Subscription
from millstream.client.typed import Made, maker
from millstream.protocol.types import Column
from millstream.protocol.values.rows import rows_of

if TYPE_CHECKING:
    import pyarrow as pa

Result = TypeVar("Result")

# A signal that comes just before a thread begins to wait does not interrupt the wait. Ctrl-C must: so look up now and then.
LOOK_UP_S = 0.25


class _Call(Generic[Result]):
    """A coroutine for the loop's thread to run.

    The caller waits on a bare lock: an exception that Ctrl-C raises inside a `with` of a Condition, as futures have it, can leave that
    locked for ever.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Result]) -> None:
        self.ended = threading.Lock()
        self.ended.acquire()
        self.task: asyncio.Task[Result] | None = None
        self._coroutine = coroutine

    def begin(self) -> None:
        """Start it; on the loop's thread."""
        self.task = asyncio.get_running_loop().create_task(self._coroutine)
        self.task.add_done_callback(lambda _: self.ended.release())

    def cancel(self) -> None:
        """Cancel it; on the loop's thread."""
        if self.task is not None:
            self.task.cancel()


class LoopThread:
    """An event loop in a thread. `run` hands it a coroutine and waits; `stop` ends the thread and everything in it."""

    def __init__(self) -> None:
        self._loop = _new_loop()
        self._last: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._thread = threading.Thread(target=self._main, name="millstream-client", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether `run` can be used."""
        return not self._loop.is_closed() and self._thread.is_alive()

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Return what the coroutine returns, or raise what it raises."""
        if not self.is_running:
            coroutine.close()
            raise MillstreamError("closed", "the connection has been closed")
        call = _Call(coroutine)
        try:
            self._loop.call_soon_threadsafe(call.begin)
            while self._thread.is_alive() and not call.ended.acquire(timeout=LOOK_UP_S):
                """Look up, and wait on."""
        except BaseException:
            if self.is_running:
                self._loop.call_soon_threadsafe(call.cancel)
            raise
        if call.task is None or not call.task.done() or call.task.cancelled():
            raise MillstreamError("closed", "the connection has been closed")
        return call.task.result()

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Cancel what runs, run `last`, and end the thread; waits for it unless called from inside it."""
        if self.is_running:
            self._last = last
            self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            if self._last is not None:
                self._loop.run_until_complete(self._last())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's loop where it is installed: it writes a list of buffers without joining them."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


class BlockingQuery:
    """A submitted query; the methods of `Query`, blocking."""

    def __init__(self, client: Client, query: Query) -> None:
        self.name = query.name
        self._client = client
        self._query = query

    def __repr__(self) -> str:
        return repr(self._query)

    def subscribe(self, **options: Any) -> BlockingSubscription:
        """Subscribe to its results."""
        return self._client.subscribe(self.name, **options)

    def start(self) -> None:
        """Start a stopped query; it begins anew."""
        self._client._run(self._query.start())

    def stop(self) -> None:
        """Stop reading and drop its state."""
        self._client._run(self._query.stop())

    def pause(self) -> None:
        """Stand still, keeping state and queues."""
        self._client._run(self._query.pause())

    def resume(self) -> None:
        """Go on after a pause."""
        self._client._run(self._query.resume())

    def drop(self, *, cascade: bool = False) -> None:
        """Remove it."""
        self._client._run(self._query.drop(cascade=cascade))

    def fetch(self) -> pa.Table:
        """Return what its windows hold now."""
        return self._client._run(self._query.fetch())

    def explain(self, what: str = "") -> Answer:
        """Return the plan."""
        return self._client._run(self._query.explain(what))


class BlockingSubscription:
    """The results of a query: an iterator of `pyarrow.RecordBatch`; see `subscriber.Subscription`."""

    def __init__(self, client: Client, subscription: Subscription) -> None:
        self._client = client
        self._subscription = subscription

    def __iter__(self) -> BlockingSubscription:
        return self

    def __next__(self) -> Any:
        """Wait for the next batch."""
        while True:
            item = self.next_item()
            if item is None:
                raise StopIteration
            if not isinstance(item, Lost):
                return item

    def next_item(self, timeout: float | None = None) -> Any:
        """Wait for the next batch or gap (`Lost`); None at the end. TimeoutError after `timeout` seconds."""
        if timeout is None:
            return self._client._run(self._subscription.next_item())
        return self._client._run(asyncio.wait_for(self._subscription.next_item(), timeout))

    @property
    def query(self) -> str:
        """The name of the query."""
        return self._subscription.query

    @property
    def columns(self) -> list[Column]:
        """The columns of the results."""
        return self._subscription.columns

    @property
    def schema(self) -> pa.Schema | None:
        """The Arrow schema of the results."""
        return self._subscription.schema

    @property
    def end(self) -> Ending | None:
        """Why it ended; None while it has not."""
        return self._subscription.end

    @property
    def gaps(self) -> list[Lost]:
        """Results that were lost."""
        return self._subscription.gaps

    @property
    def resume_token(self) -> str | None:
        """What to subscribe with to go on after the last batch taken."""
        return self._subscription.resume_token

    def to_arrow(self) -> pa.Table:
        """Return all results until the end as one table."""
        return self._client._run(self._subscription.to_arrow())

    def to_pandas(self) -> Any:
        """Return all results until the end as one pandas frame. MillstreamError when pandas is not installed."""
        return self._client._run(self._subscription.to_pandas())

    def plot(
        self, x: str, y: str | Sequence[str], *, seconds: float | None = None, points_max: int = POINTS_MAX, redraw_s: float = REDRAW_S
    ) -> Any:
        """Draw the last `points_max` results as they come, and return the figure of matplotlib. A notebook shows it where this is called.

        It ends with the query, after `seconds`, or when you interrupt it; the subscription can then go on. MillstreamError (`unsupported`)
        when matplotlib is not installed, (`unknown_name`) for a column that the query does not have.
        """
        drawing = LivePlot(self.query, [column.name for column in self.columns], x, y, points_max)
        drawing.follow(self.next_item, seconds, redraw_s)
        return drawing.figure

    @property
    def reconnects(self) -> int:
        """How often the connection was made anew."""
        return self._subscription.reconnects

    def close(self) -> None:
        """Stop the subscription."""
        if self._client.is_running:
            self._client._run(self._subscription.close())

    def __enter__(self) -> BlockingSubscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BlockingPublisher:
    """A channel of one's own; see `publisher.Publisher`."""

    def __init__(self, client: Client, publisher: Publisher) -> None:
        self._client = client
        self._publisher = publisher

    @property
    def columns(self) -> list[Column]:
        """The columns of the stream."""
        return self._publisher.columns

    @property
    def last(self) -> int | None:
        """The number of the last send that the server has taken; None without a name."""
        return self._publisher.last

    @property
    def position(self) -> bytes | None:
        """The position that came with it."""
        return self._publisher.position

    def send(self, data: Any, *, position: bytes | None = None, number: int | None = None) -> int:
        """Send rows or columns; returns their number. Waits for credit only. See `publisher.Publisher.send`."""
        return self._client._run(self._publisher.send(data, position=position, number=number))

    def flush(self) -> Acknowledgement:
        """Wait until everything sent is settled."""
        return self._client._run(self._publisher.flush())

    def close(self) -> None:
        """Close the channel; the stream goes on."""
        if self._client.is_open:
            self._client._run(self._publisher.close())

    def __enter__(self) -> BlockingPublisher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Client:
    """A connection to a server, blocking. Get one from `connect`; close it, or use it in `with`."""

    def __init__(self, thread: LoopThread, client: AsyncClient) -> None:
        self._thread = thread
        self._client = client
        self.address = client.address
        self.server = client.server
        self.server_id = client.server_id
        self.role = client.role
        self.limits = client.limits

    def _run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return self._thread.run(coroutine)

    @property
    def is_open(self) -> bool:
        """Whether anything can still be said."""
        return self._thread.is_running and self._client.is_open

    @property
    def is_running(self) -> bool:
        """Whether the client was not closed: a subscription that reconnects goes on when `is_open` is no longer true."""
        return self._thread.is_running

    def on_notice(self, callback: Callable[[str, str], None] | None) -> None:
        """Have `callback(code, message)` called, in the client's thread, for each notice of the server."""
        self._client.on_notice(callback)

    def execute(self, sql: str) -> Answer:
        """Run one statement."""
        return self._run(self._client.execute(sql))

    def query_once(self, sql: str) -> pa.Table:
        """Return the answer of a SELECT over what the server holds now. See `AsyncClient.query_once`."""
        return self._run(self._client.query_once(sql))

    def submit(
        self,
        query: Any,
        name: str | None = None,
        *,
        start_at: dt.datetime | None = None,
        lifetime: dt.timedelta | None = None,
        **options: Any,
    ) -> BlockingQuery:
        """Submit a continuous query; returns once it is in force. See `AsyncClient.submit`."""
        submitting = self._client.submit(query, name, start_at=start_at, lifetime=lifetime, **options)
        return BlockingQuery(self, self._run(submitting))

    def query(self, name: str) -> BlockingQuery:
        """Return a handle on a query that exists."""
        return BlockingQuery(self, Query(self._client, name))

    def subscribe(self, query: str | BlockingQuery, **options: Any) -> BlockingSubscription:
        """Subscribe to a query's results; in force when this returns. See `AsyncClient.subscribe`."""
        name = query.name if isinstance(query, BlockingQuery) else query

        async def start() -> Subscription:
            return await self._client.subscribe(name, **options)

        return BlockingSubscription(self, self._run(start()))

    def rows(self, query: str | BlockingQuery, kind: type[Made], **options: Any) -> Iterator[Made]:
        """Yield the results of a query as objects of a data class. See `AsyncClient.rows`."""
        with self.subscribe(query, **options) as subscription:
            make = maker(kind, [column.name for column in subscription.columns])
            for batch in subscription:
                yield from map(make, rows_of(batch))

    def publish(self, stream: str, data: Any) -> Acknowledgement:
        """Publish an Arrow table or batch, a pandas frame, or a list of dicts or data class objects; returns once all is settled."""
        return self._run(self._client.publish(stream, data))

    def publisher(self, stream: str, name: str | None = None) -> BlockingPublisher:
        """Open a channel of one's own; with a `name` each of its sends is taken once. See `AsyncClient.publisher`."""
        return BlockingPublisher(self, self._run(self._client.publisher(stream, name)))

    def finish(self, stream: str) -> None:
        """Say that a stream has ended."""
        self._run(self._client.finish(stream))

    def close(self) -> None:
        """Close the connection and end its thread. May be called twice."""
        try:
            if self._thread.is_running:
                self._run(self._client.close())
        finally:
            self._thread.stop()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        thread = self.__dict__.get("_thread")
        if thread is not None and thread.is_running:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=1)
            thread.stop(self._client.abandon)


def connect(
    address: str = "127.0.0.1:7415",
    token: str | None = None,
    tls: Tls = None,
    *,
    client_id: str | None = None,
    timeout: float = CONNECT_SECONDS_MAX,
) -> Client:
    """Connect, and return the client: `with connect("127.0.0.1:7415") as ms`. `timeout` in seconds. Errors as `connect_async`."""
    thread = LoopThread()

    async def start() -> AsyncClient:
        return await connect_async(address, token, tls, client_id=client_id, timeout=timeout)

    try:
        return Client(thread, thread.run(start()))
    except BaseException:
        thread.stop()
        raise
