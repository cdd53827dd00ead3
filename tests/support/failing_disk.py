"""A disk that fails where a test wants it to: in the place of the operating system's, behind the same door."""

from __future__ import annotations

import errno
import mmap
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from millstream.server.journal.disk import SystemDisk

SQL_WRITES = ("BEGIN", "COMMIT", "INSERT", "UPDATE", "DELETE", "PRAGMA wal_checkpoint")
SQL_FAULTS = {
    errno.ENOSPC: "database or disk is full",
    errno.EIO: "disk I/O error",
    errno.EROFS: "attempt to write a readonly database",
}
FAULTS = tuple(SQL_FAULTS)


class FailingDisk(SystemDisk):
    """The system's disk, which counts every write and fails those that `wanted` picks: `times` of them from the `skip`-th on.

    `wanted(operation, name)` gets the operation's name and the file's (for SQL the statement's first word). `failed` are those that failed.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.failed: list[tuple[str, str]] = []
        self.at_point: Callable[[str, str], object] = lambda operation, name: None  # called before each write
        self._names: dict[int, str] = {}
        self._lock = threading.Lock()
        self._fault: int | None = None
        self._wanted: Callable[[str, str], bool] = lambda operation, name: True
        self._skip = 0
        self._times: int | None = None

    def breaks(
        self,
        fault: int = errno.ENOSPC,
        skip: int = 0,
        wanted: Callable[[str, str], bool] = lambda operation, name: True,
        times: int | None = None,
    ) -> None:
        """Fail from now on, after `skip` of the wanted writes have passed."""
        with self._lock:
            self.seen, self.failed = [], []
            self._fault, self._skip, self._wanted, self._times = fault, skip, wanted, times

    def is_mended(self) -> None:
        """Fail no more."""
        with self._lock:
            self._fault = None

    def point(self, operation: str, name: str) -> int | None:
        """Pass a write point; returns the fault when it is to fail."""
        self.at_point(operation, name)
        with self._lock:
            self.seen.append((operation, name))
            if self._fault is None or not self._wanted(operation, name):
                return None
            if self._skip:
                self._skip -= 1
                return None
            if self._times is not None and len(self.failed) >= self._times:
                return None
            self.failed.append((operation, name))
            return self._fault

    def _point(self, operation: str, name: str) -> None:
        fault = self.point(operation, name)
        if fault is not None:
            raise OSError(fault, os.strerror(fault))

    def make_directory(self, directory: Path) -> None:
        self._point("make_directory", directory.name)
        super().make_directory(directory)

    def create(self, path: Path) -> int:
        self._point("create", path.name)
        handle = super().create(path)
        self._names[handle] = path.name
        return handle

    def open_append(self, path: Path) -> int:
        handle = super().open_append(path)
        self._names[handle] = path.name
        return handle

    def open_update(self, path: Path) -> int:
        handle = super().open_update(path)
        self._names[handle] = path.name
        return handle

    def duplicate(self, handle: int) -> int:
        copy = super().duplicate(handle)
        self._names[copy] = self._names[handle]
        return copy

    def write(self, handle: int, parts: Sequence[Any]) -> int:
        """Take a part of what is written before it fails, as a disk does that gets full."""
        fault = self.point("write", self._names[handle])
        if fault is None:
            return super().write(handle, parts)
        whole = b"".join(parts)
        if fault == errno.ENOSPC:
            super().write(handle, [whole[: len(whole) // 2]])
        raise OSError(fault, os.strerror(fault))

    def write_at(self, handle: int, data: bytes, place: int) -> int:
        self._point("write_at", self._names[handle])
        return super().write_at(handle, data, place)

    def truncate(self, handle: int, size: int) -> None:
        self._point("truncate", self._names[handle])
        super().truncate(handle, size)

    def sync(self, handle: int) -> None:
        self._point("sync", self._names[handle])
        super().sync(handle)

    def rename(self, old: Path, new: Path) -> None:
        self._point("rename", new.name)
        super().rename(old, new)

    def unlink(self, path: Path) -> None:
        self._point("unlink", path.name)
        super().unlink(path)

    def remove_directory(self, directory: Path) -> None:
        self._point("remove_directory", directory.name)
        super().remove_directory(directory)

    def sync_directory(self, directory: Path) -> None:
        self._point("sync_directory", directory.name)
        super().sync_directory(directory)

    def map_new(self, path: Path, size: int) -> mmap.mmap:
        self._point("map_new", path.name)
        return super().map_new(path, size)

    def flush(self, mapped: mmap.mmap, place: int, size: int) -> None:
        self._point("flush", "")
        super().flush(mapped, place, size)

    def connect(self, path: Path) -> sqlite3.Connection:
        disk = self

        class Connection(sqlite3.Connection):
            def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
                if statement.startswith(SQL_WRITES):
                    fault = disk.point("sql", " ".join(statement.split()[:3]))
                    if fault is not None:
                        raise sqlite3.OperationalError(SQL_FAULTS[fault])
                return super().execute(statement, *values)

        return sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=Connection)
