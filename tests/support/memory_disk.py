"""A disk in memory: files are byte arrays by their paths. What is open stays readable when its name goes."""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any


class MemoryDisk:
    """See the module's text. `open_handles` must be empty once all is closed."""

    def __init__(self, files: dict[Path, bytearray] | None = None) -> None:
        self.files = files or {}
        self.directories: set[Path] = {path.parent for path in self.files}
        self.open_handles: dict[int, bytearray] = {}
        self._next = 3

    def copy(self) -> MemoryDisk:
        """Return a disk with the same content."""
        return MemoryDisk({path: bytearray(content) for path, content in self.files.items()})

    def names(self, directory: Path) -> list[str]:
        return sorted(path.name for path in self.files if path.parent == directory)

    def exists(self, path: Path) -> bool:
        return path in self.files or path in self.directories

    def make_directory(self, directory: Path) -> None:
        self.directories.add(directory)

    def open_read(self, path: Path) -> IO[bytes]:
        if path not in self.files:
            raise FileNotFoundError(path)
        return io.BytesIO(bytes(self.files[path]))

    def _handle(self, content: bytearray) -> int:
        self._next += 1
        self.open_handles[self._next] = content
        return self._next

    def create(self, path: Path) -> int:
        self.files[path] = bytearray()
        return self._handle(self.files[path])

    def open_append(self, path: Path) -> int:
        if path not in self.files:
            raise FileNotFoundError(path)
        return self._handle(self.files[path])

    def open_update(self, path: Path) -> int:
        return self.open_append(path)

    def duplicate(self, handle: int) -> int:
        return self._handle(self.open_handles[handle])

    def write(self, handle: int, parts: Sequence[Any]) -> int:
        data = b"".join(parts)
        self.open_handles[handle] += data
        return len(data)

    def write_at(self, handle: int, data: bytes, place: int) -> int:
        self.open_handles[handle][place : place + len(data)] = data
        return len(data)

    def truncate(self, handle: int, size: int) -> None:
        del self.open_handles[handle][size:]

    def sync(self, handle: int) -> None:
        assert handle in self.open_handles

    def close(self, handle: int) -> None:
        del self.open_handles[handle]

    def rename(self, old: Path, new: Path) -> None:
        if old in self.files:
            self.files[new] = self.files.pop(old)
            return
        for path in [p for p in self.files if p.parent == old]:
            self.files[new / path.name] = self.files.pop(path)
        self.directories.discard(old)
        self.directories.add(new)

    def unlink(self, path: Path) -> None:
        if path not in self.files:
            raise FileNotFoundError(path)
        del self.files[path]

    def remove_directory(self, directory: Path) -> None:
        self.directories.discard(directory)

    def sync_directory(self, directory: Path) -> None:
        assert directory in self.directories

    def connect(self, path: Path) -> sqlite3.Connection:
        raise NotImplementedError(path)  # SQLite reads files of its own: a catalogue has another stand-in
