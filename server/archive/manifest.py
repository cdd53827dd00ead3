"""What the catalogue says of archives: how far each is, and which files count. All calls come from the thread that executes statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from millstream.engine.data.records import dataclass
from millstream.engine.data.watermarks import TIME_MIN
from millstream.server.journal.store import Store


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """One committed file: its path below the place, the arrival numbers [lo, hi) it is of, rows, bytes, control items, event times."""

    path: str
    lo: int
    hi: int
    rows: int
    bytes: int
    controls: int = 0
    time_min_us: int | None = None
    time_max_us: int | None = None

    @property
    def folder(self) -> str:
        """The partition it is in, "" without partitions."""
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class ArchiveState:
    """How far an archive is: all that came before `upto` is in `files`, and W was `watermark_us` then.

    `complete_from_us`: all rows with an event time from there on are kept, None when nothing was ever removed.
    """

    upto: int = 0
    watermark_us: int = TIME_MIN
    complete_from_us: int | None = None
    files: Sequence[ArchiveFile] = field(default_factory=tuple)


class Manifest:
    """The tables of archives in the catalogue."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def read(self, stream: int) -> ArchiveState | None:
        """Return the state of a stream's archive, None when it has none yet. StoreError when the file is damaged."""
        found = self._store.rows("SELECT upto, watermark_us, complete_from_us FROM archives WHERE stream = ?", stream)
        if not found:
            return None
        columns = "path, lo, hi, rows, bytes, controls, time_min_us, time_max_us"
        rows = self._store.rows(f"SELECT {columns} FROM archive_files WHERE stream = ? ORDER BY lo, hi, path", stream)
        upto, watermark_us, complete_from_us = found[0]
        return ArchiveState(upto, watermark_us, complete_from_us, tuple(ArchiveFile(*row) for row in rows))

    def write(self, stream: int, state: ArchiveState, added: Sequence[ArchiveFile] = (), dropped: Sequence[ArchiveFile] = ()) -> None:
        """Keep how far an archive is, and which files come and go: all of it or nothing. StorageError when the disk refuses."""
        with self._store.change():
            values = (stream, state.upto, state.watermark_us, state.complete_from_us)
            self._store.write("INSERT OR REPLACE INTO archives VALUES (?, ?, ?, ?)", *values)
            for file in dropped:
                self._store.write("DELETE FROM archive_files WHERE stream = ? AND path = ?", stream, file.path)
            for file in added:
                sizes = (file.lo, file.hi, file.rows, file.bytes, file.controls, file.time_min_us, file.time_max_us)
                self._store.write("INSERT INTO archive_files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", stream, file.path, *sizes)
