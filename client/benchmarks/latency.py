"""From the moment a tuple is due at the publisher to the moment its result is in the subscriber's hands, over TCP, through six operators.

A tuple that leaves late because the one before it was slow counts from when it was due, so that a stall is charged to all it delayed.
Then the same at half of the rate at which tuples, one a frame, go through when they are sent as fast as the server takes them.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterator

from millstream.client.benchmarks.chain_workload import NAME, PLAN, START_US, STREAM
from millstream.client.benchmarks.daemon import Daemon, daemon
from millstream.client.benchmarks.kit import Figures, Kit
from millstream.client.benchmarks.raw import RawPublisher
from millstream.client.blocking import _new_loop
from millstream.client.connection import connect_async

RATE_PER_S = 2_000
WARM_UP = 1_000
SPIN_S = 100e-6  # a sleep may last that much longer than asked for
SWITCH_INTERVAL_S = 20e-6
ANSWER_S = 10.0
SENT_TOGETHER_MAX = 256  # frames; by the socket's own back-pressure no more are sent than the server takes
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
            sender = _Sender(server.port, tuples, rate_per_s)
            sender.start()
            count = 0
            async with asyncio.timeout(tuples / min(rate_per_s, RATE_PER_S) + ANSWER_S):
                async for batch in results:
                    now_ns = time.monotonic_ns()
                    for number, price in zip(batch.column(1).to_pylist(), batch.column(2).to_pylist(), strict=True):
                        arrived_ns[number], prices[number] = now_ns, price
                    count += batch.num_rows
                    if count >= tuples:
                        break
            sender.join()
        await client.query(name).drop()
    kit.require(all(arrived_ns) and count == tuples, "a tuple has no result, or more than one")
    kit.require(all(price == _price(i) * 1.1 for i, price in enumerate(prices)), "another price than by hand")
    waits = sorted((a - sender.due_ns(i)) / 1e6 for i, a in enumerate(arrived_ns) if i >= WARM_UP)
    return {
        "name": name,
        "rows_per_s": (tuples - WARM_UP) / (max(arrived_ns) - sender.due_ns(WARM_UP)) * 1e9,
        "p50_ms": _percentile(waits, 0.50),
        "p99_ms": _percentile(waits, 0.99),
        "p9999_ms": _percentile(waits, 0.9999),
        "operators": 6,
        "train": 1,
        "peak_rss_mb": server.peak_rss_mb(),
    }


def _price(number: int) -> float:
    return 25.0 + number % 64


def _percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class _Sender(threading.Thread):
    """Sends tuple i when it is due, and with it those that are due already."""

    def __init__(self, port: int, tuples: int, rate_per_s: int) -> None:
        super().__init__(name="sender", daemon=True)
        self._rate_per_s = rate_per_s
        self._publisher = RawPublisher(port, NAME)
        self._frames = [self._publisher.row_frame([START_US + i, i, 0, 0, _price(i), "tag"]) for i in range(tuples)]
        self._began_ns = 0

    def due_ns(self, number: int) -> int:
        """Return when a tuple is due, on the monotonic clock."""
        return self._began_ns + number * 1_000_000_000 // self._rate_per_s

    def run(self) -> None:
        """Send all, then wait for the acks."""
        self._began_ns = time.monotonic_ns() + 50_000_000
        number = 0
        while number < len(self._frames):
            due_ns = self.due_ns(number)
            while (left_s := (due_ns - time.monotonic_ns()) / 1e9) > 0:
                if left_s > SPIN_S:
                    time.sleep(left_s - SPIN_S)
            due = (time.monotonic_ns() - self._began_ns) * self._rate_per_s // 1_000_000_000 + 1
            last = min(len(self._frames), max(number + 1, min(due, number + SENT_TOGETHER_MAX)))
            self._publisher.send(b"".join(self._frames[number:last]))
            number = last
        self._publisher.wait_for_acks(len(self._frames))
        self._publisher.close()
