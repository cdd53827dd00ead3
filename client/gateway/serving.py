"""The gateway's process: both listeners in one loop, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from millstream.client.errors import MillstreamError
from millstream.client.gateway.access import Settings, check
from millstream.client.gateway.postgres.listener import PgListener
from millstream.client.gateway.postgres.mirror import WHAT_TO_INSTALL, Mirror, programs_in

if TYPE_CHECKING:
    from millstream.client.gateway.http.listener import HttpListener


class Listener(Protocol):
    """What has a port."""

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port. OSError when it is taken."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the gateway listens; None for what it does not serve."""

    pg: int | None = None
    http: int | None = None


def serve(settings: Settings, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C. MillstreamError when it cannot begin."""
    asyncio.run(_serve(settings, say))


async def _serve(settings: Settings, say: Callable[[str], None]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with running(settings, say) as ports:
        if ports.pg is not None:
            say(f"PostgreSQL's protocol on {settings.host}:{ports.pg}")
        if ports.http is not None:
            say(f"HTTP on {settings.host}:{ports.http}, described at /v1/openapi.json")
        await stop.wait()


@asynccontextmanager
async def running(settings: Settings, say: Callable[[str], None]) -> AsyncIterator[Ports]:
    """Serve as long as the block runs. MillstreamError when it cannot begin."""
    check(settings)
    tls = _tls(settings)
    async with AsyncExitStack() as stack:
        pg = http = None
        if settings.pg_port is not None:
            mirror = await _mirror(settings, say)
            if mirror is not None:
                stack.push_async_callback(mirror.stop)
            listener = PgListener(settings.access, tls, mirror, settings.connections_max)
            stack.push_async_callback(listener.stop)
            pg = await _listening(listener, settings.host, settings.pg_port, "--pg-port")
        if settings.http_port is not None:
            web = _http_listener(settings)
            stack.push_async_callback(web.stop)
            http = await _listening(web, settings.host, settings.http_port, "--http-port")
        yield Ports(pg, http)


async def _listening(listener: Listener, host: str, port: int, option: str) -> int:
    try:
        return await listener.start(host, port)
    except OSError as error:
        raise MillstreamError(
            "invalid", f"cannot listen on {host}:{port}: {error.strerror or error}", f"choose another {option}"
        ) from error


def _http_listener(settings: Settings) -> HttpListener:
    try:
        from millstream.client.gateway.http.app import application
        from millstream.client.gateway.http.connections import Connections, Held
        from millstream.client.gateway.http.listener import HttpListener
    except ImportError as error:
        hint = "pip install 'millstream[gateway]'"
        raise MillstreamError("unsupported", f"HTTP needs {error.name}, which is not installed", hint) from error
    connections = Connections(settings.access, settings.connections_max)
    app = application(connections, Held(), settings.cors_origins, settings.connections_max)
    tls = None if settings.tls_cert is None or settings.tls_key is None else (settings.tls_cert, settings.tls_key)
    return HttpListener(app, connections.close, settings.connections_max, tls)


async def _mirror(settings: Settings, say: Callable[[str], None]) -> Mirror | None:
    programs = programs_in(settings.pg_bin) if settings.catalogue else None
    if programs is None:
        if settings.catalogue:
            say(f"no PostgreSQL found, so questions about the catalogue (\\d) are refused; {WHAT_TO_INSTALL}")
        return None
    mirror = Mirror(programs, settings.connections_max)
    await mirror.begin()
    return mirror


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise MillstreamError("invalid", f"cannot use the certificate {settings.tls_cert}: {error}") from error
    return context
