"""Trains that were read and wait for others to enter the engine with them.

What a train costs beside its rows is the same for a hundred rows as for ten thousand. So what one turn of the event loop reads for a
stream, from however many publishers, is let in by one call, and so is what a single publisher has sent while more of its bytes wait in
the socket. A train of the only publisher, behind which nothing waits, is never held.
"""

from __future__ import annotations

import array
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Any

from millstream.engine.data.column import Column
from millstream.engine.data.records import dataclass
from millstream.engine.ingest.quick import joined
from millstream.protocol.limits import REJECTIONS_LISTED_MAX

if TYPE_CHECKING:
    from millstream.server.host.intake import StreamIntake, Taken
    from millstream.server.net.publishing import Channel

JOINED_ROWS_MAX = 65_536  # one call of an operator takes no more
JOINED_BYTES_MAX = 8 * 1024 * 1024


@dataclass(slots=True)
class Run:
    """Trains of one channel that were read one after the other. `frames` are (number, rows) of each, `frame_bytes` what all were."""

    channel: Channel
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
        self.runs: list[Run] = []
        self.frame_bytes = self.rows = 0

    def add(self, channel: Channel, columns: list[Column], number: int, rows: int, frame_bytes: int) -> None:
        """Add a train."""
        if not self.runs or self.runs[-1].channel is not channel:
            self.runs.append(Run(channel))
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
    def channels(self) -> dict[Channel, None]:
        """The channels that the trains came by."""
        return dict.fromkeys([run.channel for run in self.runs])

    def take_in(self) -> None:
        """Let the trains in, and have each channel count what became of its own."""
        # Of what is shed each publisher is told its own part, so what may be shed enters publisher by publisher.
        for runs in [[run] for run in self.runs] if self.intake.sheds else [self.runs]:
            taken = self.intake.take_good(_joined(runs), sum([run.rows for run in runs]))
            for run, position in zip(runs, _positions(runs, taken), strict=True):
                # Should a class begin to shed while rows wait for the disk, what is shed of all is told once.
                run.channel.count_run(run, taken, position, taken.shed if run is runs[-1] else None)


def _joined(runs: list[Run]) -> list[Column]:
    parts = [part for run in runs for part in run.parts]
    return [joined(same) for same in zip(*parts, strict=True)]


def _positions(runs: list[Run], taken: Taken) -> Iterator[int | None]:
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
