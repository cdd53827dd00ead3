"""What passes between the server and a function's process: frames of eight bytes of length, little end first, and that many bytes."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from struct import Struct
from typing import BinaryIO

HEADER = Struct("<Q")
NUMBER = Struct("<Q")  # of a call: begins its frame, and comes back with its answer behind the byte that says how it went
FRAME_BYTES_MAX = 256 * 2**20  # of an answer: 16 KiB for each row of the longest call; read as it comes, so a lie about it costs nothing
_PIECE = 2**20

Wait = Callable[[int, int], None]
"""Waits until a descriptor is ready for an event of `select.poll`, or raises."""


class Overdue(Exception):
    """The other side did not read or write in time."""


class PeerGone(Exception):
    """The other side has closed its end."""


def write_frame(descriptor: int, payload: bytes, wait: Wait) -> None:
    """Write a frame to a non-blocking descriptor. Raises PeerGone and what `wait` raises."""
    for part in (HEADER.pack(len(payload)), payload):
        view = memoryview(part)
        while len(view):
            wait(descriptor, select.POLLOUT)
            try:
                view = view[os.write(descriptor, view[:_PIECE]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError as error:
                raise PeerGone from error


def read_frame(descriptor: int, wait: Wait, length_max: int = FRAME_BYTES_MAX) -> bytes:
    """Return the next frame of a non-blocking descriptor. Raises PeerGone, also for a longer frame, and what `wait` raises."""
    (length,) = HEADER.unpack(_read(descriptor, HEADER.size, wait))
    if length > length_max:
        raise PeerGone
    return _read(descriptor, length, wait)


def next_frame(stream: BinaryIO) -> bytes:
    """Return the next frame of a stream that blocks; nothing where it ends."""
    header = stream.read(HEADER.size)
    return stream.read(HEADER.unpack(header)[0]) if len(header) == HEADER.size else b""


def _read(descriptor: int, size: int, wait: Wait) -> bytes:
    parts: list[bytes] = []
    while size:
        wait(descriptor, select.POLLIN)
        try:
            part = os.read(descriptor, min(size, _PIECE))
        except BlockingIOError:
            continue
        if not part:
            raise PeerGone
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def within(seconds: float) -> Wait:
    """Return what waits for that long from now on, all waits together, and then raises Overdue."""
    deadline_s = time.monotonic() + seconds

    def wait(descriptor: int, event: int) -> None:
        left_ms = (deadline_s - time.monotonic()) * 1000
        poll = select.poll()
        poll.register(descriptor, event)
        if left_ms <= 0 or not poll.poll(left_ms):
            raise Overdue

    return wait
