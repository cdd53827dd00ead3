"""Sessions kept as one state each: answers against a reference that keeps every row, early answers, state that follows W."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.operators.test_sliding_answers import KEYS, VALUES, answer, timed
from tests.support.engine_run import SqlEngine
from tests.support.reference_windows import same
from tests.support.trains import same_for_all_trains

STREAM = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE, i BIGINT) TIMESTAMP BY ts DELAY 3 MICROSECONDS"
ROWS = st.lists(st.tuples(st.integers(-6, 6), KEYS, VALUES, st.integers(-(2**63), 2**63 - 1) | st.none()), max_size=25)
SELECT = "k, COUNT(*) AS n, COUNT(v) AS c, SUM(v) AS s, MIN(v) AS lo, MAX(v) AS hi, SUM(i) AS big, window_start AS a, window_end AS b"


class Reference:
    """All rows that are not late, by key; sessions are split from them anew, save those that W has closed, which no row joins any more."""

    def __init__(self, gap: int) -> None:
        self.gap = gap
        self.kept: dict[Any, list[Any]] = {}
        self.closed: list[tuple[Any, list[Any]]] = []
        self.watermark = -math.inf

    def sessions(self, rows: list[Any]) -> list[list[Any]]:
        found: list[list[Any]] = []
        for entry in sorted(rows, key=lambda e: (e[1][0], e[0])):
            if found and entry[1][0] < found[-1][-1][1][0] + self.gap:
                found[-1].append(entry)
            else:
                found.append([entry])
        return found

    def take(self, arrival: int, row: Any) -> None:
        known = self.sessions(self.kept.pop(row[1], []))
        open_ = [s for s in known if s[-1][1][0] + self.gap > self.watermark]
        self.closed += [(row[1], s) for s in known if s not in open_]
        self.kept[row[1]] = [entry for s in open_ for entry in s]
        joins = any(s[0][1][0] - self.gap < row[0] < s[-1][1][0] + self.gap for s in open_)
        if joins or row[0] + self.gap > self.watermark:
            self.kept[row[1]].append((arrival, row))
        self.watermark = max(self.watermark, row[0] - 3)

    def by_key(self) -> list[tuple[Any, list[Any]]]:
        return [*self.closed, *self.kept.items()]

    def answers(self, below: float = math.inf) -> list[Any]:
        found = []
        for key, rows in self.by_key():
            for session in self.sessions([e for e in rows if e[1][0] < below]):
                start, end = session[0][1][0], session[-1][1][0] + self.gap
                first = min(a for a, _ in session)
                found.append((end, start, first, (key, *answer([r for _, r in session], False), start, end)))
        return sorted(found, key=lambda f: f[:3])


@settings(max_examples=8, deadline=None)
@given(ROWS, st.integers(1, 6))
def test_final_sessions_agree_with_a_reference_that_keeps_rows(drawn: list[Any], gap: int) -> None:
    rows = timed(drawn)
    found = same_for_all_trains([STREAM], f"SELECT {SELECT} FROM s [SESSION {gap} MICROSECONDS] GROUP BY k", {"s": rows})
    reference = Reference(gap)
    for arrival, row in enumerate(rows):
        reference.take(arrival, row)
    assert same(found, [f[3] for f in reference.answers()])


@settings(max_examples=8, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), KEYS, VALUES, st.none()), max_size=20), st.integers(1, 6), st.integers(1, 4))
def test_early_sessions_are_those_open_at_each_moment_by_the_rows_below_it(drawn: list[Any], gap: int, every: int) -> None:
    rows = timed(drawn)
    query = f"SELECT {SELECT} FROM s [SESSION {gap} MICROSECONDS] GROUP BY k EMIT EVERY {every} MICROSECONDS"
    found = same_for_all_trains([STREAM], query, {"s": rows})
    reference = Reference(gap)
    for arrival, row in enumerate(rows):
        reference.take(arrival, row)
    expected = [(f[0], 0, i, f[3]) for i, f in enumerate(reference.answers())]
    if rows:
        for moment in (m for m in range(rows[0][0], rows[-1][0] + 1) if m % every == 0):
            early = [f for f in reference.answers(moment) if f[0] > moment]
            expected += [(moment, 1, i, f[3]) for i, f in enumerate(early)]
    assert same(found, [e[3] for e in sorted(expected, key=lambda e: e[:3])])


def test_an_open_session_is_one_state_however_many_rows_it_has() -> None:
    engine = SqlEngine(STREAM)
    delta = engine.select("SELECT k, SUM(v) AS s FROM s [SESSION 10 MICROSECONDS] GROUP BY k")
    logic = next(engine.network.operators[o.id].logic for o in delta.operators if o.kind == "aggregate")
    for start in range(0, 4_000, 500):
        engine.put("s", [(i, i % 5, 1.0, 1) for i in range(start, start + 500)])
        engine.work()
        assert logic.state_rows() <= 5 + 3 + 1
    engine.end()
    engine.work()
    assert [r[1] for r in engine.rows("q")] == [800.0] * 5
    assert logic.state_rows() == 0


def test_keys_whose_sessions_have_closed_leave_nothing_behind() -> None:
    engine = SqlEngine(STREAM)
    delta = engine.select("SELECT k, COUNT(*) AS n FROM s [SESSION 10 MICROSECONDS] GROUP BY k")
    logic = next(engine.network.operators[o.id].logic for o in delta.operators if o.kind == "aggregate")
    for start in range(0, 20_000, 1_000):
        engine.put("s", [(i, i, 1.0, 1) for i in range(start, start + 1_000)])
        engine.work()
        assert logic.state_rows() <= 10 + 3 + 1
    assert logic.state_bytes() - logic._encoder.nbytes() < 200_000
