"""RabbitMQ: messages of a queue as a source, results as messages as a sink."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import pika
from millstream.client.edges.contract import DECODED_BYTES_MAX, ConnectorError, ConnectorOptions, Lag, Message, MessageBatch
from millstream.client.edges.formats import CONTENT_TYPES, encoder
from pika.exceptions import AMQPError, ChannelClosedByBroker, NackError, UnroutableError

WAITING_MAX = 2_000  # messages the broker sends before it is told that some are in the stream
BATCH_MAX = 500
ANSWER_S = 10.0
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
_PERSISTENT = 2


def _connected(options: ConnectorOptions) -> Any:
    """Return a connection. It has no heartbeats, which only a thread that never waits could answer; TCP asks whether the peer lives."""
    url = options.url(("amqp", "amqps"), "amqp://host:port/vhost or amqps://host:port/vhost")
    parameters = pika.URLParameters(url._replace(path=url.path or "/%2F").geturl())
    parameters.heartbeat = 0
    parameters.socket_timeout = parameters.blocked_connection_timeout = ANSWER_S
    parameters.tcp_options = _KEEPALIVE
    user, password = options.maybe("user"), options.maybe("password")
    if user is not None:
        parameters.credentials = pika.PlainCredentials(user, password or "")
    try:
        return pika.BlockingConnection(parameters)
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


class RabbitSink:
    """Each result as a JSON message to `exchange` (by default the nameless one) with `routing_key`, confirmed by the broker."""

    promise = "at least once: what was sent and not confirmed is sent again after a fault"

    def __init__(self) -> None:
        self._connection: Any = None

    def open(self, options: ConnectorOptions, token: str | None) -> str | None:
        """Connect."""
        self._exchange, self._key = options.text("exchange", ""), options.text("routing_key")
        self._messages = encoder(options)
        self._connection = _connected(options)
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()
        self._properties = pika.BasicProperties(content_type=CONTENT_TYPES[options.text("format", "json")], delivery_mode=_PERSISTENT)
        return token

    def write(self, batch: Any, token: str) -> None:
        """Send a message a row; each is confirmed when this returns."""
        for line in self._messages(batch):
            try:
                self._channel.basic_publish(self._exchange, self._key, line, self._properties, mandatory=True)
            except UnroutableError:
                raise ConnectorError(f"no queue takes messages with routing_key {self._key}; declare one and bind it") from None
            except NackError:
                raise ConnectorError("the broker has refused a message; its queue may be full") from None

    def flush(self) -> None:
        """Each write is confirmed already."""

    def close(self) -> None:
        """Leave."""
        _close(self._connection)
