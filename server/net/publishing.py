"""One publisher's channel: takes its trains and rows in, acks once a read, grants credit as memory becomes free.

An ack says how many rows were accepted and lists those that were not, each with its index and the reason. Nothing is acked before it
stands in the stream's log. Credit is held back while the stream's readers are behind (`Intake.is_pressed`); the application asks again.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from millstream.engine.data.column import Column
from millstream.engine.data.schema import OnError
from millstream.engine.ingest.quick import PlainColumns
from millstream.protocol.batches import BatchDecoder
from millstream.protocol.connection import RowsChunk
from millstream.protocol.errors import RemoteProtocolError
from millstream.protocol.flow import Refill
from millstream.protocol.limits import REJECTIONS_LISTED_MAX
from millstream.protocol.messages import Ack, ChannelClosed, Credit, Notice, Rows, Train
from millstream.protocol.plain_batches import PlainReader, width_of
from millstream.server.config import Config
from millstream.server.errors import Replaced, StorageError
from millstream.server.host.intake import PublishOutcome, StreamIntake
from millstream.server.net.turn import LoopServices, TrainRun, Turn

if TYPE_CHECKING:
    from millstream.server.host.producers import Produced, Producer

SHED_EVERY_NS = 1_000_000_000  # at most so often, the first time at once
SLOWED_AFTER_NS = 1_000_000_000  # a shorter wait is how flow control works, and no news
SLOWED_EVERY_NS = 10_000_000_000


class Publisher(Protocol):
    """What a channel needs of the connection it belongs to."""

    closed: bool
    channels: dict[int, PublishingChannel]
    waiting_bytes: Callable[[], int]
    rows_refused: int

    @property
    def is_held_back(self) -> bool:
        """Whether it is not read from for now."""
        ...

    def send(self, message: Any) -> None:
        """Send a message; nothing when the connection is gone."""
        ...

    def fail(self, error: Exception) -> None:
        """End the connection after a fault of ours."""
        ...


class PublishingServices(LoopServices, Protocol):
    """What a channel needs of the server."""

    config: Config
    turn: Turn

    def now_ns(self) -> int:
        """Return the loop's monotonic clock."""
        ...

    def hold(self, channel: PublishingChannel) -> None:
        """Note a channel whose credit is held back, to ask it again soon."""
        ...


class PublishingChannel:
    """An open channel of one session into one stream or table."""

    def __init__(
        self, session: Publisher, server: PublishingServices, number: int, intake: StreamIntake, producer: str | None = None
    ) -> None:
        config = server.config
        self.session = session
        self._server = server
        self.number = number
        self.intake = intake
        self.first_credit = (config.publish_rows_max, config.publish_bytes_max)
        self._refill = Refill(*self.first_credit)
        self._decoder: BatchDecoder | None = None
        self._through = 0
        self._acked = 0
        self._accepted = 0
        self._rejected: list[list[Any]] = []
        self._rejected_rows = 0
        self._position: int | None = None
        self._held_rows = 0
        self._held_bytes = 0
        self._unsafe = 0  # acks that wait for the disk
        self._place: int | None = None  # up to which the disk must have the journal before what is not acked yet can be
        self._last_place = 0
        self._failures = 0  # of the disk, when the first of those acks began to wait
        self._is_lost = False  # rows behind an ack that waited were not kept
        self._refusal: StorageError | None = None
        self._ended = False
        self._shed_unsafe: list[Mapping[str, int]] = []  # of rows that wait for it, filled when they enter
        self._when_acked: Callable[[], None] | None = None
        self._reader: PlainReader | None = None
        self._plain: PlainColumns | None = None
        self._told = FlowNotices(intake.name)
        self._name = producer or ""
        self._producer: Producer | None = None
        if producer is not None:
            self._producer = intake.producers.sit(producer, self, intake.host.runtime.now_us(), config.producer_kept_s)
        intake.channels.append(self)

    async def last_kept(self) -> Producer | None:
        """Return the producer whose channel this is, once what it sent before stands. ServerError if it does not, or another took its name.

        Rows that wait for the disk would else be told as taken, and be lost with it.
        """
        producer, journaling = self._producer, self.intake.host.journaling
        if producer is None:
            return None
        if producer.place is not None and journaling is not None:
            loop = self._server.loop
            stands: asyncio.Future[None] = loop.create_future()

            def settle(error: StorageError | None) -> None:
                if not stands.done():
                    stands.set_result(None) if error is None else stands.set_exception(error)

            journaling.when_safe(
                producer.place, lambda: loop.call_soon_threadsafe(settle, None), lambda error: loop.call_soon_threadsafe(settle, error)
            )
            await stands
        if producer.seat is not self:
            raise Replaced(f"another connection publishes under the name {self._name}")
        return producer

    def set_schema(self, schema: Any) -> None:
        """Keep the Arrow schema of the trains that follow."""
        self._decoder = BatchDecoder(schema)
        self._plain = self.intake.plain(schema)
        self._reader = None if self._plain is None else PlainReader([width_of(f.type) or 0 for f in schema])

    def take_train(self, message: Train, frame_bytes: int) -> None:
        """Take an Arrow batch in: at the end of the read, perhaps with others, if there is nothing odd about it."""
        if self._decoder is None or message.payload is None or isinstance(message.payload, list):
            raise RemoteProtocolError(f"channel {self.number}: a train before its channel_schema")
        if self._producer is not None and self._is_repeated(message, message.rows, frame_bytes):
            return
        columns = self._columns_of(memoryview(message.payload), message.rows)
        if columns is None or self._producer is not None:
            # A producer's send is a record of its own in the journal, so it waits for no others.
            self._server.turn.take(self.session)
            produced = self._produced(message)
            if columns is not None:
                taken = self._take(partial(self.intake.take_good, columns, message.rows, produced), produced)
            else:
                batch = self._decoder.decode(message.payload, message.rows)
                taken = self._take(partial(self.intake.take_batch, batch, produced), produced)
            if taken is not None:
                self._note(message.number, message.rows, frame_bytes, taken)
            return
        try:
            if self._unsafe:
                self._check_kept()
        except StorageError as error:
            self.refuse(error)
            return
        self._server.turn.add(self, columns, message.number, message.rows, frame_bytes)

    def _columns_of(self, payload: memoryview, rows: int) -> list[Column] | None:
        """Return the columns of a train without anything odd, None for others."""
        if self._reader is None or self._plain is None:
            return None
        buffers = self._reader.read(payload, rows)
        return None if buffers is None else self._plain.columns(payload, buffers, rows)

    def count_run(self, run: TrainRun, taken: PublishOutcome) -> None:
        """Count trains that were let in with those of others, or refused with them."""
        refused = run.refused(taken.rejections[0][1]) if taken.rejected else []
        self._count(run.frames[-1][0], run.rows, run.frame_bytes, taken, refused)

    def take_rows(self, message: Rows, frame_bytes: int) -> None:
        """Take the rows of one message in."""
        if self._producer is not None and self._is_repeated(message, len(message.values), frame_bytes):
            return
        produced = self._produced(message)
        taken = self._take(partial(self.intake.take_rows, message.values, produced), produced)
        if taken is not None:
            self._note(message.number, len(message.values), frame_bytes, taken)

    def _take(self, take: Callable[[], PublishOutcome], produced: Produced | None = None) -> PublishOutcome | None:
        """Take rows in; None when the disk does not take them, which ends the channel and nothing else."""
        try:
            if self._unsafe:
                self._check_kept()
            taken = take()
        except StorageError as error:
            self.refuse(error)
            return None
        if produced is not None and not taken.accepted:
            self.intake.note_produced(produced)
        return taken

    def _is_repeated(self, message: Train | Rows, rows: int, frame_bytes: int) -> bool:
        """Whether a send was taken before; then it is acked as it is."""
        assert self._producer is not None
        assert message.sequence is not None
        if message.sequence > self._producer.last:
            return False
        self._count(message.number, rows, frame_bytes, PublishOutcome(0), ())
        return True

    def _produced(self, message: Train | Rows) -> Produced | None:
        if message.sequence is None:
            return None
        from millstream.server.host.producers import Produced  # there by now, as the channel has a producer

        return Produced(self._name, message.sequence, message.position)

    def _check_kept(self) -> None:
        """Refuse rows behind others that the disk did not keep, of which this channel has yet to hear."""
        journaling = self.intake.host.journaling
        if journaling is not None and journaling.failures != self._failures:
            raise StorageError("rows sent before these were not kept", OSError(errno.EIO, "the disk did not take them"))

    def take_chunk(self, chunk: RowsChunk) -> None:
        """Take single rows in; each has a number of its own, so a rejected one is told with index 0.

        Each is a publish of its own as well, which matters where one bad row refuses the whole publish.
        """
        if self.intake.definition.on_error is OnError.FAIL and len(chunk.values) > 1:
            for index, row in enumerate(chunk.values):
                single = RowsChunk(chunk.channel, chunk.first + index)
                single.values.append(row)
                self.take_chunk(single)
            self._held_bytes += chunk.frame_bytes
            return
        taken = self._take(partial(self.intake.take_rows, chunk.values))
        if taken is None:
            return
        rejections = [(chunk.first + index, 0, reason) for index, reason in taken.rejections] if taken.rejections else ()
        self._count(chunk.through, len(chunk.values), chunk.frame_bytes, taken, rejections)

    def _note(self, number: int, rows: int, frame_bytes: int, taken: PublishOutcome) -> None:
        self._count(number, rows, frame_bytes, taken, [(number, index, reason) for index, reason in taken.rejections])

    def _count(self, through: int, rows: int, frame_bytes: int, taken: PublishOutcome, rejections: Sequence[tuple[int, int, str]]) -> None:
        if self._place is not None and taken.place not in (None, self._place):
            self.settle()  # of what was written together all is kept, or nothing
        self._place = taken.place or self._place
        self._through = through
        self._accepted += taken.accepted
        self._rejected_rows += taken.rejected
        self.session.rows_refused += taken.rejected
        if rejections:
            room = REJECTIONS_LISTED_MAX - len(self._rejected)
            self._rejected += [list(r) for r in rejections[:room]]
        self._position = taken.position if taken.position is not None else self._position
        self._held_rows += rows
        self._held_bytes += frame_bytes
        if taken.shed is not None and self.intake.is_sync:
            self._shed_unsafe.append(taken.shed)
        elif taken.shed:
            self._told.shed(taken.shed)

    def settle(self) -> None:
        """Ack what was taken since the last ack, and grant credit when there is room."""
        if self._through > self._acked:
            ack = Ack(self.number, self._through, self._accepted, self._rejected_rows, self._rejected, self._position)
            self._acked = self._through
            self._accepted = self._rejected_rows = 0
            self._rejected = []
            if self.intake.is_sync:
                self._ack_when_safe(ack)
                return
            self.session.send(ack)
        if self._held_rows or self._held_bytes:
            self.release()

    def _ack_when_safe(self, ack: Ack) -> None:
        """Ack, and grant credit, once the disk has the rows; told by the journal's thread."""
        loop, journaling = self._server.loop, self.intake.host.journaling
        assert journaling is not None
        if not self._unsafe:
            self._failures = journaling.failures
        self._unsafe += 1
        entered, self._shed_unsafe = self._shed_unsafe, []
        self._last_place, self._place = self._place or self._last_place, None

        def safe() -> None:
            self._unsafe -= 1
            for shed in entered:
                if shed:
                    self._told.shed(shed)
            if not self._is_lost:
                self.session.send(ack)
            if not self._end_if_last():
                self.release()

        def lost(error: StorageError) -> None:
            self._unsafe -= 1
            self._is_lost = True
            self.refuse(error)

        journaling.when_safe(
            self._last_place, lambda: loop.call_soon_threadsafe(safe), lambda error: loop.call_soon_threadsafe(lost, error)
        )

    def refuse(self, error: StorageError) -> None:
        """Tell the publisher that the disk does not take his rows, and end the channel: of what follows on it nothing is accepted.

        What was accepted before is acked first. The connection goes on, and so does whoever opens another channel.
        """
        if self._refusal is None:
            self._refusal = error
            self.session.channels.pop(self.number, None)
            self.settle()
            self.close()
        self._end_if_last()

    def _end_if_last(self) -> bool:
        """Say that the channel has ended once the last ack is out, if it is to; returns whether it was said."""
        if self._unsafe or self._ended or (self._when_acked is None and self._refusal is None):
            return self._ended
        self._ended = True
        self._tell_last()
        if self._refusal is not None:
            self.session.send(ChannelClosed(self.number, self._refusal.code, str(self._refusal)))
        elif self._when_acked is not None:
            self._when_acked()
        return True

    def close_when_acked(self, call: Callable[[], None]) -> None:
        """Leave the stream, and have `call` called once the last ack is out."""
        self._server.turn.take()
        self.settle()
        self.close()
        self._when_acked = call
        self._end_if_last()

    def release(self) -> bool:
        """Grant credit for what was taken, unless readers are behind. Returns whether nothing is held back any more."""
        pressed = self.intake.is_pressed()
        if pressed or self._told.has_news:
            self._tell(pressed)
        if pressed:
            self._server.hold(self)
            return False
        granted = self._refill.done(self._held_rows, self._held_bytes)
        self._held_rows = self._held_bytes = 0
        if granted is not None:
            self.session.send(Credit(channel=self.number, rows=granted[0], bytes=granted[1]))
        return True

    def _tell(self, pressed: bool, last: bool = False) -> None:
        """Tell the publisher why it waits, and what of its rows was shed."""
        now_ns = self._server.now_ns()
        told = self._told.due(now_ns, self.intake.pressed_by if pressed else None, last=last)
        for code, message in told:
            self.session.send(Notice(code, message))

    def _tell_last(self) -> None:
        if self._told.has_news and not self.session.closed:
            self._tell(False, last=True)

    def close(self) -> None:
        """Leave the stream."""
        self._tell_last()
        if self._producer is not None:
            self.intake.producers.leave(self._producer, self, self.intake.host.runtime.now_us())
        if self in self.intake.channels:
            self.intake.channels.remove(self)

    def revoke(self, message: str) -> None:
        """Close the channel from our side: the stream is gone, or another channel has the producer's name."""
        if self.session.channels.pop(self.number, None) is None:  # the peer has not been told of it yet, or not any more
            self.close()
            return
        self.close_when_acked(lambda: self.session.send(ChannelClosed(self.number, "closed", message)))


class FlowNotices:
    """The news of one channel. Time is an argument."""

    def __init__(self, stream: str) -> None:
        self.has_news = False
        self._stream = stream
        self._shed: dict[str, int] = {}
        self._shed_total: dict[str, int] = {}
        self._shed_told_ns: int | None = None
        self._held_since_ns: int | None = None
        self._slowed_told_ns: int | None = None

    def shed(self, rows: Mapping[str, int]) -> None:
        """Note rows of the channel that were dropped, by class."""
        self.has_news = True
        for name, count in rows.items():
            self._shed[name] = self._shed.get(name, 0) + count

    def due(self, now_ns: int, held_by: Callable[[], str] | None, *, last: bool = False) -> list[tuple[str, str]]:
        """Return the notices to send now, (code, message); `held_by` says what credit waits for, None when it does not wait."""
        found = []
        if self._shed and (last or self._shed_told_ns is None or now_ns - self._shed_told_ns >= SHED_EVERY_NS):
            self._shed_told_ns = now_ns
            found.append(("shed", self._shed_message()))
        if held_by is None:
            self._held_since_ns = None
        elif self._is_slow(now_ns):
            self._slowed_told_ns = now_ns
            found.append(("slowed", f"publishing to {self._stream} waits: {held_by()}"))
        self.has_news = bool(self._shed) or self._held_since_ns is not None
        return found

    def _is_slow(self, now_ns: int) -> bool:
        if self._held_since_ns is None:
            self._held_since_ns = now_ns
        told = self._slowed_told_ns
        return now_ns - self._held_since_ns >= SLOWED_AFTER_NS and (told is None or now_ns - told >= SLOWED_EVERY_NS)

    def _shed_message(self) -> str:
        parts = []
        for name, rows in self._shed.items():
            self._shed_total[name] = total = self._shed_total.get(name, 0) + rows
            parts.append(f"{rows} before class {name}" if total == rows else f"{rows} before class {name} ({total} so far)")
        self._shed.clear()
        return f"{self._stream}: rows shed: {', '.join(parts)}"
