"""Aggregates that need all values: the definitions of C24, K13's rules of order and NULL, and agreement over panes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.engine_run import SqlEngine

STREAM = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE, t TEXT) TIMESTAMP BY ts DELAY 100 MICROSECONDS"


def one(select: str, rows: list[Any], window: str = "[RANGE 1 SECOND SLIDE 1 SECOND]", train: int = 4096) -> list[Any]:
    engine = SqlEngine(STREAM, train=train)
    engine.select(f"SELECT {select} FROM s {window}")
    engine.put("s", rows)
    engine.end()
    engine.work()
    return engine.rows("q")


def doubles(values: list[Any]) -> list[Any]:
    return [(i, 0, v, None) for i, v in enumerate(values)]


B = [-85.0, -72.0, -56.0, -48.0, -43.0, -25.0, -12.0, -5.0, 45.0, 83.0]
C = [6144.0, 6144.0, 19345.0, 21156.0, 21156.0, 22743.0, 34643.0, 42935.0, 52514.0, 65772.0, 76815.0, 84336.0, 105138.0, 119886.0]


@pytest.mark.parametrize(
    ("select", "values", "expected"),
    [
        ("PERCENTILE_CONT(v, 0.5) AS a", [1.0, 3.0], 2.0),
        ("MEDIAN(v) AS a", B, -34.0),
        ("PERCENTILE_DISC(v, 0.5) AS a", B, -43.0),
        ("PERCENTILE_CONT(v, 0.85) AS a", C, 85376.1),
        ("PERCENTILE_DISC(v, 0.85) AS a", C, 84336.0),
        ("APPROX_PERCENTILE(v, 0.85) AS a", C, 85376.1),
        ("STDDEV(v) AS a", [2.0], None),
        ("VARIANCE(v) AS a", [1.0, 3.0, None], 2.0),
        ("COUNT(DISTINCT v) AS a", [10.0, 20.0, 10.0, None], 2),
        ("SUM(DISTINCT v) AS a", [10.0, 20.0, 10.0, None], 30.0),
        ("APPROX_COUNT_DISTINCT(v) AS a", [0.0, -0.0, 1.0, None], 2),
        ("TOP(v, 2) AS a", [1.0, 5.0, None, 3.0], [5.0, 3.0]),
        ("ARRAY_AGG(v) AS a", [1.0, None, 2.0], [1.0, None, 2.0]),
        ("FIRST(v) AS a", [None, 1.0], None),
        ("LAST(v) AS a", [None, 1.0], 1.0),
        ("APPROX_TOP_K(v, 1) AS a", [1.0, 2.0, 2.0], [2.0]),
    ],
)
@pytest.mark.parametrize("window", ["[RANGE 1 SECOND SLIDE 1 SECOND]", "[RANGE 1 SECOND SLIDE 500 MILLISECONDS]"])
@pytest.mark.parametrize("train", [1, 4096])
def test_the_definition(select: str, values: list[Any], expected: Any, window: str, train: int) -> None:
    assert one(select, doubles(values), window, train)[0][0] == expected


def test_first_last_and_lists_stand_in_event_time_order() -> None:
    rows = [(5, 0, 5.0, "e"), (1, 0, 1.0, "a"), (3, 0, None, None), (3, 0, 4.0, "c")]
    found = one("FIRST(v) AS a, LAST(v) AS b, ARRAY_AGG(v) AS c, STRING_AGG(t, '-') AS d", rows)
    assert found == [(1.0, 5.0, [1.0, None, 4.0, 5.0], "a-c-e")]


def test_groups_and_filters_do_not_mix() -> None:
    dice = np.random.default_rng(3)
    rows = [(i, int(dice.integers(3)), float(dice.integers(10)), str(dice.integers(4))) for i in range(100)]
    engine = SqlEngine(STREAM, train=7)
    engine.select(
        "SELECT k, MEDIAN(v) AS m, MAX(t) FILTER (WHERE v > 5) AS t FROM s [RANGE 40 MICROSECONDS SLIDE 20 MICROSECONDS] GROUP BY k"
    )
    engine.put("s", rows)
    engine.end()
    engine.work()
    expected = {}
    for start in range(-20, 100, 20):
        for k in range(3):
            values = [r for r in rows if start <= r[0] < start + 40 and r[1] == k]
            if values:
                texts = [r[3] for r in values if r[2] > 5]
                expected[start, k] = (float(np.median([r[2] for r in values])), max(texts, default=None))
    assert sorted(map(str, engine.rows("q"))) == sorted(str((k, *v)) for (_, k), v in expected.items())


FAR = 9_150_000_000_000_000_001


@pytest.mark.parametrize(
    ("values", "median"),
    [([-FAR, FAR], 0), ([FAR], FAR), ([-FAR, FAR, FAR], FAR), ([FAR, FAR - 1], FAR - 1), ([1, 4], 2), ([3, 4], 4), ([-1, 0], 0)],
)
@pytest.mark.parametrize("window", ["[RANGE 1 SECOND SLIDE 1 SECOND]", "[RANGE 1 SECOND SLIDE 500 MILLISECONDS]", ""])
def test_a_percentile_of_intervals_is_exact_to_the_microsecond_however_far_apart_they_are(
    values: list[int], median: int, window: str
) -> None:
    engine = SqlEngine("CREATE STREAM s (ts TIMESTAMP, at TIMESTAMP) TIMESTAMP BY ts")
    engine.select(f"SELECT MEDIAN(i) AS a FROM (SELECT ts, at - TIMESTAMP '1970-01-01' AS i FROM s) {window} EMIT FINAL")
    engine.put("s", list(enumerate(values)))
    engine.end()
    engine.work()
    assert engine.rows("q")[0][0] == median


def test_a_percentile_between_doubles_whose_difference_is_no_double_is_finite() -> None:
    assert one("MEDIAN(v) AS a", doubles([-1.5e308, 1.5e308]))[0][0] == 0.0
    assert one("MEDIAN(v) AS a", doubles([1.0, float("inf")]))[0][0] == float("inf")
