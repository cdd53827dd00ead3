"""One operation over panes from the newest on, so that every prefix of them has its result: the answer of a shorter window.

How it is done follows what was measured (docs/benchmarks.md). Few groups: all panes at once. Many groups: pane after pane, in place. Long
windows over many groups: panes are combined in blocks of BLOCK_PANES, which are kept until one of their panes changes, so that the next
window, a slide later, combines a few blocks and the panes at both ends (a tree of two levels; extremes cannot be taken back, so there
is no subtracting of what has left).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.windows.grids import Block, Grid, PaneTable

Int64Array = npt.NDArray[np.int64]

GROUPS_FEW = 128  # up to here all panes are gathered and combined by one call
GROUPS_VERY_FEW = 16  # up to here also where every prefix is wanted
BLOCK_PANES = 64
PANES_MANY = 4 * BLOCK_PANES  # with fewer, blocks save nothing


class PaneSlots(list[int]):
    """Slots of panes, newest first, with the table they are of and the start of each in steps (for many)."""

    def __init__(self, slots: Sequence[int], table: PaneTable, numbers: Int64Array | None = None) -> None:
        super().__init__(slots)
        self.table = table
        self.numbers = numbers


class Passed:
    """See the module's text. The bits of a result do not depend on which other prefixes are asked for, save sums of DOUBLEs."""

    def __init__(self, grid: Grid, slots: Sequence[int], counts: Sequence[int], operation: np.ufunc) -> None:
        self._grid, self._slots, self._operation = grid, slots, operation
        self._known: dict[int, npt.NDArray[Any]] = {}
        wanted = sorted(set(counts))
        groups, exact = grid.array.shape[1], operation is not np.add or grid.array.dtype != np.float64
        if groups <= GROUPS_FEW and exact and len(wanted) <= 2:
            self._known = {count: operation.reduce(grid.array[list(slots[:count])], axis=0) for count in wanted}
        elif groups <= GROUPS_VERY_FEW and wanted:  # sums of DOUBLEs strictly in turn, as `reduce` would not have them
            whole = operation.accumulate(grid.array[list(slots[: wanted[-1]])], axis=0)
            self._known = {count: whole[count - 1] for count in wanted}
        else:
            self._run(wanted)

    def upto(self, count: int) -> npt.NDArray[Any]:
        """Return the result over the first `count` panes, one value a group."""
        return self._known[count]

    def _run(self, wanted: Sequence[int]) -> None:
        """Go from the newest pane to the oldest, by blocks where they are whole, and note the result at each count."""
        array, operation = self._grid.array, self._operation
        running: npt.NDArray[Any] | None = None
        ends = self._block_ends(wanted[-1]) if wanted else {}
        place = 0
        for count in wanted:
            while place < count:
                end = ends.get(place, place)
                part = array[self._slots[place]] if end in (place, place + 1) or end > count else self._block(place, end)
                place = end if place < end <= count else place + 1
                running = part.copy() if running is None else operation(running, part, out=running)
            assert running is not None
            self._known[count] = running if count == wanted[-1] else running.copy()

    def _block_ends(self, longest: int) -> dict[int, int]:
        """Return where blocks begin and end among the panes; none for short windows."""
        slots = self._slots
        if longest < PANES_MANY or not isinstance(slots, PaneSlots) or slots.numbers is None:
            return {}
        blocks = slots.numbers[:longest] // BLOCK_PANES
        cuts = [0, *(np.flatnonzero(blocks[1:] != blocks[:-1]) + 1).tolist(), longest]
        kept = set(blocks.tolist())
        if len(self._grid.blocks) > 2 * len(kept):
            self._grid.blocks = {number: block for number, block in self._grid.blocks.items() if number in kept}
        return dict(pairwise(cuts[1:-1]))  # the first and the last may not be whole

    def _block(self, start: int, end: int) -> npt.NDArray[Any]:
        """Return the combination of a block's panes, that of before if nothing was folded into them since."""
        slots = self._slots
        assert isinstance(slots, PaneSlots)
        assert slots.numbers is not None
        number, panes = int(slots.numbers[start]) // BLOCK_PANES, np.array(slots[start:end], dtype=np.int64)
        versions = int(slots.table.versions[panes].sum())
        known = self._grid.blocks.get(number)
        same_groups = known is not None and len(known.values) == self._grid.array.shape[1]
        if known is not None and same_groups and known.versions == versions and np.array_equal(known.slots, panes):
            return known.values
        values: npt.NDArray[Any] = self._grid.array[slots[start]].copy()
        for slot in slots[start + 1 : end]:
            self._operation(values, self._grid.array[slot], out=values)
        self._grid.blocks[number] = Block(panes, versions, values)
        return values
