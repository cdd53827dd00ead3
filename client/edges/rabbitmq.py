"""RabbitMQ: messages of a queue as a source, results as messages as a sink."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import pika
from millstream.client.blocking import LoopThread
from millstream.client.edges.contract import DECODED_BYTES_MAX, ConnectorError, ConnectorOptions, Lag, Message, MessageBatch
from millstream.client.edges.formats import CONTENT_TYPES, encoder
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.exceptions import AMQPConnectionError, AMQPError, ChannelClosedByBroker

WAITING_MAX = 2_000  # messages the broker sends before it is told that some are in the stream
BATCH_MAX = 500
UNCONFIRMED_MAX, SENT_AT_ONCE = 2_000, 500  # messages of a sink
ANSWER_S = 10.0
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
_PERSISTENT = 2


def _parameters(options: ConnectorOptions) -> Any:
    """Return those of a connection. It has no heartbeats, which a thread that waits could not answer; TCP asks whether the peer lives."""
    url = options.url(("amqp", "amqps"), "amqp://host:port/vhost or amqps://host:port/vhost")
    parameters = pika.URLParameters(url._replace(path=url.path or "/%2F").geturl())
    parameters.heartbeat = 0
    parameters.socket_timeout = parameters.blocked_connection_timeout = ANSWER_S
    parameters.tcp_options = _KEEPALIVE
    user, password = options.maybe("user"), options.maybe("password")
    if user is not None:
        parameters.credentials = pika.PlainCredentials(user, password or "")
    return parameters


def _connected(options: ConnectorOptions) -> Any:
    try:
        return pika.BlockingConnection(_parameters(options))
    except (AMQPError, OSError) as error:
        raise ConnectorError(f"{options.name}: RabbitMQ cannot be reached: {str(error) or error.args}") from None


class RabbitSource:
    """Messages of `queue`, which must exist. The broker keeps what is not in the stream yet."""

    promise = "at least once: a broker sends again what it has no acknowledgement of, and says nothing by which that could be told"

    def __init__(self) -> None:
        self._connection: Any = None

    def open(self, options: ConnectorOptions, position: bytes | None) -> None:
        """Ask for the queue's messages."""
        self._queue = options.text("queue")
        self._growth = options.growth
        self._connection = _connected(options)
        self._channel = self._connection.channel()
        self._count = int(position or 0)
        self._unsettled: deque[tuple[int, int]] = deque()  # count of messages up to one, and the broker's number of it
        try:
            self._channel.queue_declare(self._queue, passive=True)
        except ChannelClosedByBroker as error:
            raise ConnectorError(f"{options.name}: {error.reply_text}") from None
        self._channel.basic_qos(prefetch_count=WAITING_MAX)

    def read(self, wait_s: float) -> MessageBatch | None:
        """Return what has come."""
        found: list[Message] = []
        size, number = 0.0, 0
        began = time.monotonic()
        while len(found) < BATCH_MAX and size < DECODED_BYTES_MAX:
            if found and not self._channel.get_waiting_message_count():
                break
            left = 0.001 if found else max(0.001, wait_s - (time.monotonic() - began))
            method, properties, body = next(self._channel.consume(self._queue, inactivity_timeout=left))
            if method is None:
                break
            number = method.delivery_tag
            size += self._growth.of(len(body))
            key = properties.message_id
            time_us = None if properties.timestamp is None else properties.timestamp * 1_000_000
            topic = method.routing_key.replace(".", "/")
            found.append(Message(body, topic, None if key is None else key.encode(), time_us))
        if not found:
            return None
        self._count += len(found)
        self._unsettled.append((self._count, number))
        return MessageBatch(found, str(self._count).encode())

    def settled(self, position: bytes) -> None:
        """Acknowledge to the broker what is in the stream."""
        last = 0
        while self._unsettled and self._unsettled[0][0] <= int(position):
            _, last = self._unsettled.popleft()
        if last:
            self._channel.basic_ack(last, multiple=True)

    def lag(self) -> Lag:
        """Return how many messages wait in the queue, those under way to here not counted."""
        return Lag(self._channel.queue_declare(self._queue, passive=True).method.message_count)

    def close(self) -> None:
        """Leave."""
        _close(self._connection)


def _close(connection: Any) -> None:
    if connection is not None and connection.is_open:
        try:
            connection.close()
        except (AMQPError, OSError):
            return  # it is closed, by the other side


class _Channel:
    """A channel whose messages the broker confirms, many at a time. The library's loop runs in a thread of its own."""

    def __init__(self, options: ConnectorOptions) -> None:
        parameters = _parameters(options)
        self._unconfirmed: dict[int, None] = {}  # the numbers of messages, in order
        self._number = 0
        self._trouble: str | None = None
        self._is_leaving = False
        self._thread = LoopThread()
        try:
            self._thread.run(self._open(parameters))
        except ConnectorError as error:
            self._thread.stop()
            raise ConnectorError(f"{options.name}: RabbitMQ cannot be reached: {error}") from None

    async def _open(self, parameters: Any) -> None:
        self._changed = asyncio.Event()
        self._ready = False

        def opened(channel: Any) -> None:
            self._channel = channel
            channel.add_on_close_callback(lost)
            channel.add_on_return_callback(returned)
            channel.confirm_delivery(self._heard, began)

        def began(frame: Any) -> None:
            self._ready = True
            self._changed.set()

        def lost(_: Any, error: Any) -> None:
            self._tell(_said(error))

        def returned(_: Any, method: Any, *message: Any) -> None:
            self._tell(f"no queue takes messages with routing_key {method.routing_key}; declare one and bind it")

        callbacks = {"on_open_error_callback": lost, "on_close_callback": lost, "custom_ioloop": asyncio.get_running_loop()}
        self._connection = AsyncioConnection(parameters, lambda made: made.channel(on_open_callback=opened), **callbacks)
        await self._until(lambda: self._ready, "did not answer")

    def _tell(self, trouble: str) -> None:
        if not self._is_leaving:
            self._trouble = self._trouble or trouble
        self._changed.set()

    def _heard(self, frame: Any) -> None:
        last = frame.method.delivery_tag
        if frame.method.NAME == "Basic.Nack":
            self._tell("the broker has refused a message; its queue may be full")
        if frame.method.multiple:
            while self._unconfirmed and (first := next(iter(self._unconfirmed))) <= last:
                del self._unconfirmed[first]
        else:
            self._unconfirmed.pop(last, None)
        self._changed.set()

    async def _until(self, done: Callable[[], bool], otherwise: str) -> None:
        """Wait until something is so. ConnectorError once there is trouble, or nothing has been heard for a while."""
        while self._trouble is not None or not done():
            if self._trouble is not None:
                raise ConnectorError(self._trouble)
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), ANSWER_S)
            except TimeoutError:
                raise ConnectorError(f"the broker {otherwise} within {ANSWER_S:g} s") from None

    def publish(self, exchange: str, key: str, lines: list[bytes], properties: Any) -> None:
        """Send messages; waits while many of them are not confirmed."""
        self._thread.run(self._publish(exchange, key, lines, properties))

    async def _publish(self, exchange: str, key: str, lines: list[bytes], properties: Any) -> None:
        for start in range(0, len(lines), SENT_AT_ONCE):
            await self._confirmed(UNCONFIRMED_MAX - SENT_AT_ONCE)
            for line in lines[start : start + SENT_AT_ONCE]:
                self._number += 1
                self._unconfirmed[self._number] = None
                self._channel.basic_publish(exchange, key, line, properties, mandatory=True)

    async def _confirmed(self, left: int) -> None:
        await self._until(lambda: len(self._unconfirmed) <= left, "did not confirm a message")

    def flush(self) -> None:
        """Return when the broker has confirmed all."""
        self._thread.run(self._confirmed(0))

    def close(self) -> None:
        """Leave."""
        if self._thread.is_running:
            self._thread.stop(self._leave)

    async def _leave(self) -> None:
        self._is_leaving, self._trouble = True, None
        if self._connection.is_open:
            self._connection.close()
            with contextlib.suppress(ConnectorError):  # it is gone, with or without a word
                await self._until(lambda: bool(self._connection.is_closed), "did not say goodbye")


def _said(error: Any) -> str:
    """Return what the library says of a connection that could not be made, or was lost; it wraps one error in others."""
    inner = getattr(error, "exceptions", None) or [getattr(error, "exception", None)]
    if inner[-1] is not None:
        return _said(inner[-1])
    if isinstance(error, AMQPConnectionError) and error.args and isinstance(error.args[0], BaseException):
        return _said(error.args[0])
    return " ".join((str(error) or repr(error)).split())[:300]


class RabbitSink:
    """Each result as a message to `exchange` (by default the nameless one) with `routing_key`, confirmed by the broker."""

    promise = "at least once: what was sent and not confirmed is sent again after a fault"

    def __init__(self) -> None:
        self._channel: _Channel | None = None

    def open(self, options: ConnectorOptions, token: str | None) -> str | None:
        """Connect."""
        self._exchange, self._key = options.text("exchange", ""), options.text("routing_key")
        self._messages = encoder(options)
        self._properties = pika.BasicProperties(content_type=CONTENT_TYPES[options.text("format", "json")], delivery_mode=_PERSISTENT)
        self._channel = _Channel(options)
        return token

    def write(self, batch: Any, token: str) -> None:
        """Send a message a row."""
        assert self._channel is not None
        self._channel.publish(self._exchange, self._key, self._messages(batch), self._properties)

    def flush(self) -> None:
        """Wait until the broker has confirmed all."""
        assert self._channel is not None
        self._channel.flush()

    def close(self) -> None:
        """Leave."""
        if self._channel is not None:
            self._channel.close()
