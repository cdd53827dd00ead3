"""The daemon under a mixed load of clients that come and go, for as long as SOAK_SECONDS says: `make soak`.

One run leaves the server alone, the other kills it every SOAK_KILL_SECONDS, and gives it one, two or three workers in turn. Memory is
flat once buffers and caches are full (after a sixth of the run: of an hour, ten minutes). What the server holds is counted then and at
the end, while the same clients stand still: it may have no descriptor, thread or process more, and no file but segments of the journal, of
which there may be as many as its setting says. When all clients have left, no descriptor, thread or query of theirs is left either.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from millstream.client import connect_async
from millstream.client.connection import AsyncClient
from millstream.client.errors import MillstreamError
from millstream.server.durability.journaling import SEGMENTS

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
WORKERS_MAX = 3
SETTLED = 6  # the part of a run, as one of so many, in which buffers and caches fill
SPARE_S = 2 * SILENCE_S
JOURNAL_BYTES_MAX = 2**24
SETTINGS = ("--results-kept-bytes-max", str(2**20), "--results-kept-total-bytes-max", str(2**24))
SETTINGS += ("--journal-bytes-max", str(JOURNAL_BYTES_MAX), "--fetch-idle-s", "5", "--drain-s", "5")
# The counts of the last hour grow for an hour, up to their bound.
SETTINGS += ("--recording-bytes-max", str(2**22))
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

    def begin(self, workers: int = 1) -> None:
        """Start it, again if it was killed."""
        self.process, self.port = start("--data-dir", str(self.directory), "--workers", str(workers), *SETTINGS)
        self._reader = threading.Thread(target=self._read, args=(self.process,))
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            if json.loads(line)["event"] in FAULTS:
                self.lines.append(line)

    def kill(self) -> None:
        """End it without a word; what it started ends too."""
        children = self.children()
        self.process.kill()
        self.end()
        end = time.monotonic() + QUIET_S
        while left := [pid for pid in children if _is_running(pid)]:
            if time.monotonic() > end:
                raise AssertionError(f"processes {left} outlive the server that started them")
            time.sleep(0.05)

    def end(self) -> None:
        """Wait for its end."""
        self.process.wait(60)
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def children(self) -> list[int]:
        """Return the processes that it has started."""
        tasks = Path("/proc", str(self.process.pid), "task").iterdir()
        return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]

    def holds(self) -> Counter[str]:
        """Return how many it has of what it could leak: descriptors by kind, threads, processes, and files by kind."""
        of = Path("/proc", str(self.process.pid))
        found = Counter(threads=len(list(Path(of, "task").iterdir())), children=len(self.children()))
        for descriptor in Path(of, "fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                found[f"descriptors of {_kind(os.readlink(descriptor))}"] += 1
        return found + self.files()

    def files(self) -> Counter[str]:
        """Return how many files of each kind are in its directory."""
        return Counter(f"files of {_kind(str(path))}" for path in self.directory.rglob("*") if path.is_file())


def _is_running(pid: int) -> bool:
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _kind(target: str) -> str:
    """Return what a descriptor or a path is of: its suffix, or what stands before its number."""
    path = Path(target.removesuffix(" (deleted)").partition(":[")[0])
    return path.suffix or path.name


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
        self.held: list[Counter[str]] = []
        """What the server held with all clients connected: once settled, and at the end."""
        self._standing = 0
        self._go_on = asyncio.Event()
        self._go_on.set()

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
                await (self.visit() if self._go_on.is_set() else self.stand_still())
            except MillstreamError as error:
                if error.code in ("internal", "protocol"):
                    raise
                await asyncio.sleep(0.2)

    async def stand_still(self) -> None:
        """Be connected and ask for nothing until all may go on."""
        async with connect_async(f"127.0.0.1:{self.server.port}"):
            self._standing += 1
            await self._go_on.wait()
            self._standing -= 1

    async def run(self, now_and_then: Callable[[], None], counts_after: Sequence[float] = ()) -> None:
        """Let all clients come and go until it is over, and count what the server holds after such parts of the time."""
        clients = [asyncio.create_task(self.come_and_go()) for _ in range(CLIENTS)]
        left, due = self.seconds, [self.seconds * (1 - part) for part in counts_after]
        loop = asyncio.get_running_loop()
        while left > 0 and not any(task.done() for task in clients):
            before = loop.time()
            await asyncio.sleep(min(1.0, self.seconds / 60))
            self.sizes_mb.append(resident_mb(self.server.process.pid))
            await asyncio.to_thread(now_and_then)
            left -= loop.time() - before
            if due and left <= due[0]:
                due.pop(0)
                await self._count(clients)
        self.is_over = True
        await asyncio.gather(*clients)

    async def _count(self, clients: Sequence[asyncio.Task[None]]) -> None:
        """Count what the server holds while all clients are connected and do nothing."""
        self._go_on.clear()
        while self._standing < CLIENTS and not any(task.done() for task in clients):
            await asyncio.sleep(0.1)
        self.held.append(await after_quiet(self.server))
        self._go_on.set()


async def set_up(port: int) -> None:
    async with connect_async(f"127.0.0.1:{port}") as client:
        for text in SET_UP:
            await client.execute(text)


async def left_over(server: Daemon, before: Counter[str]) -> dict[str, Any]:
    """Return what the server has more than before once all clients have left, and temporary queries that are still there."""
    loop = asyncio.get_running_loop()
    end = loop.time() + QUIET_S
    while True:
        async with connect_async(f"127.0.0.1:{server.port}") as client:
            queries = [row["text"] for row in await client.execute("SHOW QUERIES") if not row["durable"]]
        await asyncio.sleep(0.5)
        more = grown(before, server.holds())
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
        asyncio.run(load.run(lambda: None, counts_after=(1 / SETTLED, 1)))
        sizes = load.sizes_mb
        settled = max(sizes[: max(1, len(sizes) // SETTLED)])
        print(f"{load.visits} visits, {len(load.acked)} rows of a; MB: {[round(s) for s in sizes[:: max(1, len(sizes) // 20)]]}")
        print(*map(dict, load.held), sep="\n")
        assert asyncio.run(left_over(server, before)) == {}
        assert max(sizes) - settled < GROWTH_MB_MAX, sizes
        assert grown(*load.held) == {}
    assert server.lines == []


def grown(settled: Counter[str], end: Counter[str]) -> dict[str, int]:
    """Return what the server holds more than it did once settled, and has no leave to.

    The journal may have as many segments as share its bound, with one that is being written and one that is being let go of, and a
    checkpoint for each.
    """
    leave = Counter({f"files of {suffix}": SEGMENTS + 2 - settled[f"files of {suffix}"] for suffix in (".journal", ".checkpoint")})
    return dict(end - settled - leave)


async def after_quiet(server: Daemon) -> Counter[str]:
    """Return what the server holds once it has let go of everything that it lets go of."""
    least = server.holds()
    for _ in range(int(QUIET_S * 2)):
        await asyncio.sleep(0.5)
        least &= server.holds()
    return least


@pytest.mark.soak
@pytest.mark.timeout(2 * SECONDS + SPARE_S)
def test_a_server_that_is_killed_again_and_again_keeps_what_it_acked(tmp_path: Path) -> None:
    with daemon(tmp_path) as server:
        asyncio.run(set_up(server.port))
        load = Load(server, SECONDS, seed=3)
        lives = 1
        began = time.monotonic()
        files = [server.files()]

        def kill_when_due() -> None:
            nonlocal lives
            if time.monotonic() - began >= lives * KILL_SECONDS:
                lives += 1
                server.kill()
                server.begin(workers=1 + lives % WORKERS_MAX)
                files.append(server.files())

        asyncio.run(load.run(kill_when_due))
        server.kill()
        server.begin()
        print(*map(dict, files[:: max(1, len(files) // 10)]), sep="\n")
        first = len(files) // SETTLED
        assert [more for one in files[first:] if (more := grown(files[first], one))] == []
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
