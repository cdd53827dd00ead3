"""NEXMark against a server: each query over TCP as fast as it goes, then its latency at half of that rate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from millstream.client.benchmarks.daemon import Daemon, daemon
from millstream.client.benchmarks.kit import Figures, Kit
from millstream.client.benchmarks.nexmark.workload import Workload
from millstream.client.blocking import _new_loop
from millstream.client.connection import AsyncClient, connect_async
from millstream.client.subscriber import Subscription

QUICK = ("q0", "q6", "q13")
TRAIN_EVENTS = 10_000  # sent at a time, over the three streams
RUN_S_MAX = 900.0
TURN_S = 0.02  # at half of the rate, events are sent as often as this


def benchmark(kit: Kit) -> Iterator[Figures]:
    """The queries of NEXMark over TCP: as fast as they go, then latency at half of that rate as the server measures it."""
    workload = kit.nexmark()
    for name in QUICK if kit.quick and not kit.parts else workload.queries:
        with daemon() as server, asyncio.Runner(loop_factory=_new_loop) as runner:
            fast = runner.run(_passed(kit, server, workload, name, None))
        with daemon() as server, asyncio.Runner(loop_factory=_new_loop) as runner:
            half = runner.run(_passed(kit, server, workload, name, fast["rows_per_s"] / 2))
        yield {"name": f"nexmark-{name}-tcp", **fast, "p50_ms": half["p50_ms"], "p99_ms": half["p99_ms"]}


def write(kit: Kit, folder: Path) -> str:
    """Write the events into files of a folder."""
    return kit.nexmark().write(folder)


async def _passed(kit: Kit, server: Daemon, workload: Workload, name: str, rate_per_s: float | None) -> Figures:
    """Send all events, read all results; rows a second are events by wall time from the first one sent to the last result."""
    async with await connect_async(server.address) as publisher, await connect_async(server.address) as reader:
        later = await _registered(publisher, workload, name)
        async with await reader.subscribe(name) as results, asyncio.timeout(RUN_S_MAX):
            before, began = server.cpu_s(), time.perf_counter()
            reading = asyncio.get_running_loop().create_task(_read(results))
            try:
                await _send(publisher, workload, later, rate_per_s)
                got = await reading
            finally:
                reading.cancel()  # when sending fails, no results come any more
            taken, cpu = time.perf_counter() - began, server.cpu_s() - before
            assert results.schema is not None
            schema = results.schema.remove_metadata()
        if rate_per_s is None:
            wrong = workload.wrong(name, got or [pa.RecordBatch.from_pylist([], schema)])
            kit.require(wrong is None, str(wrong))
        measured = await _latency(reader, name)
    figures = {"queries": 1, "rows_per_s": workload.events / taken, "cpu_s": cpu, "peak_rss_mb": server.peak_rss_mb()}
    return {**figures, **measured}


async def _read(results: Subscription) -> list[pa.RecordBatch]:
    return [batch.replace_schema_metadata(None) async for batch in results]


async def _registered(client: AsyncClient, workload: Workload, name: str) -> list[str]:
    """Make the streams and the query; return the streams that it feeds itself."""
    *before, select = [*workload.streams, *workload.query(name)]
    for statement in before:
        await client.execute(statement)
    table, rows = workload.side_input
    if any(f"CREATE TABLE {table} " in statement for statement in before):
        await client.publish(table, rows)
    await client.execute(f"CREATE QUERY {name} AS {select}")
    return workload.fed(name)


async def _send(client: AsyncClient, workload: Workload, later: list[str], rate_per_s: float | None) -> None:
    """Send the events, at a pace or as fast as the server takes them, and end the streams."""
    channels = {name: await client.publisher(name) for name in workload.sources}
    began = time.perf_counter()
    step = TRAIN_EVENTS if rate_per_s is None else max(1, int(rate_per_s * TURN_S))
    for sent, piece in _pieces(workload, step):
        if rate_per_s is not None:
            await asyncio.sleep(max(0.0, began + sent / rate_per_s - time.perf_counter()))
        for name, batch in piece:
            await channels[name].send(batch)
    for channel in channels.values():
        await channel.flush()
        await channel.close()
    for stream in (*workload.sources, *later):
        await client.finish(stream)


def _pieces(workload: Workload, events: int) -> Iterator[tuple[int, list[tuple[str, pa.RecordBatch]]]]:
    """Cut the events into so many at a time: how many came before, and the rows of each stream. A chunk ends a piece."""
    sent = 0
    for train in workload.trains:
        whole = sum(batch.num_rows for _, batch in train)
        for cut in range(0, whole, events):
            end = min(cut + events, whole)
            piece = [(name, batch.slice(at := cut * batch.num_rows // whole, end * batch.num_rows // whole - at)) for name, batch in train]
            yield sent + cut, [(name, batch) for name, batch in piece if batch.num_rows]
        sent += whole


async def _latency(client: AsyncClient, name: str) -> dict[str, Any]:
    """Return what the server measured from the arrival of the row that caused a result until that left the last operator."""
    (row,) = [row for row in (await client.execute("SHOW MEASURES")).rows if row["name"] == name]
    return {"p50_ms": row["latency_p50_ms"], "p99_ms": row["latency_p99_ms"]}
