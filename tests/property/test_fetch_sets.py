"""FETCH of random UNION, INTERSECT, EXCEPT, GROUPING SETS, ROLLUP, CUBE and GROUP BY ALL gives the rows of DuckDB (K26)."""

from __future__ import annotations

import random
import re

import pytest
from millstream.engine.data.errors import EngineError
from millstream.engine.plan.plan import plan_select
from millstream.server.run.embedded import Replay, run_replay

from tests.property.test_fetch_subqueries import QUERIES, TABLES, plain_value, table
from tests.support.catalogs import catalog_of

duckdb = pytest.importorskip("duckdb")


WORDS = ["UNION", "UNION ALL", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL", "UNION DISTINCT"]


def part(choice: random.Random, width: int) -> str:
    names = choice.choices(["a", "b", "id % 3"], k=width)
    shown = ", ".join(f"{n} AS x{i}" for i, n in enumerate(names))
    where = choice.choice(["", "", " WHERE b > 1", " WHERE c = 'x'", " WHERE a IS NOT NULL"])
    return f"SELECT {choice.choice(['', '', 'DISTINCT '])}{shown} FROM {choice.choice(TABLES)}{where}"


def sets(choice: random.Random) -> str:
    width = choice.randint(1, 2)
    sql = part(choice, width)
    for _ in range(choice.randint(1, 3)):
        other = part(choice, width)
        if choice.random() < 0.2:
            other = f"({part(choice, width)} {choice.choice(['UNION', 'INTERSECT', 'EXCEPT ALL'])} {other})"
        sql += f" {choice.choice(WORDS)} {other}"
    return sql


def by_name(choice: random.Random) -> str:
    first, second = (choice.sample(["a", "b", "c", "id AS z"], 2) for _ in range(2))
    word = choice.choice(["UNION BY NAME", "UNION ALL BY NAME"])
    return f"SELECT {', '.join(first)} FROM {choice.choice(TABLES)} {word} SELECT {', '.join(second)} FROM {choice.choice(TABLES)}"


def groupings(choice: random.Random) -> str:
    keys = choice.choice(
        ["ROLLUP (a, b)", "CUBE (a, c)", "GROUPING SETS ((a, c), a, ())", "a, ROLLUP (c)", "GROUPING SETS (ROLLUP (a), CUBE (c))", "ALL"]
    )
    names = {"ROLLUP (a, b)": "a, b", "ALL": "a + 1 AS y, c"}.get(keys, "a, c")
    grouping = "" if keys == "ALL" else f", GROUPING({names}) AS g"
    having = choice.choice(["", "", " HAVING COUNT(*) > 1", " HAVING SUM(id) > 3"])
    return f"SELECT {names}, COUNT(*) AS n, SUM(b) AS s{grouping} FROM {choice.choice(TABLES)} GROUP BY {keys}{having}"


def check(seed: int) -> None:
    choice = random.Random(seed)
    definitions = [statement for name in TABLES for statement in table(choice, name)]
    queries = [choice.choice([sets, sets, by_name, groupings, groupings])(choice) for _ in range(QUERIES)]
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


@pytest.mark.parametrize("turn", range(12))
def test_fetch_gives_the_rows_of_duckdb(turn: int, seed: int) -> None:
    check(seed + turn)


def test_several_selects_are_ordered_and_limited_together() -> None:
    script = """CREATE TABLE p (id INT, a INT, PRIMARY KEY (id)); INSERT INTO p VALUES (1, 3), (2, 1), (3, NULL), (4, 1);
    FETCH SELECT a FROM p UNION SELECT id AS a FROM p ORDER BY a DESC LIMIT 3;
    FETCH SELECT a, COUNT(*) AS n FROM p GROUP BY ROLLUP (a) ORDER BY GROUPING, n"""
    outcome = run_replay(Replay(script.replace("GROUPING, n", "2 DESC, 1 LIMIT 2")))
    assert outcome.failure is None
    rows = [[tuple(row.values()) for batch in r.batches for row in batch.to_pylist()] for r in outcome.results]
    assert rows == [[(None,), (4,), (3,)], [(None, 4), (1, 2)]]


STREAMS = [f"CREATE STREAM {name} (ts BIGINT, k TEXT, v INT) TIMESTAMP BY ts UNIT s" for name in "sr"]
W, OTHER = "[RANGE 10 SECONDS SLIDE 10 SECONDS]", "[RANGE 5 SECONDS SLIDE 5 SECONDS]"
REFUSED = [
    ("SELECT k FROM s INTERSECT SELECT k FROM r", "INTERSECT without a window.*the same window"),
    ("SELECT k FROM s EXCEPT ALL SELECT k FROM r", "EXCEPT without a window.*the same window"),
    (f"SELECT k FROM s {W} EXCEPT SELECT k FROM r {OTHER}", "EXCEPT of different windows"),
    (f"SELECT k FROM s {W} UNION SELECT k FROM r", "UNION of different windows"),
    (f"SELECT k FROM s {W} UNION SELECT k FROM r {W} ORDER BY k LIMIT 1", "ORDER BY.*FETCH orders them"),
    ("SELECT k, v FROM s UNION ALL BY NAME SELECT v AS k FROM r", "column k of UNION ALL is TEXT and INT"),
    (f"SELECT k, SUM(v) AS n FROM s {W} GROUP BY CUBE (k, GROUPING(v))", "GROUPING"),
    (f"SELECT k, GROUPING(v) AS g FROM s {W} GROUP BY ROLLUP (k)", "GROUPING takes keys"),
    ("SELECT k, COUNT(*) AS n FROM s GROUP BY k EXCEPT SELECT k, v FROM s", "EXCEPT over a change log"),
]


@pytest.mark.parametrize(("text", "words"), REFUSED)
def test_what_a_continuous_query_refuses_names_the_way_round(text: str, words: str) -> None:
    with pytest.raises(EngineError) as refusal:
        plan_select(text, catalog_of(STREAMS))
    assert re.search(words, str(refusal.value)), str(refusal.value)


def test_a_union_without_a_window_says_that_its_state_grows() -> None:
    planned = plan_select("SELECT k FROM s UNION SELECT k FROM r", catalog_of(STREAMS))
    assert any("grows" in note for note in planned.notes)
