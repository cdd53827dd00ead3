"""Admission over TCP: EXPLAIN QOS foresees, SUBMIT warns or refuses with the numbers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from millstream.client.errors import MillstreamError

from tests.support.live_server import Harness, run

STREAM = "CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us RATE 1000000 PER SECOND"
HEAVY = {
    "version": 1,
    "class": "gold",
    "root": {"op": "select", "condition": "v > 1", "cost_us": 10, "selectivity": 0.5, "input": {"op": "source", "stream": "s"}},
}


async def prepared(harness: Harness) -> Any:
    client = await harness.client()
    await client.execute(STREAM)
    await client.execute("CREATE CLASS gold PRIORITY 6 TARGET 300 MILLISECONDS NEVER SHED")
    return client


def test_explain_qos_says_what_a_query_would_add_and_leaves_nothing_behind() -> None:
    async def test(harness: Harness) -> None:
        client = await prepared(harness)
        host = harness.server.application.host
        before = (dict(host.network.queries), dict(host.network.operators))
        told = {r["promise"]: r["value"] for r in await client.execute("EXPLAIN QOS SELECT v FROM s WHERE v > 1 WITH (class = 'gold')")}
        assert "at 1e+06 rows/s" in told["load added"]
        assert told["admission"] == "accepted"
        assert re.fullmatch(r"\S+ ms on average \(\S+ to \S+ ms\)", told["expected latency"])
        assert (dict(host.network.queries), dict(host.network.operators)) == before
        query = await client.submit("SELECT v FROM s WHERE v > 1 WITH (class = 'gold')", name="kept")
        assert query.name == "kept"
        now = {r["promise"]: r["value"] for r in await client.execute("EXPLAIN QOS kept")}
        assert re.fullmatch(r"\S+ ms on average \(\S+ to \S+ ms\)|latency without bound", now["expected latency"])

    run(test)


def test_an_expected_latency_of_which_nothing_is_known_says_so() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute("CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT s")
        await client.submit("SELECT v FROM s", name="waits")
        for asked in ("SELECT v FROM s", "waits"):
            told = {r["promise"]: r["value"] for r in await client.execute(f"EXPLAIN QOS {asked}")}
            assert told["expected latency"] == "not known yet: no rows come in"
        await client.execute("CREATE STREAM t (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT s RATE 10 PER SECOND")
        await client.submit("SELECT v FROM t", name="fed")
        queries = {r["name"]: r["latency_expected_ms"] for r in await client.execute("SHOW QUERIES")}
        assert queries["waits"] is None
        assert queries["fed"] > 0
        (told,) = [r["value"] for r in await client.execute("EXPLAIN QOS fed") if r["promise"] == "expected latency"]
        assert told.startswith(f"{queries['fed']:.3g} ms on average (")

    run(test)


def test_a_query_that_the_machine_cannot_carry_is_refused_with_the_numbers_and_its_name_stays_free() -> None:
    async def test(harness: Harness) -> None:
        client = await prepared(harness)
        with pytest.raises(MillstreamError) as raised:
            await client.submit(HEAVY, name="heavy")
        assert raised.value.code == "overloaded"
        assert "class gold would go from load 0.00 to 10.0" in raised.value.message
        assert "--admission warn" in (raised.value.hint or "")
        assert await client.execute("SHOW QUERIES") is not None
        await client.submit("SELECT v FROM s", name="heavy")

    run(test, admission="refuse")


def test_asking_for_a_class_that_may_be_shed_changes_nothing_for_those_that_run_and_come() -> None:
    async def test(harness: Harness) -> None:
        client = await prepared(harness)
        await client.execute("CREATE CLASS dust PRIORITY 1 SHED")
        await client.execute("EXPLAIN QOS SELECT v FROM s WITH (class = 'dust')")
        await client.submit("SELECT v FROM s", name="one")
        told = {r["promise"]: r["value"] for r in await client.execute("EXPLAIN QOS SELECT * FROM s WITH (class = 'dust')")}
        assert "at 1e+06 rows/s" in told["load added"]
        host = harness.server.application.host
        assert len(host.network.sources["s"].logs) == 1
        await client.submit("SELECT v FROM s WHERE v > 1 WITH (class = 'gold')", name="two")
        subscription = await client.subscribe("two")
        await client.publish("s", [{"ts": 1, "v": 1}, {"ts": 2, "v": 2}])
        await client.finish("s")
        assert (await subscription.to_arrow()).to_pylist() == [{"v": 2}]

    run(test)


@pytest.mark.parametrize(("admission", "warned"), [("warn", True), ("off", False)])
def test_by_default_it_is_let_in_with_a_warning(admission: str, warned: bool) -> None:
    async def test(harness: Harness) -> None:
        client = await prepared(harness)
        await client.submit(HEAVY, name="heavy")
        host = harness.server.application.host
        assert bool(host.queries.get("heavy").warnings) == warned

    run(test, admission=admission)
