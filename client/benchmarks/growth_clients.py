"""How cost grows with clients and workers: publishers and readers of one server, queries over several workers.

What is compared is the server's processor time for a row that a publisher sends, or that a reader gets: it must not grow with how many
share the work. With workers it is the rate, which may grow up to the processors there are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from millstream.client.benchmarks.daemon import Daemon, daemon
from millstream.client.benchmarks.kit import Figures, Kit
from millstream.client.blocking import _new_loop
from millstream.client.connection import AsyncClient, connect_async

STREAM = "CREATE STREAM growth_in (ts BIGINT, key BIGINT, price DOUBLE) TIMESTAMP BY ts UNIT us"
CLIENTS = (1, 10, 100, 1_000)
WORKERS = (1, 2, 3, 4)
TRAIN = 100
HEAVY = "SELECT key, price FROM growth_in WHERE sqrt(price) * ln(price + {0}.5) + exp(-price / {0}.5) < 0"
HEAVY_QUERIES = 8


def benchmark(kit: Kit) -> Iterator[Figures]:
    """1 to 1,000 publishers, 1 to 1,000 readers, 1 to 4 workers over TCP."""
    for clients in CLIENTS[:2] if kit.quick else CLIENTS:
        with daemon() as server, asyncio.Runner(loop_factory=_new_loop) as runner:
            yield runner.run(_publishers(kit, server, clients))
    for clients in CLIENTS[:2] if kit.quick else CLIENTS:
        with daemon() as server, asyncio.Runner(loop_factory=_new_loop) as runner:
            yield runner.run(_readers(kit, server, clients))
    for workers in WORKERS[:2] if kit.quick else WORKERS:
        with daemon("--workers", str(workers)) as server, asyncio.Runner(loop_factory=_new_loop) as runner:
            yield runner.run(_workers(kit, server, workers))


async def _publishers(kit: Kit, server: Daemon, clients: int) -> Figures:
    """So many connections share the same rows; every hundredth row comes out to one reader."""
    trains = kit.size(5_000, 200) // clients
    rows = trains * clients * TRAIN
    async with _connected(server, clients + 1) as (reader, *publishers):
        await reader.execute(STREAM)
        await reader.submit("SELECT key FROM growth_in WHERE key = 0", name="few")
        async with await reader.subscribe("few") as results, AsyncExitStack() as stack:
            channels = [await stack.enter_async_context(await one.publisher("growth_in")) for one in publishers]
            began, cpu = time.perf_counter(), server.cpu_s()
            sending = asyncio.gather(*[_send(channel, trains) for channel in channels])
            got = await _read(results, rows // TRAIN)
            accepted = sum(await sending)
            took_s, cpu_s = time.perf_counter() - began, server.cpu_s() - cpu
        kit.require((got, accepted) == (rows // TRAIN, rows), "another number of rows")
    return _figures("growth-publishers", rows, took_s, cpu_s, server, clients=clients)


async def _readers(kit: Kit, server: Daemon, clients: int) -> Figures:
    """So many connections each get every row."""
    trains = max(4, kit.size(5_000, 200) // clients)
    async with _connected(server, clients + 1) as (publisher, *readers):
        await publisher.execute(STREAM)
        await publisher.submit("SELECT ts, key, price FROM growth_in", name="all")
        async with AsyncExitStack() as stack:
            subscriptions = [await stack.enter_async_context(await one.subscribe("all")) for one in readers]
            channel = await stack.enter_async_context(await publisher.publisher("growth_in"))
            began, cpu = time.perf_counter(), server.cpu_s()
            sending = asyncio.create_task(_send(channel, trains))
            got = await asyncio.gather(*[_read(one, trains * TRAIN) for one in subscriptions])
            await sending
            took_s, cpu_s = time.perf_counter() - began, server.cpu_s() - cpu
        kit.require(got == [trains * TRAIN] * clients, "another number of rows")
    return _figures("growth-readers", trains * TRAIN * clients, took_s, cpu_s, server, clients=clients)


async def _workers(kit: Kit, server: Daemon, workers: int) -> Figures:
    """Queries that compute a lot and find no row, and one that finds a row of a hundred."""
    trains, rows_each = kit.size(100, 5), 10_000
    async with _connected(server, 1) as (client,):
        await client.execute(STREAM)
        for number in range(HEAVY_QUERIES):
            await client.submit(HEAVY.format(number + 1), name=f"heavy{number}")
        await client.submit("SELECT key FROM growth_in WHERE key = 0", name="few")
        async with await client.subscribe("few") as results, await client.publisher("growth_in") as channel:
            await _send(channel, 1, rows_each)  # so that no process is still starting when time begins to count
            await _read(results, rows_each // 100)
            await _worked_off(client, rows_each)
            began, cpu = time.perf_counter(), server.cpu_s()
            sending = asyncio.create_task(_send(channel, trains, rows_each))
            got = await _read(results, trains * rows_each // 100)
            await sending
            await _worked_off(client, (trains + 1) * rows_each)
            took_s, cpu_s = time.perf_counter() - began, server.cpu_s() - cpu
        kit.require(got == trains * rows_each // 100, "another number of rows")
    return _figures("growth-workers", trains * rows_each, took_s, cpu_s, server, workers=workers)


async def _worked_off(client: AsyncClient, rows: int) -> None:
    """Wait until every query has gone through all rows."""
    while True:
        shown = (await client.execute("SHOW QUERIES")).rows
        if all(row["processed"] >= rows for row in shown):
            return
        await asyncio.sleep(0.002)


@asynccontextmanager
async def _connected(server: Daemon, count: int) -> AsyncIterator[list[AsyncClient]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(await connect_async(server.address)) for _ in range(count)]


async def _send(channel: Any, trains: int, rows: int = TRAIN) -> int:
    """Send trains with one row in a hundred of key 0; return how many rows were accepted."""
    import numpy as np
    import pyarrow as pa

    numbers = np.arange(rows)
    table = pa.table({"ts": numbers, "key": numbers % 100, "price": numbers / 7 + 1.0})
    for _ in range(trains):
        await channel.send(table)
    return int((await channel.flush()).accepted)


async def _read(results: Any, rows: int) -> int:
    got = 0
    async for batch in results:
        got += batch.num_rows
        if got >= rows:
            break
    return got


def _figures(name: str, rows: int, took_s: float, cpu_s: float, server: Daemon, **size: int) -> Figures:
    return {
        "name": name,
        "rows": rows,
        "rows_per_s": rows / took_s,
        "cpu_s": cpu_s,
        "ns_each": cpu_s / rows * 1e9,
        "peak_rss_mb": server.peak_rss_mb(),
        **size,
    }
