"""A live server at twice its capacity: the lower class sheds and the upper one does not, memory stays bounded, all is served again.

That the upper class keeps its target is shown in virtual time (scheduler/load/test_onset.py) and by `bench overload`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from millstream.client import receipt_of
from millstream.engine.data import limits

from tests.support.live_server import Harness, run, until

COST_S = 20e-6  # of a row in the lower class: a wait and not work, so that the capacity is 50,000 rows/s on any machine
BATCH_S = 0.02


def make_slow(harness: Harness, query: str) -> None:
    """Let a query's window take its time over each row."""
    network = harness.server.application.host.network
    (running,) = [q for q in network.queries.values() if q.node.name == query]
    logic = running.blueprint.operators[0].logic
    process, never = logic.process, threading.Event()

    def slowly(inputs: Sequence[Any], out: Any) -> None:
        never.wait(COST_S * inputs[0].rows)
        process(inputs, out)

    logic.process = slowly  # type: ignore[method-assign]


async def publish(channel: Any, began: float, first: int, rows_per_s: int, seconds: float) -> int:
    """Send rows when they are due; their time is when that is. Returns the number of the next."""
    rows = int(rows_per_s * BATCH_S)
    for tick in range(int(seconds / BATCH_S)):
        due = began + tick * BATCH_S
        await asyncio.sleep(max(0.0, due - time.time()))
        await channel.send(pa.record_batch({"ts": [int(due * 1e6)] * rows, "v": list(range(first, first + rows))}))
        first += rows
    return first


async def count(subscription: Any) -> int:
    return sum([batch.num_rows async for batch in subscription])


async def windows(subscription: Any, seen: list[int], shed: list[int]) -> None:
    async for batch in subscription:
        receipt = receipt_of(batch)
        assert receipt is not None
        told = receipt.rows().to_pylist()
        seen += batch.column(0).to_pylist()
        shed += [one["rows_shed"] for one in told]


def test_at_twice_the_capacity_the_upper_class_loses_nothing_and_the_lower_sheds_until_the_load_falls() -> None:
    async def test(harness: Harness) -> None:
        client, reader = await harness.client(), await harness.client()
        host = harness.server.application.host
        await client.execute("CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us")
        await client.execute("CREATE CLASS gold PRIORITY 6 TARGET 300 MILLISECONDS NEVER SHED")
        await client.execute("CREATE CLASS low PRIORITY 1 TARGET 500 MILLISECONDS SHED")
        await client.submit("SELECT ts FROM s WHERE v % 100 = 0", name="probe", class_="gold")
        await client.submit("SELECT COUNT(*) AS n FROM s [RANGE 1 SECOND SLIDE 1 SECOND]", name="counts", class_="low")
        make_slow(harness, "counts")
        seen: list[int] = []
        shed: list[int] = []
        tasks = [
            asyncio.create_task(count(await reader.subscribe("probe"))),
            asyncio.create_task(windows(await reader.subscribe("counts"), seen, shed)),
        ]
        log = host.network.sources["s"].shed_logs[host.class_nodes["low"].id, ""]
        held = 0
        async with await client.publisher("s") as channel:
            number = await publish(channel, time.time(), 0, 10_000, 0.5)
            for _ in range(3):
                number = await publish(channel, time.time(), number, 100_000, 1.0)
                held = max(held, log.log.rows_held)
            assert log.shed > 0.2 * number
            while True:  # until a second comes of which nothing is dropped
                before = log.shed
                number = await publish(channel, time.time(), number, 5_000, 1.0)
                if log.shed == before and len(shed) > 3:
                    break
            await channel.flush()
        await client.finish("s")
        probed, _ = await asyncio.gather(*tasks)
        assert probed == number // 100
        assert held < limits.LOG_ROWS_MAX
        assert sum(seen) + sum(shed) == number
        assert sum(shed) == log.shed
        await until(lambda: host.counts(host.queries.get("counts")).get("queued", 0) == 0, "all is worked off")
        assert host.counts(host.queries.get("counts"))["shed"] == log.shed
        assert not host.unbalanced()

    run(test, within_s=60.0, load="class", workers=2)
