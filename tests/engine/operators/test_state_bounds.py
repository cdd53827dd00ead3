"""What EXPLAIN says that an operator holds is what it holds: measured over random rows, and the cases C16 and C41 from the field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.plan.explain import explain
from millstream.engine.plan.plan import plan_select

from tests.support.engine_run import Engine, SqlEngine

DELAY = 4
CREATE = [f"CREATE STREAM {name} (ts TIMESTAMP, k BIGINT, v DOUBLE) TIMESTAMP BY ts DELAY {DELAY} MICROSECONDS" for name in "sr"]
Rows = list[tuple[str, int, int]]  # stream, event time, key: what was not late
Bound = Callable[[Rows, int], int]


def since(width: int) -> Bound:
    """Rows later than W − width, those above W among them."""
    return lambda rows, watermark: sum(ts >= watermark - width for _, ts, _ in rows)


def cells_since(width: int) -> Bound:
    """Different keys and instants later than W − width, and the rows above W."""
    return lambda rows, watermark: len({(ts, k) for _, ts, k in rows if ts >= watermark - width}) + since(0)(rows, watermark)


def last_rows(count: int, *, by_key: bool = False) -> Bound:
    def bound(rows: Rows, watermark: int) -> int:
        keys = {k for _, _, k in rows} if by_key else {0}
        return sum(min(count, sum(k == key or not by_key for _, _, k in rows)) for key in keys) + since(0)(rows, watermark)

    return bound


def keys_and_waiting(rows: Rows, watermark: int) -> int:
    return len({k for _, _, k in rows}) + since(0)(rows, watermark)


def panes(size: int, pane: int) -> Bound:
    def bound(rows: Rows, watermark: int) -> int:
        alive = [(ts // pane, k) for _, ts, k in rows if ts >= watermark - size - pane]
        return len({p for p, _ in alive}) * len({k for _, k in alive})

    return bound


def twice(bound: Bound) -> Bound:
    return lambda rows, watermark: 2 * bound(rows, watermark)


US = "MICROSECONDS"
CASES: list[tuple[str, str, str, Bound]] = [
    (f"SELECT k, SUM(v) AS s FROM s [RANGE 9 {US}] GROUP BY k", "aggregate", "one cell a group and instant of the last 9", since(9)),
    (f"SELECT k, MEDIAN(v) AS s FROM s [RANGE 9 {US}] GROUP BY k", "aggregate", "each row's values of the last 9", since(9)),
    (f"SELECT k, SUM(v) AS s FROM s [RANGE 9 {US}] GROUP BY k EMIT CHANGES", "aggregate", "of the last 9", since(10)),
    (f"SELECT k, SUM(v) AS s FROM s [RANGE 9 {US}] GROUP BY k EMIT EVERY 5 {US}", "aggregate", "of the last 9", since(9)),
    (
        f"SELECT k, STDDEV(v) AS s, FIRST(v) AS a FROM s [RANGE 9 {US}] GROUP BY k",
        "aggregate",
        "one cell a group and instant of the last 9",
        cells_since(9),
    ),
    ("SELECT k, VARIANCE(v) AS s, LAST(v) AS z FROM s [ROWS 5] GROUP BY k", "aggregate", "one cell a row of the last 5 rows", last_rows(5)),
    (
        f"SELECT k, STDDEV(v) AS s, LAST(v) AS z FROM s [SESSION 3 {US}] GROUP BY k",
        "aggregate",
        "one state an open session and key",
        keys_and_waiting,
    ),
    ("SELECT k, SUM(v) AS s FROM s [ROWS 5] GROUP BY k", "aggregate", "one cell a row of the last 5 rows", last_rows(5)),
    (
        "SELECT k, SUM(v) AS s FROM s [PARTITION BY k ROWS 3] GROUP BY k",
        "aggregate",
        "the last 3 rows of each partition",
        last_rows(3, by_key=True),
    ),
    (f"SELECT k, SUM(v) AS s FROM s [SESSION 3 {US}] GROUP BY k", "aggregate", "one state an open session and key", keys_and_waiting),
    (f"SELECT k, SUM(v) AS s FROM s [RANGE 8 {US} SLIDE 4 {US}] GROUP BY k", "aggregate", "the groups of the last 8", panes(8, 4)),
    (f"SELECT k, SUM(v) AS s FROM CUMULATE(s, ts, 4 {US}, 8 {US}) GROUP BY k", "aggregate", "the groups of the last 8", panes(8, 4)),
    (f"DSTREAM(SELECT k FROM s [RANGE 6 {US}])", "window", "the last 6", since(7)),
    ("DSTREAM(SELECT k FROM s [ROWS 4])", "window", "the last 4 rows", last_rows(4)),
    ("SELECT k, LAG(v, 2) OVER (PARTITION BY k) AS b FROM s", "lag", "2 rows a partition", last_rows(2, by_key=True)),
    (
        "SELECT k, SUM(v) OVER (PARTITION BY k ORDER BY ts ROWS 2 PRECEDING) AS b FROM s",
        "over",
        "one cell of each of 3 rows a partition",
        last_rows(3, by_key=True),
    ),
    (
        f"SELECT k, MEDIAN(v) OVER (PARTITION BY k ORDER BY ts RANGE 6 {US} PRECEDING) AS b FROM s",
        "over",
        "the values of each row of the last 6",
        since(7),
    ),
    ("SELECT k, SUM(v) OVER (PARTITION BY k ORDER BY ts) AS b FROM s", "over", "one cell a partition", keys_and_waiting),
    (
        "SELECT k, LEAD(v, 2) OVER (PARTITION BY k ORDER BY ts) AS b FROM s",
        "over",
        "2 rows a partition, whose frames are not complete",
        twice(last_rows(3, by_key=True)),
    ),
    (f"SELECT s.k FROM s JOIN r ON s.k = r.k WITHIN 5 {US}", "join", "at most twice as many", twice(since(5))),
    (f"SELECT s.k FROM s LEFT JOIN r ON s.k = r.k WITHIN 5 {US}", "join", "at most twice as many", twice(since(5))),
    (f"SELECT DISTINCT k FROM s [RANGE 8 {US} SLIDE 8 {US}]", "aggregate", "the groups of the last 8", panes(8, 8)),
    (
        f"SELECT k, v FROM s [RANGE 8 {US} SLIDE 8 {US}] ORDER BY v LIMIT 2",
        "top",
        "2 rows an open window",
        lambda rows, watermark: 2 * 2 * len({ts // 8 for _, ts, _ in rows}) + 256,
    ),
]


@pytest.mark.parametrize(("query", "kind", "stated", "bound"), CASES, ids=[c[0] for c in CASES])
@settings(max_examples=3, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("sr"), st.integers(-3, 5), st.integers(0, 4)), max_size=60), st.sampled_from([1, 5, 17]))
def test_no_operator_holds_more_than_explain_says(query: str, kind: str, stated: str, bound: Bound, drawn: list[Any], chunk: int) -> None:
    engine = SqlEngine(*CREATE)
    lines = explain(plan_select(query, engine.catalog)).splitlines()
    assert any(line.strip().startswith(f"{kind}: ") and stated in line for line in lines)
    delta = engine.select(query)
    logic = next(engine.network.operators[o.id].logic for o in delta.operators if o.id in engine.network.operators and o.kind == kind)
    streams = ["s", "r"] if "JOIN" in query else ["s"]
    now, accepted = 0, []
    newest = dict.fromkeys(streams, -(10**9))
    for place, (stream, step, key) in enumerate(drawn):
        stream = stream if stream in streams else streams[0]
        now += step
        watermark = min(newest.values()) - DELAY
        if now >= watermark - (8 if "of the last 8" in stated else 0):  # behind W a row may still be in an open window
            accepted.append((stream, now, key))
        engine.put(stream, [(now, key, float(step))])
        newest[stream] = max(newest[stream], now)
        if place % chunk == 0:
            engine.work()
            assert logic.state_rows() <= max(bound(accepted, min(newest.values()) - DELAY), 1), place
    engine.end()
    engine.work()
    assert not engine.hooks.failures


def test_interval_join_state_shrinks_with_the_watermark_and_not_with_keys_c16() -> None:
    engine = SqlEngine(*(f"CREATE STREAM {name} (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts" for name in "ab"))
    delta = engine.select("SELECT a.k FROM a JOIN b ON a.k = b.k WITHIN 1 SECOND")
    logic = next(engine.network.operators[o.id].logic for o in delta.operators if o.kind == "join")
    most = 0
    for start in range(0, 100_000, 250):
        for side, name in enumerate("ab"):
            engine.put(name, [(1_000 * t, 2 * t + side) for t in range(start, start + 250)])
        engine.work()
        most = max(most, *(s.rows for s in logic._state))  # type: ignore[attr-defined]
    assert most <= 2 * (1_000 + 250)
    for key, name in enumerate("ab"):
        engine.put(name, [(100_000_000 + 1_000_001, -1 - key)])
    engine.work()
    assert logic.state_rows() <= 2
    assert engine.rows("q") == []
    engine.end()
    engine.work()
    assert logic.state_rows() == 0


def million(engine: Engine, name: str, rows_a_second: int) -> Any:
    """A million rows, each with a key of its own; yields after each batch."""
    from millstream.engine.data.column import Column
    from millstream.engine.data.types import BIGINT, TIMESTAMP

    for start in range(0, 1_000_000, 20_000):
        keys = np.arange(start, start + 20_000, dtype=np.int64)
        columns = [Column(TIMESTAMP, keys * (1_000_000 // rows_a_second)), Column(BIGINT, keys * 7919)]
        engine.network.ingest(name, columns, arrival_ns=engine.clock_ns(), now_us=0)
        engine.work()
        yield start + 20_000


KEYED = "CREATE STREAM s (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts"


def test_a_million_keys_without_end_stop_at_the_stated_number_and_are_counted_c41() -> None:
    engine = SqlEngine(KEYED)
    query = "SELECT k, COUNT(*) AS n FROM s [UNBOUNDED STATE 5000 ROWS] GROUP BY k EMIT CHANGES"
    delta = engine.select(query)
    logic = next(engine.network.operators[o.id].logic for o in delta.operators if o.kind == "aggregate")
    for _ in million(engine, "s", 1_000):
        assert logic.state_rows() <= 5_000
    account = engine.account("q")["s"]
    assert account.failed == 995_000
    assert account.balances
    endless = explain(plan_select("SELECT k, COUNT(*) AS n FROM s GROUP BY k", engine.catalog))
    assert "Warnings\n  the state of this GROUP BY grows with the number of keys" in endless


def test_a_million_keys_in_tumbling_windows_leave_memory_near_its_start_c41() -> None:
    engine = SqlEngine(KEYED)
    delta = engine.select("SELECT k, COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k")
    logic = next(engine.network.operators[o.id].logic for o in delta.operators if o.kind == "aggregate")
    most = 0
    for _ in million(engine, "s", 2_000):
        engine.results["q"].clear()
        most = max(most, logic.state_rows())
    assert most <= 2 * 2 * 20_000  # windows of 20,000 rows, a train may reach into the next
    engine.put("s", [(10**9, 1)])
    engine.work()
    assert logic.state_rows() <= 2
    assert logic._keys.alive <= 1  # type: ignore[attr-defined]
