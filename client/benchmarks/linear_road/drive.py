"""`millstream bench linear-road`: the server in one process, the cars in another, and the judge here.

All rows of a second are sent when it begins. An answer's response time runs from then until the answer is in the reader's hands, so it has
in it the second that has to pass before a report's place in time is certain.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import click
import numpy as np
import pyarrow.parquet as pq
from millstream.client.benchmarks.daemon import Daemon, daemon
from millstream.client.benchmarks.kit import Figures, Kit
from millstream.client.benchmarks.linear_road.rules import LIMITS_S, Rules, late
from millstream.client.benchmarks.linear_road.traffic import RUN_S, SCHEMA, Traffic
from millstream.client.benchmarks.linear_road.workload import QUERIES, answers, statements
from millstream.client.blocking import _new_loop
from millstream.client.connection import AsyncClient, connect_async
from millstream.client.errors import MillstreamError

DENSE_S = 9_000  # the last half hour, in which most cars report
STRETCH_S, HALF_HOUR_S = 180, 1_800
WHOLE_SPEEDUP = 3.0
EXPRESSWAYS_MAX = 512
STEP = 1 / 8  # how near to its end the search comes
AHEAD_S = 0.2  # from when the first rows are made to their time
GIVEN_UP = 2.0  # times the limit: a run that is so late need not go on
QUICK = Traffic(1, 160, DENSE_S - 30, rate_max=300.0, spread=4.0, jam_cars=150, accident_s=30.0)
QUICK_SPEEDUP = 10.0
USUAL, RATING, OVERLOAD = "4", "rating", "overload"  # what is driven where nothing is asked for, what searches, what may lose reports
TOO_MUCH = "12@20"  # by far more than two processors can take
_FEEDER = "from millstream.client.benchmarks.linear_road.drive import main; main()"


class TooLate(Exception):
    """An answer came so late that the run has failed."""


@dataclass
class Drive:
    """One run: what came by type of answers, and when after the second that it answers began. `options` are the server's."""

    options: ClassVar[Sequence[str]] = ()

    traffic: Traffic
    speedup: float
    gives_up: bool = False
    rows: dict[str, list[Any]] = field(default_factory=lambda: {kind: [] for kind in QUERIES})
    response_s: dict[str, list[Any]] = field(default_factory=lambda: {kind: [] for kind in QUERIES})
    began_s: float = 0.0
    feeder: dict[str, float] = field(default_factory=dict)
    cpu_s: float = 0.0
    peak_mb: float = 0.0

    @property
    def statements(self) -> list[str]:
        """What is registered."""
        return statements()

    @property
    def queries(self) -> Mapping[str, str]:
        """The queries that are read, by what they answer."""
        return QUERIES

    def take(self, kind: str, batch: Any) -> None:
        """Note a batch of answers. Raises TooLate for one that is hopelessly late."""
        now = time.monotonic()
        batch = batch.replace_schema_metadata(None)
        seconds = batch.column("time").to_numpy() - self.traffic.begin_s
        response = now - (self.began_s + seconds / self.speedup)
        self.rows[kind].append(batch)
        self.response_s[kind].append(response)
        if self.gives_up and len(response) and float(response.max()) > GIVEN_UP * LIMITS_S[kind] / self.speedup:
            raise TooLate(f"{kind}: {response.max():.3g} s")

    async def ended(self, client: AsyncClient, subscriptions: Mapping[str, Any]) -> None:
        """Ask the server what else is to be known, once all answers are there."""

    def responses(self, kind: str) -> Any:
        """Return the response times of a type, in s."""
        return np.concatenate(self.response_s[kind]) if self.response_s[kind] else np.zeros(0)

    @property
    def is_in_time(self) -> bool:
        """Whether all answers came within their limits, which are as much smaller as the run is faster."""
        return not any(late(kind, self.responses(kind), self.speedup) for kind in QUERIES)

    def figures(self) -> Figures:
        """Return what was measured."""
        rows = int(self.feeder["rows"])
        wall_s = self.traffic.seconds / self.speedup
        slowest = {f"{kind}_max_s": float(found.max()) for kind in QUERIES if len(found := self.responses(kind))}
        tolls = self.responses("toll")
        return {
            "expressways": self.traffic.expressways,
            "speedup": self.speedup,
            "seconds": self.traffic.seconds,
            "in_time": self.is_in_time,
            "rows": rows,
            "sent_per_s": rows / wall_s,
            "toll_p99_s": float(np.percentile(tolls, 99)) if len(tolls) else 0.0,
            **slowest,
            "sent_late_s": self.feeder["late_s"],
            "cpu_share": self.cpu_s / wall_s,
            "peak_rss_mb": self.peak_mb,
        }


def benchmark(kit: Kit) -> Iterator[Figures]:
    """Linear Road on a server of its own: how many expressways it serves in time, every answer judged by the rules."""
    if kit.quick and not kit.parts:
        yield {"name": "linear-road", **driven(kit, QUICK, QUICK_SPEEDUP).figures()}
        return
    parts = [part for part in kit.parts if part != OVERLOAD]
    if len(parts) < len(kit.parts):
        from millstream.client.benchmarks.linear_road.overload import overloaded  # it needs this file

        yield from (overloaded(kit, *_part(part, kit.seed)) for part in parts or (TOO_MUCH,))
        return
    for part in parts or (USUAL,):
        if part == RATING:
            yield from _rated(kit)
        else:
            yield {"name": "linear-road", **driven(kit, *_part(part, kit.seed)).figures()}


def _rated(kit: Kit) -> Iterator[Figures]:
    """Search for the most expressways served in time, drive the half hour with them, and all three hours faster: it takes hours."""
    best, failed, number = 0, EXPRESSWAYS_MAX, 1
    while failed - best > max(1, int(STEP * best)):
        one = _tried(kit, Traffic(number, STRETCH_S, DENSE_S, kit.seed), 1.0)
        yield {"name": "linear-road", **one}
        best, failed = (number, failed) if one["in_time"] else (best, number)
        number = min(2 * number, (best + failed) // 2)
    half_hour = _tried(kit, Traffic(max(1, best), HALF_HOUR_S, DENSE_S, kit.seed), 1.0)
    yield {"name": "linear-road-rating", **half_hour, "l_rating": best if half_hour["in_time"] else None}
    yield {"name": "linear-road-whole", **_tried(kit, Traffic(max(1, int(best / WHOLE_SPEEDUP)), RUN_S, 0, kit.seed), WHOLE_SPEEDUP)}


def write(kit: Kit, folder: Path) -> str:
    """Write the traffic of so many expressways and the history as Parquet files; returns a sentence about it."""
    traffic, _ = _part(kit.parts[0] if kit.parts else "1", kit.seed, RUN_S, 0)
    folder.mkdir(parents=True, exist_ok=True)
    rows = 0
    with pq.ParquetWriter(folder / "input.parquet", SCHEMA) as file:
        for _, batch in traffic.batches():
            file.write_batch(batch)
            rows += batch.num_rows
    pq.write_table(traffic.history, folder / "history.parquet")
    return f"{rows} rows of {traffic.expressways} expressways in {folder}, seed {traffic.seed}"


def _part(part: str, seed: int, seconds: int = STRETCH_S, begin_s: int = DENSE_S) -> tuple[Traffic, float]:
    """Return what is asked for: 20, 20@3 for three times faster, 20@3:10800 for so many seconds. UsageError for anything else."""
    run, _, length = part.partition(":")
    number, _, speedup = run.partition("@")
    try:
        if length:
            seconds = int(length)
            begin_s = min(DENSE_S, RUN_S - seconds)
        traffic, faster = Traffic(int(number), seconds, begin_s, seed), float(speedup or 1)
    except ValueError:
        raise click.UsageError(f"{part} is no number of expressways; write 2, 2@3 for three times faster, {RATING} or {OVERLOAD}") from None
    if traffic.expressways < 1 or not 0 < faster < 1_000 or not 0 < traffic.seconds <= RUN_S:
        raise click.UsageError(f"{part} is no run; write 2, 2@3 for three times faster, or 2@3:{RUN_S} for so many seconds")
    return traffic, faster


def _tried(kit: Kit, traffic: Traffic, speedup: float) -> Figures:
    """Return the figures of a run; only that it was not in time if it was given up."""
    try:
        return driven(kit, traffic, speedup, gives_up=True).figures()
    except TooLate:
        return {"expressways": traffic.expressways, "speedup": speedup, "seconds": traffic.seconds, "in_time": False}


def driven(kit: Kit, traffic: Traffic, speedup: float, *, gives_up: bool = False) -> Drive:
    """Drive once, and judge every answer. TooLate when it is given up."""
    drive = Drive(traffic, speedup, gives_up)
    run(drive)
    wrong = Rules((batch for _, batch in traffic.batches()), traffic.history).wrong(answers(drive.rows))
    kit.require(not wrong, "; ".join(wrong))
    return drive


def run(drive: Drive) -> None:
    """Drive once on a server of its own. TooLate when it is given up."""
    with daemon(*drive.options) as server, asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(_driven(server, drive))
        drive.peak_mb = server.peak_rss_mb()


async def _driven(server: Daemon, drive: Drive) -> None:
    async with await connect_async(server.address) as client:
        for statement in drive.statements:
            await client.execute(statement)
        await client.publish("history", drive.traffic.history)
        subscriptions = {kind: await client.subscribe(query) for kind, query in drive.queries.items()}
        command = [sys.executable, "-c", _FEEDER, str(server.port), str(drive.speedup), json.dumps(asdict(drive.traffic))]
        feeder = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        try:
            drive.began_s = float(await _told(feeder))
            before = server.cpu_s()
            async with asyncio.TaskGroup() as tasks:
                for kind, subscription in subscriptions.items():
                    tasks.create_task(_take(subscription, drive, kind))
                tasks.create_task(_ended(client, drive, feeder))
            drive.cpu_s = server.cpu_s() - before
            await drive.ended(client, subscriptions)
        except* TooLate as late_ones:
            raise late_ones.exceptions[0] from None
        finally:
            if feeder.returncode is None:
                feeder.kill()
            await feeder.wait()


async def _take(subscription: Any, drive: Drive, kind: str) -> None:
    async for batch in subscription:
        drive.take(kind, batch)


async def _ended(client: AsyncClient, drive: Drive, feeder: asyncio.subprocess.Process) -> None:
    """Wait until all cars have reported, and end the stream."""
    drive.feeder = json.loads(await _told(feeder))
    await client.finish("input")


async def _told(feeder: asyncio.subprocess.Process) -> bytes:
    assert feeder.stdout is not None
    line = await feeder.stdout.readline()
    if not line:
        raise MillstreamError("benchmark", "the process of the cars ended before its time")
    return line


def main() -> None:
    """Send the rows of each second when it begins: arguments are the port, how many times faster, and the traffic as JSON."""
    port, speedup, traffic = int(sys.argv[1]), float(sys.argv[2]), Traffic(**json.loads(sys.argv[3]))
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(_feed(port, speedup, traffic))


async def _feed(port: int, speedup: float, traffic: Traffic) -> None:
    """Say when the first second begins. At the end, say how many rows there were, and by how many seconds the latest one left late."""
    began_s, late_s, rows = 0.0, 0.0, 0
    async with await connect_async(f"127.0.0.1:{port}") as client, await client.publisher("input") as channel:
        for second, batch in traffic.batches():
            if not rows:
                began_s = time.monotonic() + AHEAD_S
                print(began_s, flush=True)
            due_s = began_s + (second - traffic.begin_s) / speedup
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))  # a second begins by the clock
            await channel.send(batch)
            late_s = max(late_s, time.monotonic() - due_s)
            rows += batch.num_rows
        await channel.flush()
    print(json.dumps({"rows": rows, "late_s": late_s}), flush=True)
