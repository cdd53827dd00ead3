"""Aggregates that never close: change logs, FINAL at the end, EVERY by event time, and aggregates over change logs."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.engine_run import SECOND, SqlEngine
from tests.support.trains import run_once

STREAM = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v BIGINT) TIMESTAMP BY ts"


def run(query: str, rows: list[Any], train: int = 4096, chunk: int = 3) -> list[Any]:
    return run_once([STREAM], query, {"s": rows}, train, chunk).rows("q")


def added_up(changes: list[Any]) -> Counter[Any]:
    state: Counter[Any] = Counter()
    for *row, op in changes:
        state[tuple(row)] += 1 if op == "+" else -1
        assert state[tuple(row)] >= 0
    return +state


ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=20)


@settings(max_examples=30, deadline=None)
@given(ROWS, st.sampled_from([1, 2, 4096]), st.integers(1, 5))
def test_a_change_log_adds_up_to_the_final_answer(drawn: list[Any], train: int, chunk: int) -> None:
    rows = [(i, k, v) for i, (k, v) in enumerate(drawn)]
    expected = Counter((k, sum(r[1] == k for r in rows), max(r[2] for r in rows if r[1] == k)) for k in {r[1] for r in rows})
    select = "SELECT k, COUNT(*) AS n, MAX(v) AS m FROM s GROUP BY k"
    assert added_up(run(select, rows, train, chunk)) == expected
    assert Counter(run(f"{select} EMIT FINAL", rows, train, chunk)) == expected


@settings(max_examples=30, deadline=None)
@given(ROWS, st.sampled_from([1, 4096]), st.integers(1, 5))
@example([(1, 0), (1, 0), (2, 0), (2, 0), (2, 0), (0, 0), (0, 0)], 4096, 1)  # two rows of key 1, of key 2 on the way, of key 0
def test_an_aggregate_over_a_change_log_follows_its_retractions(drawn: list[Any], train: int, chunk: int) -> None:
    rows = [(i, k, v) for i, (k, v) in enumerate(drawn)]
    counts = Counter(r[1] for r in rows)
    expected = Counter((n, sum(c == n for c in counts.values())) for n in set(counts.values()))
    query = "SELECT n, COUNT(*) AS groups FROM (SELECT k, COUNT(*) AS n FROM s GROUP BY k) GROUP BY n"
    assert added_up(run(query, rows, train, chunk)) == expected
    assert run(f"{query} EMIT FINAL", rows, train, chunk) == sorted(expected)  # by its keys, whatever was seen on the way


def test_early_results_by_event_time_and_the_final_answer_last() -> None:
    rows = [(t * SECOND, 0, 1) for t in (0, 5, 12)]
    found = run("SELECT COUNT(*) AS n FROM s [LANDMARK] EMIT EVERY 5 SECONDS", rows)
    assert [r[0] for r in found] == [1, 2, 3]
    for train in (1, 4096):
        assert run("SELECT COUNT(*) AS n FROM s [LANDMARK] EMIT EVERY 5 SECONDS", rows, train, 1) == found


def test_running_sums_of_big_integers_c21() -> None:
    rows = [(0, 0, 2**63 - 1), (1, 0, 1), (2, 0, -5)]
    found = run("SELECT SUM(v) AS s FROM s EMIT CHANGES", rows, chunk=1)
    assert [r[0] for r in found if r[1] == "+"] == [Decimal(2**63 - 1), Decimal(2**63), Decimal(2**63 - 5)]


def test_state_is_bounded_where_the_query_says_so_c41() -> None:
    engine = SqlEngine(STREAM)
    engine.select("SELECT k, COUNT(*) AS n FROM s [UNBOUNDED STATE 10 ROWS] GROUP BY k EMIT CHANGES")
    engine.put("s", [(i, i % 20, 0) for i in range(100)])
    engine.work()
    assert len(added_up([(r[0], r[1], r[-1]) for r in engine.rows("q")])) == 10
    assert engine.account("q")["s"].failed == 50
    assert engine.account("q")["s"].balances
