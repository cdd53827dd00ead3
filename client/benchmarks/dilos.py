"""DILoS on a daemon (Pham 2013, IV and V): three classes of eleven queries at the measured capacity, under each load manager.

What is measured first is how many rows a second on each of the six streams the server works off when they come in lumps, so in the longest
trains there are. Then a new server for each manager gets rows at that rate, ten times a second; trains are shorter then, so that is too
much. SHOW CLASSES is asked twice a second: its loads, added up, say how much (ΣL; 1 is what one processor can do). All is measured again
for each round, as other work of the machine changes it; the figures tell how much of a processor the server got, and the machine's load.

Checked: every row that was accepted is accounted for, and without a manager nothing is shed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.client.benchmarks.daemon import Daemon, daemon
from millstream.client.benchmarks.kit import Figures, Kit
from millstream.client.benchmarks.overload import texts
from millstream.client.blocking import _new_loop
from millstream.client.connection import AsyncClient, connect_async

MANAGERS = ("none", "common", "class", "dilos")
CLASSES = ((1, 6, 300), (2, 3, 400), (3, 1, 500))
"""Number, priority, target in ms."""
SIDES = ("a", "b")
PATTERN = r"z[0-9]+;.*z[0-9]+;.*zx"
"""Never found, costs about a microsecond a row: there is to be work that is a matter of rows and not of calls."""
BATCH_S = 0.1
LOOK_S = 0.5
LUMP = 500
ANSWER_S = 120.0
START_S = 4.0
"""Headrooms and shares begin as priorities give them and take some rounds to settle: what is lost until then is told apart."""


@dataclass(frozen=True, slots=True)
class ClassesLook:
    """SHOW CLASSES once: when (s since the start), and its rows by class."""

    at_s: float
    classes: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ManagedRun:
    """One run under a manager. `processors` is what the server got of a processor, `machine` the load average at its end."""

    manager: str
    rate: float
    looks: Sequence[ClassesLook]
    processors: float
    machine: float


def benchmark(kit: Kit) -> Iterator[Figures]:
    """Three classes at the measured capacity under each load manager (quick: two): ΣL, loss, response time of each class."""
    for number in range(1, kit.size(3, 1) + 1):
        rate = capacity(kit)
        for manager in ("none", "dilos") if kit.quick else MANAGERS:
            run = overloaded(rate, manager, kit.size(12, 2))
            check(kit, run)
            for place in range(len(CLASSES)):
                yield {"name": f"dilos-{manager}", "round": number, **figures(run, place)}


def figures(run: ManagedRun, place: int) -> Figures:
    """Return the figures of a class."""
    name = f"c{CLASSES[place][0]}"
    last = run.looks[-1]
    start = max((look for look in run.looks if look.at_s <= START_S), key=lambda look: look.at_s, default=run.looks[0])
    loads = [sum(one["load"] or 0.0 for one in look.classes.values()) for look in run.looks]
    late = [one for look in run.looks if (one := look.classes[name]["response_ms"]) is not None]
    return {
        "class": name,
        "rows_per_s": len(CLASSES) * len(SIDES) * run.rate,
        "sum_of_loads": sum(loads) / len(loads),
        "load": _mean([look.classes[name]["load"] or 0.0 for look in run.looks]),
        "loss_start_percent": _loss(None, start, name),
        "loss_after_percent": _loss(start, last, name),
        "response_ms": _mean(late),
        "response_last_ms": late[-1] if late else None,
        "latency_p99_ms": last.classes[name]["latency_p99_ms"],
        "quota": _mean([look.classes[name]["quota"] or 0.0 for look in run.looks]),
        "processors": run.processors,
        "machine_load": run.machine,
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _loss(before: ClassesLook | None, after: ClassesLook, name: str) -> float | None:
    now, then = after.classes[name], {"accepted": 0, "shed": 0} if before is None else before.classes[name]
    came = now["accepted"] - then["accepted"]
    return 100.0 * (now["shed"] - then["shed"]) / came if came else None


def check(kit: Kit, run: ManagedRun) -> None:
    """Require what has to hold whatever the machine."""
    last = run.looks[-1].classes
    kit.require(all(one["accepted"] > 0 for one in last.values()), "a class got no rows")
    if run.manager == "none":
        kit.require(not any(one["shed"] for one in last.values()), "rows were shed without a load manager")


# --- running ---


def capacity(kit: Kit) -> float:
    """Return how many rows a second on each stream the server takes when they come in lumps."""
    with daemon("--policy", "cqc") as server, asyncio.Runner(loop_factory=_new_loop) as runner:
        return runner.run(_capacity(server, kit.size(5, 1)))


async def _capacity(server: Daemon, seconds: float) -> float:
    async with await connect_async(server.address) as client:
        await _set_up(client, may_shed=False)
        channels = [await client.publisher(stream) for stream in _streams()]
        began, sent = 0.0, -2 * LUMP  # the first two are to warm up
        while sent <= 0 or time.monotonic() < began + seconds:
            for channel in channels:
                await channel.send(_rows(sent + 2 * LUMP, LUMP, 2_000.0))
                await channel.flush()
            await _worked_off(client)
            sent += LUMP
            if sent == 0:
                began = time.monotonic()
        return sent / (time.monotonic() - began)


async def _worked_off(client: AsyncClient) -> None:
    async with asyncio.timeout(ANSWER_S):
        while any(row["accepted"] - row["processed"] for row in await client.execute("SHOW QUERIES")):
            await asyncio.sleep(0.005)


def overloaded(rate: float, manager: str, seconds: float) -> ManagedRun:
    """ManagedRun under a manager, with so many rows a second on each stream."""
    with daemon("--policy", "cqc", "--load", manager) as server, asyncio.Runner(loop_factory=_new_loop) as runner:
        return runner.run(_overloaded(server, manager, rate, seconds))


async def _overloaded(server: Daemon, manager: str, rate: float, seconds: float) -> ManagedRun:
    async with await connect_async(server.address) as publisher, await connect_async(server.address) as reader:
        await _set_up(publisher, may_shed=manager != "none")
        used_s, began = server.cpu_s(), time.monotonic()
        sending = asyncio.create_task(_publish(publisher, rate, began, seconds))
        looks: list[ClassesLook] = []
        while not sending.done():
            await asyncio.sleep(LOOK_S)
            rows = await reader.execute("SHOW CLASSES")
            looks.append(ClassesLook(time.monotonic() - began, {row["name"]: row for row in rows if row["name"] in _NAMES}))
        await sending
        passed = time.monotonic() - began
        return ManagedRun(manager, rate, looks, (server.cpu_s() - used_s) / passed, os.getloadavg()[0])


async def _publish(client: AsyncClient, rate: float, began: float, seconds: float) -> None:
    """Send rows when they are due. A publisher that is made to wait sends what is due meanwhile in one batch, as its users would."""
    channels = [await client.publisher(stream) for stream in _streams()]
    sent, turn = 0, 0
    while (at_s := time.monotonic() - began) < seconds:
        rows = int(rate * at_s) - sent
        if rows > 0:
            for channel in channels:
                await channel.send(_rows(sent, rows, 1e6 / rate))
            sent += rows
        turn += 1
        await asyncio.sleep(max(0.0, began + turn * BATCH_S - time.monotonic()))


_NAMES = frozenset(f"c{number}" for number, _, _ in CLASSES)


def _streams() -> list[str]:
    return [f"c{number}{side}" for number, _, _ in CLASSES for side in SIDES]


async def _set_up(client: AsyncClient, *, may_shed: bool) -> None:
    for number, priority, target_ms in CLASSES:
        shed = "SHED" if may_shed else "NEVER SHED"
        await client.execute(f"CREATE CLASS c{number} PRIORITY {priority} TARGET {target_ms} MILLISECONDS {shed}")
        for side in SIDES:
            await client.execute(f"CREATE STREAM c{number}{side} (ts TIMESTAMP, id BIGINT, word TEXT) TIMESTAMP BY ts")
        for place, text in enumerate(_queries(number)):
            await client.submit(text, name=f"c{number}_{place}", class_=f"c{number}")


def _queries(number: int) -> list[str]:
    """Four selects, five aggregates, two joins; each reads its words."""
    streams = [f"c{number}{side}" for side in SIDES]
    window = "[RANGE 200 MILLISECONDS SLIDE 200 MILLISECONDS]"
    joined = f"{streams[0]} l JOIN {streams[1]} r ON l.id = r.id"
    found = [f"SELECT id FROM {streams[at % 2]} WHERE {_like('word', number, at, 2)} OR id % 2 = 0" for at in range(4)]
    found += [f"SELECT COUNT(*) AS n FROM {streams[at % 2]} {window} WHERE {_like('word', number, at, 3)} OR id >= 0" for at in range(4, 9)]
    return found + [
        f"SELECT l.id FROM {joined} + {at - 9} WITHIN 50 MILLISECONDS WHERE {_like('l.word', number, at, 4)} OR l.id > 0" for at in (9, 10)
    ]


def _like(column: str, number: int, place: int, times: int) -> str:
    return " OR ".join(f"REGEXP_LIKE({column}, '{PATTERN}{number}_{place}_{again}')" for again in range(times))


def _rows(first: int, rows: int, step_us: float) -> Any:
    import numpy as np
    import pyarrow as pa

    ids = first + np.arange(rows, dtype=np.int64)
    at = (ids * step_us).astype(np.int64)
    words = texts().take(pa.array(ids % len(texts())))
    return pa.record_batch({"ts": pa.array(at).view(pa.timestamp("us", "UTC")), "id": pa.array(ids), "word": words})
