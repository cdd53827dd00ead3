"""From the moment a tuple is due at the publisher to the moment its result is in the subscriber's hands, over TCP, through six operators.

A tuple that leaves late because the one before it was slow counts from when it was due, so that a stall is charged to all it delayed; how
late the publisher was is said beside it. Then the same at half of the rate at which tuples, one a frame, go through when they are sent as
fast as the server takes them.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator

from millstream.client.benchmarks.chain_workload import PLAN, STREAM
from millstream.client.benchmarks.daemon import Daemon, daemon
from millstream.client.benchmarks.kit import Figures, Kit
from millstream.client.benchmarks.latency_sender import Sender, no_collector, price
from millstream.client.blocking import _new_loop
from millstream.client.connection import connect_async
from millstream.client.subscriber import Subscription

RATE_PER_S = 2_000
WARM_UP = 1_000
SWITCH_INTERVAL_S = 20e-6
ANSWER_S = 10.0
UNBOUNDED_PER_S = 100_000_000
MEASURED_MAX = 60_000


def benchmark(kit: Kit) -> Iterator[Figures]:
    """2,000 tuples/s, and half of the greatest rate, one by one through six operators over TCP; latency from each tuple's due time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        with daemon("--no-rewrite") as server, asyncio.Runner(loop_factory=_new_loop) as runner:
            yield runner.run(_measure(kit, server, "latency", RATE_PER_S))
        with daemon("--no-rewrite") as server, asyncio.Runner(loop_factory=_new_loop) as runner:
            yield runner.run(_at_half(kit, server))
    finally:
        sys.setswitchinterval(before)


async def _at_half(kit: Kit, server: Daemon) -> Figures:
    whole = await _measure(kit, server, "latency-max", UNBOUNDED_PER_S)
    return await _measure(kit, server, "latency-half", int(whole["rows_per_s"] / 2))


async def _measure(kit: Kit, server: Daemon, name: str, rate_per_s: int) -> Figures:
    tuples = WARM_UP + min(MEASURED_MAX, kit.size(max(20_000, rate_per_s * 3), max(1_000, rate_per_s // 10)))
    arrived_ns = [0] * tuples
    prices = [0.0] * tuples
    async with await connect_async(server.address) as client:
        await client.execute(STREAM.replace("STREAM", "STREAM IF NOT EXISTS", 1))
        await client.submit(PLAN, name=name)
        async with await client.subscribe(name) as results:
            with Sender(server.port, tuples, rate_per_s) as sender:
                await asyncio.to_thread(sender.begin)
                with no_collector():
                    async with asyncio.timeout(tuples / min(rate_per_s, RATE_PER_S) + ANSWER_S):
                        count = await read_prices(results, arrived_ns, prices)
                await asyncio.to_thread(sender.join)
        await client.query(name).drop()
    kit.require(all(arrived_ns) and count == tuples, "a tuple has no result, or more than one")
    kit.require(all(found == price(i) * 1.1 for i, found in enumerate(prices)), "another price than by hand")
    waits = sorted((a - sender.due_ns(i)) / 1e6 for i, a in enumerate(arrived_ns) if i >= WARM_UP)
    return {
        "name": name,
        "rows_per_s": (tuples - WARM_UP) / (max(arrived_ns) - sender.due_ns(WARM_UP)) * 1e9,
        "p50_ms": percentile(waits, 0.50),
        "p99_ms": percentile(waits, 0.99),
        "p9999_ms": percentile(waits, 0.9999),
        "sent_late_p99_ms": percentile(sorted(sender.late_ms[WARM_UP:]), 0.99),
        "operators": 6,
        "train": 1,
        "peak_rss_mb": server.peak_rss_mb(),
    }


async def read_prices(results: Subscription, arrived_ns: list[int], prices: list[float]) -> int:
    """Read results until there are as many as tuples; note when each came and its price, and return their number."""
    count = 0
    async for batch in results:
        now_ns = time.monotonic_ns()
        for number, value in zip(batch.column(1).to_pylist(), batch.column(2).to_pylist(), strict=True):
            arrived_ns[number], prices[number] = now_ns, value
        count += batch.num_rows
        if count >= len(arrived_ns):
            break
    return count


def percentile(ordered: list[float], share: float) -> float:
    """Return the value below which a share of some values in order lies."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
