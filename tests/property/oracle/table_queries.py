"""Random queries over tables that change (K28), and DuckDB with the same tables, which says what is right."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import duckdb

TABLES = {
    "p": "CREATE TABLE p (id INT, a INT, b INT, c TEXT, PRIMARY KEY (id))",
    "q": "CREATE TABLE q (id INT, a INT, b INT, c TEXT, PRIMARY KEY (id, c))",
}


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


def connected() -> Any:
    """Return a DuckDB that has the tables, without their keys, so that rows may be put in as they come."""
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("PRAGMA disable_optimizer")  # it loses rows of a FULL JOIN under HAVING
    for statement in TABLES.values():
        connection.execute(re.sub(r", PRIMARY KEY \(.*\)\)", ")", statement))
    return connection


def apply_to(connection: Any, table: str, rows: list[tuple[Any, ...]]) -> None:
    for *values, op in rows:
        key = f"id = {values[0]}" + (f" AND c = '{values[3]}'" if table == "q" else "")
        connection.execute(f"DELETE FROM {table} WHERE {key}")
        if op == "+":
            connection.execute(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", values)
