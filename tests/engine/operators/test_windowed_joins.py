"""Joins of windowed items (K2): against all pairs, for any trains."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.engine_run import SqlEngine
from tests.support.trains import same_for_all_trains

US = "MICROSECONDS"
CREATE = [f"CREATE STREAM {name} (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts DELAY 100 {US}" for name in "ab"]
ROWS = st.lists(st.tuples(st.integers(-9, 12), st.integers(0, 2) | st.none()), max_size=14)


def pairs(left: list[Any], right: list[Any], meets: Any) -> list[Any]:
    return sorted((x[0], y[0]) for x in left for y in right if meets(x, y))


def equal(x: Any, y: Any) -> bool:
    return x[1] is not None and x[1] == y[1]


CASES = {
    f"SELECT a.ts, b.ts AS u FROM a [RANGE 4 {US}] JOIN b ON a.k = b.k": lambda x, y: equal(x, y) and y[0] - x[0] < 4,
    f"SELECT a.ts, b.ts AS u FROM a JOIN b [RANGE 4 {US}] ON a.k = b.k": lambda x, y: equal(x, y) and x[0] - y[0] < 4,
    "SELECT a.ts, b.ts AS u FROM a [NOW] JOIN b ON a.k = b.k": lambda x, y: equal(x, y) and y[0] <= x[0],
    "SELECT a.ts, b.ts AS u FROM a [NOW] JOIN b [NOW] ON a.k = b.k": lambda x, y: equal(x, y) and y[0] == x[0],
    f"SELECT a.ts, b.ts AS u FROM a [UNBOUNDED] JOIN b [RANGE 3 {US}] ON a.k = b.k": lambda x, y: equal(x, y) and x[0] - y[0] < 3,
    "SELECT a.ts, b.ts AS u FROM a [UNBOUNDED] JOIN b [UNBOUNDED] ON a.k = b.k": equal,
    f"SELECT a.ts, b.ts AS u FROM a [RANGE 5 {US}], b [RANGE 2 {US}] WHERE a.k = b.k": lambda x, y: equal(x, y) and -2 < y[0] - x[0] < 5,
    f"SELECT a.ts, b.ts AS u FROM a CROSS JOIN b WITHIN 2 {US}": lambda x, y: abs(x[0] - y[0]) <= 2,
    f"SELECT a.ts, b.ts AS u FROM a [RANGE 3 {US}] CROSS JOIN b [RANGE 3 {US}]": lambda x, y: abs(x[0] - y[0]) < 3,
}


@pytest.mark.parametrize("query", CASES)
@settings(max_examples=4, deadline=None)
@given(left=ROWS, right=ROWS)
def test_rows_pair_while_the_older_is_in_its_window(query: str, left: list[Any], right: list[Any]) -> None:
    found = same_for_all_trains(CREATE, query, {"a": left, "b": right})
    assert sorted(found) == pairs(left, right, CASES[query])


@settings(max_examples=4, deadline=None)
@given(left=ROWS, right=ROWS)
def test_an_outer_join_of_tumbling_windows_pads_within_each_window(left: list[Any], right: list[Any]) -> None:
    window = f"[RANGE 5 {US} SLIDE 5 {US}]"
    found = same_for_all_trains(
        CREATE, f"SELECT a.ts, b.ts AS u FROM a {window} LEFT JOIN b {window} ON a.k = b.k", {"a": left, "b": right}
    )
    expected = [(x[0], y[0]) for x in left for y in right if equal(x, y) and x[0] // 5 == y[0] // 5]
    alone = [(x[0], None) for x in left if not any(equal(x, y) and x[0] // 5 == y[0] // 5 for y in right)]
    assert sorted(found, key=repr) == sorted(expected + alone, key=repr)


def test_tumbling_windows_of_a_zone_pair_rows_of_one_local_day() -> None:
    hour = 3_600_000_000
    window = "[RANGE 1 DAY SLIDE 1 DAY TIME ZONE 'America/New_York']"
    create = [f"CREATE STREAM {name} (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts" for name in "ab"]
    base = 494_412 * hour  # 2026-05-27T12:00Z, 08:00 there
    left, right = [(base - 10 * hour, 1), (base, 1)], [(base - 7 * hour, 1), (base + 15 * hour, 1), (base + 17 * hour, 1)]
    found = same_for_all_trains(create, f"SELECT a.ts, b.ts AS u FROM a {window} JOIN b {window} ON a.k = b.k", {"a": left, "b": right})
    assert found == [(base, base - 7 * hour), (base, base + 15 * hour)]


@settings(max_examples=4, deadline=None)
@given(left=ROWS, right=ROWS)
def test_derived_windows_join_on_their_bounds(left: list[Any], right: list[Any]) -> None:
    counts = "SELECT k, window_end AS e, COUNT(*) AS n FROM {} [RANGE 5 " + US + " SLIDE 5 " + US + "] GROUP BY k"
    query = f"SELECT x.k, x.e, x.n, y.n AS m FROM ({counts.format('a')}) x JOIN ({counts.format('b')}) y ON x.k = y.k AND x.e = y.e"
    found = same_for_all_trains(CREATE, query, {"a": left, "b": right})

    def counted(rows: list[Any]) -> dict[Any, int]:
        keys = [(k, (ts // 5 + 1) * 5) for ts, k in rows if k is not None]
        return {key: keys.count(key) for key in keys}

    one, other = counted(left), counted(right)
    assert sorted(found) == sorted((k, e, one[k, e], other[k, e]) for k, e in one.keys() & other.keys())


def test_a_join_with_one_window_says_that_its_state_grows() -> None:
    from millstream.engine.plan.plan import plan_select

    engine = SqlEngine(*CREATE)
    planned = plan_select(f"SELECT a.ts FROM a [RANGE 4 {US}] JOIN b ON a.k = b.k", engine.catalog)
    assert any("grows on one side" in note for note in planned.notes)
