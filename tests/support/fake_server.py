"""A small server for tests of the client: streams and pass-through queries in memory, over the real protocol and a real socket.

It knows no SQL. `queries[name]` is the stream whose rows the query passes on; `answers[text]` is what a statement is answered (a message
factory, or an exception). What it was told is in `heard`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from millstream.protocol import messages as m
from millstream.protocol.batches import BatchDecoder, BatchEncoder, arrow_schema, decode_schema, encode_schema
from millstream.protocol.connection import Connection, RowsChunk
from millstream.protocol.errors import RemoteProtocolError
from millstream.protocol.messages import Message
from millstream.protocol.states import Role
from millstream.protocol.types import Column, parse_schema, spell_schema

PYTHON_TYPES: dict[str, tuple[type, ...]] = {"BIGINT": (int,), "INT": (int,), "DOUBLE": (float, int), "TEXT": (str,), "DECIMAL": (str, int)}


@dataclass
class Kept:
    """A subscription of one session: results wait here while there is no credit."""

    number: int
    columns: list[Column]
    format: str
    encoder: BatchEncoder
    waiting: list[tuple[pa.RecordBatch, dict[str, Any]]] = field(default_factory=list)


class FakeServer:
    """See the module. `port` is set once it listens."""

    def __init__(self, *, token: str | None = None, rows_credit: int = 1_000, bytes_credit: int = 10_000_000) -> None:
        self.token = token
        self.rows_credit = rows_credit
        self.bytes_credit = bytes_credit
        self.streams: dict[str, list[Column]] = {}
        self.queries: dict[str, str] = {}
        self.answers: dict[str, Callable[[int], Message]] = {}
        self.heard: list[Any] = []
        self.rows: dict[str, list[list[Any]]] = {}
        self.hold_credit = False
        self.hold_answers = False
        self.sessions: list[Session] = []
        self.port = 0
        self._server: asyncio.Server | None = None

    def stream(self, name: str, *columns: tuple[str, str]) -> None:
        """Make a stream and a query `q_<name>` that passes its rows on."""
        self.streams[name] = parse_schema([[column, spelled, True] for column, spelled in columns])
        self.rows[name] = []
        self.queries[f"q_{name}"] = name

    async def start(self) -> None:
        self._server = await asyncio.get_running_loop().create_server(lambda: Session(self), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for session in list(self.sessions):
            session.transport.abort()
        await asyncio.sleep(0)
        await self._server.wait_closed()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def pass_on(self, stream: str, batch: pa.RecordBatch) -> None:
        """Give accepted rows to every subscription."""
        first = len(self.rows[stream])
        self.rows[stream].extend(list(row.values()) for row in batch.to_pylist())
        for session in self.sessions:
            for query, kept in session.kept.items():
                if self.queries.get(query) == stream:
                    kept.waiting.append((batch, {"resume_token": f"t{first + batch.num_rows}"}))
                    session.push(kept)

    def end(self, query: str, reason: str) -> None:
        """End all subscriptions of a query."""
        for session in self.sessions:
            kept = session.kept.pop(query, None)
            if kept is not None:
                session.say(m.End(kept.number, reason, counts={"rows": len(self.rows[self.queries[query]])}))

    async def __aenter__(self) -> FakeServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


class Session(asyncio.BufferedProtocol):
    """One client."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.connection = Connection(Role.SERVER)
        self.channels: dict[int, str] = {}
        self.decoders: dict[int, BatchDecoder] = {}
        self.kept: dict[str, Kept] = {}
        self.transport: Any = None
        self._last = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.server.sessions.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.sessions.remove(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.connection.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for event in self.connection.buffer_updated(nbytes):
                self.server.heard.append(event)
                self.handle(event)
        except RemoteProtocolError as error:
            self.say(m.Failure(error.code, error.message, fatal=True))
            self.transport.close()

    def say(self, message: Message) -> None:
        self.transport.writelines(self.connection.send(message))

    def handle(self, event: Any) -> None:
        match event:
            case m.Hello():
                self.greet(event)
            case m.Statement():
                self.answer(event)
            case m.Submit():
                self.server.queries[event.name or "temporary"] = (event.sql or "FROM s").split()[-1]
                self.say(m.Reply(event.request, info={"query": event.name or "temporary"}))
            case m.OpenChannel():
                self.open_channel(event)
            case m.ChannelSchema():
                assert event.payload is not None
                assert not isinstance(event.payload, list)
                self.decoders[event.channel] = BatchDecoder(decode_schema(event.payload))
            case m.Train():
                batch = self.decoders[event.channel].decode(event.payload, event.rows)  # type: ignore[arg-type]
                self.take(event.channel, event.number, batch.to_pylist())
            case m.Rows():
                self.take(event.channel, event.number, event.values)
            case RowsChunk():
                self.take_chunk(event)
            case m.CloseChannel():
                self.say(m.ChannelClosed(event.channel))
            case m.Subscribe():
                self.subscribe(event)
            case m.Unsubscribe():
                self.unsubscribe(event)
            case m.Credit():
                for kept in self.kept.values():
                    self.push(kept)
            case m.Finish():
                for query, stream in list(self.server.queries.items()):
                    if stream == event.stream:
                        self.server.end(query, "finished")
                self.say(m.Reply(event.request))
            case m.CancelRequest():
                if event.target in self.connection.open_requests:
                    self.say(m.Failure("cancelled", "given up", request=event.target))
                self.say(m.Reply(event.request))
            case m.Goodbye():
                self.say(m.Goodbye())
                self.transport.close()
            case _:
                pass

    def greet(self, hello: m.Hello) -> None:
        if hello.token != self.server.token:
            self.say(m.Failure("unauthorized", "the token is not known", hint="give --token", fatal=True))
            self.transport.close()
        else:
            self.say(m.Welcome(1, server="fake", server_id="f", role="admin"))

    def answer(self, statement: m.Statement) -> None:
        if self.server.hold_answers:
            return
        make = self.server.answers.get(statement.text, lambda request: m.Reply(request, notices=["ok"]))
        self.say(make(statement.request))

    def open_channel(self, event: m.OpenChannel) -> None:
        columns = self.server.streams.get(event.stream)
        if columns is None:
            self.say(m.Failure("unknown_name", f"there is no stream {event.stream}", request=event.request, hint="SHOW STREAMS"))
            return
        self._last += 1
        self.channels[self._last] = event.stream
        credit = (self.server.rows_credit, self.server.bytes_credit)
        self.say(m.ChannelOpened(event.request, self._last, spell_schema(columns), *credit, durability="journal"))

    def take_chunk(self, chunk: RowsChunk) -> None:
        self._judge(chunk.channel, [(chunk.first + i, 0, row) for i, row in enumerate(chunk.values)], chunk.through, chunk.frame_bytes)

    def take(self, channel: int, number: int, rows: list[Any]) -> None:
        entries = [(number, i, row) for i, row in enumerate(rows)]
        self._judge(channel, entries, number, self.connection.last_frame_bytes)

    def _judge(self, channel: int, entries: list[tuple[int, int, Any]], through: int, frame_bytes: int) -> None:
        stream = self.channels[channel]
        columns = self.server.streams[stream]
        good, rejected = [], []
        for number, index, row in entries:
            values = row if isinstance(row, dict) else dict(zip((c.name for c in columns), row, strict=True))
            reason = fault_of(values, columns)
            if reason:
                rejected.append([number, index, reason])
            else:
                good.append({c.name: values.get(c.name) for c in columns})
        batch = pa.RecordBatch.from_pylist(good, schema=arrow_schema(columns))
        self.server.pass_on(stream, batch)
        position = len(self.server.rows[stream])
        self.say(m.Ack(channel, through, len(good), len(rejected), rejected, position))
        if not self.server.hold_credit:
            self.say(m.Credit(channel=channel, rows=len(entries), bytes=frame_bytes))

    def subscribe(self, event: m.Subscribe) -> None:
        stream = self.server.queries.get(event.query)
        if stream is None:
            self.say(m.Failure("unknown_name", f"there is no query {event.query}", request=event.request))
            return
        columns = self.server.streams[stream]
        schema = arrow_schema(columns)
        self._last += 1
        kept = self.kept[event.query] = Kept(self._last, columns, event.format, BatchEncoder(schema))
        payload = encode_schema(schema) if event.format == "arrow" else None
        self.say(m.Subscribed(event.request, self._last, spell_schema(columns), payload=payload))
        skip = int(event.resume_token[1:]) if event.resume_token else 0
        rows = self.server.rows[stream][skip:] if event.from_start or event.resume_token else []
        if rows:
            names = [c.name for c in columns]
            batch = pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=schema)
            kept.waiting.append((batch, {"resume_token": f"t{skip + len(rows)}"}))
            self.push(kept)

    def unsubscribe(self, event: m.Unsubscribe) -> None:
        for query, kept in list(self.kept.items()):
            if kept.number == event.subscription:
                del self.kept[query]
                self.say(m.End(kept.number, "unsubscribed"))
        self.say(m.Reply(event.request))

    def push(self, kept: Kept) -> None:
        while kept.waiting:
            window = self.connection.subscription_window(kept.number)
            if window is None or not window.is_open:
                return
            batch, meta = kept.waiting.pop(0)
            if kept.format == "arrow":
                self.say(m.Result(kept.number, batch.num_rows, meta=meta, payload=kept.encoder.encode(batch)))
            else:
                self.say(m.Result(kept.number, batch.num_rows, [list(row.values()) for row in batch.to_pylist()], meta))


def fault_of(values: dict[str, Any], columns: list[Column]) -> str | None:
    """Return why a row does not fit, or None."""
    known = {column.name for column in columns}
    for name in values:
        if name not in known:
            return f"there is no column {name}"
    for column in columns:
        value = values.get(column.name)
        wanted = PYTHON_TYPES.get(column.type.name)
        if value is not None and wanted is not None and not isinstance(value, wanted):
            return f"{column.name} is {column.type}, not {type(value).__name__}"
        if column.type.name == "INT" and value is not None and not -(2**31) <= value < 2**31:
            return f"{value} does not fit {column.name}, an INT"
    return None


class ThreadedServer:
    """The same server in a thread of its own, for clients that block."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main)

    def _main(self) -> None:
        self._loop.run_until_complete(self.server.start())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self.server.stop())
        self._loop.close()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call in the server's thread and return what it returns."""

        async def run() -> Any:
            return function(*arguments)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    def __enter__(self) -> ThreadedServer:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
