"""Twice as much as the server can work off, two classes: the upper one keeps its target, the lower one sheds and says so.

First the capacity is measured: both classes together, nothing shed. Then a new server, with a load manager, gets
half of that rate, twice that rate, and a quarter of it. Latency runs from the moment a row is due at the publisher to the moment its
result is in the subscriber's hands; loss is the share of rows that were dropped before the class while the load was double.

Checked: the upper class's windows hold every row; each window of the lower class states exactly the rows that it did not see; its account
balances to the row; and once the load has fallen nothing is dropped any more.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millstream.client.benchmarks.daemon import Daemon, daemon
from millstream.client.benchmarks.kit import Figures, Kit
from millstream.client.blocking import _new_loop
from millstream.client.connection import AsyncClient, connect_async
from millstream.client.receipts import receipt_of

if TYPE_CHECKING:
    import numpy as np

US_PER_S = 1_000_000
STREAM = "CREATE STREAM s (ts TIMESTAMP, id BIGINT, word TEXT) TIMESTAMP BY ts"
WINDOW = "[RANGE 1 SECOND SLIDE 1 SECOND]"
BATCH_S = 0.05
TEXTS = 4_096
LUMP = 4_000  # rows sent at once where the capacity is measured
PATTERNS = (r"(took [0-9]+ ms.*){9}", r"z[0-9]+;.*z[0-9]+;.*zx", r"([a-z]+ [0-9]+ ){2}.*([a-z]+ [0-9]+ ){3}!")
"""None of them is ever found, each costs about a microsecond a row: there is to be work that is a matter of rows and not of calls."""
PROBED = 50  # one row in so many is a result by itself, to measure latency
RECOVERY_S = 20.0  # at a quarter of the capacity, after which nothing may be dropped any more
ANSWER_S = 60.0
ONSET_S = 5  # the seconds after the load has doubled that are looked at one by one


@dataclass(frozen=True, slots=True)
class BenchClass:
    """A class: its clause in CREATE CLASS, how many heavy queries it has, and how many patterns each of them looks for."""

    name: str
    priority: int
    target_ms: int
    may_shed: bool
    queries: int
    patterns: int

    def statement(self, may_shed: bool) -> str:
        """Return its definition."""
        shed = "SHED" if may_shed else "NEVER SHED"
        return f"CREATE CLASS {self.name} PRIORITY {self.priority} TARGET {self.target_ms} MILLISECONDS {shed}"


GOLD = BenchClass("gold", 6, 300, may_shed=False, queries=1, patterns=1)
BRONZE = BenchClass("bronze", 1, 1_000, may_shed=True, queries=3, patterns=8)


@dataclass(slots=True)
class Seen:
    """What a class's subscriptions gave: (due, latency) of single rows in s, rows and rows shed by window, final counts."""

    due_s: list[float] = field(default_factory=list)
    latency_s: list[float] = field(default_factory=list)
    windows: dict[int, tuple[int, int]] = field(default_factory=dict)
    counts: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Run:
    """One run: when the load was double (wall clock, s), what each class gave, rows published by window, memory at most."""

    rate: float
    double_s: tuple[float, float]
    ended_s: float
    published: dict[int, int]
    seen: dict[str, Seen]
    notices: list[str]
    peak_mb: float


def benchmark(kit: Kit) -> Iterator[Figures]:
    """Two classes at twice the capacity: p99 latency and loss of each, answers checked; one manager a class and, unless quick, dilos."""
    rate = capacity(kit)
    for manager in ("class",) if kit.quick else ("class", "dilos"):
        run = overloaded(rate, manager, kit.size(20, 5))
        check(kit, run)
        for one in (GOLD, BRONZE):
            yield {"name": f"overload-{manager}", **figures(run, one)}


def figures(run: Run, one: BenchClass) -> Figures:
    """Return the figures of a class while the load was double."""
    first, last = run.double_s
    waits = _waits(run, one, first, last)
    offered, shed = _sums(run, one, first, last)
    return {
        "class": one.name,
        "priority": one.priority,
        "target_ms": one.target_ms,
        "p50_ms": 1e3 * waits[len(waits) // 2],
        "p99_ms": _p99_ms(waits),
        "p99_first_second_ms": _p99_ms(_waits(run, one, first, first + 1.0)),
        "p99_then_ms": max(_p99_ms(_waits(run, one, first + second, first + second + 1.0)) for second in range(1, ONSET_S)),
        "loss_percent": 100.0 * shed / max(1, offered),
        "recovery_s": recovery_s(run) if one.may_shed else None,
        "rows_per_s": 2.0 * run.rate,
        "queries": one.queries + 2,
        "peak_rss_mb": run.peak_mb,
        "policy": "cqc",
    }


def _waits(run: Run, one: BenchClass, first_s: float, last_s: float) -> list[float]:
    """Return the latencies of single rows that were due in a time, ascending, in s."""
    seen = run.seen[one.name]
    return sorted(w for due, w in zip(seen.due_s, seen.latency_s, strict=True) if first_s <= due < last_s)


def _p99_ms(waits: list[float]) -> float:
    return 1e3 * waits[min(len(waits) - 1, int(0.99 * len(waits)))] if waits else 0.0


def _sums(run: Run, one: BenchClass, first_s: float, last_s: float) -> tuple[int, int]:
    windows = [w for w in run.published if first_s <= w / US_PER_S and w / US_PER_S + 1 <= last_s]
    return sum(run.published[w] for w in windows), sum(run.seen[one.name].windows.get(w, (0, run.published[w]))[1] for w in windows)


def check(kit: Kit, run: Run) -> None:
    """Require what has to hold whatever the machine."""
    gold, bronze = run.seen[GOLD.name], run.seen[BRONZE.name]
    kit.require(all(gold.windows.get(w) == (rows, 0) for w, rows in run.published.items()), "the upper class lacks rows")
    kit.require(
        all(sum(bronze.windows.get(w, (0, rows))) == rows for w, rows in run.published.items()),
        "a window of the lower class does not state the rows that it did not see",
    )
    for seen in (gold, bronze):
        counts = seen.counts
        settled = counts["processed"] + counts["late"] + counts["shed"] + counts["failed"]
        kit.require(counts["accepted"] == settled == sum(run.published.values()), f"an account does not balance: {counts}")
    kit.require(bronze.counts["shed"] > 0, "twice the capacity, and nothing was shed")
    kit.require(any(n.startswith("s: rows shed") for n in run.notices), "the publisher was not told that rows were shed")
    kit.require(recovery_s(run) is not None, "rows were still shed long after the load had fallen")


def recovery_s(run: Run) -> float | None:
    """Return how long after the load fell a window of the lower class still lacked rows; None if the last whole one did."""
    fallen = run.double_s[1]
    lacking = [w / US_PER_S + 1 for w, (_, shed) in run.seen[BRONZE.name].windows.items() if shed]
    last = max(lacking, default=0.0)
    return None if last > run.ended_s - 1.0 else max(0.0, last - fallen)


# --- running ---


def capacity(kit: Kit) -> float:
    """Return how many rows a second both classes together can take, nothing being shed."""
    with daemon("--policy", "cqc") as server, asyncio.Runner(loop_factory=_new_loop) as runner:
        return runner.run(_capacity(server, kit.size(6, 3)))


async def _capacity(server: Daemon, seconds: int) -> float:
    """Send lumps, each once the one before has been worked off, so that what is timed is work and not waiting in queues."""
    async with await connect_async(server.address) as client:
        await _set_up(client, may_shed=False)
        batch = _rows(0, LUMP, 0, 10.0)
        async with await client.publisher("s") as channel:
            for _ in range(3):  # to warm up
                await channel.send(batch)
                await channel.flush()
                await _worked_off(client)
            started, sent = time.monotonic(), 0
            while time.monotonic() < started + seconds:
                await channel.send(_rows(10 * sent, LUMP, sent, 10.0))
                sent += LUMP
                await channel.flush()
                await _worked_off(client)
            return sent / (time.monotonic() - started)


async def _worked_off(client: AsyncClient) -> None:
    """Wait until no query has a row waiting."""
    async with asyncio.timeout(ANSWER_S):
        while True:
            counted = [row["accepted"] - row["processed"] for row in await client.execute("SHOW QUERIES")]
            if not any(counted):
                return
            await asyncio.sleep(0.005)


def overloaded(rate: float, manager: str, seconds: float) -> Run:
    """Run the three phases at half, twice and a quarter of a rate."""
    with daemon("--load", manager) as server, asyncio.Runner(loop_factory=_new_loop) as runner:
        return runner.run(_overloaded(server, rate, seconds))


async def _overloaded(server: Daemon, rate: float, seconds: float) -> Run:
    async with await connect_async(server.address) as publisher, await connect_async(server.address) as reader:
        notices: list[str] = []
        publisher.on_notice(lambda _code, message: notices.append(message))
        await _set_up(reader, may_shed=True)
        seen = {one.name: Seen() for one in (GOLD, BRONZE)}
        readers = []
        for one in (GOLD, BRONZE):
            for what in ("probe", "windows"):
                subscription = await reader.subscribe(f"{one.name}_{what}")
                taking = _take_probes if what == "probe" else _take_windows
                readers.append(asyncio.create_task(taking(subscription, seen[one.name])))
        await publisher.execute(STREAM.replace("STREAM s", "STREAM warm"))
        await publisher.publish("warm", _rows(0, 10, 0, 1.0))  # what is imported the first time is not to make the first rows late
        began_us = int(time.time() + 0.5) * US_PER_S + US_PER_S
        plan = ((0.5 * rate, 3.0), (2.0 * rate, seconds), (0.25 * rate, RECOVERY_S))
        published = await _publish(publisher, began_us, plan)
        await publisher.finish("s")
        async with asyncio.timeout(ANSWER_S):
            await asyncio.gather(*readers)
        began = began_us / US_PER_S
        double = (began + plan[0][1], began + plan[0][1] + seconds)
        ended = double[1] + plan[2][1]
        return Run(rate, double, ended, published, seen, notices, server.peak_rss_mb())


async def _set_up(client: AsyncClient, *, may_shed: bool) -> None:
    await client.execute(STREAM)
    for one in (GOLD, BRONZE):
        await client.execute(one.statement(one.may_shed and may_shed))
        for number in range(one.queries):
            await client.submit(_heavy(one, number), name=f"{one.name}_{number}", class_=one.name)
        await client.submit(f"SELECT window_start, COUNT(*) AS n FROM s {WINDOW}", name=f"{one.name}_windows", class_=one.name)
        await client.submit(f"SELECT ts FROM s WHERE id % {PROBED} = 0", name=f"{one.name}_probe", class_=one.name)


def _heavy(one: BenchClass, number: int) -> str:
    conditions = [f"REGEXP_LIKE(word, '{PATTERNS[i % len(PATTERNS)]}{one.name}{number}{i}')" for i in range(one.patterns)]
    return f"SELECT COUNT(*) AS n FROM s {WINDOW} WHERE {' OR '.join(conditions)}"


@functools.cache
def texts() -> Any:
    """Return the words that rows carry, a column of some hundred characters each."""
    import pyarrow as pa

    def text(i: int) -> str:
        return " ".join(f"order {i + k} from branch {i % 61} took {i * k % 7919} ms in zone z{i % 13};" for k in range(8))

    return pa.array([text(i) for i in range(TEXTS)])


def _rows(first_us: int, rows: int, first_id: int, step_us: float) -> Any:
    """Return rows of which each is due `step_us` after the one before."""
    import numpy as np
    import pyarrow as pa

    at = first_us + (np.arange(rows) * step_us).astype(np.int64)
    ids = first_id + np.arange(rows, dtype=np.int64)
    words = texts().take(pa.array(ids % TEXTS))
    return pa.record_batch({"ts": pa.array(at).view(pa.timestamp("us", "UTC")), "id": pa.array(ids), "word": words})


async def _publish(client: AsyncClient, began_us: int, plan: tuple[tuple[float, float], ...]) -> dict[int, int]:
    """Send rows when they are due, a batch every 50 ms; return the rows by window."""
    import numpy as np

    published: dict[int, int] = {}
    number, at_us = 0, began_us
    async with await client.publisher("s") as channel:
        for rate, seconds in plan:
            for _ in range(round(seconds / BATCH_S)):
                rows = max(1, round(rate * BATCH_S))
                batch = _rows(at_us, rows, number, BATCH_S * US_PER_S / rows)
                _count(published, batch.column(0).view("int64").to_numpy() // US_PER_S, np)
                number += rows
                at_us += int(BATCH_S * US_PER_S)
                await asyncio.sleep(max(0.0, at_us / US_PER_S - time.time()))
                await channel.send(batch)
        await channel.flush()
    return published


def _count(published: dict[int, int], seconds: np.ndarray[Any, Any], numpy: Any) -> None:
    for second, rows in zip(*numpy.unique(seconds, return_counts=True), strict=True):
        start = int(second) * US_PER_S
        published[start] = published.get(start, 0) + int(rows)


async def _take_probes(subscription: Any, seen: Seen) -> None:
    async for batch in subscription:
        now = time.time()
        due = batch.column(0).view("int64").to_numpy() / US_PER_S
        seen.due_s += due.tolist()
        seen.latency_s += (now - due).tolist()


async def _take_windows(subscription: Any, seen: Seen) -> None:
    async for batch in subscription:
        receipt = receipt_of(batch)
        shed = [0] * batch.num_rows if receipt is None else [n or 0 for n in receipt.rows().column(1).to_pylist()]
        starts = batch.column(0).view("int64").to_pylist()
        for start, count, lost in zip(starts, batch.column(1).to_pylist(), shed, strict=True):
            seen.windows[start] = (count, lost)
    seen.counts = subscription.end.counts
