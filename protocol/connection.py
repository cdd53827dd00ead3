"""One end of a connection, either role: bytes in, messages out; messages in, buffers out. No socket, no clock.

A driver does this:

    view = connection.get_buffer()                       # read into it, then
    for event in connection.buffer_updated(count): ...   # handle what was said; RemoteProtocolError: say so and close
    for buffer in connection.send(message): ...          # write them, in order
    connection.receive_eof()                             # the peer has closed its side

Events are messages, except that the `Row` messages of one read come as one `RowsChunk` a channel. Time limits are the driver's:
`awaiting_hello`, `partial_bytes` and `frames_received` say what it should be impatient about.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from millstream.protocol import limits
from millstream.protocol.codec import FORMS, Encoder, decode, unpack
from millstream.protocol.dialogue import Breach, Channel, Dialogue
from millstream.protocol.errors import LocalProtocolError, RemoteProtocolError
from millstream.protocol.flow import Window
from millstream.protocol.framing import ReceiveBuffer, build_frame, prefix
from millstream.protocol.messages import KIND_OF, BytesLike, Failure, Message, Row, Welcome
from millstream.protocol.states import TRANSITIONS, Role, State, word_of
from millstream.protocol.version import ANSWERS_HAVE_CREDIT_SINCE, PRODUCERS_SINCE, VERSION, in_words_of


class RowsChunk:
    """The rows of one read on one channel: `values[i]` came with number `first + i`. `frame_bytes` is their length on the wire."""

    __slots__ = ("channel", "first", "frame_bytes", "values")

    def __init__(self, channel: int, first: int) -> None:
        self.channel = channel
        self.first = first
        self.frame_bytes = 0
        self.values: list[list[Any]] = []

    @property
    def through(self) -> int:
        """The number of the last row."""
        return self.first + len(self.values) - 1

    def __repr__(self) -> str:
        return f"RowsChunk(channel={self.channel}, first={self.first}, rows={len(self.values)})"


Event: TypeAlias = Message | RowsChunk
WITH_PAYLOAD = frozenset(form.message_class for form in FORMS.values() if form.takes_payload)


class Connection:
    """One end. `frame_bytes_max` is what this end accepts once the greeting is over."""

    def __init__(self, role: Role, frame_bytes_max: int = limits.FRAME_BYTES_MAX) -> None:
        if not limits.GREETING_FRAME_BYTES_MAX <= frame_bytes_max <= limits.FRAME_BYTES_CEILING:
            raise ValueError(f"frame_bytes_max must be {limits.GREETING_FRAME_BYTES_MAX} to {limits.FRAME_BYTES_CEILING}")
        self.role = role
        self._set_state(State.START)
        self.version: int | None = None  # what both speak, once the greeting is over
        self.frames_received = 0
        self.last_frame_bytes = 0  # length on the wire of the message given last
        self._short_bytes = 0  # of the frame whose fields `_take_short_rows` gave last
        self._frame_bytes_max = frame_bytes_max
        self._nested_bytes_max: int | None = None
        self._peer_frame_bytes_max = limits.GREETING_FRAME_BYTES_MAX
        self._dialogue = Dialogue()
        self._encoder = Encoder()
        self._buffer = ReceiveBuffer()

    # --- what a driver asks ---

    @property
    def awaiting_hello(self) -> bool:
        """Whether the greeting is not over yet."""
        return self.state in (State.START, State.GREETING)

    @property
    def partial_bytes(self) -> int:
        """Bytes of a frame that has begun and is not whole; 0 between frames."""
        return self._buffer.waiting_bytes

    @property
    def allocated_bytes(self) -> int:
        """Memory held for receiving."""
        return self._buffer.allocated_bytes

    @property
    def frame_bytes_max(self) -> int:
        """The largest frame that this end accepts once the greeting is over."""
        return self._frame_bytes_max

    @property
    def frame_memory_bytes(self) -> int:
        """Memory given to a large frame that has begun and is not whole; 0 when there is none."""
        return self._buffer.frame_memory_bytes

    @property
    def open_requests(self) -> dict[int, Message]:
        """Requests not yet answered, by number."""
        return self._dialogue.requests

    @property
    def open_channels(self) -> list[int]:
        """Numbers of the open channels."""
        return list(self._dialogue.channels)

    def channel_window(self, channel: int) -> Window | None:
        """Return what may still be sent on a channel, None if it is not open."""
        found = self._dialogue.channels.get(channel)
        return None if found is None else found.window

    def subscription_window(self, subscription: int) -> Window | None:
        """Return what may still be sent to a subscription, None if it is not open."""
        return self._dialogue.subscriptions.get(subscription)

    @property
    def may_answer(self) -> bool:
        """Whether an answer that carries a table may be sent now."""
        answers = self._dialogue.answers
        return answers is None or answers.bytes > 0

    def next_number(self, channel: int) -> int:
        """Return the number of the next rows on a channel. KeyError if it is not open."""
        return self._dialogue.channels[channel].number + 1

    def accept_no_rows(self, frame_bytes_max: int) -> None:
        """Expect a peer that sends no rows, so that its frames are small: a server does not know before the greeting who its peer is.

        Once the greeting is over frames may have `frame_bytes_max`, and the lists and maps in one `limits.NESTED_BYTES_MAX`. Raises
        ValueError unless `frame_bytes_max` lies between what is accepted in the greeting and what this end was made for.
        """
        if not limits.GREETING_FRAME_BYTES_MAX <= frame_bytes_max <= self._frame_bytes_max:
            raise ValueError(f"frame_bytes_max must be {limits.GREETING_FRAME_BYTES_MAX} to {self._frame_bytes_max}")
        self._frame_bytes_max = frame_bytes_max
        self._nested_bytes_max = limits.NESTED_BYTES_MAX

    def discard_received(self) -> None:
        """Let go of what has been read and not been given as events: the connection is about to be closed."""
        self._buffer.discard()

    # --- sending ---

    def send(self, message: Message) -> list[BytesLike]:
        """Return the buffers to write for `message`. LocalProtocolError, with nothing changed, if it is not allowed now."""
        kind = KIND_OF[type(message)]
        next_state = self._may_say.get(kind if type(message) is not Failure else word_of(kind, message))
        if next_state is None:
            raise LocalProtocolError(f"the {self.role.value} may not say {kind} in state {self.state.value}")
        if type(message) is Row:
            return self._send_row(message)
        if self.version is not None and self.version < VERSION:
            message = in_words_of(self.version, message)
        header = self._encoder.encode(message)
        payload = message.payload if type(message) in WITH_PAYLOAD else None  # type: ignore[union-attr]
        buffers, length = build_frame(header, payload, self._peer_frame_bytes_max)
        try:
            self._dialogue.apply(message, length, heard=False)
        except Breach as breach:
            raise LocalProtocolError(breach.message, breach.code) from None
        if next_state is not self.state or type(message) is Welcome:
            self._enter(next_state, message, said=True)
        return buffers

    def _send_row(self, row: Row) -> list[BytesLike]:
        """The short way for row frames: the same rules, fewer steps."""
        header = self._encoder.encode(row)
        length = len(header) + limits.PREFIX_BYTES
        if length - 4 > self._peer_frame_bytes_max or length > limits.HEADER_BYTES_MAX:
            build_frame(header, None, min(self._peer_frame_bytes_max, limits.HEADER_BYTES_MAX))  # says what is wrong
        try:
            channel = self._dialogue.channel_for_rows(row.channel, heard=False)
            if channel is not None:
                channel.take_row(row.number, length)
        except Breach as breach:
            raise LocalProtocolError(breach.message, breach.code) from None
        return [prefix(length, len(header)) + header]

    def _set_state(self, state: State) -> None:
        self.state = state
        self._may_say = TRANSITIONS[state, self.role]
        self._may_hear = TRANSITIONS[state, self.role.peer]

    def _enter(self, state: State, message: Message, *, said: bool) -> None:
        if state is not self.state:
            self._set_state(state)
        if type(message) is Welcome:
            self.version = message.version
            self._dialogue.has_producers = message.version >= PRODUCERS_SINCE
            if message.version >= ANSWERS_HAVE_CREDIT_SINCE:
                self._dialogue.answers = Window(0, limits.ANSWER_CREDIT_BYTES)
            self._buffer.frame_bytes_max = self._frame_bytes_max
            self._peer_frame_bytes_max = limits.FRAME_BYTES_MAX if said else _announced_limit(message)

    # --- receiving ---

    def get_buffer(self) -> memoryview:
        """Return the memory the next read should fill (as `asyncio.BufferedProtocol.get_buffer`)."""
        return self._buffer.get_buffer()

    def buffer_updated(self, count: int) -> Iterator[Event]:
        """Note that `count` bytes were read; return an iterator over what they say, which must be used up.

        It raises RemoteProtocolError at the place where the peer broke the rules, after all that was said before.
        """
        self._buffer.buffer_updated(count)
        return self._events()

    def receive_data(self, data: BytesLike) -> Iterator[Event]:
        """Like `get_buffer` and `buffer_updated` for bytes that are there already; copies them once."""
        rest = memoryview(data).cast("B")
        while len(rest):
            view = self.get_buffer()
            count = min(len(view), len(rest))
            view[:count] = rest[:count]
            rest = rest[count:]
            yield from self.buffer_updated(count)

    def receive_eof(self) -> None:
        """Note that the peer sends no more. RemoteProtocolError if that cuts a frame in two."""
        if self.partial_bytes and self.state is not State.CLOSED:
            raise RemoteProtocolError(f"the peer closed the connection after {self.partial_bytes} bytes of a frame")

    def _events(self) -> Iterator[Event]:
        chunks: dict[int, RowsChunk] = {}
        try:
            while self.state is not State.CLOSED and (said := self._next_but_rows(chunks)) is not None:
                if chunks:
                    yield from chunks.values()
                    chunks = {}
                message = self._heard(*said)
                if message is not None:
                    self.last_frame_bytes = said[2]
                    yield message
        except (Breach, RemoteProtocolError) as error:
            yield from chunks.values()
            raise error if isinstance(error, RemoteProtocolError) else RemoteProtocolError(error.message, error.code) from None
        yield from chunks.values()

    def _next_but_rows(self, chunks: dict[int, RowsChunk]) -> tuple[dict[str, Any], memoryview | None, int] | None:
        """Take row frames into `chunks`; return fields, payload and length of the first other frame, None when there is no whole one."""
        while True:
            fields = self._take_short_rows(chunks)
            if fields is not None:
                return fields, None, self._short_bytes
            frame = self._buffer.next_frame()
            if frame is None:
                return None
            header, payload, length = frame
            self.frames_received += 1
            fields = unpack(header, self._nested_bytes_max)
            if payload is not None or fields.get("kind") != "row":
                return fields, payload, length
            self._take_row(fields, length, chunks)

    def _take_short_rows(self, chunks: dict[int, RowsChunk]) -> dict[str, Any] | None:
        """Take row frames while they are short; return the fields of the first other frame that is, its length as `_short_bytes`.

        A row that simply follows the one before it on its channel, as most do that were sent together, takes no call of ours.
        """
        chunk: RowsChunk | None = None
        channel: Channel | None = None
        for header in self._buffer.short_headers():
            self.frames_received += 1
            length = len(header) + limits.PREFIX_BYTES
            fields = unpack(header)
            if fields.get("kind") != "row":
                self._short_bytes = length
                return fields
            if chunk is not None and len(fields) == 4 and "channel" in fields and "number" in fields and "values" in fields:
                place, number, values = fields["channel"], fields["number"], fields["values"]
                assert channel is not None
                window = channel.window
                is_next = number == channel.number + 1 and place == chunk.channel and type(number) is type(place) is int
                if is_next and type(values) is list and window.rows > 0 and window.bytes > 0:
                    channel.number = number
                    window.rows -= 1
                    window.bytes -= length
                    chunk.values.append(values)
                    chunk.frame_bytes += length
                    continue
            chunk = self._take_row(fields, length, chunks)
            channel = None if chunk is None else self._dialogue.channels[chunk.channel]
        return None

    def _heard(self, fields: dict[str, Any], payload: memoryview | None, frame_bytes: int) -> Message | None:
        message = decode(fields, payload)
        kind = KIND_OF[type(message)]
        next_state = self._may_hear.get(word_of(kind, message))
        if next_state is None:
            raise RemoteProtocolError(f"the {self.role.peer.value} may not say {kind} in state {self.state.value}")
        if not self._dialogue.apply(message, frame_bytes, heard=True):
            return None
        self._enter(next_state, message, said=False)
        return message

    def _take_row(self, fields: dict[str, Any], frame_bytes: int, chunks: dict[int, RowsChunk]) -> RowsChunk | None:
        """The short way for row frames: the same rules as `_heard`, without a message object. Returns the chunk that has the row."""
        channel_number, number, values = fields.get("channel"), fields.get("number"), fields.get("values")
        if type(values) is not list or type(number) is not int or type(channel_number) is not int or len(fields) != 4:
            decode(fields, None)  # says what is wrong
            raise AssertionError("a row frame that is wrong was decoded")
        if "row" not in self._may_hear:
            raise RemoteProtocolError(f"the {self.role.peer.value} may not say row in state {self.state.value}")
        channel = self._dialogue.channel_for_rows(channel_number, heard=True)
        if channel is None:
            return None
        channel.take_row(number, frame_bytes)
        chunk = chunks.get(channel_number)
        if chunk is None:
            chunk = chunks[channel_number] = RowsChunk(channel_number, number)
        chunk.values.append(values)
        chunk.frame_bytes += frame_bytes
        return chunk


def _announced_limit(welcome: Message) -> int:
    announced = welcome.limits.get("frame_bytes_max") if isinstance(welcome, Welcome) else None
    if type(announced) is int and limits.GREETING_FRAME_BYTES_MAX <= announced <= limits.FRAME_BYTES_CEILING:
        return announced
    return limits.FRAME_BYTES_MAX
