"""The panes of a synopsis that many windows share, in layers.

A layer begins at an arrival number and has a step of its own: the greatest common divisor of all windows that were asked for when it
began. Rows are folded into the newest layer whose beginning they have reached. A query that joins a synopsis which has seen rows begins
a layer, and of the panes only those from its own layer on are its: so it answers as if it ran alone, and what the others get does not
change. Once the windows that reach back before it have closed, the older layers' panes are gone and one layer is left.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from millstream.engine.train import Int64Array
from millstream.engine.windows.assigners import Hopping
from millstream.engine.windows.grids import PaneTable

LAYER_BITS = 70  # pane numbers fit below, with their sign


class LayeredPaneTable(PaneTable):
    """Panes of several layers in one table: the pane numbers of `layer` are told from those of others."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = 0

    def open(self, pane: int) -> int:
        """Return the slot of a pane of the present layer."""
        return super().open((self.layer << LAYER_BITS) + pane)


@dataclass(slots=True)
class Layer:
    """Panes of one step for rows from `from_seq` on; `newest_before_us` is the greatest event time before. `grid` numbers them."""

    number: int
    from_seq: int
    step_us: int
    grid: Hopping
    newest_before_us: int | None = None


def new_layer(number: int, from_seq: int, step_us: int, newest_before_us: int | None = None) -> Layer:
    """Return a layer without panes."""
    return Layer(number, from_seq, step_us, Hopping(step_us, step_us), newest_before_us)


class LivePanes:
    """The panes that hold rows, by start and then by layer; made anew whenever one has been opened or closed."""

    def __init__(self, table: LayeredPaneTable, layers: dict[int, Layer]) -> None:
        found: list[tuple[int, int, int, int, int]] = []
        for key, slot in table.slots.items():
            number = (key + (1 << (LAYER_BITS - 1))) >> LAYER_BITS
            layer = layers[number]
            start = (key - (number << LAYER_BITS)) * layer.step_us
            found.append((start, number, start + layer.step_us, slot, key))
        found.sort()
        self.starts: list[int] = [f[0] for f in found]
        self.layers: list[int] = [f[1] for f in found]
        self.ends: list[int] = [f[2] for f in found]
        self.slots: list[int] = [f[3] for f in found]
        self.keys: list[int] = [f[4] for f in found]
        self._visible: dict[int, VisiblePanes] = {}

    def __len__(self) -> int:
        return len(self.keys)

    def visible(self, layer: int) -> VisiblePanes:
        """Return the panes of this layer and newer ones."""
        found = self._visible.get(layer)
        if found is None:
            places = [i for i, number in enumerate(self.layers) if number >= layer]
            found = VisiblePanes([self.starts[i] for i in places], [self.slots[i] for i in places])
            self._visible[layer] = found
        return found


class VisiblePanes:
    """Panes in order of time, as one query may see them. A window of such a query never cuts one."""

    def __init__(self, starts: list[int], slots: list[int]) -> None:
        self.starts = starts
        self.slots = slots
        self._array: Int64Array | None = None

    @property
    def starts_array(self) -> Int64Array:
        """The starts as an array."""
        if self._array is None:
            self._array = np.array(self.starts, dtype=np.int64)
        return self._array

    def between(self, start_us: int, end_us: int) -> tuple[int, int]:
        """Return the places of the panes inside [start, end)."""
        return bisect_left(self.starts, start_us), bisect_left(self.starts, end_us)
