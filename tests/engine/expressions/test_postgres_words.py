"""Spellings that PostgreSQL's users bring along mean the same here; DuckDB and Python's calendar are the judges."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.errors import EngineError

from tests.support.engine_run import SqlEngine

STREAM = "CREATE STREAM s (ts TIMESTAMP(6), t VARCHAR(20), v INT8, c CHAR(3)) TIMESTAMP BY ts DELAY 100000 DAYS"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
instants = st.datetimes(datetime(1900, 1, 1), datetime(2150, 12, 31))


def evaluated(expression: str, rows: list[Any]) -> list[Any]:
    engine = SqlEngine(STREAM)
    engine.select(f"SELECT {expression} AS a FROM s")
    engine.put("s", rows)
    engine.end()
    engine.work()
    return [row[0] for row in engine.rows("q")]


def microseconds(moment: datetime) -> int:
    return (moment.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


@given(st.lists(st.tuples(instants, st.integers(-2000, 2000)), min_size=1, max_size=20))
@settings(max_examples=10, deadline=None)
def test_adding_months_keeps_the_day_or_takes_the_months_last(pairs: list[tuple[datetime, int]]) -> None:
    found = evaluated("ADD_MONTHS(ts, v)", [(microseconds(t), None, n, None) for t, n in pairs])
    with duckdb.connect() as connection:
        wanted = [connection.execute("SELECT epoch_us(?::TIMESTAMP + to_months(?))", [t, n]).fetchone() for t, n in pairs]
    assert found == [row[0] for row in wanted if row is not None]


@pytest.mark.parametrize("text", ["INTERVAL '1 month'", "INTERVAL '1' MONTH", "1 MONTH", "INTERVAL '1 year -11 months'"])
def test_a_calendar_interval_has_many_spellings(text: str) -> None:
    leap = microseconds(datetime(2024, 1, 31, 10))
    assert evaluated(f"ts + {text}", [(leap, None, 0, None)]) == [microseconds(datetime(2024, 2, 29, 10))]
    assert evaluated(f"ts - {text}", [(leap, None, 0, None)]) == [microseconds(datetime(2023, 12, 31, 10))]


@given(st.lists(instants, min_size=1, max_size=20), st.sampled_from(["UTC", "America/New_York", "Asia/Kathmandu"]))
@settings(max_examples=10, deadline=None)
def test_to_char_writes_what_strftime_does(moments: list[datetime], zone: str) -> None:
    pattern = 'YYYY-MM-DD HH24:MI:SS.US|HH12 AM|Dy DD Mon YY|DDD|IYYY-IW-ID|"day" DD'
    found = evaluated(f"TO_CHAR(ts, '{pattern}', '{zone}')", [(microseconds(m), None, 0, None) for m in moments])
    local = [m.replace(tzinfo=UTC).astimezone(ZoneInfo(zone)) for m in moments]
    assert found == [m.strftime("%Y-%m-%d %H:%M:%S.%f|%I %p|%a %d %b %y|%j|%G-%V-%u|day %d") for m in local]


OPERATORS = {
    "t ~ '^[ab]'": "regexp_matches(t, '^[ab]')",
    "t !~ 'b'": "NOT regexp_matches(t, 'b')",
    "t ~* 'B'": "regexp_matches(t, 'B', 'i')",
    "t !~* 'B' OR v > 3": "NOT regexp_matches(t, 'B', 'i') OR v > 3",
    "v ISNULL": "v ISNULL",
    "t NOTNULL": "t NOTNULL",
    "v & 6": "v & 6",
    "v | 9 & 3": "(v | 9) & 3",
    "v # 5": "xor(v, 5)",
    "v BETWEEN SYMMETRIC 5 AND 2": "v BETWEEN 2 AND 5",
    "v NOT BETWEEN SYMMETRIC 2 AND 5": "v NOT BETWEEN 2 AND 5",
    "CAST(t AS VARCHAR(2))": "left(t, 2)",
    "t::CHAR(1)": "left(t, 1)",
    "CAST(v AS SMALLINT) + CAST(v AS FLOAT8)": "v + v::DOUBLE",
}
ROWS: list[Any] = [(i, t, v, "x") for i, (t, v) in enumerate([("abc", 1), ("Bcd", -7), (None, 3), ("x", None), ("ä", 5), ("", 9)])]


@pytest.mark.parametrize("ours", list(OPERATORS))
def test_an_operator_is_postgresqls(ours: str) -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE s (ts BIGINT, t VARCHAR, v BIGINT, c VARCHAR)")
        connection.executemany("INSERT INTO s VALUES (?, ?, ?, ?)", ROWS)
        wanted = connection.execute(f"SELECT {OPERATORS[ours]} FROM s ORDER BY ts").fetchall()
    assert evaluated(ours, ROWS) == [row[0] for row in wanted]


def test_a_cast_to_fewer_digits_of_a_second_rounds() -> None:
    rows = [(us, None, 0, None) for us in (-1_500_000, -1, 0, 499_999, 500_000, 1_234_500, 1_234_499)]
    assert evaluated("CAST(ts AS TIMESTAMP(0))", rows) == [-1_000_000, 0, 0, 0, 1_000_000, 1_000_000, 1_000_000]
    assert evaluated("CAST(ts AS TIMESTAMP(3))", rows) == [-1_500_000, 0, 0, 500_000, 500_000, 1_235_000, 1_234_000]
    assert evaluated("CAST(ts AS TIMESTAMP(6))", rows) == [r[0] for r in rows]


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("NOW()", "must not depend on the clock"),
        ("CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP is not supported"),
        ("ts AT TIME ZONE 'UTC'", "AT TIME ZONE is not supported.*TO_CHAR"),
        ("TO_CHAR(ts, 'YYYY foo')", "does not know 'foo'"),
        ("TO_CHAR(v, '999')", "must be a TIMESTAMP or DATE"),
        ("INTERVAL '1 month'", "interval of months"),
        ("CAST(ts AS TIMESTAMP(2))", r"TIMESTAMP\(2\) in CAST"),
        ("CAST(ts AS TIMESTAMP(9))", "6 digits of a second"),
        ("CAST(t AS VARCHAR(0))", "must be positive"),
        ("v & 1.5", "the bits are those of integers"),
        ("FORMAT('%s', t)", r"\|\|"),
        ("v // 2", "// is not supported.*drops the fraction"),
    ],
)
def test_what_has_no_meaning_here_is_refused_by_name(expression: str, words: str) -> None:
    with pytest.raises(EngineError, match=words):
        evaluated(expression, [])
