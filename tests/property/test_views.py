"""Materialized views (K29): after each batch what stands in them is what DuckDB makes of the rows so far.

Views whose rows only come keep those of some event time, or the last ones. The rows come in trains of every size, out of order and late;
the operators run in any order, and now and then the view is cut off and goes on from its state.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from millstream.engine.data.graph import EdgeId

from tests.support.added_up import AddedUp, plain
from tests.support.engine_run import SqlEngine

duckdb = pytest.importorskip("duckdb")

DELAY_S = 3
STREAM = f"CREATE STREAM s (ts BIGINT, k TEXT, v INT) TIMESTAMP BY ts UNIT s DELAY {DELAY_S} SECONDS"
STEPS = 8

# The SELECT, and the rows that it gives in DuckDB, with when they count (`at_s`) and their order; `late` as of windows of this size.
GROWING = [
    ("SELECT k, v FROM s WHERE v > 1", "SELECT k, v, ts AS at_s, i AS place, 0 AS after_ FROM s WHERE v > 1", 0),
    ("SELECT v, k, ts FROM s", "SELECT v, k, ts, ts AS at_s, i AS place, 0 AS after_ FROM s", 0),
    (
        "SELECT k, SUM(v) AS n FROM s [RANGE 4 SECONDS SLIDE 4 SECONDS] GROUP BY k",
        "SELECT k, SUM(v), ts // 4 * 4 + 4 AS at_s, at_s AS place, MIN(i) AS after_ FROM s WHERE NOT late GROUP BY k, at_s",
        4,
    ),
    (
        "SELECT COUNT(*) AS n, window_start AS w FROM s [RANGE 2 SECONDS SLIDE 2 SECONDS] WHERE v <> 2",
        "SELECT COUNT(*), ts // 2 * 2 * 1000000 AS w, ts // 2 * 2 + 2 AS at_s, at_s AS place, 0 AS after_ FROM s"
        " WHERE v <> 2 AND NOT late GROUP BY w, at_s",
        2,
    ),
]


def watched_view(choice: random.Random, text: str) -> AddedUp:
    how = {"train": choice.choice([None, 1, 3]), "shuffle": choice.choice([None, choice.randrange(99)])}
    view = AddedUp(SqlEngine(STREAM, sharing=choice.random() < 0.5, **how), text)
    view.engine.select(text)
    return view


class Rows:
    """The rows so far, in DuckDB too, with what W was when each came."""

    def __init__(self, choice: random.Random, size: int) -> None:
        self.choice = choice
        self.size = size
        self.newest = self.count = 0
        self.connection = duckdb.connect(config={"threads": 1})
        self.connection.execute("CREATE TABLE s (ts BIGINT, k TEXT, v INT, i INT, late BOOLEAN)")

    @property
    def watermark(self) -> int:
        return self.newest - DELAY_S

    def more(self) -> list[tuple[Any, ...]]:
        made = []
        for _ in range(self.choice.choice([1, 1, 3, 8])):
            ts = max(0, self.newest + self.choice.choice([-9, -4, -2, 0, 0, 1, 1, 2, 7]))
            row = (ts, self.choice.choice([None, "a", "b"]), self.choice.choice([0, 1, 2, 3]))
            late = bool(self.count and self.size and ts // self.size * self.size + self.size <= self.watermark)
            self.connection.execute("INSERT INTO s VALUES (?, ?, ?, ?, ?)", [*row, self.count, late])
            self.newest, self.count = max(self.newest, ts), self.count + 1
            made.append(row)
        return made

    def kept(self, sql: str, keep: int | str) -> Counter[Any]:
        """Return what a view of these rows keeps: answered windows have ended, and the time of their answers lies just before that."""
        ended = f"at_s <= {self.watermark}" if self.size else "true"
        if isinstance(keep, int):
            sql = f"SELECT * FROM ({sql}) WHERE {ended} ORDER BY place DESC, after_ DESC LIMIT {keep}"
        else:
            since = self.watermark - int(keep.split()[0])
            sql = f"SELECT * FROM ({sql}) WHERE {ended} AND at_s {'>' if self.size else '>='} {since}"
        return Counter(plain(row[:-3]) for row in self.connection.execute(sql).fetchall())


def check_growing(seed: int) -> None:
    choice = random.Random(seed)
    text, sql, size = choice.choice(GROWING)
    keep = choice.choice([1, 3, 50, "1 second", "5 seconds", "30 seconds"])
    emit = choice.choice(["", "", " EMIT CHANGES"]) if not size else ""
    watched = watched_view(choice, f"{text}{emit} WITH (materialized = true, keep = {keep!r})")
    rows = Rows(choice, size)
    for step in range(STEPS):
        if step and choice.random() < 0.2:
            watched.now()
            watched.cut_off()
        watched.engine.put("s", rows.more(), chunk=choice.choice([None, 1, 2]))
        expected = rows.kept(sql, keep)
        assert watched.now() == expected, (seed, step, text, keep)
    assert size or watched.fetched() == expected, (seed, text, keep)  # else with the open windows
    assert all(account.balances for account in watched.engine.account("q").values()), (seed, text)
    watched.engine.end("s")
    if not size:
        assert watched.now() == expected, (seed, "nothing goes at the end", text, keep)
    rows.connection.close()


@pytest.mark.parametrize("turn", range(3))
def test_a_view_whose_rows_only_come_keeps_what_it_says(turn: int, seed: int) -> None:
    for case in range(6):
        check_growing(seed + 100 * turn + case)


TWO = [f"CREATE STREAM {name} (ts BIGINT, k INT) TIMESTAMP BY ts UNIT s" for name in "sr"]
TABLES = [f"CREATE TABLE {name} (k INT, PRIMARY KEY (k))" for name in "pq"]
TUMBLING = "[RANGE 2 SECONDS SLIDE 2 SECONDS]"
SEVERAL = [
    ("p", "SELECT p.k FROM p JOIN q ON p.k = q.k"),
    ("s", "SELECT k FROM s UNION ALL SELECT k FROM r"),
    ("s", "SELECT s.k FROM s JOIN r ON s.k = r.k WITHIN 1 SECOND"),
    ("s", "SELECT s.k FROM s ASOF JOIN r ON s.k = r.k"),
    ("s", "SELECT s.k FROM s LEFT JOIN q ON s.k = q.k"),
    ("s", f"SELECT k FROM s {TUMBLING} INTERSECT ALL SELECT k FROM r {TUMBLING}"),
]


@pytest.mark.parametrize(("source", "text"), SEVERAL)
def test_a_mark_that_says_what_was_known_goes_through_what_has_several_inputs(source: str, text: str) -> None:
    """Whoever begins to read a view that is made of them waits for one."""
    engine = SqlEngine(*TWO, *TABLES)
    delta = engine.select(f"{text} WITH (materialized = true{'' if source == 'p' else ', keep = 9'})")
    engine.work()
    reader = engine.network.queries[delta.query.id].blueprint.root.log.open_cursor(EdgeId(1_000))
    engine.network.ingress.control(engine.network.sources[source], arrival_ns=1, idle=False)
    engine.work()
    assert any(train.idle is False for train in reader.waiting())
