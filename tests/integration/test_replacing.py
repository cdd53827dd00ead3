"""CREATE OR REPLACE, ALTER QUERY … SET and COMMENT ON: what changes, what goes on, what outlives a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from millstream.client.errors import MillstreamError

from tests.support.live_server import Harness, run, running

STREAM = "CREATE STREAM s (ts BIGINT, k TEXT, v BIGINT) TIMESTAMP BY ts UNIT s"
WINDOWS = "SELECT window_end, k, COUNT(*) AS n, SUM(v) AS total FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k"


def rows(start: int, stop: int) -> list[dict[str, Any]]:
    return [{"ts": n, "k": "ab"[n % 2], "v": n} for n in range(start, stop)]


async def of(client: Any, what: str) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in (await client.execute(f"SHOW {what}")).rows}


async def said(client: Any, statement: str) -> str:
    return str((await client.execute(statement)).notices[0])


async def told(client: Any, name: str, stream: str = "s") -> list[dict[str, Any]]:
    subscription = await client.subscribe(name, from_start=True)
    await client.finish(stream)
    return (await asyncio.wait_for(subscription.to_arrow(), 30)).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.slow
def test_a_query_that_is_replaced_begins_anew_and_an_equal_one_goes_on(tmp_path: Path) -> None:
    async def first() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            await client.execute(STREAM + " DURABILITY journal")
            await client.execute("CREATE QUERY q AS SELECT v FROM s")
            await client.execute("COMMENT ON QUERY q IS 'kept'")
            await client.publish("s", rows(0, 3))
            subscription = await client.subscribe("q", from_start=True)
            assert await said(client, "CREATE OR REPLACE QUERY q AS SELECT v FROM s") == "query q is as it was"
            assert "begins anew" in await said(client, "CREATE OR REPLACE QUERY q WITH (weight = 2) AS SELECT v + 1 AS w FROM s")
            assert (await subscription.to_arrow()).to_pylist() == [{"v": n} for n in range(3)]
            assert subscription.end is not None
            assert subscription.end.message == "it was replaced"
            with pytest.raises(MillstreamError, match="there is no column x"):
                await client.execute("CREATE OR REPLACE QUERY q AS SELECT x FROM s")
            await client.publish("s", rows(3, 5))
            with pytest.raises(MillstreamError, match="taken by a stream"):
                await client.execute("CREATE OR REPLACE QUERY s AS SELECT v FROM s")

    async def again() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            shown = (await of(client, "QUERIES"))["q"]
            assert (shown["text"], shown["comment"], shown["state"]) == ("SELECT v + 1 AS w FROM s", "kept", "running")
            assert await told(client, "q") == [{"w": 4}, {"w": 5}]

    asyncio.run(first())
    asyncio.run(again())


def test_a_query_that_a_sink_reads_is_not_replaced() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        await client.execute("CREATE QUERY q AS SELECT v FROM s")
        await client.execute("CREATE SINK f FROM q WITH (connector = 'files', path = '/tmp/x.csv')")
        with pytest.raises(MillstreamError, match="query q is read by sink f"):
            await client.execute("CREATE OR REPLACE QUERY q AS SELECT k FROM s")
        assert (
            await said(client, "CREATE OR REPLACE SINK f FROM q WITH (connector = 'files', path = '/tmp/x.csv')") == "sink f is as it was"
        )
        assert await said(client, "CREATE OR REPLACE SINK f FROM q WITH (connector = 'files', path = '/tmp/y.csv')") == "sink f replaced"
        assert "y.csv" in (await of(client, "SINKS"))["f"]["options"]
        await client.execute("DROP SINK f")

    run(test)


def test_a_stream_is_replaced_by_one_with_more_columns_alone() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        await client.execute("CREATE QUERY q AS SELECT * FROM s")
        replacing = STREAM.replace("CREATE", "CREATE OR REPLACE")
        assert await said(client, replacing) == "stream s is as it was"
        assert await said(client, replacing.replace("v BIGINT", "v BIGINT, c INT")) == "column c added to stream s"
        for text, message in (
            (replacing, "its columns would change"),
            (replacing.replace("v BIGINT", "v BIGINT, c INT") + " DELAY 1 SECOND", "TIMESTAMP BY, DELAY, SKEW or IDLE would change"),
            (replacing.replace("v BIGINT", "v BIGINT, c INT, d INT NOT NULL"), "cannot be NOT NULL"),
            ("CREATE OR REPLACE TABLE s (k TEXT, PRIMARY KEY (k))", "is a stream"),
        ):
            with pytest.raises(MillstreamError, match=message):
                await client.execute(text)
        await client.publish("s", rows(0, 2))
        assert await told(client, "q") == rows(0, 2)

    run(test)


def test_a_derived_stream_and_a_table_are_replaced_while_nothing_reads_them(tmp_path: Path) -> None:
    async def first() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            await client.execute(STREAM + " DURABILITY journal")
            await client.execute("CREATE STREAM d AS SELECT ts, v FROM s")
            await client.execute("CREATE TABLE t (k TEXT, x INT, PRIMARY KEY (k)) DURABILITY journal")
            await client.publish("t", [{"k": "a", "x": 1}])
            assert await said(client, "CREATE OR REPLACE STREAM d AS SELECT ts, v FROM s") == "stream d is as it was"
            assert await said(client, "CREATE OR REPLACE STREAM d AS SELECT ts, v * 2 AS w FROM s") == "stream d replaced"
            with pytest.raises(MillstreamError, match="would read itself"):
                await client.execute("CREATE OR REPLACE STREAM d AS SELECT ts, w FROM d")
            assert (
                await said(client, "CREATE OR REPLACE TABLE t (k TEXT, name TEXT, PRIMARY KEY (k)) DURABILITY journal")
                == "table t replaced"
            )
            with pytest.raises(MillstreamError, match="table t was dropped; open a new one"):
                await client.publish("t", [{"k": "a", "x": 2}])
            await client.execute("INSERT INTO t VALUES ('a', 'one')")
            await client.execute("CREATE QUERY q AS SELECT d.w, t.name FROM d LEFT JOIN t ON CASE WHEN d.w > 0 THEN 'a' END = t.k")
            for text in ("CREATE OR REPLACE STREAM d AS SELECT ts FROM s", "CREATE OR REPLACE TABLE t (k TEXT, PRIMARY KEY (k))"):
                with pytest.raises(MillstreamError, match="is read or fed by q"):
                    await client.execute(text)
            await client.publish("s", rows(1, 2))

    async def again() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            await client.publish("s", rows(2, 3))
            assert await told(client, "q") == [{"w": 2, "name": "one"}, {"w": 4, "name": "one"}]

    asyncio.run(first())
    asyncio.run(again())


def test_a_class_changes_under_its_queries_and_keeps_its_place_in_the_catalogue(tmp_path: Path) -> None:
    async def first() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            await client.execute(STREAM)
            await client.execute("CREATE CLASS gold PRIORITY 2")
            await client.execute("CREATE STREAM d AS SELECT ts, v FROM s WITH (class = 'gold')")
            assert await said(client, "CREATE OR REPLACE CLASS gold PRIORITY 2") == "class gold is as it was"
            assert await said(client, "CREATE OR REPLACE CLASS gold PRIORITY 5 TARGET 1 SECOND") == "class gold replaced"
            with pytest.raises(MillstreamError, match="class gold is used by d"):
                await client.execute("CREATE OR REPLACE CLASS gold PRIORITY 5 SHED")
            with pytest.raises(MillstreamError, match="default cannot be replaced"):
                await client.execute("CREATE OR REPLACE CLASS default PRIORITY 5")
            scheduler = harness.server.application.runtime.scheduler
            found = scheduler.ask(lambda core: [node.priority for node in core.network.classes.values() if node.name == "gold"])
            assert found == [5.0]

    async def again() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            assert (await of(client, "CLASSES"))["gold"]["priority"] == 5.0
            assert "d" in await of(client, "STREAMS")

    asyncio.run(first())
    asyncio.run(again())


@pytest.mark.slow
@pytest.mark.process
def test_a_function_is_replaced_while_nothing_calls_it(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("def f(x):\n    return x + 1\n")

    async def test(harness: Harness) -> None:
        client = await harness.client()
        made = f"FUNCTION f (x BIGINT) RETURNS BIGINT FROM '{tmp_path / 'f.py'}'"
        await client.execute(STREAM)
        await client.execute(f"CREATE {made}")
        assert await said(client, f"CREATE OR REPLACE {made}") == "function f is as it was"
        (tmp_path / "f.py").write_text("def f(x):\n    return x + 2\n")
        assert await said(client, f"CREATE OR REPLACE {made}") == "function f replaced"
        await client.execute("CREATE QUERY q AS SELECT f(v) AS w FROM s")
        (tmp_path / "f.py").write_text("def f(x):\n    return x + 3\n")
        with pytest.raises(MillstreamError, match="function f is called by q"):
            await client.execute(f"CREATE OR REPLACE {made}")
        await client.publish("s", rows(0, 1))
        assert await told(client, "q") == [{"w": 2}]

    run(test)


def test_a_query_moves_to_another_class_as_it_runs_and_stays_there(tmp_path: Path) -> None:
    async def first() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            await client.execute(STREAM + " DURABILITY journal")
            await client.execute("CREATE CLASS gold PRIORITY 5")
            await client.execute(f"CREATE QUERY q AS {WINDOWS}")
            await client.execute("CREATE STREAM copies (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT s DURABILITY journal")
            await client.execute("INSERT INTO copies SELECT ts, v FROM s")
            await client.publish("s", rows(0, 15))
            await client.execute("ALTER QUERY q SET (class = 'gold', weight = 3, latency_target = '2 s')")
            await client.execute("ALTER QUERY insert1 SET (class = 'gold')")
            await client.execute("ALTER QUERY q SET (weight = 4)")
            host = harness.server.application.host
            query = host.queries.get("q")
            assert query.id is not None
            node = host.network.queries[query.id].node
            assert (node.class_id, node.weight) == (host.class_nodes["gold"].id, 4)
            for options, message in (
                ("history = 'held'", "of query q cannot change while it runs"),
                ("wieght = 2", "did you mean weight"),
                ("class = 'silver'", "there is no class silver"),
                ("deadline = 'soon'", "option deadline"),
            ):
                with pytest.raises(MillstreamError, match=message):
                    await client.execute(f"ALTER QUERY q SET ({options})")
            await client.publish("s", rows(15, 22))

    async def again() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            shown = await of(client, "QUERIES")
            assert shown["q"]["class"] == shown["insert1"]["class"] == "gold"
            await client.publish("s", rows(22, 25))
            found = await told(client, "q")
            sums = [(end, k) for end in (10, 20, 30) for k in "ab"]
            assert [(row["k"], row["total"]) for row in found] == [
                (k, sum(n for n in range(25) if n // 10 == end // 10 - 1 and "ab"[n % 2] == k)) for end, k in sums
            ]

    asyncio.run(first())
    asyncio.run(again())


KINDS = ["STREAM s", "STREAM d", "TABLE t", "QUERY q", "CLASS gold"]


def test_comments_are_shown_and_outlive_a_restart(tmp_path: Path) -> None:
    plural = {"STREAM": "STREAMS", "TABLE": "TABLES", "QUERY": "QUERIES", "CLASS": "CLASSES"}

    async def first() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            for statement in (
                STREAM,
                "CREATE STREAM d AS SELECT ts, v FROM s",
                "CREATE TABLE t (k TEXT, PRIMARY KEY (k))",
                "CREATE QUERY q AS SELECT v FROM d",
                "CREATE CLASS gold PRIORITY 2",
            ):
                await client.execute(statement)
            for thing in KINDS:
                await client.execute(f"COMMENT ON {thing} IS 'It''s {thing}'")
            await client.execute("COMMENT ON STREAM d IS NULL")
            for text, message in (
                ("COMMENT ON STREAM t IS 'x'", "there is no stream t"),
                ("COMMENT ON QUERY x IS 'x'", "there is no query x"),
                ("COMMENT ON SINK x IS 'x'", "there is no sink x"),
                (f"COMMENT ON STREAM s IS '{'x' * 2001}'", "at most 2000 characters"),
            ):
                with pytest.raises(MillstreamError, match=message):
                    await client.execute(text)

    async def again() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            for thing in KINDS:
                kind, name = thing.split()
                assert (await of(client, plural[kind]))[name]["comment"] == (None if name == "d" else f"It's {thing}")
            await client.execute("DROP QUERY q")
            await client.execute("CREATE QUERY q AS SELECT v FROM d")
            assert (await of(client, "QUERIES"))["q"]["comment"] is None

    asyncio.run(first())
    asyncio.run(again())
