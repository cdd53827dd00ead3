"""The asyncio end of a connection: hands the transport's bytes to the session, reads straight into the protocol's buffer."""

from __future__ import annotations

import asyncio
from typing import cast

from millstream.server.net.limits import WRITE_BUFFER_BYTES_MAX
from millstream.server.net.session import Session, SessionServices


class Listener(asyncio.BufferedProtocol):
    """One accepted connection."""

    def __init__(self, application: SessionServices) -> None:
        self._application = application
        self._session: Session | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a session, or say that there are too many."""
        transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclass of it
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        self._session = Session(self._application, transport)
        self._application.session_began(self._session)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Give the memory that the next read fills."""
        assert self._session is not None
        return self._session.connection.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle what has been read."""
        assert self._session is not None
        self._session.bytes_read(nbytes)

    def eof_received(self) -> bool:
        """The peer sends no more; what it asked is not answered any more, so close."""
        return False

    def pause_writing(self) -> None:
        """The peer does not read fast enough."""
        assert self._session is not None
        self._session.pause_writing()

    def resume_writing(self) -> None:
        """The peer has read."""
        assert self._session is not None
        self._session.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up after the peer, however it left."""
        assert self._session is not None
        self._session.lost(exc)
