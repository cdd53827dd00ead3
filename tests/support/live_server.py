"""A live server and clients in one loop, over loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from millstream.client import connect_async
from millstream.client.connection import AsyncClient
from millstream.server.config import Config
from millstream.server.host.arrival_clock import ArrivalClock, Report
from millstream.server.journal.disk import Disk
from millstream.server.live import LiveServer
from millstream.server.logs import configure_logs, finish_logs

WAIT_S = 60.0  # a bound on hanging, not a verdict: a busy machine may take a while
TEST_CONFIG = Config(port=0, log_level="error", log_format="json")


class Harness:
    """A running server and the clients of a test."""

    def __init__(self, server: LiveServer) -> None:
        self.server = server
        self.clients: list[AsyncClient] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    async def client(self, **options: Any) -> AsyncClient:
        client = await connect_async(self.address, **options)
        self.clients.append(client)
        return client

    async def raw(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.server.port)


@asynccontextmanager
async def running(
    *, disk: Disk | None = None, clock: Callable[[Report], ArrivalClock] = ArrivalClock, **settings: Any
) -> AsyncIterator[Harness]:
    configure_logs("error", "json")
    server = LiveServer(replace(TEST_CONFIG, **settings), disk, clock)
    await server.start()
    harness = Harness(server)
    try:
        yield harness
    finally:
        for client in harness.clients:
            if client.is_open:
                await client.close()
        await server.stop()
        finish_logs()


def run(
    test: Callable[[Harness], Awaitable[None]],
    *,
    within_s: float = WAIT_S,
    clock: Callable[[Report], ArrivalClock] = ArrivalClock,
    **settings: Any,
) -> None:
    """Run an async test against a server of its own; it fails when it takes longer than `within_s`."""

    async def whole() -> None:
        async with running(clock=clock, **settings) as harness:
            await asyncio.wait_for(test(harness), within_s)

    asyncio.run(whole())


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds, looking at it between the loop's turns."""
    deadline = asyncio.get_running_loop().time() + WAIT_S
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"not within {WAIT_S} s: {what}"
        await asyncio.sleep(0.005)


async def rows_of(subscription: Any, count: int) -> list[dict[str, Any]]:
    """Take rows until there are `count`."""
    rows: list[dict[str, Any]] = []
    async for batch in subscription:
        rows.extend(batch.to_pylist())
        if len(rows) >= count:
            break
    return rows
