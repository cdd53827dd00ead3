"""State per pane and group: two-dimensional arrays, a row per pane slot and a column per group id.

A table hands out slots for panes and grows all its arrays together; accumulators hold `Grid`s of the table and only say how to fold
rows in and how to combine panes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]

GROUPS_MIN = 1
SLOTS_MIN = 2
STRETCH_MIN = 3  # fewer panes side by side are put together one by one
STRETCH_GROUPS_MIN = 16  # so are panes of few groups: NumPy sums a single column in an order of its own


class Block(NamedTuple):
    """The combination of neighbouring panes, as of the versions of their slots."""

    slots: Int64Array
    versions: int
    values: npt.NDArray[Any]


class Grid:
    """One value per pane slot and group. `flat` is the same memory in one dimension: cell = slot * capacity + group."""

    __slots__ = ("_fill", "array", "blocks", "flat")

    def __init__(self, slots: int, capacity: int, dtype: Any, fill: Any) -> None:
        self._fill = fill
        self.blocks: dict[int, Block] = {}  # see passes.py
        self.array = self._new(slots, capacity, dtype)
        self.flat = self.array.reshape(-1)

    def __getstate__(self) -> tuple[Any, npt.NDArray[Any]]:
        """A copy through pickle has one memory for both members, too."""
        return self._fill, self.array

    def __setstate__(self, state: tuple[Any, npt.NDArray[Any]]) -> None:
        self._fill, self.array = state
        self.blocks = {}
        self.flat = self.array.reshape(-1)

    def _new(self, slots: int, capacity: int, dtype: Any) -> npt.NDArray[Any]:
        array = np.empty((slots, capacity), dtype=dtype)
        array[:] = self._fill
        return array

    def resize(self, slots: int, capacity: int) -> None:
        """Keep what is there, at the same slot and group."""
        old = self.array
        self.array = self._new(slots, capacity, old.dtype)
        self.array[: old.shape[0], : old.shape[1]] = old
        self.flat = self.array.reshape(-1)

    def clear(self, slot: int) -> None:
        """Reset a slot."""
        self.array[slot] = self._fill

    def clear_groups(self, ids: Int64Array) -> None:
        """Reset groups in all slots; cells of closed panes are reset with their slot already."""
        self.array[:, ids] = self._fill


class PaneTable:
    """Slots of the live panes. `slots` maps a pane's number to its row.

    A new pane gets the row behind that of the last one if it can, so that panes that follow one another mostly lie side by side.
    """

    _newest = -1  # the slot given out last

    def __init__(self) -> None:
        self.slots: dict[int, int] = {}
        self.slot_count = SLOTS_MIN
        self.capacity = GROUPS_MIN
        self.groups = 0  # one more than the greatest group id ever
        self.grids: list[Grid] = []
        self.versions: Int64Array = np.zeros(SLOTS_MIN, dtype=np.int64)  # per slot: grows with all that is folded in
        self._free: list[int] = list(range(SLOTS_MIN))

    def grid(self, dtype: Any, fill: Any) -> Grid:
        """Return a new grid that grows with the table."""
        grid = Grid(self.slot_count, self.capacity, dtype, fill)
        self.grids.append(grid)
        return grid

    def reserve_groups(self, size: int) -> None:
        """Make room for group ids below `size`."""
        self.groups = max(self.groups, size)
        if size > self.capacity:
            capacity = self.capacity
            while capacity < size:
                capacity *= 2
            self._resize(self.slot_count, capacity)

    def open(self, pane: int) -> int:
        """Return the slot of a pane for rows to be folded in, a fresh one when it is new."""
        slot = self.slots.get(pane)
        if slot is None:
            if not self._free:
                self._free.extend(range(self.slot_count, 2 * self.slot_count))
                self._resize(2 * self.slot_count, self.capacity)
            wanted = (self._newest + 1) % self.slot_count
            slot = self._free.pop(self._free.index(wanted)) if wanted in self._free else self._free.pop()
            self.slots[pane] = self._newest = slot
        self.versions[slot] += 1
        return slot

    def close(self, pane: int) -> None:
        """Free a pane's slot."""
        slot = self.slots.pop(pane)
        for grid in self.grids:
            grid.clear(slot)
        self._free.append(slot)

    def _resize(self, slots: int, capacity: int) -> None:
        self.slot_count, self.capacity = slots, capacity
        self.versions = np.concatenate((self.versions, np.zeros(slots - len(self.versions), dtype=np.int64)))
        for grid in self.grids:
            grid.resize(slots, capacity)

    def nbytes(self) -> int:
        """Return the bytes of all grids."""
        return sum(g.array.nbytes for g in self.grids)


class WindowSlots(list[int]):
    """Slots of a window's panes in order of time; which of them lie side by side is found once, for all grids."""

    __slots__ = ("_stretches",)

    def __init__(self, slots: Sequence[int]) -> None:
        super().__init__(slots)
        self._stretches: list[tuple[int, int]] | None = None

    def stretches(self) -> list[tuple[int, int]]:
        """Return (first slot, how many) of each stretch; panes of a short one stand alone."""
        if self._stretches is None:
            self._stretches = stretches_of(self)
        return self._stretches


def stretches_of(slots: Sequence[int]) -> list[tuple[int, int]]:
    """Return (first slot, how many) of each stretch of slots that lie side by side; those of one shorter than STRETCH_MIN stand alone."""
    found: list[tuple[int, int]] = []
    first = beyond = slots[0]
    for slot in (*slots, -1):
        if slot == beyond:
            beyond += 1
            continue
        panes = beyond - first
        found.extend([(first, panes)] if panes >= STRETCH_MIN else [(one, 1) for one in range(first, beyond)])
        first, beyond = slot, slot + 1
    return found


def combined(grid: Grid, slots: Sequence[int], operation: np.ufunc) -> npt.NDArray[Any]:
    """Return one value a group: the panes' values put together in turn, in memory of its own.

    Panes that lie side by side are put together by one call; of sums of DOUBLEs only those that come first, as the others must be added
    to what these came to.
    """
    array = grid.array
    if array.shape[1] < STRETCH_GROUPS_MIN:
        return _in_turn(array, array[slots[0]].copy(), slots[1:], operation)
    stretches = slots.stretches() if type(slots) is WindowSlots else stretches_of(slots)
    slot, panes = stretches[0]
    total: npt.NDArray[Any] = array[slot].copy() if panes == 1 else operation.reduce(array[slot : slot + panes], axis=0)
    if operation is np.add and array.dtype == np.float64:
        return total if panes == len(slots) else _in_turn(array, total, slots[panes:], operation)
    for slot, panes in stretches[1:]:
        part = array[slot] if panes == 1 else operation.reduce(array[slot : slot + panes], axis=0)
        operation(total, part, out=total)
    return total


def _in_turn(array: npt.NDArray[Any], total: npt.NDArray[Any], slots: Sequence[int], operation: np.ufunc) -> npt.NDArray[Any]:
    """Put one pane after the other into a total."""
    for slot in slots:
        operation(total, array[slot], out=total)
    return total
