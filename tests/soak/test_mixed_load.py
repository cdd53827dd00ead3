"""The daemon under a mixed load of clients that come and go, for as long as SOAK_SECONDS says: `make soak`.

One run leaves the server alone, the other kills it every SOAK_KILL_SECONDS. Memory is flat once buffers and caches are full (after a
sixth of the run: of an hour, ten minutes), and when all clients have left, no descriptor, thread or query of theirs is left either.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from millstream.client import connect_async
from millstream.client.connection import AsyncClient
from millstream.client.errors import MillstreamError

from tests.server.test_serve_process import start
from tests.soak.test_memory import resident_mb

SECONDS = float(os.environ.get("SOAK_SECONDS", "3600"))
KILL_SECONDS = float(os.environ.get("SOAK_KILL_SECONDS", "60"))
CLIENTS = 50
GROWTH_MB_MAX = 24
QUIET_S = 20.0  # what the server may take to let go of clients that have left
LATER_MAX = 5 * CLIENTS  # requests of a kind that are answered though they came later: who still waits then is forgotten
SILENCE_S = 300.0  # in which no request at all is answered
LOOK_S = 5.0
SPARE_S = 2 * SILENCE_S
SETTINGS = ("--results-kept-bytes-max", str(2**20), "--results-kept-total-bytes-max", str(2**24))
SETTINGS += ("--journal-bytes-max", str(2**24), "--fetch-idle-s", "5", "--drain-s", "5")
SET_UP = (
    "CREATE STREAM a (ts TIMESTAMP, k BIGINT, v BIGINT) TIMESTAMP BY ts DELAY 1 SECOND DURABILITY sync",
    "CREATE STREAM b (ts TIMESTAMP, k BIGINT, v BIGINT) TIMESTAMP BY ts DELAY 1 SECOND DURABILITY journal",
    "CREATE STREAM m (ts TIMESTAMP, k BIGINT, v BIGINT) TIMESTAMP BY ts DELAY 1 SECOND",
    "CREATE TABLE t (k BIGINT, name TEXT, PRIMARY KEY (k)) DURABILITY journal",
    "CREATE QUERY all_of_a AS SELECT k, v FROM a",
    "CREATE QUERY sums AS SELECT window_end, k, SUM(v) AS total FROM b [RANGE 5 SECONDS SLIDE 5 SECONDS] GROUP BY k",
    "CREATE QUERY named AS SELECT a.v, t.name FROM a JOIN t ON a.k = t.k",
)
TEMPORARY = (
    "SELECT k, v FROM m WHERE v > 3",
    "SELECT window_end, k, COUNT(*) AS c FROM m [RANGE 2 SECONDS SLIDE 2 SECONDS] GROUP BY k",
    "SELECT k, COUNT(*) AS c FROM a [RANGE 3 SECONDS] GROUP BY k",
    "SELECT a.v, b.v AS w FROM a JOIN b ON a.k = b.k WITHIN 1 SECOND",
)
FETCHES = ("SELECT * FROM t", "SELECT k, COUNT(*) AS c FROM b GROUP BY k LIMIT 3", "SELECT v FROM all_of_a ORDER BY v DESC LIMIT 2")
T = TypeVar("T")
FAULTS = frozenset(("fault", "fatal", "callback_failed", "conservation_broken"))


class Daemon:
    """A server and what it says; `lines` are those of its log that tell of a fault."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lines: list[str] = []
        self.process: subprocess.Popen[str]
        self.begin()

    def begin(self) -> None:
        """Start it, again if it was killed."""
        self.process, self.port = start("--data-dir", str(self.directory), *SETTINGS)
        self._reader = threading.Thread(target=self._read, args=(self.process,))
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            if json.loads(line)["event"] in FAULTS:
                self.lines.append(line)

    def kill(self) -> None:
        """End it without a word."""
        self.process.kill()
        self.end()

    def end(self) -> None:
        """Wait for its end."""
        self.process.wait(60)
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def holds(self) -> dict[str, int]:
        """Return how many descriptors, threads and child processes it has."""
        of = Path("/proc", str(self.process.pid))
        children = Path(of, "task", str(self.process.pid), "children").read_text().split()
        return {
            "descriptors": len(list(Path(of, "fd").iterdir())),
            "threads": len(list(Path(of, "task").iterdir())),
            "children": len(children),
        }


@contextmanager
def daemon(directory: Path) -> Iterator[Daemon]:
    """Run a server, and stop it."""
    running = Daemon(directory)
    try:
        yield running
    finally:
        running.process.send_signal(signal.SIGTERM)
        running.end()


class Answers:
    """Waits for what requests return. Who is forgotten is told from who waits for a busy machine by what others get meanwhile."""

    def __init__(self, look_s: float = LOOK_S) -> None:
        self.counts: Counter[str] = Counter()
        self._look_s = look_s

    async def to(self, request: str, waited: Awaitable[T]) -> T:
        """Return what a request returns; an AssertionError names one that is forgotten, and where it waits."""
        task = asyncio.ensure_future(waited)
        before, all_before, silent = self.counts[request], self.counts.total(), 0.0
        while not (await asyncio.wait([task], timeout=self._look_s))[0]:
            silent = silent + self._look_s if self.counts.total() == all_before else 0.0
            all_before, later = self.counts.total(), self.counts[request] - before
            if later > LATER_MAX or silent >= SILENCE_S:
                where = " < ".join(f"{frame.f_code.co_name}:{frame.f_lineno}" for frame in reversed(task.get_stack()))
                task.cancel()
                raise AssertionError(f"{request} has no answer and {later} later ones have; it waits in {where}")
        self.counts[request] += 1
        return task.result()


class Load:
    """Clients that come, do something for a while, and go. `acked` are the numbers of `a` that were."""

    def __init__(self, server: Daemon, seconds: float, seed: int) -> None:
        self.server = server
        self.seconds = seconds
        self.draw = random.Random(seed)
        self.acked: list[int] = []
        self.tried = 0
        self.visits = 0
        self.sizes_mb: list[float] = []
        self.is_over = False
        self.answers = Answers()

    def row(self) -> dict[str, Any]:
        """Return a row; its number grows."""
        self.tried += 1
        return {"ts": f"2024-05-06T12:{self.tried // 60_000 % 60:02d}:{self.tried // 1000 % 60:02d}Z", "k": self.tried % 7, "v": self.tried}

    async def publish(self, client: AsyncClient) -> None:
        stream = self.draw.choice("aabm")
        rows = [self.row() for _ in range(self.draw.choice((1, 10, 200)))]
        await client.publish(stream, rows)
        if stream == "a":
            self.acked += [row["v"] for row in rows]

    async def stand_in_the_table(self, client: AsyncClient) -> None:
        await client.publish("t", [{"k": self.draw.randrange(7), "name": str(self.tried)}])

    async def read_for_a_while(self, client: AsyncClient) -> None:
        await self._take(client, await client.submit(self.draw.choice(TEMPORARY)))

    async def read_a_durable_one(self, client: AsyncClient) -> None:
        await self._take(client, self.draw.choice(("all_of_a", "sums", "named")))

    async def _take(self, client: AsyncClient, query: Any) -> None:
        subscription = await client.subscribe(query, from_start=self.draw.random() < 0.2)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.draw.uniform(0.1, 3)):
                while await subscription.next_item() is not None:
                    pass

    async def fetch(self, client: AsyncClient) -> None:
        await client.query_once(self.draw.choice(FETCHES))

    async def ask(self, client: AsyncClient) -> None:
        await client.execute(self.draw.choice(("SHOW QUERIES", "SHOW STREAMS", "DESCRIBE a")))

    async def blunder(self, client: AsyncClient) -> None:
        with pytest.raises(MillstreamError) as refused:
            await client.execute(self.draw.choice(("SELEC 1", "SELECT x FROM a", "DROP STREAM a", "SELECT v FROM nothing")))
        assert refused.value.code != "internal", refused.value

    async def visit(self) -> None:
        """Come, do some things, and go: politely, or without a word."""
        deeds = (self.publish,) * 5 + (self.read_for_a_while,) * 2
        deeds += (self.read_a_durable_one, self.fetch, self.ask, self.blunder, self.stand_in_the_table)
        client = await self.answers.to("connect", connect_async(f"127.0.0.1:{self.server.port}"))
        self.visits += 1
        try:
            for _ in range(self.draw.randint(1, 8)):
                deed = self.draw.choice(deeds)
                await self.answers.to(deed.__name__, deed(client))
                await asyncio.sleep(self.draw.uniform(0, 0.3))
        finally:
            leave = client.close if self.draw.random() < 0.7 else client.abandon
            await self.answers.to(leave.__name__, leave())

    async def come_and_go(self) -> None:
        while not self.is_over:
            try:
                await self.visit()
            except MillstreamError as error:
                if error.code in ("internal", "protocol"):
                    raise
                await asyncio.sleep(0.2)

    async def run(self, now_and_then: Callable[[], None]) -> None:
        """Let all clients come and go until it is over."""
        clients = [asyncio.create_task(self.come_and_go()) for _ in range(CLIENTS)]
        loop = asyncio.get_running_loop()
        end = loop.time() + self.seconds
        while loop.time() < end and not any(task.done() for task in clients):
            await asyncio.sleep(min(1.0, self.seconds / 60))
            self.sizes_mb.append(resident_mb(self.server.process.pid))
            await asyncio.to_thread(now_and_then)
        self.is_over = True
        await asyncio.gather(*clients)


async def set_up(port: int) -> None:
    async with connect_async(f"127.0.0.1:{port}") as client:
        for text in SET_UP:
            await client.execute(text)


async def left_over(server: Daemon, before: dict[str, int]) -> dict[str, Any]:
    """Return what the server has more than before once all clients have left, and temporary queries that are still there."""
    loop = asyncio.get_running_loop()
    end = loop.time() + QUIET_S
    while True:
        async with connect_async(f"127.0.0.1:{server.port}") as client:
            queries = [row["text"] for row in await client.execute("SHOW QUERIES") if not row["durable"]]
        await asyncio.sleep(0.5)
        more = {what: count - before[what] for what, count in server.holds().items() if count > before[what]}
        if not more and not queries:
            return {}
        if loop.time() > end:
            return {**more, "queries": queries}


async def numbers_of_a(port: int) -> list[int]:
    async with connect_async(f"127.0.0.1:{port}") as client:
        return [int(v) for v in (await client.query_once("SELECT v FROM a")).column("v").to_pylist()]


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + SPARE_S)
def test_clients_that_come_and_go_leave_nothing_behind(tmp_path: Path) -> None:
    with daemon(tmp_path) as server:
        asyncio.run(set_up(server.port))
        warm = Load(server, min(30.0, SECONDS / 4), seed=1)  # what is loaded and started once
        asyncio.run(warm.run(lambda: None))
        before = asyncio.run(after_quiet(server))
        load = Load(server, SECONDS, seed=2)
        load.tried = warm.tried
        asyncio.run(load.run(lambda: None))
        assert asyncio.run(left_over(server, before)) == {}
        sizes = load.sizes_mb
        settled = max(sizes[: max(1, len(sizes) // 6)])
        print(f"{load.visits} visits, {len(load.acked)} rows of a; MB: {[round(s) for s in sizes[:: max(1, len(sizes) // 20)]]}")
        assert max(sizes) - settled < GROWTH_MB_MAX, sizes
    assert server.lines == []


async def after_quiet(server: Daemon) -> dict[str, int]:
    """Return what the server holds once it has let go of everything that it lets go of."""
    least = server.holds()
    for _ in range(int(QUIET_S * 2)):
        await asyncio.sleep(0.5)
        found = server.holds()
        least = {what: min(count, found[what]) for what, count in least.items()}
    return least


@pytest.mark.soak
@pytest.mark.timeout(2 * SECONDS + SPARE_S)
def test_a_server_that_is_killed_again_and_again_keeps_what_it_acked(tmp_path: Path) -> None:
    with daemon(tmp_path) as server:
        asyncio.run(set_up(server.port))
        load = Load(server, SECONDS, seed=3)
        lives = 1

        def kill_when_due() -> None:
            nonlocal lives
            if len(load.sizes_mb) * min(1.0, SECONDS / 60) >= lives * KILL_SECONDS:
                lives += 1
                server.kill()
                server.begin()

        asyncio.run(load.run(kill_when_due))
        server.kill()
        server.begin()
        held = asyncio.run(numbers_of_a(server.port))
        assert len(held) == len(set(held))
        kept_from = min(held, default=0)
        lost = {number for number in load.acked if number >= kept_from} - set(held)
        print(f"{lives + 1} lives, {load.visits} visits, {len(load.acked)} rows acked, {len(held)} kept")
        assert not lost, sorted(lost)[:10]
    assert server.lines == []


def test_a_request_that_is_forgotten_is_named_and_one_that_is_late_is_not() -> None:
    async def stuck() -> None:
        await asyncio.Event().wait()

    async def nothing() -> None:
        pass

    async def run(later: int) -> None:
        answers = Answers(look_s=0.001)
        waiting = asyncio.create_task(answers.to("fetch", stuck()))
        await asyncio.sleep(0)
        for _ in range(later):
            await answers.to("fetch", nothing())
        for _ in range(20):
            await asyncio.sleep(0.001)
            await answers.to("ask", nothing())
        if waiting.done():
            await waiting
        waiting.cancel()

    asyncio.run(run(LATER_MAX))
    with pytest.raises(AssertionError, match=rf"^fetch has no answer and {LATER_MAX + 1} later ones have; it waits in stuck:\d+$"):
        asyncio.run(run(LATER_MAX + 1))
