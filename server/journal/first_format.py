"""The journal's first format, of version 0.1.0, which is only read: to convert a data directory, and to salvage one that is damaged.

Its records have one check over head and body, so a damaged length cannot be told from a torn end by itself: whole records behind it can.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator

import msgpack
from millstream.engine.data.records import dataclass
from millstream.server.journal.records import CONTROL, ROWS, Record

FORMAT_VERSION = 1
HEADER = b"MSTJ" + FORMAT_VERSION.to_bytes(4, "little")
CHECKPOINT_HEADER = b"MSTC" + FORMAT_VERSION.to_bytes(4, "little")
_HEAD = struct.Struct("<IIBIqqqI")  # body length, check | kind, stream, lo, hi, now_us, meta length
_CHECKED_FROM = 8
# Of a head: kind, and the upper bytes of stream number and arrival numbers, which are zero in any journal that was ever written.
_LIKELY_HEAD = re.compile(rb"(?s)(?=[\x01\x02]..\x00\x00.{6}\x00\x00.{6}\x00\x00)")


@dataclass(frozen=True, slots=True)
class OldRecord:
    """A whole record and where it stands."""

    at: int
    stop: int
    record: Record


def is_first_format(content: bytes | memoryview) -> bool:
    """Whether a file is a segment of this format."""
    return bytes(content[: len(HEADER)]) == HEADER


def record_at(view: memoryview, at: int) -> OldRecord | None:
    """Return the whole record at a place, None when there is none."""
    if len(view) - at < _HEAD.size:
        return None
    length, check, kind, stream, lo, hi, now_us, meta_length = _HEAD.unpack_from(view, at)
    start, stop = at + _HEAD.size, at + _HEAD.size + length
    if stop > len(view) or kind not in (ROWS, CONTROL) or meta_length > length:
        return None
    body = view[start:stop]
    if zlib.crc32(body, zlib.crc32(view[at + _CHECKED_FROM : start])) != check:
        return None
    meta = msgpack.unpackb(body[:meta_length]) if meta_length else {}
    return OldRecord(at, stop, Record(kind, stream, lo, hi, now_us, meta, body[meta_length:]))


def records(content: bytes) -> Iterator[OldRecord]:
    """Yield the records of a segment up to the first that is not whole."""
    view, at = memoryview(content), len(HEADER)
    while at < len(content):
        found = record_at(view, at)
        if found is None:
            return
        at = found.stop
        yield found


def records_behind(content: bytes, at: int) -> Iterator[OldRecord]:
    """Yield the whole records behind a damaged place."""
    view = memoryview(content)
    likely = _LIKELY_HEAD.finditer(content, at + _CHECKED_FROM)
    upto = at
    for match in likely:
        start = match.start() - _CHECKED_FROM
        found = record_at(view, start) if start >= upto else None
        if found is not None:
            upto = found.stop
            yield found


def checkpoint_body(content: bytes) -> bytes | None:
    """Return the body of a checkpoint of this format, None when it is damaged or no such checkpoint."""
    body = content[12:]
    whole = content[:8] == CHECKPOINT_HEADER and zlib.crc32(body).to_bytes(4, "little") == content[8:12]
    return body if whole else None
