"""The way to a worker and back: two stretches of shared memory that hold one message each, and an eventfd for each that says it is there.

A worker has a few channels and serves them in turn; whoever asks has one for himself until the answer is there. So one order is under way
while the next one waits before the worker's door, and no lock is needed. A stretch grows with the messages and is cut when a large one has
been read.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from struct import Struct
from typing import Any

import numpy as np

HEAD = Struct("<QQ")  # bytes of the msgpack value, bytes behind it
STATE_AT = HEAD.size  # one byte: what the worker does with it
FRONT = 64
IDLE, RUNNING = 0, 1
BYTES_MIN = 256 * 1024
BYTES_KEPT_MAX = 8 * 1024 * 1024
MESSAGE_BYTES_MAX = 1024 * 1024 * 1024  # of either: an order's rows and what comes of them


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

    def write(self, head: bytes, bodies: Sequence[np.ndarray[Any, Any]], size: int) -> None:
        """Put a message in; TooLarge where it is."""
        begin = FRONT + len(head) + -len(head) % 8
        if begin + size > MESSAGE_BYTES_MAX:
            raise TooLarge(f"a message of {begin + size} bytes")
        memory = self._fit(begin + size)
        HEAD.pack_into(memory, 0, len(head), size)
        memory[FRONT : FRONT + len(head)] = head
        if not size:
            return
        whole = np.frombuffer(memory, np.uint8, size, begin)
        at = 0
        for body in bodies:
            whole[at : at + body.nbytes] = body.reshape(-1).view(np.uint8)
            at += body.nbytes + -body.nbytes % 8

    def read(self) -> tuple[bytes, bytes]:
        """Return a copy of the message."""
        memory = self._fit(FRONT)
        head_size, size = HEAD.unpack_from(memory, 0)
        begin = FRONT + head_size + -head_size % 8
        found = memory[FRONT : FRONT + head_size], memory[begin : begin + size]
        if len(memory) > BYTES_KEPT_MAX:
            os.ftruncate(self.descriptor, BYTES_MIN)
            self._map = mmap.mmap(self.descriptor, BYTES_MIN)
        return found

    @property
    def state(self) -> int:
        """What the worker does with the message."""
        return self._map[STATE_AT]

    @state.setter
    def state(self, state: int) -> None:
        self._map[STATE_AT] = state

    def close(self) -> None:
        """Close the descriptor; the memory goes with the last array over it."""
        os.close(self.descriptor)


class Channel:
    """Both ways. `descriptors` are what the worker's side is made of, too."""

    def __init__(self, descriptors: Sequence[int]) -> None:
        request, answer, self.asked, self.answered = descriptors
        self.request, self.answer = Stretch(request), Stretch(answer)

    @classmethod
    def open(cls) -> Channel:
        """Make a new one. OSError where the system has no room for it."""
        made = []
        for name in ("request", "answer"):
            made.append(os.memfd_create(f"millstream-{name}", os.MFD_CLOEXEC))
            os.ftruncate(made[-1], BYTES_MIN)
        return cls([*made, *(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for _ in range(2))])

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
