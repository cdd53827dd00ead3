"""Segments of the chunk store in shared memory, and the books of who reads them; and segments of another process, as its reader maps them.

The server has a store for the rows that come in, which workers read; each worker has one for what it answers, which the server reads.
"""

from __future__ import annotations

import mmap
import os
import socket
import threading
import weakref
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from millstream.engine.data.chunks import Bytes, ChunkStore, Segment
from millstream.engine.data.column import Column
from millstream.server.workers.channel import copy_into

SHARED_BYTES_MAX = 512 * 1024 * 1024


class SharedSegments:
    """The chunk store of a server with workers; its calls may come from any thread."""

    def __init__(self, bytes_max: int = SHARED_BYTES_MAX) -> None:
        self._lock = threading.Lock()
        self._descriptors: dict[int, int] = {}
        self._found: dict[int, Segment] = {}
        self.store = ChunkStore(self._make, bytes_max)

    def _make(self, number: int, size: int) -> Bytes:
        descriptor = os.memfd_create(f"millstream-segment-{number}", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, size)
            memory = mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        except OSError:
            os.close(descriptor)
            raise
        self._descriptors[number] = descriptor
        return np.frombuffer(memory, dtype=np.uint8)

    def descriptor(self, number: int) -> int:
        """Return the descriptor of a segment."""
        return self._descriptors[number]

    def placed(self, columns: Sequence[Column]) -> Sequence[Column]:
        """Place the columns of rows that come in (`ChunkStore.placed`); where the system gives no memory they stay where they are."""
        with self._lock, suppress(OSError):
            return self.store.placed(columns)
        return columns

    def written(self, bodies: Sequence[Bytes], size: int, reader: int) -> tuple[int, int] | None:
        """Write arrays as one chunk for a reader, who is told of it; return its segment and the place there; None: there is no room."""
        with self._lock, suppress(OSError):
            room = self.store.room(size)
            if room is None:
                return None
            segment, at, memory = room
            copy_into(memory, bodies)
            self.store.tell(segment, reader)
            return segment.number, at
        return None

    def find(self, address: int, size: int) -> tuple[int, int] | None:
        """Return number of the segment and offset of memory, None where it lies elsewhere."""
        found = self.store.find(address, size)
        if found is None:
            return None
        segment, offset = found
        self._found[segment.number] = segment
        return segment.number, offset

    def tell(self, numbers: Iterable[int], worker: int) -> None:
        """Note that a worker is told of chunks in these segments."""
        with self._lock:
            for number in numbers:
                self.store.tell(self._found[number], worker)

    def untell(self, released: Sequence[Sequence[int]], worker: int) -> None:
        """Note what a worker has let go of."""
        if released:
            with self._lock:
                for number, count in released:
                    self.store.untell(number, worker, count)

    def forget(self, worker: int) -> None:
        """Note that a worker is gone."""
        with self._lock:
            self.store.forget(worker)

    def close(self) -> None:
        """Close the descriptors; the memory goes with the last array over it. Nobody may be told of anything any more."""
        with self._lock:
            self.store.close()
            self._found.clear()
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])


NUMBER_BYTES = 8


class MappedSegments:
    """Segments that another process writes into, mapped when first named. `released` are those of which an array has gone."""

    def __init__(self, ways: socket.socket) -> None:
        self._ways = ways
        self._lock = threading.Lock()
        self._maps: dict[int, mmap.mmap] = {}
        self._alive: dict[int, weakref.ref[Any]] = {}  # by its own identity: what it refers to has no hash
        self.released: deque[int] = deque()

    def base(self, number: int) -> Any:
        """Return a segment's memory; once no array over what is returned is left, it is released."""
        found = self._maps.get(number) or self._map(number)
        base = np.frombuffer(found, dtype=np.uint8)
        released, alive = self.released, self._alive

        def gone(reference: weakref.ref[Any]) -> None:
            alive.pop(id(reference), None)
            released.append(number)

        reference = weakref.ref(base, gone)
        alive[id(reference)] = reference
        return base

    def _map(self, number: int) -> mmap.mmap:
        with self._lock:
            while number not in self._maps:
                told, descriptors, _, _ = socket.recv_fds(self._ways, NUMBER_BYTES, 1)
                if not descriptors:
                    raise OSError("the other side of the socket has ended")
                self._maps[int.from_bytes(told, "little")] = mmap.mmap(
                    descriptors[0], 0, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE, prot=mmap.PROT_READ
                )
                os.close(descriptors[0])
            return self._maps[number]

    def take_released(self) -> list[list[int]]:
        """Return [segment, how often it was released] since last asked."""
        counts: Counter[int] = Counter()
        while self.released:
            counts[self.released.popleft()] += 1
        return [[number, count] for number, count in counts.items()]

    def put_back(self, released: Iterable[Sequence[int]]) -> None:
        """Note what was taken and not told."""
        for number, count in released:
            self.released.extend([number] * count)


class ToldSegments:
    """Which segments a reader has been told of: each is sent once, before the first message that names it."""

    def __init__(self, ways: socket.socket) -> None:
        self._ways = ways
        self._known: set[int] = set()

    def tell(self, numbers: Iterable[int], segments: SharedSegments) -> None:
        """Let the reader map those that it does not know. OSError when it is gone."""
        for number in numbers:
            if number not in self._known:
                socket.send_fds(self._ways, [number.to_bytes(NUMBER_BYTES, "little")], [segments.descriptor(number)])
                self._known.add(number)
