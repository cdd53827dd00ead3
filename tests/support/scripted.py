"""A peer without a socket: its transport does what a test says, so that memory is counted and time is nobody's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from millstream.protocol.connection import Connection
from millstream.protocol.messages import Hello, Message, Ping
from millstream.protocol.states import Role
from millstream.server.app import Application
from millstream.server.net.limits import WRITE_BUFFER_BYTES_MAX
from millstream.server.net.listener import Listener


class ScriptedTransport:
    """What was written waits until the peer reads it; what the peer says waits until it is read from."""

    def __init__(self, application: Application, listener: Listener) -> None:
        self._application = application
        self._listener = listener
        self.unread = bytearray()
        self.is_reading = True
        self.is_closed = False
        self._is_full = False
        self._limits = (WRITE_BUFFER_BYTES_MAX, WRITE_BUFFER_BYTES_MAX // 4)

    def set_write_buffer_limits(self, high: int) -> None:
        self._limits = (high, high // 4)

    def get_write_buffer_size(self) -> int:
        return len(self.unread)

    def get_extra_info(self, name: str) -> None:
        return None

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def writelines(self, buffers: Iterable[Any]) -> None:
        for buffer in buffers:
            self.unread += buffer
        if len(self.unread) > self._limits[0] and not self._is_full:
            self._is_full = True
            self._listener.pause_writing()

    def taken(self, count: int | None = None) -> bytes:
        """Let the peer read."""
        count = len(self.unread) if count is None else count
        read = bytes(self.unread[:count])
        del self.unread[:count]
        if self._is_full and len(self.unread) <= self._limits[1]:
            self._is_full = False
            self._listener.resume_writing()
        return read

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._application.loop.call_soon(self._listener.connection_lost, None)

    def abort(self) -> None:
        self.unread.clear()
        self.close()


class ScriptedPeer:
    """One connection to a running application. `say` keeps to what the server reads; what is left over waits as in a network."""

    def __init__(self, application: Application, token: str | None = None, client_id: str | None = None, version: int = 2) -> None:
        self._listener = Listener(application)
        self.transport = ScriptedTransport(application, self._listener)
        self._listener.connection_made(self.transport)  # type: ignore[arg-type]
        assert self._listener._session is not None
        self.session = self._listener._session
        self.connection = Connection(Role.CLIENT)
        self.heard: list[Any] = []
        self.waiting = bytearray()  # said, and not read by the server
        self.say(Hello([version], token=token, client_id=client_id))
        self.listen()

    def say(self, *messages: Message) -> None:
        """Say messages; the server reads them if it reads."""
        for message in messages:
            for buffer in self.connection.send(message):
                self.waiting += buffer
        self.deliver()

    def deliver(self) -> None:
        """Have the server read what waits, as far as it does."""
        while self.waiting and self.transport.is_reading and not self.transport.is_closed:
            view = self._listener.get_buffer(-1)
            count = min(len(view), len(self.waiting))
            view[:count] = self.waiting[:count]
            del view
            del self.waiting[:count]
            self._listener.buffer_updated(count)

    def listen(self) -> list[Any]:
        """Read all that was sent; returns it, and keeps it in `heard`."""
        said = list(self.connection.receive_data(self.transport.taken()))
        self.heard += said
        return said

    @property
    def held_bytes(self) -> int:
        """What the server holds for this peer: unread answers, half a frame, requests."""
        session = self.session
        return len(self.transport.unread) + session.connection.allocated_bytes + session._requested_bytes


def pings(count: int, first: int = 1) -> list[Message]:
    return [Ping(number) for number in range(first, first + count)]


def half_frame(bytes_: int, length: int) -> Callable[[ScriptedPeer], None]:
    """Return what sends the first bytes of a frame of so many."""

    def send(peer: ScriptedPeer) -> None:
        peer.waiting += length.to_bytes(4, "little") + (100).to_bytes(4, "little") + bytes(bytes_ - 8)
        peer.deliver()

    return send
