"""Windowed joins: against a naive reference, for any train and order of running, and the cases from the field."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from millstream.engine.data import column
from millstream.engine.data.column import Column, PiecedColumn, chained_columns
from millstream.engine.data.schema import Field, Schema
from millstream.engine.data.types import BIGINT, DOUBLE, TEXT, TIMESTAMP
from millstream.engine.expressions.ir import ColumnRef
from millstream.engine.language.recipes import JoinKind, JoinRecipe
from millstream.engine.operators import group_runs
from millstream.engine.operators.join_state import RowStore, Run, SideState
from millstream.engine.plan.physical import PhysicalNode, SourceNode

from tests.support.engine_run import Engine, compare, node, schema_of
from tests.support.reference_joins import JoinReference
from tests.support.reference_windows import same

SCHEMA = schema_of(ts=TIMESTAMP, k=BIGINT, v=BIGINT)
KINDS = {
    (False, False): JoinKind.INNER,
    (True, False): JoinKind.LEFT,
    (False, True): JoinKind.RIGHT,
    (True, True): JoinKind.FULL,
}


def join(
    left: SourceNode | PhysicalNode,
    right: SourceNode | PhysicalNode,
    schema: Schema,
    lower: int | None,
    upper: int | None,
    *,
    kind: JoinKind = JoinKind.INNER,
    keys: tuple[int, ...] = (1,),
    null_safe: bool = False,
    residual: Any = None,
) -> PhysicalNode:
    fields = tuple(Field(f"{side}_{f.name}", f.type) for side in "lr" for f in schema.fields)
    return node(JoinRecipe(Schema(fields), kind, keys, keys, (null_safe,) * len(keys), residual, lower, upper), left, right)


ARRIVALS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(-3, 4), st.integers(0, 2) | st.none(), st.integers(0, 9)),
    max_size=40,
)
BOUND = st.integers(-6, 6) | st.none()


@settings(max_examples=60, deadline=None)
@example([(0, -1, None, 9), (0, 0, 1, 7), (1, 0, None, 5), (1, -1, None, 4)], 1, None, (0, 1), (True, True), True, 1, None, 6)
@given(
    ARRIVALS,
    BOUND,
    BOUND,
    st.tuples(st.integers(0, 4), st.integers(0, 4)),
    st.tuples(st.booleans(), st.booleans()),
    st.booleans(),
    st.sampled_from([1, 3, 4096]),
    st.none() | st.integers(0, 3),
    st.integers(1, 6),
)
def test_any_join_agrees_with_the_reference(
    arrivals: list[Any],
    lower: int | None,
    upper: int | None,
    delays: tuple[int, int],
    keep: tuple[bool, bool],
    null_safe: bool,
    train: int,
    shuffle: int | None,
    pause: int,
) -> None:
    if lower is not None and upper is not None and lower > upper:
        lower, upper = upper, lower
    reference = JoinReference(lower, upper, delays, keep, null_safe)
    engine = Engine(train=train, shuffle=shuffle)
    left = engine.stream("l", SCHEMA, delay_us=delays[0])
    right = engine.stream("r", SCHEMA, delay_us=delays[1])
    engine.query("q", join(left, right, SCHEMA, lower, upper, kind=KINDS[keep], null_safe=null_safe))
    now = 0
    for n, (side, step, key, value) in enumerate(arrivals):
        now += step
        row = (now, key, value)
        reference.row(side, row)
        engine.put("lr"[side], [row])
        if n % pause == 0:
            engine.work()
    for side, name in enumerate("lr"):
        reference.end(side)
        engine.end(name)
        engine.work()
    assert engine.rows("q") == reference.rows(3)
    accounts = engine.account("q")
    assert sum(a.late for a in accounts.values()) == len(reference.late)
    assert all(a.balances for a in accounts.values())


def run_pair(left_rows: list[Any], right_rows: list[Any], schema: Schema = SCHEMA, **how: Any) -> list[Any]:
    engine = Engine()
    left, right = engine.stream("l", schema), engine.stream("r", schema)
    engine.query("q", join(left, right, schema, -60, 60, **how))
    engine.put("l", left_rows)
    engine.put("r", right_rows)
    engine.end()
    engine.work()
    return engine.rows("q")


@pytest.mark.parametrize(
    ("kind", "null_safe", "expected"),
    [(JoinKind.INNER, False, 1), (JoinKind.LEFT, False, 2), (JoinKind.FULL, False, 3), (JoinKind.INNER, True, 2)],
)
def test_null_keys_match_only_where_asked_c14(kind: JoinKind, null_safe: bool, expected: int) -> None:
    assert len(run_pair([(0, 1, 0), (0, None, 0)], [(0, 1, 0), (0, None, 0)], kind=kind, null_safe=null_safe)) == expected


def test_a_padded_row_comes_only_when_no_match_can_come_c15() -> None:
    engine = Engine()
    left, right = engine.stream("l", SCHEMA), engine.stream("r", SCHEMA)
    engine.query("q", join(left, right, SCHEMA, -3, 3, kind=JoinKind.LEFT))
    engine.put("l", [(0, 1, 10), (0, 2, 20)])
    engine.put("r", [(2, 1, 30)])
    engine.put("l", [(3, 9, 0)])
    engine.put("r", [(3, 8, 0)])
    engine.work()
    assert engine.rows("q") == [(0, 1, 10, 2, 1, 30)]
    engine.put("l", [(4, 9, 0)])
    engine.put("r", [(4, 8, 0)])
    engine.work()
    assert engine.rows("q")[1:] == [(0, 2, 20, None, None, None)]


def test_state_follows_the_watermark_and_not_the_keys_c16() -> None:
    engine = Engine()
    left, right = engine.stream("l", SCHEMA), engine.stream("r", SCHEMA)
    delta = engine.query("q", join(left, right, SCHEMA, -1000, 1000))
    operator = engine.network.operators[next(o.id for o in delta.operators if o.kind == "join")].logic
    for start in range(0, 20_000, 100):
        engine.put("l", [(t, 2 * t, 0) for t in range(start, start + 100)])
        engine.put("r", [(t, 2 * t + 1, 0) for t in range(start, start + 100)])
        engine.work()
        assert operator.state_rows() <= 2 * 2 * 1200
    engine.end()
    engine.work()
    assert engine.rows("q") == []
    assert operator.state_rows() == 0
    assert operator._keys._encoder.alive == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("train", [None, 1])
def test_a_row_of_a_self_join_meets_itself_once_c17(train: int | None) -> None:
    for residual, expected in ((None, 4), (compare("<", ColumnRef(TIMESTAMP, 0), ColumnRef(TIMESTAMP, 3)), 1)):
        engine = Engine(train=train)
        source = engine.stream("s", SCHEMA)
        engine.query("q", join(source, source, SCHEMA, -10, 10, residual=residual))
        engine.put("s", [(0, 1, 100), (5, 1, 200)])
        engine.work()
        pairs = [(r[2], r[5]) for r in engine.rows("q")]
        assert pairs == [(100, 100), (100, 200), (200, 100), (200, 200)][: expected if expected == 4 else 0] or pairs == [(100, 200)]
        assert len(pairs) == expected
        assert all(a.balances for a in engine.account("q").values())


@pytest.mark.parametrize("first", ["l", "r"])
def test_swapping_the_sides_swaps_the_columns_c18(first: str) -> None:
    results = []
    for swapped in (False, True):
        engine = Engine()
        sides = [engine.stream("l", SCHEMA), engine.stream("r", SCHEMA)]
        if swapped:
            sides.reverse()
        engine.query("q", join(sides[0], sides[1], SCHEMA, -60, 60))
        for name in (first, "r" if first == "l" else "l"):
            engine.put(name, [(10 if name == "l" else 11, 7, 0)])
        engine.work()
        results.append(engine.rows("q"))
    assert [r[3:] + r[:3] for r in results[1]] == results[0] == [(10, 7, 0, 11, 7, 0)]


def test_equal_doubles_join_c22() -> None:
    schema = schema_of(ts=TIMESTAMP, d=DOUBLE)
    rows = [(0, 0.0), (0, -0.0), (0, math.nan), (0, -math.nan)]
    assert len(run_pair(rows, rows, schema)) == 8


def test_text_and_several_keys_join() -> None:
    schema = schema_of(ts=TIMESTAMP, a=TEXT, b=BIGINT)
    rows = run_pair([(0, "x", 1), (1, "y", 1), (2, None, 1)], [(0, "x", 1), (1, "y", 2), (2, None, 1)], schema, keys=(1, 2))
    assert same(rows, [(0, "x", 1, 0, "x", 1)])


def test_a_key_that_pairs_with_everything_is_worked_off_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.engine.operators.join_state.CANDIDATES_MAX", 10)
    rows = [(t, 1, t) for t in range(30)]
    assert len(run_pair(rows, rows)) == 900


def test_a_join_without_keys_pairs_by_time_alone() -> None:
    assert len(run_pair([(0, 1, 1), (100, 2, 2)], [(0, 3, 3), (50, 4, 4)], keys=())) == 3


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), min_size=1, max_size=9), max_size=30), st.integers(0, 12))
def test_rows_are_found_however_runs_were_merged_and_texts_lie(trains: list[Any], bound: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_runs, "LARGE_ROWS", 8)
        patch.setattr(column, "PIECED_FROM", 4)
        patch.setattr(column, "PIECES_MAX", 5)
        side = SideState(lambda _: None)
        kept: list[tuple[int, int, str]] = []
        for number, train in enumerate(trains):
            ids, times = np.array(train, dtype=np.int64).T
            texts = [f"{number}-{i}" for i in range(len(train))]
            numbers = np.arange(len(train), dtype=np.int64)
            columns = [Column(TEXT, pa.array(texts)), Column(BIGINT, ids)]
            side.add(Run(RowStore(columns, times, numbers, numbers, ids, np.zeros(len(train), dtype=np.bool_)), 6))
            side.settle(bound, 6)
            kept += zip(ids.tolist(), times.tolist(), texts, strict=True)
        found = []
        for run in side.runs:
            for probes, rows in run.candidates(*run.ranges(np.arange(6))):
                taken = [c.take(rows) for c in run.rows.columns]
                found += zip(
                    probes.tolist(), run.rows.time[rows].tolist(), taken[0].values.to_pylist(), taken[1].values.tolist(), strict=True
                )
        alive = {(key, time, text, key) for key, time, text in kept if time >= bound}
        assert {row for row in found if row[1] >= bound} == alive
        assert len(found) == len(set(found)) <= len(kept)
        assert len(side.runs) <= 2 + 4 * (len(trains) + 1).bit_length()


@given(st.lists(st.lists(st.none() | st.text(max_size=3), max_size=5), min_size=2, max_size=8), st.data())
def test_a_column_in_pieces_is_that_of_all_rows(pieces: list[list[str | None]], data: Any) -> None:
    rows = [row for piece in pieces for row in piece]
    one = PiecedColumn(TEXT, [pa.array(piece, pa.string()) for piece in pieces])
    index = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=12)) if rows else [], dtype=np.int64)
    picked = one.picked(index)
    again = np.arange(len(index), dtype=np.int64)[::-2]
    assert (len(one), one.values.to_pylist()) == (len(rows), rows)
    for column_, wanted in (
        (one.take(index), index),
        (picked, index),
        (picked.take(again), index[again]),
        (picked.slice(0, len(index) // 2), index[: len(index) // 2]),
    ):
        assert len(column_) == len(wanted)
        assert column_.values.to_pylist() == [rows[i] for i in wanted]
    assert one.filter(np.array([row is None for row in rows], dtype=np.bool_)).values.null_count == rows.count(None)
    assert one.nbytes() >= one.take(np.arange(len(rows))).nbytes()
    joined = chained_columns([one, Column(TEXT, pa.array(rows, pa.string()))])
    assert joined.values.to_pylist() == rows * 2
