"""What is dropped leaves the engine and the scheduler: nothing stays behind, however often (C35)."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import Counter
from itertools import count

from tests.support.live_server import Harness, rows_of, run, until

ROUNDS = 200


def test_streams_queries_and_tables_that_are_dropped_leave_nothing_with_the_scheduler() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        host = harness.server.application.host
        core = host.runtime.scheduler._core  # type: ignore[attr-defined]

        def sizes() -> tuple[int, ...]:
            network = core.ledger.network
            known = (network.operators, network.edges, network.logs)
            return (*(len(k.slot_of) for k in known), len(network.queries), len(host.network.sources), len(host.network._announced))

        before = sizes()
        places = len(core.ledger.network.nodes)
        for number in range(ROUNDS):
            name = f"s{number}"
            await client.execute(f"CREATE STREAM {name} (ts BIGINT, k BIGINT) TIMESTAMP BY ts UNIT s")
            await client.execute(f"CREATE QUERY q AS SELECT k, COUNT(*) AS n FROM {name} [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k")
            if number % 2:
                await client.execute(f"INSERT INTO {name} VALUES (1, 1)")
            if number % 3 == 0:
                await client.execute("DROP QUERY q")
            await client.execute(f"DROP STREAM {name} CASCADE")
        assert sizes() == before
        assert len(core.ledger.network.nodes) <= places + 32, "places of operators that left are used again"

    run(test)


TEMPORARY = (
    "SELECT k FROM s WHERE k > 0",
    "SELECT window_end, k, COUNT(*) AS n FROM s [RANGE 2 SECONDS SLIDE 2 SECONDS] GROUP BY k",
    "SELECT window_end, k, COUNT(*) AS n FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k",
    "SELECT s.k FROM s JOIN r ON s.k = r.k WITHIN 1 SECOND",
)
HELD = ("Session", "Inflow", "RunningOperator", "OutputLog", "LogNode", "PublishingChannel")


def held() -> Counter[str]:
    """Count what there is of a connection and of what it ran, garbage that waits for the collector included."""
    kinds = Counter(type(one).__name__ for one in gc.get_objects())
    return Counter({name: kinds[name] for name in HELD})


def test_who_leaves_is_freed_at_once_and_not_at_the_collectors_next_long_look() -> None:
    """A ring that holds a connection's buffers or an operator's queues lives for minutes, as the collector seldom looks at what is old."""

    visits = count()

    async def visit(harness: Harness, text: str) -> None:
        leaving = await harness.client()
        subscription = await leaving.subscribe(await leaving.submit(text))
        begin = 20 * next(visits)
        for name in "sr":
            await leaving.publish(name, [{"ts": begin + number, "k": number % 3} for number in range(20)])
        await subscription.next_item()
        await leaving.abandon()
        await until(lambda: len(harness.server.application.sessions) == 1, "its session is gone")
        await until(lambda: not harness.server.application.host.queries, "so is its query")

    async def test(harness: Harness) -> None:
        client = await harness.client()
        for name in "sr":
            await client.execute(f"CREATE STREAM {name} (ts BIGINT, k BIGINT) TIMESTAMP BY ts UNIT s")
        for text in TEMPORARY:
            await visit(harness, text)
        await asyncio.sleep(0)
        gc.collect()
        gc.disable()
        try:
            before = held()
            for _ in range(5):
                for text in TEMPORARY:
                    await visit(harness, text)
            await client.execute("SHOW QUERIES")
            assert held() - before == Counter()
        finally:
            gc.enable()

    run(test)


def test_a_stream_whose_last_query_left_serves_the_next_one() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute("CREATE STREAM s (ts BIGINT, k BIGINT) TIMESTAMP BY ts UNIT s")
        for number in range(3):
            await client.submit("SELECT k FROM s", name="q")
            subscription = await client.subscribe("q")
            await client.publish("s", [{"ts": number, "k": number}])
            assert await rows_of(subscription, 1) == [{"k": number}]
            await client.execute("DROP QUERY q")
            await client.publish("s", [{"ts": number, "k": -1}])
        host = harness.server.application.host
        await until(lambda: host.runtime.statistics().idle, "rows that nobody reads wait for nobody")

    run(test)


def test_rows_published_before_the_first_query_do_not_hold_it_up() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute("CREATE STREAM s (ts BIGINT, k BIGINT) TIMESTAMP BY ts UNIT s")
        await client.publish("s", [{"ts": 1, "k": -1}] * 5)
        await client.submit("SELECT k FROM s", name="q")
        subscription = await client.subscribe("q")
        await client.publish("s", [{"ts": 1, "k": 1}])
        assert await rows_of(subscription, 1) == [{"k": 1}]

    run(test)


def test_a_query_whose_owner_leaves_before_it_is_parsed_is_never_begun() -> None:
    async def test(harness: Harness) -> None:
        client, other = await harness.client(), await harness.client()
        await other.execute("CREATE STREAM s (ts BIGINT, k BIGINT) TIMESTAMP BY ts UNIT s")
        application = harness.server.application
        blocked = threading.Event()
        blocking = asyncio.ensure_future(application.call(blocked.wait))
        asking = asyncio.ensure_future(client.execute("SELECT k FROM s"))
        session = next(iter(application.sessions.values()))
        await until(lambda: session.answered is not None, "it waits to be parsed")
        client._wire.abort()
        await until(lambda: session.closed, "its owner has left")
        blocked.set()
        await asyncio.gather(blocking, asking, return_exceptions=True)
        assert list(await other.execute("SHOW QUERIES")) == []

    run(test)
