"""What waits to enter the engine, of all connections: trains for one stream, in the order in which they were read.

Arrival numbers follow the order of reading. So whatever else could let rows in, or asks for anything, has what waits taken in first;
so has a train for another stream. Only what is about rows to come (schemas) or about none (credit, pings) is read past it.

Held trains enter at the end of the loop's turn where a stream has several publishers. Those of a single one that has more bytes in its
socket are held until these have been read. One publisher's trouble is nobody else's: trains that are not good never wait, a fault while
one is acked ends its connection alone, and what a lost connection sent before is taken in all the same.

What a train costs beside its rows is the same for a hundred rows as for ten thousand: so those that wait are let in by one call.
"""

from __future__ import annotations

import array
import asyncio
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any, Protocol

from millstream.engine.data.column import Column
from millstream.engine.data.records import dataclass
from millstream.engine.flow.sources import fitted
from millstream.engine.ingest.quick import joined
from millstream.protocol.limits import REJECTIONS_LISTED_MAX
from millstream.protocol.messages import ChannelSchema, Credit, Ping, Pong, Train
from millstream.server.errors import StorageError
from millstream.server.host.intake import PublishOutcome, StreamIntake
from millstream.server.net.loop import Bridge, Outbox

PASSED_BY = frozenset((Train, ChannelSchema, Credit, Ping, Pong))  # a train sees for itself whether it can wait with the others
JOINED_ROWS_MAX = 65_536  # one call of an operator takes no more
JOINED_BYTES_MAX = 8 * 1024 * 1024


class TrainSender(Protocol):
    """Whose trains they are."""

    waiting_bytes: Callable[[], int]
    """How many bytes wait in its socket."""

    @property
    def is_held_back(self) -> bool:
        """Whether it is not read from for now."""
        ...

    def fail(self, error: Exception) -> None:
        """End its connection after a fault of ours."""
        ...


class TrainChannel(Protocol):
    """Where trains come from and are acked."""

    intake: StreamIntake

    @property
    def session(self) -> TrainSender:
        """Whose it is."""
        ...

    def count_run(self, run: TrainRun, taken: PublishOutcome) -> None:
        """Count trains that were let in with those of others, or refused with them."""
        ...

    def refuse(self, error: StorageError) -> None:
        """Tell that the disk does not take the rows."""
        ...

    def settle(self) -> None:
        """Ack what was taken."""
        ...


class LoopServices(Protocol):
    """What a turn needs of the server: the loop, and what is said and given in one go of it."""

    loop: asyncio.AbstractEventLoop
    outbox: Outbox
    bridge: Bridge[Any]


@dataclass(slots=True)
class TrainRun:
    """Trains of one channel that were read one after the other. `frames` are (number, rows) of each, `frame_bytes` what all were."""

    channel: TrainChannel
    parts: list[list[Column]] = field(default_factory=list)
    frames: list[tuple[int, int]] = field(default_factory=list)
    rows: int = 0
    frame_bytes: int = 0

    def refused(self, reason: str) -> list[tuple[int, int, str]]:
        """Return (number of the train, index in it, reason) of the rows, as many as an ack lists: none of them was taken."""
        places = ((number, index, reason) for number, rows in self.frames for index in range(rows))
        return [place for place, _ in zip(places, range(REJECTIONS_LISTED_MAX), strict=False)]


class WaitingTrains:
    """Columns of good rows for one stream, in the order in which they were read."""

    __slots__ = ("frame_bytes", "intake", "rows", "runs")

    def __init__(self, intake: StreamIntake) -> None:
        self.intake = intake
        self.runs: list[TrainRun] = []
        self.frame_bytes = self.rows = 0

    def add(self, channel: TrainChannel, columns: list[Column], number: int, rows: int, frame_bytes: int) -> None:
        """Add a train."""
        if not self.runs or self.runs[-1].channel is not channel:
            self.runs.append(TrainRun(channel))
        run = self.runs[-1]
        run.parts.append(columns)
        run.frames.append((number, rows))
        run.rows += rows
        run.frame_bytes += frame_bytes
        self.rows += rows
        self.frame_bytes += frame_bytes

    def has_room(self, rows: int, frame_bytes: int) -> bool:
        """Whether a train may be joined to those that wait."""
        return not self.rows or (self.rows + rows <= JOINED_ROWS_MAX and self.frame_bytes + frame_bytes <= JOINED_BYTES_MAX)

    @property
    def is_full(self) -> bool:
        """Whether another train of the last one's size would not be joined any more."""
        last = self.runs[-1]
        return not self.has_room(last.frames[-1][1], last.frame_bytes // len(last.frames))

    @property
    def channels(self) -> dict[TrainChannel, None]:
        """The channels that the trains came by."""
        return dict.fromkeys([run.channel for run in self.runs])

    def take_in(self) -> None:
        """Let the trains in, and have each channel count what became of its own."""
        # Of what is shed each publisher is told its own part, so what may be shed enters publisher by publisher.
        for runs in [[run] for run in self.runs] if self.intake.sheds else [self.runs]:
            try:
                taken = self.intake.take_good(self._joined(runs), sum([run.rows for run in runs]))
            except StorageError as error:
                for channel in dict.fromkeys([run.channel for run in runs]):
                    channel.refuse(error)
                continue
            for run, position in zip(runs, _positions(runs, taken), strict=True):
                # Should a class begin to shed while rows wait for the disk, what is shed of all is told once.
                mine = PublishOutcome(run.rows, position=position, shed=taken.shed if run is runs[-1] else None, place=taken.place)
                run.channel.count_run(run, mine if not taken.rejected else PublishOutcome(0, taken.rejections, run.rows))

    def _joined(self, runs: list[TrainRun]) -> list[Column]:
        parts = [part for run in runs for part in run.parts]
        if len({len(part) for part in parts}) > 1:  # of publishers that know all columns of the stream, and that do not
            parts = [fitted(part, self.intake.definition.schema) for part in parts]
        return [joined(same) for same in zip(*parts, strict=True)]


def _positions(runs: list[TrainRun], taken: PublishOutcome) -> Iterator[int | None]:
    """Yield the arrival number of each run's last row; rows that are let in together have numbers one behind the other."""
    left = sum([run.rows for run in runs])
    for run in runs:
        left -= run.rows
        yield None if taken.position is None else taken.position - left


def waiting_bytes_of(transport: Any) -> Callable[[], int]:
    """Return a function that tells how many bytes wait in a transport's socket; always 0 where that says nothing of what comes next."""
    socket = transport.get_extra_info("socket")
    # With TLS the bytes may be half of a record, of which nobody hears until it is whole.
    if socket is None or transport.get_extra_info("sslcontext") is not None:
        return _none
    try:
        from fcntl import ioctl
        from termios import FIONREAD
    except ImportError:  # not on every platform
        return _none
    number = array.array("i", [0])

    def waiting() -> int:
        if transport.is_closing():
            return 0
        ioctl(socket.fileno(), FIONREAD, number)
        return number[0]

    return waiting


def _none() -> int:
    return 0


class Turn:
    """The trains that wait, and when they enter. The event loop's thread alone."""

    def __init__(self, server: LoopServices) -> None:
        self._server = server
        self.waiting: WaitingTrains | None = None
        """What is held."""
        self._is_due = False

    def add(self, channel: TrainChannel, columns: list[Column], number: int, rows: int, frame_bytes: int) -> None:
        """Hold a train of good rows."""
        waiting = self.waiting
        if waiting is not None and not (waiting.intake is channel.intake and waiting.has_room(rows, frame_bytes)):
            self.take(channel.session)
            waiting = self.waiting
        if waiting is None:
            waiting = self.waiting = WaitingTrains(channel.intake)
        waiting.add(channel, columns, number, rows, frame_bytes)

    def before(self, event: Any, session: TrainSender) -> None:
        """Take in what was read before an event, unless the event can be read past it."""
        if self.waiting is not None and type(event) not in PASSED_BY:
            self.take(session)

    def read(self, session: TrainSender) -> None:
        """A read of a session is done: decide how long what waits is held."""
        waiting = self.waiting
        if waiting is None:
            return
        if len(waiting.intake.channels) > 1:
            if not self._is_due:
                self._is_due = True
                self._server.loop.call_soon(self._end)
        elif waiting.runs[-1].channel.session is session and not self._more_comes(waiting):
            self.take(session)

    @staticmethod
    def _more_comes(waiting: WaitingTrains) -> bool:
        """Whether all that waits is one publisher's, who has sent more that can be joined to it."""
        if len(waiting.runs) != 1 or waiting.is_full:
            return False
        session = waiting.runs[0].channel.session
        return not session.is_held_back and session.waiting_bytes() > 0

    def let_in_of(self, session: TrainSender) -> None:
        """A session is not read from any more: what is held of it until more comes is let in by the loop's next turn."""
        if self.waiting is not None and not self._is_due and self.waiting.runs[-1].channel.session is session:
            self._is_due = True
            self._server.loop.call_soon(self._end)

    def _end(self) -> None:
        self._is_due = False
        if self.waiting is None or self._more_comes(self.waiting):
            return
        with self._server.outbox:
            self.take()
            self._server.bridge.drain()  # results that were made at once

    def take(self, reading: TrainSender | None = None) -> None:
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
    def _settle(channel: TrainChannel) -> None:
        try:
            channel.settle()
        except Exception as error:
            channel.session.fail(error)
