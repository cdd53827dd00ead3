"""Continuous queries over tables (K28): after each prefix of what is done to the tables, the changes add up to DuckDB's answer.

Random inserts, upserts and deletes; filters, aggregates, joins of every kind, nested and united. The rows come in trains of every size, the
operators run in any order, and now and then the query is cut off and goes on from its state, or begins anew from what stands.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from millstream.server.run.embedded import Replay, run_replay

from tests.support.added_up import AddedUp, plain
from tests.support.engine_run import SqlEngine

duckdb = pytest.importorskip("duckdb")

TABLES = {
    "p": "CREATE TABLE p (id INT, a INT, b INT, c TEXT, PRIMARY KEY (id))",
    "q": "CREATE TABLE q (id INT, a INT, b INT, c TEXT, PRIMARY KEY (id, c))",
}
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


class Maker:
    """Makes SELECTs over tables and views of these columns."""

    def __init__(self, choice: random.Random, names: Sequence[str] = tuple(TABLES)) -> None:
        self.choice = choice
        self.names = names
        self.aliases = 0

    def alias(self) -> str:
        self.aliases += 1
        return f"t{self.aliases}"

    def condition(self, *aliases: str) -> str:
        one, other = (self.choice.choice(aliases) for _ in range(2))
        return self.choice.choice(
            [f"{one}.a > {other}.b", f"{one}.b = 1", f"{one}.c <> 'x'", f"{one}.a IS NULL", f"{one}.a + {other}.b < 4", f"{one}.id % 2 = 0"]
        )

    def item(self, depth: int) -> tuple[str, str]:
        """An item of FROM with the columns id, a, b, c, and its alias."""
        alias = self.alias()
        way = self.choice.random()
        if not depth or way < 0.6:
            return f"{self.choice.choice(self.names)} {alias}", alias
        if way < 0.8:
            inner, own = self.item(depth - 1)
            having = self.choice.choice(["", "", " HAVING COUNT(*) > 1"])
            return (
                f"(SELECT COUNT(*) AS id, MAX({own}.a) AS a, {own}.b, MIN({own}.c) AS c FROM {inner} GROUP BY {own}.b{having}) {alias}",
                alias,
            )
        if way < 0.9:
            inner, own = self.item(depth - 1)
            return f"(SELECT {own}.id, {own}.b AS a, {own}.a AS b, {own}.c FROM {inner} WHERE {self.condition(own)}) {alias}", alias
        first, second = (self.item(depth - 1) for _ in range(2))
        parts = (f"SELECT {own}.id, {own}.a, {own}.b, {own}.c FROM {inner}" for inner, own in (first, second))
        return f"({' UNION ALL '.join(parts)}) {alias}", alias

    def source(self) -> tuple[str, list[str]]:
        text, alias = self.item(1)
        aliases = [alias]
        for _ in range(self.choice.choice([0, 1, 1, 1, 2])):
            other, alias = self.item(1)
            kind = self.choice.choice(["JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", ","])
            left = self.choice.choice(aliases)
            equal = self.choice.choice(
                [f"{left}.a = {alias}.b", f"{left}.id = {alias}.id", f"{left}.c = {alias}.c", f"{left}.a = {alias}.a"]
            )
            more = self.choice.choice(["", "", f" AND {self.condition(left, alias)}"]) if kind != "FULL JOIN" else ""
            aliases.append(alias)
            text += f", {other}" if kind == "," else f" {kind} {other} ON {equal}{more}"
            if kind == ",":  # JOIN binds closer, and could not name what stands before the comma
                break
        return text, aliases

    def first_rows(self) -> str:
        """The first rows of all, or of each group, in an order that tells all rows apart that differ."""
        text, alias = self.item(2)
        most = self.choice.choice([1, 2, 4])
        order = self.choice.choice(
            ["a DESC NULLS LAST, id, b NULLS LAST, c NULLS LAST", "c NULLS LAST, b DESC NULLS LAST, a NULLS LAST, id"]
        )
        if self.choice.random() < 0.5:
            return f"SELECT id, b, a, c FROM {text} ORDER BY {order} LIMIT {most}"
        by = self.choice.choice(["PARTITION BY b ", "PARTITION BY c ", "PARTITION BY id, a ", ""])
        shown = self.choice.choice(["id, a, b, c", "c, b, r, id, a"])
        numbered = f"SELECT {alias}.*, ROW_NUMBER() OVER ({by}ORDER BY {order}) AS r FROM {text}"
        return f"SELECT {shown} FROM ({numbered}) numbered WHERE r {self.choice.choice(['<=', '<=', '='])} {most}"

    def query(self) -> tuple[str, bool]:
        """A SELECT, and whether it is an aggregate of all rows, which comes first and is 0 where there are none."""
        if self.choice.random() < 0.25:
            return self.first_rows(), False
        text, aliases = self.source()
        where = f" WHERE {self.condition(*aliases)}" if self.choice.random() < 0.5 else ""
        one, other = (self.choice.choice(aliases) for _ in range(2))
        if self.choice.random() < 0.4:
            columns = f"{other}.b, {one}.c" if self.choice.random() < 0.2 else f"{one}.id, {other}.a, {one}.a + {other}.b AS x, {other}.c"
            return f"SELECT {'DISTINCT ' if columns.count(',') == 1 else ''}{columns} FROM {text}{where}", False
        items = [
            "COUNT(*) AS n",
            *self.choice.sample([f"SUM({one}.a)", f"MIN({other}.b)", f"MAX({one}.c)", f"COUNT(DISTINCT {other}.c)", f"AVG({one}.b)"], 2),
        ]
        if self.choice.random() < 0.2:
            return f"SELECT {', '.join(items)} FROM {text}{where}", True
        having = self.choice.choice(["", "", f" HAVING COUNT(*) > 1 OR SUM({other}.a) > 2"])
        return f"SELECT {', '.join(items)}, {one}.c FROM {text}{where} GROUP BY {one}.c{having}", False


def changes_of(choice: random.Random, table: str) -> list[tuple[Any, ...]]:
    """Some rows that come, are replaced or go."""
    rows = []
    for _ in range(choice.choice([1, 1, 2, 5])):
        key = choice.randrange(6)
        values = [
            choice.choice([None, 0, 1, 2, 3]),
            choice.choice([None, 1, 2]),
            choice.choice(["x", "y"] if table == "q" else [None, "x", "y"]),
        ]
        rows.append((key, *values, "-" if choice.random() < 0.3 else "+"))
    return rows


def apply_to(connection: Any, table: str, rows: list[tuple[Any, ...]]) -> None:
    for *values, op in rows:
        key = f"id = {values[0]}" + (f" AND c = '{values[3]}'" if table == "q" else "")
        connection.execute(f"DELETE FROM {table} WHERE {key}")
        if op == "+":
            connection.execute(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", values)


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
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("PRAGMA disable_optimizer")  # it loses rows of a FULL JOIN under HAVING
    for statement in TABLES.values():
        connection.execute(re.sub(r", PRIMARY KEY \(.*\)\)", ")", statement))
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
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("PRAGMA disable_optimizer")  # it loses rows of a FULL JOIN under HAVING
    for statement in TABLES.values():
        connection.execute(re.sub(r", PRIMARY KEY \(.*\)\)", ")", statement))
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
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("PRAGMA disable_optimizer")  # it loses rows of a FULL JOIN under HAVING
    for statement in (*TABLES.values(), "CREATE TABLE s (id INT, a INT, b INT, c TEXT, place INT)"):
        connection.execute(re.sub(r", PRIMARY KEY \(.*\)\)", ")", statement))
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
