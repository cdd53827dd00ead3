"""The chain of six operators over TCP: Arrow trains in, results out, a server process and this one."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from typing import Any

from millstream.client.benchmarks.chain_workload import NAME, PLAN, STREAM, reference, trains, views
from millstream.client.benchmarks.daemon import Daemon, daemon
from millstream.client.benchmarks.kit import Figures, Kit, spread
from millstream.client.blocking import _new_loop
from millstream.client.connection import AsyncClient, connect_async

TRAIN = 10_000
RUNS = 7


def benchmark(kit: Kit) -> Iterator[Figures]:
    """Six selections and projections in a row over TCP, trains of 10,000 and 65,536 rows, results read as they come."""
    for train in (TRAIN,) if kit.quick else (TRAIN, 65_536):
        with daemon("--no-rewrite") as server, asyncio.Runner(loop_factory=_new_loop) as runner:
            yield runner.run(_measure(kit, server, train))


async def _measure(kit: Kit, server: Daemon, train: int) -> Figures:
    batches = trains(kit.size(4_000_000, 200_000), train)
    rows = sum(batch.num_rows for batch in batches)
    seen = [views(batch) for batch in batches]
    expected = reference(seen)
    async with await connect_async(server.address) as publisher, await connect_async(server.address) as reader:
        await publisher.execute(STREAM)
        await reader.submit(PLAN, name="chain")
        got = await passed_through(publisher, reader, NAME, "chain", batches, len_of(expected))
        kit.require(_equal(got, expected), "other rows than by hand")
        ours, by_hand = [], []
        cpu_before = server.cpu_s()
        for _ in range(kit.size(RUNS, 2)):
            started = time.perf_counter()
            reference(seen)
            between = time.perf_counter()
            await passed_through(publisher, reader, NAME, "chain", batches, len_of(expected))
            ours.append(time.perf_counter() - between)
            by_hand.append(between - started)
    ratios = [b / o for o, b in zip(ours, by_hand, strict=True)]
    return {
        "name": "chain-tcp",
        "rows_per_s": rows / statistics.median(ours),
        "reference_rows_per_s": rows / statistics.median(by_hand),
        "ratio": statistics.median(ratios),
        "noise": spread(ratios),
        "cpu_s": (server.cpu_s() - cpu_before) / len(ours),
        "train": train,
        "operators": 6,
        "peak_rss_mb": server.peak_rss_mb(),
    }


def len_of(expected: list[tuple[Any, ...]]) -> int:
    """Return how many rows the answer has."""
    return sum(len(answer[0]) for answer in expected)


async def passed_through(
    publisher: AsyncClient, reader: AsyncClient, stream: str, query: str, batches: list[Any], rows_out: int
) -> list[Any]:
    """Publish everything and read until all results of the query are here; returns them as they came."""

    async def send(channel: Any) -> None:
        for batch in batches:
            await channel.send(batch)

    got = []
    count = 0
    async with await reader.subscribe(query) as results, await publisher.publisher(stream) as channel:
        sending = asyncio.get_running_loop().create_task(send(channel))
        async for batch in results:
            got.append(batch)
            count += batch.num_rows
            if count >= rows_out:
                break
        await sending
        await channel.flush()
    return got


def _equal(got: list[Any], expected: list[tuple[Any, ...]]) -> bool:
    import numpy as np
    import pyarrow as pa

    table = pa.Table.from_batches([batch.replace_schema_metadata(None) for batch in got]).combine_chunks()
    columns = [table.column(0).chunk(0).view(pa.int64()), table.column(1).chunk(0), table.column(2).chunk(0)]
    return all(np.array_equal(column.to_numpy(), np.concatenate([answer[i] for answer in expected])) for i, column in enumerate(columns))
