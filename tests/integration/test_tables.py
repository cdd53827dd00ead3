"""Tables on the live server: published, changed, joined, shown, dropped, back after a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from millstream.client.errors import MillstreamError

from tests.support.live_server import Harness, rows_of, run, running

TABLE = "CREATE TABLE names (k BIGINT, name TEXT, PRIMARY KEY (k))"
STREAM = "CREATE STREAM s (ts BIGINT, k BIGINT) TIMESTAMP BY ts UNIT us"
JOIN = "SELECT s.k AS k, n.name AS name FROM s LEFT JOIN names n ON s.k = n.k"


def test_a_join_sees_the_version_that_stood_when_its_row_came() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(TABLE)
        await client.execute(STREAM)
        await client.publish("names", [{"k": 1, "name": "one"}])
        await client.submit(JOIN, name="joined")
        subscription = await client.subscribe("joined")
        await client.publish("s", [{"ts": 1, "k": 1}])
        ack = await client.publish("names", [{"k": 1, "name": "uno", "op": "+"}, {"k": 2, "name": "two", "op": "?"}, {"name": "none"}])
        assert (ack.accepted, [r.index for r in ack.rejected]) == (1, [1, 2])
        await client.publish("s", [{"ts": 2, "k": 1}])
        await client.publish("names", [{"k": 1, "op": "-"}])
        await client.publish("s", [{"ts": 3, "k": 1}])
        assert [r["name"] for r in await rows_of(subscription, 3)] == ["one", "uno", None]
        assert (await client.execute("SHOW TABLES")).rows[0]["name"] == "names"
        with pytest.raises(MillstreamError) as caught:
            await client.execute("DROP TABLE names")
        assert "joined" in caught.value.message
        dropped = await client.execute("DROP TABLE names CASCADE")
        assert dropped.notices == ["query joined dropped", "table names dropped"]
        await client.execute(TABLE)

    run(test)


def test_a_table_made_from_a_file_is_loaded_from_it_again_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "names.csv"
    file.write_text("k,name\n1,one\n", "utf-8")

    async def first() -> None:
        async with running(data_dir=str(tmp_path / "data")) as harness:
            client = await harness.client()
            await client.execute(f"{TABLE} FROM '{file}'")
            await client.execute(STREAM)
            await client.submit(JOIN, name="joined")

    async def again() -> None:
        async with running(data_dir=str(tmp_path / "data")) as harness:
            client = await harness.client()
            subscription = await client.subscribe("joined")
            await client.publish("s", [{"ts": 1, "k": 1}])
            assert await rows_of(subscription, 1) == [{"k": 1, "name": "one"}]

    asyncio.run(first())
    asyncio.run(again())
