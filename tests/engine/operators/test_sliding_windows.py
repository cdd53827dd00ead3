"""[RANGE t] and [ROWS n]: against naive references, and the cases from the field."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.engine_run import SECOND, SqlEngine
from tests.support.reference_windows import extreme, same

STREAM = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE) TIMESTAMP BY ts DELAY 3 MICROSECONDS"
ROWS = st.lists(st.tuples(st.integers(-2, 3), st.integers(0, 2), st.floats(-10, 10, width=16) | st.none()), max_size=25)


def timed(drawn: list[Any]) -> list[Any]:
    now, rows = 0, []
    for step, k, v in drawn:
        now += step
        rows.append((now, k, v))
    return rows


def on_time(rows: list[Any], delay: int) -> list[Any]:
    """Rows that are not late, by event time, ties by arrival."""
    watermark, kept = -math.inf, []
    for row in rows:
        if row[0] >= watermark:
            kept.append(row)
        watermark = max(watermark, row[0] - delay)
    return sorted(kept, key=lambda r: r[0])


def run(query: str, rows: list[Any], train: int = 4096, chunk: int = 100, stream: str = STREAM) -> list[Any]:
    engine = SqlEngine(stream, train=train)
    engine.select(query)
    for start in range(0, len(rows), chunk):
        engine.put("s", rows[start : start + chunk])
        engine.work()
    engine.end()
    engine.work()
    assert all(a.balances for a in engine.account("q").values())
    return engine.rows("q")


@settings(max_examples=40, deadline=None)
@given(ROWS, st.integers(1, 6), st.sampled_from([1, 4096]), st.sampled_from([1, 4, 100]))
def test_a_range_window_answers_at_each_instant_for_the_groups_it_touches(drawn: list[Any], size: int, train: int, chunk: int) -> None:
    rows = timed(drawn)
    found = run(f"SELECT k, COUNT(*) AS n, MAX(v) AS m FROM s [RANGE {size} MICROSECONDS] GROUP BY k", rows, train, chunk)
    kept = on_time(rows, 3)
    arrival = {id(r): i for i, r in enumerate(rows)}
    expected = []
    for instant in sorted({r[0] for r in kept}):
        window = [r for r in kept if instant - size < r[0] <= instant]
        touched = {r[1] for r in window if r[0] == instant}
        for k in sorted(touched, key=lambda g: min(arrival[id(r)] for r in window if r[1] == g)):
            group = [r[2] for r in window if r[1] == k]
            expected.append((k, len(group), extreme(group, True)))
    assert same(found, expected)


@settings(max_examples=40, deadline=None)
@given(ROWS, st.integers(1, 4), st.sampled_from([1, 4096]), st.sampled_from([1, 4, 100]), st.booleans())
def test_a_row_window_answers_at_each_row_in_event_time_order(
    drawn: list[Any], size: int, train: int, chunk: int, partitioned: bool
) -> None:
    rows = timed(drawn)
    window = f"[PARTITION BY k ROWS {size}]" if partitioned else f"[ROWS {size}]"
    found = run(f"SELECT k, COUNT(v) AS n, SUM(v) AS total FROM s {window} GROUP BY k", rows, train, chunk)
    kept = on_time(rows, 3)
    expected = []
    for i, row in enumerate(kept):
        seen = [r for r in kept[: i + 1] if not partitioned or r[1] == row[1]][-size:]
        values = [r[2] for r in seen if r[1] == row[1] and r[2] is not None]
        expected.append((row[1], len(values), sum(values) if values else None))
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a[:2] == b[:2]
        assert a[2] == (None if b[2] is None else pytest.approx(b[2]))


@settings(max_examples=30, deadline=None)
@given(ROWS, st.integers(1, 5), st.sampled_from([1, 4096]), st.sampled_from(["RANGE {} MICROSECONDS", "ROWS {}"]))
def test_a_change_log_adds_up_to_the_last_window(drawn: list[Any], size: int, train: int, form: str) -> None:
    rows = timed(drawn)
    changes = run(f"SELECT k, COUNT(*) AS n FROM s [{form.format(size)}] GROUP BY k EMIT CHANGES", rows, train, 5)
    kept = on_time(rows, 3)
    last = [r for r in kept if kept[-1][0] - size < r[0]] if "RANGE" in form else kept[-size:]
    expected = {k: sum(r[1] == k for r in last) for k in {r[1] for r in last}}
    state: dict[Any, int] = {}
    for k, n, op in changes:
        if op == "+":
            assert k not in state
            state[k] = n
        else:
            assert state.pop(k) == n
    assert state == expected


VALUES = "CREATE STREAM s (ts TIMESTAMP, v {}) TIMESTAMP BY ts"


def test_the_row_on_the_edge_of_a_sliding_window_c02() -> None:
    rows = [(t * SECOND, 1.0) for t in range(9)]
    found = run("SELECT window_end AS e, SUM(v) AS n FROM s [RANGE 4 SECONDS]", rows, stream=VALUES.format("DOUBLE"))
    sums = dict(found)
    assert (sums[4 * SECOND], sums[8 * SECOND]) == (4.0, 4.0)


def test_a_nan_or_infinity_leaves_with_its_row_c19() -> None:
    for poison in (math.nan, math.inf):
        rows = [(i, v) for i, v in enumerate([1.0, 2.0, 3.0, poison, 1.0, 2.0, 3.0, 4.0])]
        found = run("SELECT AVG(v) AS m FROM s [ROWS 3]", rows, stream=VALUES.format("DOUBLE"))
        assert same([r[0] for r in found], [1.0, 1.5, 2.0, poison, poison, poison, 2.0, 3.0])


def test_frames_of_nulls_c20() -> None:
    rows = [(0, 3), (1, None), (2, None)]
    query = "SELECT MIN(v) AS a, SUM(v) AS b, AVG(v) AS c, COUNT(v) AS d, COUNT(*) AS e FROM s [ROWS 2]"
    found = run(query, rows, stream=VALUES.format("BIGINT"))
    assert found == [(3, Decimal(3), 3.0, 1, 1), (3, Decimal(3), 3.0, 1, 2), (None, None, None, 0, 2)]


def test_distinct_counts_do_not_add_up_c23() -> None:
    rows = [(i, v) for i, v in enumerate([10, 20, 30, 10, 40])]
    for n, expected in ((3, [1, 2, 3, 3, 3]), (4, [1, 2, 3, 3, 4])):
        found = run(f"SELECT COUNT(DISTINCT v) AS n FROM s [ROWS {n}]", rows, stream=VALUES.format("BIGINT"))
        assert [r[0] for r in found] == expected


def test_rows_with_slide_end_with_a_window_as_far_as_it_is_filled() -> None:
    rows = [(i, float(i)) for i in range(1, 10)]
    query = "SELECT ARRAY_AGG(v) AS a FROM s [ROWS 4 SLIDE 2]"
    expected = [[1, 2], [1, 2, 3, 4], [3, 4, 5, 6], [5, 6, 7, 8], [7, 8, 9]]
    for chunk in (1, 2, 3, 100):
        found = run(query, rows, chunk=chunk, stream=VALUES.format("DOUBLE"))
        assert [r[0] for r in found] == expected


def test_tumbling_rows_flag_the_last_one_as_partial_c11() -> None:
    engine = SqlEngine(VALUES.format("BIGINT"))
    engine.select("SELECT COUNT(*) AS n FROM s [ROWS 2 SLIDE 2]")
    engine.put("s", [(1, 1), (11, 1), (12, 1)])
    engine.end()
    engine.work()
    assert engine.rows("q") == [(2,), (1,)]
    assert engine.results["q"][-1].notes == {"partial": True}


def test_a_row_that_where_drops_takes_its_place_but_gives_no_result() -> None:
    rows = [(i, v) for i, v in enumerate([1.0, -1.0, 2.0, 3.0])]
    found = run("SELECT SUM(v) AS s FROM s [ROWS 2] WHERE v > 0", rows, stream=VALUES.format("DOUBLE"))
    assert [r[0] for r in found] == [1.0, 2.0, 5.0]
