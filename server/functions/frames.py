"""What passes between the server and a function's process: frames of eight bytes of length, little end first, and that many bytes."""

from __future__ import annotations

import os
import select
import time
from struct import Struct

HEADER = Struct("<Q")
NUMBER = Struct("<Q")  # of a call: begins its frame, and comes back with its answer behind the byte that says how it went
FRAME_BYTES_MAX = 256 * 2**20  # of an answer: 16 KiB for each row of the longest call; read as it comes, so a lie about it costs nothing
_PIECE = 2**20


class Overdue(Exception):
    """The other side did not read or write in time."""


class PeerGone(Exception):
    """The other side has closed its end."""


def write_frame(descriptor: int, payload: bytes, deadline_s: float) -> None:
    """Write a frame to a non-blocking descriptor until a moment of the monotonic clock. Raises Overdue and PeerGone."""
    for part in (HEADER.pack(len(payload)), payload):
        view = memoryview(part)
        while len(view):
            _wait(descriptor, select.POLLOUT, deadline_s)
            try:
                view = view[os.write(descriptor, view[:_PIECE]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError as error:
                raise PeerGone from error


def read_frame(descriptor: int, deadline_s: float) -> bytes:
    """Read a frame from a non-blocking descriptor until a moment of the monotonic clock. Raises Overdue and PeerGone."""
    (length,) = HEADER.unpack(_read(descriptor, HEADER.size, deadline_s))
    if length > FRAME_BYTES_MAX:
        raise PeerGone
    return _read(descriptor, length, deadline_s)


def _read(descriptor: int, size: int, deadline_s: float) -> bytes:
    parts: list[bytes] = []
    while size:
        _wait(descriptor, select.POLLIN, deadline_s)
        try:
            part = os.read(descriptor, min(size, _PIECE))
        except BlockingIOError:
            continue
        if not part:
            raise PeerGone
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _wait(descriptor: int, event: int, deadline_s: float) -> None:
    left_ms = (deadline_s - time.monotonic()) * 1000
    poll = select.poll()
    poll.register(descriptor, event)
    if left_ms <= 0 or not poll.poll(left_ms):
        raise Overdue
