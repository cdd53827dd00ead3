"""One record of the journal: rows of one stream, a control item of it, or its definition, with arrival numbers [lo, hi).

A record is a head, then `meta` (msgpack, perhaps empty), then for rows the Arrow IPC message of one batch. The head has a check of its
own, so that its lengths can be believed before the body is looked at; it holds the body's check, and the check of the head before it,
so that a record that is missing in the middle is noticed. Every head begins with the same four bytes: behind damage the next whole
record can be found. Little endian throughout; checks are CRC-32.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import msgpack
import pyarrow as pa
from millstream.engine.data.arrow import arrow_schema, column_from_arrow, column_to_arrow
from millstream.engine.data.column import Column, null_column
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.server.errors import StoreError

ROWS, CONTROL, DEFINITION = 1, 2, 3
MAGIC = b"\xf7MSR"
# magic, check of what follows;
# body length, body check, check of the head before, bytes not yet on disk, stream, kind, lo, hi, now_us, meta length
_REST = struct.Struct("<IIIIIBqqqI")
_CHECKED_FROM = 8
HEAD_BYTES = _CHECKED_FROM + _REST.size
_BEHIND_MAX = (1 << 32) - 1


class Torn(Exception):
    """The bytes end before the record does. `head` is there when that much of it was."""

    def __init__(self, head: Head | None = None) -> None:
        super().__init__("the bytes end before the record does")
        self.head = head


class Corrupt(Exception):
    """The bytes are not those that were written. `head` is there when only the body is not."""

    def __init__(self, head: Head | None = None) -> None:
        super().__init__("the bytes are not those that were written")
        self.head = head


@dataclass(frozen=True, slots=True)
class Record:
    """`stream` is the stream's number in the catalogue; `now_us` the processing time at which it came. `data` is the Arrow message.

    `meta` of a control item are the arguments of `Ingress.control`; of rows that a query fed, `fed` says which query and from which row;
    `columns` is how many they have, where ALTER STREAM has added some; of those of a named publisher, `produced` has the name, the
    sequence number and its position; of a definition, `kind`, `name` and `statement` are those of the catalogue.
    """

    kind: int
    stream: int
    lo: int
    hi: int
    now_us: int
    meta: dict[str, Any] = field(default_factory=dict)
    data: Any = b""

    def columns(self, schema: Schema, added: int = 0) -> list[Column]:
        """Return the rows as columns of the stream, in memory of their own: aligned, and no whole segment is held for a few.

        `added` of the columns were not there when the stream was made: in rows that came without them they are NULL.
        StoreError when the rows are not of this schema.
        """
        came = schema.first(self.meta.get("columns", len(schema) - added))
        try:
            batch = pa.ipc.read_record_batch(pa.py_buffer(bytes(self.data)), arrow_schema(came))
            columns = [column_from_arrow(batch.column(i), f.type) for i, f in enumerate(came.fields)]
        except (pa.ArrowException, ValueError, IndexError, KeyError, TypeError, OSError) as error:
            message = f"the journal's rows {self.lo} to {self.hi - 1} are not of the stream that the catalogue defines ({error})"
            raise StoreError(message, hint="the catalogue is damaged or another's: docs/recovery.md") from error
        assert batch.num_rows == self.hi - self.lo
        return [*columns, *(null_column(f.type, batch.num_rows) for f in schema.fields[len(came) :])]


@dataclass(slots=True)
class Head:
    """The head of a record. `unsynced` is how many bytes before it were not known to be on disk when it was written."""

    check: int
    length: int
    body_check: int
    previous: int
    unsynced: int
    stream: int
    kind: int
    lo: int
    hi: int
    now_us: int
    meta_length: int

    @property
    def rows(self) -> int:
        """Rows in the body."""
        return self.hi - self.lo if self.kind == ROWS else 0

    @property
    def is_data(self) -> bool:
        """Whether it is more than a definition, which every segment begins with."""
        return self.kind != DEFINITION


@dataclass(slots=True)
class Found:
    """A record that is whole: it stands at `at`, the next one at `stop`."""

    at: int
    stop: int
    head: Head


def seed_of(identity: bytes) -> int:
    """Return the check that heads of a journal's records begin with."""
    return zlib.crc32(identity)


def rows_data(schema: Schema, columns: Sequence[Column]) -> Any:
    """Return the Arrow message of rows."""
    return pa.record_batch([column_to_arrow(c) for c in columns], schema=arrow_schema(schema)).serialize()


def definition_record(number: int, definition: Mapping[str, Any], at: int, now_us: int = 0) -> Record:
    """Return the record that says what a stream or table is: `kind`, `name` and `statement`."""
    return Record(DEFINITION, number, at, at, now_us, dict(definition))


def encode(record: Record, seed: int, previous: int, unsynced: int = 0) -> tuple[list[Any], int]:
    """Return the buffers of a record and the check of its head, which the next record names."""
    meta = msgpack.packb(record.meta) if record.meta else b""
    data = memoryview(record.data)
    body_check = zlib.crc32(data, zlib.crc32(meta))
    lengths = (len(meta) + len(data), body_check, previous, min(unsynced, _BEHIND_MAX))
    rest = _REST.pack(*lengths, record.stream, record.kind, record.lo, record.hi, record.now_us, len(meta))
    check = zlib.crc32(rest, seed)
    head = b"".join((MAGIC, check.to_bytes(4, "little"), rest, meta))
    return [head, data] if data else [head], check


def read_head(view: memoryview, at: int, seed: int) -> Head:
    """Return the head of the record at a place. Torn or Corrupt when there is none."""
    if len(view) - at < HEAD_BYTES:
        if bytes(view[at : at + len(MAGIC)]) != MAGIC[: len(view) - at]:
            raise Corrupt
        raise Torn
    check = int.from_bytes(view[at + len(MAGIC) : at + _CHECKED_FROM], "little")
    if view[at : at + len(MAGIC)] != MAGIC or zlib.crc32(view[at + _CHECKED_FROM : at + HEAD_BYTES], seed) != check:
        raise Corrupt
    head = Head(check, *_REST.unpack_from(view, at + _CHECKED_FROM))
    if head.kind not in (ROWS, CONTROL, DEFINITION) or head.meta_length > head.length:
        raise Corrupt
    return head


def find(view: memoryview, at: int, seed: int) -> Found:
    """Return the whole record at a place. Torn or Corrupt when there is none."""
    head = read_head(view, at, seed)
    stop = at + HEAD_BYTES + head.length
    if stop > len(view):
        raise Torn(head)
    if zlib.crc32(view[at + HEAD_BYTES : stop]) != head.body_check:
        raise Corrupt(head)
    return Found(at, stop, head)


def find_behind(content: bytes, at: int, seed: int) -> Iterator[Found]:
    """Yield the whole records behind a damaged place, wherever they stand."""
    view = memoryview(content)
    at = content.find(MAGIC, at)
    while at >= 0:
        try:
            found = find(view, at, seed)
        except (Torn, Corrupt):
            at = content.find(MAGIC, at + 1)
            continue
        yield found
        at = content.find(MAGIC, found.stop)


def record_of(view: memoryview, found: Found) -> Record:
    """Return a record that was found."""
    head = found.head
    start = found.at + HEAD_BYTES
    body = start + head.meta_length
    meta = msgpack.unpackb(view[start:body]) if head.meta_length else {}
    return Record(head.kind, head.stream, head.lo, head.hi, head.now_us, meta, view[body : found.stop])
