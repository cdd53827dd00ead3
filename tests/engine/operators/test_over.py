"""Functions with OVER (K23): against DuckDB's windows, in what later windows make of rows that have waited, and what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import duckdb
import millstream
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.errors import EngineError
from millstream.engine.plan.explain import explain, rules_in_force
from millstream.engine.plan.plan import plan_select

from tests.support.engine_run import SqlEngine
from tests.support.live_server import rows_of, running

CREATE = "CREATE STREAM s (ts BIGINT, k TEXT, v INT) TIMESTAMP BY ts UNIT s"
FUNCTIONS = [
    "SUM(v) OVER (PARTITION BY k ORDER BY ts)",
    "COUNT(*) OVER (ORDER BY ts RANGE BETWEEN 3 PRECEDING AND 1 FOLLOWING)",
    "MIN(v) OVER (PARTITION BY k ORDER BY ts RANGE 2 PRECEDING)",
    "AVG(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING)",
    "MAX(v) OVER (ORDER BY ts ROWS BETWEEN 4 PRECEDING AND 2 PRECEDING)",
    "MEDIAN(v) OVER (ORDER BY ts ROWS 3 PRECEDING)",
    "FIRST_VALUE(v) OVER (PARTITION BY k ORDER BY ts ROWS UNBOUNDED PRECEDING)",
    "LAST_VALUE(v) OVER (ORDER BY ts ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING)",
    "NTH_VALUE(v, 2) OVER (ORDER BY ts ROWS 2 PRECEDING)",
    "LEAD(v) OVER (PARTITION BY k ORDER BY ts)",
    "LEAD(v, 2, -1) OVER (ORDER BY ts)",
    "LAG(v, 2, -1) OVER (PARTITION BY k ORDER BY ts)",
    "ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts)",
    "SUM(v) FILTER (WHERE v > 3) OVER (PARTITION BY k ORDER BY ts ROWS 4 PRECEDING)",
]


@pytest.mark.parametrize("unit", ["s", "us"])
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["a", "b", None]), st.none() | st.integers(-9, 9)), min_size=1, max_size=30))
@settings(max_examples=8, deadline=None)
def test_frames_are_those_of_duckdb(unit: str, drawn: list[tuple[int, str | None, int | None]]) -> None:
    now, rows = 0, []
    for number, (step, k, v) in enumerate(drawn):
        now += step
        rows.append({"ts": now, "n": number, "k": k, "v": v})
    table = pa.Table.from_pylist(rows, pa.schema([("ts", pa.int64()), ("n", pa.int32()), ("k", pa.string()), ("v", pa.int32())]))
    listed = ", ".join(f"{text} AS x{i}" for i, text in enumerate(FUNCTIONS))
    found = millstream.run(
        f"CREATE STREAM s (ts BIGINT, n INT, k TEXT, v INT) TIMESTAMP BY ts UNIT {unit}; SELECT n, {listed} FROM s;", s=table
    )
    # Rows of one time stand in order of arrival: only RANGE must not see that.
    theirs = ", ".join(f if "RANGE" in f or f.startswith("SUM(v) OVER") else f.replace("ORDER BY ts", "ORDER BY ts, n") for f in FUNCTIONS)
    with duckdb.connect() as connection:
        connection.register("rows_", table)
        wanted = connection.execute(f"SELECT n, {theirs} FROM rows_ ORDER BY n").fetchall()
    assert sorted(map(_plain, (tuple(row.values()) for row in found))) == list(map(_plain, wanted))


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(None if v is None else float(v) for v in row)


def test_what_has_waited_comes_into_the_windows_of_the_moment_at_which_it_was_complete() -> None:
    script = f"""{CREATE};
        CREATE STREAM steps AS SELECT v, LEAD(v) OVER (ORDER BY ts) - v AS step, ts AS began FROM s;
        SELECT COUNT(*) AS n, SUM(step) AS steps FROM steps [RANGE 10 SECONDS SLIDE 10 SECONDS];
        CREATE STREAM ahead AS
            SELECT v, COUNT(*) OVER (ORDER BY ts RANGE BETWEEN CURRENT ROW AND INTERVAL '4 seconds' FOLLOWING) AS n FROM s;
        SELECT window_start, SUM(n) AS n FROM ahead [RANGE 10 SECONDS SLIDE 10 SECONDS];"""
    rows = [{"ts": ts, "k": "a", "v": v} for ts, v in ((1, 1), (8, 3), (12, 9), (30, 10))]
    found = millstream.run_script(script, inputs={"s": rows})
    assert [tuple(row.values()) for row in found["q1"]] == [(1, 2), (1, 6), (2, 1)]
    assert [row["n"] for row in found["q2"]] == [1, 3, 1]
    assert not any("late" in message for result in found.values() for message in result.messages)


@pytest.mark.parametrize(
    ("select", "message"),
    [
        ("SUM(v) OVER (PARTITION BY k)", "SUM OVER .* needs an ORDER BY"),
        ("SUM(v) OVER (ORDER BY v)", "in order of event time only"),
        ("SUM(v) OVER (ORDER BY ts DESC)", "in order of event time only"),
        ("MEDIAN(v) OVER (ORDER BY ts)", "MEDIAN from UNBOUNDED PRECEDING"),
        ("SUM(v) OVER (ORDER BY ts ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)", "ends with UNBOUNDED FOLLOWING"),
        ("SUM(v) OVER (ORDER BY ts ROWS BETWEEN 1 FOLLOWING AND 2 PRECEDING)", "ends before it begins"),
        ("SUM(v) OVER (ORDER BY ts ROWS 1.5 PRECEDING)", "a whole number of rows"),
        ("SUM(v) OVER (ORDER BY ts ROWS v PRECEDING)", "there is no column v"),
        ("SUM(v) OVER (ORDER BY ts RANGE 'x' PRECEDING)", "a duration"),
        ("SUM(v) OVER (ORDER BY ts ROWS 99999999999 PRECEDING)", "a whole number of rows"),
        ("SUM(v) OVER (ORDER BY ts GROUPS 1 PRECEDING)", "a frame of GROUPS"),
        ("SUM(v) OVER (ORDER BY ts ROWS 1 PRECEDING EXCLUDE CURRENT ROW)", "EXCLUDE in a frame"),
        ("SUM(v) OVER w", "a window with a name"),
        ("NTILE(4) OVER (ORDER BY ts)", "NTILE OVER"),
        ("LEAD(v, 0) OVER (ORDER BY ts)", "a constant of at least 1"),
        ("LEAD(v, 1, 'x') OVER (ORDER BY ts)", "types that do not meet"),
        ("LEAD(v) OVER (ORDER BY ts ROWS 1 PRECEDING)", "LEAD takes no frame"),
        ("SUM(v) OVER (PARTITION BY ARRAY[v] ORDER BY ts)", "cannot be a key of OVER"),
    ],
)
def test_what_is_not_there_says_what_to_write(select: str, message: str) -> None:
    with pytest.raises(EngineError, match=message) as caught:
        SqlEngine(CREATE).select(f"SELECT {select} AS a FROM s")
    assert caught.value.line == 1


def test_explain_says_what_is_held_and_what_grows() -> None:
    engine = SqlEngine(CREATE)
    running = explain(plan_select("SELECT SUM(v) OVER (PARTITION BY k ORDER BY ts) AS a FROM s", engine.catalog))
    assert "SUM(v) over RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW by k" in running
    assert "over: one cell a partition" in running
    assert "the state of this OVER grows with the number of partitions" in running
    bounded = explain(plan_select("SELECT SUM(v) OVER (PARTITION BY k ORDER BY ts RANGE 60 PRECEDING) AS a FROM s", engine.catalog))
    assert "over: one cell a partition and instant of the last 1 MINUTE" in bounded
    assert "grows" not in bounded


def test_the_rules_in_force_are_told() -> None:
    engine = SqlEngine(CREATE)
    rules = [rule for rule, _ in rules_in_force(plan_select("SELECT LEAD(v) OVER (ORDER BY ts) AS a FROM s", engine.catalog))]
    assert rules.count("K23") == 2
    assert "K4" in rules


def test_live_and_over_a_restart_and_asked_for_once(tmp_path: Path) -> None:
    query = "SELECT k, v, SUM(v) OVER (PARTITION BY k ORDER BY ts) AS total, LEAD(v) OVER (PARTITION BY k ORDER BY ts) AS next FROM s"
    first_rows = [{"ts": 1, "k": "a", "v": 1}, {"ts": 2, "k": "b", "v": 10}, {"ts": 3, "k": "a", "v": 2}]

    async def first() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            await client.execute(f"{CREATE} DURABILITY journal")
            await client.execute(f"CREATE QUERY totals AS {query}")
            await client.publish("s", first_rows)
            assert [tuple(row.values()) for row in (await client.query_once(query)).to_pylist()] == [
                ("a", 1, 1, 2),
                ("b", 10, 10, None),
                ("a", 2, 3, None),
            ]

    async def again() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            totals = await client.subscribe("totals", from_start=True)
            await client.publish("s", [{"ts": 5, "k": "a", "v": 4}, {"ts": 6, "k": "b", "v": 20}, {"ts": 9, "k": "a", "v": 5}])
            found = [tuple(row.values()) for row in await rows_of(totals, 3)]
            assert found == [("a", 1, 1, 2), ("a", 2, 3, 4), ("b", 10, 10, 20)]

    asyncio.run(first())
    asyncio.run(again())
