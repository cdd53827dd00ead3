"""Rows that wait for slow or paused queries leave memory: a thread writes them to files in `spill/` of the data directory and maps those.

It looks at streams that hold much, or that the bounds on memory name (`engine/runtime/memory.py`). A file is made with all its room, so a
full disk is told before anything is written; what is written is forced to disk before its rows leave memory, so a disk that fails is told
too. In both cases rows stay where they are, publishers wait as they would without spilling, and it is tried again. A file goes when nobody
reads what is in it. Nothing of it outlives the process: what a stream promises to keep is in its journal.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from millstream.engine.data import limits
from millstream.engine.data.chunks import Arrays, Bytes, ChunkStore, address_of
from millstream.engine.flow.spilling import spill
from millstream.engine.runtime.network import Network
from millstream.server.journal.disk import Disk
from millstream.server.journal.known import SPILL_FOLDER
from millstream.server.lean import give_way

FILE_BYTES = 16 * 2**20
RETRY_S = 1.0  # after what the disk refused, and while the bound on files is reached
STOP_S = 5.0


class SpillFiles:
    """The chunk store whose segments are files. `bytes_total` is what they occupy."""

    def __init__(self, directory: Path, disk: Disk, bytes_max: int) -> None:
        self._directory = directory / SPILL_FOLDER
        self._disk = disk
        self._maps: dict[int, mmap.mmap] = {}
        self._store = ChunkStore(self._make, bytes_max, FILE_BYTES)
        self.is_full = False  # the last rows found no room

    @property
    def bytes_total(self) -> int:
        """The bytes of all files."""
        return self._store.bytes_total

    def place(self, arrays: Arrays) -> Sequence[Any] | None:
        """Return the arrays as they lie in a file now, on disk and out of memory; None when the bound is reached. OSError."""
        views = self._store.place(arrays)
        self.is_full = views is None
        if views is None:
            return None
        placed = [view for view in views if view is not None and view.nbytes]
        first, last = address_of(placed[0]), address_of(placed[-1]) + placed[-1].nbytes
        found = self._store.find(first, last - first)
        assert found is not None
        segment, offset = found
        self._disk.flush(self._maps[segment.number], offset, last - first)
        return views

    def trim(self) -> None:
        """Remove the files that nobody reads any more. OSError."""
        for number in self._store.trim():
            del self._maps[number]
            self._disk.unlink(self._path(number))

    def remove(self) -> None:
        """Remove all files; what is mapped can still be read."""
        for number in self._maps:
            with suppress(OSError):  # the next start removes it
                self._disk.unlink(self._path(number))

    def _path(self, number: int) -> Path:
        return self._directory / f"{number}.rows"

    def _make(self, number: int, size: int) -> Bytes:
        self._disk.make_directory(self._directory)
        try:
            mapped = self._disk.map_new(self._path(number), size)
        except OSError:
            with suppress(OSError):
                self._disk.unlink(self._path(number))
            raise
        self._maps[number] = mapped
        return np.frombuffer(mapped, np.uint8)


class Spiller:
    """The thread. `report(kind, text)` tells the operator of a disk that refuses, once, and of one that goes again.

    `failures` counts tries in a row that the disk refused, `rows_total` the rows that have left memory.
    """

    def __init__(self, network: Network, files: SpillFiles, report: Callable[[str, str], object]) -> None:
        self.files = files
        self.failures = 0
        self.last_error: str | None = None
        self.rows_total = 0
        self._network = network
        self._report = report
        self._asked = threading.Condition()
        self._is_asked = self._is_stopping = False
        self._thread: threading.Thread | None = None

    @property
    def has_room(self) -> bool:
        """Whether the disk took what came last."""
        return not self.failures and not self.files.is_full

    def look(self) -> None:
        """Have the thread look soon."""
        with self._asked:
            self._is_asked = True
            if self._thread is None and not self._is_stopping:
                self._thread = threading.Thread(target=self._run, name="spill", daemon=True)
                self._thread.start()
            self._asked.notify_all()

    def close(self) -> None:
        """End the thread and remove the files: what waited is lost with the process."""
        with self._asked:
            self._is_stopping = True
            self._asked.notify_all()
        if self._thread is not None:
            self._thread.join(STOP_S)
        self.files.remove()

    def _run(self) -> None:
        give_way()
        while True:
            with self._asked:
                while not self._is_asked and not self._is_stopping:
                    # While there are files one looks now and then whether somebody still reads them.
                    if not self._asked.wait(RETRY_S if self.files.bytes_total else None):
                        break
                if self._is_stopping:
                    return
                self._is_asked = False
            if not self._step():
                with self._asked:
                    self._asked.wait_for(lambda: self._is_stopping, RETRY_S)

    def _step(self) -> bool:
        """Let rows leave memory where they should; False when the disk did not take them."""
        try:
            self.files.trim()
            rows = self.spill_now()
        except OSError as error:
            self.failures, self.last_error = self.failures + 1, str(error)
            if self.failures == 1:
                self._report("spill_failed", f"rows that wait stay in memory, and their publishers wait: {error}; make room on the disk")
            return False
        if rows and self.failures:
            self.failures, self.last_error = 0, None
            self._report("spill_goes_on", "the disk takes rows that wait again")
        return True

    def spill_now(self) -> int:
        """Let rows leave memory where they should, and return how many did. OSError when the disk refuses."""
        gone = 0
        for source in sorted(self._network.sources.values(), key=lambda source: -sum(log.bytes_in_memory for log in source.whole_logs)):
            kept = self._network.memory.part_kept(source)
            if kept is None:
                continue
            for log in source.whole_logs:
                rows = spill(log, self.files.place, int(kept * limits.LOG_ROWS_MAX), int(kept * limits.LOG_BYTES_MAX))
                gone += rows
                self.rows_total += rows
        return gone
