"""What a restart keeps (C37)."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest
from millstream.client.errors import MillstreamError
from millstream.scheduler.errors import SchedulerError
from millstream.server.journal.store import Store

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


MANY = 40  # more than are brought back between two looks for garbage (server/lean.py)


def statements_of(many: int, durability: str) -> list[str]:
    """Return queries that share filters, windows and periods, a join, a derived stream, a view, and one that is paused."""
    made = [
        f"CREATE STREAM s (ts BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY ts UNIT us DURABILITY {durability}",
        "CREATE TABLE names (k BIGINT PRIMARY KEY, word TEXT)",
        "CREATE STREAM even AS SELECT ts, k, v FROM s WHERE k % 2 = 0",
        "CREATE MATERIALIZED VIEW sums AS SELECT k, SUM(v) AS total FROM s GROUP BY k",
        "CREATE QUERY joined AS SELECT a.k, a.v, b.v AS w FROM s [RANGE 50 MICROSECONDS] AS a JOIN even [RANGE 50 MICROSECONDS] AS b "
        "ON a.k = b.k",
        "CREATE QUERY worded AS SELECT s.v, names.word FROM s JOIN names ON s.k = names.k",
    ]
    for i in range(many):
        kinds = (
            f"SELECT k, v FROM s WHERE v > {i % 7} AND k = {i % 5}",
            f"SELECT k, COUNT(*) AS n, AVG(v) AS mean FROM s [RANGE {20 + i} MICROSECONDS SLIDE 10 MICROSECONDS] WHERE v < {i} GROUP BY k",
            f"SELECT k, MAX(v) AS top FROM even [RANGE 40 MICROSECONDS SLIDE WITHIN {10 + i % 3} MICROSECONDS] GROUP BY k",
            f"SELECT k + {i} AS more, v * 2 AS twice FROM s WHERE v BETWEEN {i % 5} AND {i % 5 + 10}",
        )
        made.append(f"CREATE QUERY q{i} AS {kinds[i % 4]}")
    return [*made, "CREATE QUERY held AS SELECT v FROM s", "PAUSE QUERY held"]


@pytest.mark.parametrize("durability", ["none", "journal"])
def test_queries_of_all_kinds_that_came_back_answer_as_those_of_a_server_that_never_stopped(tmp_path: Path, durability: str) -> None:
    rows = [{"ts": 3 * i, "k": i * 7 % 5, "v": float(i * 11 % 13)} for i in range(80)]

    async def begin(client: Any) -> None:
        for statement in statements_of(MANY, durability):
            await client.execute(statement)

    async def answers(client: Any) -> dict[str, Any]:
        await client.execute("INSERT INTO names VALUES (1, 'one'), (2, 'two')")
        reading = {name: await client.subscribe(name) for name in ("joined", "worded", *(f"q{i}" for i in range(MANY)))}
        await client.publish("s", rows)
        view = await client.execute("FETCH SELECT k, total FROM sums ORDER BY k")
        await client.finish("s")
        found: dict[str, Any] = {"sums": list(view)}
        for name, subscription in reading.items():
            found[name] = [row async for batch in subscription for row in batch.to_pylist()]
        found["states"] = [(row["name"], row["state"]) for row in await client.execute("SHOW QUERIES") if row["name"] == "held"]
        return found

    async def served(folder: Path, *, stops: bool) -> dict[str, Any]:
        async with running(data_dir=str(folder)) as harness:
            client = await harness.client()
            await begin(client)
            if not stops:
                return await answers(client)
        async with running(data_dir=str(folder)) as harness:
            return await answers(await harness.client())

    stayed = asyncio.run(served(tmp_path / "stayed", stops=False))
    came_back = asyncio.run(served(tmp_path / "came_back", stops=True))
    assert all(stayed.values())
    assert came_back == stayed
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_a_restart_forces_the_runs_of_all_its_queries_to_the_disk_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[str] = []
    execute = Store._execute

    def counted(store: Store, statement: str, *values: Any) -> Any:
        done = execute(store, statement, *values)
        if not store._connection.in_transaction and not statement.startswith("SELECT"):
            forced.append(statement.split()[0])
        return done

    async def started(folder: Path, queries: int) -> list[str]:
        async with running(data_dir=str(folder)) as harness:
            client = await harness.client()
            await client.execute("CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us DURABILITY journal")
            for number in range(queries):
                await client.execute(f"CREATE QUERY q{number} AS SELECT v FROM s WHERE v > {number}")
        forced.clear()
        async with running(data_dir=str(folder)) as harness:
            client = await harness.client()
            found = list(forced)
            runs = harness.server.application.host.store.runs()
            assert len(runs) == len(await client.execute("SHOW QUERIES")) == queries
            assert all(len(run.earlier) == 1 for run in runs.values())
        return found

    monkeypatch.setattr(Store, "_execute", counted)
    few = asyncio.run(started(tmp_path / "few", 2))
    assert few.count("COMMIT") >= 1
    assert asyncio.run(started(tmp_path / "many", 9)) == few


def test_what_an_order_puts_into_a_stream_while_the_scheduler_stops_is_no_fault_of_its_query() -> None:
    async def test() -> None:
        async with running() as harness:
            client = await harness.client()
            await client.execute("CREATE STREAM last (ts BIGINT) TIMESTAMP BY ts UNIT s")
            runtime, network = harness.server.application.runtime, harness.server.application.host.network
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, runtime.stop, 0.0)
            ingested = network.end("last", arrival_ns=1)
            assert ingested is not None
            await loop.run_in_executor(None, runtime.arrived, ingested)  # on a thread of the engine's, as it does for INSERT INTO
            with pytest.raises(SchedulerError, match="has stopped"):
                runtime.arrived(ingested)

    asyncio.run(test())
