"""ALTER STREAM … ADD COLUMN under running queries: they answer as if nothing had been, those that come later see the column."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from millstream.client.errors import MillstreamError
from millstream.engine.data.schema import Field, Schema, StreamDefinition
from millstream.engine.data.types import BIGINT, TEXT
from millstream.engine.ingest.coerce import coercer_for
from millstream.server.run.journal_command import command

from tests.integration.test_archive import SETTINGS, settle
from tests.integration.test_history import caught_up
from tests.support.live_server import Harness, running

STREAM = "CREATE STREAM s (ts BIGINT, k TEXT, v BIGINT) TIMESTAMP BY ts UNIT s DELAY 2 SECONDS {}"
OTHER = "CREATE STREAM t (ts BIGINT, k TEXT, w BIGINT) TIMESTAMP BY ts UNIT s {}"
QUERIES = {
    "whole": "SELECT * FROM s",
    "windows": "SELECT window_end, k, COUNT(*) AS n, SUM(v) AS total FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k",
    "sessions": "SELECT k, COUNT(*) AS n, LAST(v) AS last FROM s [SESSION 3 SECONDS] GROUP BY k",
    "joined": "SELECT s.*, t.* FROM s JOIN t ON s.k = t.k WITHIN 4 SECONDS",
    "itself": "SELECT x.v AS a, y.* FROM s x JOIN s y ON x.k = y.k AND x.v < y.v WITHIN 2 SECONDS",
    "shed": "SELECT k, v FROM s WITH (class = 'bronze')",
    "derived": "SELECT * FROM d WHERE v % 2 = 1",
}
KEYS = ("a", "b", None)


def rows(start: int, stop: int, *columns: str) -> list[dict[str, Any]]:
    return [{"ts": n // 2, "k": KEYS[n % 3], "v": n, **{c: f"{c}{n}" for c in columns}} for n in range(start, stop)]


def t_rows(start: int, stop: int) -> list[dict[str, Any]]:
    return [{"ts": n // 2, "k": KEYS[n % 2], "w": n} for n in range(start, stop)]


async def began(harness: Harness, clauses: str, names: tuple[str, ...] = tuple(QUERIES)) -> Any:
    client = await harness.client()
    await client.execute(STREAM.format(clauses))
    await client.execute(OTHER.format(clauses))
    await client.execute("CREATE STREAM d AS SELECT * FROM s")
    await client.execute("CREATE STREAM copies (ts BIGINT, k TEXT, v BIGINT) TIMESTAMP BY ts UNIT s")
    await client.execute("CREATE CLASS bronze PRIORITY 1 SHED")
    for name in names:
        await client.execute(f"CREATE QUERY {name} AS {QUERIES[name]}")
    await client.execute("INSERT INTO copies SELECT * FROM s")
    return client


async def publish(client: Any, start: int, stop: int, *columns: str) -> None:
    await client.publish("s", rows(start, stop, *columns))
    await client.publish("t", t_rows(start, stop))


async def told(client: Any, names: tuple[str, ...]) -> dict[str, list[dict[str, Any]]]:
    for stream in ("s", "t"):
        await client.finish(stream)
    subscriptions = {name: await client.subscribe(name, from_start=True) for name in names}
    return {name: (await asyncio.wait_for(one.to_arrow(), 30)).to_pylist() for name, one in subscriptions.items()}


async def plain(step: int) -> dict[str, list[dict[str, Any]]]:
    """Return the answers of the queries over the same rows, without the columns that are added."""
    async with running() as harness:
        client = await began(harness, "")
        for start in range(0, 60, step):
            await publish(client, start, start + step)
        return await told(client, tuple(QUERIES))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_running_queries_go_on_and_later_ones_see_the_columns(workers: int) -> None:
    async def altered() -> dict[str, list[dict[str, Any]]]:
        async with running(workers=workers) as harness:
            client = await began(harness, "")
            await publish(client, 0, 20)
            await client.execute("ALTER STREAM s ADD COLUMN c TEXT")
            await client.execute("CREATE QUERY with_c AS SELECT * FROM s")
            await publish(client, 20, 40)  # rows of the old shape
            await client.execute("ALTER STREAM s ADD COLUMN IF NOT EXISTS c TEXT, ADD d TEXT")
            await client.execute("CREATE QUERY with_d AS SELECT v, c, d FROM s")
            await client.execute("CREATE CLASS gold PRIORITY 2")
            await client.execute("ALTER QUERY joined SET (class = 'gold')")  # by another plan over the former columns
            await client.execute("CREATE QUERY shed_d AS SELECT d FROM s WITH (class = 'bronze')")
            await publish(client, 40, 60, "c", "d")
            answers = await told(client, (*QUERIES, "with_c", "with_d", "shed_d"))
            assert harness.server.application.host.unbalanced() == []
            return answers

    found = asyncio.run(altered())
    assert found.pop("with_c") == [{**row, "c": None} for row in rows(20, 40)] + [
        {name: row[name] for name in ("ts", "k", "v", "c")} for row in rows(40, 60, "c", "d")
    ]
    assert found.pop("shed_d") == [{"d": f"d{n}"} for n in range(40, 60)]
    assert found.pop("with_d") == [{"v": n, "c": f"c{n}", "d": f"d{n}"} for n in range(40, 60)]
    assert found == asyncio.run(plain(20))


@pytest.mark.slow
def test_rows_of_before_and_after_survive_restarts_checkpoints_and_the_archive(tmp_path: Path) -> None:
    names = tuple(name for name in QUERIES if name != "shed")  # what may be shed begins anew after a restart
    settings = {"data_dir": str(tmp_path), **SETTINGS}

    async def lives() -> dict[str, list[dict[str, Any]]]:
        async with running(**settings) as harness:
            client = await began(harness, "DURABILITY journal ARCHIVE", names)
            await publish(client, 0, 10)
            await client.execute("ALTER STREAM s ADD COLUMN c TEXT")
            await client.execute("CREATE QUERY with_c AS SELECT * FROM s")
            await publish(client, 10, 20)
        async with running(**settings) as harness:  # from the records of both shapes
            client = await harness.client()
            await publish(client, 20, 30, "c")
            await settle(harness)
            await client.execute("ALTER STREAM s ADD COLUMN d TEXT")
            await publish(client, 30, 40, "c", "d")
            application = harness.server.application
            assert application.journaling is not None
            assert await application.call(application.journaling.checkpoint)
            await publish(client, 40, 50)
        async with running(**settings) as harness:  # from the checkpoint and what came after it
            client = await harness.client()
            await settle(harness)
            held = await client.execute("FETCH SELECT v, c, d FROM s HISTORY ORDER BY v")
            assert [tuple(row.values()) for row in held.rows] == [
                (n, f"c{n}" if 20 <= n < 40 else None, f"d{n}" if 30 <= n < 40 else None) for n in range(50)
            ]
            await client.execute("CREATE QUERY late WITH (history = 'archive') AS SELECT v, d FROM s WHERE d IS NOT NULL")
            await caught_up(harness)
            await publish(client, 50, 60, "c", "d")
            answers = await told(client, (*names, "with_c", "late"))
            assert answers.pop("late") == [{"v": n, "d": f"d{n}"} for n in (*range(30, 40), *range(50, 60))]
            return answers

    found = asyncio.run(lives())
    with_c = found.pop("with_c")
    assert [(row["v"], row["c"]) for row in with_c] == [(n, f"c{n}" if 20 <= n < 40 or n >= 50 else None) for n in range(10, 60)]
    wanted = asyncio.run(plain(10))
    assert found == {name: wanted[name] for name in names}


@pytest.mark.slow
@pytest.mark.parametrize("with_catalogue", [True, False])
def test_a_journal_says_by_itself_which_rows_have_which_columns(tmp_path: Path, *, with_catalogue: bool) -> None:
    async def fill() -> None:
        async with running(data_dir=str(tmp_path / "data")) as harness:
            client = await harness.client()
            await client.execute(STREAM.format("DURABILITY journal"))
            await client.publish("s", rows(0, 2))
            await client.execute("ALTER STREAM s ADD COLUMN c TEXT")
            await client.publish("s", rows(2, 4, "c"))

    asyncio.run(fill())
    if not with_catalogue:
        for path in (tmp_path / "data").glob("catalogue.sqlite*"):
            path.unlink()
    told = CliRunner().invoke(command, ["show", str(tmp_path / "data"), "s", "--format", "json"])
    wanted = [{**row, "c": row.get("c")} for row in (*rows(0, 2), *rows(2, 4, "c"))]
    assert [json.loads(line) for line in told.stdout.splitlines()] == wanted
    CliRunner().invoke(command, ["salvage", str(tmp_path / "data"), str(tmp_path / "new")])

    async def again() -> None:
        async with running(data_dir=str(tmp_path / "new")) as harness:
            client = await harness.client()
            found = (await client.execute("FETCH SELECT * FROM s")).rows
            assert [dict(row) for row in found] == wanted

    asyncio.run(again())


def test_publishers_of_both_shapes_share_a_stream() -> None:
    async def test() -> None:
        async with running() as harness:
            client, other = await harness.client(), await harness.client()
            await client.execute("CREATE STREAM s (ts BIGINT, k TEXT) TIMESTAMP BY ts UNIT s")
            old = await other.publisher("s")
            await old.send(pa.record_batch({"ts": [1], "k": ["a"]}))
            await old.flush()
            await client.execute("ALTER STREAM s ADD COLUMN c BIGINT")
            await client.execute("CREATE QUERY q AS SELECT * FROM s")
            await old.send(pa.record_batch({"ts": [2], "k": ["b"]}))
            await client.publish("s", pa.record_batch({"ts": [3], "k": ["c"], "c": [7]}))
            await old.send(pa.record_batch({"ts": [4], "k": ["d"]}))
            await client.publish("s", [{"ts": 5, "k": "e"}, {"ts": 6, "k": "f", "c": 8}])
            await old.flush()
            subscription = await client.subscribe("q", from_start=True)
            await client.finish("s")
            found = (await subscription.to_arrow()).to_pylist()
            told = sorted((row["ts"], row["k"], row["c"]) for row in found)
            assert told == [(2, "b", None), (3, "c", 7), (4, "d", None), (5, "e", None), (6, "f", 8)]

    asyncio.run(test())


def test_a_list_of_the_old_length_is_a_row_without_the_new_columns() -> None:
    fields = (Field("k", TEXT), Field("v", BIGINT), Field("c", TEXT), Field("d", TEXT))
    coercer = coercer_for(StreamDefinition("s", Schema(fields), added=2), False)
    taken = coercer.rows([["a", 1], ["b", 2, "x"], ["c", 3, "y", "z"], ["d"], ["e", 5, "x", "y", "z"]])
    assert [column.values.to_pylist() for column in taken.columns[2:]] == [[None, "x", "y"], [None, None, "z"]]
    assert [(one.index, one.reason) for one in taken.rejected] == [(3, "1 values for 4 columns"), (4, "5 values for 4 columns")]


REFUSED = [
    ("ALTER STREAM s ADD COLUMN k INT", "has a column k already"),
    ("ALTER STREAM d ADD COLUMN c INT", "is a derived stream"),
    ("ALTER STREAM names ADD COLUMN c INT", "is a table"),
    ("ALTER STREAM nobody ADD COLUMN c INT", "there is no stream or table nobody"),
    ("ALTER STREAM s ADD COLUMN c INT NOT NULL", "cannot be NOT NULL"),
]


def test_what_cannot_be_added_is_refused_by_name() -> None:
    async def test() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.execute("CREATE STREAM s (ts BIGINT, k TEXT) TIMESTAMP BY ts UNIT s")
            await client.execute("CREATE STREAM d AS SELECT * FROM s")
            await client.execute("CREATE TABLE names (k TEXT, PRIMARY KEY (k))")
            for statement, message in REFUSED:
                with pytest.raises(MillstreamError, match=message):
                    await client.execute(statement)

    asyncio.run(test())
