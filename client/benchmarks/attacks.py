"""What a reader who means harm can do to a server: one short round of each kind, in the order of what they are after.

Everything here is said with a token that only reads. A round ends by itself, whether the server answers, refuses, makes the peer wait or
closes the connection; `bench hostile` repeats rounds beside honest work, a test runs each once.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgpack
from millstream.protocol.connection import Connection, Event
from millstream.protocol.errors import ProtocolError
from millstream.protocol.framing import prefix
from millstream.protocol.limits import PREFIX_BYTES
from millstream.protocol.messages import (
    CancelRequest,
    Credit,
    Failure,
    Hello,
    Message,
    Ping,
    Pong,
    Reply,
    Statement,
    Submit,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Welcome,
)
from millstream.protocol.states import Role, State
from millstream.protocol.version import VERSIONS

ROUND_S = 1.0  # after which a round that still waits is over
READ_BYTES = 65_536
PEERS = 4  # that repeat rounds at once
HALF_FRAME_BYTES = 2**20 - 64  # of a frame as large as a reader's may be
LONG = 50_000  # terms of a statement that is near the largest frame


@dataclass(frozen=True, slots=True)
class Target:
    """A server under attack: a token that reads, and names of a stream with its columns (`key`, `tag`), a table and a query."""

    port: int
    token: str
    stream: str
    table: str
    query: str


class Peer:
    """A connection that keeps to the protocol as far as an attack wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._connection = Connection(Role.CLIENT)
        self._numbers = itertools.count(1)
        self._heard: list[Event] = []

    @property
    def number(self) -> int:
        """A number for the next request."""
        return next(self._numbers)

    def say(self, *messages: Message) -> None:
        """Say messages, without waiting for anything."""
        self._writer.writelines([piece for message in messages for piece in self._connection.send(message)])

    def raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(data)

    def ask(self, *texts: str) -> None:
        """Send statements, without waiting for anything."""
        self.say(*[Statement(self.number, text) for text in texts])

    async def push(self) -> None:
        """Wait until the network has taken what was said, and let the round's time run out even if it always has."""
        await self._writer.drain()
        await asyncio.sleep(0)

    async def hear(self, *kinds: type[Any], count: int = 1) -> Any:
        """Read until so many messages of these kinds have come; returns the last. ConnectionError when the server has closed."""
        while True:
            while self._heard:
                event = self._heard.pop(0)
                if isinstance(event, kinds):
                    count -= 1
                    if not count:
                        return event
            data = await self._reader.read(READ_BYTES)
            if not data or self._connection.state is State.CLOSED:
                raise ConnectionError("the server has closed the connection")
            self._heard += self._connection.receive_data(data)

    async def answers(self, count: int) -> None:
        """Read until so many requests are answered."""
        await self.hear(Reply, Failure, Subscribed, count=count)

    def leave(self) -> None:
        """Go without a word."""
        self._writer.transport.abort()


@asynccontextmanager
async def peer(target: Target, *, hello: bool = True, client_id: str | None = None) -> AsyncIterator[Peer]:
    """Connect as a reader; gone when the block ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
    made = Peer(reader, writer)
    try:
        if hello:
            made.say(Hello(list(VERSIONS), client_id=client_id, token=target.token))
            await made.hear(Welcome)
        yield made
    finally:
        made.leave()


async def _asked(target: Target, *texts: str) -> None:
    """Ask statements and read the answers, one connection."""
    async with peer(target) as one:
        one.ask(*texts)
        await one.push()
        await one.answers(len(texts))


async def _running(target: Target, text: str) -> None:
    """Start a query and subscribe to it, reading what comes until the round is over."""
    async with peer(target) as one:
        one.ask(text)
        reply = await one.hear(Reply, Failure)
        if isinstance(reply, Failure):
            return
        one.say(Subscribe(one.number, str(reply.info["query"]), rows_credit=2**40, bytes_credit=2**40))
        await one.hear(Failure)


def _frame(fields: dict[str, Any]) -> bytes:
    header = msgpack.packb(fields)
    return prefix(PREFIX_BYTES + len(header), len(header)) + bytes(header)


# --- answers that nobody reads ---


async def unread_fetches(target: Target) -> None:
    """Ask for a table a hundred times and read nothing."""
    async with peer(target) as one:
        one.ask(*[f"FETCH SELECT * FROM {target.table}"] * 100)
        await asyncio.sleep(ROUND_S)


async def unread_lists(target: Target) -> None:
    """Ask what there is a thousand times and read nothing."""
    async with peer(target) as one:
        one.ask(*["SHOW QUERIES"] * 1_000)
        await asyncio.sleep(ROUND_S)


async def unread_pings(target: Target) -> None:
    """Ping without end and read nothing."""
    async with peer(target) as one:
        while True:
            one.say(*[Ping(i) for i in range(2_000)])
            await one.push()


async def unread_results(target: Target) -> None:
    """Grant endless credit for results and read nothing."""
    async with peer(target) as one:
        one.say(Subscribe(one.number, target.query, rows_credit=2**62, bytes_credit=2**62))
        await asyncio.sleep(ROUND_S)


async def results_by_drops(target: Target) -> None:
    """Take results one row at a time, always too late."""
    async with peer(target) as one:
        one.say(Subscribe(one.number, target.query, rows_credit=1, bytes_credit=1))
        subscription = (await one.hear(Subscribed)).subscription
        while True:
            await asyncio.sleep(0.2)
            one.say(Credit(subscription=subscription, rows=1, bytes=1))


# --- floods ---


async def pings(target: Target) -> None:
    """Ping as fast as answers come."""
    async with peer(target) as one:
        while True:
            one.say(*[Ping(i) for i in range(2_000)])
            await one.push()
            await one.hear(Pong, count=2_000)


async def lists(target: Target) -> None:
    """Ask what there is, again and again."""
    await _asked(target, *["SHOW QUERIES", "SHOW STREAMS", "SHOW MEASURES", "SHOW SHARING"] * 25)


async def credits(target: Target) -> None:
    """Grant a row of credit at a time, thousands of times."""
    async with peer(target) as one:
        one.say(Subscribe(one.number, target.query, rows_credit=1, bytes_credit=1))
        subscription = (await one.hear(Subscribed)).subscription
        while True:
            one.say(*[Credit(subscription=subscription, rows=1, bytes=100) for _ in range(1_000)])
            await one.push()


async def subscriptions(target: Target) -> None:
    """Subscribe and unsubscribe in turn."""
    async with peer(target) as one:
        for _ in range(200):
            one.say(Subscribe(one.number, target.query, rows_credit=1, bytes_credit=1))
            subscribed = await one.hear(Subscribed)
            one.say(Unsubscribe(one.number, subscribed.subscription))
            await one.hear(Reply)


async def cancels(target: Target) -> None:
    """Ask and cancel, each request many times."""
    async with peer(target) as one:
        for _ in range(20):
            asked = [one.number for _ in range(20)]
            one.say(*[Statement(number, "SHOW QUERIES") for number in asked])
            one.say(*[CancelRequest(one.number, target) for target in asked])
            await one.push()
            await one.answers(40)


async def names(target: Target) -> None:
    """Ask for what there is not, under names that are nearly right."""
    async with peer(target) as one:
        wrong = [f"{target.query}{i}" for i in range(200)]
        one.say(*[Subscribe(one.number, name, rows_credit=1, bytes_credit=1) for name in wrong])
        await one.answers(len(wrong))


async def long_names(target: Target) -> None:
    """Use names as long as a frame."""
    name = "n" * 900_000
    async with peer(target) as one:
        one.say(Subscribe(one.number, name, rows_credit=1, bytes_credit=1))
        one.ask(f"DESCRIBE {name}", f"SELECT {name} FROM {target.stream}", f"SELECT key AS {name} FROM {target.stream}")
        await one.push()
        await one.answers(4)


# --- connections ---


async def half_frames(target: Target) -> None:
    """Send all but the end of large frames, over many connections."""
    async with asyncio.TaskGroup() as group:
        for _ in range(30):
            group.create_task(_half_frame(target))


async def _half_frame(target: Target) -> None:
    async with peer(target) as one:
        one.raw((2**20 - 4).to_bytes(4, "little") + (2**20 - 100).to_bytes(4, "little") + bytes(HALF_FRAME_BYTES))
        await one.push()
        await asyncio.sleep(ROUND_S)


async def half_hellos(target: Target) -> None:
    """Begin to say hello, over many connections."""
    async with asyncio.TaskGroup() as group:
        for _ in range(100):
            group.create_task(_half_hello(target))


async def _half_hello(target: Target) -> None:
    async with peer(target, hello=False) as one:
        one.raw((65_000).to_bytes(4, "little") + (64_990).to_bytes(4, "little") + bytes(60_000))
        await asyncio.sleep(ROUND_S)


async def dripping(target: Target) -> None:
    """Send a frame byte by byte."""
    async with peer(target) as one:
        for byte in _frame({"kind": "statement", "request": 1, "text": "SHOW QUERIES " * 1_000}):
            one.raw(bytes([byte]))
            await asyncio.sleep(0)


async def connects(target: Target) -> None:
    """Connect, say hello and leave, as fast as it goes."""
    for _ in range(200):
        async with peer(target):
            pass


async def crowd(target: Target) -> None:
    """Hold many connections that do nothing."""
    async with asyncio.TaskGroup() as group:
        for _ in range(100):
            group.create_task(_idle(target))


async def _idle(target: Target) -> None:
    async with peer(target):
        await asyncio.sleep(ROUND_S)


async def garbage(target: Target) -> None:
    """Send bytes that are no frames, and frames whose lengths lie."""
    chance = random.Random(time.monotonic_ns())
    lies = [b"\xff\xff\xff\xff", (2**26).to_bytes(4, "little") + (2**24).to_bytes(4, "little"), chance.randbytes(4_096)]
    for lie in lies * 10:
        async with peer(target) as one:
            one.raw(lie)
            await one.push()


async def bombs(target: Target) -> None:
    """Send headers of nothing but nested and empty containers."""
    for inside in (b"\x91" * 500_000 + b"\x90", b"\xdd" + (131_072).to_bytes(4, "big") + b"\x90" * 131_072, b"\xdd\xff\xff\xff\xff"):
        async with peer(target) as one:
            header = b"\x83\xa4kind\xa6submit\xa7request\x01\xa4plan\x81\xa1x" + inside
            one.raw(prefix(PREFIX_BYTES + len(header), len(header)) + header)
            await one.push()


async def stolen_names(target: Target) -> None:
    """Come as the client whose results are measured, and take over its subscription."""
    async with peer(target, client_id="honest") as one:
        one.say(Subscribe(one.number, target.query, rows_credit=2**30, bytes_credit=2**30))
        await one.hear(Subscribed, Failure)


async def forged_tokens(target: Target) -> None:
    """Resume from results that never were."""
    async with peer(target) as one:
        made = [f"m1.{i:012x}.{10**i % 2**60}.{10**18 - 1}" for i in range(50)]
        made += ["m1." + "f" * 400_000 + ".1.1", "m1.a." + "9" * 400_000 + ".1"]
        one.say(*[Subscribe(one.number, target.query, resume_token=token, rows_credit=1, bytes_credit=1) for token in made])
        await one.push()
        await one.answers(len(made))


# --- statements that are work ---


async def long_sums(target: Target) -> None:
    """Add a column to itself thousands of times."""
    await _asked(target, f"SELECT {'+'.join(['key'] * LONG)} AS s FROM {target.stream}")


async def long_wrong_sums(target: Target) -> None:
    """The same, wrong at its end: an error has to be placed too."""
    await _asked(target, f"SELECT {'+'.join(['key'] * LONG)} + nothing FROM {target.stream}")


async def deep_parentheses(target: Target) -> None:
    """Nest parentheses, CASE and subqueries deeper than anybody reads."""
    select = f"SELECT key FROM {target.stream}"
    for _ in range(200):
        select = f"SELECT key FROM ({select})"
    await _asked(
        target,
        f"SELECT {'(' * LONG}key{')' * LONG} FROM {target.stream}",
        f"SELECT {'CASE WHEN key > 1 THEN ' * 5_000}1{' END' * 5_000} FROM {target.stream}",
        select,
    )


async def long_conditions(target: Target) -> None:
    """Ask for one of thousands of conditions, and of thousands of values."""
    either = " OR ".join(f"key = {i}" for i in range(20_000))
    await _asked(target, f"SELECT key FROM {target.stream} WHERE {either}")
    await _asked(target, f"SELECT key FROM {target.stream} WHERE key IN ({','.join(map(str, range(100_000)))})")


async def many_columns(target: Target) -> None:
    """Select thousands of columns."""
    await _asked(target, f"SELECT {', '.join(f'key + {i} AS c{i}' for i in range(20_000))} FROM {target.stream}")


async def many_joins(target: Target) -> None:
    """Join a stream with itself dozens of times, and put hundreds of SELECTs together."""
    joined = f"{target.stream} a0" + "".join(f" JOIN {target.stream} a{i} WITHIN 1 SECOND ON a0.key = a{i}.key" for i in range(1, 40))
    await _asked(target, f"SELECT a0.key FROM {joined}", " UNION ALL ".join([f"SELECT key FROM {target.stream}"] * 1_000))


async def large_literals(target: Target) -> None:
    """Compare with a text as large as a frame."""
    await _asked(target, f"SELECT key FROM {target.stream} WHERE tag = '{'x' * 900_000}'")


async def wrong_words(target: Target) -> None:
    """Send statements of random words, each another error."""
    chance = random.Random(time.monotonic_ns())
    words = f"SELECT FROM WHERE GROUP BY ( ) , * + key {target.stream} 'a' 1 JOIN ON RANGE [ ] WITHIN EMIT CASE END OVER".split()
    await _asked(target, *[" ".join(chance.choices(words, k=60)) for _ in range(100)])


async def explanations(target: Target) -> None:
    """Have plans explained."""
    text = (
        f"SELECT key, COUNT(*) AS n, AVG(price) AS p FROM {target.stream} [RANGE 1 MINUTE SLIDE 1 SECOND] GROUP BY key HAVING COUNT(*) > 1"
    )
    await _asked(target, *[f"EXPLAIN {text}", f"EXPLAIN QOS {text}"] * 20)


async def plans(target: Target) -> None:
    """Submit plan objects that nest and widen."""
    node: dict[str, Any] = {"op": "source", "stream": target.stream}
    for _ in range(500):
        node = {"op": "select", "condition": "key >= 0", "input": node}
    async with peer(target) as one:
        one.say(Submit(one.number, plan={"version": 1, "root": node}))
        wide = [[f"c{i}", "key"] for i in range(10_000)]
        one.say(
            Submit(
                one.number,
                plan={"version": 1, "root": {"op": "project", "columns": wide, "input": {"op": "source", "stream": target.stream}}},
            )
        )
        await one.push()
        await one.answers(2)


# --- queries that hold ---


async def eaten_memory(target: Target) -> None:
    """Put every text that ever came into one."""
    await _running(target, f"SELECT STRING_AGG(tag) AS all_tags FROM {target.stream} [ROWS 1000000000]")


async def kept_rows(target: Target) -> None:
    """Join a stream with all that it has been for an hour."""
    await _running(target, f"SELECT a.key FROM {target.stream} a JOIN {target.stream} b WITHIN 1 HOUR ON a.tag = b.tag")


async def kept_groups(target: Target) -> None:
    """Group by what never comes twice."""
    await _running(target, f"SELECT key, ts, COUNT(*) AS n FROM {target.stream} [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY key, ts EMIT CHANGES")


async def tiny_slides(target: Target) -> None:
    """Have an hour answered at every microsecond."""
    await _running(target, f"SELECT COUNT(*) AS n FROM {target.stream} [RANGE 1 HOUR SLIDE 1 MICROSECOND]")


async def sorted_hours(target: Target) -> None:
    """Keep every value for its median."""
    await _running(target, f"SELECT MEDIAN(price) AS m, COUNT(DISTINCT key) AS k FROM {target.stream} [ROWS 1000000000]")


async def slow_patterns(target: Target) -> None:
    """Match patterns that go back over their text again and again."""
    await _running(target, f"SELECT key FROM {target.stream} WHERE (tag || tag || tag || tag || tag) ~ '^(([a-z0-9])+)+$x'")


async def growing_texts(target: Target) -> None:
    """Double a text until it is larger than memory."""
    grown = f"SELECT tag AS t FROM {target.stream}"
    for _ in range(24):
        grown = f"SELECT t || t AS t FROM ({grown})"
    await _running(target, grown)


async def many_queries(target: Target) -> None:
    """Start queries without names, as many as a round lasts."""
    async with peer(target) as one:
        for i in range(50):
            one.ask(f"SELECT key + {i} AS k FROM {target.stream} WHERE key > {i}")
            await one.hear(Reply, Failure)


async def left_queries(target: Target) -> None:
    """Start a query and be gone before it runs."""
    for i in range(10):
        async with peer(target) as one:
            one.ask(f"SELECT COUNT(*) AS n FROM {target.stream} [RANGE {i + 1} HOURS SLIDE 1 SECOND]")
            await one.push()


async def cross_joins(target: Target) -> None:
    """Fetch every row beside every other, and be gone before the answer."""
    t = target.table
    async with peer(target) as one:
        one.ask(f"FETCH SELECT a.k FROM {t} a CROSS JOIN {t} b CROSS JOIN {t} c")
        await asyncio.sleep(ROUND_S / 2)


async def many_fetches(target: Target) -> None:
    """Fetch over many connections at once."""
    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(_asked(target, f"FETCH SELECT COUNT(*) AS n FROM {target.table} a JOIN {target.table} b ON a.k = b.k"))


ENDS = (TimeoutError, OSError, ProtocolError)  # of a round: its time is over, the connection is closed, what it is about has been ended
Attack = Callable[[Target], Awaitable[None]]
ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (
        *(unread_fetches, unread_lists, unread_pings, unread_results, results_by_drops),
        *(pings, lists, credits, subscriptions, cancels, names, long_names),
        *(half_frames, half_hellos, dripping, connects, crowd, garbage, bombs, stolen_names, forged_tokens),
        *(long_sums, long_wrong_sums, deep_parentheses, long_conditions, many_columns, many_joins, large_literals, wrong_words),
        *(explanations, plans),
        *(eaten_memory, kept_rows, kept_groups, tiny_slides, sorted_hours, slow_patterns, growing_texts, many_queries, left_queries),
        *(cross_joins, many_fetches),
    )
}


async def one_round(attack: Attack, target: Target) -> None:
    """Run a round, which ends when it does, when its time is over, or when the server has had enough of it."""
    try:
        async with asyncio.timeout(ROUND_S):
            await attack(target)
    except ENDS:
        return
    except ExceptionGroup as group:
        if group.split(ENDS)[1] is not None:
            raise


async def rounds(attack: Attack, target: Target, seconds: float) -> int:
    """Repeat rounds over several connections at once; returns how many there were."""
    ends = time.monotonic() + seconds
    count = 0

    async def repeat() -> None:
        nonlocal count
        while time.monotonic() < ends:
            await one_round(attack, target)
            count += 1

    await asyncio.gather(*[repeat() for _ in range(PEERS)])
    return count


def main() -> None:
    """Attack; the arguments are kind, seconds, port, token, stream, table and query. Says how many rounds there were."""
    kind, seconds, port, *rest = sys.argv[1:]
    print(asyncio.run(rounds(ATTACKS[kind], Target(int(port), *rest), float(seconds))), flush=True)
