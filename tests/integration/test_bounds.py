"""Bounds on memory and time that hold: what ends, with which reason, and that nobody else notices."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from typing import Any

import pyarrow as pa
import pytest
from millstream.server import sweep

from tests.support.live_server import Harness, run, until

MIB = 2**20
CREATE = "CREATE STREAM s (ts BIGINT, k BIGINT, t TEXT) TIMESTAMP BY ts UNIT us"
OTHER = "CREATE STREAM o (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us"


def rows(start: int, stop: int) -> Any:
    numbers = range(start, stop)
    return pa.table({"ts": list(numbers), "k": [1] * len(numbers), "t": [f"x{n:09d}" for n in numbers]})


async def ended(subscription: Any) -> Any:
    """Read to the end and return what was said there."""
    async for _ in subscription:
        pass
    return subscription.end


def network_of(harness: Harness) -> Any:
    return harness.server.application.host.network


@pytest.mark.parametrize(
    ("hungry", "count"),
    [
        ("SELECT STRING_AGG(t) AS all_of_it FROM s [ROWS 1000000000]", 24_000),
        ("SELECT ARRAY_AGG(k) AS all_of_it FROM s [ROWS 1000000000]", 24_000),
        ("SELECT a.k, b.t FROM s AS a JOIN s AS b ON a.k = b.k WITHIN 1 HOUR", 24_000),
        ("SELECT REPEAT(t, 10000) AS long, k FROM s", 2_000),
        ("SELECT t || t || REPEAT(t, 10000) AS long FROM s", 2_000),
    ],
)
def test_what_wants_more_than_its_bound_ends_with_the_reason_and_others_get_everything(hungry: str, count: int) -> None:
    async def test(harness: Harness) -> None:
        publisher, reader, other = await harness.client(), await harness.client(), await harness.client()
        await publisher.execute(CREATE)
        await publisher.execute(OTHER)
        greedy = await reader.subscribe((await reader.submit(hungry)).name)
        modest = await other.subscribe((await other.submit("SELECT v FROM o")).name)
        for start in range(0, count, 1_000):
            await publisher.publish("s", rows(start, start + 1_000))
            await publisher.publish("o", pa.table({"ts": [start], "v": [start]}))
        await publisher.finish("s")
        end = await ended(greedy)
        assert end.reason == "failed" or (end.reason == "slow" and "REPEAT" in hungry), end
        if end.reason == "failed":
            assert "query_memory_bytes_max = 16777216" in end.message, end.message
        await publisher.finish("o")
        assert [v async for batch in modest for v in batch.column("v").to_pylist()] == list(range(0, count, 1_000))
        await reader.close()
        network = network_of(harness)
        await until(lambda: len(network.queries) <= 1, "the query is out of the network")
        network.memory.look()
        assert network.memory.total_bytes < MIB

    run(test, within_s=60.0, query_memory_bytes_max=16 * MIB, subscriber_bytes_max=MIB)


def test_a_state_that_grows_beyond_its_query_s_own_bound_ends_it_and_says_how_to_go_on() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(CREATE)
        await client.submit("SELECT t, COUNT(*) AS n FROM s GROUP BY t EMIT FINAL WITH (memory_bytes_max = 2000000)", name="groups")
        await client.submit("SELECT COUNT(*) AS n FROM s EMIT FINAL", name="one")
        host = harness.server.application.host
        for start in range(0, 60_000, 4_000):
            await client.publish("s", rows(start, start + 4_000))
        groups, one = host.queries.get("groups"), host.queries.get("one")
        await until(lambda: groups.state.value == "finished", "it has ended")
        assert groups.failure is not None
        assert "memory_bytes_max = 2000000" in groups.failure
        assert "state" in groups.failure
        assert "raise memory_bytes_max" in groups.failure
        assert one.state.value == "running"
        shown = {row["name"]: row for row in await client.execute("SHOW QUERIES")}
        assert shown["groups"]["failure"] == groups.failure
        assert shown["groups"]["memory_bytes"] is None
        assert shown["one"]["memory_bytes"] < 2_000_000 < shown["one"]["memory_bytes_max"]
        await client.execute("START QUERY groups")
        assert groups.state.value == "running"

    run(test, within_s=30.0)


def test_at_the_server_s_bound_the_query_that_holds_most_ends_and_the_others_go_on() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(CREATE)
        for name, window in (("large", "1 HOUR"), ("small", "1 MILLISECOND")):
            await client.submit(f"SELECT MEDIAN(k) AS m FROM s [RANGE {window}] EMIT EVERY 2 HOURS", name=name)
        host = harness.server.application.host
        large, small = host.queries.get("large"), host.queries.get("small")
        start = 0
        while large.state.value == "running":
            await client.publish("s", rows(start, start + 4_000))
            start += 4_000
            assert start < 1_000_000
        await until(lambda: large.state.value == "finished", "it has ended")
        assert large.failure is not None
        assert "server_memory_bytes_max" in large.failure
        assert small.state.value == "running"
        await until(lambda: host.network.memory.total_bytes < 8 * MIB, "its memory is free")
        assert host.network.memory.ended == 1

    run(test, within_s=60.0, server_memory_bytes_max=12 * MIB, query_memory_bytes_max=64 * MIB)


def test_publishers_wait_while_only_rows_of_their_stream_wait_and_nobody_ends() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(CREATE)
        await client.submit("SELECT k FROM s WITH (memory_bytes_max = 1000000)", name="q")
        await client.execute("PAUSE QUERY q")
        for start in range(0, 24_000, 4_000):
            await client.publish("s", rows(start, start + 4_000))
        host = harness.server.application.host
        host.network.memory.look()
        assert host.network.memory.pressed == {"s"}
        assert host.intakes["s"].is_pressed()
        assert "SHOW QUERIES" in host.intakes["s"].pressed_by()
        assert host.queries.get("q").state.value == "paused"
        await client.execute("RESUME QUERY q")
        await until(lambda: host.counts(host.queries.get("q")).get("queued") == 0, "all is worked off")
        host.network.memory.look()
        assert not host.network.memory.pressed
        assert host.queries.get("q").failure is None

    run(test, within_s=30.0)


def test_a_derived_stream_that_ends_takes_what_reads_it_along_with_the_reason() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(CREATE)
        grows = "SELECT t, COUNT(*) AS n FROM s [RANGE 1 HOUR] GROUP BY t WITH (memory_bytes_max = 1000000)"
        await client.execute(f"CREATE STREAM d AS {grows}")
        subscription = await client.subscribe((await client.submit("SELECT n FROM d WHERE n > 100")).name)
        for start in range(0, 40_000, 4_000):
            await client.publish("s", rows(start, start + 4_000))
        end = await ended(subscription)
        assert end.reason == "failed"
        assert "stream d, which it reads, has ended" in end.message
        assert "memory_bytes_max = 1000000" in end.message
        await until(lambda: not network_of(harness).queries, "both are out of the network")

    run(test, within_s=30.0)


def test_a_query_is_gone_soon_after_its_connection_also_while_it_works() -> None:
    async def test(harness: Harness) -> None:
        publisher, reader = await harness.client(), await harness.client()
        await publisher.execute(CREATE)
        await reader.submit("SELECT MEDIAN(k) AS m FROM s [ROWS 100000]")
        network = network_of(harness)
        publishing = asyncio.ensure_future(publisher.publish("s", rows(0, 30_000)))
        await until(lambda: any(o.counted.rows_in for o in network.operators.values()), "it is at work")
        query = next(iter(network.queries.values()))
        await reader.close()
        await until(lambda: query.failed, "no more work is begun")
        taken = max(o.counted.rows_in for o in query.blueprint.operators)
        await until(lambda: not network.queries, "it is gone")
        assert taken < 30_000
        await publishing

    run(test, within_s=30.0)


def test_what_a_query_held_is_given_back_when_it_ends() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(CREATE)
        await client.submit("SELECT COUNT(*) AS n FROM s EMIT FINAL", name="stays")
        host = harness.server.application.host

        async def held_by_a_query(first_row: int) -> tuple[int, int]:
            """What a query had allocated after 20,000 rows, and what was left of it when it was gone, in bytes."""
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            await client.submit("SELECT MEDIAN(k) AS m, MAX(t) AS x FROM s [RANGE 1 HOUR] EMIT EVERY 2 HOURS", name="goes")
            for start in range(first_row, first_row + 20_000, 4_000):
                await client.publish("s", rows(start, start + 4_000))
            await until(
                lambda: not any(host.counts(host.queries.get(name)).get("queued") for name in ("goes", "stays")), "all is worked off"
            )
            held = tracemalloc.get_traced_memory()[0] - before
            await client.execute("DROP QUERY goes")
            gc.collect()
            return held, tracemalloc.get_traced_memory()[0] - before

        await client.publish("s", rows(0, 4_000))
        tracemalloc.start()
        try:
            # What a server's first query of a kind loads and remembers for good is not what the query holds.
            await held_by_a_query(4_000)
            held, left = await held_by_a_query(24_000)
        finally:
            tracemalloc.stop()
        assert held > MIB
        assert left < held // 4

    run(test, within_s=60.0)


def test_a_query_with_a_small_bound_keeps_few_results() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(CREATE)
        await client.submit("SELECT t FROM s WITH (memory_bytes_max = 400000)", name="q")
        for start in range(0, 40_000, 4_000):
            await client.publish("s", rows(start, start + 4_000))
        host = harness.server.application.host
        await until(lambda: host.counts(host.queries.get("q")).get("queued") == 0, "all is worked off")
        assert host.queries.get("q").failure is None
        assert harness.server.application.feeds.of("q").feed.log.kept_bytes <= 100_000

    run(test, within_s=30.0)


def test_what_the_allocator_keeps_goes_back_to_the_system_once_a_query_has_ended_for_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[int] = []
    monkeypatch.setattr(sweep, "give_back", lambda: given_back.append(1))

    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(CREATE)
        await client.submit("SELECT t, COUNT(*) AS n FROM s GROUP BY t EMIT FINAL WITH (memory_bytes_max = 1000000)", name="groups")
        await client.publish("s", rows(0, 4_000))
        assert not given_back
        for start in range(4_000, 40_000, 4_000):
            await client.publish("s", rows(start, start + 4_000))
        await until(lambda: len(given_back) == 1, "it was given back once")
        assert not network_of(harness).queries

    run(test, within_s=30.0)


def test_an_unnamed_query_whose_reader_was_too_slow_is_dropped_and_a_named_one_goes_on() -> None:
    async def test(harness: Harness) -> None:
        publisher, reader = await harness.client(), await harness.client()
        await publisher.execute(CREATE)
        await publisher.submit("SELECT k FROM s", name="named")
        submitted = await reader.submit("SELECT REPEAT(t, 100) AS t FROM s")
        subscription = await reader.subscribe(submitted.name)
        network = network_of(harness)
        for start in range(0, 60_000, 2_000):
            await publisher.publish("s", rows(start, start + 2_000))
        await until(lambda: len(network.queries) == 1, "the one that nobody reads is gone")
        assert [q.node.name for q in network.queries.values()] == ["named"]
        assert (await ended(subscription)).reason == "slow"

    run(test, within_s=30.0, subscriber_bytes_max=65_536)
