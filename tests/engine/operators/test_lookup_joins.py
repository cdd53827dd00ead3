"""As-of joins against a naive reference, and stream–table joins by arrival."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.operators import table_join
from millstream.engine.operators.join_keys import KeyIndex

from tests.support.engine_run import SqlEngine

LEFT = "CREATE STREAM l (ts TIMESTAMP, k BIGINT, v BIGINT) TIMESTAMP BY ts DELAY 2 MICROSECONDS"
RIGHT = "CREATE STREAM r (ts TIMESTAMP, k BIGINT, w BIGINT) TIMESTAMP BY ts DELAY 3 MICROSECONDS"


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(-1, 2), st.integers(0, 1) | st.none()), max_size=30),
    st.booleans(),
    st.sampled_from([1, 4096]),
    st.none() | st.integers(0, 2),
    st.integers(1, 5),
)
def test_any_asof_join_agrees_with_the_reference(drawn: list[Any], left_kind: bool, train: int, shuffle: int | None, pause: int) -> None:
    engine = SqlEngine(LEFT, RIGHT, train=train, shuffle=shuffle)
    word = "LEFT ASOF JOIN" if left_kind else "ASOF JOIN"
    engine.select(f"SELECT l.v AS v, r.w AS w FROM l {word} r ON l.k = r.k AND r.ts <= l.ts")
    now, reached, lefts, rights = 0, [-math.inf, -math.inf], [], []
    answers: list[tuple[int, Any]] = []
    waiting: list[tuple[int, Any, int]] = []

    def answer() -> None:
        for row in [w for w in waiting if w[0] < reached[1]]:
            waiting.remove(row)
            best = max(
                (r for r in rights if r[1] == row[1] and row[1] is not None and r[0] <= row[0]), key=lambda r: (r[0], r[2]), default=None
            )
            if best is not None or left_kind:
                answers.append((row[2], None if best is None else best[2]))

    late = 0
    for n, (side, step, key) in enumerate(drawn):
        now += step
        engine.put("lr"[side], [(now, key, n)])
        if now < min(reached):
            late += 1
        elif side == 0:
            waiting.append((now, key, n))
            lefts.append(n)
        else:
            rights.append((now, key, n))
        answer() if side == 0 else None
        reached[side] = max(reached[side], now - (2, 3)[side])
        answer()
        if n % pause == 0:
            engine.work()
    engine.end("r")
    engine.end("l")
    reached[1] = math.inf
    answer()
    engine.work()
    assert engine.rows("q") == answers
    assert sum(a.late for a in engine.account("q").values()) == late
    assert all(a.balances for a in engine.account("q").values())


TABLE = "CREATE TABLE t (k BIGINT, name TEXT, PRIMARY KEY (k))"


@pytest.mark.parametrize("train", [1, 4096])
def test_a_row_meets_the_version_of_its_place_in_arrival_order(train: int) -> None:
    engine = SqlEngine(LEFT, TABLE, train=train)
    engine.put("t", [(1, "old", "+"), (3, "three", "+")])
    engine.select("SELECT v, name FROM l LEFT JOIN t ON l.k = t.k")
    engine.put("l", [(0, 1, 1), (0, 2, 2)])
    engine.put("t", [(1, "new", "+"), (2, "two", "+"), (3, "three", "-")])
    engine.put("l", [(0, 1, 3), (0, 2, 4), (0, 3, 5), (0, None, 6)])
    engine.work()
    assert engine.rows("q") == [(1, "old"), (2, None), (3, "new"), (4, "two"), (5, None), (6, None)]
    engine.end("l")
    engine.work()
    assert engine.results["q"][-1].ended


def test_old_versions_are_forgotten() -> None:
    engine = SqlEngine(LEFT, TABLE)
    delta = engine.select("SELECT v, name FROM l JOIN t ON l.k = t.k")
    for i in range(200):
        engine.put("t", [(1, str(i), "+")])
        engine.put("l", [(i, 1, i)])
        engine.work()
    kind = next(o.id for o in delta.operators if "join" in o.kind)
    assert engine.network.operators[kind].logic.state_rows() <= 2
    assert engine.rows("q") == [(i, str(i)) for i in range(200)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("++-ll"), st.integers(0, 6) | st.none(), st.integers(0, 2)), max_size=60),
    st.sampled_from(["l.k = t.k", "l.k = t.g", "l.k = t.g AND l.g = t.k"]),
    st.sampled_from([1, 3, 4096]),
    st.integers(1, 9),
    st.sampled_from([0, 1, 3, 256]),
)
def test_any_row_meets_what_stands_however_the_table_has_changed(drawn: list[Any], on: str, train: int, pause: int, few: int) -> None:
    left = "CREATE STREAM l (ts TIMESTAMP, k BIGINT, g BIGINT, v BIGINT) TIMESTAMP BY ts"
    engine = SqlEngine(left, "CREATE TABLE t (k BIGINT, g BIGINT, n BIGINT, PRIMARY KEY (k))", train=train)
    engine.put("t", [(k, 1, -k, "+") for k in range(3)])
    stands: dict[int | None, tuple[Any, ...]] = {k: (k, 1, -k) for k in range(3)}
    answers: list[tuple[Any, ...]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_join, "FEW", few)
        engine.select(f"SELECT v, t.n FROM l LEFT JOIN t ON {on}")
        for n, (what, key, other) in enumerate(drawn):
            if what == "l":
                engine.put("l", [(n, key, other, n)])
                met = {
                    "l.k = t.k": lambda row, key=key: row[0] == key,
                    "l.k = t.g": lambda row, key=key: row[1] == key,
                    "l.k = t.g AND l.g = t.k": lambda row, key=key, other=other: (row[1], row[0]) == (key, other),
                }[on]
                answers += [(n, row[2]) for row in stands.values() if key is not None and met(row)] or [(n, None)]
            else:
                engine.put("t", [(key, other, n, what)])
                stands.pop(key, None)
                if what == "+":
                    stands[key] = (key, other, n)
            if n % pause == 0:
                engine.work()
        engine.work()
    assert sorted(engine.rows("q"), key=repr) == sorted(answers, key=repr)
    assert [v for v, _ in engine.rows("q")] == [v for v, _ in answers]


@pytest.mark.parametrize("text", ["SELECT v, name FROM l JOIN t ON l.k = t.k", "SELECT v FROM l WHERE k IN (SELECT k FROM t)"])
def test_a_train_looks_up_what_it_brings_and_not_what_the_table_holds(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = SqlEngine(LEFT, TABLE, train=4)
    engine.put("t", [(k, str(k), "+") for k in range(1_000)])
    engine.select(text)
    indexed = []
    made = KeyIndex.__init__

    def noted(self: KeyIndex, recipe: Any, inputs: Any, right: Any, rows: int) -> None:
        indexed.append(rows)
        made(self, recipe, inputs, right, rows)

    monkeypatch.setattr(KeyIndex, "__init__", noted)
    for i in range(50):
        engine.put("l", [(i, i, i)])
        engine.work()
    assert sum(indexed) <= 2_000  # by the keys, and by the value that is looked for
    assert len(engine.rows("q")) == 50


def test_a_change_costs_about_the_root_of_what_the_table_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = SqlEngine(LEFT, TABLE)
    engine.put("t", [(k, str(k), "+") for k in range(5_000)])
    delta = engine.select("SELECT v, name FROM l JOIN t ON l.k = t.k")
    kind = next(o.id for o in delta.operators if "join" in o.kind)
    table = engine.network.operators[kind].logic._table
    written = []
    held = table._hold
    monkeypatch.setattr(table, "_hold", lambda versions: (written.append(len(versions)), held(versions)))
    for i in range(1_000):
        engine.put("t", [(i, f"new {i}", "+")])
        engine.put("l", [(i, i, i)])
        engine.work()
    assert sum(written) <= 4 * 6_000  # of 1,000 changes each would have written 5,000
    assert len(table) == 5_000
    assert len(table.parts[0]) + len(table.parts[1]) <= 7_000
    assert engine.rows("q") == [(i, f"new {i}") for i in range(1_000)]


@pytest.mark.parametrize(
    "spelled", ["FOR SYSTEM_TIME AS OF PROCTIME()", "FOR SYSTEM_TIME AS OF l.ts", "AS OF PROCTIME()", "AS OF PROCTIME"]
)
def test_as_of_proctime_is_the_version_that_stands_when_the_row_comes(spelled: str) -> None:
    engine = SqlEngine(LEFT, TABLE)
    engine.put("t", [(1, "old", "+")])
    engine.select(f"SELECT v, name FROM l JOIN t {spelled} ON l.k = t.k")
    engine.put("l", [(5, 1, 1)])
    engine.put("t", [(1, "new", "+")])
    engine.put("l", [(4, 1, 2)])
    engine.work()
    assert engine.rows("q") == [(1, "old"), (2, "new")]


def test_looking_ahead_keeps_no_versions_for_rows_that_wait_for_another_key() -> None:
    engine = SqlEngine(LEFT, RIGHT)
    delta = engine.select("SELECT v, w FROM l ASOF JOIN r ON l.k = r.k AND r.ts >= l.ts")
    engine.put("l", [(1, 7, 0)])  # nothing follows of its key
    for i in range(2, 200):
        engine.put("l", [(i, 1, i)])
        engine.put("r", [(i, 1, i)])
        engine.work()
    kind = next(o.id for o in delta.operators if "join" in o.kind)
    assert engine.network.operators[kind].logic.state_rows() <= 76  # 64 are kept before anything is left out
    engine.end("l")
    engine.end("r")
    engine.work()
    assert engine.rows("q") == [(i, i) for i in range(2, 200)]


@pytest.mark.parametrize("comparison", ["<=", ">="])
def test_a_train_costs_what_it_brings_and_not_what_is_held(comparison: str) -> None:
    """Versions are sorted a few times each, however many are held and however small the trains are."""
    engine = SqlEngine(LEFT, RIGHT, train=4)
    delta = engine.select(f"SELECT v, w FROM l ASOF JOIN r ON l.k = r.k AND r.ts {comparison} l.ts")
    keys, rounds = 256, 4
    for turn in range(rounds):
        for key in range(0, keys, 4):
            engine.put("r", [(turn * 10, k, turn) for k in range(key, key + 4)])
            engine.put("l", [(turn * 10, k, turn) for k in range(key, key + 4)])
            engine.work()
    kind = next(o.id for o in delta.operators if "join" in o.kind)
    held = engine.network.operators[kind].logic._held
    versions = keys * rounds
    assert held.sorted_rows <= versions * (versions.bit_length() + 2)  # every train would have sorted all: 256 trains of up to 256 versions
    assert held.rows <= 3 * keys
    engine.end("l")
    engine.end("r")
    engine.work()
    assert sorted(engine.rows("q")) == sorted((turn, turn) for turn in range(rounds) for _ in range(keys))


def test_where_drops_rows_after_the_nearest_was_found() -> None:
    engine = SqlEngine(LEFT, RIGHT)
    engine.select("SELECT v, w FROM l ASOF JOIN r ON l.k = r.k WHERE r.ts < l.ts")
    engine.put("r", [(1, 1, 10), (5, 1, 50)])
    engine.put("l", [(5, 1, 1), (6, 1, 2)])
    engine.end("r")
    engine.end("l")
    engine.work()
    assert engine.rows("q") == [(2, 50)]  # the row of 5 found that of 5, which WHERE drops, and looks for no other
