"""The sockets of HTTP's peers: uvicorn, with bounds on how long a peer may keep a connection without using it."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import uvicorn
from millstream.client.errors import MillstreamError
from millstream.client.gateway.http import limits
from uvicorn.protocols.http.h11_impl import H11Protocol


class BoundedHttp(H11Protocol):
    """A connection that is cut when no whole request comes in time, or when the peer takes nothing of an answer."""

    _due: asyncio.TimerHandle | None = None  # when a request must have begun
    _stuck: asyncio.TimerHandle | None = None  # when an answer must have been taken

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Let the first request come, unless there are too many connections to even say so."""
        super().connection_made(transport)
        if self.limit_concurrency is not None and len(self.connections) > 2 * self.limit_concurrency:
            transport.abort()
        self._await_request()

    def on_response_complete(self) -> None:
        """Let the next request come."""
        self._await_request()
        super().on_response_complete()

    def _await_request(self) -> None:
        if self._due is not None:
            self._due.cancel()
        self._due = self.loop.call_later(limits.REQUEST_S_MAX, self._cut_without_request)

    def _cut_without_request(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()

    def pause_writing(self) -> None:
        """Wait for the peer, not for ever."""
        super().pause_writing()
        if self._stuck is None:
            self._stuck = self.loop.call_later(limits.WRITE_S_MAX, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on."""
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the times."""
        super().connection_lost(exc)
        for timer in (self._due, self._stuck):
            if timer is not None:
                timer.cancel()


class BrokenOff(logging.Filter):
    """Lets one line say why an answer was broken off, as for results that were lost: no fault of the gateway, and any peer can have it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass."""
        told = None if record.exc_info is None else _refusal_in(record.exc_info[1])
        if told is not None:
            record.msg, record.args, record.exc_info = "an answer was broken off: %s", (told.message,), None
        return True


def _refusal_in(error: BaseException | None) -> MillstreamError | None:
    """Return the refusal that an error comes from, wrapped as the libraries pass it on; None where there is none."""
    if error is None or isinstance(error, MillstreamError):
        return error
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else (error.__cause__,)
    return next((found for found in map(_refusal_in, inner) if found is not None), None)


class _Server(uvicorn.Server):
    """One that leaves the process's signals alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


BROKEN_OFF = BrokenOff()


class HttpListener:
    """All peers of one port, and what serves them: an ASGI application, which this knows nothing else of.

    `web_sockets` is uvicorn's name of who speaks WebSocket; `closing` is awaited when the port is closed. At most `connections_max`
    requests are under way at a time.
    """

    def __init__(
        self,
        app: Any,
        closing: Callable[[], Awaitable[None]],
        connections_max: int,
        tls: tuple[str, str] | None = None,
        web_sockets: Literal["none", "websockets-sansio"] = "none",
        message_bytes_max: int = limits.STATEMENT_BYTES_MAX,
    ) -> None:
        certificate: dict[str, Any] = {} if tls is None else {"ssl_certfile": tls[0], "ssl_keyfile": tls[1]}
        self._config = uvicorn.Config(
            app,
            http=BoundedHttp,
            ws=web_sockets,
            ws_max_size=message_bytes_max,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=connections_max + 1,
            timeout_keep_alive=limits.KEEP_ALIVE_S,
            timeout_graceful_shutdown=limits.STOP_S,
            h11_max_incomplete_event_size=limits.HEAD_BYTES_MAX,
            **certificate,
        )
        self._closing = closing
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port. OSError when it is taken."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=128)
        logging.getLogger("uvicorn.error").addFilter(BROKEN_OFF)  # once, however often it is added
        self._server = _Server(self._config)
        self._task = asyncio.get_running_loop().create_task(self._server.serve([listening]))
        while not self._server.started:
            if self._task.done():
                await self._task
                raise MillstreamError("internal", "the HTTP server did not start")
            await asyncio.sleep(0)  # uvicorn tells nobody; the socket listens already, so it takes a few turns of the loop
        return int(listening.getsockname()[1])

    async def stop(self) -> None:
        """Close the port, let answers under way end for a moment, and close every connection."""
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await self._task
            for connection in list(self._server.server_state.connections):
                if connection.transport is not None:
                    connection.transport.abort()
        await self._closing()
