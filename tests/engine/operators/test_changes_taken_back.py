"""EMIT CHANGES over sliding windows: each '-' is a '+' that was shown, to the last bit, however sums of DOUBLEs are put together."""

from __future__ import annotations

from collections import Counter

import millstream
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

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
