"""The console's process: the page on one port, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from millstream.client.connection import Tls
from millstream.client.console import files
from millstream.client.console.app import PAGES_MAX, Desk, application
from millstream.client.console.pages import FOLLOWS_MAX
from millstream.client.errors import MillstreamError
from millstream.client.gateway.access import Access, is_loopback
from millstream.client.gateway.http.listener import HttpListener

OWN_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
CONNECTIONS_MAX = PAGES_MAX * (FOLLOWS_MAX + 2)
"""To the server, and of browsers: what every page may follow, its own connection, and what it asks."""
MESSAGE_BYTES_MAX = 300_000  # of a page: a statement, and a little


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """What `millstream console` was told. `token` is the one that the console looks with while no page is open."""

    server: str
    tls: Tls = None
    token: str | None = None
    host: str = "127.0.0.1"
    port: int = 7420
    tls_cert: str | None = None
    tls_key: str | None = None
    bundle: Path = files.BUNDLE


Say = Callable[[str], None]


def serve(settings: ConsoleSettings, say: Say, stop_by: Callable[[Callable[[], object]], None] | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C, or until `stop_by` calls what it is given, in any thread. MillstreamError when it cannot begin."""
    asyncio.run(_serve(settings, say, stop_by))


async def _serve(settings: ConsoleSettings, say: Say, stop_by: Callable[[Callable[[], object]], None] | None) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def end() -> None:
        with suppress(RuntimeError):  # the loop has ended by itself
            loop.call_soon_threadsafe(stop.set)

    if stop_by is not None:
        stop_by(end)
    async with running(settings, say) as address:
        say(f"the console is at {address}")
        await stop.wait()


@asynccontextmanager
async def running(settings: ConsoleSettings, say: Say = lambda text: None) -> AsyncIterator[str]:
    """Serve as long as the block runs, and give the address to open; `say` what a user must know. MillstreamError if it cannot begin."""
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise MillstreamError("invalid", "TLS needs both --tls-cert and --tls-key")
    bundle = files.load(settings.bundle)
    alone = is_loopback(settings.host)
    desk = Desk(Access(settings.server, settings.tls, {}), settings.token, CONNECTIONS_MAX, open_to_others=not alone)
    tls = None if settings.tls_cert is None or settings.tls_key is None else (settings.tls_cert, settings.tls_key)
    app = application(desk, bundle, OWN_NAMES | {settings.host} if alone else None)
    listener = HttpListener(app, desk.close, CONNECTIONS_MAX, tls, "websockets-sansio", MESSAGE_BYTES_MAX)
    try:
        port = await listener.start(settings.host, settings.port)
    except OSError as error:
        reason = f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}"
        raise MillstreamError("invalid", reason, "choose another --port") from error
    try:
        if problem := await desk.begin():
            say(problem)
        name = f"[{settings.host}]" if ":" in settings.host else settings.host
        yield f"{'https' if tls else 'http'}://{name}:{port}/"
    finally:
        await listener.stop()
