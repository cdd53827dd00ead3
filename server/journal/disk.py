"""The disk as journal, checkpoints and catalogue see it: the one place through which they touch files.

`SystemDisk` is the operating system's. Whoever wants a disk that fails or forgets stands another one in its place: it is passed in,
and nothing below this folder opens a file by itself. Every operation raises OSError when the disk refuses it.
"""

from __future__ import annotations

import mmap
import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Protocol

from millstream.server.journal.directory_lock import lock

PART_SUFFIX = ".part"  # of a file that is being written and has not got its name yet


class Held(Protocol):
    """A directory that is this process's own until it is closed."""

    def close(self) -> None:
        """Leave the directory to others."""


class Disk(Protocol):
    """Operations on files. A handle is a number that `create`, `open_append` or `open_update` gave; `close` ends it."""

    def lock(self, directory: Path) -> Held:
        """Keep other servers out of a directory. StoreError when another one has it."""

    def names(self, directory: Path) -> list[str]:
        """Return the names in a directory, sorted; none when there is no such directory."""

    def exists(self, path: Path) -> bool:
        """Return whether there is a file or directory."""

    def make_directory(self, directory: Path) -> None:
        """Make a directory and those above it, unless they are there."""

    def open_read(self, path: Path) -> IO[bytes]:
        """Open a file for reading. What is open can be read to its end, also when the name is gone."""

    def create(self, path: Path) -> int:
        """Make an empty file for appending, in the place of one that is there."""

    def open_append(self, path: Path) -> int:
        """Open a file for appending."""

    def open_update(self, path: Path) -> int:
        """Open a file for `write_at`."""

    def duplicate(self, handle: int) -> int:
        """Return a second handle of the same open file."""

    def write(self, handle: int, parts: Sequence[Any]) -> int:
        """Append buffers, one behind the other; returns how many bytes were taken, perhaps not all."""

    def write_at(self, handle: int, data: bytes, place: int) -> int:
        """Write at a place; returns how many bytes were taken, perhaps not all."""

    def truncate(self, handle: int, size: int) -> None:
        """Cut a file off."""

    def sync(self, handle: int) -> None:
        """Return once the disk has the file's content."""

    def close(self, handle: int) -> None:
        """Close a handle."""

    def rename(self, old: Path, new: Path) -> None:
        """Give a file or directory another name, in the place of a file that has it."""

    def unlink(self, path: Path) -> None:
        """Remove a file."""

    def remove_directory(self, directory: Path) -> None:
        """Remove an empty directory."""

    def sync_directory(self, directory: Path) -> None:
        """Return once the disk has the names in a directory."""

    def map_new(self, path: Path, size: int) -> mmap.mmap:
        """Make a file of so many bytes, for all of which there is room, and map it for reading and writing."""

    def flush(self, mapped: mmap.mmap, place: int, size: int) -> None:
        """Return once the disk has a stretch of a mapped file, and let go of its memory until it is read."""

    def connect(self, path: Path) -> sqlite3.Connection:
        """Open a database file; statements commit by themselves, and any thread may use it."""


class SystemDisk:
    """The operating system's files."""

    def lock(self, directory: Path) -> Held:
        """Keep other servers out of a directory. StoreError when another one has it."""
        return lock(directory)

    def names(self, directory: Path) -> list[str]:
        """Return the names in a directory, sorted; none when there is no such directory."""
        try:
            return sorted(os.listdir(directory))
        except FileNotFoundError:
            return []

    def exists(self, path: Path) -> bool:
        """Return whether there is a file or directory."""
        return path.exists()

    def make_directory(self, directory: Path) -> None:
        """Make a directory and those above it, unless they are there."""
        directory.mkdir(parents=True, exist_ok=True)

    def open_read(self, path: Path) -> IO[bytes]:
        """Open a file for reading."""
        return path.open("rb")

    def create(self, path: Path) -> int:
        """Make an empty file for appending, in the place of one that is there."""
        return os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def open_append(self, path: Path) -> int:
        """Open a file for appending."""
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def open_update(self, path: Path) -> int:
        """Open a file for `write_at`."""
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC)

    def duplicate(self, handle: int) -> int:
        """Return a second handle of the same open file."""
        return os.dup(handle)

    def write(self, handle: int, parts: Sequence[Any]) -> int:
        """Append buffers, one behind the other."""
        return os.writev(handle, parts)

    def write_at(self, handle: int, data: bytes, place: int) -> int:
        """Write at a place."""
        return os.pwrite(handle, data, place)

    def truncate(self, handle: int, size: int) -> None:
        """Cut a file off."""
        os.ftruncate(handle, size)

    def sync(self, handle: int) -> None:
        """Return once the disk has the file's content."""
        os.fsync(handle)

    def close(self, handle: int) -> None:
        """Close a handle."""
        os.close(handle)

    def rename(self, old: Path, new: Path) -> None:
        """Give a file or directory another name."""
        old.replace(new)

    def unlink(self, path: Path) -> None:
        """Remove a file."""
        path.unlink()

    def remove_directory(self, directory: Path) -> None:
        """Remove an empty directory."""
        directory.rmdir()

    def sync_directory(self, directory: Path) -> None:
        """Return once the disk has the names in a directory."""
        handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def map_new(self, path: Path, size: int) -> mmap.mmap:
        """Make a file of so many bytes, and map it."""
        handle = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(handle, 0, size)
            else:
                os.ftruncate(handle, size)
            return mmap.mmap(handle, size)
        finally:
            os.close(handle)

    def flush(self, mapped: mmap.mmap, place: int, size: int) -> None:
        """Force a stretch of a mapped file to disk, by whole pages."""
        start = place - place % mmap.PAGESIZE
        size = min(len(mapped) - start, size + place - start)
        mapped.flush(start, size)
        if hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED, start, size)

    def connect(self, path: Path) -> sqlite3.Connection:
        """Open a database file."""
        return sqlite3.connect(path, isolation_level=None, check_same_thread=False)


def read(disk: Disk, path: Path, bytes_max: int = -1) -> bytes:
    """Return a file's content, or its first bytes."""
    with disk.open_read(path) as file:
        return file.read(bytes_max)


def write_all(disk: Disk, handle: int, parts: Sequence[Any]) -> None:
    """Append buffers, all of them: what one call does not take the next one does."""
    wanted = sum(len(part) for part in parts)
    taken = disk.write(handle, parts) if wanted else 0
    while taken < wanted:
        rest = memoryview(b"".join(parts))[taken:]
        taken += disk.write(handle, [rest])


def write_whole(disk: Disk, path: Path, parts: Sequence[Any], *, keep_open: bool = False) -> int | None:
    """Put a file on disk, whole or not at all: it is written aside, and gets its name once the disk has it.

    Returns its handle, for appending, with `keep_open`. Whatever fails, no handle stays open and the name is not taken.
    """
    part = path.with_name(path.name + PART_SUFFIX)
    handle = disk.create(part)
    try:
        write_all(disk, handle, parts)
        disk.sync(handle)
        disk.rename(part, path)
        disk.sync_directory(path.parent)
    except BaseException:
        disk.close(handle)
        with suppress(OSError):  # the start that finds it removes it
            disk.unlink(part)
        raise
    if keep_open:
        return handle
    disk.close(handle)
    return None
