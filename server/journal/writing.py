"""Writing a whole segment at once: what a conversion and a salvage do, where the journal itself appends as rows come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from millstream.server.journal.disk import Disk, write_all
from millstream.server.journal.records import Record, definition_record, encode
from millstream.server.journal.segments import Ending, create_segment

FLUSHED_BYTES = 1 << 20  # gathered before they are written


class SegmentWriter:
    """A new segment, begun with the definitions of streams. `finish` forces it to disk; `close` after that, whatever happened."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        identity: bytes,
        base: int,
        previous: Ending,
        definitions: Sequence[tuple[int, Mapping[str, Any]]] = (),
    ) -> None:
        self._disk = disk
        begun = [definition_record(number, definition, base) for number, definition in definitions]
        self.segment, self._file = create_segment(disk, directory, identity, base, previous, begun)
        self._waiting: list[Any] = []
        self._waiting_bytes = 0

    def append(self, record: Record) -> None:
        """Add a record."""
        segment = self.segment
        parts, segment.check = encode(record, segment.seed, segment.check)
        size = sum(map(len, parts))
        segment.size += size
        segment.last_us, segment.end = record.now_us, max(segment.end, record.hi)
        self._waiting += parts
        self._waiting_bytes += size
        if self._waiting_bytes >= FLUSHED_BYTES:
            self._flush()

    def _flush(self) -> None:
        write_all(self._disk, self._file, [b"".join(self._waiting)])
        self._waiting, self._waiting_bytes = [], 0

    def finish(self) -> Ending:
        """Force it to disk; returns where it ends."""
        self._flush()
        self._disk.sync(self._file)
        return self.segment.ending

    def close(self) -> None:
        """Close the file."""
        self._disk.close(self._file)
