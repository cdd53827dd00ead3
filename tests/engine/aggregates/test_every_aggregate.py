"""What holds for every aggregate of the table. A new one is tried by itself, as NAME(v), against DuckDB's function of that name."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.aggregates.table import aggregate_names

from tests.support.engine_run import SqlEngine
from tests.support.reference_windows import same
from tests.support.trains import outcome, run_once, same_for_all_trains

STREAM = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE, n BIGINT, t TEXT) TIMESTAMP BY ts DELAY 6 MICROSECONDS"
CUTS = ((1000, 1000), (1, 1), (3, 3), (1000, 7))
REGRESSIONS = ("slope", "intercept", "r2", "count", "avgx", "avgy", "sxx", "syy", "sxy")
PAIRED = ("corr", "covar_pop", "covar_samp", *(f"regr_{what}" for what in REGRESSIONS))
CALLS = {  # where NAME(v) is not all, or not right
    "count": ["COUNT(*)", "COUNT(v)", "COUNT(DISTINCT t)"],
    "sum": ["SUM(v)", "SUM(n)", "SUM(DISTINCT v)"],
    "avg": ["AVG(v)", "AVG(n)"],
    "min": ["MIN(v)", "MIN(t)"],
    "max": ["MAX(n)", "MAX(t)"],
    "percentile_cont": ["PERCENTILE_CONT(v, 0.3)"],
    "percentile_disc": ["PERCENTILE_DISC(n, 0.7)"],
    "approx_percentile": ["APPROX_PERCENTILE(v, 0.4)"],
    "top": ["TOP(n, 2)"],
    "approx_top_k": ["APPROX_TOP_K(n, 3)"],
    "string_agg": ["STRING_AGG(t, '/')"],
    "array_agg": [
        "ARRAY_AGG(v)",
        "ARRAY_AGG(n ORDER BY v DESC, t)",
        "ARRAY_AGG(n ORDER BY ts, n DESC)",
        "ARRAY_AGG(DISTINCT t ORDER BY t DESC)",
    ],
    "bool_and": ["BOOL_AND(v > 3)"],
    "bool_or": ["BOOL_OR(v > 900)"],
    "bit_and": ["BIT_AND(n)"],
    "bit_or": ["BIT_OR(n)"],
    "bit_xor": ["BIT_XOR(n)", "BIT_XOR(DISTINCT n)"],
    "mode": ["MODE(n)", "MODE(t)"],
    "histogram": ["HISTOGRAM(n)", "HISTOGRAM(t) FILTER (WHERE n > 4)"],
    "collect_set": ["COLLECT_SET(t)"],
    "arg_min": ["ARG_MIN(n, v)", "ARG_MIN(t, v)", "ARG_MIN(v, t)"],
    "arg_max": ["ARG_MAX(n, v)", "ARG_MAX(t, v)", "ARG_MAX(v, t)"],
    **{name: [f"{name.upper()}(n, v)", f"{name.upper()}(v, n) FILTER (WHERE t <> 'a')"] for name in PAIRED},
    "first": ["FIRST(v)", "FIRST(t) FILTER (WHERE n > 4)"],
    "last": ["LAST(n)", "LAST(t)"],
}
_MODE = "list_sort(list_transform(list_distinct(L), lambda x: [-len(list_filter(L, lambda y: y = x)), list_position(L, x)]))[1][2]"
_ENTRIES = "nullif(list_zip(map_keys(M), map_values(M)), [])"
_SET = "list_transform(list_sort(list_transform(list_distinct(L), lambda x: list_position(L, x))), lambda p: L[p])"
_MODE = f"list_extract(L, {_MODE})".replace("L", "list(%s ORDER BY ts, i)")
ORACLE = {  # where DuckDB says it in another way
    "FIRST(v)": "first(v ORDER BY ts, i)",
    "FIRST(t) FILTER (WHERE n > 4)": "first(t ORDER BY ts, i) FILTER (WHERE n > 4)",
    "LAST(n)": "last(n ORDER BY ts, i)",
    "LAST(t)": "last(t ORDER BY ts, i)",
    "PERCENTILE_CONT(v, 0.3)": "quantile_cont(v, 0.3)",
    "PERCENTILE_DISC(n, 0.7)": "quantile_disc(n, 0.7)",
    "APPROX_PERCENTILE(v, 0.4)": "quantile_cont(v, 0.4)",
    "TOP(n, 2)": "max(n, 2)",
    "APPROX_TOP_K(n, 3)": "list_slice(list(n ORDER BY n) FILTER (WHERE n = 3), 1, 1)",
    "ARRAY_AGG(v)": "list(v ORDER BY ts, i)",
    "ARRAY_AGG(n ORDER BY v DESC, t)": "list(n ORDER BY v DESC NULLS FIRST, t, ts, i)",
    "ARRAY_AGG(n ORDER BY ts, n DESC)": "list(n ORDER BY ts, n DESC)",
    "ARRAY_AGG(DISTINCT t ORDER BY t DESC)": "list(DISTINCT t ORDER BY t DESC)",
    "MODE(n)": _MODE.replace("%s", "n"),
    "MODE(t)": _MODE.replace("%s", "t"),
    "HISTOGRAM(n)": _ENTRIES.replace("M", "histogram(n::TEXT)"),
    "HISTOGRAM(t) FILTER (WHERE n > 4)": _ENTRIES.replace("M", "histogram(t) FILTER (WHERE n > 4)"),
    "COLLECT_SET(t)": _SET.replace("L", "list(t ORDER BY ts, i)"),
    **{call: f"nullif({call}, 'NaN'::DOUBLE)" for name in PAIRED for call in CALLS[name]},
    **{
        f"ARG_{which}({x}, {y})": f"first({x} ORDER BY {y} {way}, ts, i) FILTER (WHERE {x} IS NOT NULL AND {y} IS NOT NULL)"
        for which, way in (("MIN", "ASC"), ("MAX", "DESC"))
        for x, y in (("n", "v"), ("t", "v"), ("v", "t"))
    },
    "STRING_AGG(t, '/')": "string_agg(t, '/' ORDER BY ts, i)",
    "APPROX_COUNT_DISTINCT(v)": "count(DISTINCT v)",
}
WINDOWS = (
    "[RANGE 8 MICROSECONDS SLIDE 8 MICROSECONDS]",
    "[RANGE 8 MICROSECONDS SLIDE 4 MICROSECONDS]",
    "[RANGE 5 MICROSECONDS]",
    "[ROWS 4]",
    "[SESSION 3 MICROSECONDS]",
    "[SESSION 3 MICROSECONDS MAX 9 MICROSECONDS]",
)
EARLY = (
    ("[UNBOUNDED]", "EVERY 3 MICROSECONDS"),
    ("[RANGE 8 MICROSECONDS SLIDE 4 MICROSECONDS]", "EVERY 3 MICROSECONDS"),
    ("[RANGE 8 MICROSECONDS SLIDE 8 MICROSECONDS]", "CHANGES"),
    ("[RANGE 5 MICROSECONDS]", "CHANGES"),
    ("[SESSION 3 MICROSECONDS]", "CHANGES"),
)
# Sevenths, so that sums are rounded; a zero, which is no harm to any but has no logarithm.
VALUES = st.none() | st.integers(1, 7_000).map(lambda i: i / 7) | st.just(0.0)
ANY_VALUES = VALUES | st.sampled_from([-2.5, math.nan, math.inf, -0.0, 1e300])


def rows_of(values: st.SearchStrategy[Any], most: int = 30) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """Rows out of order: some below W, some late."""
    drawn = st.tuples(st.integers(0, 3), st.integers(0, 8), st.integers(0, 1), values, st.integers(1, 6), st.sampled_from(["a", "b", "ß"]))
    return st.lists(drawn, min_size=1, max_size=most).map(_timed)


def _timed(drawn: list[Any]) -> list[tuple[Any, ...]]:
    rows, now = [], 100
    for step, back, *values in drawn:
        now += step
        rows.append((now - back, *values))
    return rows


def calls(name: str) -> list[str]:
    return CALLS.get(name, [f"{name.upper()}(v)"])


def select(name: str, window: str, keys: str = "k, ", more: str = "") -> str:
    columns = ", ".join(f"{call} AS a{i}" for i, call in enumerate(calls(name)))
    bounds = "" if window in ("", "[ROWS 4]", "[UNBOUNDED]") else ", window_start, window_end"
    return f"SELECT {keys}{columns}{bounds} FROM s {window}{' GROUP BY k' if keys else ''}{more}"


def near(left: Any, right: Any) -> bool:
    """Equal, DOUBLEs by K15's relative 1e-12."""
    if isinstance(left, float) and isinstance(right, float):
        return same(left, right) or math.isclose(left, right, rel_tol=1e-12)
    if isinstance(left, tuple | list) and isinstance(right, tuple | list):
        return len(left) == len(right) and all(map(near, left, right))
    return bool(left == right)


# What is read off the same states is put to the longer tests once.
every_state = pytest.mark.parametrize("name", [name for name in aggregate_names() if name not in PAIRED or name == "corr"])
every_aggregate = pytest.mark.parametrize("name", aggregate_names())


@pytest.mark.slow
@every_state
@settings(max_examples=3, deadline=None)
@given(rows=rows_of(ANY_VALUES), keys=st.sampled_from(["k, ", ""]))
def test_the_size_of_trains_changes_no_bit_in_any_window(name: str, rows: list[Any], keys: str) -> None:
    for window in WINDOWS:
        same_for_all_trains([STREAM], select(name, window, keys), {"s": rows}, CUTS)
    for window, emit in EARLY:
        same_for_all_trains([STREAM], select(name, window, keys, f" EMIT {emit}"), {"s": rows}, CUTS[:2])


@every_state
@settings(max_examples=8, deadline=None)
@given(rows=rows_of(ANY_VALUES, 60))
def test_a_max_that_no_session_reaches_changes_no_bit(name: str, rows: list[Any]) -> None:
    without, with_max = (
        outcome(run_once([STREAM], select(name, f"[SESSION 3 MICROSECONDS{most}]"), {"s": rows}, 1000, 5)) for most in ("", " MAX 1 DAY")
    )
    assert same(without, with_max)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sum", "avg", "stddev", "var_pop", "geomean"])
def test_a_long_session_of_doubles_has_the_same_bits_with_a_max_and_beside_a_median(name: str) -> None:
    random_ = random.Random(5)
    rows, now = [], 1_000
    for _ in range(5_000):
        now += random_.randint(0, 2)
        rows.append((now - random_.randint(0, 12), 0, random_.lognormvariate(0, 9), 1, "a"))
    window = "[SESSION 60 MICROSECONDS{}]"
    plain = run_once([STREAM], select(name, window.format("")), {"s": rows}, 1000, 100).rows("q")
    assert len(plain) == 1
    assert same(plain, run_once([STREAM], select(name, window.format(" MAX 1 DAY")), {"s": rows}, 777, 50).rows("q"))
    call = calls(name)[0]
    (beside,) = run_once([STREAM], f"SELECT {call} AS a, MEDIAN(v) AS m FROM s {window.format('')}", {"s": rows}, 1000, 100).rows("q")
    assert same(beside[0], plain[0][1])


@every_state
@settings(max_examples=6, deadline=None)
@given(rows=rows_of(VALUES, 60))
def test_a_hopping_window_answers_as_a_tumbling_one_over_the_same_rows(name: str, rows: list[Any]) -> None:
    found = [outcome(run_once([STREAM], select(name, window), {"s": rows}, 1000, 1000))[0] for window in WINDOWS[:2]]
    aligned = [row for row in found[1] if row[-2] % 8 == 0]
    assert near(found[0], aligned)


@every_state
@settings(max_examples=5, deadline=None)
@given(rows=rows_of(VALUES, 60), train=st.sampled_from([1, 3, 1000]))
def test_queries_that_share_a_synopsis_answer_as_alone(name: str, rows: list[Any], train: int) -> None:
    queries = [select(name, window) for window in WINDOWS[:2]] + [select("avg", WINDOWS[1])]
    found = []
    for sharing in (True, False):
        engine = SqlEngine(STREAM, train=train, sharing=sharing)
        for number, query in enumerate(queries):
            engine.select(query, f"q{number}")
        for start in range(0, len(rows), 9):
            engine.put("s", rows[start : start + 9])
            engine.work()
        engine.end()
        engine.work()
        found.append([engine.rows(f"q{number}") for number in range(len(queries))])
    assert near(found[0], found[1])


@every_aggregate
@settings(max_examples=8, deadline=None)
@given(rows=rows_of(VALUES, 60))
def test_the_answers_are_those_of_duckdb(name: str, rows: list[Any]) -> None:
    rows = [(ts, k, v, 3 if name == "approx_top_k" else n, t) for ts, k, v, n, t in rows]
    with duckdb.connect() as base:
        base.execute("CREATE TABLE s (i INT, ts BIGINT, k BIGINT, v DOUBLE, n BIGINT, t TEXT)")
        base.executemany("INSERT INTO s VALUES (?, ?, ?, ?, ?, ?)", [(i, *row) for i, row in enumerate(rows)])
        wanted = ", ".join(ORACLE.get(call, call) for call in calls(name))
        expected = base.execute(f"SELECT k, {wanted} FROM s GROUP BY k ORDER BY min(i)").fetchall()
    found = outcome(run_once([STREAM], select(name, "", more=" EMIT FINAL"), {"s": rows}, 1000, 11))[0]
    assert len(found) == len(expected)
    for row, right in zip(found, expected, strict=True):
        for mine, theirs in zip(row, right, strict=True):
            mine = float(mine) if isinstance(theirs, float) and mine is not None else mine
            assert near(mine, theirs) or math.isclose(mine, theirs, rel_tol=1e-9, abs_tol=1e-9), (row, right)


def test_a_second_key_orders_what_the_event_time_leaves_open() -> None:
    rows = [(1, 0, 1.0, 1, "a"), (1, 0, 1.0, 2, "b"), (2, 0, 1.0, 3, "c")]
    lists = "ARRAY_AGG(n ORDER BY ts, n DESC) AS a, ARRAY_AGG(n ORDER BY ts) AS b, STRING_AGG(t, '/' ORDER BY ts, t DESC) AS c"
    found = run_once([STREAM], f"SELECT {lists} FROM s EMIT FINAL", {"s": rows}, 1000, 2).rows("q")
    assert [list(row[:3]) for row in found] == [[[2, 1, 3], [1, 2, 3], "b/a/c"]]


# GEOMEAN, the example of CONTRIBUTING.md ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], None),
        ([None, None], None),
        ([4.0], 4.0),
        ([1.0, None, 4.0, 16.0], 4.0),
        ([1e300, 1e300, 1e-300], 1e100),
        ([3.0, 0.0], 0.0),
        ([3.0, -0.0], 0.0),
        ([3.0, -1.0], None),
        ([0.0, -1.0], None),
        ([3.0, math.nan], math.nan),
        ([-3.0, math.nan], None),
        ([3.0, math.inf], math.inf),
    ],
)
def test_the_geometric_mean_of_odd_values_is_what_the_guide_says(values: list[Any], expected: Any) -> None:
    rows = [(1, 0, 1.0, 0, "a"), *((200 + i, 1, v, 0, "a") for i, v in enumerate(values)), (900, 0, 1.0, 0, "a")]
    found = run_once([STREAM], "SELECT k, GEOMEAN(v) AS g FROM s GROUP BY k EMIT FINAL", {"s": rows}, 1000, 2).rows("q")
    answer = {row[0]: row[1] for row in found}.get(1)
    assert same(answer, expected) or answer == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("odd", [-1.0, 0.0, math.nan])
def test_an_odd_value_spoils_a_geometric_mean_while_it_is_in_the_window_and_not_a_moment_longer(odd: float) -> None:
    rows = [(i, 0, v, 0, "a") for i, v in enumerate([2.0, 8.0, odd, 2.0, 2.0, 8.0])]
    spoilt = {-1.0: None, 0.0: 0.0}.get(odd, math.nan)
    for window in ("[ROWS 2]", "[RANGE 2 MICROSECONDS]"):
        found = [row[0] for row in run_once([STREAM], f"SELECT GEOMEAN(v) AS g FROM s {window}", {"s": rows}, 1000, 3).rows("q")]
        assert same(found[2:4], [spoilt, spoilt])
        assert [found[0], found[1], found[4], found[5]] == pytest.approx([2.0, 4.0, 2.0, 4.0], rel=1e-12)


def test_an_aggregate_is_one_file_of_sixty_lines_and_one_line_of_the_table() -> None:
    engine = Path(__file__).parents[3] / "engine"
    named = {file.relative_to(engine).as_posix(): file.read_text("utf-8") for file in sorted(engine.rglob("*.py"))}
    named = {name: text for name, text in named.items() if "geomean" in text.lower()}
    assert list(named) == ["aggregates/geomean.py", "aggregates/table.py"]
    assert len(named["aggregates/geomean.py"].splitlines()) <= 60
    assert sum("geomean" in line for line in named["aggregates/table.py"].splitlines()) == 1
