"""The places of queries among all that were ever made: what several feed to one stream is ordered by them."""

from __future__ import annotations

from typing import Any

from tests.support.live_server import Harness, run


def test_no_two_queries_have_one_place_and_one_that_begins_anew_keeps_its_own() -> None:
    async def main(harness: Harness) -> None:
        client = await harness.client()
        host: Any = harness.server.application.host
        await client.execute("CREATE STREAM s (ts BIGINT) TIMESTAMP BY ts UNIT s")
        for name in ("a", "b"):
            await client.execute(f"CREATE QUERY {name} AS SELECT ts FROM s")
        await client.execute("STOP QUERY a")
        await client.execute("START QUERY a")
        await client.execute("CREATE QUERY c AS SELECT ts FROM s")
        assert [host.order_of(name) for name in "abc"] == [1, 2, 3]
        await client.execute("DROP QUERY a")
        assert host.order_of("a") == 0
        await client.execute("CREATE QUERY a AS SELECT ts FROM s")
        assert [host.order_of(name) for name in "bca"] == [2, 3, 4]
        assert [host.query_of_order(place) for place in (1, 2, 3, 4)] == [None, "b", "c", "a"]

    run(main)
