"""The gateway's process: both listeners in one loop, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from millstream.client.errors import MillstreamError
from millstream.client.gateway.access import Settings, check
from millstream.client.gateway.postgres.listener import PgListener
from millstream.client.gateway.postgres.mirror import WHAT_TO_INSTALL, Mirror, programs_in


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the gateway listens; None for what it does not serve."""

    pg: int | None = None


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
        await stop.wait()


@asynccontextmanager
async def running(settings: Settings, say: Callable[[str], None]) -> AsyncIterator[Ports]:
    """Serve as long as the block runs. MillstreamError when it cannot begin."""
    check(settings)
    tls = _tls(settings)
    mirror = await _mirror(settings, say) if settings.pg_port is not None else None
    listener = PgListener(settings.access, tls, mirror, settings.connections_max)
    try:
        pg = None if settings.pg_port is None else await _listening(listener, settings)
        yield Ports(pg)
    finally:
        await listener.stop()
        if mirror is not None:
            await mirror.stop()


async def _listening(listener: PgListener, settings: Settings) -> int:
    assert settings.pg_port is not None
    try:
        return await listener.start(settings.host, settings.pg_port)
    except OSError as error:
        place = f"{settings.host}:{settings.pg_port}"
        raise MillstreamError("invalid", f"cannot listen on {place}: {error.strerror or error}", "choose another --pg-port") from error


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
