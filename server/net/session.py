"""One connected peer: its protocol connection, role, channels, subscriptions, and the queries it owns.

What is about rows is done at once, in the order of the bytes; requests that take time (statements) queue up and are answered one after
the other by a task that lives only while there are any, and while the peer reads its answers. What a peer may make the server hold or do is
bounded in `inflow.py` (whether it is read from), `pacing.py` (how much it may say) and `peer_memory.py` (what all may hold).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from millstream.protocol.connection import Connection, RowsChunk
from millstream.protocol.errors import LocalProtocolError, RemoteProtocolError
from millstream.protocol.messages import BytesLike, Failure, Goodbye, Ping, Rows, Submit, Train
from millstream.protocol.states import Role as Side
from millstream.protocol.states import State
from millstream.server.errors import GivenUp, to_wire
from millstream.server.host.intake import StreamIntake
from millstream.server.net.inflow import Hold, Inflow
from millstream.server.net.limits import REFUSED_ROWS_A_MESSAGE, REQUEST_BYTES_WAITING_MAX
from millstream.server.net.loop import TurnQueue
from millstream.server.net.pacing import MessageAllowance, Pacer
from millstream.server.net.peer_memory import PeerMemory
from millstream.server.net.publishing import PublishingChannel, PublishingServices
from millstream.server.net.security import AccessRole
from millstream.server.net.turn import waiting_bytes_of
from millstream.server.results.feeds import Feeds, QueryFeed
from millstream.server.results.outcome import Outcome
from millstream.server.results.subscriptions import Subscription

NS_PER_S = 1_000_000_000
GATHERED_BYTES_MAX = 32 * 1024  # of small messages that wait to be written together
BYTES_PER_FRAME_LIMIT = 1024 * 1024  # a frame may take the time limit once more for each of these that have come
WITH_CREDIT = frozenset((RowsChunk, Train, Rows))  # bounded by the channel's credit; all other messages by the peer's allowance


class Handlers(Protocol):
    """What is done with each message (`handlers.py`)."""

    def dispatch(self, session: Session, event: Any) -> None:
        """Handle an event of the connection now, or put it in line."""
        ...

    async def answer(self, session: Session, message: Any) -> None:
        """Answer a request."""
        ...


class SessionServices(PublishingServices, Protocol):
    """What a session, and the handlers of its messages, need of the server."""

    handlers: Handlers
    log: Any
    program: str
    server_id: str
    feeds: Feeds
    pacer: Pacer
    peer_memory: PeerMemory
    turns: TurnQueue

    def is_full(self, role: AccessRole) -> bool:
        """Whether there are as many connections as the settings allow to a role."""
        ...

    def next_connection_number(self) -> int:
        """Return a number for a connection."""
        ...

    def session_began(self, session: Session) -> None:
        """Note a new connection."""
        ...

    def session_greeted(self, session: Session) -> None:
        """Note that a connection has been let in."""
        ...

    def session_ended(self, session: Session, error: Exception | None) -> None:
        """Forget a connection and drop the queries that it owned."""
        ...

    def close_later(self, session: Session) -> None:
        """Cut a connection that was told to go, if it does not go by itself."""
        ...

    async def execute(self, session: Session, text: str) -> Outcome:
        """Execute one statement for a session. Raises the errors of the engine, the scheduler and the server."""
        ...

    async def submit(self, session: Session, message: Submit) -> Outcome:
        """Start a query for a session. Raises as `execute` does."""
        ...

    def feed_of(self, name: str) -> QueryFeed:
        """Return the results of a query; UnknownName when there is none such."""
        ...

    def intake_of(self, name: str) -> StreamIntake:
        """Return where rows of a stream enter; UnknownName when there is none such."""
        ...

    async def finish_stream(self, name: str) -> None:
        """End a stream and wait until every running query that reads it has seen the end; UnknownName when there is none such."""
        ...


class Running:
    """What is done aside for a request: its outcome goes to `done`, on the loop, unless it was given up before."""

    def __init__(self, done: asyncio.Future[Any], tell: Callable[[float], None] = lambda _: None) -> None:
        self._done = done
        self._is_given_up = False
        self._tell = tell

    def is_given_up(self) -> bool:
        """Say whether nobody waits any more; from any thread."""
        return self._is_given_up

    def give_up(self) -> None:
        """Wait no more: whoever waited gets GivenUp at once, and what runs ends as soon as it asks."""
        self._is_given_up = True
        self.fail(GivenUp("the request was cancelled while it ran"))

    def tell(self, fraction: float) -> None:
        """Say what part of the work is done, if somebody waits; on the loop."""
        if not self._done.done():
            self._tell(fraction)

    def settle(self, outcome: Any) -> None:
        """Give the outcome; what comes too late is closed if it can be."""
        if not self._done.done():
            self._done.set_result(outcome)
        elif hasattr(outcome, "close"):
            outcome.close()

    def fail(self, error: Exception) -> None:
        """Give what went wrong."""
        if not self._done.done():
            self._done.set_exception(error)


class Session:
    """One peer. `role` is None until hello; `queries` are the names of the temporary queries it owns."""

    def __init__(self, application: SessionServices, transport: asyncio.Transport) -> None:
        self.application = application
        self.transport = transport
        self.connection = Connection(Side.SERVER, application.config.frame_bytes_max)
        self.number = application.next_connection_number()
        self.log = application.log.bind(connection=self.number)
        self.role: AccessRole | None = None
        self.client_id: str | None = None
        self.channels: dict[int, PublishingChannel] = {}
        self.subscriptions: dict[int, Subscription] = {}
        self.queries: set[str] = set()
        self.requests: deque[Any] = deque()
        self.writing_paused = False
        self.closed = False
        self._unsent: list[BytesLike] = []
        self._unsent_bytes = 0
        self.began_ns = self.last_heard_ns = application.now_ns()
        self.frame_began_ns: int | None = None
        self.pinged_ns: int | None = None
        self._frames = 0
        self.rows_refused = 0
        """Of its rows, how many were refused and are not yet counted as messages."""
        self.running: Running | None = None
        """What is done aside for the request that is being answered."""
        self.answered: int | None = None
        """The number of that request."""
        self._answering: asyncio.Task[None] | None = None
        self._drained: asyncio.Future[None] | None = None  # what answering waits for while the peer does not read
        self._request_bytes: dict[int, int] = {}  # of the frames of requests that are not answered
        self._requested_bytes = 0  # their sum
        self._unread_bytes = 0  # unsent, when last looked at
        self._inflow = Inflow(transport)
        self._allowance = MessageAllowance(application.pacer, self.began_ns)
        self._last_number = 0
        self.waiting_bytes = waiting_bytes_of(transport)

    def next_number(self) -> int:
        """Return a number for a channel or subscription, never given before on this connection."""
        self._last_number += 1
        return self._last_number

    # --- reading ---

    def bytes_read(self, count: int) -> None:
        """Handle everything that the last read completed, then settle what it published."""
        now_ns = self.application.now_ns()
        self.last_heard_ns = now_ns
        self.pinged_ns = None
        with self.application.outbox as outbox:
            outbox.reading = self
            self._handle(self.connection.buffer_updated(count), now_ns)
            self.application.bridge.drain()  # what was made at once and did not leave early

    def _read_on(self, rest: Iterator[Any]) -> None:
        """Handle what was left of a read."""
        with self.application.outbox as outbox:
            outbox.reading = self
            self._handle(rest, self.application.now_ns())
            self.application.bridge.drain()

    def go_on(self, messages: int) -> None:
        """Have a turn: handle so many messages more."""
        if self._allowance.add(self, messages):
            self._inflow.let_go(Hold.PACE, self._read_on)

    @property
    def is_held_back(self) -> bool:
        """Whether the peer is not read from for now."""
        return self._inflow.is_held

    def _handle(self, events: Iterator[Any], now_ns: int) -> None:
        turn = self.application.turn
        try:
            for event in events:
                if turn.waiting is not None:
                    turn.before(event, self)
                if self.closed:
                    return
                self.application.handlers.dispatch(self, event)
                if type(event) not in WITH_CREDIT:
                    messages = 1
                elif self.rows_refused < REFUSED_ROWS_A_MESSAGE:
                    continue
                else:
                    messages, self.rows_refused = divmod(self.rows_refused, REFUSED_ROWS_A_MESSAGE)
                if not self._allowance.spend(self, now_ns, messages):
                    self._inflow.keep(events)
                    break
            if turn.waiting is not None:
                turn.read(self)
            self._note_partial_frame(now_ns)
            for channel in tuple(self.channels.values()):
                channel.settle()
        except RemoteProtocolError as error:
            turn.take(self)
            self.break_off(error.code, error.message)
        except Exception as error:
            self.fail(error)

    def report(self, error: Exception) -> None:
        """Write down a fault of ours that ends a subscription."""
        self.log.error("result_not_sent", exc_info=error)

    def fail(self, error: Exception) -> None:
        """End the connection after a fault of ours: what became of rows that were taken in, or what the peer was told, is not known."""
        self.log.error("connection_failed", exc_info=error)
        self.break_off("internal", to_wire(error).message)

    def _note_partial_frame(self, now_ns: int) -> None:
        if self.connection.partial_bytes == 0:
            self.frame_began_ns = None
            return
        if self.frame_began_ns is None or self._frames != self.connection.frames_received:
            self.frame_began_ns = now_ns
        self._frames = self.connection.frames_received
        if self.connection.frame_memory_bytes:
            self.note_memory()

    def note_memory(self) -> None:
        """Tell the server how much this peer makes it hold."""
        unsent = self._unsent_bytes + (0 if self.transport.is_closing() else self.transport.get_write_buffer_size())
        self.application.peer_memory.note(self, self.connection.frame_memory_bytes + self._requested_bytes + unsent)

    def evict(self, held_bytes: int, bytes_max: int) -> None:
        """Close, so that others have room: this peer holds more than its share and has done so longest."""
        message = (
            f"half of a frame, requests that wait and answers not read hold {held_bytes} bytes for this connection, more than its share: "
            f"all together may hold {bytes_max} (connections_bytes_max)"
        )
        self.break_off("overloaded", message)
        self.connection.discard_received()
        self.requests.clear()
        if self._inflow.waits_for_the_peer:
            self.transport.abort()  # what is unsent would be kept until it is read

    def queue_request(self, message: Any) -> None:
        """Put a request in line; a peer with too much in line is not read from."""
        self.requests.append(message)
        self._request_bytes[message.request] = self.connection.last_frame_bytes
        self._requested_bytes += self.connection.last_frame_bytes
        if self._requested_bytes > REQUEST_BYTES_WAITING_MAX:
            self._inflow.hold(Hold.UNANSWERED)
            self.note_memory()
        if self._answering is None:
            self._answering = self.application.loop.create_task(self._answer_requests())

    async def _answer_requests(self) -> None:
        try:
            while self.requests and not self.closed:
                if self.writing_paused or not self.connection.may_answer:
                    self._drained = self.application.loop.create_future()
                    await self._drained
                    continue
                message = self.requests.popleft()
                self.answered = message.request
                try:
                    await self.application.handlers.answer(self, message)
                except Exception as error:
                    self.refuse(message.request, error)
                self._request_is_done(message.request)
        finally:
            self._answering = None

    def _request_is_done(self, number: int) -> None:
        self._requested_bytes -= self._request_bytes.pop(number, 0)
        if 2 * self._requested_bytes <= REQUEST_BYTES_WAITING_MAX:
            self._inflow.let_go(Hold.UNANSWERED, self._read_on)

    def give_up(self) -> bool:
        """Give up what is done aside for the request that is being answered; returns whether there was anything."""
        if self.running is None:
            return False
        self.running.give_up()
        return True

    def withdraw(self, message: Any) -> None:
        """Take a request out of the line."""
        self.requests.remove(message)
        self._request_is_done(message.request)

    # --- writing ---

    def send(self, message: Any) -> None:
        """Send a message; nothing when the connection is gone."""
        if self.closed or self.transport.is_closing():
            return
        buffers = self.connection.send(message)
        outbox = self.application.outbox
        if not self._unsent:
            outbox.add(self)
        self._unsent += buffers
        for buffer in buffers:
            self._unsent_bytes += len(buffer)
        if self._unsent_bytes > GATHERED_BYTES_MAX or not outbox.is_open:
            self.flush()

    def flush(self) -> None:
        """Write what was said since the last time, all at once."""
        buffers, self._unsent, self._unsent_bytes = self._unsent, [], 0
        if buffers and not self.transport.is_closing():
            try:
                self.transport.writelines(buffers)
            except Exception:  # others wait to be written to, after this one
                self.log.exception("connection_failed")
                self.closed = True
                self.transport.abort()
            if self.writing_paused:
                self.note_memory()

    def pause_writing(self) -> None:
        """The peer does not read what it is sent: say no more than must be said, and hear nothing until it does."""
        self.writing_paused = True
        self._inflow.hold(Hold.UNREAD)
        self.application.turn.let_in_of(self)

    def can_send(self, subscription: int, rows: int) -> bool:
        """Whether a result may go now: the client has granted credit and reads its socket."""
        if self.writing_paused or self.closed:
            return False
        window = self.connection.subscription_window(subscription)
        return window is not None and window.allows(rows)

    def in_turn(self, call: Callable[[int], None]) -> None:
        """Make a call with the time (ns) in a later turn of the loop, behind those of others."""
        self.application.turns.add(lambda: call(self.application.now_ns()))

    def resume_writing(self) -> None:
        """Go on answering, sending results and reading."""
        self.writing_paused = False
        self._wake_answering()
        self.note_memory()
        now_ns = self.application.now_ns()
        for subscription in tuple(self.subscriptions.values()):
            subscription.pump(now_ns)
        if not self.writing_paused:
            self._inflow.let_go(Hold.UNREAD, self._read_on)

    def answers_granted(self) -> None:
        """The peer can take more answers."""
        self._wake_answering()

    def _wake_answering(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def refuse(self, request: int | None, error: Exception) -> None:
        """Answer a request with what went wrong; a fault of ours goes to the log with its traceback."""
        told = to_wire(error)
        if told.code == "internal":
            self.log.error("request_failed", exc_info=error)
        if request is None or request in self.connection.open_requests:
            self.send(Failure(told.code, told.message, request, told.hint, told.line, told.column, told.token))

    # --- ending ---

    def replaced(self) -> None:
        """Close: the same client has come back over another connection."""
        self.log.info("replaced", client_id=self.client_id)
        self.break_off("closed", "the same client id subscribed again over another connection")

    def break_off(self, code: str, message: str) -> None:
        """Tell the peer why and close."""
        if self.closed:
            return
        self.log.info("connection_broken_off", code=code, reason=message)
        try:
            self.send(Failure(code, message, fatal=True))
        except LocalProtocolError as error:
            self.log.debug("farewell_impossible", reason=error.message)
        self.flush()
        self._close()

    def say_goodbye(self, reason: str) -> None:
        """Leave politely: what was sent before arrives first."""
        if self.closed:
            return
        if self.connection.state is State.OPEN:
            self.send(Goodbye(reason))
        self.flush()
        self._close()

    def _close(self) -> None:
        """Close once what was sent has left, which may take `FAREWELL_S`."""
        self.closed = True
        self._wake_answering()
        self.transport.close()
        self.application.close_later(self)

    def lost(self, error: Exception | None) -> None:
        """The connection is gone: give back all that it held."""
        self.application.turn.take(self)  # what it sent before is taken in, though nobody hears of it
        self.closed = True
        self.requests.clear()
        self.give_up()
        self._wake_answering()
        self.application.pacer.forget(self)
        self.application.peer_memory.note(self, 0)
        for subscription in tuple(self.subscriptions.values()):
            subscription.forget()
        self.subscriptions.clear()
        for channel in tuple(self.channels.values()):
            channel.close()
        self.channels.clear()
        self.application.session_ended(self, error)

    def is_overdue(self, now_ns: int) -> bool:
        """Break the connection off when the peer has kept us waiting too long, or ask whether it is there. True: it is gone."""
        config = self.application.config
        limit_ns = int(config.frame_s * NS_PER_S)
        self.note_memory()
        if self._inflow.is_held:
            return self._is_stuck(now_ns, int(config.ping_s * NS_PER_S))
        if self.connection.awaiting_hello and now_ns - self.began_ns > limit_ns:
            self.break_off("timeout", f"no complete hello within {config.frame_s:g} s")
            return True
        if self.frame_began_ns is not None:
            allowed_ns = limit_ns * (1 + self.connection.partial_bytes // BYTES_PER_FRAME_LIMIT)
            if now_ns - self.frame_began_ns > allowed_ns:
                self.break_off("timeout", f"a frame was not complete within {config.frame_s:g} s")
                return True
        return self._is_silent(now_ns, int(config.ping_s * NS_PER_S))

    def _is_stuck(self, now_ns: int, limit_ns: int) -> bool:
        """Look after a peer that is not read from: has it left, and if it is to read first, does it?"""
        if self._inflow.has_left():
            self.closed = True
            self.transport.abort()
            return True
        self.frame_began_ns = None  # a frame takes as long as we let it
        unsent = 0 if self.transport.is_closing() else self.transport.get_write_buffer_size()
        if not self._inflow.waits_for_the_peer or unsent != self._unread_bytes:
            self._unread_bytes, self.last_heard_ns = unsent, now_ns
        if now_ns - self.last_heard_ns > 2 * limit_ns:
            self.break_off("timeout", f"nothing of what was sent was read for {2 * limit_ns / NS_PER_S:g} s")
            self.transport.abort()
            return True
        return False

    def _is_silent(self, now_ns: int, limit_ns: int) -> bool:
        if self.connection.state is not State.OPEN:
            return False
        if self.pinged_ns is not None and now_ns - self.pinged_ns > limit_ns:
            self.break_off("timeout", "no answer to a ping")
            return True
        if self.pinged_ns is None and now_ns - self.last_heard_ns > limit_ns:
            self.pinged_ns = now_ns
            self.send(Ping(now_ns // NS_PER_S))
        return False
