"""Panes side by side: what they come to does not depend on where they lie, not in the last bit."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.windows.grids import SLOTS_MIN, PaneTable, combined


@settings(max_examples=80, deadline=None)
@given(groups=st.integers(1, 200), panes=st.integers(1, 40), data=st.data())
def test_panes_are_put_together_strictly_in_turn_wherever_they_lie(groups: int, panes: int, data: st.DataObject) -> None:
    table = PaneTable()
    table.reserve_groups(groups)
    grid = table.grid(np.float64, 0.0)
    random = np.random.default_rng(data.draw(st.integers(0, 1_000)))
    slots = [table.open(pane) for pane in range(panes)]
    grid.array[:] = random.standard_normal(grid.array.shape) * 10.0 ** random.integers(-12, 12, grid.array.shape)
    order = data.draw(st.permutations(slots)) if data.draw(st.booleans()) else slots[data.draw(st.integers(0, panes - 1)) :]
    for operation in (np.add, np.maximum, np.minimum):
        in_turn = reduce(operation, [grid.array[slot] for slot in order])
        assert combined(grid, order, operation).tobytes() == in_turn.tobytes()


def test_what_is_put_together_is_no_part_of_the_panes() -> None:
    table = PaneTable()
    grid = table.grid(np.int64, 0)
    slot = table.open(1)
    combined(grid, [slot], np.add)[:] = 5
    assert not grid.array.any()


@pytest.mark.parametrize("live", [1, 3, 10])
def test_panes_that_come_and_go_in_turn_lie_side_by_side_but_for_the_end_of_the_table(live: int) -> None:
    table = PaneTable()
    for pane in range(100):
        table.open(pane)
        if pane >= live:
            table.close(pane - live)
        if pane > 4 * live:
            slots = [table.slots[p] for p in range(pane - live + 1, pane + 1)]
            steps = [(b - a) % table.slot_count for a, b in pairwise(slots)]
            assert steps == [1] * (live - 1)
    assert table.slot_count <= max(SLOTS_MIN, 2 * (live + 1))
