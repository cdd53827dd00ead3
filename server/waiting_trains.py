"""Trains that one channel has read while the bytes of others wait in the socket: they enter the engine together.

What a train costs beside its rows is the same for a hundred rows as for ten thousand, so a publisher that is ahead of the server has its
trains joined, as many as are there. A train behind which nothing waits is never held.
"""

from __future__ import annotations

import array
from collections.abc import Callable
from typing import Any

from millstream.engine.column import Column
from millstream.engine.ingest.plain_columns import joined

JOINED_ROWS_MAX = 65_536  # one call of an operator takes no more
JOINED_BYTES_MAX = 8 * 1024 * 1024


class WaitingTrains:
    """Columns of good rows, train by train. `frames` are (number, rows) of each, `frame_bytes` what they were on the wire."""

    __slots__ = ("_parts", "frame_bytes", "frames", "rows")

    def __init__(self) -> None:
        self._parts: list[list[Column]] = []
        self.frames: list[tuple[int, int]] = []
        self.frame_bytes = self.rows = 0

    def add(self, columns: list[Column], number: int, rows: int, frame_bytes: int) -> None:
        """Add a train."""
        self._parts.append(columns)
        self.frames.append((number, rows))
        self.rows += rows
        self.frame_bytes += frame_bytes

    def has_room(self, rows: int, frame_bytes: int) -> bool:
        """Whether a train may be joined to those that wait."""
        return not self.rows or (self.rows + rows <= JOINED_ROWS_MAX and self.frame_bytes + frame_bytes <= JOINED_BYTES_MAX)

    @property
    def is_full(self) -> bool:
        """Whether another train of the last one's size would not be joined any more."""
        return not self.has_room(self.frames[-1][1], self.frame_bytes // len(self.frames))

    def joined(self) -> list[Column]:
        """Return the columns of all."""
        if len(self._parts) == 1:
            return self._parts[0]
        return [joined(same) for same in zip(*self._parts, strict=True)]

    def train_of(self, index: int) -> tuple[int, int]:
        """Return the number of the train that the row at `index` came with, and its place there."""
        for number, rows in self.frames:
            if index < rows:
                return number, index
            index -= rows
        raise IndexError(index)


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
