"""The journal's files: segments that are only appended to, each named by the arrival number at which it begins.

A segment begins with a head of its own: the identity that journal and catalogue share, and where the segment before it ended, with the
check of its last record. So a file of another directory, and one that is missing or too short, are noticed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from millstream.engine.data.records import dataclass
from millstream.server.journal.disk import Disk, read, write_whole
from millstream.server.journal.records import Record, encode, find, record_of, seed_of

FORMAT_VERSION = 2
MAGIC = b"MSTJ"
SUFFIX = ".journal"
_HEAD = struct.Struct("<4sI16sqqqI")  # magic, version, identity, base, base and bytes of the segment before, check of its last record
_CHECK = struct.Struct("<I")
HEADER_BYTES = _HEAD.size + _CHECK.size


class NoHeader(Exception):
    """A file that does not begin as a segment does: damaged, or too short."""


class OtherVersion(Exception):
    """A segment of another format."""

    def __init__(self, version: int) -> None:
        super().__init__(f"format {version}")
        self.version = version


@dataclass(frozen=True, slots=True)
class Ending:
    """Where a segment ended: its base, its bytes, the check of its last record (of its header when it has none)."""

    base: int
    size: int
    check: int


NO_SEGMENT = Ending(-1, 0, 0)  # before the first one
LET_GO = Ending(-2, 0, 0)  # one that is not known any more: the checkpoint at this segment's base has what it led to
_SALVAGED_BASE = -3  # see `salvaged`


def salvaged(stands_at: int) -> Ending:
    """Return what the first segment names before it when a restart is to begin at a later checkpoint, as rows before that are lost."""
    return Ending(_SALVAGED_BASE, stands_at, 0)


@dataclass(frozen=True, slots=True)
class Header:
    """A segment's head. `check` is what its first record names as the check before."""

    identity: bytes
    base: int
    previous: Ending
    check: int


@dataclass(slots=True)
class Segment:
    """One file. `size` is how much of it is known to be good; `last_us` the processing time of its last record.

    `check` is that of its last record; `previous` is how the segment before it ended.
    `seed` is that of the journal's identity. `has_data` when more than definitions came.
    """

    path: Path
    base: int
    size: int
    last_us: int = 0
    end: int = 0
    check: int = 0
    previous: Ending = NO_SEGMENT
    seed: int = 0
    has_data: bool = False

    @property
    def ending(self) -> Ending:
        """Where the segment ends now."""
        return Ending(self.base, self.size, self.check)

    @property
    def stands_at(self) -> int:
        """The arrival number at which a replay begins that begins with this segment."""
        return self.previous.size if self.previous.base == _SALVAGED_BASE else self.base

    def records(self, disk: Disk) -> Iterator[Record]:
        """Yield the records that are known to be good."""
        yield from records_of(read(disk, self.path, self.size), self.seed)


def records_of(content: bytes, seed: int) -> Iterator[Record]:
    """Yield the records of a file's first bytes, which are known to be good."""
    view = memoryview(content)
    at = HEADER_BYTES
    while at < len(view):
        found = find(view, at, seed)
        at = found.stop
        yield record_of(view, found)


def segment_path(directory: Path, base: int) -> Path:
    """Return the file of the segment that begins at an arrival number."""
    return directory / f"{base:020d}{SUFFIX}"


def base_of(name: str) -> int | None:
    """Return the arrival number in a segment's name; None when it is not the name of one."""
    stem = name.removesuffix(SUFFIX)
    return int(stem) if name.endswith(SUFFIX) and len(stem) == 20 and stem.isascii() and stem.isdigit() else None


def create_segment(
    disk: Disk, directory: Path, identity: bytes, base: int, previous: Ending, records: Sequence[Record] = ()
) -> tuple[Segment, int]:
    """Make a new segment that begins with some records; returns it with its open file. It has its name once the disk has it."""
    path = segment_path(directory, base)
    if disk.exists(path):
        raise FileExistsError(f"{path} is there already")
    header, check = header_bytes(identity, base, previous)
    seed = seed_of(identity)
    parts = [header]
    for record in records:
        made, check = encode(record, seed, check)
        parts += made
    file = write_whole(disk, path, parts, keep_open=True)
    assert file is not None
    return Segment(path, base, sum(len(p) for p in parts), end=base, check=check, previous=previous, seed=seed), file


def header_bytes(identity: bytes, base: int, previous: Ending) -> tuple[bytes, int]:
    """Return a segment's head and its check."""
    head = _HEAD.pack(MAGIC, FORMAT_VERSION, identity, base, previous.base, previous.size, previous.check)
    check = zlib.crc32(head)
    return head + _CHECK.pack(check), check


def read_header(content: bytes | memoryview) -> Header:
    """Return a segment's head. NoHeader when it is damaged or cut, OtherVersion when this server does not read it."""
    if bytes(content[:4]) != MAGIC or len(content) < 8:
        raise NoHeader
    version = int.from_bytes(content[4:8], "little")
    ours = MAGIC + FORMAT_VERSION.to_bytes(4, "little")
    check = int.from_bytes(content[_HEAD.size : HEADER_BYTES], "little")
    if len(content) < HEADER_BYTES or zlib.crc32(content[8 : _HEAD.size], zlib.crc32(ours)) != check:
        raise NoHeader if version == FORMAT_VERSION else OtherVersion(version)
    if version != FORMAT_VERSION:  # the rest is as this version writes it, so the number itself is damaged
        raise NoHeader
    _, _, identity, base, *previous = _HEAD.unpack_from(content, 0)
    return Header(identity, base, Ending(*previous), check)
