"""The APPROX_ aggregates: exact while they hold every value, within their bounds beyond, the same however rows are cut, and bounded."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.column import Column
from millstream.engine.data.errors import EngineError
from millstream.engine.data.hashing import FOLDED_BYTES_MAX, hash_column
from millstream.engine.data.types import BIGINT, DOUBLE, TEXT, DataType, list_of
from millstream.engine.language.recipes import AggregateCall
from millstream.engine.sketches.contract import SynopsisKind, Values, synopsis_kind
from millstream.engine.sketches.distinct_count import HASHES_MAX
from millstream.engine.sketches.frequent_values import COUNTERS_MIN
from millstream.engine.sketches.percentile import VALUES_MAX

from tests.support.engine_run import SqlEngine

STREAM = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE, t TEXT) TIMESTAMP BY ts DELAY 100 MICROSECONDS"
CALLS = {
    "count": AggregateCall("approx_count_distinct", (0,), BIGINT),
    "percentile": AggregateCall("approx_percentile", (0,), DOUBLE, options=(0.9,)),
    "top": AggregateCall("approx_top_k", (0,), list_of(BIGINT), options=(500,)),
}
BOUND = np.log2(30_000 / VALUES_MAX) / (2 * VALUES_MAX)


def fed(kind: SynopsisKind, column: Column, cut: int, first: int = 0) -> Any:
    """Return a synopsis of the column's values, given in parts of `cut` rows."""
    codes = kind.encode(column)
    ordinals = np.arange(first, first + len(codes), dtype=np.int64)
    values, synopsis = Values(codes, ordinals, ordinals), kind.empty()
    for start in range(0, len(codes), cut):
        synopsis.add(values.part(start, min(start + cut, len(codes))))
    return synopsis


def answer(kind: SynopsisKind, result: DataType, *panes: Any) -> Any:
    column = kind.answers(result, [list(panes)])
    return column.values[0].as_py() if column.type.is_arrow else None if column.valid is not None else column.values[0].item()


@pytest.mark.parametrize("call", list(CALLS))
def test_neither_cuts_nor_snapshots_nor_questions_show_in_the_state(call: str) -> None:
    dice = np.random.default_rng(7)
    many = dice.zipf(1.3, 20_000) % 100_000
    column = Column(DOUBLE, many.astype(np.float64)) if call == "percentile" else Column(BIGINT, many)
    kind = synopsis_kind(CALLS[call], column.type)
    whole = answer(kind, CALLS[call].type, fed(kind, column, 1_000_000))
    for cut in (17, 4096):
        assert answer(kind, CALLS[call].type, fed(kind, column, cut)) == whole
    half = fed(kind, column.slice(0, 9_999), 1000)
    answer(kind, CALLS[call].type, half)
    again = pickle.loads(pickle.dumps(half))
    codes, ordinals = kind.encode(column.slice(9_999, 20_000)), np.arange(9_999, 20_000, dtype=np.int64)
    again.add(Values(codes, ordinals, ordinals))
    assert answer(kind, CALLS[call].type, again) == whole


@pytest.mark.parametrize("call", list(CALLS))
def test_a_synopsis_holds_no_more_than_it_says(call: str) -> None:
    kind = synopsis_kind(CALLS[call], BIGINT)
    numbers = np.arange(300_000, dtype=np.int64)
    column = Column(DOUBLE, numbers.astype(np.float64)) if call == "percentile" else Column(BIGINT, numbers)
    assert fed(kind, column, 10_000).nbytes() <= kind.nbytes_max < 1_000_000


@pytest.mark.parametrize("different", [1, HASHES_MAX, HASHES_MAX + 1, 20_000, 200_000])
@pytest.mark.parametrize("panes", [1, 5])
def test_different_values_are_counted_within_the_bound_and_as_the_theta_sketch_does(different: int, panes: int) -> None:
    kind = synopsis_kind(CALLS["count"], BIGINT)
    values = np.random.default_rng(different).permutation(np.concatenate((np.arange(different), np.arange(different))))
    parts = [fed(kind, Column(BIGINT, part), 5000) for part in np.array_split(values.astype(np.int64), panes)]
    found = answer(kind, BIGINT, *parts)
    if different <= HASHES_MAX:
        assert found == different
        return
    theta = datasketches.update_theta_sketch(12)
    for value in range(different):
        theta.update(value)
    assert abs(found - different) < 4 * 0.016 * different
    assert abs(found - theta.get_estimate()) < 8 * 0.016 * different


@pytest.mark.parametrize("shape", ["uniform", "normal", "heavy tail", "sorted", "few values"])
@pytest.mark.parametrize("panes", [1, 7])
def test_percentiles_lie_within_their_bound_of_rank(shape: str, panes: int) -> None:
    dice = np.random.default_rng(5)
    made = {
        "uniform": dice.random(30_000),
        "normal": dice.normal(size=30_000),
        "heavy tail": dice.pareto(1.1, 30_000),
        "sorted": np.arange(30_000, dtype=np.float64),
        "few values": dice.integers(0, 5, 30_000).astype(np.float64),
    }[shape]
    for fraction in (0.0, 0.01, 0.5, 0.9, 0.999, 1.0):
        kind = synopsis_kind(AggregateCall("approx_percentile", (0,), DOUBLE, options=(fraction,)), DOUBLE)
        found = answer(kind, DOUBLE, *[fed(kind, Column(DOUBLE, part), 999) for part in np.array_split(made, panes)])
        low, high = np.mean(made < found), np.mean(made <= found)
        assert low - BOUND <= fraction <= high + BOUND


@given(st.lists(st.floats(width=32), max_size=40), st.lists(st.floats(width=32), max_size=40), st.floats(0, 1))
@settings(max_examples=30, deadline=None)
def test_few_values_give_the_exact_percentile(left: list[float], right: list[float], fraction: float) -> None:
    kind = synopsis_kind(AggregateCall("approx_percentile", (0,), DOUBLE, options=(fraction,)), DOUBLE)
    panes = [fed(kind, Column(DOUBLE, np.array(part, dtype=np.float64)), 3) for part in (left, right)]
    found = answer(kind, DOUBLE, *panes)
    if not left + right:
        assert found is None
        return
    engine = SqlEngine(STREAM)
    engine.select(f"SELECT PERCENTILE_CONT(v, {fraction!r}) AS a FROM s [RANGE 1 SECOND SLIDE 1 SECOND]")
    engine.put("s", [(i, 0, v, None) for i, v in enumerate(left + right)])
    engine.end()
    engine.work()
    np.testing.assert_equal(found, engine.rows("q")[0][0])


def test_infinities_and_nan_keep_their_place_beyond_the_exact_values() -> None:
    values = np.concatenate((np.full(1000, -np.inf), np.linspace(0, 1, 2000), np.full(1000, np.inf), np.full(1000, np.nan)))
    column = Column(DOUBLE, np.random.default_rng(1).permutation(values))
    for fraction, expected in ((0.1, -np.inf), (0.4, 0.5), (0.7, np.inf), (0.9, np.nan)):
        kind = synopsis_kind(AggregateCall("approx_percentile", (0,), DOUBLE, options=(fraction,)), DOUBLE)
        np.testing.assert_allclose(answer(kind, DOUBLE, fed(kind, column, 100)), expected, atol=0.01)


@given(st.lists(st.lists(st.integers(0, 12), max_size=60), min_size=1, max_size=4), st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_few_different_values_give_the_exact_most_frequent(panes: list[list[int]], places: int) -> None:
    kind = synopsis_kind(AggregateCall("approx_top_k", (0,), list_of(BIGINT), options=(places,)), BIGINT)
    parts, first = [], 0
    for pane in panes:
        parts.append(fed(kind, Column(BIGINT, np.array(pane, dtype=np.int64)), 7, first))
        first += len(pane)
    exact = [v for v, _ in Counter(v for pane in panes for v in pane).most_common(places)]  # ties: the first to come
    assert answer(kind, list_of(BIGINT), *parts) == (exact or None)


@pytest.mark.parametrize("panes", [1, 6])
def test_values_more_frequent_than_the_bound_are_never_lost(panes: int) -> None:
    dice = np.random.default_rng(11)
    noise = np.arange(100, 100_100, dtype=np.int64)
    heavy = np.repeat(np.array([1, 2, 3], dtype=np.int64), [6000, 4000, 2000])
    values = dice.permutation(np.concatenate((noise, heavy)))
    assert len(values) / COUNTERS_MIN < 2000
    kind = synopsis_kind(AggregateCall("approx_top_k", (0,), list_of(BIGINT), options=(3,)), BIGINT)
    parts = [fed(kind, Column(BIGINT, part), 999) for part in np.array_split(values, panes)]
    assert answer(kind, list_of(BIGINT), *parts) == [1, 2, 3]


@given(st.lists(st.text(max_size=20), max_size=30), st.integers(0, 5))
@settings(max_examples=100, deadline=None)
def test_hashes_are_equal_just_where_texts_are(texts: list[str], skipped: int) -> None:
    long = ["x" * FOLDED_BYTES_MAX, "x" * (FOLDED_BYTES_MAX + 1), "y" + "x" * FOLDED_BYTES_MAX, "", "\0", "\0\0", "a\0", "a"]
    array = pa.array([*texts, *long, *texts], pa.string()).slice(skipped)
    hashes = hash_column(Column(TEXT, array)).tolist()
    assert len(set(hashes)) == len(set(array.to_pylist()))
    assert len(set(zip(hashes, array.to_pylist(), strict=True))) == len(set(hashes))


WINDOWS = [
    "[RANGE 40 MICROSECONDS SLIDE 20 MICROSECONDS]",
    "[RANGE 30 MICROSECONDS]",
    "[ROWS 20]",
    "[SESSION 3 MICROSECONDS]",
    "[LANDMARK] EMIT EVERY 50 MICROSECONDS",
]
EXACT = "COUNT(DISTINCT v) AS a, PERCENTILE_CONT(v, 0.3) AS b, COUNT(DISTINCT t) AS c"
APPROXIMATE = "APPROX_COUNT_DISTINCT(v) AS a, APPROX_PERCENTILE(v, 0.3) AS b, APPROX_COUNT_DISTINCT(t) AS c"


def rows_of(select: str, window: str, train: int) -> list[Any]:
    dice = np.random.default_rng(2)
    specials = [None, -0.0, 0.0, float("nan")]
    rows = [
        (i + int(dice.integers(3)), int(dice.integers(3)), specials[i % 4] if i % 3 else float(dice.integers(9)), str(dice.integers(5)))
        for i in range(200)
    ]
    engine = SqlEngine(STREAM, train=train)
    source, _, emit = window.partition(" EMIT")
    engine.select(f"SELECT k, {select} FROM s {source} GROUP BY k" + (f" EMIT{emit}" if emit else ""))
    engine.put("s", rows)
    engine.end()
    engine.work()
    return [tuple("nan" if v != v else v for v in row) for row in engine.rows("q")]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("train", [1, 64])
def test_in_every_window_few_values_are_answered_exactly(window: str, train: int) -> None:
    assert rows_of(APPROXIMATE, window, train) == rows_of(EXACT, window, 4096) != []


@pytest.mark.parametrize(
    ("call", "words"),
    [("APPROX_PERCENTILE(DISTINCT v, 0.5)", "DISTINCT in APPROX_PERCENTILE"), ("APPROX_TOP_K(v, 1001)", "at most 1000 values")],
)
def test_what_a_synopsis_cannot_do_is_refused(call: str, words: str) -> None:
    with pytest.raises(EngineError, match=words):
        SqlEngine(STREAM).select(f"SELECT {call} AS a FROM s")


def test_a_running_query_over_many_values_stays_within_its_bound() -> None:
    engine = SqlEngine(STREAM, train=4096)
    delta = engine.select(f"SELECT {APPROXIMATE}, APPROX_TOP_K(v, 2) AS d FROM s EMIT FINAL")
    operator = next(o.id for o in delta.operators if "aggregate" in o.kind)
    for first in range(0, 120_000, 20_000):
        engine.put("s", [(i, 0, float(i), str(i)) for i in range(first, first + 20_000)])
        engine.work()
    logic = engine.network.operators[operator].logic
    assert logic.state_bytes() < 2_000_000
    engine.end()
    engine.work()
    ((a, b, c, d),) = engine.rows("q")
    assert abs(a - 120_000) < 8000
    assert abs(c - 120_000) < 8000
    assert abs(b - 36_000) < 1200
    assert len(d) == 2
