"""The window of `bench window` over TCP: Arrow trains in, each window's rows out, a server process and this one."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Coroutine, Iterator
from typing import Any

from millstream.client.benchmarks.chain_tcp import passed_through
from millstream.client.benchmarks.daemon import Daemon, daemon
from millstream.client.benchmarks.kit import Figures, Kit, spread
from millstream.client.benchmarks.window_workload import NAME, SELECT, STREAM, TRAIN, closing, is_answer, reference, rows_of, trains, views
from millstream.client.blocking import _new_loop
from millstream.client.connection import AsyncClient, connect_async

RUNS = 7


def benchmark(kit: Kit) -> Iterator[Figures]:
    """COUNT, SUM, MAX over 10 s each second by 1,000 keys over TCP, trains of 10,000 rows, results read as they come."""
    with daemon() as server, asyncio.Runner(loop_factory=_new_loop) as runner:
        yield runner.run(_measure(kit, server))


async def _measure(kit: Kit, server: Daemon) -> Figures:
    rows = kit.size(2_000_000, 200_000)
    batches = trains(rows)
    seen = [views(batch) for batch in batches]
    expected = reference(seen)
    sent = [*batches, closing(rows)]
    async with await connect_async(server.address) as publisher, await connect_async(server.address) as reader:
        await _register(publisher, 0)
        kit.require(
            is_answer(_columns(await _passed(publisher, reader, 0, sent, rows_of(expected))), expected), "other windows than by hand"
        )
        ours, by_hand, cpu = [], [], []
        for run in range(1, 1 + kit.size(RUNS, 2)):
            await _register(publisher, run)  # which is in nobody's time: by hand nobody registers a query
            before = server.cpu_s()
            started = time.perf_counter()
            reference(seen)
            between = time.perf_counter()
            await _passed(publisher, reader, run, sent, rows_of(expected))
            ours.append(time.perf_counter() - between)
            by_hand.append(between - started)
            cpu.append(server.cpu_s() - before)
    ratios = [b / o for o, b in zip(ours, by_hand, strict=True)]
    return {
        "name": "window-tcp",
        "rows_per_s": rows / statistics.median(ours),
        "reference_rows_per_s": rows / statistics.median(by_hand),
        "ratio": statistics.median(ratios),
        "noise": spread(ratios),
        "cpu_s": statistics.median(cpu),
        "train": TRAIN,
        "queries": 1,
        "peak_rss_mb": server.peak_rss_mb(),
    }


async def _register(client: AsyncClient, run: int) -> None:
    """Make the stream and the query of a run: windows begin anew, as event time does."""
    await client.execute(STREAM.replace(NAME, f"{NAME}_{run}"))
    await client.execute(f"CREATE QUERY window_{run} AS {SELECT.replace(NAME, f'{NAME}_{run}')}")


def _passed(publisher: AsyncClient, reader: AsyncClient, run: int, batches: list[Any], rows_out: int) -> Coroutine[Any, Any, list[Any]]:
    return passed_through(publisher, reader, f"{NAME}_{run}", f"window_{run}", batches, rows_out)


def _columns(got: list[Any]) -> list[Any]:
    import pyarrow as pa

    table = pa.Table.from_batches([batch.replace_schema_metadata(None) for batch in got]).combine_chunks()
    first, *others = (table.column(i).chunk(0) for i in range(5))
    return [first.view(pa.int64()).to_numpy(), *(column.to_numpy() for column in others)]
