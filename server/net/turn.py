"""What waits to enter the engine, of all connections: trains for one stream, in the order in which they were read.

Arrival numbers follow the order of reading. So whatever else could let rows in, or asks for anything, has what waits taken in first;
so has a train for another stream. Only what is about rows to come (schemas) or about none (credit, pings) is read past it.

Held trains enter at the end of the loop's turn where a stream has several publishers. Those of a single one that has more bytes in its
socket are held until these have been read. One publisher's trouble is nobody else's: trains that are not good never wait, a fault while
one is acked ends its connection alone, and what a lost connection sent before is taken in all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.protocol.messages import ChannelSchema, Credit, Ping, Pong, Train
from millstream.server.net.waiting_trains import WaitingTrains

if TYPE_CHECKING:
    from millstream.engine.data.column import Column
    from millstream.server.app import Application
    from millstream.server.net.publishing import Channel
    from millstream.server.net.session import Session

PASSED_BY = frozenset((Train, ChannelSchema, Credit, Ping, Pong))  # a train sees for itself whether it can wait with the others


class Turn:
    """See the module's text. The event loop's thread alone."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self.waiting: WaitingTrains | None = None
        """What is held."""
        self._is_due = False

    def add(self, channel: Channel, columns: list[Column], number: int, rows: int, frame_bytes: int) -> None:
        """Hold a train of good rows."""
        waiting = self.waiting
        if waiting is not None and not (waiting.intake is channel.intake and waiting.has_room(rows, frame_bytes)):
            self.take(channel.session)
            waiting = self.waiting
        if waiting is None:
            waiting = self.waiting = WaitingTrains(channel.intake)
        waiting.add(channel, columns, number, rows, frame_bytes)

    def before(self, event: Any, session: Session) -> None:
        """Take in what was read before an event, unless the event can be read past it."""
        if self.waiting is not None and type(event) not in PASSED_BY:
            self.take(session)

    def read(self, session: Session) -> None:
        """A read of a session is done: decide how long what waits is held."""
        waiting = self.waiting
        if waiting is None:
            return
        if len(waiting.intake.channels) > 1:
            if not self._is_due:
                self._is_due = True
                self._application.loop.call_soon(self._end)
        elif waiting.runs[-1].channel.session is session and not self._more_comes(waiting):
            self.take(session)

    @staticmethod
    def _more_comes(waiting: WaitingTrains) -> bool:
        """Whether all that waits is one publisher's, who has sent more that can be joined to it."""
        return len(waiting.runs) == 1 and not waiting.is_full and waiting.runs[0].channel.session.waiting_bytes() > 0

    def _end(self) -> None:
        self._is_due = False
        if self.waiting is None or self._more_comes(self.waiting):
            return
        with self._application.outbox:
            self.take()
            self._application.bridge.drain()  # results that were made at once

    def take(self, reading: Session | None = None) -> None:
        """Take in what waits, and ack it; the session whose read is being handled acks when that is done."""
        waiting, self.waiting = self.waiting, None
        if waiting is None:
            return
        channels = waiting.channels
        try:
            waiting.take_in()
        except Exception as error:  # what became of the rows is not known, whoever they are of
            for channel in channels:
                channel.session.fail(error)
            return
        for channel in channels:
            if channel.session is not reading:
                self._settle(channel)

    @staticmethod
    def _settle(channel: Channel) -> None:
        try:
            channel.settle()
        except Exception as error:
            channel.session.fail(error)
