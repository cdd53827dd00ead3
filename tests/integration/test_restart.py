"""What a restart keeps (C37)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from millstream.client.errors import MillstreamError

from tests.support.live_server import rows_of, running


def test_after_a_restart_stopped_queries_are_stopped_and_others_run_with_their_options(tmp_path: Path) -> None:
    async def first() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            await client.execute("CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us DELAY 1 SECOND")
            await client.execute("CREATE CLASS gold PRIORITY 6 TARGET 300 MILLISECONDS")
            await client.execute("CREATE STREAM even AS SELECT ts, v FROM s WHERE v % 2 = 0")
            await client.submit("SELECT v FROM s", name="stopped", class_="gold", qos="0ms:1, 50ms:0.8, 200ms:0")
            await client.execute("CREATE QUERY running WITH (class = 'gold') AS SELECT v FROM even")
            await client.execute("SELECT v FROM s")
            await client.execute("STOP QUERY stopped")
            await client.execute("SET POLICY fcfs")

    async def again(stopped: str) -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            rows = {r["name"]: r for r in await client.execute("SHOW QUERIES")}
            assert {name: row["state"] for name, row in rows.items()} == {"stopped": stopped, "running": "running"}
            assert rows["stopped"]["class"] == rows["running"]["class"] == "gold"
            qos = harness.server.application.host.queries.get("stopped").planned.physical.options.qos
            assert qos == ((0.0, 1.0), (0.05, 0.8), (0.2, 0.0))
            assert [r["name"] for r in await client.execute("SHOW POLICIES") if r["in_use"]] == ["fcfs"]
            subscription = await client.subscribe("running")
            await client.publish("s", [{"ts": 1, "v": 1}, {"ts": 2, "v": 2}])
            assert await rows_of(subscription, 1) == [{"v": 2}]

    asyncio.run(first())
    asyncio.run(again("stopped"))
    asyncio.run(again("stopped"))


def test_what_was_accepted_once_is_planned_at_a_restart_whatever_work_that_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def first() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            await client.execute("CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us")
            await client.execute("CREATE STREAM even AS SELECT ts, v FROM s WHERE v % 2 = 0")
            await client.execute("CREATE QUERY q AS SELECT v FROM even WHERE v > 1")

    async def again() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            assert [(r["name"], r["state"]) for r in await client.execute("SHOW QUERIES")] == [("q", "running")]
            with pytest.raises(MillstreamError, match="more than 3 steps"):
                await client.execute("CREATE QUERY r AS SELECT v FROM even WHERE v > 1")

    asyncio.run(first())
    monkeypatch.setattr("millstream.engine.plan.plan.WORK_MAX", 3)
    asyncio.run(again())
