"""The first n rows of each group without a window (K24): against sorting all rows so far, at every train size, over restarts."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data import limits
from millstream.engine.data.errors import EngineError
from millstream.engine.data.train import Train
from millstream.engine.operators import group_runs, running_top
from millstream.engine.operators.build import build_operator
from millstream.engine.operators.running_top import ChangingTop, RunningTop
from millstream.engine.plan.explain import explain, explain_json
from millstream.engine.plan.plan import plan_select

from tests.support.engine_run import SqlEngine
from tests.support.trains import run_once

STREAM = "CREATE STREAM s (ts TIMESTAMP, k TEXT, x DOUBLE, tag TEXT) TIMESTAMP BY ts DELAY 2 MICROSECONDS"
NUMBERED = "ROW_NUMBER() OVER (PARTITION BY k ORDER BY x DESC) AS r"
TOP = f"SELECT ts, k, x, tag FROM (SELECT *, {NUMBERED} FROM s) WHERE r <= 2"

ROWS = st.lists(
    st.tuples(
        st.integers(0, 9),  # times: many a row comes after W
        st.sampled_from(["a", "b", "c", None]),
        st.sampled_from([-1.0, -0.0, 0.0, 2.5, float("nan"), float("inf"), None]),
        st.sampled_from(["é", "z", None]),
    ),
    max_size=30,
)
SHAPES = (st.sampled_from([1, 2, 4096]), st.integers(1, 7))


def run(query: str, rows: list[Any], train: int = 4096, chunk: int = 3) -> list[Any]:
    return run_once([STREAM], query, {"s": rows}, train, chunk).rows("q")


def comparable(row: Any) -> tuple[Any, ...]:
    """NaN equals itself, zeros are equal, NULL is None."""
    return tuple("NaN" if v != v else v + 0.0 if isinstance(v, float) else v for v in row)


def added_up(changes: list[Any]) -> Counter[Any]:
    """Apply the changes one after the other: no row leaves that is not there."""
    state: Counter[Any] = Counter()
    for *row, op in changes:
        state[comparable(row)] += 1 if op == "+" else -1
        assert state[comparable(row)] >= 0
    return +state


def rank_of(value: float | None, *, descending: bool) -> tuple[Any, ...]:
    """NULLs first descending and last ascending, NaN above every number."""
    if value is None:
        return (0 if descending else 2,)
    is_nan, number = value != value, 0.0 if value != value else value
    return (1, -is_nan, -number) if descending else (1, is_nan, number)


def first_rows(rows: list[Any], limit: int, *, descending: bool = True) -> list[tuple[Any, int]]:
    """Return the first rows of each key with their numbers, by looking at all."""
    groups: dict[Any, list[Any]] = {}
    for row in rows:
        groups.setdefault(row[1], []).append(row)
    found = []
    for group in groups.values():
        ordered = sorted(group, key=lambda row: rank_of(row[2], descending=descending))  # stable: ties by arrival
        found += [(row, place + 1) for place, row in enumerate(ordered[:limit])]
    return found


@settings(max_examples=60, deadline=None)
@given(ROWS, *SHAPES, st.integers(1, 4), st.booleans())
def test_changes_add_up_to_the_first_rows_of_each_group(rows: list[Any], train: int, chunk: int, limit: int, descending: bool) -> None:
    order = f"x {'DESC' if descending else 'ASC'}"
    query = f"SELECT ts, k, x, tag FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY {order}) AS r FROM s) WHERE r <= {limit}"
    expected = Counter(comparable(row) for row, _ in first_rows(rows, limit, descending=descending))
    assert added_up(run(query, rows, train, chunk)) == expected
    assert Counter(map(comparable, run(f"{query} EMIT FINAL", rows, train, chunk))) == expected


@settings(max_examples=40, deadline=None)
@given(ROWS, *SHAPES)
def test_numbers_that_are_read_are_followed(rows: list[Any], train: int, chunk: int) -> None:
    query = f"SELECT k, x, r FROM (SELECT *, {NUMBERED} FROM s) WHERE r BETWEEN 2 AND 3"
    expected = Counter(comparable((row[1], row[2], number)) for row, number in first_rows(rows, 3) if number > 1)
    assert added_up(run(query, rows, train, chunk)) == expected


@settings(max_examples=40, deadline=None)
@given(ROWS)
def test_each_row_tells_what_it_pushes_out_and_nothing_more(drawn: list[Any]) -> None:
    rows = [(*row[:3], str(place)) for place, row in enumerate(drawn)]
    expected, before = [], Counter[Any]()
    for count in range(1, len(rows) + 1):
        now = Counter(comparable(row) for row, _ in first_rows(rows[:count], 2))
        expected += [(*row, "-") for row in before - now] + [(*row, "+") for row in now - before]
        before = now
    assert list(map(comparable, run(TOP, rows, 1, 1))) == expected


@settings(max_examples=40, deadline=None)
@given(ROWS, *SHAPES)
def test_distinct_on_is_the_first_of_each(rows: list[Any], train: int, chunk: int) -> None:
    expected = Counter(comparable((row[1], row[0])) for row, _ in first_rows(rows, 1))
    query = "SELECT DISTINCT ON (k) k, ts FROM s ORDER BY k, x DESC"
    assert added_up(run(query, rows, train, chunk)) == expected
    assert Counter(map(comparable, run(f"{query} EMIT FINAL", rows, train, chunk))) == expected


def top_of(engine: SqlEngine) -> RunningTop:
    (found,) = [o.logic for o in engine.network.operators.values() if isinstance(o.logic, RunningTop)]
    return found


@settings(max_examples=30, deadline=None)
@given(ROWS, st.integers(1, 4), st.integers(1, 8))
def test_answers_are_those_where_large_runs_wait_for_others(rows: list[Any], limit: int, large: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_runs, "LARGE_ROWS", large)
        changes = run(TOP.replace("r <= 2", f"r <= {limit}"), rows, 2, 1)
    assert [*map(comparable, changes)] == [*map(comparable, run(TOP.replace("r <= 2", f"r <= {limit}"), rows, 2, 1))]


def test_rows_that_make_no_difference_are_not_kept_and_runs_stay_few() -> None:
    engine = SqlEngine(STREAM)
    engine.select(TOP)
    for i in range(300):
        engine.put("s", [(i, str(i % 10), float(i), None), (i, str(i % 10), -1.0, None)])
        engine.work()
    logic = top_of(engine)
    assert logic.state_rows() == 20
    assert len(logic._runs) <= 6
    assert sum(len(run.rows) for run in logic._runs) <= 2 * 20


def test_a_call_takes_no_more_rows_than_its_groups_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(i, "abc"[i % 3], float(i * 7 % 11), None) for i in range(60)]
    expected = Counter(comparable(row) for row, _ in first_rows(rows, 4))
    calls: list[int] = []
    changes = RunningTop._changes

    def counted(self: RunningTop, train: Train) -> Train:
        calls.append(train.rows * min(4, self.state_rows()))
        return changes(self, train)

    monkeypatch.setattr(limits, "CALL_VALUES_MAX", 20)
    monkeypatch.setattr(RunningTop, "_changes", counted)
    assert added_up(run(TOP.replace("<= 2", "<= 4"), rows, chunk=30)) == expected
    assert calls == [0, *[20] * 6]  # 30 rows while nothing is kept, then 5 at a time


@pytest.mark.parametrize(
    ("query", "shown", "limit", "numbered"),
    [
        (TOP, "First 2 so far of each k by x DESC", 2, False),
        (f"SELECT k, r FROM (SELECT k, {NUMBERED} FROM s) WHERE 4 > r", "First 3 so far of each k by x DESC, numbered", 3, True),
        (f"SELECT k FROM (SELECT k, {NUMBERED} FROM s) WHERE r = 3", "First 3 so far of each k by x DESC, numbered", 3, True),
        (f"SELECT k FROM (SELECT k, {NUMBERED} FROM s) WHERE r = 1 AND k <> 'a'", "First 1 so far of each k by x DESC", 1, False),
        (
            f"SELECT n FROM (SELECT r AS n FROM (SELECT {NUMBERED} FROM s)) WHERE n <= 7",
            "First 7 so far of each k by x DESC, numbered",
            7,
            True,
        ),
        ("SELECT x FROM (SELECT x, ROW_NUMBER() OVER (ORDER BY x) AS r FROM s) WHERE r < 3", "First 2 so far by x", 2, False),
        ("SELECT DISTINCT ON (UPPER(k), x) tag FROM s ORDER BY x, UPPER(k), ts DESC", "by ts DESC", 1, False),
    ],
)
def test_the_limit_is_what_the_query_asks_of_the_number(query: str, shown: str, limit: int, numbered: bool) -> None:
    engine = SqlEngine(STREAM)
    planned = plan_select(query, engine.catalog)
    assert shown in explain(planned)
    assert f"{limit} row" in explain(planned).partition("State")[2]
    engine.select(query)
    recipe = top_of(engine)._recipe
    assert (recipe.limit, recipe.numbered) == (limit, numbered)
    again = plan_select(json.loads(explain_json(planned)), engine.catalog)
    assert again.physical.root == planned.physical.root


RANKED = NUMBERED.replace("x", "n").replace("ROW_NUMBER", "RANK")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (f"SELECT k, {NUMBERED} FROM s", "numbers rows for ever.*WHERE r <= 10"),
        (f"SELECT k FROM (SELECT k, {NUMBERED} FROM s) WHERE r > 2", "numbers rows for ever"),
        (f"SELECT k FROM (SELECT k, {NUMBERED} FROM s) WHERE r <= 2 OR k = 'a'", "numbers rows for ever"),
        (TOP.replace("ROW_NUMBER", "RANK"), "RANK OVER .* without a window.*ROW_NUMBER"),
        (TOP.replace("FROM s)", "FROM s [ROWS 5])"), "ROW_NUMBER over .ROWS 5.*leave the window out"),
        ("SELECT DISTINCT ON (k) k FROM s [RANGE 5 SECONDS] ORDER BY k, x", "ROW_NUMBER over .RANGE 5 SECONDS. .*never ends"),
        (TOP.replace("AS r", "AS r, LAG(x) OVER (PARTITION BY k) AS b"), "beside another function with OVER.*derived table"),
        (
            f"SELECT k FROM (SELECT k, n, {RANKED} FROM (SELECT k, COUNT(*) AS n FROM s GROUP BY k)) WHERE r = 1",
            "RANK over a change log.*ROW_NUMBER",
        ),
        ("SELECT DISTINCT ON (k) k FROM s ORDER BY x", "ORDER BY must begin with the columns of DISTINCT ON"),
        ("SELECT DISTINCT ON (k) k, COUNT(*) FROM s GROUP BY k", "DISTINCT ON beside GROUP BY.*derived table"),
        ("SELECT DISTINCT ON (k) k FROM s ORDER BY k, x LIMIT 3", "LIMIT with DISTINCT ON.*derived table"),
        (f"ISTREAM({TOP})", "ISTREAM, DSTREAM and RSTREAM of the first rows.*EMIT CHANGES"),
        (f"{TOP} EMIT EVERY 5 SECONDS", "EMIT EVERY needs an aggregate"),
        (f"SELECT COUNT(*) AS n FROM ({TOP}) [RANGE 5 SECONDS]", "change log"),
    ],
)
def test_what_has_no_bound_or_no_meaning_is_refused(query: str, words: str) -> None:
    with pytest.raises(EngineError, match=words):
        SqlEngine(STREAM).select(query)


def test_aggregates_and_final_answers_stand_on_it() -> None:
    rows = [(i, "ab"[i % 2], float(x), None) for i, x in enumerate([3, 5, 4, 9, 1, 2, 7, 7])]
    assert added_up(run(f"SELECT k, SUM(x) AS total FROM ({TOP}) GROUP BY k", rows)) == Counter({("a", 11.0): 1, ("b", 16.0): 1})
    assert run(f"SELECT SUM(x) AS total FROM ({TOP}) EMIT FINAL", rows) == [(27.0,)]
    window = "s [RANGE 4 MICROSECONDS SLIDE 4 MICROSECONDS]"
    assert run(f"SELECT DISTINCT ON (k) k, x FROM {window} ORDER BY k, x DESC", rows) == [("a", 4.0), ("b", 9.0), ("a", 7.0), ("b", 7.0)]


def test_conditions_on_whole_groups_go_below() -> None:
    planned = plan_select(f"SELECT k, x FROM (SELECT *, {NUMBERED} FROM s) WHERE r <= 2 AND k = 'a' AND x > 0", SqlEngine(STREAM).catalog)
    lines = [line.strip() for line in explain(planned).splitlines()]
    above, below = (next(i for i, line in enumerate(lines) if line.startswith(word)) for word in ("Filter x", "Filter k"))
    assert above < next(i for i, line in enumerate(lines) if line.startswith("First 2")) < below


@pytest.mark.parametrize("turn", range(6))
def test_a_large_group_keeps_its_first_rows_apart_and_fetches_others_when_they_go(
    turn: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_top, "FRONT_ROWS", 1)
    choice = random.Random(seed + turn)
    by, limit = choice.choice(["PARTITION BY g ", ""]), choice.choice([1, 3])
    engine = SqlEngine("CREATE TABLE p (id INT, g TEXT, x DOUBLE, PRIMARY KEY (id))", fuse=False, train=choice.choice([None, 1, 7]))
    top = f"SELECT id, g, x, r FROM (SELECT *, ROW_NUMBER() OVER ({by}ORDER BY x DESC NULLS LAST, g) AS r FROM p) WHERE r <= {limit}"
    engine.select(top)
    running = next(one for one in engine.network.operators.values() if isinstance(one.logic, ChangingTop))
    rows: dict[int, tuple[Any, ...]] = {}
    held = 0
    for step in range(30):
        fewer = step % 10 > 6  # now and then most rows go, so that heaps run empty
        changes = []
        for _ in range(choice.choice([1, 5, 40])):
            key = choice.randrange(120)
            row = (key, choice.choice(["a", "b", "b", None]), choice.choice([None, 0.0, -0.0, float("nan"), *map(float, range(9))]))
            gone = choice.random() < (0.9 if fewer else 0.2)
            changes.append((*row, "-" if gone else "+"))
            rows.pop(key, None)
            if not gone:
                rows[key] = row
        engine.put("p", changes)
        groups: dict[Any, list[tuple[Any, ...]]] = {}
        for row in rows.values():
            groups.setdefault(row[1] if by else None, []).append(row)
        expected: Counter[Any] = Counter()
        for mine in groups.values():
            mine.sort(key=lambda r: ((9,) if r[2] is None else rank_of(r[2], descending=True), r[1] is None, r[1] or "", r[0]))
            expected.update(comparable((*row, number)) for number, row in enumerate(mine[:limit], start=1))
        engine.work()
        assert added_up(engine.rows("q")) == expected, (seed, turn, step)
        assert running.logic.state_rows() == len(rows)
        held = max(held, len(running.logic._heaps))
        if choice.random() < 0.2:
            fresh = build_operator(running.recipe, [c.log.schema for c in running.inputs])
            fresh.restore(running.logic.snapshot())
            running.logic = fresh
    assert held
