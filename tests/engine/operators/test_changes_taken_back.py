"""EMIT CHANGES over sliding windows: each '-' is a '+' that was shown, to the last bit, however sums of DOUBLEs are put together."""

from __future__ import annotations

import decimal as decimals
import math
from collections import Counter
from typing import Any

import millstream
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from millstream.engine.data.arrow import arrow_type, column_from_arrow
from millstream.engine.data.column import Column
from millstream.engine.data.types import BIGINT, BOOLEAN, BYTES, DOUBLE, TEXT, decimal
from millstream.engine.expressions.strings import as_list
from millstream.engine.operators.changes import Changes, equal_values

AGGREGATES = "GEOMEAN(v) AS g, SUM(v) AS s, STDDEV_SAMP(v) AS d"
WINDOWS = {
    "time": f"SELECT k, {AGGREGATES} FROM s [RANGE 5 SECONDS] GROUP BY k EMIT CHANGES",
    "rows": f"SELECT k, {AGGREGATES} FROM s [ROWS 4] GROUP BY k EMIT CHANGES",
    "rows of each": f"SELECT k, {AGGREGATES} FROM s [PARTITION BY k ROWS 3] GROUP BY k EMIT CHANGES",
    "every third row": f"SELECT k, {AGGREGATES} FROM s [ROWS 6 SLIDE 3] GROUP BY k EMIT CHANGES",
}
ROWS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1), st.none() | st.floats(1e-3, 1e6, allow_nan=False)), min_size=1, max_size=40)


@pytest.mark.parametrize("query", WINDOWS.values(), ids=WINDOWS.keys())
@given(drawn=ROWS)
@example(drawn=[(11, 0, 256 / 7), (2, 0, 458 / 7), (1, 0, 2776 / 7), (5, 0, None)])
@settings(max_examples=25, deadline=None)
def test_what_is_taken_back_was_shown(query: str, drawn: list[tuple[int, int, float | None]]) -> None:
    now, rows = 100, []
    for step, key, value in drawn:
        now += step
        rows.append({"ts": now, "k": key, "v": value})
    table = pa.Table.from_pylist(rows, pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.float64())]))
    found = millstream.run(f"CREATE STREAM s (ts BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY ts UNIT s; {query};", s=table).rows()
    shown: Counter[str] = Counter()
    for row in found:
        kind = row.pop("op")
        shown[repr(row)] += 1 if kind == "+" else -1
        assert shown[repr(row)] >= 0, row


VALUES: dict[Any, Any] = {
    TEXT: st.sampled_from(["", "a", "é"]),
    BYTES: st.sampled_from([b"", b"a"]),
    BIGINT: st.integers(0, 1),
    BOOLEAN: st.booleans(),
    DOUBLE: st.sampled_from([0.0, -0.0, math.nan, 1.5]),
    decimal(30, 2): st.sampled_from([decimals.Decimal("0.00"), decimals.Decimal("1.50")]),
}


@given(st.sampled_from(list(VALUES)), st.data())
def test_values_are_equal_as_keys_are(type_: Any, data: Any) -> None:
    pairs = data.draw(st.lists(st.tuples(st.none() | VALUES[type_], st.none() | VALUES[type_]), max_size=9))
    left, right = (column_from_arrow(pa.array([pair[i] for pair in pairs], arrow_type(type_)), type_) for i in (0, 1))
    assert equal_values(left, right).tolist() == [a == b or (a is not None and b is not None and a != a and b != b) for a, b in pairs]


@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), *[st.sampled_from(["a", "b", None])] * 2, *[st.integers(0, 1)] * 2), max_size=12),
    st.data(),
)
def test_what_is_equal_then_and_now_does_not_change(groups: list[Any], data: Any) -> None:
    was, is_ = (np.array([group[i] for group in groups], dtype=np.bool_) for i in (0, 1))
    before = [(group[2], group[4]) for group in groups if group[0]]
    after = [(group[3], group[5]) for group in groups if group[1]]
    columns = [
        [Column(TEXT, pa.array([r[0] for r in rows], pa.string())), Column(BIGINT, np.array([r[1] for r in rows], dtype=np.int64))]
        for rows in (before, after)
    ]
    changes = Changes(*columns, was, is_)
    keys = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(changes.groups), max_size=len(changes.groups))), dtype=np.int64)
    found, named = changes.ordered(keys)
    minus = [(i, *g[2::2], "-") for i, g in enumerate(groups) if g[0] and not (g[1] and (g[2], g[4]) == (g[3], g[5]))]
    plus = [(i, *g[3::2], "+") for i, g in enumerate(groups) if g[1] and not (g[0] and (g[2], g[4]) == (g[3], g[5]))]
    ordered = sorted(zip(keys.tolist(), minus + plus, strict=True), key=lambda one: (one[0], one[1][-1] == "+"))
    assert list(zip(named.tolist(), *(as_list(column) for column in found), strict=True)) == [row for _, row in ordered]
