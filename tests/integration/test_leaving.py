"""What is dropped leaves the engine and the scheduler: nothing stays behind, however often (C35)."""

from __future__ import annotations

import asyncio

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


def test_a_query_that_was_asked_for_by_one_who_left_meanwhile_does_not_stay() -> None:
    async def test(harness: Harness) -> None:
        keeper = await harness.client()
        await keeper.execute("CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us")
        for _ in range(5):
            leaving = await harness.client()
            asked = asyncio.ensure_future(leaving.execute("SELECT v FROM s"))
            session = list(harness.server.application.sessions.values())[-1]
            while session._answering is None and not asked.done():
                await asyncio.sleep(0)
            leaving._wire.abort()
            await asyncio.gather(asked, return_exceptions=True)
        await until(lambda: len(harness.server.application.sessions) == 1, "all have left")
        await until(lambda: not any(s._answering for s in harness.server.application.sessions.values()), "nothing is under way")
        while len(await keeper.execute("SHOW QUERIES")):
            await asyncio.sleep(0.01)

    run(test)
