"""Late rows of a query that meets a stream at several places are judged once, over all of them (K4)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.engine_run import SqlEngine

STREAM = "CREATE STREAM s (ts BIGINT, v INT) TIMESTAMP BY ts UNIT us DELAY {} MICROSECONDS"
WAYS = ((4096, 100), (1, 1), (7, 7), (4096, 3))


@dataclass(frozen=True)
class Branch:
    """A branch of the union: its text, the ends of a row's windows (None: it takes every row), the rows that its condition keeps."""

    sql: str
    ends: Callable[[int], list[int]] | None
    keeps: Callable[[int], bool]


def hopping_ends(size: int, slide: int) -> Callable[[int], list[int]]:
    return lambda ts: [start + size for start in range(ts // slide * slide, ts - size, -slide)]


def late_counts(branches: list[Branch], rows: list[tuple[int, int]], delay: int) -> tuple[int, int]:
    late = partly = 0
    watermark = -math.inf
    for ts, v in rows:
        reached = missed = False
        for branch in branches:
            if branch.keeps(v):
                open_ = [True] if branch.ends is None else [end > watermark for end in branch.ends(ts)]
                reached |= any(open_)
                missed |= not all(open_)
        late += missed and not reached
        partly += missed and reached
        watermark = max(watermark, ts - delay)
    return late, partly


@st.composite
def branch(draw: st.DrawFn) -> Branch:
    condition, keeps = draw(st.sampled_from([("", lambda v: True), (" WHERE v > 0", lambda v: v > 0), (" WHERE v <= 0", lambda v: v <= 0)]))
    kind = draw(st.sampled_from(["hopping", "hopping", "sliding", "selection"]))
    size = draw(st.integers(1, 9))
    if kind == "selection":
        return Branch(f"SELECT CAST(v AS BIGINT) AS x FROM s{condition}", None, keeps)
    if kind == "sliding":
        return Branch(f"SELECT COUNT(*) AS x FROM s [RANGE {size} MICROSECONDS]{condition}", lambda ts: [ts + 1], keeps)
    slide = draw(st.integers(1, size))
    window = f"[RANGE {size} MICROSECONDS SLIDE {slide} MICROSECONDS]"
    return Branch(f"SELECT COUNT(*) AS x FROM s {window}{condition}", hopping_ends(size, slide), keeps)


def counted(query: str, rows: list[tuple[int, int]], delay: int, train: int, chunk: int, sharing: bool) -> tuple[int, int]:
    engine = SqlEngine(STREAM.format(delay), train=train, sharing=sharing, shuffle=train if chunk > 1 else None)
    engine.select(query)
    for start in range(0, len(rows), chunk):
        engine.put("s", rows[start : start + chunk])
        engine.work()
    account = engine.account("q")["s"]  # quiescent, and the stream goes on: nothing may be undecided
    assert account.balances
    assert account.queued == 0
    assert sum(late.rows for _, _, late in engine.hooks.late_rows) == account.late
    return account.late, account.partly_late


@settings(max_examples=20, deadline=None)
@given(
    st.lists(branch(), min_size=2, max_size=3),
    st.integers(0, 4),
    st.lists(st.tuples(st.integers(-6, 6), st.integers(0, 1)), max_size=30),
    st.booleans(),
)
def test_a_row_is_late_once_when_no_branch_takes_it_and_partly_late_once_when_some_do(
    branches: list[Branch], delay: int, drawn: list[tuple[int, int]], sharing: bool
) -> None:
    now, rows = 0, []
    for step, v in drawn:
        now += step
        rows.append((now, v))
    query = " UNION ALL ".join(b.sql for b in branches)
    expected = late_counts(branches, rows, delay)
    for train, chunk in WAYS:
        assert counted(query, rows, delay, train, chunk, sharing) == expected, (query, rows, train, chunk)


def test_a_row_late_on_both_sides_of_a_self_join_is_late_once_and_not_when_a_selection_takes_it() -> None:
    query = "SELECT x.v FROM s x JOIN s y ON x.v = y.v WITHIN 2 MICROSECONDS UNION ALL SELECT v FROM s WHERE v > 5"
    assert counted(query, [(9, 1), (1, 7), (10, 1), (2, 1)], 0, 1, 1, False) == (1, 1)


@pytest.mark.parametrize("sharing", [True, False])
def test_a_condition_in_every_branch_does_not_make_a_lost_row_partly_late(sharing: bool) -> None:
    window = "[RANGE 10 MICROSECONDS SLIDE 10 MICROSECONDS]"
    query = f"SELECT COUNT(*) AS x FROM s {window} WHERE v > 0 UNION ALL SELECT COUNT(*) AS x FROM s {window} WHERE v <= 0"
    assert counted(query, [(1, 1), (30, 1), (2, 0), (3, 1)], 0, 4096, 1, sharing) == (2, 0)
