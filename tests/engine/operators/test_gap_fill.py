"""EMIT EMPTY with keys, and LOCF: what it holds, how long it goes on, and what it says when it stops (K6)."""

from __future__ import annotations

import pytest
from millstream.engine.operators import gap_fill

from tests.support.engine_run import SqlEngine

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
