"""Publishing to one stream: rows out within credit, acks in."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millstream.client import data as conversion
from millstream.client.errors import MillstreamError
from millstream.client.wire import Wire
from millstream.protocol import limits
from millstream.protocol.batches import BatchEncoder, encode_schema
from millstream.protocol.messages import (
    Ack,
    ChannelClosed,
    ChannelOpened,
    ChannelSchema,
    CloseChannel,
    Message,
    OpenChannel,
    Row,
    Rows,
    Train,
)
from millstream.protocol.types import Column, parse_schema
from millstream.protocol.version import PRODUCERS_SINCE

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Rejection:
    """A row that was not accepted: its index in what was published, and why."""

    index: int
    reason: str


@dataclass(slots=True)
class Acknowledgement:
    """What the server promised: `accepted` rows, `rejected` ones with reasons, and the `position` of the last accepted row.

    `rejected_rows` counts all rejected rows; `rejected` lists the first of them.
    """

    accepted: int = 0
    rejected_rows: int = 0
    rejected: list[Rejection] = field(default_factory=list)
    position: int | None = None
    durability: str = "none"


class Publisher:
    """One channel to a stream. `send` waits for credit only; `flush` waits for the acks and returns them summed up.

    Get one from `AsyncClient.publisher`. With a `name` the server takes each of its sends once (docs/client.md).
    Sends of several tasks do not mix: each takes its turn.
    """

    def __init__(self, wire: Wire, stream: str, name: str | None = None) -> None:
        self.stream = stream
        self.name = name
        self.last: int | None = None
        """Of a named publisher, the number of the last send that the server has taken, also over earlier connections; 0 for none."""
        self.position: bytes | None = None
        """The position that came with it."""
        self._number_sent = 0
        self._numbered: dict[int, tuple[int, bytes | None]] = {}  # message number -> number and position of a send that is not acked
        self.columns: list[Column] = []
        self._wire = wire
        self._channel = 0
        self._rows_credit = 1
        self._shaper = conversion.Shaper([])
        self._rows_shaper = conversion.RowShaper([])
        self._encoder: BatchEncoder | None = None
        self._ack = Acknowledgement()
        self._sent_rows = 0  # since the last flush
        self._first_rows: dict[int, int] = {}  # message number -> index of its first row since the last flush
        self._acked_through = 0
        self._sent_through = 0
        self._changed = asyncio.Event()  # set when credit or an ack arrives, or the channel ends
        self._end: MillstreamError | None = None
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        """Open the channel; MillstreamError if the stream does not exist or may not be written."""
        if self.name is not None and (self._wire.protocol.version or 0) < PRODUCERS_SINCE:
            raise MillstreamError("version", "this server is of a release that knows no named publishers", "install the same release there")
        await self._wire.request(lambda request: OpenChannel(request, self.stream, self.name), self._opened)

    def _opened(self, answer: ChannelOpened) -> None:
        self._channel = answer.channel
        self._rows_credit = answer.rows_credit
        self._ack.durability = answer.durability
        self.last, self.position = answer.last, answer.position
        self._number_sent = answer.last or 0
        try:
            self.columns = parse_schema(answer.schema)
            self._shaper = conversion.Shaper(self.columns)
            self._rows_shaper = conversion.RowShaper(self.columns)
        except ValueError as error:
            self._end = MillstreamError("protocol", f"the server sent a schema that cannot be read: {error}")
        self._wire.own_channel(answer.channel, self)

    # --- sending ---

    async def send(self, data: Any, *, position: bytes | None = None, number: int | None = None) -> int:
        """Send rows or columns (as `AsyncClient.publish` takes them); returns their number. Waits while there is no credit.

        Each send of a named publisher has a number: the one after the last, or `number`. One that the server has taken before is acked and
        not taken again. The server keeps `position` (up to 1 KiB) with the rows. Such a send goes in one message, so it is taken whole;
        MillstreamError (`limit`) when it does not fit one.
        """
        async with self._turn:
            if self.name is not None:
                return await self._send_numbered(data, position, self._number_sent + 1 if number is None else number)
            if position is not None or number is not None:
                raise MillstreamError("invalid", "position and number are those of a named publisher", 'give publisher(…, name="…")')
            if conversion.is_rows(data):
                return await self._send_rows(data)
            return await self._send_table(conversion.to_table(data))

    async def _send_numbered(self, data: Any, position: bytes | None, number: int) -> int:
        sequence: dict[str, Any] = {"sequence": number, "position": position}
        message: Rows | Train
        if conversion.is_rows(data):
            values = [self._rows_shaper.shaped(row) for row in data]
            rows = self._whole(len(values), limits.MESSAGE_ROWS_MAX)
            await self._credit()
            message = Rows(self._channel, self._number, values, **sequence)
        else:
            table = self._shaper.shaped(conversion.to_table(data)).combine_chunks()
            rows = self._whole(int(table.num_rows), limits.TRAIN_ROWS_MAX)
            encoder = self._encoder_for(table.schema)
            await self._credit()
            if rows:
                (batch,) = table.to_batches()
                message = Train(self._channel, self._number, rows, encoder.encode(batch), **sequence)
            else:
                message = Rows(self._channel, self._number, [], **sequence)
        self._say(message, rows)
        self._number_sent = number
        self._numbered[self._sent_through] = number, position
        return rows

    @staticmethod
    def _whole(rows: int, rows_max: int) -> int:
        if rows > rows_max:
            raise MillstreamError(
                "limit", f"a send of a named publisher has {rows} rows, one message holds {rows_max}", "send less at once"
            )
        return rows

    async def send_row(self, values: list[Any]) -> None:
        """Send one row, in the order of `columns`, as a frame of its own. Values are as the wire has them: instants in microseconds."""
        async with self._turn:
            await self._credit()
            self._say(Row(self._channel, self._number, values), 1)

    async def _send_rows(self, rows: Any) -> int:
        count = 0
        for group in conversion.row_groups(rows, self._rows_credit, self._rows_shaper):
            await self._credit()
            self._say(Rows(self._channel, self._number, group), len(group))
            count += len(group)
        return count

    async def _send_table(self, table: pa.Table) -> int:
        table = self._shaper.shaped(table)
        encoder = self._encoder_for(table.schema)
        for batch in conversion.trains_of(table, self._rows_credit):
            await self._credit()
            self._say(Train(self._channel, self._number, batch.num_rows, encoder.encode(batch)), batch.num_rows)
        return int(table.num_rows)

    def _encoder_for(self, schema: pa.Schema) -> BatchEncoder:
        if self._encoder is None or not self._encoder.schema.equals(schema):
            self._check()
            self._wire.send(ChannelSchema(self._channel, encode_schema(schema)))
            self._encoder = BatchEncoder(schema)
        return self._encoder

    @property
    def _number(self) -> int:
        return self._sent_through + 1

    def _say(self, message: Message, rows: int) -> None:
        self._wire.send(message)
        self._sent_through += 1
        self._first_rows[self._sent_through] = self._sent_rows
        self._sent_rows += rows

    async def _credit(self) -> None:
        """Wait until a frame may be sent."""
        await self._wire.drain()
        while True:
            self._check()
            window = self._wire.protocol.channel_window(self._channel)
            if window is not None and window.is_open:
                return
            self._changed.clear()
            await self._changed.wait()

    def _check(self) -> None:
        if self._end is not None:
            raise self._end

    # --- acks ---

    async def flush(self) -> Acknowledgement:
        """Wait until everything sent is settled; return what became of the rows since the last flush."""
        async with self._turn:
            while self._acked_through < self._sent_through:
                self._check()
                self._changed.clear()
                await self._changed.wait()
            ack, self._ack = self._ack, Acknowledgement(durability=self._ack.durability, position=self._ack.position)
            self._sent_rows = 0
            self._first_rows.clear()
            return ack

    async def close(self) -> None:
        """Close the channel, after what was sent is settled. The stream goes on."""
        if self._end is not None:
            return
        async with self._turn:
            self._wire.send(CloseChannel(self._channel))
            while self._end is None:
                self._changed.clear()
                await self._changed.wait()

    def abandon(self) -> None:
        """Close the channel without waiting; what was sent and not acked remains unknown."""
        if self._end is None and self._wire.error is None:
            self._wire.send(CloseChannel(self._channel))

    def heard(self, message: Message, frame_bytes: int) -> None:
        """Take an ack, credit, or the end of the channel."""
        match message:
            case Ack():
                self._take_ack(message)
            case ChannelClosed():
                hint = "open a new one" if message.code == "closed" else None
                self._end = MillstreamError(message.code, message.message or f"publishing to {self.stream} has been closed", hint)
            case _:
                pass  # credit is in the protocol's books already
        self._changed.set()

    def _take_ack(self, ack: Ack) -> None:
        self._ack.accepted += ack.accepted
        self._ack.rejected_rows += ack.rejected_rows
        if ack.position is not None:
            self._ack.position = ack.position
        for entry in ack.rejected:
            match entry:
                case [int(number), int(index), reason]:
                    self._ack.rejected.append(Rejection(self._first_rows.get(number, 0) + index, str(reason)))
                case _:
                    self._end = MillstreamError("protocol", f"the server sent a rejection that cannot be read: {entry!r}")
        for message in range(self._acked_through + 1, ack.through + 1) if self._numbered else ():
            number, position = self._numbered.pop(message)
            if self.last is None or number > self.last:
                self.last, self.position = number, position
        self._acked_through = ack.through

    def lost(self, error: MillstreamError) -> None:
        """The connection is gone: what is not acked was perhaps not accepted."""
        self._end = self._end or error
        self._changed.set()

    async def __aenter__(self) -> Publisher:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
