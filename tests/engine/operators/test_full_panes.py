"""Panes that every group has reached are folded a short way: the answers stay those of the long one, to the last bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.state import decoding, encoding
from millstream.engine.windows.grids import PaneTable
from millstream.engine.windows.pane_aggregates import FullPane
from millstream.engine.windows.pane_states import NEVER, ORDERED_PANES, SHORT_SPAN, Batch, RowCounts

from tests.support.engine_run import SECOND, SqlEngine

STREAM = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, d DOUBLE, n BIGINT, ok BOOLEAN) TIMESTAMP BY ts"
WHOLE = "COUNT(d) AS a, SUM(d) AS b, AVG(d) AS c, MAX(d) AS e, MIN(n) AS f, SUM(n) AS g"
PARTLY = "SUM(d) FILTER (WHERE ok) AS b, MAX(n) AS e, COUNT(DISTINCT n) AS f"


def answers(wanted: str, chunks: Sequence[Sequence[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    engine = SqlEngine(STREAM)
    engine.select(f"SELECT k, COUNT(*) AS m, {wanted}, window_end FROM s [RANGE 3 SECONDS SLIDE 1 SECOND] GROUP BY k")
    for chunk in chunks:
        engine.put("s", chunk)
        engine.work()
    engine.end()
    engine.work()
    return engine.rows("q")


ROWS = st.tuples(
    st.integers(0, 3),
    st.one_of(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.none()),
    st.one_of(st.integers(-(2**62), 2**62), st.none()),
    st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([WHOLE, PARTLY]), st.lists(st.tuples(st.integers(0, SECOND // 3), ROWS), max_size=60), st.integers(1, 9))
def test_trains_that_stay_in_a_full_pane_answer_as_all_rows_together(wanted: str, drawn: list[Any], length: int) -> None:
    rows, now = [], 0
    for step, values in drawn:
        now += step
        rows.append((now, *values))
    cut = [rows[at : at + length] for at in range(0, len(rows), length)]
    assert repr(answers(wanted, cut)) == repr(answers(wanted, [rows] if rows else []))


def test_a_full_pane_takes_the_short_way_until_a_null_a_new_group_or_a_new_pane_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bool] = []
    fold = FullPane.fold

    def noted(self: FullPane, *given: Any) -> bool:
        taken.append(fold(self, *given))
        return taken[-1]

    monkeypatch.setattr(FullPane, "fold", noted)
    plain = [(1, 1, 0.5, 1, True), (1, 2, 0.5, 1, True)]
    null, new_group, new_pane = (2, 1, None, 1, True), (3, 3, 0.5, 1, True), (SECOND, 1, 0.5, 1, True)
    began = answers(WHOLE, [plain, plain, [(2, 2, 0.25, 5, True)]])
    assert taken == [True, True]
    assert {row[0]: row[1:6] for row in began[:2]} == {1: (2, 2, 1.0, 0.5, 0.5), 2: (3, 3, 1.25, 1.25 / 3, 0.5)}
    taken.clear()
    answers(WHOLE, [plain, [null], plain])
    assert taken == [False, False]  # from the first NULL on what counts is counted by itself
    taken.clear()
    answers(WHOLE, [plain, [new_group], [new_group], [new_pane], [new_pane]])
    assert taken == [True]  # the new group's second row; the new pane lacks two groups
    taken.clear()
    answers(PARTLY, [plain, plain])
    assert taken == [False]


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_groups_are_ordered_by_first_row_however_far_these_lie_apart(data: st.DataObject) -> None:
    table = PaneTable()
    rows = RowCounts(table)
    table.reserve_groups(data.draw(st.integers(1, 40)))
    span = data.draw(st.sampled_from([table.groups, SHORT_SPAN - 1, SHORT_SPAN, 2**40]))
    base = data.draw(st.integers(0, 2**40))
    firsts = data.draw(st.lists(st.integers(0, span), min_size=table.groups, max_size=table.groups, unique=True))
    present = data.draw(st.lists(st.booleans(), min_size=table.groups, max_size=table.groups))
    slot = table.open(7)
    rows.first.array[slot, : table.groups] = [base + first if there else NEVER for first, there in zip(firsts, present, strict=True)]
    wanted = [group for _, group in sorted((first, group) for group, first in enumerate(firsts) if present[group])]
    assert rows.present([slot]).tolist() == wanted
    assert [one.tolist() for one in rows.present_upto([slot], [1])] == [wanted]
    assert np.flatnonzero(rows.are_in(slot)).tolist() == sorted(wanted)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10_000), groups=st.sampled_from([1, 5, 300]), longest=st.sampled_from([1, 6, 400]))
def test_the_order_in_which_groups_came_is_known_however_their_rows_were_folded(seed: int, groups: int, longest: int) -> None:
    random = np.random.default_rng(seed)
    table = PaneTable()
    rows = RowCounts(table)
    came: dict[int, list[int]] = {}  # by pane
    ordinal, grown = 0, 1
    table.reserve_groups(1)
    train: Any = type("NoTimes", (), {"time": None})()
    for _ in range(25):
        if random.random() < 0.2:
            grown = int(random.integers(grown, groups + 1))
            table.reserve_groups(grown)
        if random.random() < 0.1:
            rows = decoding.decode(encoding.encode(rows))
            table = rows._table
        pane, count = int(random.integers(0, 4)), int(random.integers(1, longest + 1))
        if random.random() < 0.1 and pane in came:
            rows.clear(table.slots[pane])
            table.close(pane)
            del came[pane]
        ids = random.integers(0, grown, count)
        if random.random() < 0.8:
            panes = np.full(count, pane)
            lo = table.open(pane) * table.capacity
            batch = Batch(train, 0, count, ids, lo, lo + table.capacity, ordinal)
        else:
            panes = random.integers(0, 4, count)
            slots = {one: table.open(one) for one in panes.tolist()}
            cells = np.array([slots[one] for one in panes.tolist()]) * table.capacity + ids
            batch = Batch(train, 0, count, cells, 0, table.slot_count * table.capacity, ordinal)
        new = rows.update(batch)
        known = {(one, group) for one, there in came.items() for group in there}
        for one, group in zip(panes.tolist(), ids.tolist(), strict=True):
            if group not in came.setdefault(one, []):
                came[one].append(group)
        fresh = {(one, group) for one, there in came.items() for group in there} - known
        assert len(new) == len(fresh)
        assert set(new.tolist()) == {table.slots[one] * table.capacity + group for one, group in fresh}
        ordinal += count
        for one, there in came.items():
            assert rows.present([table.slots[one]]).tolist() == there
            assert [found.tolist() for found in rows.present_upto([table.slots[one]], [1])] == [there]
        assert len(rows._arrived) <= ORDERED_PANES
