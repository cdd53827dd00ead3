"""Sessions: against a naive reference row by row, and the cases from the field."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.engine_run import SqlEngine

STREAM = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v BIGINT) TIMESTAMP BY ts DELAY {} MICROSECONDS"


class SessionReference:
    """Keeps the rows of open sessions per key and splits them anew at each row."""

    def __init__(self, gap: int, longest: int | None, delay: int) -> None:
        self.gap, self.longest, self.delay = gap, longest, delay
        self.watermark = -math.inf
        self.rows: dict[int, list[tuple[int, int]]] = {}
        self.late = 0
        self.answers: list[tuple[int, int, int, int]] = []

    def sessions(self, rows: list[tuple[int, int]]) -> list[tuple[int, int, list[tuple[int, int]]]]:
        found: list[list[tuple[int, int]]] = []
        for row in sorted(rows):
            last = found[-1] if found else None
            joins = last is not None and row[0] < last[-1][0] + self.gap
            if joins and self.longest is not None:
                chain_cut = row[0] >= last[0][0] + self.longest  # type: ignore[index]
                joins = not chain_cut
            if joins:
                found[-1].append(row)
            else:
                found.append([row])
        limit = math.inf if self.longest is None else self.longest
        return [(r[0][0], int(min(r[-1][0] + self.gap, r[0][0] + limit)), r) for r in found]

    def row(self, order: int, ts: int, key: int) -> None:
        rows = [*self.rows.get(key, []), (ts, order)]
        own = next(s for s in self.sessions(rows) if (ts, order) in s[2])
        if own[1] <= self.watermark:
            self.late += 1
        else:
            self.rows[key] = rows
        self.advance(max(self.watermark, ts - self.delay))

    def advance(self, watermark: float) -> None:
        self.watermark = watermark
        closed = []
        for key, rows in self.rows.items():
            split = self.sessions(rows)
            closed.extend((end, start, min(o for _, o in r), key, len(r)) for start, end, r in split if end <= watermark)
            self.rows[key] = [row for _, end, r in split if end > watermark for row in r]
        self.answers.extend((key, n, start, end) for end, start, _, key, n in sorted(closed))


def run(gap: int, longest: int | None, delay: int, rows: list[Any], train: int = 4096, chunk: int = 100) -> tuple[list[Any], Any]:
    engine = SqlEngine(STREAM.format(delay), train=train)
    cut = f" MAX {longest} MICROSECONDS" if longest is not None else ""
    engine.select(
        f"SELECT k, COUNT(*) AS n, window_start AS a, window_end AS b FROM s [SESSION {gap} MICROSECONDS{cut}] GROUP BY k"
    )
    for start in range(0, len(rows), chunk):
        engine.put("s", rows[start : start + chunk])
        engine.work()
    engine.end()
    engine.work()
    assert engine.account("q")["s"].balances
    return engine.rows("q"), engine.account("q")["s"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-6, 7), st.integers(0, 1)), max_size=25),
    st.integers(1, 5),
    st.none() | st.integers(1, 8),
    st.integers(0, 5),
    st.sampled_from([1, 4096]),
    st.sampled_from([1, 4, 100]),
)
def test_any_sessions_agree_with_the_reference(
    drawn: list[Any], gap: int, longest: int | None, delay: int, train: int, chunk: int
) -> None:
    now, rows = 0, []
    for step, k in drawn:
        now += step
        rows.append((now, k, 0))
    reference = SessionReference(gap, longest, delay)
    for i, (ts, k, _) in enumerate(rows):
        reference.row(i, ts, k)
    reference.advance(math.inf)
    found, account = run(gap, longest, delay, rows, train, chunk)
    assert found == reference.answers
    assert account.late == reference.late


@pytest.mark.parametrize("chunk", [1, 2])
def test_touching_sessions_stay_two_c12(chunk: int) -> None:
    found, _ = run(2, None, 0, [(1, 0, 0), (3, 0, 0)], chunk=chunk)
    assert found == [(0, 1, 1, 3), (0, 1, 3, 5)]


def test_a_late_row_opens_no_ghost_session_c13() -> None:
    found, account = run(5, None, 0, [(0, 0, 0), (20, 0, 0), (2, 0, 0), (21, 0, 0)])
    assert found == [(0, 1, 0, 5), (0, 2, 20, 26)]
    assert account.late == 1


def test_sessions_without_an_aggregate_give_each_row_once_closed() -> None:
    engine = SqlEngine(STREAM.format(0))
    engine.select("SELECT v, window_start AS a, window_end AS b FROM s [SESSION 5 MICROSECONDS]")
    engine.put("s", [(0, 0, 1), (2, 0, 2), (20, 0, 3)])
    engine.work()
    assert engine.rows("q") == [(1, 0, 7), (2, 0, 7)]
