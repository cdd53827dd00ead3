"""The server's side of one connection, as bytes in and messages out: no sockets, no clock. Bounded before anything is allocated."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.client.gateway.postgres import limits, messages
from millstream.client.gateway.postgres.messages import INT32, GssRequest, Message, SslRequest, Startup
from millstream.client.gateway.postgres.sqlstates import LIMIT, PROTOCOL_VIOLATION, PgError

_BEFORE_READY = (b"p", b"X")


class PgConnection:
    """Turns bytes into messages. Once it has raised, it must be fed nothing more.

    `is_ready` is set by whoever has let the client in; until then only passwords are heard, so nothing large is taken from strangers.
    """

    def __init__(self) -> None:
        self.is_ready = False
        self._is_greeted = False
        self._negotiations = 0
        self._buffer = bytearray()

    @property
    def buffered_bytes(self) -> int:
        """Bytes of a message that is not whole."""
        return len(self._buffer)

    def receive(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that are whole with `data`. `PgError`, always fatal, for what breaks the protocol or a bound.

        After a request for TLS nothing more is taken: bytes that came with it in the clear would else be read as if they were encrypted.
        """
        self._buffer += data
        while (message := self._next()) is not None:
            if isinstance(message, SslRequest | GssRequest) and self._buffer:
                raise PgError(PROTOCOL_VIOLATION, "bytes came after the request for encryption, before its answer", fatal=True)
            yield message

    def _next(self) -> Message | None:
        head = 1 if self._is_greeted else 0
        if head and self._buffer:
            kind = bytes(self._buffer[:1])
            most = messages.bytes_max(kind)
            if not self.is_ready and kind not in _BEFORE_READY:
                raise PgError(PROTOCOL_VIOLATION, f"a message of type {kind!r} before the password", fatal=True)
        else:
            kind, most = b"", limits.STARTUP_BYTES_MAX
        if len(self._buffer) < head + 4:
            return None
        length = INT32.unpack_from(self._buffer, head)[0]
        if not head and self._buffer[0] == 0x16:
            raise PgError("0A000", "TLS begins with a request here", "use sslmode=require without sslnegotiation=direct", fatal=True)
        if length < 4 or (not head and length < 8):
            raise PgError(PROTOCOL_VIOLATION, f"a message says that it is {length} bytes long", fatal=True)
        if length > most:
            what = "the greeting" if not head else f"a message of type {kind.decode('latin-1')}"
            raise PgError(LIMIT, f"{what} has at most {most} bytes, not {length}", fatal=True)
        if len(self._buffer) < head + length:
            return None
        body = bytes(self._buffer[head + 4 : head + length])
        del self._buffer[: head + length]
        return messages.read(kind, body) if head else self._greeting(body)

    def _greeting(self, body: bytes) -> Message:
        message = messages.read_first(body)
        if isinstance(message, Startup):
            self._is_greeted = True
        elif isinstance(message, SslRequest | GssRequest):
            self._negotiations += 1
            if self._negotiations > limits.NEGOTIATIONS_MAX:
                raise PgError(PROTOCOL_VIOLATION, "encryption was asked for too often", fatal=True)
        return message
