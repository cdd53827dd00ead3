"""Nested values and JSON on every way through a live server (K21): in by every format, out to every reader, over a restart."""

from __future__ import annotations

import asyncio
import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from millstream.client import rows_of as client_rows
from millstream.client.errors import MillstreamError

from tests.support.live_server import Harness, rows_of, run, running

STREAM = (
    "CREATE STREAM s (ts BIGINT, r STRUCT(id INT, at TIMESTAMP, tags TEXT[]), m MAP(TEXT, DOUBLE), j JSON) TIMESTAMP BY ts UNIT us"
    " ON ERROR INTO broken DURABILITY journal"
)
AT = datetime.datetime(2026, 3, 8, 12, 30, tzinfo=datetime.UTC)
ROW = {"ts": 1, "r": {"id": 7, "at": AT, "tags": ["a", None]}, "m": {"y": 2, "x": 1.5}, "j": {"k": [1, 2.5, None], "t": AT}}
SHOWN = {
    "ts": 1,
    "r": {"id": 7, "at": AT, "tags": ["a", None]},
    "m": {"x": 1.5, "y": 2.0},
    "j": json.dumps({"k": [1, 2.5, None], "t": AT.isoformat()}),
}


async def batches_of(subscription: Any, count: int) -> list[Any]:
    """Take batches until they have so many rows."""
    found: list[Any] = []
    async for batch in subscription:
        found.append(batch)
        if sum(map(len, found)) >= count:
            break
    return found


def test_rows_of_python_and_arrow_come_out_as_they_went_in(tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        await client.submit("SELECT * FROM s", name="q")
        arrow, rows = await client.subscribe("q"), await (await harness.client()).subscribe("q", format="msgpack")
        await client.publish("s", [ROW])
        batch = pa.record_batch(
            {
                "ts": pa.array([2], pa.int64()),
                "r": pa.array([{"tags": ["b"], "id": 8}], pa.struct([("tags", pa.large_list(pa.string())), ("id", pa.int64())])),
                "m": pa.array([[("b", 2.0), ("a", None)]], pa.map_(pa.string(), pa.float64())),
                "j": pa.array(['{"a":  1.50}']),
            }
        )
        await client.publish("s", pa.Table.from_batches([batch]))
        second = {"ts": 2, "r": {"id": 8, "at": None, "tags": ["b"]}, "m": {"a": None, "b": 2.0}, "j": '{"a": 1.5}'}
        assert [row for batch in await batches_of(arrow, 2) for row in client_rows(batch)] == [SHOWN, second]
        instant = (AT - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(microseconds=1)
        assert [row for batch in await batches_of(rows, 2) for row in batch] == [
            SHOWN | {"r": {"id": 7, "at": instant, "tags": ["a", None]}},
            second,
        ]
        held = await client.query_once("SELECT r.tags[1] AS tag, m['x'] AS x, j -> 'k' ->> 1 AS k, r FROM s")
        assert held.to_pylist()[0] == {"tag": "a", "x": 1.5, "k": "2.5", "r": SHOWN["r"]}

    run(scenario, data_dir=str(tmp_path))


def test_a_wrong_shape_is_one_refused_row_with_its_path() -> None:
    async def scenario(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(
            "CREATE STREAM s (ts BIGINT, r STRUCT(id INT, tags TEXT[]), m MAP(TEXT, DOUBLE), l STRUCT(x INT)[]) TIMESTAMP BY ts UNIT us"
        )
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"r": {"id": "x"}}, "column r.id: text 'x' is not INT"),
            ({"r": {"id": 1, "tags": ["a", 5]}}, "column r.tags[2]: 5 is not TEXT"),
            ({"r": [1]}, "column r: a list is not STRUCT(id INT, tags TEXT[])"),
            ({"r": {"idd": 1}}, "column r: there is no part idd"),
            ({"m": {"a": True}}, "column m['a']: True is not DOUBLE"),
            ({"m": 5}, "column m: 5 is not MAP(TEXT, DOUBLE)"),
            ({"l": [{"x": 1}, {"x": 2**40}]}, f"column l[2].x: {2**40} is out of the range of INT"),
        ]
        receipt = await client.publish("s", [{"ts": i, **row} for i, (row, _) in enumerate(wrong)] + [{"ts": 99, "r": {"ID": 1}}])
        assert receipt.accepted == 1
        assert [(r.index, r.reason) for r in receipt.rejected] == [(i, reason) for i, (_, reason) in enumerate(wrong)]
        deep: Any = 1
        for _ in range(70):
            deep = [deep]
        with pytest.raises(MillstreamError, match="nested deeper than 64 levels"):
            await client.publish("s", [{"ts": 1, "r": deep}])

    run(scenario)


def test_tables_derived_streams_and_changes_carry_nested_values(tmp_path: Path) -> None:
    async def first() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            await client.execute(STREAM)
            await client.execute("CREATE TABLE t (k TEXT, v STRUCT(n INT)[], PRIMARY KEY (k)) DURABILITY journal")
            await client.execute("""INSERT INTO t VALUES ('a', ARRAY[{'n': 1}, {'n': 2}]), ('b', '[{"n": 3}]')""")
            await client.execute("CREATE STREAM tagged AS SELECT ts, r.id AS id, u.tag AS tag FROM s CROSS JOIN UNNEST(s.r.tags) AS u(tag)")
            await client.execute("CREATE QUERY joined AS SELECT id, t.v[1].n AS n, t.v AS v FROM tagged JOIN t ON tagged.tag = t.k")
            await client.execute("CREATE QUERY counted AS SELECT j, COUNT(*) AS n FROM s GROUP BY j EMIT CHANGES")
            await client.publish("s", [ROW])
            assert (await client.query_once("SELECT * FROM joined")).to_pylist() == [{"id": 7, "n": 1, "v": [{"n": 1}, {"n": 2}]}]

    async def again() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            counted, joined = await client.subscribe("counted"), await client.subscribe("joined")
            await client.publish("s", [ROW | {"ts": 2, "r": {"id": 9, "tags": ["b", "a"]}}])
            assert [(r["n"], r["op"]) for r in await rows_of(counted, 2)] == [(1, "-"), (2, "+")]
            assert await rows_of(joined, 2) == [{"id": 9, "n": 3, "v": [{"n": 3}]}, {"id": 9, "n": 1, "v": [{"n": 1}, {"n": 2}]}]
            assert len((await client.query_once("SELECT x.n AS n FROM t CROSS JOIN UNNEST(t.v) AS u(x)")).to_pylist()) == 3

    asyncio.run(first())
    asyncio.run(again())
