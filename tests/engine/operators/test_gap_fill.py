"""EMIT EMPTY with keys, and LOCF: what it holds, how long it goes on, and what it says when it stops (K6)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import millstream
import pytest
from millstream.engine.operators import gap_fill, interpolate

from tests.support.engine_run import SqlEngine
from tests.support.live_server import rows_of, running

STREAM = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v BIGINT) TIMESTAMP BY ts"
QUERY = (
    "SELECT window_end AS w, k, COUNT(*) AS n, LOCF(SUM(v)) AS t FROM s [RANGE 10 MICROSECONDS SLIDE 10 MICROSECONDS] GROUP BY k EMIT EMPTY"
)


@pytest.mark.parametrize("train", [1, 2, 4096])
def test_each_known_key_has_a_row_in_every_window_and_locf_its_last_value(train: int) -> None:
    engine = SqlEngine(STREAM, train=train)
    engine.select(QUERY)
    engine.put("s", [(1, 7, 1), (2, None, 2), (15, 7, None), (31, 5, 9), (45, 5, 1)])
    engine.end("s")
    engine.work()
    assert engine.rows("q") == [
        *[(10, 7, 1, 1), (10, None, 1, 2)],
        *[(20, 7, 1, 1), (20, None, 0, 2)],
        *[(30, 7, 0, 1), (30, None, 0, 2)],
        *[(40, 5, 1, 9), (40, 7, 0, 1), (40, None, 0, 2)],
        *[(50, 5, 1, 1), (50, 7, 0, 1), (50, None, 0, 2)],
    ]


def test_a_long_silence_is_filled_up_to_a_bound_and_then_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gap_fill, "FILLED_ROWS_MAX", 6)
    engine = SqlEngine(STREAM)
    delta = engine.select(QUERY)
    engine.put("s", [(1, 1, 1), (2, 2, 2), (1_000, 3, 3)])
    engine.put("s", [(2_000, 3, 4)])
    engine.end("s")
    engine.work()
    rows = engine.rows("q")
    filled = [(10, 2), (20, 2), (30, 2), (40, 2), (1_010, 3), (1_020, 3), (1_030, 3), (2_010, 3)]  # windows, and how many keys are known
    assert [row[0] for row in rows] == [end for end, keys in filled for _ in range(keys)]
    assert rows[-3:] == [(2_010, 3, 1, 4), (2_010, 1, 0, 1), (2_010, 2, 0, 2)]
    logic = next(engine.network.operators[o.id].logic for o in delta.operators if o.kind == "gapfill")
    assert logic.state_rows() == 3
    assert logic._notes == {"gap": {"empty_windows": 97, "from_window": 103}}


def test_without_keys_locf_fills_what_emit_empty_gives() -> None:
    engine = SqlEngine(STREAM)
    engine.select("SELECT window_end AS w, LOCF(AVG(v)) AS m, AVG(v) AS p FROM s [RANGE 10 MICROSECONDS SLIDE 10 MICROSECONDS] EMIT EMPTY")
    engine.put("s", [(1, 1, 2), (2, 1, 4), (25, 1, None), (31, 1, 6)])
    engine.end("s")
    engine.work()
    assert engine.rows("q") == [(10, 3.0, 3.0), (20, 3.0, None), (30, 3.0, None), (40, 6.0, 6.0)]


def test_a_stream_by_arrival_tells_of_silent_keys_by_the_clock() -> None:
    engine = SqlEngine("CREATE STREAM s (k BIGINT)")
    engine.select("SELECT k, COUNT(*) AS n FROM s [RANGE 10 MICROSECONDS SLIDE 10 MICROSECONDS] GROUP BY k EMIT EMPTY")
    engine.now_us = 5
    engine.put("s", [(1,)])
    engine.work()
    for now_us in (10, 20, 30):
        assert engine.network.ticks.next_us() == now_us
        engine.tick(now_us)
        engine.work()
    assert engine.rows("q") == [(1, 1), (1, 0), (1, 0)]


BETWEEN = (
    "SELECT window_end AS w, k, COUNT(*) AS n, INTERPOLATE(AVG(v)) AS m FROM s [RANGE 10 MICROSECONDS SLIDE 10 MICROSECONDS] GROUP BY k"
    " EMIT EMPTY"
)


@pytest.mark.parametrize("train", [1, 2, 4096])
def test_interpolated_rows_wait_for_the_value_behind_and_have_its_time(train: int) -> None:
    engine = SqlEngine(STREAM, train=train)
    engine.select(BETWEEN)
    engine.put("s", [(1, 7, 1), (2, None, 2), (15, 7, None), (31, 5, 9), (45, 5, 1), (46, 7, 5)])
    engine.work()
    assert engine.rows("q") == [(10, 7, 1, 1.0), (10, None, 1, 2.0), (40, 5, 1, 9.0)]
    engine.end("s")
    engine.work()
    assert engine.rows("q")[3:] == [
        *[(50, 5, 1, 1.0), (20, 7, 1, 2.0), (30, 7, 0, 3.0), (40, 7, 0, 4.0), (50, 7, 1, 5.0)],
        *[(20, None, 0, None), (30, None, 0, None), (40, None, 0, None), (50, None, 0, None)],  # what came to an end without a value behind
    ]


def test_a_window_behind_interpolated_rows_calls_none_late() -> None:
    script = f"""{STREAM};
        CREATE STREAM filled AS {BETWEEN.replace("window_end AS w, ", "")};
        SELECT COUNT(*) AS n, SUM(m) AS m FROM filled [RANGE 10 MICROSECONDS SLIDE 10 MICROSECONDS];"""
    rows = [
        {"ts": f"1970-01-01T00:00:00.0000{ts}Z", "k": k, "v": v} for ts, k, v in (("01", 1, 2), ("31", 2, 1), ("41", 1, 10), ("61", 3, 1))
    ]
    found = millstream.run_script(script, inputs={"s": rows})["q1"]
    assert sum(row["n"] for row in found) == 7 + 4 + 1
    assert not any("late" in message for message in found.messages)


@pytest.mark.parametrize("train", [1, 2, 4096])
def test_a_row_waits_for_so_many_windows_and_is_null_then(monkeypatch: pytest.MonkeyPatch, train: int) -> None:
    monkeypatch.setattr(interpolate, "EMPTY_WINDOWS_MAX", 3)
    engine = SqlEngine(STREAM, train=train)
    delta = engine.select(BETWEEN)
    rows = [(1, 1, 2), *((at, 2, 1) for at in range(11, 61, 10)), (61, 1, 14), (71, 2, 1), (81, 1, 10)]
    engine.put("s", rows)
    engine.work()
    logic = next(engine.network.operators[o.id].logic for o in delta.operators if o.kind == "interpolate")
    assert logic.state_rows() == 1
    engine.end("s")
    engine.work()
    assert [row[3] for row in engine.rows("q") if row[1] == 1] == [2.0, None, None, None, None, None, 14.0, 12.0, 10.0]


def test_interpolated_rows_that_wait_come_after_a_restart_and_fetch_gives_them_at_once(tmp_path: Path) -> None:
    query = "SELECT window_end AS w, k, INTERPOLATE(AVG(v)) AS m FROM s [RANGE 10 MICROSECONDS SLIDE 10 MICROSECONDS] GROUP BY k EMIT EMPTY"

    def row(ts: int, k: int, v: int) -> dict[str, Any]:
        return {"ts": f"1970-01-01T00:00:00.{ts:06}Z", "k": k, "v": v}

    async def first() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            await client.execute(f"{STREAM} DURABILITY journal")
            await client.execute(f"CREATE QUERY gaps AS {query}")
            await client.publish("s", [row(1, 1, 2), row(15, 2, 1), row(25, 2, 1)])

    async def again() -> None:
        async with running(data_dir=str(tmp_path)) as harness:
            client = await harness.client()
            gaps = await client.subscribe("gaps", from_start=True)
            await client.publish("s", [row(31, 1, 8), row(45, 2, 1)])
            found = [(row["k"], row["m"]) for row in await rows_of(gaps, 6)]
            assert found == [(1, 2.0), (2, 1.0), (2, 1.0), (1, 4.0), (1, 6.0), (1, 8.0)]
            asked = (await client.query_once(query)).to_pylist()
            assert [(row["k"], row["m"]) for row in asked if row["k"] == 1][:4] == [(1, 2.0), (1, 4.0), (1, 6.0), (1, 8.0)]

    asyncio.run(first())
    asyncio.run(again())
