"""What is open on a connection (requests, channels, subscriptions) and whether a message fits it.

Like `states.py` this is written once for both ends: `apply` is called for each message said and each heard, so both keep
the same books, and a broken rule is a `Breach`, which `connection.py` turns into our error or the peer's.

Two ends learn of things at different times. Where the server may close a channel or end a subscription while frames for it are
under way, those frames are no breach when they are heard: `apply` answers False, "of no effect".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.protocol import limits
from millstream.protocol.flow import Window
from millstream.protocol.messages import (
    KIND_OF,
    Ack,
    CancelRequest,
    ChannelClosed,
    ChannelOpened,
    ChannelSchema,
    CloseChannel,
    Credit,
    End,
    Failure,
    Finish,
    Gap,
    Message,
    OpenChannel,
    Reply,
    Result,
    Row,
    Rows,
    Statement,
    Submit,
    Subscribe,
    Subscribed,
    Train,
    Unsubscribe,
)
from millstream.protocol.states import ANSWERS


def carries_table(message: Message) -> bool:
    """Whether a message is an answer that carries rows, so that it needs credit."""
    return type(message) is Reply and (message.payload is not None or bool(message.values))


class Breach(Exception):
    """A rule was broken; `code` is one of docs/errors.md."""

    def __init__(self, message: str, code: str = "protocol") -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class Channel:
    """One open channel: what may still be sent, the last number sent and acked, whether an Arrow schema was given.

    On a producer's channel `sequence` is the last sequence number sent, at first the `last` of the server; None on others.
    """

    __slots__ = ("acked", "closing", "has_begun", "has_schema", "number", "sequence", "window")

    def __init__(self, window: Window, sequence: int | None = None) -> None:
        self.window = window
        self.sequence = sequence
        self.has_begun = False
        self.number = 0
        self.acked = 0
        self.has_schema = False
        self.closing = False

    def take(self, number: int, rows: int, frame_bytes: int) -> None:
        """Note a frame of rows. Breach if it is out of order or over the credit."""
        if number != self.number + 1:
            raise Breach(f"number {number} follows {self.number}; numbers of a channel rise by one")
        window = self.window
        if window.bytes <= 0 or (window.rows <= 0 and rows):
            raise Breach(f"number {number} was sent without credit ({window})", "flow")
        self.number = number
        window.rows -= rows
        window.bytes -= frame_bytes

    def take_row(self, number: int, frame_bytes: int) -> None:
        """Note a frame of one row. Breach also on a producer's channel."""
        if self.sequence is not None:
            raise Breach("a row without a sequence on a channel of a producer")
        self.take(number, 1, frame_bytes)

    def check_sequence(self, sequence: int | None) -> None:
        """Check a sequence number that has been given, or not. Breach if it is not the next one, or the channel no producer's."""
        if self.sequence is None:
            if sequence is not None:
                raise Breach(f"sequence {sequence} on a channel that has no producer")
            return
        if sequence is None:
            raise Breach("rows without a sequence on a channel of a producer")
        first = 1 if not self.has_begun else self.sequence + 1
        if not first <= sequence <= self.sequence + 1:
            raise Breach(f"sequence {sequence} follows {self.sequence}; sequence numbers of a producer rise by one")


class Dialogue:
    """The books of one connection."""

    def __init__(self, requests_max: int = limits.REQUESTS_MAX) -> None:
        self.requests_max = requests_max
        self.requests: dict[int, Message] = {}
        self.channels: dict[int, Channel] = {}
        self.subscriptions: dict[int, Window] = {}
        self.has_producers = False  # version 2
        self.answers: Window | None = None  # what may still be sent in answers that carry a table; None: no bound (version 1)
        self._last_request = 0
        self._last_channel = 0
        self._last_subscription = 0

    def apply(self, message: Message, frame_bytes: int, *, heard: bool) -> bool:
        """Enter `message` into the books. Returns False if it is about something that has meanwhile been closed.

        `heard` says that the peer sent it, `frame_bytes` is its length on the wire. Breach if it does not fit.
        """
        rule = _RULES.get(type(message))
        if rule is None:
            return True
        return rule(self, message, frame_bytes, heard)

    def _request(self, message: Any, _bytes: int, _heard: bool) -> bool:
        number = message.request
        if number <= self._last_request:
            raise Breach(f"request {number} follows {self._last_request}; request numbers rise")
        if len(self.requests) >= self.requests_max:
            raise Breach(f"more than {self.requests_max} requests are open", "limit")
        if type(message) is Subscribe and message.format not in ("arrow", "msgpack"):
            raise Breach(f"subscribe: format must be arrow or msgpack, not {message.format!r:.80}")
        if type(message) is OpenChannel and message.producer is not None and not self.has_producers:
            raise Breach("open_channel: version 1 has no producers")
        if type(message) is Unsubscribe and not 0 < message.subscription <= self._last_subscription:
            raise Breach(f"there was never a subscription {message.subscription}")
        self._last_request = number
        self.requests[number] = message
        return True

    def _answer(self, message: Any, frame_bytes: int, _heard: bool) -> bool:
        if message.request is None:
            return True
        request = self.requests.get(message.request)
        if request is None:
            raise Breach(f"{KIND_OF[type(message)]}: no request {message.request} is open")
        if type(message) not in (ANSWERS[type(request)], Failure):
            raise Breach(f"{KIND_OF[type(message)]} is no answer to {KIND_OF[type(request)]} (request {message.request})")
        if self.answers is not None and carries_table(message):
            if self.answers.bytes <= 0:
                raise Breach(f"the answer to request {message.request} was sent without credit ({self.answers})", "flow")
            self.answers.bytes -= frame_bytes
        if type(message) is ChannelOpened and type(request) is OpenChannel:
            self._open_channel(message, request)
        elif type(message) is Subscribed and type(request) is Subscribe:
            self._open_subscription(message, request)
        del self.requests[message.request]
        return True

    def _open_channel(self, message: ChannelOpened, request: OpenChannel) -> None:
        if (message.last is None) is not (request.producer is None):
            raise Breach("channel_opened: last is told of producers, and always")
        if message.channel <= self._last_channel:
            raise Breach(f"channel {message.channel} follows {self._last_channel}; channel numbers rise")
        if len(self.channels) >= limits.CHANNELS_MAX:
            raise Breach(f"more than {limits.CHANNELS_MAX} channels are open", "limit")
        self._last_channel = message.channel
        self.channels[message.channel] = Channel(Window(message.rows_credit, message.bytes_credit), message.last)

    def _open_subscription(self, message: Subscribed, request: Subscribe) -> None:
        if message.subscription <= self._last_subscription:
            raise Breach(f"subscription {message.subscription} follows {self._last_subscription}; subscription numbers rise")
        if len(self.subscriptions) >= limits.SUBSCRIPTIONS_MAX:
            raise Breach(f"more than {limits.SUBSCRIPTIONS_MAX} subscriptions are open", "limit")
        self._last_subscription = message.subscription
        self.subscriptions[message.subscription] = Window(request.rows_credit, request.bytes_credit)

    def channel_for_rows(self, number: int, heard: bool) -> Channel | None:
        """Return the open channel to send rows on, None if it was closed while they were under way; Breach otherwise."""
        channel = self.channels.get(number)
        if channel is not None and not channel.closing:
            return channel
        if channel is None:
            if heard and 0 < number <= self._last_channel:
                return None
            raise Breach(f"channel {number} is not open")
        raise Breach(f"channel {number} is being closed")

    def _channel_schema(self, message: ChannelSchema, _bytes: int, heard: bool) -> bool:
        channel = self.channel_for_rows(message.channel, heard)
        if message.payload is None:
            raise Breach("channel_schema: needs a payload")
        if channel is not None:
            channel.has_schema = True
        return channel is not None

    def _train(self, message: Train, frame_bytes: int, heard: bool) -> bool:
        channel = self.channel_for_rows(message.channel, heard)
        if channel is None:
            return False
        if not channel.has_schema:
            raise Breach(f"channel {message.channel}: a train before its channel_schema")
        if message.payload is None:
            raise Breach("train: needs a payload")
        return self._take(channel, message, message.rows, frame_bytes)

    def _rows(self, message: Rows, frame_bytes: int, heard: bool) -> bool:
        channel = self.channel_for_rows(message.channel, heard)
        return channel is not None and self._take(channel, message, len(message.values), frame_bytes)

    @staticmethod
    def _take(channel: Channel, message: Train | Rows, rows: int, frame_bytes: int) -> bool:
        sequence = message.sequence
        if sequence is not None or channel.sequence is not None:
            channel.check_sequence(sequence)
        channel.take(message.number, rows, frame_bytes)
        if sequence is not None:
            channel.sequence, channel.has_begun = sequence, True
        return True

    def _row(self, message: Row, frame_bytes: int, heard: bool) -> bool:
        channel = self.channel_for_rows(message.channel, heard)
        if channel is None:
            return False
        channel.take_row(message.number, frame_bytes)
        return True

    def _close_channel(self, message: CloseChannel, _bytes: int, heard: bool) -> bool:
        channel = self.channel_for_rows(message.channel, heard)
        if channel is not None:
            channel.closing = True
        return channel is not None

    def _channel_closed(self, message: ChannelClosed, _bytes: int, _heard: bool) -> bool:
        if self.channels.pop(message.channel, None) is None:
            raise Breach(f"channel {message.channel} is not open")
        return True

    def _ack(self, message: Ack, _bytes: int, _heard: bool) -> bool:
        channel = self.channels.get(message.channel)
        if channel is None:
            raise Breach(f"channel {message.channel} is not open")
        if not channel.acked < message.through <= channel.number:
            raise Breach(f"ack through {message.through} is not between {channel.acked} and {channel.number}")
        channel.acked = message.through
        return True

    def _credit(self, message: Credit, _bytes: int, heard: bool) -> bool:
        if message.channel is not None:
            channel = self.channels.get(message.channel)
            if channel is None:
                raise Breach(f"channel {message.channel} is not open")
            window: Window | None = channel.window
        elif message.subscription is None:
            window = self.answers
            if window is None:
                raise Breach("credit: needs either channel or subscription")
        else:
            number = message.subscription
            window = self.subscriptions.get(number)
            if window is None:
                if heard and 0 < number <= self._last_subscription:
                    return False
                raise Breach(f"there is no subscription {number}")
        if window is not None and not window.grant(message.rows, message.bytes):
            raise Breach("credit: the sum is over 2^63 - 1", "limit")
        return True

    def _result(self, message: Result, frame_bytes: int, _heard: bool) -> bool:
        window = self.subscriptions.get(message.subscription) or self._subscription(message.subscription)
        rows = message.rows
        if window.bytes <= 0 or (window.rows <= 0 and rows):
            raise Breach(f"a result for subscription {message.subscription} was sent without credit ({window})", "flow")
        window.rows -= rows
        window.bytes -= frame_bytes
        return True

    def _gap(self, message: Gap, _bytes: int, _heard: bool) -> bool:
        self._subscription(message.subscription)
        return True

    def _end(self, message: End, _bytes: int, _heard: bool) -> bool:
        self._subscription(message.subscription)
        del self.subscriptions[message.subscription]
        return True

    def _subscription(self, number: int) -> Window:
        window = self.subscriptions.get(number)
        if window is None:
            raise Breach(f"there is no subscription {number}")
        return window


_Rule = Callable[[Dialogue, Any, int, bool], bool]
_RULES: dict[type[Message], _Rule] = {
    **dict.fromkeys((Statement, Submit, OpenChannel, Finish, Subscribe, Unsubscribe, CancelRequest), Dialogue._request),
    **dict.fromkeys((Reply, Failure, ChannelOpened, Subscribed), Dialogue._answer),
    ChannelSchema: Dialogue._channel_schema,
    Train: Dialogue._train,
    Rows: Dialogue._rows,
    Row: Dialogue._row,
    CloseChannel: Dialogue._close_channel,
    ChannelClosed: Dialogue._channel_closed,
    Ack: Dialogue._ack,
    Credit: Dialogue._credit,
    Result: Dialogue._result,
    Gap: Dialogue._gap,
    End: Dialogue._end,
}
