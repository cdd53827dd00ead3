"""The way to a worker and back: two stretches of shared memory that hold one message each, and an eventfd for each that says it is there.

A worker has a few channels and serves them in the order in which they were written to; whoever asks has one for himself until the answer
is there. So one order is under way while the next one waits before the worker's door. A stretch grows with the messages and is cut when
a large one has been read. What an answer brings lies in segments of the worker's own, where the server reads it.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from struct import Struct
from typing import Any

import numpy as np

HEAD = Struct("<QQQqQ")  # which message, bytes of the msgpack value, bytes behind it, the segment where these lie, and where in it
STATE_AT = HEAD.size
STATE = Struct("<Q")  # which call of the request the worker is at, from 1 on; 0 while it is at none
FRONT = 64
HERE = -1  # the segment of bytes that lie behind the value itself
BYTES_MIN = 256 * 1024
BYTES_KEPT_MAX = 8 * 1024 * 1024
MESSAGE_BYTES_MAX = 1024 * 1024 * 1024  # of either: an order's rows and what comes of them


Message = tuple[bytes, Sequence[np.ndarray[Any, Any]], int]
"""The msgpack value, the arrays behind it, and the bytes that they take."""


def copy_into(memory: np.ndarray[Any, Any], bodies: Sequence[np.ndarray[Any, Any]]) -> None:
    """Copy arrays one behind the other, each at a multiple of 8 bytes."""
    at = 0
    for body in bodies:
        memory[at : at + body.nbytes] = body.reshape(-1).view(np.uint8)
        at += body.nbytes + -body.nbytes % 8


class TooLarge(Exception):
    """A message is longer than MESSAGE_BYTES_MAX."""


class Stretch:
    """One stretch of shared memory for one message at a time. Whoever reads it cuts it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._map = mmap.mmap(descriptor, os.fstat(descriptor).st_size)

    def _fit(self, size: int) -> mmap.mmap:
        """Return a map of the whole stretch, made longer first where it is too short."""
        length = os.fstat(self.descriptor).st_size
        if length < size:
            length = max(BYTES_MIN, 1 << (size - 1).bit_length())
            os.ftruncate(self.descriptor, length)
        if length != len(self._map):
            self._map = mmap.mmap(self.descriptor, length)
        return self._map

    def write(self, message: Message, number: int = 0, place: tuple[int, int] | None = None) -> None:
        """Put a message in; TooLarge where it is. `place`: the segment and offset to which what stands behind it was written already."""
        head, bodies, size = message
        segment, offset = (HERE, 0) if place is None else place
        begin = FRONT + len(head) + -len(head) % 8
        needed = begin + (size if segment == HERE else 0)
        if needed > MESSAGE_BYTES_MAX:
            raise TooLarge(f"a message of {needed} bytes")
        memory = self._fit(needed)
        HEAD.pack_into(memory, 0, number, len(head), size, segment, offset)
        memory[FRONT : FRONT + len(head)] = head
        if size and segment == HERE:
            copy_into(np.frombuffer(memory, np.uint8, size, begin), bodies)

    @property
    def number(self) -> int:
        """Which message stands here."""
        number: int = HEAD.unpack_from(self._map, 0)[0]
        return number

    def read(self, segment: Callable[[int], Any] | None = None) -> tuple[bytes, Any]:
        """Return the message: a copy, save for what lies in a segment, whose memory `segment` finds."""
        memory = self._fit(FRONT)
        _, head_size, size, place, offset = HEAD.unpack_from(memory, 0)
        begin = FRONT + head_size + -head_size % 8
        if place == HERE or segment is None:
            found: tuple[bytes, Any] = memory[FRONT : FRONT + head_size], memory[begin : begin + size]
        else:
            found = memory[FRONT : FRONT + head_size], segment(place)[offset : offset + size]
        if len(memory) > BYTES_KEPT_MAX:
            os.ftruncate(self.descriptor, BYTES_MIN)
            self._map = mmap.mmap(self.descriptor, BYTES_MIN)
        return found

    @property
    def at(self) -> int:
        """Which call of the request the worker is at, from 1 on, or 0."""
        at: int = STATE.unpack_from(self._map, STATE_AT)[0]
        return at

    @at.setter
    def at(self, call: int) -> None:
        STATE.pack_into(self._map, STATE_AT, call)

    def close(self) -> None:
        """Let go of the memory, and close the descriptor."""
        del self._map  # it has a descriptor of its own
        os.close(self.descriptor)


class Channel:
    """Both ways. `descriptors` are what the worker's side is made of, too."""

    def __init__(self, descriptors: Sequence[int]) -> None:
        request, answer, self.asked, self.answered = descriptors
        self.request, self.answer = Stretch(request), Stretch(answer)

    @classmethod
    def open(cls) -> Channel:
        """Make a new one. OSError where the system has no room for it."""
        made: list[int] = []

        def close_all() -> None:
            for one in made:
                os.close(one)

        with ExitStack() as undo:
            undo.callback(close_all)
            for name in ("request", "answer"):
                made.append(os.memfd_create(f"millstream-{name}", os.MFD_CLOEXEC))
                os.ftruncate(made[-1], BYTES_MIN)
            made.extend(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for _ in range(2))
            channel = cls(made)
            undo.pop_all()
        return channel

    @property
    def descriptors(self) -> tuple[int, int, int, int]:
        """The two stretches, and the eventfds that say that there is a request, an answer."""
        return self.request.descriptor, self.answer.descriptor, self.asked, self.answered

    def close(self) -> None:
        """Close all descriptors."""
        self.request.close()
        self.answer.close()
        os.close(self.asked)
        os.close(self.answered)
