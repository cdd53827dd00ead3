"""BYTES and TIME on every way through a live server (K22): as rows and Arrow in, as both out, as keys in state over a restart."""

from __future__ import annotations

import asyncio
import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.live_server import rows_of, running

STREAM = "CREATE STREAM s (ts BIGINT, tag BYTES, at TIME) TIMESTAMP BY ts UNIT s DURABILITY journal"
NOON = datetime.time(12, 0, 0, 250_000)
ROWS = [{"ts": 1, "tag": b"\0\xff", "at": NOON}, {"ts": 2, "tag": "\\x61", "at": "23:59"}, {"ts": 3, "tag": b"\0\xff", "at": None}]


def test_they_come_out_as_they_went_in_and_are_keys_over_a_restart(tmp_path: Path) -> None:
    async def first() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            await client.execute(STREAM)
            await client.execute("CREATE TABLE t (tag BYTES, opens TIME, PRIMARY KEY (tag)) DURABILITY journal")
            await client.execute("INSERT INTO t VALUES (x'00ff', TIME '08:00'), ('\\x61', '09:30')")
            await client.execute("CREATE QUERY latest AS SELECT tag, COUNT(*) AS n, MAX(at) AS last FROM s GROUP BY tag EMIT CHANGES")
            await client.submit("SELECT tag, at FROM s", name="q")
            arrow, rows = await client.subscribe("q"), await (await harness.client()).subscribe("q", format="msgpack")
            await client.publish("s", ROWS)
            await client.publish(
                "s", pa.table({"ts": pa.array([4]), "tag": pa.array([b""], pa.large_binary()), "at": pa.array([NOON], pa.time64("ns"))})
            )
            given = [(b"\0\xff", NOON), (b"a", datetime.time(23, 59)), (b"\0\xff", None), (b"", NOON)]
            assert [(row["tag"], row["at"]) for row in await rows_of(arrow, 4)] == given
            plain: list[Any] = []
            async for batch in rows:
                plain += batch
                if len(plain) >= 4:
                    break
            noon = 43_200_250_000
            assert [(row["tag"], row["at"]) for row in plain] == [(b"\0\xff", noon), (b"a", 86_340_000_000), (b"\0\xff", None), (b"", noon)]
            held = await client.query_once("SELECT ENCODE(s.tag, 'hex') AS h, t.opens FROM s JOIN t ON s.tag = t.tag ORDER BY ts")
            assert [tuple(row.values()) for row in held.to_pylist()] == [
                ("00ff", datetime.time(8)),
                ("61", datetime.time(9, 30)),
                ("00ff", datetime.time(8)),
            ]

    async def again() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            latest = await client.subscribe("latest")
            await client.publish("s", [{"ts": 5, "tag": b"\0\xff", "at": "12:30"}])
            assert [tuple(row.values()) for row in await rows_of(latest, 2)] == [
                (b"\0\xff", 2, NOON, "-"),
                (b"\0\xff", 3, datetime.time(12, 30), "+"),
            ]

    asyncio.run(first())
    asyncio.run(again())
