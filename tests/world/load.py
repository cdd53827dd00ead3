"""The clients of a world, who carry a plan out and keep what they were told."""

from __future__ import annotations

import asyncio
import datetime as dt
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from millstream.client import connect_async
from millstream.client.connection import AsyncClient
from millstream.client.errors import MillstreamError
from millstream.client.publisher import Acknowledgement, Publisher
from millstream.client.receipts import Receipt, receipt_of
from millstream.client.subscriber import Lost, Subscription

from tests.world.disk import Mood
from tests.world.hub import NS_PER_S, Killed, where
from tests.world.machines import Crashed, World
from tests.world.plans import EPOCH_US, IN_MEMORY, SET_UP, SHED, TEXTS, US, Step

LOST: tuple[Any, ...] = ("lost",)  # stands for a result that a reader was told to be lost
NAMED = {("p2", "a"), ("p2", "b")}  # who publishes under a name, and so sends again what is not acked
DRAINED_S = 900.0  # simulated, once no more rows come
ANSWER_S = 120.0  # simulated; whoever waits that long for anything is starved


@dataclass
class Sent:
    """What became of one publish: rows (src, n, …), and whether they were acked, refused, or nobody knows."""

    stream: str
    source: str
    numbers: list[int]
    rows: list[dict[str, Any]]
    state: str = "unknown"
    at_ns: int = 0
    life: int = 0
    """The server's life in which it was sent and acked; 0 where that is not one."""


@dataclass
class Reading:
    """What a subscriber has got of a query, since the last time it had to begin from the start."""

    name: str
    query: str
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    token: str | None = None
    firm: int = 0
    """So many of `rows` stand before the token."""
    has_begun: bool = False
    began_anew: list[str] = field(default_factory=list)
    ended: str | None = None
    lost: int = 0
    """Results of which it was told that they are lost: they stand among `rows` as LOST."""
    batches: list[tuple[list[tuple[Any, ...]], Receipt | None]] = field(default_factory=list)
    """All that came of a query that may be shed, with receipts, of all its runs."""


class Load:
    """The clients of a world, and what they know."""

    def __init__(self, world: World, steps: list[Step]) -> None:
        self.world = world
        self.steps = steps
        self.sent: list[Sent] = []
        self.readings: dict[str, Reading] = {}
        self.created: dict[str, int] = {}  # queries that were made, and their texts
        self.shed: dict[str, str] = {}  # texts of queries that may be shed, by name
        self.uncertain: set[str] = set()  # queries of which nobody knows what became
        self.dropped: set[str] = set()
        self.restarted: set[str] = set()
        self.problems: list[str] = []
        self.powers: list[int] = []  # when the power failed
        self.disk_was_bad = self.disk_was_bad_or_slow = False
        self.crashes = 0
        self.finishing = False
        self.table: list[dict[str, Any]] = []  # what `t` holds at the end
        self.shown: dict[str, dict[str, Any]] = {}  # the queries at the end, as SHOW QUERIES has them
        self._numbers: dict[str, int] = {}
        self._sent_in: dict[str, int] = {}  # the server's life in which a stream last got rows
        self._clients: dict[str, AsyncClient] = {}
        self._publishers: dict[tuple[str, str], Publisher] = {}  # of those who publish under a name
        self._locks: dict[str, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._readers: dict[str, asyncio.Task[Any]] = {}
        self._began_ns = 0
        self._draw = random.Random(world.hub.draw.getrandbits(64))

    # --- the whole ---

    async def run(self) -> None:
        """Carry the plan out, heal the world, and wait until all is settled, or until the server rightly refuses to start."""
        try:
            await self._run()
        except Crashed:
            if not self.world.is_given_up:
                raise

    async def _run(self) -> None:
        world = self.world
        world.start_server()
        await world.until_up()
        ms = await self._client("set up")
        for text in SET_UP:
            await ms.execute(text)
        await ms.execute(f"CREATE QUERY mem AS {IN_MEMORY}")
        await self._subscribe("mem", "mem", 0)
        self._began_ns = world.hub.now_ns
        supervising = asyncio.get_running_loop().create_task(self._supervise())
        self._tasks.add(supervising)
        for step in self.steps:
            wait_ns = self._began_ns + step.at_ms * 1_000_000 - world.hub.now_ns
            if wait_ns > 0:
                await asyncio.sleep(wait_ns / NS_PER_S)
            world.hub.note("step", step.kind, *step.what)
            self._task(partial(getattr(self, f"_{step.kind}"), *step.what), str(step))
        await self._settle(supervising)

    def _task(self, doing: Callable[[], Awaitable[Any]], what: str) -> None:
        async def guarded() -> None:
            try:
                async with asyncio.timeout(ANSWER_S):
                    await doing()
            except TimeoutError:
                self.problems.append(f"starved: {what} had no end after {ANSWER_S:g} s")
            except (MillstreamError, Crashed, OSError) as error:
                self.world.hub.note("client error", what, error)

        task = self._begun(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _begun(self, doing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin a task. What it raises is a fault, save where nobody can serve it any more: the disk lied, and the server said so."""

        def ended(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if isinstance(error, Crashed) and self.world.is_given_up:
                return
            if error is not None and not isinstance(error, Killed):
                self.world.hub.faults.append(f"client: {error!r} {where(error)}")

        task = asyncio.get_running_loop().create_task(doing)
        task.add_done_callback(ended)
        return task

    async def _settle(self, supervising: asyncio.Task[Any]) -> None:
        """Let everything get well, and all clients finish."""
        world = self.world
        world.platter.mood = Mood()
        world.platter.crash_at = None
        world.hub.system_offset_ns = EPOCH_US * 1000
        self.finishing = True
        for name in list(self.created):
            await self._insist(f"RESUME QUERY {name}", ("unknown", "exists", "invalid", "state", "conflict"))
        others = [task for task in self._tasks if task is not supervising]
        if others:
            await asyncio.wait(others, timeout=2 * ANSWER_S)
        world.network.heal()
        # One more row for each stream, far later in event time, closes all windows but the last.
        for stream in ("a", "b", "m"):
            for _ in range(20):
                sent = await self._send("last", stream, 1, far=True)
                if sent.state == "acked":
                    break
                await asyncio.sleep(1.0)
            else:
                self.problems.append(f"starved: no row enters {stream} any more, though all is well again")
        await asyncio.sleep(8.0)  # longer than any connection is stalled
        await self._drained()
        self.table = (await (await self._client("last")).query_once("SELECT * FROM t")).to_pylist()
        self.shown = {row["name"]: row for row in await self._insist("SHOW QUERIES")}

    async def _drained(self) -> None:
        """Wait until every query has taken all of its rows, and readers have had their results."""
        end_ns = self.world.hub.now_ns + int(DRAINED_S * NS_PER_S)
        while waiting := [row["name"] for row in await self._insist("SHOW QUERIES") if row["state"] == "running" and row["queued"]]:
            if self.world.hub.now_ns > end_ns:
                self.problems.append(f"starved: rows of {waiting} still wait {DRAINED_S:g} s after the last came")
                return
            await asyncio.sleep(2.0)
        await asyncio.sleep(4.0)

    async def close(self) -> None:
        """Leave."""
        for task in [*self._readers.values(), *self._tasks]:
            task.cancel()
        await asyncio.gather(*self._readers.values(), *self._tasks, return_exceptions=True)
        for client in self._clients.values():
            if client.is_open:
                await client.close()

    async def _supervise(self) -> None:
        """Start the server again whenever it has ended, some time after."""
        world = self.world
        while True:
            await asyncio.sleep(0.1)
            process = world.process
            if process is None or process.alive:
                continue
            await asyncio.sleep(self._draw.uniform(0.0, 1.0))
            if world.refusal is not None:
                if world.platter.lost_by_lie:
                    world.is_given_up = True
                    return
                if not world.is_refusal_due:
                    self.problems.append(f"the server refuses to start: {world.refusal}")
                    raise AssertionError(self.problems[-1])
                await asyncio.sleep(0.5)
            if world.process is process:
                world.start_server()

    # --- clients ---

    async def _client(self, name: str) -> AsyncClient:
        client = self._clients.get(name)
        while client is None or not client.is_open:
            await self.world.until_up_or_again()
            try:
                client = self._clients[name] = await connect_async(client_id=name, timeout=20.0)
            except MillstreamError:
                await asyncio.sleep(self._draw.uniform(0.05, 0.5))
        return client

    async def _insist(self, text: str, fine: tuple[str, ...] = ()) -> Any:
        """Execute a statement until it is answered."""
        for _ in range(60):
            try:
                return await (await self._client("insist")).execute(text)
            except MillstreamError as error:
                if error.code in ("disconnected", "closed", "stopping", "storage", "unreachable", "timeout"):
                    await asyncio.sleep(0.5)
                    continue
                return error
        self.problems.append(f"starved: {text!r} was not answered in 60 tries")
        return None

    # --- steps: rows ---

    async def _publish(self, source: str, stream: str, rows: int, bad: bool) -> None:
        async with self._locks.setdefault(f"{source} {stream}", asyncio.Lock()):
            await self._send(source, stream, rows, bad=bad)

    async def _send(self, source: str, stream: str, count: int, *, bad: bool = False, far: bool = False) -> Sent:
        draw, hub = self._draw, self.world.hub
        client = await self._client(source)
        life = self.world.lives
        # What comes first after a checkpoint or a restart is often late: who has forgotten how far event time had come would not notice.
        behind_us = draw.choice((0, 3_000_000, 9_000_000)) if self._sent_in.get(stream, 1) != life and not far else 0
        self._sent_in[stream] = life
        rows: list[dict[str, Any]] = []
        numbers = []
        for _ in range(count):
            number = self._numbers[source] = self._numbers.get(source, -1) + 1
            numbers.append(number)
            elapsed_us = (hub.now_ns - self._began_ns) // 1000
            late_us = draw.choice((0, 0, 0, 0, 300_000, 900_000, 2_500_000))
            ts = EPOCH_US + elapsed_us - late_us - behind_us + (3_600 * US if far else 0)
            if stream == "t":
                rows.append({"k": draw.randrange(4), "name": f"{source}-{number}", "op": draw.choice(("+", "+", "+", "-"))})
            else:
                rows.append({"ts": {"us": ts}, "k": draw.randrange(4), "v": draw.randrange(10), "src": source, "n": number})
        for row in rows:
            if "ts" in row:
                row["ts"] = _text(row["ts"]["us"])
        said = list(rows)
        if bad and stream != "t":
            said.insert(draw.randrange(len(said) + 1), {"ts": None, "k": 1, "v": 1, "src": "bad", "n": -1})
        sent = Sent(stream, source, numbers, rows)
        self.sent.append(sent)
        try:
            ack = await (self._publish_named(sent, said) if (source, stream) in NAMED else client.publish(stream, said))
        except MillstreamError as error:
            sent.state = "refused" if error.code == "storage" else "unknown"
            hub.note("not acked", stream, source, numbers, error.code)
            return sent
        sent.at_ns = hub.now_ns
        sent.life = life if life == self.world.lives and self.world.is_up else 0
        if ack is not None and (ack.accepted != len(rows) or ack.rejected_rows != len(said) - len(rows)):
            self.problems.append(
                f"an ack of {ack.accepted} rows accepted and {ack.rejected_rows} rejected for {len(rows)} good of {len(said)}"
            )
        sent.state = "acked"
        hub.note("acked", stream, source, numbers)
        return sent

    async def _publish_named(self, sent: Sent, said: list[dict[str, Any]]) -> Acknowledgement | None:
        """Send under a name, again and again, until the rows are known to be taken; None when an earlier connection had them taken.

        What was acked and then lost with the power is not sent again: the number goes on after the last that the server has.
        """
        stream, source = sent.stream, sent.source
        number = None
        while True:
            try:
                publisher = self._publishers.get((source, stream))
                if publisher is None:
                    client = await self._client(source)
                    publisher = self._publishers[source, stream] = await client.publisher(stream, f"{source} {stream}")
                assert publisher.last is not None
                if number is not None and publisher.last >= number:
                    return None
                number = publisher.last + 1
                await publisher.send(said, position=str(sent.numbers[-1]).encode(), number=number)
                return await publisher.flush()
            except MillstreamError as error:
                self.world.hub.note("named, once more", stream, source, sent.numbers, error.code)
                self._publishers.pop((source, stream), None)
                await asyncio.sleep(0.5)

    async def _burst(self, source: str, stream: str, batches: int) -> None:
        """More rows than there is time for."""
        async with self._locks.setdefault(f"{source} {stream}", asyncio.Lock()):
            for _ in range(batches):
                if (await self._send(source, stream, 60)).state != "acked":
                    break

    # --- steps: queries ---

    async def _shed(self, place: int) -> None:
        name = f"shed{place}"
        self.shed[name] = SHED[place]
        answer = await self._insist(f"CREATE QUERY {name} WITH (class = 'low') AS {SHED[place]}")
        if isinstance(answer, MillstreamError) and answer.code != "exists":
            self.problems.append(f"query {name} was refused: {answer}")

    async def _create(self, name: str, text: int) -> None:
        try:
            await (await self._client("admin")).execute(f"CREATE QUERY {name} AS {TEXTS[text][0]}")
        except MillstreamError as error:
            if error.code not in ("storage",):
                self.uncertain.add(name)
                self.created[name] = text
            return
        self.created[name] = text

    async def _verb(self, text: str) -> str | None:
        try:
            await (await self._client("admin")).execute(text)
        except MillstreamError as error:
            return error.code
        return None

    async def _drop(self, name: str) -> None:
        if await self._verb(f"DROP QUERY {name}") is None:
            self.dropped.add(name)
        else:
            self.uncertain.add(name)

    async def _pause(self, name: str) -> None:
        await self._verb(f"PAUSE QUERY {name}")

    async def _resume(self, name: str) -> None:
        await self._verb(f"RESUME QUERY {name}")

    async def _restart_query(self, name: str) -> None:
        self.restarted.add(name)
        await self._verb(f"STOP QUERY {name}")
        for _ in range(20):
            if await self._verb(f"START QUERY {name}") in (None, "unknown", "exists"):
                return
            await asyncio.sleep(0.5)

    async def _subscribe(self, name: str, query: str, delay_ms: int) -> None:
        reading = self.readings.setdefault(name, Reading(name, query))
        if name not in self._readers:
            self._readers[name] = self._begun(self._read(reading, delay_ms / 1000))

    async def _read(self, reading: Reading, delay_s: float) -> None:
        """Read a query's results, from the start and then from where it was, whatever happens to the connection."""
        hub = self.world.hub
        while True:
            client = await self._client(f"reader {reading.name}")
            del reading.rows[reading.firm :]  # a gap with no result behind it has not moved the token, and is told again
            try:
                sub = await client.subscribe(reading.query, from_start=reading.token is None, resume_token=reading.token, rows_window=64)
            except MillstreamError as error:
                hub.note("not subscribed", reading.name, error.code, error.message)
                if error.code in ("invalid", "unknown_name") and reading.token is not None:
                    reading.began_anew.append(f"{error.code}: {error.message}")
                    reading.token = None
                    reading.rows, reading.firm = [], 0
                await asyncio.sleep(0.3)
                continue
            try:
                await self._take(sub, reading, 0.0 if self.finishing else delay_s)
            except MillstreamError as error:
                hub.note("reader lost", reading.name, error.code)
            else:
                reading.ended = sub.end.reason if sub.end is not None else None
                hub.note("reader ended", reading.name, reading.ended)
                if reading.ended in ("dropped", "stopped", "finished", "failed"):
                    reading.began_anew.append(str(reading.ended))
                    reading.token = None
                    reading.rows, reading.firm = [], 0
            await asyncio.sleep(0.05)

    async def _take(self, sub: Subscription, reading: Reading, delay_s: float) -> None:
        reading.has_begun = True
        while (item := await sub.next_item()) is not None:
            if isinstance(item, Lost):
                reading.lost += item.rows
                reading.rows += [LOST] * item.rows
                if reading.token is None:  # the first token is from behind what was lost before it
                    reading.token, reading.firm = sub.resume_token, len(reading.rows)
                self.world.hub.note("lost results", reading.name, item.rows, item.reason)
                continue
            rows = [tuple(row.values()) for row in item.to_pylist()]
            reading.rows += rows
            if reading.query in self.shed:
                reading.batches.append((rows, receipt_of(item)))
            reading.token, reading.firm = sub.resume_token, len(reading.rows)
            self.world.hub.note("results", reading.name, rows)
            if delay_s and not self.finishing:
                await asyncio.sleep(delay_s)

    async def _temporary(self, text: str, ms: int, delay_ms: int) -> None:
        """Start a query of one's own, read it for a while, and leave in one way or another."""
        hub = self.world.hub
        await self.world.until_up_or_again()
        client = await connect_async(timeout=20.0)
        try:
            query = await client.submit(text)
            sub = await client.subscribe(query)
            got: list[tuple[Any, ...]] = []
            end_ns = hub.now_ns + ms * 1_000_000
            while hub.now_ns < end_ns:
                try:
                    async with asyncio.timeout((end_ns - hub.now_ns) / NS_PER_S):
                        item = await sub.next_item()
                except TimeoutError:
                    break
                if item is None:
                    break
                if not isinstance(item, Lost):
                    got += [tuple(row.values()) for row in item.to_pylist()]
                    if delay_ms:
                        await asyncio.sleep(delay_ms / 1000)
            hub.note("temporary", text, got)
            if "FROM m" in text and "COUNT" not in text:
                self._check_plain(text, got)
        finally:
            if self._draw.random() < 0.5:
                await client.abandon()
            else:
                await client.close()

    def _check_plain(self, text: str, got: list[tuple[Any, ...]]) -> None:
        last: dict[str, int] = {}
        for row in got:
            source, number = row[2], row[3]
            if number <= last.get(source, -1):
                self.problems.append(f"{text}: {source} {number} came after {last[source]}")
            if " v > 3" in text and row[1] <= 3:
                self.problems.append(f"{text}: gave {row}")
            last[source] = number

    # --- steps: statements ---

    async def _show(self, text: str) -> None:
        await (await self._client("admin")).execute(text)

    async def _fetch(self, text: str) -> None:
        answer = await (await self._client("admin")).query_once(text)
        self.world.hub.note("fetched", text, answer.to_pylist())

    async def _wrong(self, text: str) -> None:
        try:
            await (await self._client("admin")).execute(text)
        except MillstreamError as error:
            if error.code == "internal":
                self.problems.append(f"{text!r} was answered as a fault: {error}")
        else:
            self.problems.append(f"{text!r} was accepted")

    async def _policy(self, name: str) -> None:
        await (await self._client("admin")).execute(f"SET POLICY {name}")

    async def _checkpoint(self) -> None:
        """Make the journal's segment old enough to end soon."""
        server = self.world.server
        if self.world.is_up and server is not None and server.application.journaling is not None:
            server.application.journaling._began_us -= 10**15
            self._sent_in = dict.fromkeys("ab", 0)

    # --- steps: what befalls the machine ---

    async def _kill(self) -> None:
        self.crashes += 1
        self.world.kill()

    async def _power(self, silently: bool) -> None:
        self.crashes += 1
        self.powers.append(self.world.hub.now_ns)
        self.world.kill(power=True, silently=silently)

    async def _crash_at(self, operations: int, power: bool) -> None:
        """Let the server die just before one of its next operations on the disk."""
        platter, process = self.world.platter, self.world.process
        self.crashes += 1
        platter.crash_at = platter.operations + operations
        for _ in range(200):
            await asyncio.sleep(0.01)
            if platter.crash_at is None or process is None or not process.alive:
                break
        platter.crash_at = None
        if process is not None and not process.alive and power and self.world.process is process:
            self.powers.append(self.world.hub.now_ns)
            self.world.kill(power=True)

    async def _kill_worker(self, which: int, calls: int, is_done: bool) -> None:
        """Let one of the server's workers die, now or at one of its next calls."""
        self.world.machine.kill(which, calls, is_done)

    async def _stop(self) -> None:
        self.world.stop()

    async def _reset(self, which: int, all_of_them: bool) -> None:
        alive = self.world.network.alive()
        for link in alive if all_of_them else alive[which % max(1, len(alive)) :][:1]:
            self.world.network.reset(link)

    async def _lose(self, which: int) -> None:
        alive = self.world.network.alive()
        if alive:
            self.world.network.lose(alive[which % len(alive)])

    async def _stall(self, which: int, ms: int) -> None:
        alive = self.world.network.alive()
        if alive:
            self.world.network.stall(alive[which % len(alive)], self.world.hub.now_ns + ms * 1_000_000)

    async def _disk(self, how: str, ms: int) -> None:
        moods: dict[str, Callable[[], Mood]] = {
            "slow": lambda: Mood(slow_ns=(100_000, 40_000_000)),
            "fails": lambda: Mood(fails=True),
            "sync": lambda: Mood(sync="fails"),
            "full": lambda: Mood(full=True),
            "lies": lambda: Mood(sync="lies"),
        }
        mood = self.world.platter.mood = moods[how]()
        self.disk_was_bad = self.disk_was_bad or mood.is_bad
        self.disk_was_bad_or_slow = True
        await asyncio.sleep(ms / 1000)
        if self.world.platter.mood is mood:
            self.world.platter.mood = Mood()

    async def _clock(self, by_s: float, ms: int) -> None:
        by_ns = int(by_s * NS_PER_S)
        self.world.hub.system_offset_ns += by_ns
        await asyncio.sleep(ms / 1000)
        if not self.finishing:
            self.world.hub.system_offset_ns -= by_ns


def _text(us: int) -> str:
    return (dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=us)).isoformat() + "Z"
