"""The socket's side: one TCP connection, driven by the protocol. Requests become futures, everything else goes to its owner.

The owner of a channel or subscription is entered while its answer is being read, before anything that follows it in the same
read, so nothing is missed between the answer and the coroutine that waits for it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Protocol, cast

from millstream.client.errors import MillstreamError, disconnected
from millstream.protocol import limits
from millstream.protocol.connection import Connection, Event, RowsChunk
from millstream.protocol.dialogue import carries_table
from millstream.protocol.errors import LocalProtocolError, RemoteProtocolError
from millstream.protocol.flow import Refill
from millstream.protocol.messages import (
    Ack,
    BytesLike,
    CancelRequest,
    ChannelClosed,
    ChannelOpened,
    CloseChannel,
    Credit,
    End,
    Failure,
    Gap,
    Goodbye,
    Hello,
    Message,
    Notice,
    Ping,
    Pong,
    Result,
    Subscribed,
    Unsubscribe,
    Welcome,
)
from millstream.protocol.states import Role, State
from millstream.protocol.version import ANSWERS_HAVE_CREDIT_SINCE


class Owner(Protocol):
    """Who gets what arrives for a channel or a subscription."""

    def heard(self, message: Message, frame_bytes: int) -> None:
        """Take a message; `frame_bytes` is its length on the wire."""

    def lost(self, error: MillstreamError) -> None:
        """The connection is gone."""


COALESCED_BYTES_MAX = 64 * 1024
CLOSE_SECONDS_MAX = 5.0  # how long the last bytes may take to leave, before they are given up
PROBE_AFTER_S, PROBE_EVERY_S, PROBES_MAX = 30, 10, 3  # a server that has been silent for a minute and answers no probe is gone
OnAnswer = Callable[[Any], None]


class _Request:
    """An open request: the future of its answer, and what to do with the answer while it is being read."""

    __slots__ = ("answer", "on_answer")

    def __init__(self, answer: asyncio.Future[Any], on_answer: OnAnswer | None) -> None:
        self.answer = answer
        self.on_answer = on_answer


class Wire(asyncio.BufferedProtocol):
    """One connection. All methods belong to the event loop's thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._connection = Connection(Role.CLIENT)
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[BytesLike] = []
        self._outgoing_bytes = 0
        self._flush_is_due = False
        self._requests: dict[int, _Request] = {}
        self._next_request = 1
        self._channels: dict[int, Owner] = {}
        self._subscriptions: dict[int, Owner] = {}
        self._welcome: asyncio.Future[Welcome] = self._loop.create_future()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._answers = Refill(1, limits.ANSWER_CREDIT_BYTES)
        self._writable = asyncio.Event()
        self._writable.set()
        self.error: MillstreamError | None = None  # why nothing can be said any more
        self.on_notice: Callable[[str, str], None] | None = None

    # --- what owners and clients use ---

    @property
    def protocol(self) -> Connection:
        """The protocol's books: windows, open channels, limits."""
        return self._connection

    async def greet(self, hello: Hello) -> Welcome:
        """Say hello and wait for the welcome."""
        self.send(hello)
        return await self._welcome

    def send(self, message: Message) -> None:
        """Say one message. MillstreamError if the connection is gone or the message not allowed."""
        if self.error is not None:
            raise self.error
        if self._transport is None:
            raise disconnected("the connection is not open")
        try:
            buffers = self._connection.send(message)
        except LocalProtocolError as error:
            raise MillstreamError.of_protocol(error) from error
        self._outgoing += buffers
        self._outgoing_bytes += sum(map(len, buffers))
        if self._outgoing_bytes >= COALESCED_BYTES_MAX:
            self._flush()
        elif not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Write what was said in this turn of the loop as one: many small messages cost one system call."""
        self._flush_is_due = False
        outgoing, self._outgoing, self._outgoing_bytes = self._outgoing, [], 0
        if outgoing and self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(outgoing)

    async def drain(self) -> None:
        """Wait until the socket takes more."""
        if not self._writable.is_set():
            await self._writable.wait()
        if self.error is not None:
            raise self.error

    async def request(self, build: Callable[[int], Message], on_answer: OnAnswer | None = None) -> Any:
        """Say the request that `build` makes of its number, and return the answer; MillstreamError if it failed.

        `on_answer` is called with a good answer at once, before what comes after it is read. A request whose waiter is
        cancelled is cancelled at the server too.
        """
        number, self._next_request = self._next_request, self._next_request + 1
        answer: asyncio.Future[Any] = self._loop.create_future()
        self.send(build(number))
        self._requests[number] = _Request(answer, on_answer)
        try:
            return await answer
        except asyncio.CancelledError:
            self._give_up(number)
            raise

    def own_channel(self, channel: int, owner: Owner) -> None:
        """Let `owner` have what arrives for a channel."""
        self._channels[channel] = owner

    def own_subscription(self, subscription: int, owner: Owner) -> None:
        """Let `owner` have what arrives for a subscription."""
        self._subscriptions[subscription] = owner

    async def close(self) -> None:
        """Say goodbye, let what was written leave, and wait until the socket is closed."""
        if self.error is None:
            if self._connection.state in (State.OPEN, State.SERVER_LEFT):
                self.send(Goodbye())
            self._fail(MillstreamError("closed", "the connection has been closed"))
        self._flush()
        if self._transport is not None:
            self._transport.close()
            _, late = await asyncio.wait({self._closed}, timeout=CLOSE_SECONDS_MAX)
            if late:
                self._transport.abort()
                await asyncio.shield(self._closed)

    def abort(self) -> None:
        """Close at once, without a word."""
        self._fail(MillstreamError("closed", "the connection has been closed"))
        if self._transport is not None:
            self._transport.abort()

    # --- what asyncio calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass
        keep_alive(transport.get_extra_info("socket"))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory for the next read."""
        return self._connection.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle what was read."""
        try:
            for event in self._connection.buffer_updated(nbytes):
                if self.error is None:
                    self._handle(event)
        except RemoteProtocolError as error:
            self._fail(MillstreamError("protocol", f"the server does not speak the protocol: {error.message}"))
            if self._transport is not None:
                self._transport.abort()

    def eof_received(self) -> bool:
        """Let the transport close."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody who still waits."""
        greeting = self._connection.state in (State.START, State.GREETING)
        if greeting:
            error = MillstreamError(
                "disconnected", "the server closed the connection before its welcome", "if it uses TLS, give --tls-ca (tls=…)"
            )
        else:
            error = disconnected(f"the connection was lost: {exc}" if exc else "the server closed the connection")
        self._fail(error)
        if not self._closed.done():
            self._closed.set_result(None)

    def pause_writing(self) -> None:
        """The socket is full."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The socket takes more."""
        self._writable.set()

    # --- inside ---

    def _handle(self, event: Event) -> None:
        assert not isinstance(event, RowsChunk), "only servers hear row frames"
        match event:
            case Result() | Gap():
                self._subscriptions[event.subscription].heard(event, self._connection.last_frame_bytes)
            case End():
                self._subscriptions.pop(event.subscription).heard(event, self._connection.last_frame_bytes)
            case Ack():
                self._channels[event.channel].heard(event, self._connection.last_frame_bytes)
            case Credit(channel=int(channel)):
                self._channels[channel].heard(event, self._connection.last_frame_bytes)
            case ChannelClosed():
                self._channels.pop(event.channel).heard(event, self._connection.last_frame_bytes)
            case Welcome():
                if not self._welcome.done():
                    self._welcome.set_result(event)
            case Ping():
                self.send(Pong(event.token))
            case Failure(request=None):
                self._fail(MillstreamError.of_failure(event))
            case Failure():
                self._fail_request(event)
            case Goodbye():
                self._fail(MillstreamError("stopping", event.reason or "the server is stopping", "connect again once it is back"))
            case Notice():
                self.notify(event.code, event.message)
            case Pong():
                pass
            case _:
                self._answered(event)

    def notify(self, code: str, message: str) -> None:
        """Tell the user's callback. What it raises is told to the loop, as of any callback, and ends nothing here."""
        if self.on_notice is None:
            return
        try:
            self.on_notice(code, message)
        except Exception as problem:
            asyncio.get_running_loop().call_exception_handler({"message": "the callback of on_notice failed", "exception": problem})

    def _answered(self, answer: Any) -> None:
        if carries_table(answer):
            self._take_answer(self._connection.last_frame_bytes)
        request = self._requests.pop(answer.request)
        if request.answer.cancelled():
            self._let_go(answer)
            return
        if request.on_answer is not None:
            request.on_answer(answer)
        request.answer.set_result(answer)

    def _take_answer(self, frame_bytes: int) -> None:
        """Grant credit for an answer: whoever asked for it has it now."""
        granted = self._answers.done(0, frame_bytes)
        if granted is not None and (self._connection.version or 0) >= ANSWERS_HAVE_CREDIT_SINCE and self._connection.state is State.OPEN:
            self.send(Credit(bytes=granted[1]))

    def _fail_request(self, failure: Failure) -> None:
        assert failure.request is not None
        request = self._requests.pop(failure.request)
        if not request.answer.cancelled():
            request.answer.set_exception(MillstreamError.of_failure(failure))

    def _give_up(self, number: int) -> None:
        """Cancel a request at the server. Nobody waits for the answer."""
        if number not in self._requests or self.error is not None:
            return
        self._send_unwatched(lambda cancel: CancelRequest(cancel, number))

    def _let_go(self, answer: Message) -> None:
        """Undo what a cancelled request brought about."""
        match answer:
            case Subscribed(subscription=subscription):
                self.own_subscription(subscription, _Nobody())
                self._send_unwatched(lambda number: Unsubscribe(number, subscription))
            case ChannelOpened(channel=channel):
                self.own_channel(channel, _Nobody())
                self.send(CloseChannel(channel))
            case _:
                pass

    def _send_unwatched(self, build: Callable[[int], Message]) -> None:
        number, self._next_request = self._next_request, self._next_request + 1
        unwatched: asyncio.Future[Any] = self._loop.create_future()
        unwatched.cancel()
        self.send(build(number))
        self._requests[number] = _Request(unwatched, None)

    def _fail(self, error: MillstreamError) -> None:
        if self.error is not None:
            return
        self.error = error
        self._writable.set()
        if not self._welcome.done():
            self._welcome.set_exception(error)
            self._welcome.exception()  # it may be that nobody asks
        for request in self._requests.values():
            if not request.answer.done():
                request.answer.set_exception(error)
        self._requests.clear()
        for owner in [*self._channels.values(), *self._subscriptions.values()]:
            owner.lost(error)
        self._channels.clear()
        self._subscriptions.clear()


def keep_alive(connected: Any) -> None:
    """Have the system probe a server that is silent for long: a machine that has failed says nothing, and a reader would wait for ever."""
    if connected is None:
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", PROBE_AFTER_S), ("TCP_KEEPINTVL", PROBE_EVERY_S), ("TCP_KEEPCNT", PROBES_MAX)):
        if hasattr(socket, option):  # not on every platform
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


class _Nobody:
    """Takes what comes for something that was given up."""

    def heard(self, message: Message, frame_bytes: int) -> None:
        """Nobody wants it."""

    def lost(self, error: MillstreamError) -> None:
        """Nobody minds."""
