"""The journal's files: segments that are only appended to, each named by the arrival number at which it begins.

A crash may cut the last record of the last segment: that tail was never acknowledged as safe and is cut off. A record whose checksum
does not fit anywhere else means that the disk has changed what was written; then nothing is guessed, the server does not start.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from millstream.engine.data.records import dataclass
from millstream.server.errors import StoreError
from millstream.server.journal.disk import Disk, read, write_whole
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

    def records(self, disk: Disk) -> Iterator[Record]:
        """Yield the records that are known to be good."""
        yield from records_of(read(disk, self.path, self.size))


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


def create_segment(disk: Disk, directory: Path, base: int) -> tuple[Segment, int]:
    """Make a new segment and return it with its open file; the directory's entry is on disk when this returns."""
    path = segment_path(directory, base)
    file = write_whole(disk, path, [_header()], keep_open=True)
    assert file is not None
    return Segment(path, base, HEADER_BYTES, end=base), file


def _header() -> bytes:
    return _MAGIC + FORMAT_VERSION.to_bytes(4, "little")


def find_segments(disk: Disk, directory: Path) -> list[Segment]:
    """Return the segments in order, checked record by record; the torn tail of the last one is cut off. StoreError when one is corrupt."""
    paths = [directory / name for name in disk.names(directory) if name.endswith(_SUFFIX)]
    return [_checked(disk, path, is_last=path is paths[-1]) for path in paths]


def _checked(disk: Disk, path: Path, *, is_last: bool) -> Segment:
    content = read(disk, path)
    if is_last and len(content) < HEADER_BYTES:
        content = _begun_anew(disk, path)
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
            _cut(disk, path, at)
            break
        segment.size, segment.last_us, segment.end = at, record.now_us, record.hi
    return segment


def _begun_anew(disk: Disk, path: Path) -> bytes:
    """The crash came before the file's first bytes."""
    write_whole(disk, path, [_header()])
    return _header()


def _cut(disk: Disk, path: Path, size: int) -> None:
    handle = disk.open_append(path)
    try:
        disk.truncate(handle, size)
    finally:
        disk.close(handle)


def _is_tail(view: memoryview, at: int) -> bool:
    """Whether a record that does not fit is the last one, or the space of rows that never reached the disk (zeros)."""
    length = int.from_bytes(view[at : at + 4], "little")
    return at + HEAD_BYTES + length >= len(view) or not any(view[at:])


def _mend(path: Path) -> str:
    return f"restore {path.name} from a copy; or move it and all journal files away, which gives up the rows that they hold"
