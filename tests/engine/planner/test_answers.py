"""Queries as text, planned and run, against DuckDB over the same rows; and every rewrite on or off gives the same rows (K15)."""

from __future__ import annotations

import datetime
import functools
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.schema import StreamDefinition
from millstream.engine.plan.plan import RULES

from tests.support.engine_run import Engine
from tests.support.plans import make_catalog, plan

CATALOG = make_catalog(
    "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE, name TEXT, i INT) TIMESTAMP BY ts DELAY 20 SECONDS;"
    "CREATE STREAM r (ts TIMESTAMP, k INT, w DOUBLE) TIMESTAMP BY ts DELAY 20 SECONDS;"
)
EPOCH = datetime.datetime(1970, 1, 1)
S = 1_000_000
Rows = list[tuple[Any, ...]]

times = st.integers(0, 19_999_999)
left_rows = st.lists(
    st.tuples(
        times,
        st.none() | st.integers(0, 3),
        st.none() | st.sampled_from([-1.5, 0.0, 1.0, 2.25, 7.0]),
        st.none() | st.sampled_from(["a", "b", "", "ab"]),
        st.integers(-3, 3),
    ),
    max_size=30,
)
right_rows = st.lists(st.tuples(times, st.none() | st.integers(0, 3), st.sampled_from([0.5, 1.0, 3.0])), max_size=30)


def run(text: str, left: Rows, right: Rows, off: str = "") -> Rows:
    """Answer the query; rows of both streams arrive in turns."""
    planned = plan(text, catalog=CATALOG, off=off)
    engine = Engine()
    for name in planned.streams:
        definition = CATALOG.relation(name)
        assert isinstance(definition, StreamDefinition)
        engine.network.create_stream(definition)
    engine.query("q", planned.physical.root)
    for at in range(0, max(len(left), len(right)), 7):
        for name, rows in (("s", left), ("r", right)):
            if name in planned.streams and rows[at : at + 7]:
                engine.put(name, rows[at : at + 7])
        engine.work()
    engine.end(*planned.streams)
    engine.work()
    return engine.rows("q")


@functools.cache
def database() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE s (ts TIMESTAMP, k BIGINT, v DOUBLE, name TEXT, i INT, n INT)")
    connection.execute("CREATE TABLE r (ts TIMESTAMP, k INT, w DOUBLE, n INT)")
    return connection


def oracle(text: str, left: Rows, right: Rows) -> Rows:
    connection = database()
    for name, rows in (("s", left), ("r", right)):
        connection.execute(f"DELETE FROM {name}")
        for number, row in enumerate(rows):
            values = (EPOCH + datetime.timedelta(microseconds=row[0]), *row[1:], number)
            connection.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(values))})", values)
    return [tuple(_stored(value) for value in row) for row in connection.execute(text).fetchall()]


def _stored(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return int((value - EPOCH) / datetime.timedelta(microseconds=1))
    return value


STATELESS = [
    "SELECT * EXCLUDE n FROM s",
    "SELECT k, v * 2 + i AS x FROM s WHERE v > 0 AND k <> 2",
    "SELECT UPPER(name) || '!' AS u, COALESCE(k, -1) AS c FROM s WHERE name LIKE 'a%' OR k IS NULL",
    "SELECT CASE WHEN v > 1 THEN 'high' WHEN v IS NULL THEN 'none' ELSE 'low' END AS c, i % 2 AS m FROM s WHERE i BETWEEN -2 AND 2",
    "SELECT k FROM (SELECT k + 1 AS k, v FROM s WHERE i > -2) x WHERE k > 1 AND v IS NOT NULL",
    "WITH big AS (SELECT k, v, ts FROM s WHERE v >= 1) SELECT ts, v FROM big WHERE k IN (1, 2) AND NOT (v = 7)",
    "SELECT EXTRACT(MINUTE FROM ts + INTERVAL '50' SECOND) AS m FROM s WHERE ts > TIMESTAMP '1970-01-01 00:00:05' AND k IS NOT NULL",
]


@pytest.mark.parametrize("text", STATELESS)
@given(rows=left_rows)
@settings(max_examples=8)
def test_selections_and_projections_agree_with_duckdb(text: str, rows: Rows) -> None:
    ours = run(text.replace(" EXCLUDE n", ""), rows, [])
    assert ours == oracle(text, rows, [])


JOINS = [
    ("SELECT s.k, i, w FROM s JOIN r ON s.k = r.k WITHIN 3 SECONDS", "abs(epoch_us(s.ts) - epoch_us(r.ts)) <= 3000000"),
    (
        "SELECT s.k, i, w FROM s JOIN r ON s.k = r.k AND r.ts > s.ts AND r.ts <= s.ts + INTERVAL '4' SECOND AND v > w "
        "WHERE i > -2 AND w < 3",
        "r.ts > s.ts AND r.ts <= s.ts + INTERVAL '4' SECOND AND v > w AND i > -2 AND w < 3",
    ),
    (
        "SELECT s.k, i, w FROM s [RANGE 2 SECONDS], r [RANGE 5 SECONDS] WHERE s.k = r.k AND i <> 0",
        "epoch_us(r.ts) - epoch_us(s.ts) < 2000000 AND epoch_us(s.ts) - epoch_us(r.ts) < 5000000 AND i <> 0",
    ),
]


@pytest.mark.parametrize(("text", "condition"), JOINS)
@given(left=left_rows, right=right_rows)
@settings(max_examples=8)
def test_windowed_joins_agree_with_duckdb(text: str, condition: str, left: Rows, right: Rows) -> None:
    expected = oracle(f"SELECT s.k, i, w FROM s JOIN r ON s.k = r.k WHERE {condition}", left, right)
    assert sorted(run(text, left, right), key=repr) == sorted(expected, key=repr)


def hopping(size_s: int, slide_s: int, select: str, tail: str) -> str:
    """The oracle's form of a hopping window: each row once per window it lies in."""
    windows = (
        f"(SELECT s.*, make_timestamp(CAST((b * {slide_s}) * 1000000 AS BIGINT)) AS window_start FROM s, "
        f"(SELECT unnest(range(-20, 40)) AS b) WHERE epoch_us(ts) >= b * {slide_s * S} AND epoch_us(ts) < b * {slide_s * S} + {size_s * S})"
    )
    return f"SELECT {select} FROM {windows} {tail}"


WINDOWED = [
    (5, 5, "k, COUNT(*) AS n, SUM(v) AS t", "WHERE i > -2", "GROUP BY window_start, k", ""),
    (6, 2, "window_start, COUNT(v) AS n, MIN(v) AS lo, MAX(name) AS hi", "", "GROUP BY window_start", ""),
    (4, 3, "k, AVG(v) AS m, COUNT(*) FILTER (WHERE name = 'a') AS f", "", "GROUP BY window_start, k", "HAVING COUNT(*) > 1"),
    (3, 5, "name, i % 2 AS odd, MAX(i) - MIN(i) AS span", "WHERE v IS NOT NULL", "GROUP BY window_start, name, i % 2", ""),
]


@pytest.mark.parametrize(("size", "slide", "select", "where", "group", "having"), WINDOWED)
@given(rows=left_rows)
@settings(max_examples=8)
def test_windowed_aggregates_agree_with_duckdb(size: int, slide: int, select: str, where: str, group: str, having: str, rows: Rows) -> None:
    text = f"SELECT {select} FROM s [RANGE {size} SECONDS SLIDE {slide} SECONDS] {where} {group} {having}"
    expected = oracle(hopping(size, slide, select, f"{where} {group} {having}"), rows, [])
    assert sorted(run(text, rows, []), key=repr) == sorted(expected, key=repr)


REWRITTEN = [
    *[text.replace(" EXCLUDE n", "") for text in STATELESS],
    *[text for text, _ in JOINS],
    "SELECT k FROM s WHERE v > 1 UNION ALL SELECT k FROM r WHERE w > 1",
    "SELECT k, COUNT(*) AS n FROM (SELECT k + 1 AS k, v FROM s WHERE i > -2) [RANGE 5 SECONDS SLIDE 2 SECONDS] "
    "WHERE v > 0 AND 1 = 1 GROUP BY k",
    "SELECT k FROM (SELECT k, COUNT(*) AS n, MAX(v) AS top FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS] GROUP BY k) WHERE n > 1 AND k > 0",
    "SELECT x.k, COUNT(*) FROM (SELECT s.k, v, w FROM s JOIN r ON s.k = r.k WITHIN 2 SECONDS WHERE v > 0 AND w < 3) x "
    "[RANGE 5 SECONDS SLIDE 5 SECONDS] WHERE w > 0.5e0 GROUP BY x.k",
]


@pytest.mark.parametrize("text", REWRITTEN)
@given(left=left_rows, right=right_rows, off=st.sampled_from(["all", *sorted(RULES)]))
@settings(max_examples=5)
def test_rewrites_on_or_off_give_the_same_rows(text: str, left: Rows, right: Rows, off: str) -> None:
    assert run(text, left, right) == run(text, left, right, off)
