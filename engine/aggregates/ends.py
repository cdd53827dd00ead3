"""FIRST and LAST by event time, ties by arrival, NULLs among them (K13). A state is a row's time, ordinal and value."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from millstream.engine.aggregates.contract import AggregateFunction, AggregateUse, Array, FoldedRows, Int64Array, StateKind, same_type
from millstream.engine.data.arrays import copied, running_fold
from millstream.engine.data.arrow import column_of_values, value_array
from millstream.engine.data.column import Column, Mask, numpy_dtype
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import DataType
from millstream.engine.state.forms import state_record


@state_record("fold_end", 1)
@dataclass(frozen=True, slots=True)
class End(StateKind):
    """The earlier or the later row of two, whichever side it stands on. `has` tells whether there is a row, `valid` whether it is NULL."""

    code: str  # of the value's dtype
    last: bool

    @property
    def dtype(self) -> np.dtype[Any]:
        """A row."""
        return np.dtype([("time", "i8"), ("ordinal", "i8"), ("value", self.code), ("valid", "?"), ("has", "?")])

    @property
    def neutral(self) -> tuple[Any, ...]:
        """No row."""
        return (0, 0, 0, False, False)

    def fold(self, states: Array, rows: FoldedRows) -> None:
        """Find the rows of each cell's end first, so that only these are looked at more closely."""
        at = rows.places.ends(last=self.last)
        times, ordinals = rows.places.order()
        cells, times, ordinals = rows.cells[at], times[at], ordinals[at]
        held = states["has"][cells].nonzero()[0]
        if len(held):
            known = cells[held]
            goes = np.ones(len(at), dtype=np.bool_)
            goes[held] = self._beats(states["time"][known], states["ordinal"][known], times[held], ordinals[held])
            at, cells, times, ordinals = at[goes], cells[goes], times[goes], ordinals[goes]
        column = rows.argument_at(at)
        # Field by field: NumPy copies whole states that hold an object ten times as slowly.
        states["time"][cells], states["ordinal"][cells], states["has"][cells] = times, ordinals, True
        states["value"][cells] = value_array(column)
        valid = column.validity()
        states["valid"][cells] = True if valid is None else valid

    def merge(self, left: Array, right: Array) -> Array:
        """Choose, pair by pair."""
        taken = right["has"] & (~left["has"] | self._beats(left["time"], left["ordinal"], right["time"], right["ordinal"]))
        picked = copied(left)
        picked[taken] = right[taken]
        return picked

    def _beats(self, times: Int64Array, ordinals: Int64Array, other_times: Int64Array, other_ordinals: Int64Array) -> Mask:
        """Return where the other row of a pair is the one to keep."""
        later: Mask = (other_times > times) | ((other_times == times) & (other_ordinals > ordinals))
        return later if self.last else ~later

    def scan(self, states: Array, starts: Int64Array, sizes: Int64Array) -> None:
        """Find the running extreme of the rows' ranks."""
        count = len(states)
        order = np.lexsort((states["ordinal"], states["time"]))
        ranks = np.empty(count, dtype=np.int64)
        ranks[order] = np.arange(count, dtype=np.int64)
        nothing = -1 if self.last else count
        ranks[~states["has"]] = nothing
        running_fold(np.maximum if self.last else np.minimum, ranks, starts, sizes)
        places = np.where(ranks == nothing, np.arange(count, dtype=np.int64), order[np.clip(ranks, 0, count - 1)] if count else ranks)
        states[:] = states[places]


def _states(argument: DataType, *, last: bool) -> tuple[StateKind, ...]:
    return (End("O" if argument.is_arrow else np.dtype(numpy_dtype(argument)).str, last),)


def _column(call: AggregateUse, argument: DataType, states: Sequence[Array]) -> Column:
    rows = states[0]
    return column_of_values(rows["value"], call.type, rows["has"] & rows["valid"])


FIRST = AggregateFunction(same_type, partial(_states, last=False), _column, counted=False, takes_nulls=True)
LAST = AggregateFunction(same_type, partial(_states, last=True), _column, counted=False, takes_nulls=True)
