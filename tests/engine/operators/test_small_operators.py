"""DISTINCT, top-k, LAG, rows of windows, ISTREAM and its kin: short inputs with answers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from millstream.engine.operators.distinct import Distinct

from tests.support.engine_run import SqlEngine

STREAM = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v BIGINT) TIMESTAMP BY ts"


@pytest.fixture(params=[(4096, 100), (1, 1), (2, 3)])
def run(request: pytest.FixtureRequest) -> Any:
    train, chunk = request.param

    def running(query: str, rows: list[Any]) -> list[Any]:
        engine = SqlEngine(STREAM, train=train)
        engine.select(query)
        for start in range(0, len(rows), chunk):
            engine.put("s", rows[start : start + chunk])
            engine.work()
        engine.end()
        engine.work()
        assert all(a.balances for a in engine.account("q").values())
        return engine.rows("q")

    return running


def test_distinct_rows_once_and_for_all(run: Any) -> None:
    assert run("SELECT DISTINCT k FROM s", [(0, 1, 0), (1, 2, 0), (2, 1, 0), (3, None, 0), (4, None, 0)]) == [(1,), (2,), (None,)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT DISTINCT COUNT(*) AS n FROM s [RANGE 4 MICROSECONDS SLIDE 2 MICROSECONDS] GROUP BY k",
        "SELECT DISTINCT window_end AS e, COUNT(*) AS n FROM s [RANGE 4 MICROSECONDS SLIDE 4 MICROSECONDS] GROUP BY k",
        "SELECT DISTINCT COUNT(*) AS n FROM s [SESSION 2 MICROSECONDS] GROUP BY k",
        "SELECT k FROM s [RANGE 4 MICROSECONDS SLIDE 4 MICROSECONDS] EXCEPT SELECT v FROM s [RANGE 4 MICROSECONDS SLIDE 4 MICROSECONDS]",
    ],
)
def test_distinct_forgets_the_rows_of_windows_that_have_closed(query: str) -> None:
    engine = SqlEngine(STREAM)
    engine.select(query)
    engine.put("s", [(4 * i, i % 7, i) for i in range(500)])
    engine.work()
    kept = [o.logic.state_rows() for o in engine.network.operators.values() if isinstance(o.logic, Distinct)]
    assert kept
    assert max(kept) <= 1, "the row of the window that is open, of 500"
    assert len(engine.rows("q")) > 100


def test_a_hopping_window_without_an_aggregate_gives_a_row_once_per_window(run: Any) -> None:
    found = run("SELECT v, window_start AS a, window_end AS b FROM s [RANGE 4 MICROSECONDS SLIDE 2 MICROSECONDS]", [(1, 0, 7), (2, 0, 8)])
    assert found == [(7, -2, 2), (7, 0, 4), (8, 0, 4), (8, 2, 6)]


ROWS = [(0, 1, 10), (1, 2, 10), (2, 3, 20), (3, 4, 30), (11, 5, 5)]
WINDOW = "[RANGE 10 MICROSECONDS SLIDE 10 MICROSECONDS]"


def test_the_first_rows_of_each_window_ties_by_arrival_c25(run: Any) -> None:
    assert run(f"SELECT k, v FROM s {WINDOW} ORDER BY v LIMIT 1", ROWS) == [(1, 10), (5, 5)]
    assert run(f"SELECT k, v FROM s {WINDOW} ORDER BY v LIMIT 1 WITH TIES", ROWS) == [(1, 10), (2, 10), (5, 5)]
    assert run(f"SELECT k, v FROM s {WINDOW} ORDER BY v DESC, k LIMIT 2", ROWS) == [(4, 30), (3, 20), (5, 5)]


def test_the_top_groups_of_each_window(run: Any) -> None:
    rows = [(0, 1, 1), (1, 2, 5), (2, 1, 1), (3, 3, 4), (12, 9, 1)]
    assert run(f"SELECT k, SUM(v) AS t FROM s {WINDOW} GROUP BY k ORDER BY t DESC LIMIT 2", rows) == [(2, 5), (3, 4), (9, 1)]


def test_lag_looks_back_in_event_time_order_within_its_partition(run: Any) -> None:
    found = run("SELECT k, v, LAG(v) OVER (PARTITION BY k) AS before FROM s", [(0, 1, 10), (1, 2, 20), (2, 1, 30), (3, 1, 40)])
    assert found == [(1, 10, None), (2, 20, None), (1, 30, 10), (1, 40, 30)]


def test_several_lags_of_one_partition_are_one_operator_and_each_has_its_own_value(run: Any) -> None:
    several = "LAG(v, 2) OVER (PARTITION BY k) AS a, LAG(ts, 2) OVER (PARTITION BY k) AS b, LAG(k, 2) OVER (PARTITION BY k) AS c"
    rows = [(0, 1, 10), (1, 2, 20), (2, 1, None), (3, 1, 40), (4, 1, 50), (5, 2, 60), (6, 2, 70)]
    found = run(f"SELECT v, {several}, LAG(v) OVER (PARTITION BY k) AS d FROM s", rows)
    assert found == [
        (10, None, None, None, None),
        (20, None, None, None, None),
        (None, None, None, None, 10),
        (40, 10, 0, 1, None),
        (50, None, 2, 1, 40),
        (60, None, None, None, 20),
        (70, 20, 1, 2, 60),
    ]


def test_istream_and_dstream_of_a_sliding_window(run: Any) -> None:
    rows = [(0, 1, 0), (1, 2, 0), (5, 3, 0)]
    assert run("ISTREAM(SELECT k FROM s [RANGE 2 MICROSECONDS])", rows) == [(1,), (2,), (3,)]
    assert run("DSTREAM(SELECT k FROM s [RANGE 2 MICROSECONDS])", rows) == [(1,), (2,)]
    assert run("RSTREAM(SELECT k FROM s [RANGE 2 MICROSECONDS])", rows) == [(1,), (1,), (2,), (2,), (3,)]


def test_rstream_every_gives_the_relation_at_multiples(run: Any) -> None:
    rows = [(0, 1, 0), (1, 2, 0), (5, 3, 0), (9, 4, 0)]
    assert run("RSTREAM(SELECT k FROM s [ROWS 2] EVERY 4 MICROSECONDS)", rows) == [(1,), (1,), (2,), (2,), (3,)]


def test_a_row_window_as_a_change_log(run: Any) -> None:
    found = run("SELECT k FROM s [ROWS 1] EMIT CHANGES", [(0, 1, 0), (1, 2, 0), (2, 2, 0)])
    assert found == [(1, "+"), (1, "-"), (2, "+"), (2, "-"), (2, "+")]
