"""Segments of the chunk store in shared memory, and the books of who reads them."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Iterable, Sequence

import numpy as np
from millstream.engine.data.chunks import Bytes, ChunkStore, Segment
from millstream.engine.data.column import Column

SHARED_BYTES_MAX = 512 * 1024 * 1024


class SharedSegments:
    """The chunk store of a server with workers; its calls may come from any thread."""

    def __init__(self, bytes_max: int = SHARED_BYTES_MAX) -> None:
        self._lock = threading.Lock()
        self._descriptors: list[int] = []
        self._found: dict[int, Segment] = {}
        self.store = ChunkStore(self._make, bytes_max)

    def _make(self, number: int, size: int) -> Bytes:
        descriptor = os.memfd_create(f"millstream-segment-{number}", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, size)
        self._descriptors.append(descriptor)
        return np.frombuffer(mmap.mmap(descriptor, size), dtype=np.uint8)

    def descriptor(self, number: int) -> int:
        """Return the descriptor of a segment."""
        return self._descriptors[number]

    def placed(self, columns: Sequence[Column]) -> Sequence[Column]:
        """Place the columns of rows that come in (`ChunkStore.placed`)."""
        with self._lock:
            return self.store.placed(columns)

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
        """Close the descriptors; the memory goes with the last array over it."""
        for descriptor in self._descriptors:
            os.close(descriptor)
