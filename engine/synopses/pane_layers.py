"""The panes of a synopsis that many windows share, in layers.

A layer begins at an arrival number and has a step of its own: the greatest common divisor of all windows that were asked for when it
began. Rows are folded into the newest layer whose beginning they have reached. A query that joins a synopsis which has seen rows begins
a layer, and of the panes only those from its own layer on are its: so it answers as if it ran alone, and what the others get does not
change. Once the windows that reach back before it have closed, the older layers' panes are gone and one layer is left.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping
from typing import Any, Self

import numpy as np
from millstream.engine.data.records import dataclass
from millstream.engine.data.train import Int64Array
from millstream.engine.data.watermarks import TIME_MIN
from millstream.engine.state.forms import state_record
from millstream.engine.windows.assigners import Hopping
from millstream.engine.windows.grids import PANES_MANY, TABLE_FIELDS, PaneSlots, PaneTable

LAYER_BITS = 70  # pane numbers fit below, with their sign


@state_record("layered_pane_table", 1, (*TABLE_FIELDS, "layer", "opened"))
class LayeredPaneTable(PaneTable):
    """Panes of several layers in one table: the pane numbers of `layer` are told from those of others."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = 0
        self.opened: list[int] = []  # keys of new panes, for whoever keeps them in order

    def to_state(self) -> tuple[Any, ...]:
        """As the base, and the layer and the new panes."""
        return (*super().to_state(), self.layer, self.opened)

    @classmethod
    def from_state(cls, fields: dict[str, Any]) -> Self:
        """As the base."""
        made = super().from_state(fields)
        made.layer, made.opened = fields["layer"], fields["opened"]
        return made

    def open(self, pane: int) -> int:
        """Return the slot of a pane of the present layer."""
        key = (self.layer << LAYER_BITS) + pane
        if key not in self.slots:
            self.opened.append(key)
        return super().open(key)


@state_record("layer", 1, ("number", "from_seq", "step_us", "newest_before_us"))
@dataclass(slots=True)
class Layer:
    """Panes of one step for rows from `from_seq` on; `newest_before_us` is the greatest event time before. `grid` numbers them."""

    number: int
    from_seq: int
    step_us: int
    grid: Hopping
    newest_before_us: int | None = None

    @classmethod
    def from_state(cls, fields: dict[str, Any]) -> Layer:
        """Return the layer; its grid follows from its step."""
        return new_layer(fields["number"], fields["from_seq"], fields["step_us"], fields["newest_before_us"])


def new_layer(number: int, from_seq: int, step_us: int, newest_before_us: int | None = None) -> Layer:
    """Return a layer without panes."""
    return Layer(number, from_seq, step_us, Hopping(step_us, step_us), newest_before_us)


class LivePanes:
    """The panes that hold rows, by start and then by layer, kept in order as they are opened and closed."""

    def __init__(self, table: LayeredPaneTable, layers: dict[int, Layer]) -> None:
        self._order: list[tuple[int, int]] = []  # start and layer
        self.ends: list[int] = []
        self.slots: list[int] = []
        self.keys: list[int] = []
        self._starts: list[int] = []
        self._steps: dict[int, int] = {}  # of the layers that hold panes
        self._counts: dict[int, int] = {}
        self._visible: dict[int, VisiblePanes] = {}
        for key in table.slots:
            self.add(table, key, layers)
        table.opened.clear()

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def layers(self) -> Collection[int]:
        """The layers that hold panes."""
        return self._counts.keys()

    def take_opened(self, table: LayeredPaneTable, layers: dict[int, Layer]) -> bool:
        """Put in the panes that have been opened since; tell whether there were any."""
        opened = bool(table.opened)
        for key in table.opened:
            self.add(table, key, layers)
        table.opened.clear()
        return opened

    def add(self, table: LayeredPaneTable, key: int, layers: dict[int, Layer]) -> None:
        """Put in a pane of the table."""
        number = (key + (1 << (LAYER_BITS - 1))) >> LAYER_BITS
        step_us = layers[number].step_us
        start = (key - (number << LAYER_BITS)) * step_us
        place = bisect_left(self._order, (start, number))
        self._order.insert(place, (start, number))
        self._starts.insert(place, start)
        self.ends.insert(place, start + step_us)
        self.slots.insert(place, table.slots[key])
        self.keys.insert(place, key)
        self._steps[number] = step_us
        self._counts[number] = self._counts.get(number, 0) + 1
        self._visible.clear()

    def remove(self, place: int) -> None:
        """Take out the pane at a place."""
        _, number = self._order.pop(place)
        for values in (self._starts, self.ends, self.slots, self.keys):
            del values[place]
        self._counts[number] -= 1
        if not self._counts[number]:
            del self._counts[number], self._steps[number]
        self._visible.clear()

    def unwanted(self, kept_from: Mapping[int, int]) -> list[int]:
        """Return the places of panes that end before their layer's panes are wanted, the last first."""
        upto = bisect_left(self._starts, max(kept_from.values(), default=TIME_MIN))
        return [i for i in range(upto - 1, -1, -1) if self.ends[i] <= kept_from[self._order[i][1]]]

    def visible(self, layer: int) -> VisiblePanes:
        """Return the panes of this layer and newer ones; good until one is opened or closed."""
        found = self._visible.get(layer)
        if found is None:
            finest = min((step for number, step in self._steps.items() if number >= layer), default=1)
            if all(number >= layer for number in self._counts):
                found = VisiblePanes(self._starts, self.slots, finest)
            else:
                places = [i for i, (_, number) in enumerate(self._order) if number >= layer]
                found = VisiblePanes([self._starts[i] for i in places], [self.slots[i] for i in places], finest)
            self._visible[layer] = found
        return found


class VisiblePanes:
    """Panes in order of time, as one query may see them. A window of such a query never cuts one."""

    def __init__(self, starts: list[int], slots: list[int], step_us: int) -> None:
        self.starts = starts
        self.slots = slots
        self._step_us = step_us
        self._array: Int64Array | None = None

    @property
    def starts_array(self) -> Int64Array:
        """The starts as an array."""
        if self._array is None:
            self._array = np.array(self.starts, dtype=np.int64)
        return self._array

    def newest_first(self, low: int, high: int, table: PaneTable) -> PaneSlots:
        """Return the slots of the panes at places low to high (excluded), the newest first."""
        numbers = self.starts_array[low:high][::-1] // self._step_us if high - low >= PANES_MANY else None
        return PaneSlots(self.slots[low:high][::-1], table, numbers)

    def between(self, start_us: int, end_us: int) -> tuple[int, int]:
        """Return the places of the panes inside [start, end)."""
        return bisect_left(self.starts, start_us), bisect_left(self.starts, end_us)
