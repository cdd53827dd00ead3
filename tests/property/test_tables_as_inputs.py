"""Continuous queries over tables (K28): after each prefix of what is done to the tables, the changes add up to DuckDB's answer.

Random inserts, upserts and deletes; filters, aggregates, joins of every kind, nested and united. The rows come in trains of every size, the
operators run in any order, and now and then the query is cut off and goes on from its state, or begins anew from what stands.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from millstream.server.run.embedded import Replay, run_replay

from tests.property.oracle.table_queries import TABLES, Maker, apply_to, changes_of, connected
from tests.support.added_up import AddedUp, plain
from tests.support.engine_run import SqlEngine

CASES = 6
STEPS = 8


STREAM = "CREATE STREAM s (ts BIGINT, id INT, a INT, b INT, c TEXT) TIMESTAMP BY ts UNIT s"
VIEWS = {  # each over what stands before it; the last two of a stream, whose last rows DuckDB finds by the place in which they came
    "v1": "SELECT id, b AS a, a AS b, c FROM p WHERE b = 1 OR a > 1",
    "v2": "SELECT COUNT(*) AS id, MAX(a) AS a, b, MIN(c) AS c FROM q GROUP BY b",
    "v3": "SELECT v1.id, v1.a, v2.b, v1.c FROM v1 LEFT JOIN v2 ON v1.id = v2.id",
    "v4": "SELECT id, COUNT(*) AS a, MAX(b) AS b, c FROM s GROUP BY id, c",
    "v5": "SELECT id, a, b, c FROM s",
}
KEPT_ROWS = 4


class Watched(AddedUp):
    """A query over tables, or a view of it, that sees at once what stands in them."""

    def __init__(self, choice: random.Random, text: str) -> None:
        self.choice = choice
        self.is_view = choice.random() < 0.5
        engine = SqlEngine(
            *TABLES.values(),
            train=choice.choice([None, 1, 3]),
            shuffle=choice.choice([None, choice.randrange(99)]),
            sharing=choice.random() < 0.5,
        )
        super().__init__(engine, text + (" WITH (materialized = true)" if self.is_view else ""))

    def start(self) -> None:
        self.engine.select(self.text)
        self.seen = 0
        self.standing.clear()
        for table in TABLES:  # as a server does: what stands is seen at once
            self.engine.network.ingress.control(self.engine.network.sources[table], arrival_ns=self.engine.clock_ns(), idle=False)

    def interrupt(self) -> None:
        """Cut the query off; it goes on from its state, or begins anew from what stands."""
        if self.choice.random() < 0.5:
            self.engine.drop("q")
            self.start()
        else:
            self.cut_off()


def check(seed: int) -> None:
    choice = random.Random(seed)
    text, is_total = Maker(choice).query()
    watched = Watched(choice, text)
    connection = connected()
    began = choice.randrange(3)
    for step in range(STEPS):
        if step == began:
            watched.start()
        elif step > began and choice.random() < 0.15:
            watched.now()
            watched.interrupt()
        table = choice.choice(list(TABLES))
        rows = changes_of(choice, table)
        watched.engine.put(table, rows, chunk=choice.choice([None, 1, 2]))
        apply_to(connection, table, rows)
        if step < began:
            continue
        expected = Counter(plain(row) for row in connection.execute(text).fetchall())
        if is_total:
            expected = Counter({row: n for row, n in expected.items() if row[0]})
        assert watched.now() == expected, (seed, step, text)
    assert all(account.balances for account in watched.engine.account("q").values()), (seed, text)
    if watched.is_view or " UNION ALL " not in text:  # whose branches no operator keeps together else
        assert watched.fetched() == expected, (seed, text)
    connection.close()


def answers_of(choice: random.Random, script: Sequence[str], case: object) -> list[Counter[Any]]:
    """Return what each FETCH of a script answers, under any policy, workers and sharing."""
    how = {"policy": choice.choice(["fcfs", "hr", "rr"]), "workers": choice.choice([1, 2]), "train": choice.choice([None, 1, 3])}
    outcome = run_replay(Replay(";\n".join(script), sharing=choice.choice(["off", "hybrid"]), **how))
    assert outcome.failure is None, (case, outcome.failure)
    answers = (result for result in outcome.results if result.name.startswith("FETCH"))
    return [Counter(plain(row.values()) for batch in answer.batches for row in batch.to_pylist()) for answer in answers]


def check_view(seed: int) -> None:
    """Compare what FETCH reads of a view, under any policy, workers and sharing, with the same SELECT over the tables and with DuckDB."""
    choice = random.Random(seed)
    text, is_total = Maker(choice).query()
    connection = connected()
    script, expected = list(TABLES.values()), []
    began = choice.randrange(3)
    for step in range(STEPS):
        if step == began:
            script.append(f"CREATE MATERIALIZED VIEW v AS {text}")
        table = choice.choice(list(TABLES))
        rows = [(*values, "+") for *values, _ in changes_of(choice, table)]  # no statement deletes a row
        apply_to(connection, table, rows)
        listed = ", ".join(f"({', '.join('NULL' if v is None else repr(v) for v in row[:-1])})" for row in rows)
        script.append(f"INSERT INTO {table} VALUES {listed}")
        if step >= began:
            script += ["FETCH SELECT * FROM v", f"FETCH {text}"]
            expected.append(Counter(plain(row) for row in connection.execute(text).fetchall()))
    connection.close()
    fetched = answers_of(choice, script, (seed, text))
    for right, of_view, at_once in zip(expected, fetched[::2], fetched[1::2], strict=True):
        assert at_once == right, (seed, text)
        assert of_view == (Counter({row: n for row, n in right.items() if row[0]}) if is_total else right), (seed, text)


def check_reader(seed: int) -> None:
    """Compare what changes of a query over views, views of views and tables with the same query over DuckDB's views (K29)."""
    choice = random.Random(seed)
    text, is_total = Maker(choice, [*TABLES, *VIEWS, *VIEWS]).query()
    connection = connected()
    connection.execute("CREATE TABLE s (id INT, a INT, b INT, c TEXT, place INT)")
    for name, select in VIEWS.items():
        connection.execute(f"CREATE VIEW {name} AS {select}" + (f" ORDER BY place DESC LIMIT {KEPT_ROWS}" if name == "v5" else ""))
    script = [STREAM, *TABLES.values()]
    began, read = choice.randrange(3), choice.randrange(3, 6)
    place, expected = 0, []
    for step in range(STEPS + 2):
        if step == began:
            keep = {"v5": f"WITH (keep = {KEPT_ROWS}) "}
            script += [f"CREATE MATERIALIZED VIEW {name} {keep.get(name, '')}AS {select}" for name, select in VIEWS.items()]
            connection.execute("DELETE FROM s")  # a view begins with the rows from then on
        if step == read:
            script.append(f"CREATE MATERIALIZED VIEW r AS {text}")
        table = choice.choice([*TABLES, "s"])
        rows = [(*values, "+") for *values, _ in changes_of(choice, "p" if table == "s" else table)]  # no statement deletes a row
        if table == "s":
            for *values, _ in rows:
                connection.execute("INSERT INTO s VALUES (?, ?, ?, ?, ?)", [*values, place := place + 1])
            rows = [(step, *row) for row in rows]
        else:
            apply_to(connection, table, rows)
        listed = ", ".join(f"({', '.join('NULL' if v is None else repr(v) for v in row[:-1])})" for row in rows)
        script.append(f"INSERT INTO {table} VALUES {listed}")
        if step >= read:
            script.append("FETCH SELECT * FROM r")
            expected.append(Counter(plain(row) for row in connection.execute(text).fetchall()))
    connection.close()
    fetched = answers_of(choice, script, (seed, text))
    for right, found in zip(expected, fetched, strict=True):
        assert found == (Counter({row: n for row, n in right.items() if row[0]}) if is_total else right), (seed, text)


@pytest.mark.parametrize("turn", range(4))
def test_a_query_over_views_has_the_rows_of_duckdb(turn: int, seed: int) -> None:
    for case in range(2):
        check_reader(seed + 100 * turn + case)


@pytest.mark.parametrize("turn", range(2))
def test_a_view_has_the_rows_of_duckdb(turn: int, seed: int) -> None:
    check_view(seed + turn)


@pytest.mark.parametrize("turn", range(CASES))
def test_changes_add_up_to_the_rows_of_duckdb(turn: int, seed: int) -> None:
    for case in range(5):
        check(seed + 100 * turn + case)
