"""One record of the journal: rows of one stream, or a control item of it, with the arrival numbers [lo, hi) they were given.

A record is a head, then `meta` (msgpack, perhaps empty), then for rows the Arrow IPC message of one batch. The head has the length of what
follows it and a CRC-32 over the rest of the head and all that follows. Little endian throughout.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgpack
import pyarrow as pa
from millstream.engine.data.arrow import arrow_schema, column_from_arrow, column_to_arrow
from millstream.engine.data.column import Column
from millstream.engine.data.schema import Schema

ROWS, CONTROL = 1, 2
_HEAD = struct.Struct("<IIBIqqqI")  # body length, crc | kind, stream, lo, hi, now_us, meta length
_CHECKED_FROM = 8
HEAD_BYTES = _HEAD.size
BODY_BYTES_MAX = 1 << 31


class Torn(Exception):
    """The bytes end before the record does."""


class Corrupt(Exception):
    """The record is whole and its checksum is not that of its bytes, or its head makes no sense."""


@dataclass(frozen=True, slots=True)
class Record:
    """`stream` is the stream's number in the catalogue; `now_us` the processing time at which it came. `data` is the Arrow message.

    `meta` of a control item are the arguments of `Ingress.control`; of rows that a query fed, `fed` says which query and from which row.
    """

    kind: int
    stream: int
    lo: int
    hi: int
    now_us: int
    meta: dict[str, Any] = field(default_factory=dict)
    data: Any = b""

    def columns(self, schema: Schema) -> list[Column]:
        """Return the rows as columns of the stream, in memory of their own: aligned, and no whole segment is held for a few."""
        batch = pa.ipc.read_record_batch(pa.py_buffer(bytes(self.data)), arrow_schema(schema))
        return [column_from_arrow(batch.column(i), f.type) for i, f in enumerate(schema.fields)]


def rows_data(schema: Schema, columns: Sequence[Column]) -> Any:
    """Return the Arrow message of rows."""
    return pa.record_batch([column_to_arrow(c) for c in columns], schema=arrow_schema(schema)).serialize()


def encode(record: Record) -> bytes:
    """Return the bytes of a record."""
    meta = msgpack.packb(record.meta) if record.meta else b""
    body = meta + memoryview(record.data) if record.data else meta
    rest = (record.kind, record.stream, record.lo, record.hi, record.now_us, len(meta))
    head = _HEAD.pack(len(body), 0, *rest)
    crc = zlib.crc32(body, zlib.crc32(head[_CHECKED_FROM:]))
    return b"".join((_HEAD.pack(len(body), crc, *rest), body))


def decode(view: memoryview, at: int) -> tuple[Record, int]:
    """Return the record at a place and the place after it. Torn or Corrupt when there is none."""
    if len(view) - at < HEAD_BYTES:
        raise Torn
    length, crc, kind, stream, lo, hi, now_us, meta_length = _HEAD.unpack_from(view, at)
    start, stop = at + HEAD_BYTES, at + HEAD_BYTES + length
    if stop > len(view):
        raise Torn
    body = view[start:stop]
    if zlib.crc32(body, zlib.crc32(view[at + _CHECKED_FROM : start])) != crc or kind not in (ROWS, CONTROL) or meta_length > length:
        raise Corrupt
    meta = msgpack.unpackb(body[:meta_length]) if meta_length else {}
    return Record(kind, stream, lo, hi, now_us, meta, body[meta_length:]), stop
