"""One pass over panes gives what reducing each prefix gives, whatever is folded in, opened and closed in between."""

from __future__ import annotations

import numpy as np
import pytest
from millstream.engine.windows import grids
from millstream.engine.windows.grids import BLOCK_PANES, PaneSlots, PaneTable, Passed


@pytest.mark.parametrize("groups", [1, 40, 300])
@pytest.mark.parametrize("operation", [np.maximum, np.add])
def test_prefixes_of_long_windows_are_right_while_panes_come_go_and_change(groups: int, operation: np.ufunc) -> None:
    draw = np.random.default_rng(groups)
    table = PaneTable()
    table.reserve_groups(groups)
    grid = table.grid(np.int64, 0)
    length = 6 * BLOCK_PANES
    for pane in range(length + 150):
        if draw.random() < 0.9:  # some panes hold no rows
            slot = table.open(pane)
            grid.array[slot, :groups] = draw.integers(0, 1_000, groups)
        if pane >= length and pane - length in table.slots:
            table.close(pane - length)
        if pane >= length and pane % 5 == 0:
            late = int(draw.choice(list(table.slots)))
            slot = table.open(late)
            grid.array[slot, draw.integers(0, groups)] += 5_000
        if pane < length or pane % 3:
            continue
        live = sorted(table.slots, reverse=True)
        slots = PaneSlots([table.slots[p] for p in live], table, np.array(live, dtype=np.int64))
        counts = sorted({int(c) for c in draw.integers(1, len(live) + 1, int(draw.integers(1, 5)))} | {len(live)})
        passed = Passed(grid, slots, counts, operation)
        for count in counts:
            assert np.array_equal(passed.upto(count), operation.reduce(grid.array[slots[:count]], axis=0))


def test_a_long_window_over_many_groups_is_put_together_from_kept_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    table = PaneTable()
    table.reserve_groups(300)
    grid = table.grid(np.float64, 0.0)
    for pane in range(640):
        slot = table.open(pane)
        grid.array[slot] = pane
    built: list[int] = []
    block = grids.Block
    monkeypatch.setattr(grids, "Block", lambda *what: built.append(len(what[0])) or block(*what))
    for newest in (640, 639, 638):
        live = list(range(newest - 1, newest - 600, -1))
        slots = PaneSlots([table.slots[p] for p in live], table, np.array(live, dtype=np.int64))
        assert Passed(grid, slots, [599], np.maximum).upto(599)[0] == newest - 1
    assert built == [BLOCK_PANES] * 8
