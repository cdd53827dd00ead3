"""The sockets of PostgreSQL's peers: accepted, bounded, encrypted, let in; then theirs until they leave."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections import deque
from typing import TYPE_CHECKING, cast

from millstream.client.connection import AsyncClient, connect_async
from millstream.client.errors import MillstreamError
from millstream.client.gateway.access import VARIABLES, Access
from millstream.client.gateway.postgres import limits, messages
from millstream.client.gateway.postgres.connection import PgConnection
from millstream.client.gateway.postgres.mirror import Mirror
from millstream.client.gateway.postgres.scram import MECHANISM, ScramServer, Verifier, verifier_of
from millstream.client.gateway.postgres.session import Session
from millstream.client.gateway.postgres.sqlstates import (
    INVALID_AUTHORIZATION,
    OF_CODE,
    PROTOCOL_VIOLATION,
    TOO_MANY_CONNECTIONS,
    PgError,
)

if TYPE_CHECKING:
    from millstream.client.gateway.postgres.messages import Message


class PgListener:
    """All peers of one port."""

    def __init__(self, access: Access, tls: ssl.SSLContext | None, mirror: Mirror | None, connections_max: int) -> None:
        self.access, self.tls, self.mirror = access, tls, mirror
        self.connections_max = connections_max
        self.sessions: dict[int, Session] = {}
        self.peers: set[Peer] = set()
        self._server: asyncio.Server | None = None
        self._numbers = 0
        salt = secrets.token_bytes(16)
        self._verifiers = {role: verifier_of(token, secrets.token_bytes(16)) for role, token in access.tokens.items()}
        self._nobody = Verifier(salt, secrets.token_bytes(32), secrets.token_bytes(32))

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port. OSError when it is taken."""
        self._server = await asyncio.get_running_loop().create_server(lambda: Peer(self), host, port)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._server is not None:
            self._server.close()
        tasks = [peer.task for peer in self.peers if peer.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    def number(self) -> int:
        """Return a number for a session that no living one has."""
        self._numbers = self._numbers % 0x7FFFFFFF + 1
        while self._numbers in self.sessions:
            self._numbers = self._numbers % 0x7FFFFFFF + 1
        return self._numbers

    def verifier(self, user: str) -> tuple[Verifier, bool]:
        """Return how the password of a user is checked, and whether there is such a user."""
        found = self._verifiers.get(user)
        return (self._nobody, False) if found is None else (found, True)


class Peer(asyncio.Protocol):
    """One socket. What it sends waits here, bounded, until the session takes it."""

    def __init__(self, listener: PgListener) -> None:
        self.task: asyncio.Task[None] | None = None
        self._listener = listener
        self._connection = PgConnection()
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[Message | PgError, int]] = deque()
        self._waiting_bytes = 0
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._has_left = False
        self._is_broken = False  # what it says is no longer read
        self._is_paused = False
        self._session: Session | None = None

    # --- what asyncio calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, or go on encrypted."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=limits.WRITE_BYTES_HIGH)
        if self.task is None:
            self._listener.peers.add(self)
            self.task = asyncio.get_running_loop().create_task(self._run())

    def data_received(self, data: bytes) -> None:
        """Keep the messages that are whole; read no more while many wait."""
        if self._is_broken:
            return
        try:
            for message in self._connection.receive(data):
                self._keep(message, len(data))
                if isinstance(message, messages.SslRequest):
                    self._pause()  # until TLS has begun, or has been declined
        except PgError as problem:
            self._is_broken = True
            self._keep(problem, 0)

    def _keep(self, message: Message | PgError, size: int) -> None:
        self._waiting.append((message, size))
        self._waiting_bytes += size
        self._arrived.set()
        if len(self._waiting) >= limits.MESSAGES_WAITING_MAX or self._waiting_bytes >= limits.BYTES_WAITING_MAX:
            self._pause()

    def _pause(self) -> None:
        if not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def _go_on(self) -> None:
        if self._is_paused and self._transport is not None and not self._has_left:
            self._is_paused = False
            self._transport.resume_reading()

    def eof_received(self) -> bool:
        """Let what has been sent be carried out."""
        self._left()
        return True  # the session closes the transport; over TLS asyncio does

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more."""
        self._left()
        self._writable.set()

    def _left(self) -> None:
        self._has_left = True
        self._arrived.set()
        if self._session is not None:
            self._session.peer_left()

    def pause_writing(self) -> None:
        """The peer takes nothing."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The peer takes more."""
        self._writable.set()

    # --- what the session uses ---

    async def next(self) -> Message | None:
        """Return the next message; None when the peer has left. `PgError` for what breaks the protocol."""
        while not self._waiting:
            if self._has_left:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        message, size = self._waiting.popleft()
        self._waiting_bytes -= size
        has_room = len(self._waiting) < limits.MESSAGES_WAITING_MAX // 2 and self._waiting_bytes < limits.BYTES_WAITING_MAX
        if has_room and not isinstance(message, messages.SslRequest):
            self._go_on()
        if isinstance(message, PgError):
            raise message
        return message

    def send(self, data: bytes) -> None:
        """Send bytes."""
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    async def drain(self) -> None:
        """Wait until the peer has taken most of what was sent. `PgError` (fatal) when it takes nothing."""
        if not self._writable.is_set():
            try:
                await asyncio.wait_for(self._writable.wait(), limits.WRITE_S_MAX)
            except TimeoutError:
                raise PgError("57P05", f"the peer took nothing for {limits.WRITE_S_MAX:g} s", fatal=True) from None

    # --- the life of a peer ---

    async def _run(self) -> None:
        try:
            try:
                begun = await asyncio.wait_for(self._begin(), limits.STARTUP_S_MAX)
            except TimeoutError:
                raise PgError("08000", f"no greeting within {limits.STARTUP_S_MAX:g} s", fatal=True) from None
            if begun is not None:
                self._session, parameters = begun
                await self._session.run(parameters)
        except PgError as problem:
            self.send(messages.error_response(problem))
        except asyncio.CancelledError:
            self.send(messages.error_response(PgError("57P01", "the gateway is stopping", fatal=True)))
            raise
        finally:
            if self._session is not None:
                self._listener.sessions.pop(self._session.number, None)
            self._listener.peers.discard(self)
            self._close()

    def _close(self) -> None:
        if self._transport is None:
            return
        if self._writable.is_set():
            self._transport.close()
        else:
            self._transport.abort()  # what it does not take is given up

    async def _begin(self) -> tuple[Session, dict[str, str]] | None:
        """Greet, encrypt, let in; None for a peer that only wanted to cancel, or has left."""
        while True:
            match await self.next():
                case messages.SslRequest():
                    await self._encrypt()
                case messages.GssRequest():
                    self.send(b"N")
                case messages.CancelRequest(number, key):
                    session = self._listener.sessions.get(number)
                    if session is not None:
                        session.cancel(key)
                    return None
                case messages.Startup() as startup:
                    return await self._let_in(startup)
                case _:
                    return None

    async def _encrypt(self) -> None:
        tls = self._listener.tls
        self.send(b"N" if tls is None else b"S")
        if tls is None:
            self._go_on()
            return
        assert self._transport is not None
        try:
            self._is_paused = False  # the new transport reads from the beginning
            started = await asyncio.get_running_loop().start_tls(self._transport, self, tls, server_side=True)
        except (ssl.SSLError, ConnectionError) as error:
            raise PgError("08P01", f"TLS could not begin: {error}", fatal=True) from error
        if started is None:
            raise PgError("08P01", "TLS could not begin: the peer has left", fatal=True)
        self.connection_made(started)

    @property
    def _is_encrypted(self) -> bool:
        return self._transport is not None and self._transport.get_extra_info("sslcontext") is not None

    async def _let_in(self, startup: messages.Startup) -> tuple[Session, dict[str, str]] | None:
        listener = self._listener
        unknown = [name for name in startup.parameters if name.startswith("_pq_.")]
        if startup.version != messages.VERSION_3_0 or unknown:
            self.send(messages.negotiate_version(unknown))
        user = startup.parameters.get("user", "")
        if not user:
            raise PgError(INVALID_AUTHORIZATION, "no user was named: it is a role (admin, writer, reader)", fatal=True)
        if startup.parameters.get("replication", "false").lower() not in ("false", "off", "no", "0"):
            raise PgError("0A000", "replication is not supported", "COPY (SUBSCRIBE query) TO STDOUT streams results", fatal=True)
        if len(listener.peers) > listener.connections_max:
            raise PgError(TOO_MANY_CONNECTIONS, f"the gateway has {listener.connections_max} connections, and takes no more", fatal=True)
        client = await self._authenticated(user)
        try:
            if self._has_left:
                await client.close()
                return None
            self._connection.is_ready = True
            self.send(messages.AUTHENTICATION_OK)
            session = Session(self, client, listener.mirror, user, listener.number(), secrets.randbits(31))
        except BaseException:
            await client.abandon()
            raise
        listener.sessions[session.number] = session
        return session, startup.parameters

    async def _authenticated(self, user: str) -> AsyncClient:
        """Return a connection to the server with the rights of a user. `PgError` (fatal) when there is none."""
        listener = self._listener
        if listener.access.tokens:
            await self._scram(user)
            return await self._connected(listener.access.tokens[user])
        try:
            return await self._connected(None)
        except PgError as problem:
            if problem.sqlstate != OF_CODE["unauthorized"]:
                raise
            if not self._is_encrypted:
                hint = f"start the gateway with {VARIABLES['admin']} and the others, or with --tls-cert"
                raise PgError(INVALID_AUTHORIZATION, "the server wants a token, and the gateway knows none", hint, fatal=True) from None
        self.send(messages.AUTHENTICATION_CLEARTEXT)
        password = (await self._password()).removesuffix(b"\0").decode("utf-8", "replace")
        return await self._connected(password)

    async def _connected(self, token: str | None) -> AsyncClient:
        access = self._listener.access
        try:
            return await connect_async(access.server, token, access.tls_ca)
        except MillstreamError as error:
            raise PgError(OF_CODE.get(error.code, "08001"), error.message, error.hint, fatal=True) from error

    async def _scram(self, user: str) -> None:
        verifier, is_known = self._listener.verifier(user)
        exchange = ScramServer(verifier, secrets.token_urlsafe(18), known=is_known)
        self.send(messages.authentication_sasl([MECHANISM]))
        first = await self._password()
        mechanism, zero, rest = first.partition(b"\0")
        if mechanism.decode("latin-1") != MECHANISM or not zero or len(rest) < 4:
            raise PgError(PROTOCOL_VIOLATION, "the mechanism is not SCRAM-SHA-256", fatal=True)
        self.send(messages.authentication_continue(exchange.first(rest[4:])))
        self.send(messages.authentication_final(exchange.last(await self._password())))

    async def _password(self) -> bytes:
        match await self.next():
            case messages.Password(data):
                return data
            case None:
                raise PgError("08006", "the peer has left", fatal=True)
            case other:
                raise PgError(PROTOCOL_VIOLATION, f"{type(other).__name__} came in place of a password", fatal=True)
