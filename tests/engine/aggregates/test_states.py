"""States as such: what is folded in parts and merged is what is folded at once."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.aggregates.contract import FoldedRows
from millstream.engine.aggregates.moments import Moments
from millstream.engine.aggregates.sums import sums, totals
from millstream.engine.data.column import Column
from millstream.engine.data.types import BIGINT, DOUBLE, INT, DataType

from tests.support.engine_run import SqlEngine

CELLS = 3
TUMBLING, SESSION = "RANGE 4 MICROSECONDS SLIDE 4 MICROSECONDS", "SESSION 3 MICROSECONDS"
EXTREMES = st.sampled_from([-(2**63), 2**63 - 1, 2**62, -(2**62), 2**32, -1, 0]) | st.integers(-(2**63), 2**63 - 1)


def rows_of(type_: DataType, values: list[Any], cells: list[int], dtype: Any) -> FoldedRows:
    places = np.arange(len(values), dtype=np.int64)
    return FoldedRows(np.array(cells, dtype=np.int64), Column(type_, np.array(values, dtype=dtype)), lambda: (places, places))


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
