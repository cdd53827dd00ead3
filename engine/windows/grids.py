"""State per pane and group: two-dimensional arrays, a row per pane slot and a column per group id; and how panes are put together.

A table hands out slots for panes and grows all its arrays together. `combined` combines one window, `Passed` many that end together:
one operation over panes from the newest on, so that every prefix of them has its result, the answer of a shorter window.

How `Passed` does it follows what was measured (docs/benchmarks.md). Few groups: all panes at once. Many groups: pane after pane, in place.
Long windows over many groups: panes are combined in blocks of BLOCK_PANES, which are kept until one of their panes changes, so that the
next window, a slide later, combines a few blocks and the panes at both ends (a tree of two levels; extremes cannot be taken back, so
there is no subtracting of what has left).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from millstream.engine.data.arrays import filled
from millstream.engine.data.key_maps import array_bytes
from millstream.engine.state.forms import state_record

Int64Array = npt.NDArray[np.int64]

GROUPS_MIN = 1
SLOTS_PER_USED_MAX = 4  # in what is written; a table that had more panes than now has more
SLOTS_MIN = 1
STRETCH_MIN = 3  # fewer panes side by side are put together one by one
STRETCH_GROUPS_MIN = 16  # so are panes of few groups: NumPy sums a single column in an order of its own
GROUPS_FEW = 128  # up to here all panes are gathered and combined by one call
GROUPS_VERY_FEW = 16  # up to here also where every prefix is wanted
BLOCK_PANES = 64
PANES_MANY = 4 * BLOCK_PANES  # with fewer, blocks save nothing


class Block(NamedTuple):
    """The combination of neighbouring panes, as of the versions of their slots."""

    slots: Int64Array
    versions: int
    values: npt.NDArray[Any]


@state_record("grid", 1, ("_fill",))
class Grid:
    """One value per pane slot and group. `flat` is the same memory in one dimension: cell = slot * capacity + group."""

    __slots__ = ("_fill", "array", "blocks", "flat")

    def __init__(self, slots: int, capacity: int, dtype: Any, fill: Any) -> None:
        self._fill = fill
        self.blocks: dict[int, Block] = {}  # see Passed
        self.array = self._new(slots, capacity, dtype)
        self.flat = self.array.reshape(-1)

    @classmethod
    def from_state(cls, fields: dict[str, Any]) -> Grid:
        """Return a grid whose cells its table tells."""
        made = cls.__new__(cls)
        made._fill = fields["_fill"]
        return made

    def place(self, slots: int, capacity: int, used: Int64Array, cells: npt.NDArray[Any]) -> None:
        """Have the cells of the first groups in some slots; the others are as they were never used."""
        self.blocks = {}
        self.array = self._new(slots, capacity, cells.dtype)
        self.array[used, : cells.shape[1]] = cells
        self.flat = self.array.reshape(-1)

    def _new(self, slots: int, capacity: int, dtype: Any) -> npt.NDArray[Any]:
        return filled((slots, capacity), dtype, self._fill)

    def resize(self, slots: int, capacity: int) -> None:
        """Keep what is there, at the same slot and group."""
        old = self.array
        self.array = self._new(slots, capacity, old.dtype)
        self.array[: old.shape[0], : old.shape[1]] = old
        self.flat = self.array.reshape(-1)

    def clear(self, slot: int) -> None:
        """Reset a slot."""
        self.array[slot] = self._fill


TABLE_FIELDS = ("slots", "grids", "used", "cells", "versions", "free", "newest")


@state_record("pane_table", 1, TABLE_FIELDS)
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

    def to_state(self) -> tuple[Any, ...]:
        """Return the panes, the slots in use (all where these are few among many), and of each grid the cells of groups in them."""
        used = np.array(sorted(self.slots.values()), dtype=np.int64)
        if self.slot_count > SLOTS_PER_USED_MAX * len(used):
            used = np.arange(self.slot_count, dtype=np.int64)
        cells = [grid.array[used, : self.groups] for grid in self.grids]
        return self.slots, self.grids, used, cells, self.versions, self._free, self._newest

    @classmethod
    def from_state(cls, fields: dict[str, Any]) -> Self:
        """Return the table. ValueError when its grids are not alike, or it would have more room than is told of."""
        made = cls()
        made.slots, made.grids, made.versions = fields["slots"], fields["grids"], fields["versions"]
        made._free, made._newest, made.slot_count = fields["free"], fields["newest"], len(made.versions)
        used, cells = fields["used"], fields["cells"]
        made.groups = cells[0].shape[1]
        if made.slot_count > SLOTS_PER_USED_MAX * len(used) or any(one.shape != (len(used), made.groups) for one in cells):
            raise ValueError("the cells of a table are not alike, or fewer than it has slots")
        while made.capacity < made.groups:
            made.capacity *= 2
        for grid, own in zip(made.grids, cells, strict=True):
            grid.place(made.slot_count, made.capacity, used, own)
        return made

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
        return sum([array_bytes(g.array) if g.array.dtype.hasobject else g.array.nbytes for g in self.grids])


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


class PaneSlots(list[int]):
    """Slots of panes, newest first, with the table they are of and the start of each in steps (for many)."""

    def __init__(self, slots: Sequence[int], table: PaneTable, numbers: Int64Array | None = None) -> None:
        super().__init__(slots)
        self.table = table
        self.numbers = numbers


class Passed:
    """A pass over panes from the newest on.

    The bits of a result do not depend on which other prefixes are asked for, save sums of DOUBLEs.
    """

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
