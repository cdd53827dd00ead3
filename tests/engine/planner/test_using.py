"""JOIN … USING: the answer of DuckDB's, with columns in the same order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.errors import EngineError
from millstream.engine.plan.plan import PlanOptions, plan_select
from millstream.engine.plan.plan_writer import to_plan_object

from tests.support.engine_run import SqlEngine
from tests.support.trains import CUTS, run_once

COLUMNS = {"a": "ta BIGINT, k INT, j INT, x INT", "b": "y INT, k BIGINT, tb BIGINT, j INT", "c": "j INT, k INT, z INT, tc BIGINT"}
STREAMS = [f"CREATE STREAM {s} ({c}) TIMESTAMP BY t{s} UNIT us DELAY 1 HOUR" for s, c in COLUMNS.items()]
KEY = st.one_of(st.none(), st.integers(0, 2))
BOUND = "WITHIN 1 MINUTE"
SELECTS = ("*", "a.*, k", "k, j, a.k, b.k, x, y", "b.*")


def drawn_rows(stream: str, keys: list[tuple[int | None, int | None]]) -> list[Any]:
    rows = []
    for place, (k, j) in enumerate(keys):
        values = {f"t{stream}": place, "k": k, "j": j, "x": 10 + place, "y": 20 + place, "z": 30 + place}
        rows.append(tuple(values[c.split()[0]] for c in COLUMNS[stream].split(", ")))
    return rows


def by_duckdb(query: str, streams: dict[str, list[Any]], first: Sequence[str] = ()) -> Counter[Any]:
    with duckdb.connect() as database:
        for name, rows in streams.items():
            database.execute(f"CREATE TABLE {name} ({COLUMNS[name]})")
            for row in rows:
                database.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)
        answer = database.execute(query)
        names = [column[0] for column in answer.description]
        order = sorted(range(len(names)), key=lambda i: names[i] not in first)  # DuckDB leaves merged columns where the left has them
        return Counter(tuple(row[i] for i in order) for row in answer.fetchall())


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(["", "LEFT", "RIGHT", "FULL"]),
    st.sampled_from(["k", "k, j"]),
    st.sampled_from(SELECTS),
    st.sampled_from(["", " WHERE k > 0", " WHERE a.k IS NULL OR x > 11"]),
    st.lists(st.tuples(KEY, KEY), max_size=6),
    st.lists(st.tuples(KEY, KEY), max_size=6),
)
def test_a_join_by_names_answers_as_in_duckdb(kind: str, using: str, select: str, where: str, a: Any, b: Any) -> None:
    if using == "k":
        select = select.replace("k, j, a.k", "k, a.j, a.k")
    streams = {"a": drawn_rows("a", a), "b": drawn_rows("b", b)}
    found = [
        run_once(STREAMS, f"SELECT {select} FROM a {kind} JOIN b USING ({using}) {BOUND}{where}", streams, train, chunk).rows("q")
        for train, chunk in CUTS
    ]
    assert all(rows == found[0] for rows in found)
    assert Counter(found[0]) == by_duckdb(
        f"SELECT {select} FROM a {kind} JOIN b USING ({using}){where}", streams, using.split(", ") if select == "*" else ()
    )


@settings(max_examples=8, deadline=None)
@given(st.lists(st.lists(st.tuples(KEY, KEY), max_size=4), min_size=3, max_size=3))
def test_a_join_by_names_of_such_a_join_merges_again(keys: Any) -> None:
    streams = {name: drawn_rows(name, drawn) for name, drawn in zip("abc", keys, strict=True)}
    query = f"SELECT * FROM a JOIN b USING (k) {BOUND} LEFT JOIN c USING (k) {BOUND}"
    found = run_once(STREAMS, query, streams, 4096, 100).rows("q")
    assert Counter(found) == by_duckdb(query.replace(f" {BOUND}", ""), streams, "k")


@pytest.mark.parametrize("kind", ["", "LEFT", "RIGHT", "FULL"])
def test_a_join_by_names_is_the_same_plan_written_as_an_object(kind: str) -> None:
    query = f"SELECT *, a.k AS own FROM a {kind} JOIN b USING (k) {BOUND}"
    catalog = SqlEngine(*STREAMS).catalog
    for off in (frozenset[str](), frozenset(("all",))):
        planned = plan_select(query, catalog, options=PlanOptions(rules_off=off))
        written = to_plan_object(planned.bound, "q")
        assert plan_select(written, catalog, options=PlanOptions(rules_off=off)).physical == planned.physical, written


@pytest.mark.parametrize("tail", ["window_end, x, y FROM {}", "window_end, COUNT(*) AS n FROM {} GROUP BY 1"])
def test_tumbling_windows_joined_by_names_answer_as_with_on_also_from_a_plan_object(tail: str) -> None:
    window = "[RANGE 3 MICROSECONDS SLIDE 3 MICROSECONDS]"
    by_name = f"SELECT k, {tail.format(f'a {window} FULL JOIN b {window} USING (k, window_start)')}"
    by_on = f"SELECT COALESCE(a.k, b.k) AS k, {tail.format(f'a {window} FULL JOIN b {window} ON a.k = b.k')}"
    catalog = SqlEngine(*STREAMS).catalog
    answers = []
    for text in (by_on, by_name, to_plan_object(plan_select(by_name, catalog, options=PlanOptions()).bound, "q")):
        engine = SqlEngine(*STREAMS)
        engine.results["q"] = []
        delta = engine.network.add_query("q", plan_select(text, engine.catalog).physical, engine.results["q"].append)
        engine.network.attach(delta.query.id)
        engine.deltas["q"] = delta
        for stream, keys in (("a", [1, 2, 1, 3, None]), ("b", [2, 1, 3, 3, None])):
            engine.put(stream, drawn_rows(stream, [(k, 0) for k in keys]))
        engine.end()
        engine.work()
        answers.append(engine.rows("q"))
    assert answers[0] == answers[1] == answers[2]
    assert len(answers[0]) > 4


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * FROM a JOIN b USING (x) WITHIN 1 SECOND", r"no column x .*column 31"),
        ("SELECT * FROM a JOIN b USING (k, k) WITHIN 1 SECOND", r"k appears twice in USING .*column 34"),
        ("SELECT j FROM a JOIN b USING (k) WITHIN 1 SECOND", r"j is ambiguous"),
        ("SELECT * FROM a JOIN b USING (k)", r"needs a bound in time"),
    ],
)
def test_what_using_cannot_join_is_refused_with_its_place(query: str, message: str) -> None:
    engine = SqlEngine(*STREAMS)
    with pytest.raises(EngineError, match=message):
        engine.select(query)
