"""Tables as inputs and materialized views (K28) on a live server: what stands at once, changes, FETCH, a restart, PostgreSQL's clients."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from millstream.client.errors import MillstreamError
from millstream.client.gateway.postgres.messages import SimpleQuery

from tests.support.gateways import Gateway, tags, values
from tests.support.gateways import run as run_gateway
from tests.support.live_server import Harness, rows_of, run, running

SHOPS = "CREATE TABLE shops (shop TEXT, town TEXT, PRIMARY KEY (shop))"
TOWNS = "CREATE TABLE towns (town TEXT, land TEXT, PRIMARY KEY (town))"
SALES = "CREATE STREAM sales (ts BIGINT, shop TEXT, n BIGINT) TIMESTAMP BY ts UNIT s"
WHERE = "SELECT shop, land FROM shops LEFT JOIN towns USING (town)"
FETCHES_MAX = 20
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


@pytest.mark.parametrize("workers", [1, 2])
def test_a_view_has_what_stands_at_once_and_follows_its_tables(workers: int) -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await filled(client)
        await client.execute(f"CREATE MATERIALIZED VIEW places AS {WHERE}")
        await client.execute(f"CREATE MATERIALIZED VIEW sold AS {SOLD}")
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
        with pytest.raises(MillstreamError, match="a continuous query reads streams"):
            await client.execute("CREATE QUERY other AS SELECT shop FROM places")
        with pytest.raises(MillstreamError, match=r"a derived stream of tables.*CREATE MATERIALIZED VIEW other"):
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
            await client.execute(f"CREATE MATERIALIZED VIEW places AS {WHERE}")
            await client.execute(f"CREATE MATERIALIZED VIEW sold AS {SOLD}")
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
