"""States as such: what is folded in parts and merged is what is folded at once."""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.aggregates.arg_extremes import ArgExtreme
from millstream.engine.aggregates.contract import FoldedRows, RowPlaces
from millstream.engine.aggregates.ends import End
from millstream.engine.aggregates.moments import Moments
from millstream.engine.aggregates.sums import sums, totals
from millstream.engine.data.arrow import arrow_type
from millstream.engine.data.column import Column
from millstream.engine.data.types import BIGINT, DOUBLE, INT, TEXT, DataType, struct_of

from tests.support.engine_run import SqlEngine

CELLS = 3
TUMBLING, SESSION = "RANGE 4 MICROSECONDS SLIDE 4 MICROSECONDS", "SESSION 3 MICROSECONDS"
EXTREMES = st.sampled_from([-(2**63), 2**63 - 1, 2**62, -(2**62), 2**32, -1, 0]) | st.integers(-(2**63), 2**63 - 1)


def rows_of(type_: DataType, values: list[Any], cells: list[int], dtype: Any) -> FoldedRows:
    places = np.arange(len(values), dtype=np.int64)
    return FoldedRows(RowPlaces(np.array(cells, dtype=np.int64), lambda: (places, places)), Column(type_, np.array(values, dtype=dtype)))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(EXTREMES, st.integers(0, CELLS - 1)), max_size=20), st.integers(0, 20))
def test_sums_of_integers_are_exact_however_large_they_are(drawn: list[tuple[int, int]], cut: int) -> None:
    parts = []
    for part in (drawn[:cut], drawn[cut:]):
        states = [kind.fresh(CELLS) for kind in sums(BIGINT)]
        for kind, state in zip(sums(BIGINT), states, strict=True):
            kind.fold(state, rows_of(BIGINT, [v for v, _ in part], [c for _, c in part], np.int64))
        parts.append(states)
    merged = [kind.merge(left, right) for kind, left, right in zip(sums(BIGINT), *parts, strict=True)]
    assert [int(t) for t in totals(merged)] == [sum(v for v, c in drawn if c == cell) for cell in range(CELLS)]


def test_sums_of_32_bits_need_no_second_state() -> None:
    (kind,) = sums(INT)
    states = kind.fresh(1)
    kind.fold(states, rows_of(INT, [2**31 - 1] * 5, [0] * 5, np.int32))
    assert totals([states]).tolist() == [5 * (2**31 - 1)]


@pytest.mark.parametrize(
    "window", ["RANGE 4 MICROSECONDS SLIDE 4 MICROSECONDS", "RANGE 4 MICROSECONDS", "SESSION 3 MICROSECONDS", "ROWS 4"]
)
def test_a_window_sums_beyond_64_bits_and_comes_back(window: str) -> None:
    engine = SqlEngine("CREATE STREAM s (ts TIMESTAMP, n BIGINT) TIMESTAMP BY ts")
    engine.select(f"SELECT SUM(n) AS total, AVG(n) AS mean FROM s [{window}]")
    values = [2**63 - 1] * 4 + [-(2**63)] * 4 + [1, 2, 3, 4]
    for ts, value in enumerate(values):
        engine.put("s", [(ts if ts < 8 else 100 + ts, value)])
        engine.work()
    engine.end()
    engine.work()
    found = [int(total) for total, _ in engine.rows("q")]
    expected = {
        TUMBLING: [4 * (2**63 - 1), -4 * 2**63, 10],
        SESSION: [-4, 10],
    }.get(window, [sum(values[max(0, i - 3) : i + 1]) for i in range(8)])
    assert found[: len(expected)] == expected
    assert found[-1] == 10


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.lists(st.integers(1, 29), max_size=4))
def test_moments_folded_in_parts_have_the_same_bits_and_merged_the_same_value(values: list[float], cuts: list[int]) -> None:
    kind = Moments()
    bounds = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    whole, in_turn, merged = kind.fresh(1), kind.fresh(1), kind.fresh(1)
    kind.fold(whole, rows_of(DOUBLE, values, [0] * len(values), np.float64))
    for start, stop in itertools.pairwise(bounds):
        rows, part = rows_of(DOUBLE, values[start:stop], [0] * (stop - start), np.float64), kind.fresh(1)
        kind.fold(in_turn, rows)
        kind.fold(part, rows)
        merged = kind.merge(merged, part)
    assert in_turn.tobytes() == whole.tobytes()
    exact = [Fraction(v) for v in values]
    mean = sum(exact) / len(exact)
    spread = float(sum((v - mean) ** 2 for v in exact))
    for state in (whole, merged):
        assert state["count"][0] == len(values)
        assert state["spread"][0] == pytest.approx(spread, rel=1e-12, abs=1e-18)


MOMENTS = st.integers(0, 4)
NUMBERS = st.sampled_from([-1.5, -0.0, 0.0, 2.0, float("inf"), float("nan")])
FAR = 3_000  # a cell so far from the others that rows are sorted by cell instead of laid out
DRAWN = st.lists(st.tuples(st.sampled_from([0, 1, 2, FAR]), MOMENTS, NUMBERS, st.booleans()), max_size=25)


def folded_in_parts(kind: Any, cells: list[int], times: list[int], column: Column, cuts: list[int]) -> Any:
    """Fold rows part by part, each part with what the cells hold by then."""
    states = kind.fresh(FAR + 1)
    bounds = [0, *sorted(min(cut, len(cells)) for cut in cuts), len(cells)]
    for start, stop in itertools.pairwise(bounds):
        order = np.array(times[start:stop], dtype=np.int64), np.arange(start, stop, dtype=np.int64)
        places = RowPlaces(np.array(cells[start:stop], dtype=np.int64), partial(tuple, order))
        kind.fold(states, FoldedRows(places, column, np.arange(start, stop, dtype=np.int64)))
    return states


@settings(max_examples=150, deadline=None)
@given(DRAWN, st.lists(st.integers(0, 24), max_size=3), st.booleans(), st.booleans())
def test_ends_are_those_by_time_and_then_by_arrival(drawn: Any, cuts: list[int], last: bool, rising: bool) -> None:
    drawn = sorted(drawn, key=lambda row: row[1]) if rising else drawn
    texts = [str(place) if valid else None for place, (_, _, _, valid) in enumerate(drawn)]
    column = Column(TEXT, pa.array(texts, type=pa.string()))
    states = folded_in_parts(End("O", last), [row[0] for row in drawn], [row[1] for row in drawn], column, cuts)
    for cell in {row[0] for row in drawn}:
        place = (max if last else min)((row[1], place) for place, row in enumerate(drawn) if row[0] == cell)[1]
        state = states[cell]
        assert (state["has"], state["valid"], state["ordinal"], state["time"]) == (True, drawn[place][3], place, drawn[place][1])
        assert state["value"] == texts[place]


@settings(max_examples=150, deadline=None)
@given(DRAWN, st.lists(st.integers(0, 24), max_size=3), st.booleans(), st.booleans(), st.booleans())
def test_the_best_row_has_a_nan_or_the_extreme_and_is_the_earliest_such(
    drawn: Any, cuts: list[int], greatest: bool, rising: bool, as_text: bool
) -> None:
    drawn = sorted(drawn, key=lambda row: row[1]) if rising else drawn
    y = [str(row[2]) if as_text else row[2] for row in drawn]
    pairs = [{"x": place, "y": one} for place, one in enumerate(y)]
    type_ = struct_of([("x", BIGINT), ("y", TEXT if as_text else DOUBLE)])
    column = Column(type_, pa.array(pairs, type=arrow_type(type_)))
    kind = ArgExtreme("O" if as_text else "<f8", "<i8", greatest)
    states = folded_in_parts(kind, [row[0] for row in drawn], [row[1] for row in drawn], column, cuts)
    for cell in {row[0] for row in drawn}:
        rows = [place for place, row in enumerate(drawn) if row[0] == cell]
        nans = [place for place in rows if y[place] != y[place]]
        best = nans or [place for place in rows if y[place] == (max if greatest else min)(y[one] for one in rows)]
        earliest = min(best, key=lambda place: (drawn[place][1], place))
        assert (states[cell]["has"], states[cell]["value"], states[cell]["ordinal"]) == (True, earliest, earliest)


@settings(max_examples=60, deadline=None)
@given(DRAWN.filter(bool), st.booleans())
def test_merging_pairs_of_best_rows_agrees_with_folding_them(drawn: Any, greatest: bool) -> None:
    kind = ArgExtreme("<f8", "<i8", greatest)
    type_ = struct_of([("x", BIGINT), ("y", DOUBLE)])
    column = Column(type_, pa.array([{"x": place, "y": row[2]} for place, row in enumerate(drawn)], type=arrow_type(type_)))
    cut = len(drawn) // 2
    times, cells = [row[1] for row in drawn], [row[0] for row in drawn]
    whole = folded_in_parts(kind, cells, times, column, [])
    halves = []
    for start, stop in ((0, cut), (cut, len(drawn))):
        half = kind.fresh(FAR + 1)
        order = np.array(times[start:stop], dtype=np.int64), np.arange(start, stop, dtype=np.int64)
        kind.fold(
            half, FoldedRows(RowPlaces(np.array(cells[start:stop], dtype=np.int64), partial(tuple, order)), column.slice(start, stop))
        )
        halves.append(half)
    used = np.unique(cells)
    merged = kind.merge(halves[0][used], halves[1][used])
    assert merged["value"].tolist() == whole["value"][used].tolist()
