"""The journal's files: segments that are only appended to, each named by the arrival number at which it begins.

A crash may cut the last record of the last segment: that tail was never acknowledged as safe and is cut off. A record whose checksum
does not fit anywhere else means that the disk has changed what was written; then nothing is guessed, the server does not start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from millstream.engine.data.records import dataclass
from millstream.server.errors import StoreError
from millstream.server.journal.records import HEAD_BYTES, Corrupt, Record, Torn, decode

FORMAT_VERSION = 1
_MAGIC = b"MSTJ"
_SUFFIX = ".journal"
HEADER_BYTES = 8


@dataclass(slots=True)
class Segment:
    """One file. `size` is how much of it is known to be good; `last_us` the processing time of its last record."""

    path: Path
    base: int
    size: int
    last_us: int = 0
    end: int = 0

    def records(self, upto: int | None = None) -> Iterator[Record]:
        """Yield the records in the first `upto` bytes, by default all that are known to be good."""
        with self.path.open("rb") as file:
            content = file.read(self.size if upto is None else upto)
        yield from records_of(content)


def records_of(content: bytes) -> Iterator[Record]:
    """Yield the records of a file's first bytes, which are known to be good."""
    view = memoryview(content)
    at = HEADER_BYTES
    while at < len(view):
        record, at = decode(view, at)
        yield record


def segment_path(directory: Path, base: int) -> Path:
    """Return the file of the segment that begins at an arrival number."""
    return directory / f"{base:020d}{_SUFFIX}"


def create_segment(directory: Path, base: int) -> tuple[Segment, int]:
    """Make a new segment and return it with its open file; the directory's entry is on disk when this returns."""
    path = segment_path(directory, base)
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
    if os.fstat(file).st_size == 0:
        os.write(file, _MAGIC + FORMAT_VERSION.to_bytes(4, "little"))
    os.fsync(file)
    sync_directory(directory)
    return Segment(path, base, HEADER_BYTES, end=base), file


def sync_directory(directory: Path) -> None:
    """Make the names in a directory safe."""
    handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def find_segments(directory: Path) -> list[Segment]:
    """Return the segments in order, checked record by record; the torn tail of the last one is cut off. StoreError when one is corrupt."""
    paths = sorted(p for p in directory.iterdir() if p.suffix == _SUFFIX)
    return [_checked(path, is_last=path is paths[-1]) for path in paths]


def _checked(path: Path, *, is_last: bool) -> Segment:
    content = path.read_bytes()
    if is_last and len(content) < HEADER_BYTES:
        content = _begun_anew(path)
    if content[:4] != _MAGIC:
        raise StoreError(f"{path} is no journal", hint=_mend(path))
    version = int.from_bytes(content[4:8], "little")
    if version != FORMAT_VERSION:
        raise StoreError(
            f"{path} has format {version} and this server reads format {FORMAT_VERSION}", hint="start the release that wrote it"
        )
    view = memoryview(content)
    segment = Segment(path, int(path.stem), HEADER_BYTES, end=int(path.stem))
    at = HEADER_BYTES
    while at < len(view):
        try:
            record, at = decode(view, at)
        except (Torn, Corrupt) as problem:
            if not is_last or (isinstance(problem, Corrupt) and not _is_tail(view, at)):
                raise StoreError(f"{path} is corrupt at byte {at}: the record's checksum does not fit", hint=_mend(path)) from None
            os.truncate(path, at)
            break
        segment.size, segment.last_us, segment.end = at, record.now_us, record.hi
    return segment


def _begun_anew(path: Path) -> bytes:
    """The crash came before the file's first bytes."""
    header = _MAGIC + FORMAT_VERSION.to_bytes(4, "little")
    path.write_bytes(header)
    return header


def _is_tail(view: memoryview, at: int) -> bool:
    """Whether a record that does not fit is the last one, or the space of rows that never reached the disk (zeros)."""
    length = int.from_bytes(view[at : at + 4], "little")
    return at + HEAD_BYTES + length >= len(view) or not any(view[at:])


def _mend(path: Path) -> str:
    return f"restore {path.name} from a copy; or move it and all journal files away, which gives up the rows that they hold"
