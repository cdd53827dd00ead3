"""Subqueries in expressions (K25) on a live server: a table that changes, changes of aggregates, FETCH, a restart, what is refused."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from millstream.engine.data.errors import EngineError
from millstream.engine.plan.plan import plan_select

from tests.support.catalogs import catalog_of
from tests.support.live_server import Harness, rows_of, run, running

STREAM = "CREATE STREAM s (ts BIGINT, k TEXT, v BIGINT) TIMESTAMP BY ts UNIT s"
TABLE = "CREATE TABLE t (k TEXT, most BIGINT, PRIMARY KEY (k))"
KNOWN = "SELECT k, v, (SELECT SUM(most) FROM t) AS total FROM s WHERE k IN (SELECT k FROM t WHERE most >= v)"
W = "[RANGE 10 SECONDS SLIDE 10 SECONDS]"


def test_a_row_sees_the_table_as_it_stands_when_it_comes() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        await client.execute(TABLE)
        await client.submit(KNOWN, name="known")
        await client.submit("SELECT COUNT(*) AS n FROM s WHERE EXISTS (SELECT 1 FROM t WHERE t.k = s.k) EMIT CHANGES", name="counted")
        await client.submit(f"SELECT k FROM s {W} WHERE v = (SELECT MAX(v) FROM s {W})", name="best")
        known, counted = await client.subscribe("known"), await client.subscribe("counted")
        best = await client.subscribe("best")
        await client.publish("s", [{"ts": 1, "k": "a", "v": 1}])
        await client.publish("t", [{"k": "a", "most": 5}, {"k": "b", "most": 1}])
        await client.publish("s", [{"ts": 2, "k": "a", "v": 1}, {"ts": 3, "k": "b", "v": 2}])
        assert await rows_of(known, 1) == [{"k": "a", "v": 1, "total": 6}]
        assert (await rows_of(counted, 1))[0]["op"] == "+"
        await client.publish("t", [{"k": "a", "most": 0, "op": "-"}])
        await client.publish("s", [{"ts": 4, "k": "a", "v": 1}, {"ts": 5, "k": "b", "v": 1}, {"ts": 10, "k": "z", "v": 7}])
        assert await rows_of(known, 1) == [{"k": "b", "v": 1, "total": 1}]
        assert await rows_of(best, 1) == [{"k": "b"}]
        found = await client.query_once("SELECT k FROM t WHERE NOT EXISTS (SELECT 1 FROM known WHERE known.k = t.k AND v > 1)")
        assert found.to_pylist() == [{"k": "b"}]

    run(test)


def test_a_restart_goes_on_with_the_table_and_the_open_windows(tmp_path: Path) -> None:
    async def first() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            await client.execute(f"{STREAM} DURABILITY journal")
            await client.execute(f"{TABLE} DURABILITY journal")
            await client.execute(f"CREATE QUERY known AS {KNOWN}")
            await client.execute(f"CREATE QUERY best AS SELECT k FROM s {W} WHERE v = (SELECT MAX(v) FROM s {W})")
            await client.publish("t", [{"k": "a", "most": 5}])
            await client.publish("s", [{"ts": 1, "k": "a", "v": 5}, {"ts": 2, "k": "b", "v": 4}])

    async def again() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            known, best = await client.subscribe("known"), await client.subscribe("best")
            await client.publish("s", [{"ts": 10, "k": "a", "v": 2}])
            assert (await rows_of(known, 1))[-1] == {"k": "a", "v": 2, "total": 5}
            assert await rows_of(best, 1) == [{"k": "a"}]

    asyncio.run(first())
    asyncio.run(again())


REFUSED = [
    ("SELECT k FROM s WHERE v > (SELECT AVG(v) FROM r EMIT FINAL)", "EMIT belongs to the outermost"),
    ("SELECT k FROM s WHERE k IN (SELECT k FROM r)", "reads one table, or the window.*put the values into a table"),
    (f"SELECT k FROM s {W} WHERE k IN (SELECT k FROM r [RANGE 5 SECONDS SLIDE 5 SECONDS])", "reads one table, or the window"),
    (f"SELECT COUNT(*) AS n FROM s {W} WHERE v > (SELECT AVG(v) FROM s {W})", "an aggregate beside a subquery.*derived table"),
    ("SELECT k FROM s WHERE k IN (SELECT t.k FROM t, u WHERE t.k = u.k)", "reads one table"),
    ("SELECT k FROM s WHERE k IN (SELECT k, most FROM t)", "gives one column, not 2"),
    ("SELECT k FROM s WHERE v IN (SELECT k FROM t)", "BIGINT = TEXT is not defined"),
    ("SELECT k FROM s WHERE v > ALL (SELECT most FROM t)", "ALL \\(SELECT.*is not supported.*MAX"),
    ("SELECT k FROM s WHERE v > (SELECT MAX(most) FROM t WHERE t.most > s.v)", "by equalities alone"),
    ("SELECT k FROM s WHERE v > (SELECT most FROM t WHERE t.k = s.k LIMIT 1)", "LIMIT in a subquery.*MIN, MAX"),
    ("SELECT k FROM s WHERE EXISTS (SELECT 1 FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = s.k))", "further out"),
    ("SELECT SUM(CASE WHEN k IN (SELECT k FROM t) THEN 1 END) AS n FROM s", "a subquery cannot stand here.*derived table"),
    ("SELECT k, COUNT(*) AS n FROM s GROUP BY k HAVING COUNT(*) > (SELECT MAX(most) FROM t)", "over a change log"),
    ("SELECT k, LAG(v) OVER (ORDER BY ts) AS p, (SELECT MAX(most) FROM t) AS m FROM s", "OVER.*beside a subquery.*derived table"),
    ("SELECT k FROM s WHERE k IN (SELECT no FROM t)", "there is no column no"),
]


@pytest.mark.parametrize(("text", "words"), REFUSED)
def test_what_is_refused_names_the_way_round(text: str, words: str) -> None:
    catalog = catalog_of([STREAM, STREAM.replace("STREAM s", "STREAM r"), TABLE, TABLE.replace("TABLE t", "TABLE u")])
    with pytest.raises(EngineError) as refusal:
        plan_select(text, catalog)
    assert re.search(words, str(refusal.value)), str(refusal.value)
