"""A publisher over a plain blocking socket: frames can be made before the clock starts, and leave at the microsecond they are due."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, TypeVar

from millstream.client.errors import MillstreamError
from millstream.protocol.connection import Connection, Event
from millstream.protocol.messages import Ack, BytesLike, ChannelOpened, Failure, Hello, Message, OpenChannel, Row, Welcome
from millstream.protocol.states import Role
from millstream.protocol.version import VERSIONS

WRITE_BYTES = 64 * 1024
Wanted = TypeVar("Wanted", bound=Event)


class RawPublisher:
    """One channel into one stream."""

    def __init__(self, port: int, stream: str, token: str | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = Connection(Role.CLIENT)
        self.accepted = 0
        self.through = 0
        self._say(Hello(list(VERSIONS), token=token))
        self._wait_for(Welcome, lambda _: True)
        self._say(OpenChannel(1, stream))
        self.channel = self._wait_for(ChannelOpened, lambda _: True).channel

    def row_frame(self, values: list[Any]) -> bytes:
        """Return the frame of one row; it must be sent before the next is made into one."""
        (frame,) = self.connection.send(Row(self.channel, self.connection.next_number(self.channel), values))
        return bytes(frame)

    def frame(self, message: Message) -> bytes:
        """Return the frame of a message."""
        return b"".join(bytes(piece) for piece in self.connection.send(message))

    def send(self, frame: BytesLike) -> None:
        """Write bytes."""
        self.socket.sendall(frame)

    def send_all(self, frames: list[bytes]) -> None:
        """Write frames, many at a time."""
        block = b"".join(frames)
        for at in range(0, len(block), WRITE_BYTES):
            self.socket.sendall(block[at : at + WRITE_BYTES])

    def wait_for_acks(self, through: int) -> None:
        """Wait until everything up to a number is acked."""
        if self.through < through:
            self._wait_for(Ack, lambda ack: ack.through >= through)

    def _say(self, message: Message) -> None:
        self.send(self.frame(message))

    def _wait_for(self, kind: type[Wanted], enough: Callable[[Any], bool]) -> Wanted:
        while True:
            count = self.socket.recv_into(self.connection.get_buffer())
            if not count:
                raise MillstreamError("disconnected", "the server closed the connection")
            found: Wanted | None = None
            for event in self.connection.buffer_updated(count):
                if isinstance(event, Failure):
                    raise MillstreamError(event.code, event.message)
                if isinstance(event, Ack):
                    self.accepted += event.accepted
                    self.through = event.through
                if isinstance(event, kind) and enough(event):
                    found = event
            if found is not None:
                return found

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()
