"""ROW_NUMBER, RANK and DENSE_RANK over windows give what DuckDB gives over the same rows, however they arrive and are cut."""

from __future__ import annotations

import json
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.errors import EngineError
from millstream.engine.plan.explain import explain_json
from millstream.engine.plan.plan import plan_select

from tests.support.engine_run import SqlEngine

STREAM = "CREATE STREAM s (ts TIMESTAMP, id BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY ts DELAY 20 MICROSECONDS"
WINDOW = "[RANGE 10 MICROSECONDS SLIDE 5 MICROSECONDS]"
RANKS = (
    "ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC, id) AS a, RANK() OVER (PARTITION BY window_end, k ORDER BY v) AS b, "
    "DENSE_RANK() OVER (ORDER BY v DESC NULLS LAST) AS c"
)
TRUTH = (
    "WITH w AS (SELECT *, (ts // 5 - back) * 5 AS b FROM s, range(2) AS r(back)) SELECT b, id, "
    "ROW_NUMBER() OVER (PARTITION BY b, k ORDER BY v DESC NULLS FIRST, id), RANK() OVER (PARTITION BY b, k ORDER BY v NULLS LAST), "
    "DENSE_RANK() OVER (PARTITION BY b ORDER BY v DESC NULLS LAST) FROM w"
)
row = st.tuples(st.integers(10, 60), st.integers(0, 2), st.sampled_from([None, -1.0, 0.0, -0.0, 2.0, float("nan")]))


def answered(query: str, rows: list[Any], train: int) -> list[Any]:
    engine = SqlEngine(STREAM, train=train)
    engine.select(query)
    engine.put("s", rows)
    engine.end()
    engine.work()
    return engine.rows("q")


@given(st.lists(row, max_size=25), st.sampled_from([1, 4096]))
@settings(max_examples=15, deadline=None)
def test_ranks_are_those_of_duckdb(found: list[Any], train: int) -> None:
    # Later by no more than the delay, so that no row is late.
    rows = [(ts, i, k, v) for i, (ts, k, v) in enumerate(sorted(found, key=lambda r: r[0] // 20))]
    ours = answered(f"SELECT window_start AS b, id, {RANKS} FROM s {WINDOW}", rows, train)
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE s (ts BIGINT, id BIGINT, k BIGINT, v DOUBLE)")
        if rows:
            connection.executemany("INSERT INTO s VALUES (?, ?, ?, ?)", rows)
        assert sorted(ours) == sorted(connection.execute(TRUTH).fetchall())


@pytest.mark.parametrize("train", [1, 3, 4096])
def test_the_first_of_each_window_come_in_order_of_window_partition_and_rank(train: int) -> None:
    rows = [(1, 0, 1, 5.0), (2, 1, 0, 7.0), (3, 2, 1, 6.0), (11, 3, 0, 1.0), (12, 4, 1, 9.0), (13, 5, 0, 1.0)]
    inner = "SELECT id, k, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM s [RANGE 10 MICROSECONDS SLIDE 10 MICROSECONDS]"
    assert answered(f"SELECT id, n FROM ({inner}) WHERE n <= 2", rows, train) == [(2, 1), (0, 2), (1, 1), (3, 1), (5, 2), (4, 1)]


@pytest.mark.parametrize(
    "source",
    [
        "SELECT window_end AS e, k, SUM(v) AS t FROM s [RANGE 10 MICROSECONDS SLIDE 10 MICROSECONDS] GROUP BY k",
        "SELECT window_start AS e, k, SUM(v) AS t FROM s [RANGE 10 MICROSECONDS SLIDE 10 MICROSECONDS] GROUP BY k",
    ],
)
@pytest.mark.parametrize("train", [1, 4096])
def test_groups_are_ranked_in_their_own_query_or_around_it(source: str, train: int) -> None:
    rows = [(i, i, i % 3, float(i * 7 % 5)) for i in range(40)]
    totals: dict[int, dict[int, float]] = {}
    for ts, _, k, v in rows:
        groups = totals.setdefault(ts // 10, {})  # in order of first arrival, which sorting keeps for ties
        groups[k] = groups.get(k, 0.0) + v
    expected = []
    for groups in totals.values():
        order = sorted(groups, key=lambda k, groups=groups: -groups[k])
        expected += [(k, groups[k], 1 + sum(groups[o] > groups[k] for o in order)) for k in order]
    around = f"SELECT k, t, RANK() OVER (PARTITION BY e ORDER BY t DESC) AS r FROM ({source})"
    own = source.replace("AS t FROM", "AS t, RANK() OVER (ORDER BY SUM(v) DESC) AS r FROM")
    assert answered(around, rows, train) == expected
    assert [row[1:] for row in answered(own, rows, train)] == expected


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT RANK() OVER (ORDER BY v) AS r FROM s", "RANK OVER .* without a window"),
        ("SELECT RANK() OVER (ORDER BY v) AS r FROM s [ROWS 5]", "RANK OVER .* without a window"),
        ("SELECT RANK() OVER (PARTITION BY ts ORDER BY v) AS r FROM s", "RANK OVER .* without a window"),
        (f"SELECT RANK() OVER (PARTITION BY k) AS r FROM s {WINDOW}", "needs an ORDER BY"),
        (f"SELECT RANK(v) OVER (ORDER BY v) AS r FROM s {WINDOW}", "takes no arguments"),
        (f"SELECT k, SUM(v) AS t FROM s {WINDOW} GROUP BY k HAVING RANK() OVER (ORDER BY SUM(v)) < 2", "OVER cannot stand in HAVING"),
        (f"SELECT k FROM s {WINDOW} WHERE RANK() OVER (ORDER BY v) < 2", "OVER can stand only in the select list"),
        (f"SELECT k, SUM(v) AS t, RANK() OVER (ORDER BY k) AS r FROM s {WINDOW} GROUP BY k EMIT CHANGES", "change log"),
        (f"SELECT k, RANK() OVER (ORDER BY v) AS r FROM s {WINDOW} GROUP BY k", "column v must be in GROUP BY"),
        (f"SELECT NTILE(4) OVER (ORDER BY v) AS r FROM s {WINDOW}", "NTILE OVER"),
        (f"SELECT LEAD(v) OVER (ORDER BY ts) AS r FROM s {WINDOW}", "LEAD OVER.*over the rows of a window.*the frame says which rows"),
    ],
)
def test_what_cannot_be_ranked_is_refused(query: str, words: str) -> None:
    with pytest.raises(EngineError, match=words):
        SqlEngine(STREAM).select(query)


@pytest.mark.parametrize("train", [1, 2, 4096])
def test_a_row_that_comes_when_its_window_is_answered_is_late(train: int) -> None:
    engine = SqlEngine("CREATE STREAM s (ts TIMESTAMP, v DOUBLE) TIMESTAMP BY ts", train=train)
    engine.select("SELECT v, ROW_NUMBER() OVER (ORDER BY v) AS r FROM s [RANGE 10 MICROSECONDS SLIDE 10 MICROSECONDS]")
    engine.put("s", [(1, 1.0), (12, 2.0), (3, 3.0), (13, 4.0)])
    engine.end()
    engine.work()
    assert engine.rows("q") == [(1.0, 1), (2.0, 1), (4.0, 2)]
    assert engine.account("q")["s"].late == 1


def test_a_plan_object_ranks_alike() -> None:
    engine = SqlEngine(STREAM)
    query = f"SELECT k, DENSE_RANK() OVER (PARTITION BY k ORDER BY v DESC) + 1 AS r FROM s {WINDOW}"
    planned = plan_select(query, engine.catalog)
    again = plan_select(json.loads(explain_json(planned)), engine.catalog)
    assert again.bound.root == planned.bound.root
