"""Aggregates over panes that need every value: each pane keeps the argument's values, and a window puts its panes together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from millstream.engine.data.column import Column, concat_columns, null_column
from millstream.engine.data.distinct_values import distinct
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import DataType
from millstream.engine.language.recipes import AggregateCall
from millstream.engine.windows.accumulators import Accumulator
from millstream.engine.windows.batch import Batch
from millstream.engine.windows.grids import PaneTable
from millstream.engine.windows.ranges import KEEP_NULLS, Ranges

Int64Array = npt.NDArray[np.int64]


@dataclass(slots=True)
class Values:
    """Values that came in one batch for one pane: group ids, event times, the values in order of arrival."""

    ids: Int64Array
    times: Int64Array
    column: Column


class Collected(Accumulator):
    """Any aggregate that `ranges.py` can evaluate. In a window values stand by event time, ties by arrival (K13)."""

    def __init__(self, call: AggregateCall, argument: DataType, table: PaneTable) -> None:
        super().__init__(call.type)
        self._call = AggregateCall(call.function, (0,), call.type, None, call.distinct, call.options)
        self._position, self._filter = call.arguments[0], call.filter
        self._keep_nulls = call.function in KEEP_NULLS
        self._nothing = null_column(argument, 0)
        self._table = table
        self._values: dict[int, list[Values]] = {}

    def update(self, batch: Batch) -> None:
        """Keep the values that count."""
        mask = batch.chosen(None if self._keep_nulls else self._position, self._filter)
        column, cells, times = batch.column(self._position), batch.cells, batch.times()
        if mask is not None:
            column, cells, times = column.filter(mask), cells[mask], times[mask]
        flat = cells + batch.lo
        slots, ids = np.divmod(flat, self._table.capacity)
        if len(slots) == 0:
            return
        if int(slots.min()) == int(slots.max()):
            self._values.setdefault(int(slots[0]), []).append(Values(ids, times, column))
            return
        for slot in distinct(slots).tolist():
            here = np.flatnonzero(slots == slot)
            self._values.setdefault(slot, []).append(Values(ids[here], times[here], column.take(here)))

    def combine(self, slots: Sequence[int], ids: Int64Array) -> Column:
        """Sort the panes' values by group and time, evaluate each group's range."""
        parts = [v for slot in slots for v in self._values.get(slot, [])]
        place = np.full(self._table.capacity, -1, dtype=np.int64)
        place[ids] = np.arange(len(ids), dtype=np.int64)
        groups = place[np.concatenate([p.ids for p in parts])] if parts else np.empty(0, dtype=np.int64)
        times = np.concatenate([p.times for p in parts]) if parts else np.empty(0, dtype=np.int64)
        order = np.lexsort((times, groups))
        starts = np.searchsorted(groups[order], np.arange(len(ids), dtype=np.int64), side="left")
        stops = np.searchsorted(groups[order], np.arange(len(ids), dtype=np.int64), side="right")
        column = concat_columns([p.column for p in parts]).take(order) if parts else self._nothing
        return Ranges(lambda _: column, len(order), starts, stops).aggregate(self._call)

    def clear(self, slot: int) -> None:
        """Forget a pane."""
        self._values.pop(slot, None)

    def nbytes(self) -> int:
        """Return the bytes of all values."""
        return sum(v.ids.nbytes + v.times.nbytes + v.column.nbytes() for values in self._values.values() for v in values)
