"""The latency of honest work beside a reader who means harm, one kind of attack after the other (`attacks.py`), and the memory it costs.

Each kind has a server of its own, and 2,000 tuples a second go through six operators meanwhile as in `bench latency`. The attack comes
from a process of its own, which takes processor time from all: the first line says what the same costs without any. Every tuple must have
its result, with the right values, whatever the attack did.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from millstream.client.benchmarks.attacks import ATTACKS, Target
from millstream.client.benchmarks.chain_workload import NAME, PLAN, STREAM
from millstream.client.benchmarks.daemon import Daemon, daemon
from millstream.client.benchmarks.kit import Figures, Kit
from millstream.client.benchmarks.latency import RATE_PER_S, WARM_UP, percentile, read_prices
from millstream.client.benchmarks.latency_sender import Sender, no_collector, price
from millstream.client.blocking import _new_loop
from millstream.client.connection import connect_async

TOKENS = {"admin": "all", "writer": "rows", "reader": "nothing"}
TABLE = "CREATE TABLE held (k BIGINT, v TEXT, PRIMARY KEY (k))"
QUERY = "hostile"
TABLE_ROWS = 10_000
TEXT = "v" * 500
ANSWER_S = 30.0
_COMMAND = "from millstream.client.benchmarks.attacks import main; main()"


def benchmark(kit: Kit) -> Iterator[Figures]:
    """2,000 tuples/s beside a reader who means harm, one kind of attack after the other: latency of the others, memory of the server."""
    lines: list[Figures] = []
    lost: list[str] = []
    for kind in (None, *ATTACKS):
        with daemon("--no-rewrite", *options()) as server, asyncio.Runner(loop_factory=_new_loop) as runner:
            target = Target(server.port, TOKENS["reader"], NAME, "held", QUERY)
            attack = partial(attacking, kind, target)
            line, missing = runner.run(measured(kit, server, f"hostile-{kind or 'none'}", attack))
        lines.append(line)
        if missing:
            lost.append(f"{kind}: {missing}")
        yield line
    yield {
        "name": "hostile-worst",
        "p99_ms": max(line["p99_ms"] for line in lines[1:]),
        "peak_rss_mb": max(line["peak_rss_mb"] for line in lines[1:]),
    }
    kit.require(not lost, f"tuples without their result, by kind of attack: {', '.join(lost)}")


def options() -> list[str]:
    """Return the flags of a server with a token for each role."""
    return [word for role, token in TOKENS.items() for word in (f"--{role}-token", token)]


async def prepare(server: Daemon, query: str) -> None:
    """Make what is attacked: the stream and query of the latency benchmark, and a table."""
    async with await connect_async(server.address, TOKENS["admin"]) as admin:
        await admin.execute(STREAM)
        await admin.execute(TABLE)
        await admin.submit(PLAN, name=query)
        await admin.publish("held", [{"k": k, "v": TEXT} for k in range(TABLE_ROWS)])


@contextmanager
def attacking(kind: str | None, target: Target, seconds: float) -> Iterator[None]:
    """Attack from a process of its own while the block runs."""
    if kind is None:
        yield
        return
    arguments = [kind, f"{seconds:g}", str(target.port), target.token, target.stream, target.table, target.query]
    process = subprocess.Popen([sys.executable, "-c", _COMMAND, *arguments], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


async def measured(kit: Kit, server: Daemon, name: str, attack: Callable[[float], AbstractContextManager[None]]) -> tuple[Figures, int]:
    """Return the figures of honest work beside an attack of so many seconds, and how many tuples had no result."""
    tuples = WARM_UP + kit.size(3 * RATE_PER_S, RATE_PER_S // 4)
    arrived_ns, prices = [0] * tuples, [0.0] * tuples
    await prepare(server, QUERY)
    async with await connect_async(server.address, TOKENS["admin"], client_id="honest") as client, await client.subscribe(QUERY) as results:
        seconds = tuples / RATE_PER_S + 1.0
        with attack(seconds), Sender(server.port, tuples, RATE_PER_S, TOKENS["writer"]) as sender:
            await asyncio.to_thread(sender.begin)
            with no_collector():
                try:
                    async with asyncio.timeout(seconds + ANSWER_S):
                        await read_prices(results, arrived_ns, prices)
                except TimeoutError:
                    pass  # which tuples have no result is counted below
    missing = sum(not at for at in arrived_ns)
    kit.require(all(found == price(i) * 1.1 for i, found in enumerate(prices) if arrived_ns[i]), "another price than by hand")
    waits = sorted((at - sender.due_ns(i)) / 1e6 for i, at in enumerate(arrived_ns) if i >= WARM_UP and at)
    figures = {"p50_ms": percentile(waits, 0.50), "p99_ms": percentile(waits, 0.99)} if waits else {"p50_ms": 1e9, "p99_ms": 1e9}
    return {"name": name, **figures, "peak_rss_mb": server.peak_rss_mb()}, missing
