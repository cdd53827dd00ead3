"""DILoS on a daemon (Pham 2013, IV and V): three classes of eleven queries at the measured capacity, under each load manager.

What is measured first is how many rows a second on each of the six streams the server works off while more wait at all times. That is in
the longest trains there are; so what the loads of the classes add up to (ΣL) is seen at a part of that rate, ten times a second, and the
capacity is the rate at which it would be 1. Then a new server for each manager gets 1.13 of that: the paper's one shedder for all had to
drop 11.4%. SHOW CLASSES is asked twice a second. All is measured again for each round, as other work of the machine changes it; the figures
tell how much of a processor the server got, and the machine's load.

Checked: every row that was accepted is accounted for, and without a manager nothing is shed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
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
ONE_STREAM = 9
"""Of the eleven queries of a class, the first nine read one stream, the others join two."""
BATCH_S = 0.1
LOOK_S = 0.5
OVERLOAD = 1.13
LUMP = 500
PROBED_PART = 0.8
SATURATED_S = 2.0
"""How long rows come as fast as the server takes them before its capacity is counted."""
START_S = 16.0
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

    @property
    def sum_of_loads(self) -> float:
        """ΣL: 1 is what one processor can do."""
        return sum(sum(one["load"] or 0.0 for one in look.classes.values()) for look in self.looks) / len(self.looks)


def benchmark(kit: Kit) -> Iterator[Figures]:
    """Three classes at the measured capacity under each load manager (quick: two): ΣL, loss, response time of each class."""
    for number in range(1, kit.size(3, 1) + 1):
        rate = OVERLOAD * capacity(kit)
        for manager in ("none", "dilos") if kit.quick else MANAGERS:
            run = overloaded(rate, manager, kit.size(30, 2))
            check(kit, run)
            for place in range(len(CLASSES)):
                yield {"name": f"dilos-{manager}", "round": number, **figures(run, place)}


def figures(run: ManagedRun, place: int) -> Figures:
    """Return the figures of a class."""
    name = f"c{CLASSES[place][0]}"
    last = run.looks[-1]
    start = max((look for look in run.looks if look.at_s <= START_S), key=lambda look: look.at_s, default=run.looks[0])
    late = [one for look in run.looks if (one := look.classes[name]["response_ms"]) is not None]
    return {
        "class": name,
        "rows_per_s": len(CLASSES) * len(SIDES) * run.rate,
        "sum_of_loads": run.sum_of_loads,
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
    """Return at how many rows a second on each stream the loads of the classes add up to 1."""
    with daemon("--policy", "cqc") as server, asyncio.Runner(loop_factory=_new_loop) as runner:
        saturated = runner.run(_saturated(server, kit.size(6, 1)))
    run = overloaded(PROBED_PART * saturated, "none", kit.size(6, 1))
    return run.rate / run.sum_of_loads


async def _saturated(server: Daemon, seconds: float) -> float:
    async with await connect_async(server.address) as publisher, await connect_async(server.address) as reader:
        await _set_up(publisher, may_shed=False)
        sending = asyncio.gather(*[_fill(await publisher.publisher(stream)) for stream in _streams()])
        try:
            await asyncio.sleep(min(SATURATED_S, seconds))
            before, began = await _processed(reader), time.monotonic()
            await asyncio.sleep(seconds)
            return float((await _processed(reader) - before) / (time.monotonic() - began))
        finally:
            sending.cancel()
            with suppress(asyncio.CancelledError):  # what else ended it is raised
                await sending


async def _fill(channel: Any) -> None:
    """Send lumps for as long as the server lets it."""
    sent = 0
    while True:
        await channel.send(_rows(sent, LUMP, 1_000.0))
        sent += LUMP


async def _processed(client: AsyncClient) -> float:
    """Return how many rows of its stream a query has had, on average over those that read one stream."""
    rows = await client.execute("SHOW QUERIES")
    done = [float(row["processed"]) for row in rows if int(row["name"].partition("_")[2]) < ONE_STREAM]
    return sum(done) / len(done)


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
