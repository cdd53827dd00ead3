"""The rows of a request's body, into a stream: JSON lines, CSV or Arrow, in pieces cut anywhere."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from millstream.client.connection import AsyncClient
from millstream.client.errors import MillstreamError
from millstream.client.gateway.http import limits
from millstream.client.gateway.http.connections import Held
from millstream.client.inputs import CsvInput, JsonLinesInput
from millstream.client.publisher import Publisher
from millstream.protocol.batches import BatchDecoder, decode_schema
from millstream.protocol.errors import RemoteProtocolError
from millstream.protocol.flatbuffers import read_batch_head

JSON_LINES = "application/x-ndjson"
CSV = "text/csv"
ARROW = "application/vnd.apache.arrow.stream"
KINDS = {JSON_LINES: "json", "application/jsonl": "json", CSV: "csv", ARROW: "arrow"}


@dataclass
class RefusedRow:
    """A row that was not accepted: its line in the body (from 1), or its row (from 0) in an Arrow stream, and why."""

    reason: str
    line: int | None = None
    row: int | None = None


@dataclass
class Published:
    """What became of the rows of a body. `refused` lists the first of `refused_rows`; `position` is that of the last accepted row.

    `last` is the number of the last send that the server has taken from a named publisher.
    """

    accepted: int
    refused_rows: int
    refused: list[RefusedRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    position: int | None = None
    durability: str = "none"
    last: int | None = None


class Body:
    """A request's body: unpacked, counted and bounded."""

    def __init__(self, chunks: AsyncIterator[bytes], encoding: str, held: Held) -> None:
        if encoding not in ("", "identity", "gzip"):
            raise MillstreamError("media", f"the encoding {encoding[:40]!r} is not taken", "send gzip, or the body as it is")
        self._chunks = chunks
        self._inflate = zlib.decompressobj(31) if encoding == "gzip" else None
        self._held = held
        self._bytes = self._taken = 0

    async def pieces(self, *, is_kept: bool = False) -> AsyncIterator[bytes]:
        """Yield the body, a bounded piece at a time. MillstreamError (`limit`) when it is too large, (`data`) when it is no gzip.

        With `is_kept` its bytes count as held until `done`, and MillstreamError (`overloaded`) comes when there are too many of all peers.
        """
        async for chunk in self._chunks:
            waiting = chunk
            while waiting:
                piece, waiting = (waiting, b"") if self._inflate is None else self._inflated(waiting)
                self._bytes += len(piece)
                if self._bytes > limits.BODY_BYTES_MAX:
                    raise MillstreamError("limit", f"a body has at most {limits.BODY_BYTES_MAX} bytes", "send the rows in several requests")
                if is_kept:
                    self._held.take(len(piece))
                    self._taken += len(piece)
                if piece:
                    yield piece
        if self._inflate is not None and not self._inflate.eof:
            raise MillstreamError("data", "the body ends before its gzip stream does")

    def _inflated(self, data: bytes) -> tuple[bytes, bytes]:
        assert self._inflate is not None
        if self._inflate.eof:
            raise MillstreamError("data", "bytes follow the body's gzip stream")
        try:
            piece = self._inflate.decompress(data, limits.INFLATED_AT_ONCE)
        except zlib.error as error:
            raise MillstreamError("data", f"the body is not gzip: {error}") from error
        return piece, self._inflate.unconsumed_tail or self._inflate.unused_data

    async def whole(self) -> bytes:
        """Return the body, which counts as held until `done`."""
        return b"".join([piece async for piece in self.pieces(is_kept=True)])

    def done(self) -> None:
        """Nothing of the body is held any more."""
        self._held.give(self._taken)
        self._taken = 0


async def publish(client: AsyncClient, stream: str, kind: str, body: Body, name: str | None, number: int | None) -> Published:
    """Publish a body's rows and return once all are settled. MillstreamError when the stream or the body as a whole is refused.

    With the `name` of a publisher the rows go in one send with that `number`, which the server takes once.
    """
    publisher = await client.publisher(stream, name)
    try:
        sending = _Sending(publisher, number)
        await (sending.arrow(body) if kind == "arrow" else sending.text(kind, body))
        return await sending.settled()
    finally:
        publisher.abandon()
        body.done()


class _Sending:
    """Rows on their way. A named publisher's are gathered, others go as they come."""

    def __init__(self, publisher: Publisher, number: int | None) -> None:
        self._publisher = publisher
        self._number = number
        self._gathered: list[Any] = []
        self._lines: array[int] = array("q")  # of each row that was sent, its line
        self._result = Published(0, 0)
        self._rows = 0
        self._is_text = False

    def _count(self, rows: int) -> None:
        self._rows += rows
        if self._rows > limits.BODY_ROWS_MAX:
            raise MillstreamError("limit", f"a body has at most {limits.BODY_ROWS_MAX} rows", "send them in several requests")

    async def text(self, kind: str, body: Body) -> None:
        self._is_text = True
        reader = CsvInput(self._publisher.columns) if kind == "csv" else JsonLinesInput(self._publisher.columns)
        since = 0  # bytes since the last whole row
        async for piece in body.pieces(is_kept=self._number is not None):
            since += len(piece)
            if await self._fed(reader, piece):
                since = 0
            elif since > limits.ROW_BYTES_MAX:
                raise MillstreamError("limit", f"a row has at most {limits.ROW_BYTES_MAX} bytes; this one does not end")
        await self._fed(reader, b"", last=True)
        if self._number is not None:
            await self._publisher.send(self._gathered, number=self._number)

    async def _fed(self, reader: CsvInput | JsonLinesInput, piece: bytes, last: bool = False) -> bool:
        read = reader.feed(piece, last=last)
        self._result.notes += read.notes[: limits.REJECTIONS_TOLD_MAX - len(self._result.notes)]
        for line, reason in read.refused:
            self._refuse(RefusedRow(reason, line=line))
        self._count(len(read.rows) + len(read.refused))
        self._lines.extend(read.lines)
        if self._number is not None:
            self._gathered += read.rows
        elif read.rows:
            await self._publisher.send(read.rows)
        return bool(read.rows or read.refused)

    async def arrow(self, body: Body) -> None:
        import pyarrow as pa

        try:
            data = await body.whole()
            decoder: BatchDecoder | None = None
            batches = []
            for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(data)):
                payload = memoryview(message.serialize())
                if decoder is None:
                    decoder = BatchDecoder(decode_schema(payload))
                    continue
                batch = decoder.decode(payload, read_batch_head(payload).rows)
                self._count(batch.num_rows)
                if self._number is None:
                    await self._publisher.send(batch)
                else:
                    batches.append(batch)
            if decoder is None:
                raise MillstreamError("data", "the body is not an Arrow stream: it has no schema")
            if self._number is not None:
                await self._publisher.send(pa.Table.from_batches(batches, decoder.schema), number=self._number)
        except (RemoteProtocolError, pa.ArrowException, OSError) as error:
            raise MillstreamError("data", f"the body is not an Arrow stream that is taken: {str(error).partition(chr(10))[0]}") from error

    def _refuse(self, row: RefusedRow) -> None:
        self._result.refused_rows += 1
        if len(self._result.refused) < limits.REJECTIONS_TOLD_MAX:
            self._result.refused.append(row)

    async def settled(self) -> Published:
        """Wait until the server has judged all rows."""
        ack = await self._publisher.flush()
        result = self._result
        for one in ack.rejected[: max(0, limits.REJECTIONS_TOLD_MAX - len(result.refused))]:
            place = {"line": self._lines[one.index]} if self._is_text else {"row": one.index}
            result.refused.append(RefusedRow(one.reason, **place))
        result.refused.sort(key=lambda row: (row.line or 0, row.row or 0))
        result.accepted, result.position, result.durability = ack.accepted, ack.position, ack.durability
        result.refused_rows += ack.rejected_rows
        result.last = self._publisher.last
        return result
