"""FETCH of random subqueries in expressions over tables gives the rows of DuckDB (K25)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from millstream.server.run.embedded import Replay, run_replay

duckdb = pytest.importorskip("duckdb")

QUERIES = 12
COLUMNS = ("a", "b", "c")
TABLES = ("p", "q", "r")


def table(choice: random.Random, name: str) -> list[str]:
    rows = []
    for number in range(choice.choice([0, 3, 8, 15])):
        values = [
            choice.choice(["NULL", "0", "1", "2", "3"]),
            choice.choice(["NULL", "1", "2", "7"]),
            choice.choice(["NULL", "'x'", "'y'"]),
        ]
        rows.append(f"({number}, {', '.join(values)})")
    insert = [f"INSERT INTO {name} VALUES {', '.join(rows)}"] if rows else []
    return [f"CREATE TABLE {name} (id INT, a INT, b INT, c TEXT, PRIMARY KEY (id))", *insert]


class Maker:
    """Makes conditions with subqueries; `depth` is how many may stand inside one another."""

    def __init__(self, choice: random.Random) -> None:
        self.choice = choice
        self.aliases = 0

    def number(self, alias: str) -> str:
        way = self.choice.choice(["a", "b", "id", "sum"])
        return f"{alias}.a + {alias}.b" if way == "sum" else f"{alias}.{way}"

    def inside(self, outer: str, depth: int, *, equalities: bool) -> tuple[str, str]:
        """FROM and WHERE of a subquery, and the alias that it can be asked by."""
        self.aliases += 1
        alias, name = f"i{self.aliases}", self.choice.choice(TABLES)
        source = f"{name} {alias}"
        conditions: list[str] = []
        if self.choice.random() < 0.2:
            other = f"j{self.aliases}"
            source += f", {self.choice.choice(TABLES)} {other}"
            conditions.append(f"{alias}.a = {other}.b")
        equal = [f"{alias}.a = {outer}.a", f"{outer}.b = {alias}.b", f"{alias}.c = {outer}.c"]
        conditions += self.choice.choices(equal, k=self.choice.choice([0, 1, 1, 2]))
        if not equalities and self.choice.random() < 0.3:
            conditions.append(self.choice.choice([f"{alias}.a <> {outer}.a", f"{alias}.b + {outer}.a > 3", f"{outer}.b > 1"]))
        if self.choice.random() < 0.4:
            conditions.append(self.choice.choice([f"{alias}.b > 1", f"{alias}.c IS NOT NULL", f"{alias}.id < 5"]))
        if depth and self.choice.random() < 0.3:
            conditions.append(self.condition(alias, depth - 1))
        return f"FROM {source}{' WHERE ' + ' AND '.join(conditions) if conditions else ''}", alias

    def value(self, outer: str, depth: int) -> str:
        tail, alias = self.inside(outer, depth, equalities=True)
        made = self.choice.choice(["COUNT(*)", "SUM({x})", "MAX({x})", "COUNT({x}) + 1", "COALESCE(MIN({x}), 5)", "AVG({x})"])
        return f"(SELECT {made.format(x=self.number(alias))} {tail})"

    def condition(self, outer: str, depth: int = 1) -> str:
        way = self.choice.choice(["in", "in", "not in", "exists", "not exists", "value", "having", "or", "not", "groups"])
        if way in ("in", "not in"):
            tail, alias = self.inside(outer, depth, equalities=False)
            return f"{self.number(outer)} {way.upper()} (SELECT {self.number(alias)} {tail})"
        if way == "groups":
            tail, alias = self.inside(outer, depth, equalities=True)
            return f"{outer}.a IN (SELECT {alias}.a {tail} GROUP BY {alias}.a HAVING COUNT(*) > 1)"
        if way == "having":
            tail, alias = self.inside(outer, depth, equalities=True)
            return f"EXISTS (SELECT SUM({alias}.a) {tail} HAVING COUNT(*) <> 1)"
        if way in ("exists", "not exists"):
            tail, _ = self.inside(outer, depth, equalities=False)
            return f"{way.upper()} (SELECT * {tail})"
        if way == "value":
            return f"{self.number(outer)} {self.choice.choice(['<', '>=', '='])} {self.value(outer, depth)}"
        if way == "not":
            return f"NOT ({self.condition(outer, depth)})"
        return f"({self.condition(outer, depth)} OR {outer}.a = 2)"


def query(choice: random.Random) -> str:
    maker = Maker(choice)
    shown = "s.id" + (f", {maker.value('s', 1)} AS x" if choice.random() < 0.5 else "")
    if choice.random() < 0.2:
        having = f"HAVING COUNT(*) < (SELECT COUNT(*) FROM {choice.choice(TABLES)} i WHERE i.a = s.a)"
        return f"SELECT s.a, COUNT(*) AS n FROM p s WHERE {maker.condition('s')} GROUP BY s.a {having}"
    return f"SELECT {shown} FROM {choice.choice(TABLES)} s WHERE {maker.condition('s')}"


def check(seed: int) -> None:
    choice = random.Random(seed)
    definitions = [statement for name in TABLES for statement in table(choice, name)]
    queries = [query(choice) for _ in range(QUERIES)]
    connection = duckdb.connect(config={"threads": 1})
    for statement in definitions:
        connection.execute(statement)
    right = [connection.execute(text).fetchall() for text in queries]
    connection.close()
    outcome = run_replay(Replay(";\n".join([*definitions, *(f"FETCH {text}" for text in queries)])))
    assert outcome.failure is None, (seed, outcome.failure, queries)
    for text, expected, result in zip(queries, right, outcome.results, strict=True):
        found = [[plain_value(v) for v in row.values()] for batch in result.batches for row in batch.to_pylist()]
        assert sorted(found, key=repr) == sorted([[plain_value(v) for v in row] for row in expected], key=repr), (seed, text)


def plain_value(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else float(value)


@pytest.mark.parametrize("turn", range(12))
def test_fetch_gives_the_rows_of_duckdb(turn: int, seed: int) -> None:
    check(seed + turn)
