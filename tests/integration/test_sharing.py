"""Sharing over the wire: what a query that comes later is told, what FETCH sees of each, what a restart brings together again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from millstream.client.errors import MillstreamError
from millstream.engine.operators.contract import Operator
from millstream.scheduler.catalog import CATALOG
from millstream.scheduler.core import SchedulerCore

from tests.support.live_server import Harness, rows_of, run, running

STREAM = "CREATE STREAM s (ts BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY ts UNIT s"
COUNTED = "SELECT k, COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k"
RANK_WHAT_WAITS = ("edf", "fcfs")  # by the time of what is first: where nothing is, there is no rank
SUMMED = "SELECT k, SUM(v) AS total FROM s [RANGE 20 SECONDS SLIDE 5 SECONDS] GROUP BY k"


def seconds(start: int, stop: int) -> list[dict[str, Any]]:
    return [{"ts": ts, "k": ts % 2, "v": ts} for ts in range(start, stop)]


async def sharing(client: Any) -> dict[str, dict[str, Any]]:
    return {row["query"]: row for row in await client.execute("SHOW SHARING")}


def test_results_of_a_shared_aggregate_count_in_the_selectivity_that_policies_read() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        for name, select in (("counted", COUNTED), ("summed", SUMMED)):
            await client.submit(select, name=name)
        subscriptions = [await client.subscribe(name) for name in ("counted", "summed")]
        for start in range(0, 3_000, 100):
            await client.publish("s", seconds(start, start + 100))
        given = [await rows_of(subscription, 1_000) for subscription in subscriptions]
        assert all(given)
        host = harness.server.application.host
        shared = next(op for op in host.network.operators.values() if len(op.outputs) == 2)
        scheduler = host.runtime.scheduler

        def look(core: SchedulerCore) -> tuple[float, float]:
            core.estimates.refresh(force=True)
            slot = core.network.operators.slot_of[shared.id]
            return core.estimates.selectivity.item(slot), core.estimates.output_per_tuple.item(slot)

        one, both = scheduler.ask(look)
        assert one == pytest.approx(0.4, rel=0.1)  # two groups every five rows
        assert both == pytest.approx(0.8, rel=0.1)
        assert shared.counted.rows_out == pytest.approx(0.8 * shared.counted.rows_in, rel=0.1)

    run(test)


def test_a_query_that_comes_later_is_told_from_when_it_is_complete_in_ack_results_and_everywhere_else() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        await client.submit(SUMMED, name="first")
        await client.publish("s", seconds(0, 8))
        told = await client.execute(f"CREATE QUERY later AS {COUNTED}")
        held = await client.execute(f"CREATE QUERY held AS {COUNTED} WITH (history = 'held')")
        assert "windows that begin before 1970-01-01T00:00:10Z lack the rows from before the query" in told.notices
        assert not [n for n in held.notices if "begin" in n]  # the synopsis holds every row from the beginning
        subscriptions = [await client.subscribe(name) for name in ("later", "held")]
        await client.publish("s", seconds(8, 21))
        later, whole = [await rows_of(s, 6) for s in subscriptions]
        assert [row["n"] for row in later] == [1, 1, 4, 3, 5, 5]
        assert [row["n"] for row in whole] == [5, 5, 5, 5, 5, 5]
        assert subscriptions[0].meta["complete_from_us"] == 10_000_000
        assert "complete_from_us" not in subscriptions[1].meta
        shown = {row["name"]: row["complete_from"] for row in await client.execute("SHOW QUERIES")}
        assert [shown[name] is None for name in ("first", "later", "held")] == [True, False, True]
        lines = [row["explanation"] for row in await client.execute("EXPLAIN later")]
        assert any("windows that begin before 1970-01-01T00:00:10Z lack" in line for line in lines)

    run(test)


@pytest.mark.parametrize("sharing_policy", ["hybrid", "off"])
def test_with_history_held_no_window_is_answered_in_part_whether_work_is_shared_or_not(sharing_policy: str) -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        await client.publish("s", seconds(0, 8))
        told = await client.execute(f"CREATE QUERY held AS {COUNTED} WITH (history = 'held')")
        assert "the first window begins at 1970-01-01T00:00:10Z: the server does not hold all rows of earlier windows" in told.notices
        subscription = await client.subscribe("held")
        await client.publish("s", seconds(8, 21))
        assert await rows_of(subscription, 2) == [{"k": 0, "n": 5}, {"k": 1, "n": 5}]

    run(test, sharing=sharing_policy)


def test_history_is_refused_for_a_query_that_the_journal_rebuilds(tmp_path: Path) -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM + " DURABILITY journal")
        with pytest.raises(MillstreamError, match="rebuilt from the journal"):
            await client.execute(f"CREATE QUERY held AS {COUNTED} WITH (history = 'held')")
        assert len(await client.execute("SHOW QUERIES")) == 0
        await client.execute(f"{COUNTED} WITH (history = 'held')")

    run(test, data_dir=str(tmp_path))


def test_fetch_gives_each_of_two_sharing_queries_its_own_open_windows() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        await client.submit(COUNTED, name="counted")
        await client.submit(SUMMED, name="summed")
        await client.publish("s", seconds(0, 8))
        assert {row["group_queries"] for row in (await sharing(client)).values()} == {2}
        counted = (await client.execute("FETCH QUERY counted")).to_arrow().to_pylist()
        summed = (await client.execute("FETCH QUERY summed")).to_arrow().to_pylist()
        assert counted == [{"k": 0, "n": 4}, {"k": 1, "n": 4}, {"k": 1, "n": 2}, {"k": 0, "n": 1}]
        assert summed[:2] == [{"k": 0, "total": 12}, {"k": 1, "total": 16}]
        assert len(summed) == 8
        assert (await client.execute("FETCH QUERY counted")).to_arrow().to_pylist() == counted  # a question changes nothing

    run(test)


@pytest.mark.parametrize(("durability", "together"), [("none", 2), ("journal", None)])
def test_after_a_restart_queries_share_again_save_those_that_are_rebuilt(tmp_path: Path, durability: str, together: int | None) -> None:
    async def first() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            await client.execute(f"{STREAM} DURABILITY {durability}")
            await client.submit(COUNTED, name="counted")
            await client.submit(SUMMED, name="summed")

    async def again() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            found = await sharing(client)
            assert [found[name]["group_queries"] for name in ("counted", "summed")] == [together, together]

    asyncio.run(first())
    asyncio.run(again())


def test_what_operators_hold_is_told_also_while_another_thread_changes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def changing(operator: Operator) -> int:
        raise RuntimeError("dictionary changed size during iteration")

    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        await client.submit(COUNTED, name="counted")
        await client.publish("s", seconds(0, 10))
        (operator,) = (o for o in harness.server.application.host.network.operators.values() if o.logic.state_fields)
        operator.state_bytes = 4_711
        monkeypatch.setattr(type(operator.logic), "state_bytes", changing)
        monkeypatch.setattr(type(operator.logic), "state_rows", changing)
        told = [row for row in await client.execute("SHOW OPERATORS") if row["operator"] == operator.id]
        assert [(row["state_rows"], row["state_bytes"]) for row in told] == [(None, 4_711)]
        for statement in ("EXPLAIN ANALYZE counted", "SHOW SHARING", "SHOW QUERIES"):
            await client.execute(statement)

    run(test)


def test_show_operators_tells_unit_and_rank_under_each_policy() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        for number in range(3):
            await client.submit(f"SELECT k FROM s WHERE v > {number}", name=f"q{number}")
        await client.publish("s", seconds(0, 10))
        for policy in sorted(CATALOG.keys() - {"user"}):
            await client.execute(f'SET POLICY "{policy}"')
            told = (await client.execute("SHOW OPERATORS")).rows
            assert all(isinstance(row["unit"], int) for row in told), policy
            begun = {row["unit"]: row["rank"] for row in told}
            scheduler = harness.server.application.host.runtime.scheduler
            takes_turns = scheduler.ask(lambda core: core.ranking is None)
            assert all(rank is None for rank in begun.values()) == (takes_turns or policy in RANK_WHAT_WAITS), policy
            if policy == "hnr":
                ranks = scheduler.ask(lambda core: core.ranking.rank(core.view, core._now_ns).tolist())
                assert begun == dict(enumerate(ranks))
                assert len(begun) == len(told)

    run(test)


def test_show_operators_has_each_operator_once_with_what_it_reads_and_whom_it_serves() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        await client.execute("CREATE STREAM odd AS SELECT k, v FROM s WHERE v > 1")
        for name, select in (("counted", COUNTED), ("summed", SUMMED), ("read", "SELECT k FROM odd")):
            await client.submit(select, name=name)
        await client.execute("CREATE CLASS bronze PRIORITY 1 TARGET 1 SECOND SHED")
        await client.submit("SELECT k FROM s WHERE v > 5", name="cheap", class_="bronze")  # it reads a log of its class's own
        await client.publish("s", seconds(0, 10))
        told = {row["operator"]: row for row in await client.execute("SHOW OPERATORS")}
        (shared,) = (row for row in told.values() if row["kind"] == "aggregate")
        assert (shared["reads_streams"], shared["serves"], shared["queries"]) == (["s"], ["counted", "summed"], 2)
        ends = [row for row in told.values() if row["kind"] == "sink" and row["serves"] in (["counted"], ["summed"])]
        assert [row["reads_operators"] for row in ends] == [[shared["operator"]]] * 2
        (project,) = (row for row in told.values() if row["serves"] == ["read"] and row["kind"] == "project")
        (behind,) = project["reads_operators"]
        assert (told[behind]["serves"], project["reads_streams"]) == (["odd"], [])
        assert [row["reads_streams"] for row in told.values() if row["serves"] == ["cheap"] and row["kind"] == "select"] == [["s"]]
        assert all(row["reads_streams"] or row["reads_operators"] for row in told.values())
        explained = [row for name in ("counted", "read") for row in await client.execute(f"EXPLAIN ANALYZE {name}")]
        for row in explained:
            assert {column: told[row["operator"]][column] for column in ("kind", "rows_in", "state_bytes")}.items() <= row.items()

    run(test)
