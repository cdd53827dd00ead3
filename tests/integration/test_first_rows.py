"""The first rows of each group without a window (K24) on a live server: changes, what stands, derived streams, a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.support.live_server import Harness, rows_of, run, running

TOP = "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS r FROM s) WHERE r <= 2"
STREAM = "CREATE STREAM s (ts BIGINT, k TEXT, v BIGINT) TIMESTAMP BY ts UNIT s"


def rows(*values: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"ts": ts, "k": k, "v": v} for ts, (k, v) in enumerate(values)]


def standing(table: Any) -> list[tuple[str, int]]:
    return sorted((row["k"], row["v"]) for row in table.to_pylist())


def test_changes_come_as_rows_push_each_other_out_and_fetch_answers_with_what_stands() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        await client.submit(TOP, name="top")
        subscription = await client.subscribe("top")
        await client.publish("s", rows(("a", 1), ("a", 2)))
        assert await rows_of(subscription, 2) == [{"k": "a", "v": 2, "op": "+"}, {"k": "a", "v": 1, "op": "+"}]
        await client.publish("s", rows(("a", 3), ("a", 0)))
        assert await rows_of(subscription, 2) == [{"k": "a", "v": 1, "op": "-"}, {"k": "a", "v": 3, "op": "+"}]
        expected = [("a", 2), ("a", 3)]
        assert standing(await client.query_once("SELECT * FROM top")) == expected
        assert standing(await client.query("top").fetch()) == expected
        assert standing(await client.query_once(TOP)) == expected  # as a running query is exactly this SELECT

    run(test)


def test_a_derived_stream_of_first_rows_is_aggregated_and_shared() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        await client.execute(f"CREATE STREAM best AS {TOP}")
        for name in ("one", "two"):
            await client.submit("SELECT k, SUM(v) AS total FROM best GROUP BY k", name=name)
        await client.submit("SELECT k, v FROM best WHERE v > 2 EMIT FINAL", name="high")
        high = await client.subscribe("high")
        await client.publish("s", rows(("a", 1), ("b", 9), ("a", 2), ("a", 5), ("b", 1)))
        for name in ("one", "two"):
            found = await client.query_once(f"SELECT * FROM {name}")
            assert sorted((row["k"], row["total"]) for row in found.to_pylist()) == [("a", 7), ("b", 10)]
        await client.finish("s")
        assert (await high.to_arrow()).to_pylist() == [{"k": "a", "v": 5}, {"k": "b", "v": 9}]

    run(test)


def test_a_restart_goes_on_from_what_was_kept(tmp_path: Path) -> None:
    async def first() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            await client.execute(f"{STREAM} DURABILITY journal")
            await client.execute(f"CREATE QUERY top AS {TOP}")
            await client.publish("s", rows(("a", 1), ("a", 2), ("b", 4)))
            assert standing(await client.query_once("SELECT * FROM top")) == [("a", 1), ("a", 2), ("b", 4)]

    async def again() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            subscription = await client.subscribe("top")
            await client.publish("s", rows(("a", 3), ("b", 5)))
            found = await rows_of(subscription, 3)
            assert sorted((r["k"], r["v"], r["op"]) for r in found) == [("a", 1, "-"), ("a", 3, "+"), ("b", 5, "+")]
            once = "SELECT DISTINCT ON (k) k, v FROM s ORDER BY k, v DESC"  # from the rows that the journal keeps
            assert standing(await client.query_once(once)) == [("a", 3), ("b", 5)]

    asyncio.run(first())
    asyncio.run(again())
