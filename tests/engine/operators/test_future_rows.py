"""Rows too far in the future (SKEW) do not move W (C07), wherever they stand in a train: against a naive reading, for any trains."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.trains import same_for_all_trains

SKEW, DELAY = 10, 2  # µs; the clock stands at 0
CREATE = [
    f"CREATE STREAM {name} (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts DELAY {DELAY} MICROSECONDS SKEW {SKEW} MICROSECONDS" for name in "ab"
]
ROWS = st.lists(st.tuples(st.one_of(st.integers(-20, 10), st.integers(11, 40)), st.integers(1, 2)), max_size=12)


def counted(rows: list[tuple[int, int]], size: int, slide: int) -> list[tuple[int, int]]:
    """(end, rows) of each window in order of its end, rows that its end had passed left out."""
    windows: Counter[int] = Counter()
    newest = None
    for time, _ in rows:
        first = (time - size) // slide + 1
        for end in (n * slide + size for n in range(first, time // slide + 1)):
            if newest is None or end > newest - DELAY:
                windows[end] += 1
        if time <= SKEW:
            newest = time if newest is None else max(newest, time)
    return sorted(windows.items())


@settings(max_examples=60, deadline=None)
@given(ROWS, st.sampled_from([(5, 5), (7, 3), (2, 4)]))
@example([(30, 1), (25, 1)], (5, 5))  # before any row that counts: W has no beginning yet
@example([(30, 1), (25, 1), (3, 1)], (5, 5))
def test_windows_count_rows_from_the_future_in_whatever_order_they_come(rows: list[tuple[int, int]], window: tuple[int, int]) -> None:
    query = f"SELECT window_end, COUNT(*) AS n FROM a [RANGE {window[0]} MICROSECONDS SLIDE {window[1]} MICROSECONDS]"
    assert same_for_all_trains(CREATE, query, {"a": rows}) == counted(rows, *window)


QUERIES = (
    "SELECT k, FIRST(ts) AS f, COUNT(*) AS n FROM a [RANGE 6 MICROSECONDS SLIDE 2 MICROSECONDS] GROUP BY k",
    "SELECT window_end, COUNT(*) AS n FROM a [RANGE 6 MICROSECONDS SLIDE 6 MICROSECONDS] EMIT EVERY 2 MICROSECONDS",
    "SELECT k, window_start, COUNT(*) AS n FROM a [SESSION 3 MICROSECONDS] GROUP BY k",
    "SELECT COUNT(*) AS n FROM a [RANGE 4 MICROSECONDS]",
    "SELECT k, COUNT(*) AS n FROM a [PARTITION BY k ROWS 2] GROUP BY k",
    "SELECT x.ts AS p, y.ts AS q FROM a x JOIN b y ON x.k = y.k WITHIN 3 MICROSECONDS",
    "SELECT x.ts AS p, y.ts AS q FROM a x LEFT JOIN b y ON x.k = y.k WITHIN 3 MICROSECONDS",
    "SELECT a.ts AS p, b.ts AS q FROM a LEFT ASOF JOIN b ON a.k = b.k",
    "SELECT ts, LAG(ts) OVER (PARTITION BY k) AS before FROM a",
)


@pytest.mark.parametrize("query", QUERIES)
@settings(max_examples=12, deadline=None)
@given(ROWS, ROWS)
@example([(30, 1), (25, 1), (28, 1)], [(29, 1), (24, 1)])
def test_what_else_waits_for_w_is_the_same_for_any_trains(query: str, rows: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    same_for_all_trains(CREATE, query, {"a": rows, "b": others})
