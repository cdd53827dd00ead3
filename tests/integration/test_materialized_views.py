"""Tables as inputs and materialized views (K28) on a live server: what stands at once, changes, FETCH, a restart, PostgreSQL's clients."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from millstream.client.errors import MillstreamError
from millstream.client.gateway.postgres.messages import SimpleQuery
from millstream.server.run.embedded import Replay, run_replay

from tests.support.gateways import Gateway, tags, values
from tests.support.gateways import run as run_gateway
from tests.support.live_server import Harness, rows_of, run, running

SHOPS = "CREATE TABLE shops (shop TEXT, town TEXT, PRIMARY KEY (shop))"
TOWNS = "CREATE TABLE towns (town TEXT, land TEXT, PRIMARY KEY (town))"
SALES = "CREATE STREAM sales (ts BIGINT, shop TEXT, n BIGINT) TIMESTAMP BY ts UNIT s"
WHERE = "SELECT shop, land FROM shops LEFT JOIN towns USING (town)"
FETCHES_MAX = 20
SUMS = "SELECT shop, SUM(n) AS total FROM sales [RANGE 5 SECONDS SLIDE 5 SECONDS] GROUP BY shop"
SOLD = "SELECT shop, SUM(n) AS total FROM sales GROUP BY shop"


async def check(client: Any, text: str, expected: list[tuple[Any, ...]]) -> None:
    """A FETCH waits a second at most until the view has seen what has arrived; on a busy machine a worker may need more to begin."""
    for _ in range(FETCHES_MAX):
        found = sorted((tuple(row.values()) for row in (await client.query_once(text)).to_pylist()), key=repr)
        if found == expected:
            return
    assert found == expected


async def filled(client: Any, durability: str = "") -> None:
    for statement in (SHOPS, TOWNS, SALES):
        await client.execute(statement + durability)
    await client.publish("shops", [{"shop": "north", "town": "Ulm"}, {"shop": "south", "town": "Graz"}])
    await client.publish("towns", [{"town": "Graz", "land": "AT"}])


async def with_views(client: Any) -> None:
    await client.execute(f"CREATE MATERIALIZED VIEW places AS {WHERE}")
    await client.execute(f"CREATE MATERIALIZED VIEW sold AS {SOLD}")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_view_has_what_stands_at_once_and_follows_its_tables(workers: int) -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await filled(client)
        await with_views(client)
        await check(client, "SELECT * FROM places", [("north", None), ("south", "AT")])
        described = [(row["column"], row["note"]) for row in (await client.execute("DESCRIBE sold")).rows]
        assert described == [("shop", None), ("total", None), ("op", "+ adds the row, - takes it back")]
        places = await client.subscribe("places")
        await client.publish("shops", [{"shop": "south", "town": "Graz", "op": "-"}, {"shop": "north", "town": "Graz", "op": "+"}])
        found = await rows_of(places, 3)
        assert sorted((row["op"], row["shop"], row["land"]) for row in found[-3:]) == [
            ("+", "north", "AT"),
            ("-", "north", None),
            ("-", "south", "AT"),
        ]
        await client.publish("sales", [{"ts": 1, "shop": "north", "n": 3}, {"ts": 2, "shop": "north", "n": 4}])
        await check(client, "SELECT land, total FROM places JOIN sold ON places.shop = sold.shop", [("AT", 7)])
        assert sorted((await client.query("places").fetch()).to_pylist(), key=repr) == [{"shop": "north", "land": "AT"}]
        with pytest.raises(MillstreamError, match=r"a derived stream of tables or views.*CREATE MATERIALIZED VIEW other"):
            await client.execute("CREATE STREAM other AS SELECT shop FROM places")
        with pytest.raises(MillstreamError, match=r"a derived stream of tables or views.*CREATE MATERIALIZED VIEW other"):
            await client.execute("CREATE STREAM other AS SELECT shop FROM shops")
        await client.execute("STOP QUERY places")
        with pytest.raises(MillstreamError, match=r"materialized view places is stopped.*START QUERY places"):
            await client.query_once("SELECT * FROM places")
        await client.execute("START QUERY places")
        await check(client, "SELECT * FROM places", [("north", "AT")])
        await client.execute("CREATE QUERY plain AS SELECT shop FROM shops")
        with pytest.raises(MillstreamError, match=r"plain is a query, and no materialized view.*DROP QUERY plain"):
            await client.execute("DROP MATERIALIZED VIEW plain")
        await client.execute("COMMENT ON MATERIALIZED VIEW places IS 'where they are'")
        await client.execute("DROP MATERIALIZED VIEW places")
        await client.execute("DROP MATERIALIZED VIEW IF EXISTS places")

    run(test, workers=workers)


@pytest.mark.parametrize("durability", [" DURABILITY journal", ""])
def test_a_view_outlives_a_restart(tmp_path: Path, durability: str) -> None:
    async def first() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            await filled(client, durability)
            await with_views(client)
            await client.publish("sales", [{"ts": 1, "shop": "north", "n": 3}])
            await client.publish("shops", [{"shop": "west", "town": "Graz"}])
            await check(client, "SELECT * FROM sold", [("north", 3)])

    async def again() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            kept = bool(durability)
            before = [("north", None), ("south", "AT"), ("west", "AT")] if kept else []
            await check(client, "SELECT * FROM places", before)
            await client.publish("sales", [{"ts": 2, "shop": "north", "n": 4}])
            await client.publish("towns", [{"town": "Ulm", "land": "DE"}])
            await client.publish("shops", [{"shop": "north", "town": "Ulm"}])
            await check(client, "SELECT * FROM sold", [("north", 7 if kept else 4)])
            await check(client, "SELECT * FROM places", sorted([*before[1:], ("north", "DE")]))
            await client.execute("CREATE OR REPLACE MATERIALIZED VIEW sold AS SELECT town, COUNT(*) AS n FROM shops GROUP BY town")
            await check(client, "SELECT * FROM sold WHERE town = 'Ulm'", [("Ulm", 1)])

    asyncio.run(first())
    asyncio.run(again())


def test_a_view_keeps_as_much_as_it_says_over_a_restart(tmp_path: Path) -> None:
    async def first() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            await client.execute(SALES + " DURABILITY journal")
            with pytest.raises(MillstreamError, match=r"would grow without end.*WITH \(keep = '7 days'\)"):
                await client.execute("CREATE MATERIALIZED VIEW recent AS SELECT shop, n FROM sales")
            await client.execute("CREATE MATERIALIZED VIEW recent WITH (keep = '10 seconds') AS SELECT shop, n FROM sales WHERE n > 1")
            await client.execute(f"CREATE MATERIALIZED VIEW sums WITH (keep = 2) AS {SUMS}")
            await client.publish("sales", [{"ts": ts, "shop": "north", "n": ts} for ts in (1, 2, 8, 12)])
            await check(client, "SELECT n FROM recent", [(12,), (2,), (8,)])

    async def again() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            await check(client, "SELECT n FROM recent", [(12,), (2,), (8,)])
            await check(client, "SELECT total FROM sums", [(3,), (8,)])
            await client.publish("sales", [{"ts": 20, "shop": "north", "n": 20}])
            await check(client, "SELECT n FROM recent", [(12,), (20,)])
            await check(client, "SELECT total FROM sums", [(12,), (8,)])

    asyncio.run(first())
    asyncio.run(again())


LANDS = "SELECT land, COUNT(*) AS shops, SUM(total) AS total FROM places LEFT JOIN sold ON places.shop = sold.shop GROUP BY land"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_query_reads_views_as_tables_and_they_stay_as_long_as_it_is_there(workers: int) -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await filled(client)
        await with_views(client)
        await client.publish("sales", [{"ts": 1, "shop": "south", "n": 3}])
        await client.execute(f"CREATE MATERIALIZED VIEW lands AS {LANDS}")
        await check(client, "SELECT * FROM lands", [("AT", 1, 3), (None, 1, None)])
        await client.execute("CREATE QUERY few AS SELECT land FROM lands WHERE shops < 2")
        await check(client, "SELECT * FROM few", [("AT",), (None,)])  # at once, though no row came since
        await client.publish("sales", [{"ts": 2, "shop": "north", "n": 4}, {"ts": 3, "shop": "south", "n": 1}])
        await client.publish("towns", [{"town": "Ulm", "land": "AT"}])
        await check(client, "SELECT * FROM lands", [("AT", 2, 8)])
        await check(client, "SELECT * FROM few", [])
        with pytest.raises(MillstreamError, match=r"view places is read by .*few.*; drop them first, or write .*places CASCADE"):
            await client.execute("DROP MATERIALIZED VIEW places")
        with pytest.raises(MillstreamError, match="view sold is read by few, lands"):
            await client.execute("CREATE OR REPLACE MATERIALIZED VIEW sold AS SELECT shop, COUNT(*) AS total FROM sales GROUP BY shop")
        with pytest.raises(MillstreamError, match="view sold is read by lands; STOP QUERY lands first"):
            await client.execute("STOP QUERY sold")
        for name in ("few", "lands", "sold"):
            await client.execute(f"STOP QUERY {name}")
        with pytest.raises(MillstreamError, match=r"view sold is stopped.*START QUERY sold"):
            await client.execute("START QUERY lands")
        for name in ("sold", "lands", "few"):
            await client.execute(f"START QUERY {name}")
        await check(client, "SELECT * FROM lands", [("AT", 2, None)])
        with pytest.raises(MillstreamError, match=r"a join of a stream with rows that change is not supported"):
            await client.execute("SELECT sales.n FROM sales JOIN sold ON sales.shop = sold.shop")
        dropped = await client.execute("DROP MATERIALIZED VIEW places CASCADE")
        assert dropped.notices == ["query few dropped", "query lands dropped", "materialized view places dropped"]
        await client.execute("DROP MATERIALIZED VIEW sold")

    run(test, workers=workers)


def test_a_view_that_ends_early_ends_its_readers_and_one_whose_streams_end_stays_for_them() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await filled(client)
        await client.execute(f"CREATE MATERIALIZED VIEW sold WITH (lifetime = '300ms') AS {SOLD}")
        await client.execute("CREATE MATERIALIZED VIEW more AS SELECT shop, total FROM sold WHERE total > 1")
        much = await client.query("more").subscribe()
        assert [batch async for batch in much] == []
        assert "view sold, which it reads, has ended: its lifetime is over" in str(much.end)
        await client.execute("DROP MATERIALIZED VIEW sold CASCADE")
        await client.execute(f"CREATE MATERIALIZED VIEW sold AS {SOLD}")
        await client.execute("CREATE MATERIALIZED VIEW known AS SELECT town, total FROM shops JOIN sold ON shops.shop = sold.shop")
        await client.publish("sales", [{"ts": 1, "shop": "south", "n": 3}])
        await client.finish("sales")
        await check(client, "SELECT * FROM known", [("Graz", 3)])
        await client.publish("shops", [{"shop": "south", "town": "Linz"}])
        await check(client, "SELECT * FROM known", [("Linz", 3)])
        with pytest.raises(MillstreamError, match="view sold is read by known; STOP QUERY known first"):
            await client.execute("START QUERY sold")
        await client.execute("DROP MATERIALIZED VIEW known")
        await client.execute("DROP MATERIALIZED VIEW sold")

    run(test)


@pytest.mark.parametrize("durability", [" DURABILITY journal", ""])
def test_what_reads_views_outlives_a_restart(tmp_path: Path, durability: str) -> None:
    kept = bool(durability)

    async def first() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            await filled(client, durability)
            await with_views(client)
            await client.publish("sales", [{"ts": 1, "shop": "south", "n": 3}])
            await client.execute(f"CREATE MATERIALIZED VIEW lands AS {LANDS}")
            await client.execute("CREATE MATERIALIZED VIEW most AS SELECT MAX(total) AS most FROM lands")
            await client.publish("sales", [{"ts": 2, "shop": "north", "n": 5}])
            await check(client, "SELECT * FROM most", [(5,)])

    async def again() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            await check(client, "SELECT * FROM most", [(5,)] if kept else [])
            await client.publish("shops", [{"shop": "south", "town": "Graz"}])
            await client.publish("sales", [{"ts": 3, "shop": "south", "n": 7}])
            await check(client, "SELECT * FROM most", [(10 if kept else 7,)])
            with pytest.raises(MillstreamError, match="is read by"):
                await client.execute("DROP MATERIALIZED VIEW sold")

    asyncio.run(first())
    asyncio.run(again())
    asyncio.run(again_after(tmp_path, 17 if kept else 7))


async def again_after(data_dir: Path, most: int) -> None:
    async with running(data_dir=str(data_dir)) as harness:
        client = await harness.client()
        await client.publish("shops", [{"shop": "south", "town": "Graz"}])
        await client.publish("sales", [{"ts": 4, "shop": "south", "n": 7}])
        await check(client, "SELECT * FROM most", [(most,)])


def test_postgresql_reads_a_view_as_a_table() -> None:
    async def test(gateway: Gateway) -> None:
        peer = await gateway.peer()
        heard = await peer.ask(SimpleQuery(f"{SHOPS}; INSERT INTO shops VALUES ('north', 'Ulm'), ('south', 'Ulm')"))
        heard = await peer.ask(SimpleQuery("CREATE MATERIALIZED VIEW towns AS SELECT town, COUNT(*) AS n FROM shops GROUP BY town"))
        assert tags(heard) == ["CREATE MATERIALIZED VIEW"]
        assert values(await peer.ask(SimpleQuery("SELECT town, n FROM towns WHERE n > 1"))) == [["Ulm", "2"]]
        assert tags(await peer.ask(SimpleQuery("DROP MATERIALIZED VIEW towns"))) == ["DROP MATERIALIZED VIEW"]
        await peer.close()

    run_gateway(test)


def test_rows_that_change_do_not_enter_a_table() -> None:
    script = "CREATE STREAM s (k TEXT, v INT); CREATE TABLE t (k TEXT, n BIGINT, word TEXT, PRIMARY KEY (k));"
    outcome = run_replay(Replay(f"{script} INSERT INTO t SELECT k, COUNT(*) AS n FROM s GROUP BY k"))
    assert outcome.failure is not None
    assert re.search("INSERT INTO table t of rows that change.*CREATE MATERIALIZED VIEW", outcome.failure)
