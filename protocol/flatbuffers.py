"""Just enough of the FlatBuffers layout to read the head of an Arrow record batch message before Arrow does.

An Arrow IPC message is: u32 0xFFFFFFFF, u32 length of the metadata, metadata (a FlatBuffers table `Message`), body.
Arrow's Message.fbs: version 0, header type 1 (3 is RecordBatch), header 2, body length 3. RecordBatch: rows 0, nodes 1,
buffers 2, compression 3. The numbers are field positions in a table's list of offsets (its vtable).
"""

from __future__ import annotations

from struct import error as StructError  # noqa: N812
from struct import unpack_from
from typing import TYPE_CHECKING, NamedTuple

from millstream.protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    from millstream.protocol.messages import BytesLike

_CONTINUATION = 0xFFFFFFFF
_RECORD_BATCH = 3


class BatchHead(NamedTuple):
    """What a record batch message says of itself. `header_at`: where in the payload the table `RecordBatch` stands; `body_at`: the body."""

    rows: int
    is_compressed: bool
    header_at: int = 0
    body_at: int = 0


class BatchPlaces(NamedTuple):
    """Where in a record batch message the numbers stand that differ from batch to batch: nodes and buffers are pairs of i64 in a row."""

    rows: int
    body_bytes: int
    nodes: int
    node_count: int
    buffers: int
    buffer_count: int
    body: int


def read_batch_head(payload: BytesLike) -> BatchHead:
    """Return the head of a record batch message. RemoteProtocolError if it is none."""
    try:
        continuation, metadata_length = unpack_from("<II", payload, 0)
        if continuation != _CONTINUATION or not 8 <= metadata_length <= len(payload) - 8:
            raise RemoteProtocolError("payload is not an Arrow message")
        metadata = memoryview(payload)[8 : 8 + metadata_length]
        message = unpack_from("<I", metadata, 0)[0]
        type_at, header_at = _field(metadata, message, 1), _field(metadata, message, 2)
        if type_at is None or header_at is None or metadata[type_at] != _RECORD_BATCH:
            raise RemoteProtocolError("payload is an Arrow message, but not a record batch")
        header = header_at + unpack_from("<I", metadata, header_at)[0]
        rows_at = _field(metadata, header, 0)
        rows = unpack_from("<q", metadata, rows_at)[0] if rows_at is not None else 0
        return BatchHead(rows, _field(metadata, header, 3) is not None, 8 + header, 8 + metadata_length)
    except (StructError, IndexError) as error:
        raise RemoteProtocolError("payload is not an Arrow message: an offset leads outside") from error


def read_batch_places(payload: BytesLike) -> BatchPlaces:
    """Return the places in the message of a batch that has rows, so that nothing is left out as its default. RemoteProtocolError else."""
    head = read_batch_head(payload)
    try:
        message = 8 + unpack_from("<I", payload, 8)[0]
        metadata = memoryview(payload)[: head.body_at]
        rows, body_bytes = _field(metadata, head.header_at, 0), _field(metadata, message, 3)
        if rows is None or body_bytes is None:
            raise RemoteProtocolError("payload is a record batch without rows")
        return BatchPlaces(rows, body_bytes, *_vector(metadata, head, 1), *_vector(metadata, head, 2), head.body_at)
    except (StructError, IndexError) as error:
        raise RemoteProtocolError("payload is not an Arrow message: an offset leads outside") from error


def _vector(metadata: memoryview, head: BatchHead, position: int) -> tuple[int, int]:
    """Return where the items of a vector of pairs stand, and how many there are, within the metadata."""
    at = _field(metadata, head.header_at, position)
    if at is None:
        return 0, 0
    vector = at + unpack_from("<I", metadata, at)[0]
    count = unpack_from("<I", metadata, vector)[0]
    if vector + 4 + 16 * count > head.body_at:
        raise RemoteProtocolError("payload is not an Arrow message: an offset leads outside")
    return vector + 4, count


def _field(metadata: memoryview, table: int, position: int) -> int | None:
    """Return where field `position` of the table at `table` is, or None if it has its default."""
    vtable = table - unpack_from("<i", metadata, table)[0]
    if vtable < 0:
        raise RemoteProtocolError("payload is not an Arrow message: an offset leads outside")
    entry = 4 + 2 * position
    if entry + 2 > unpack_from("<H", metadata, vtable)[0]:
        return None
    offset = unpack_from("<H", metadata, vtable + entry)[0]
    return table + offset if offset else None
