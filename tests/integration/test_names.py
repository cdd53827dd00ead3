"""Names of any kind work with every verb, for every kind of object, or are refused at creation with a reason (C39)."""

from __future__ import annotations

import asyncio

import pytest
from millstream.client import cli
from millstream.client.errors import MillstreamError
from millstream.client.statements import quoted

from tests.support.live_server import Harness, run

NAMES = ["", "a/b", " x ", "a\n", "DROP", 'a"b', "..", "café", "x" * 1001, "-- c", "'q'", "字段"]


async def command(harness: Harness, *arguments: str) -> None:
    code = await asyncio.to_thread(cli.run, [*arguments[:2], "--server", harness.address, *arguments[2:]])
    assert code == 0, arguments


def test_a_name_works_with_every_verb_on_every_surface_or_is_refused_at_creation(capfd: pytest.CaptureFixture[str]) -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute("CREATE STREAM base (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT s")
        worked = 0
        for name in NAMES:
            q = quoted(name)
            try:
                await client.execute(f"CREATE STREAM {q} (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT s")
            except MillstreamError:
                for create in (f"CREATE TABLE {q} (k INT, PRIMARY KEY (k))", f"CREATE QUERY {q} AS SELECT v FROM base"):
                    with pytest.raises(MillstreamError):
                        await client.execute(create)
                with pytest.raises(MillstreamError):
                    await client.execute(f"CREATE CLASS {q} PRIORITY 1")
                continue
            worked += 1
            typed = q if name.isidentifier() else name
            await client.publish(name, [{"ts": 1, "v": 1}])
            await client.execute(f"DESCRIBE STREAM {q}")
            await command(harness, "stream", "show", "--", typed)
            with pytest.raises(MillstreamError, match=r"the name .* is taken by a stream; streams, tables and queries share their names"):
                await client.execute(f"CREATE QUERY {q} AS SELECT v FROM base")
            await command(harness, "stream", "drop", "--", typed)
            await client.execute(f"CREATE QUERY {q} AS SELECT v FROM base")
            for create in (
                f"CREATE STREAM {q} (v INT)",
                f"CREATE TABLE {q} (k INT, PRIMARY KEY (k))",
                f"CREATE STREAM {q} AS SELECT v FROM base",
            ):
                with pytest.raises(MillstreamError, match="is taken by a query; streams, tables and queries share their names"):
                    await client.execute(create)
            for verb in ("PAUSE", "RESUME", "STOP", "START"):
                await client.execute(f"{verb} QUERY {q}")
            for statement in (f"EXPLAIN {q}", f"EXPLAIN ANALYZE {q}", f"FETCH QUERY {q}", f"DESCRIBE QUERY {q}"):
                assert (await client.execute(statement)) is not None
            for verb in ("pause", "resume", "stop", "start"):
                await command(harness, "query", verb, "--", typed)
            await command(harness, "query", "explain", "--", typed)
            assert [r["name"] for r in await client.execute("SHOW QUERIES")] == [name]
            await command(harness, "query", "drop", "--", typed)
            await client.execute(f"CREATE TABLE {q} (k INT, PRIMARY KEY (k))")
            await client.execute(f"INSERT INTO {q} VALUES (1)")
            assert (await client.query_once(f"SELECT k FROM {q}")).to_pylist() == [{"k": 1}]
            assert [(r["name"], r["rows"]) for r in await client.execute("SHOW TABLES")] == [(name, 1)]
            await client.execute(f"DESCRIBE TABLE {q}")
            await client.execute(f"DROP TABLE {q}")
            await client.execute(f"CREATE STREAM {q} AS SELECT v FROM base")
            assert name in [r["stream"] for r in await client.execute("SHOW WATERMARKS")]
            await client.execute(f"DROP STREAM {q}")
            await client.execute(f"CREATE CLASS {q} PRIORITY 2")
            assert (await client.execute(f"DESCRIBE CLASS {q}")).rows[0] == {"property": "priority", "value": "2"}
            await client.execute(f"DROP CLASS {q}")
        assert worked >= 4
        assert [r["name"] for r in await client.execute("SHOW STREAMS")] == ["base"]

    run(test)
