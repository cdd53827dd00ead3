"""Percentiles, TOP, DISTINCT, STDDEV, FIRST and LAST over panes: right against all values, the same however cut, in little memory."""

from __future__ import annotations

from math import ceil, isclose, sqrt
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.engine_run import SECOND, SqlEngine

STREAM = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v BIGINT, x DOUBLE, t TEXT) TIMESTAMP BY ts DELAY 3 SECONDS"
QUERY = (
    "SELECT k, MEDIAN(x) AS a, PERCENTILE_DISC(v, 0.3) AS b, TOP(t, 2) AS c, COUNT(DISTINCT t) AS d, SUM(DISTINCT v) AS e, "
    "STDDEV(x) AS f, FIRST(v) AS g, LAST(t) AS h FROM s [RANGE 6 SECONDS SLIDE 2 SECONDS] GROUP BY k"
)
ROW = st.tuples(
    st.integers(0, 20),
    st.integers(0, 2),
    st.none() | st.integers(-3, 3),
    st.none() | st.sampled_from([0.5, -2.25, 7.0, -0.0, 0.0]),
    st.none() | st.sampled_from(["a", "b", "é", ""]),
)


def expected(rows: list[Any]) -> tuple[Any, ...]:
    """Return the aggregates of a window's rows of one key, computed plainly."""
    v, x, t = ([row[place] for row in rows if row[place] is not None] for place in (2, 3, 4))
    middle = sorted(x)
    median = None if not x else (middle[(len(x) - 1) // 2] + middle[len(x) // 2]) / 2
    mean = sum(x) / max(1, len(x))
    spread = sqrt(sum((one - mean) ** 2 for one in x) / (len(x) - 1)) if len(x) > 1 else None
    in_time = sorted(rows, key=lambda row: row[0])
    return (
        median,
        sorted(v)[max(1, ceil(3 * len(v) / 10)) - 1] if v else None,
        sorted(t, reverse=True)[:2] if t else None,
        len(set(t)),
        sum(set(v)) if v else None,
        spread,
        in_time[0][2],
        in_time[-1][4],
    )


def equal(one: Any, other: Any) -> bool:
    return isclose(one, other, rel_tol=1e-9, abs_tol=1e-12) if isinstance(one, float) and isinstance(other, float) else bool(one == other)


@settings(max_examples=30, deadline=None)
@given(st.lists(ROW, max_size=40), st.sampled_from([1, 7, 40]), st.booleans())
def test_answers_are_those_of_all_values_and_the_same_however_rows_are_cut(rows: list[Any], chunk: int, sharing: bool) -> None:
    rows = [(ts * SECOND, *rest) for ts, *rest in sorted(rows, key=lambda row: row[0])]
    engine = SqlEngine(STREAM, sharing=sharing)
    engine.select(QUERY)
    engine.put("s", rows, chunk=chunk)
    engine.work()
    engine.end()
    engine.work()
    windows = [(end, key) for end in range(2, 28, 2) for key in range(3)]
    inside = {w: [r for r in rows if (w[0] - 6) * SECOND <= r[0] < w[0] * SECOND and r[1] == w[1]] for w in windows}
    wanted = sorted((w[0], w[1], *expected(held)) for w, held in inside.items() if held)
    found = engine.rows("q")
    assert len(found) == len(wanted)
    for row in found:
        assert any(row[0] == w[1] and all(equal(a, b) for a, b in zip(row[1:], w[2:], strict=True)) for w in wanted), row


@pytest.mark.parametrize("aggregate", ["MEDIAN(v)", "PERCENTILE_DISC(v, 0.9)", "TOP(v, 5)", "COUNT(DISTINCT t)", "STDDEV(x)", "LAST(t)"])
def test_state_follows_different_values_and_not_rows(aggregate: str) -> None:
    engine = SqlEngine(STREAM, sharing=True)
    delta = engine.select(f"SELECT {aggregate} AS a FROM s [RANGE 4 SECONDS SLIDE 1 SECOND]")
    logic = next(engine.network.operators[o.id].logic for o in delta.operators if o.kind == "aggregate")
    sizes = []
    for second in range(12):
        rows = [(second * SECOND + i, 0, i * 7 % 50, float(i % 50), f"name {i * 7 % 50}") for i in range(6_000)]
        engine.put("s", rows)
        engine.work()
        sizes.append(logic.state_bytes())
    assert sizes[-1] <= sizes[8] * 1.01
    assert max(sizes) < 8 * (50 * 24 + 4_096 * 16 + 200) + 128 * 50
    assert max(sizes) < 12 * 6_000 * 8


def test_texts_that_have_left_all_panes_are_forgotten() -> None:
    engine = SqlEngine(STREAM)
    delta = engine.select("SELECT COUNT(DISTINCT t) AS a FROM s [RANGE 1 SECOND SLIDE 1 SECOND]")
    logic = next(engine.network.operators[o.id].logic for o in delta.operators if o.kind == "aggregate")
    for second in range(12):
        engine.put("s", [(second * SECOND + i, 0, 0, 0.0, f"{second} {i}") for i in range(1_500)])
        engine.work()
    assert logic.state_bytes() < 8 * 1_500 * (128 + 40)
    engine.end()
    engine.work()
    assert [a for (a,) in engine.rows("q")] == [1_500] * 12


def test_deviations_are_the_same_bits_however_rows_are_cut() -> None:
    rows = [(i * 1_000, i % 3, 0, (i * 7_919 % 1_000) / 7.0 + 1e6, "") for i in range(9_000)]
    answers = []
    for chunk in (9_000, 1_000, 777):
        engine = SqlEngine(STREAM)
        engine.select("SELECT k, STDDEV(x) AS a, VAR_POP(x) AS b FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k")
        engine.put("s", rows, chunk=chunk)
        engine.end()
        engine.work()
        answers.append(engine.rows("q"))
    assert answers[0] == answers[1] == answers[2]
    assert len(answers[0]) == 18
