"""NATS JetStream: messages of a stream as a source, results as messages as a sink. The library's loop runs in a thread of its own."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

import nats
from millstream.client.blocking import LoopThread
from millstream.client.edges.contract import ConnectorError, ConnectorOptions, Lag, Message, MessageBatch, fitting
from millstream.client.edges.formats import encoder
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError

BATCH_MAX = 500
ANSWER_S = 10.0
IDLE_S = 300.0  # after which the server forgets a consumer that asks for nothing
UNANSWERED_MAX = 1_000  # messages of a sink that the server has not confirmed
TOKEN, BEHIND, NUMBER = "Millstream-Token", "Millstream-Behind", "Millstream-Number"


class _Link:
    """A connection to a server."""

    def __init__(self, options: ConnectorOptions) -> None:
        url = options.url(("nats", "tls"), "nats://host:port or tls://host:port")
        user, password, token = options.maybe("user"), options.maybe("password"), options.maybe("token")
        secrets = {name: value for name, value in (("user", user), ("password", password), ("token", token)) if value is not None}
        self._thread = LoopThread()
        self._client: Any = None
        self._trouble: str | None = None

        async def told(error: Exception) -> None:
            self._trouble = str(error) or type(error).__name__

        async def lost() -> None:
            self._trouble = self._trouble or "closed by the server"

        async def connect() -> Any:
            callbacks = {"error_cb": told, "closed_cb": lost}
            once = {"allow_reconnect": False, "max_reconnect_attempts": 1, "reconnect_time_wait": 0}
            async with asyncio.timeout(ANSWER_S):
                return await nats.connect(url.geturl(), connect_timeout=ANSWER_S, **once, **callbacks, **secrets)

        try:
            self._client = self.run(connect())
        except (OSError, nats.errors.Error, TimeoutError) as error:
            self._thread.stop()
            raise ConnectorError(f"{options.name}: NATS cannot be reached: {self._trouble or error}") from None
        self.stream = self._client.jetstream(timeout=ANSWER_S)

    def run(self, coroutine: Any) -> Any:
        """Return what a coroutine returns."""
        return self._thread.run(coroutine)

    def check(self) -> None:
        """ConnectorError once the connection is lost."""
        if self._trouble is not None or self._client.is_closed:
            raise ConnectorError(f"the connection to NATS was lost: {self._trouble or 'closed'}")

    def close(self) -> None:
        """Leave."""
        if self._thread.is_running:
            self._thread.stop(self._client.close)


class NatsSource:
    """Messages of `stream`, all or those of `subject`, from the first that the stream keeps."""

    promise = "exactly once: the number of the message in its stream is kept with the rows"

    def __init__(self) -> None:
        self._link: _Link | None = None

    def open(self, options: ConnectorOptions, position: bytes | None) -> None:
        """Ask for the messages behind a position."""
        stream, subject = options.text("stream"), options.text("subject", ">")
        link = self._link = _Link(options)
        self._growth = options.growth
        self._ahead: list[Message] = []
        self._numbers: deque[int] = deque()
        self._delivered = 0
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=int(position or 0) + 1,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=IDLE_S,
        )
        try:
            self._messages = link.run(link.stream.pull_subscribe(subject, stream=stream, config=config))
        except NotFoundError:
            raise ConnectorError(f"{options.name}: there is no JetStream stream {stream}") from None

    def read(self, wait_s: float) -> MessageBatch | None:
        """Return the next messages."""
        assert self._link is not None
        if not self._ahead:
            self._link.check()
            began = time.monotonic()
            try:
                found = self._link.run(self._messages.fetch(BATCH_MAX, timeout=max(wait_s, 0.001)))
            except (nats.errors.TimeoutError, TimeoutError):
                self._link.check()
                # It gives up a little before its time; None before the time would be asked again at once.
                time.sleep(max(0.0, wait_s - (time.monotonic() - began)))  # so that nobody asks without a pause
                return None
            for message in found:
                self._check_order(message.metadata.sequence.consumer)
                self._ahead.append(_message(message))
                self._numbers.append(message.metadata.sequence.stream)
        count = fitting(self._ahead, self._growth)
        messages, self._ahead = self._ahead[:count], self._ahead[count:]
        last = [self._numbers.popleft() for _ in messages][-1]
        return MessageBatch(messages, str(last).encode())

    def _check_order(self, number: int) -> None:
        """ConnectorError when a message did not arrive: nobody acknowledges, so the server sends none again."""
        if number != self._delivered + 1:
            raise ConnectorError(f"message {self._delivered + 1} of the connection was lost; it is read again from the last position")
        self._delivered = number

    def settled(self, position: bytes) -> None:
        """The messages stay; how long is the stream's own affair."""

    def lag(self) -> Lag:
        """Return how many messages wait."""
        assert self._link is not None
        found = self._link.run(self._messages.consumer_info())
        return Lag((found.num_pending or 0) + len(self._ahead))

    def close(self) -> None:
        """Leave."""
        if self._link is not None:
            self._link.close()


def _message(message: Any) -> Message:
    key = (message.headers or {}).get("Nats-Msg-Id")
    time_us = int(message.metadata.timestamp.timestamp() * 1e6)
    return Message(message.data, message.subject.replace(".", "/"), None if key is None else key.encode(), time_us)


class NatsSink:
    """Each result as a JSON message to `subject`, which no other program writes to. Its last message says where to go on."""

    promise = "exactly once: each message carries the resume token and a number that the stream takes once (within its duplicate window)"

    def __init__(self) -> None:
        self._link: _Link | None = None
        self._sent: deque[Any] = deque()

    def open(self, options: ConnectorOptions, token: str | None) -> str | None:
        """Connect, and return the token of the last message in the stream."""
        self._subject, stream = options.text("subject"), options.text("stream")
        self._messages = encoder(options)
        link = self._link = _Link(options)
        try:
            last = link.run(link.stream.get_last_msg(stream, self._subject))
        except NotFoundError:
            # The stream may remember numbers of messages that it no longer has, so it is given others.
            self._token, self._behind, self._passing, self._number = token or "", 0, 0, time.time_ns() // 1_000
            return token
        headers = last.headers or {}
        if NUMBER not in headers:
            raise ConnectorError(f"{options.name}: another program writes to subject {self._subject}; give the sink one of its own")
        self._token, self._behind, self._number = headers.get(TOKEN, ""), int(headers[BEHIND]), int(headers[NUMBER])
        self._passing = self._behind  # rows behind the token that the stream has already
        return self._token or None

    def write(self, batch: Any, token: str) -> None:
        """Send a message a row. One within a batch names the token before it and how many rows have come since."""
        assert self._link is not None
        self._link.check()
        lines = self._messages(batch)
        skipped = min(self._passing, len(lines))
        self._passing -= skipped
        messages = []
        for place in range(skipped, len(lines)):
            is_last = place == len(lines) - 1
            self._number += 1
            self._behind = 0 if is_last else self._behind + 1
            headers = {TOKEN: token if is_last else self._token, BEHIND: str(self._behind), NUMBER: str(self._number)}
            headers["Nats-Msg-Id"] = f"millstream {self._subject} {self._number}"
            messages.append((lines[place], headers))
        if not messages:
            self._behind = self._passing
        self._token = token
        self._link.run(self._publish(messages))

    async def _publish(self, messages: list[tuple[bytes, dict[str, str]]]) -> None:
        assert self._link is not None
        for line, headers in messages:
            self._sent.append(await self._link.stream.publish_async(self._subject, line, headers=headers))
            if len(self._sent) >= UNANSWERED_MAX:
                await self._answered(UNANSWERED_MAX // 2)

    async def _answered(self, left: int) -> None:
        """Wait until the stream has all but `left` messages."""
        async with asyncio.timeout(ANSWER_S):
            while len(self._sent) > left:
                await self._sent[0]
                self._sent.popleft()

    def flush(self) -> None:
        """Wait until the stream has all."""
        assert self._link is not None
        self._link.run(self._answered(0))

    def close(self) -> None:
        """Leave."""
        if self._link is not None:
            self._link.close()
