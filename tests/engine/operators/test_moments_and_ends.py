"""STDDEV, VARIANCE, FIRST and LAST as folds: windows and sessions against a reference that looks at all rows, whatever the trains."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from millstream.engine.aggregates.ends import End
from millstream.engine.aggregates.moments import MOMENTS, Moments

from tests.engine.operators.test_session_folds import Reference
from tests.engine.operators.test_sliding_answers import KEYS, KINDS, VALUES, Windows, clause, timed
from tests.support.engine_run import SqlEngine
from tests.support.reference_windows import same
from tests.support.trains import same_for_all_trains

STREAM = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE, t TEXT) TIMESTAMP BY ts DELAY 3 MICROSECONDS"
NUMBERS = VALUES | st.sampled_from([1e9 + 0.1, 1e9 + 0.2, 3.0, 3.0])
ROWS = st.lists(st.tuples(st.integers(-3, 4), KEYS, NUMBERS, st.sampled_from(["a", "bb", "", "ß", None])), max_size=30)
SPREADS = ("STDDEV", "VARIANCE", "STDDEV_POP", "VAR_POP")
SELECT = (
    "k, FIRST(v) AS a, LAST(v) AS z, FIRST(t) AS b, LAST(t) AS y, FIRST(v) FILTER (WHERE t = 'a') AS c, LAST(k) AS x, LAST(ts) AS w, "
    + ", ".join(f"{name}(v) AS {name}_" for name in SPREADS)
)


def spread(values: list[Any], name: str) -> Any:
    present = [v for v in values if v is not None]
    least = 1 if name.endswith("_POP") else 2
    if len(present) < least:
        return None
    if not all(map(math.isfinite, present)):
        return math.nan
    exact = [Fraction(v) for v in present]
    mean = sum(exact) / len(exact)
    variance = float(sum((v - mean) ** 2 for v in exact) / (len(exact) + 1 - least))
    return math.sqrt(variance) if name.startswith("STDDEV") else variance


def expected_of(rows: list[Any]) -> tuple[Any, ...]:
    """The answer over rows in order of event time, ties by arrival."""
    first, last = rows[0], rows[-1]
    chosen = [r[2] for r in rows if r[3] == "a"]
    ends = (first[2], last[2], first[3], last[3], chosen[0] if chosen else None, last[1])
    return (*ends, last[0], *(spread([r[2] for r in rows], name) for name in SPREADS))


def agree(found: Any, expected: Any) -> bool:
    if isinstance(found, float) and isinstance(expected, float) and math.isfinite(expected):
        return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-6)
    return same(found, expected)


def check(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for row, (key, answer) in zip(found, expected, strict=True):
        assert same(row[:8], (key, *answer[:7])), (row, answer)
        assert all(map(agree, row[8:], answer[7:])), (row, answer)


@settings(max_examples=15, deadline=None)
@given(ROWS, KINDS, st.integers(1, 7))
def test_a_sliding_window_has_the_moments_and_ends_of_its_rows(drawn: list[Any], kind: str, size: int) -> None:
    rows = timed(drawn)
    found = same_for_all_trains([STREAM], f"SELECT {SELECT} FROM s {clause(kind, size)} GROUP BY k", {"s": rows})
    windows = Windows(kind, size, rows)
    if kind == "range":
        instants = sorted({r[0] for _, r in windows.rows})
        asked = [(windows.at(i), {r[1] for _, r in windows.rows if r[0] == i}) for i in instants]
    else:
        asked = [(windows.last(windows.rows[: i + 1]), {row[1]}) for i, (_, row) in enumerate(windows.rows)]
    expected: list[Any] = []
    for window, groups in asked:
        first = {g: min(a for a, r in window if r[1] == g) for g in groups}
        expected += [(g, expected_of([r for _, r in window if r[1] == g])) for g in sorted(groups, key=lambda g: first[g])]
    check(found, expected)


@settings(max_examples=12, deadline=None)
@given(ROWS, st.integers(1, 6))
@example([*[(0, 0, 0.5, "a")] * 2, (0, 2, 0.5, "a"), (5, 0, 0.5, "a"), (-4, 2, 0.5, "a")], 2)
@example([(0, 0, 1.0, "a"), (3, 0, 2.0, "bb"), (-3, 0, None, None), (0, 0, 4.0, "")], 5)
def test_a_session_has_the_moments_and_ends_of_its_rows_also_of_those_below_the_watermark(drawn: list[Any], gap: int) -> None:
    rows = timed(drawn)
    found = same_for_all_trains([STREAM], f"SELECT {SELECT} FROM s [SESSION {gap} MICROSECONDS] GROUP BY k", {"s": rows})
    reference = Reference(gap)
    for arrival, row in enumerate(rows):
        reference.take(arrival, row)
    sessions = [(key, s) for key, kept in reference.by_key() for s in reference.sessions(kept)]
    sessions.sort(key=lambda e: (e[1][-1][1][0], e[1][0][1][0], min(a for a, _ in e[1])))
    check(found, [(key, expected_of([r for _, r in session])) for key, session in sessions])


@pytest.mark.parametrize("window", ["RANGE 3 MICROSECONDS", "ROWS 3", "PARTITION BY k ROWS 3"])
def test_nan_and_infinity_spoil_a_variance_while_they_are_in_the_window_and_not_a_moment_longer(window: str) -> None:
    values = [1.0, 2.0, math.nan, 4.0, 5.0, 6.0, math.inf, 8.0, 9.0, 11.0]
    rows = [(i, 0, v, None) for i, v in enumerate(values)]
    found = [r[0] for r in same_for_all_trains([STREAM], f"SELECT VARIANCE(v) AS x FROM s [{window}]", {"s": rows})]
    assert found[0] is None
    assert [math.isnan(x) for x in found[1:]] == [False, True, True, True, False, True, True, True, False]
    assert found[5] == 1.0
    assert found[9] == pytest.approx(7 / 3, rel=1e-12)


def test_equal_values_have_no_variance_however_large_they_are() -> None:
    rows = [(i, 0, 1e15 + 0.3, None) for i in range(200)]
    found = same_for_all_trains([STREAM], "SELECT STDDEV(v) AS x FROM s [RANGE 50 MICROSECONDS]", {"s": rows})
    assert found == [(None,)] + [(0.0,)] * 199


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats() | st.sampled_from([1e308, -1e308]), min_size=1, max_size=40))
def test_moments_have_the_same_bits_one_by_one_and_in_turn(values: list[float]) -> None:
    moments, states = Moments(), np.zeros(len(values), dtype=MOMENTS)
    states["count"], states["first"] = 1.0, values
    with np.errstate(invalid="ignore"):
        states["spread"] = states["first"] - states["first"]  # 0, or NaN
    total, by_calls = moments.fresh(1), []
    for place in range(len(states)):
        total = moments.merge(total, states[place : place + 1])
        by_calls.append(total[0].tolist())
    moments.scan(states, np.zeros(1, dtype=np.int64), np.array([len(states)]))
    assert same([list(s) for s in states.tolist()], [list(s) for s in by_calls])
    if all(map(math.isfinite, values)):
        assert not math.isnan(by_calls[-1][3])


def test_the_first_and_last_of_many_stretches_are_found_in_any_order() -> None:
    random = np.random.default_rng(5)
    states = End("O", False).fresh(400)
    states["time"], states["ordinal"] = random.integers(0, 20, 400), random.permutation(400)
    states["value"], states["has"] = [f"t{i}" for i in range(400)], random.random(400) < 0.8
    starts, sizes = np.array([0, 300, 310, 395]), np.array([300, 10, 85, 5])
    for last in (False, True):
        folded = states.copy()
        End("O", last).scan(folded, starts, sizes)
        for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
            for stop in range(start, start + size):
                present = sorted((s["time"], s["ordinal"], s["value"]) for s in states[start : stop + 1] if s["has"])
                assert bool(folded[stop]["has"]) == bool(present)
                assert not present or folded[stop]["value"] == present[-1 if last else 0][2]


@pytest.mark.parametrize("type_", ["BIGINT", "INT", "BOOLEAN", "DATE", "DECIMAL(10, 2)", "DECIMAL(30, 2)", "INTERVAL", "TEXT"])
def test_the_ends_of_every_type_are_those_of_their_rows(type_: str) -> None:
    stream = f"CREATE STREAM s (ts TIMESTAMP, x {type_}) TIMESTAMP BY ts"
    made = {"BOOLEAN": lambda i: i % 3 == 0, "TEXT": lambda i: f"t{i}", "DECIMAL(30, 2)": lambda i: 10**20 + 100 * i}
    rows = [(i, None if i % 4 == 1 else made.get(type_, lambda i: 100 * i)(i)) for i in range(20)]
    query = "SELECT FIRST(x) AS a, LAST(x) AS z, COUNT(*) AS n FROM s [ROWS 3]"
    found = same_for_all_trains([stream], query, {"s": rows})
    alone = [r[0] for r in same_for_all_trains([stream], "SELECT x FROM s", {"s": rows})]
    assert found == [(alone[max(0, i - 2)], alone[i], min(i + 1, 3)) for i in range(20)]


def test_an_open_session_with_a_spread_is_one_state_and_can_be_shown_early() -> None:
    engine = SqlEngine(STREAM)
    delta = engine.select("SELECT k, STDDEV(v) AS s, LAST(t) AS z FROM s [SESSION 10 MICROSECONDS] GROUP BY k EMIT EVERY 500 MICROSECONDS")
    logic = next(engine.network.operators[o.id].logic for o in delta.operators if o.kind == "aggregate")
    for start in range(0, 2_000, 500):
        engine.put("s", [(i, i % 5, float(i % 2), f"t{i}") for i in range(start, start + 500)])
        engine.work()
        assert logic.state_rows() <= 5 + 3 + 1
    engine.end()
    engine.work()
    assert sorted(r[2] for r in engine.rows("q")[-5:]) == [f"t{i}" for i in range(1_995, 2_000)]
    assert logic.state_rows() == 0
