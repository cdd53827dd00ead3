"""Following the journal of a running server: the records of one stream, a bounded piece at a time, from where the last piece ended.

A follower reads files that are written meanwhile, up to a size that the journal names. Records of other streams are passed over without
being read. So it takes no lock of the journal's while it reads, and holds no more than one record.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from millstream.server.journal.disk import Disk
from millstream.server.journal.records import DEFINITION, HEAD_BYTES, Found, Record, read_head, record_of
from millstream.server.journal.segments import HEADER_BYTES, Segment


class JournalPlace(NamedTuple):
    """A place between two records: the base of a segment, and the byte there."""

    base: int = 0
    at: int = HEADER_BYTES


Parts = Sequence[tuple[Segment, int]]


def follow(disk: Disk, parts: Parts, stream: int, place: JournalPlace, lo: int) -> Iterator[tuple[JournalPlace, JournalPlace, Record]]:
    """Yield the records of a stream from the arrival number `lo` on, behind a place, each with the places before and after it.

    `parts` are the journal's segments and how much of each may be read (`Journal.safe_parts`). Raises OSError, and Torn or Corrupt when the
    file has changed under the server.
    """
    for number, (segment, size) in enumerate(parts):
        following = parts[number + 1][0].base if number + 1 < len(parts) else None
        if segment.base < place.base or (following is not None and following <= lo):
            continue
        start = place.at if segment.base == place.base else HEADER_BYTES
        if start < size:
            yield from _records(disk, segment, start, size, stream, lo)


def _records(disk: Disk, segment: Segment, at: int, size: int, stream: int, lo: int) -> Iterator[tuple[JournalPlace, JournalPlace, Record]]:
    with disk.open_read(segment.path) as file:
        file.seek(at)
        while at + HEAD_BYTES <= size:
            start = file.read(HEAD_BYTES)
            head = read_head(memoryview(start), 0, segment.seed)
            stop = at + HEAD_BYTES + head.length
            if stop > size:
                return
            if head.stream != stream or head.kind == DEFINITION or head.lo < lo:
                file.seek(stop)
            else:
                whole = memoryview(start + file.read(head.length))
                _check(whole, head.body_check, segment)
                yield JournalPlace(segment.base, at), JournalPlace(segment.base, stop), record_of(whole, Found(0, len(whole), head))
            at = stop


def _check(whole: memoryview, body_check: int, segment: Segment) -> None:
    if zlib.crc32(whole[HEAD_BYTES:]) != body_check:
        raise OSError(f"{segment.path}: a record is not what was written")


def end_of(parts: Parts) -> JournalPlace:
    """Return the place behind all that may be read."""
    segment, size = parts[-1]
    return JournalPlace(segment.base, size)
