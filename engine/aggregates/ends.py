"""FIRST and LAST by event time, ties by arrival, NULLs among them (K13). A state is a row's time, ordinal and value."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.aggregates.contract import AggregateFunction, AggregateUse, Array, FoldedRows, Int64Array, StateKind, same_type
from millstream.engine.data.arrays import run_sizes, run_starts, running_fold
from millstream.engine.data.arrow import arrow_type, plain_values
from millstream.engine.data.column import Column, numpy_dtype
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
        if not len(rows.cells):
            return
        times, ordinals = rows.order()
        order = np.lexsort((ordinals, times, rows.cells))
        starts = run_starts(rows.cells[order])
        at = order[starts + run_sizes(starts, len(order)) - 1 if self.last else starts]
        column = rows.argument.take(at)
        found = np.zeros(len(at), dtype=self.dtype)
        found["time"], found["ordinal"], found["has"] = times[at], ordinals[at], True
        found["value"] = np.fromiter(plain_values(column), np.object_, len(at)) if column.type.is_arrow else column.values
        valid = column.validity()
        found["valid"] = True if valid is None else valid
        which = rows.cells[at]
        states[which] = self.merge(states[which], found)

    def merge(self, left: Array, right: Array) -> Array:
        """Choose, pair by pair."""
        later = (right["time"] > left["time"]) | ((right["time"] == left["time"]) & (right["ordinal"] > left["ordinal"]))
        taken = right["has"] & (~left["has"] | (later if self.last else ~later))
        picked = left.copy()
        picked[taken] = right[taken]
        return picked

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
    valid = rows["has"] & rows["valid"]
    if call.type.is_arrow:
        values = [v if keep else None for v, keep in zip(rows["value"].tolist(), valid.tolist(), strict=True)]
        return Column(call.type, pa.array(values, type=arrow_type(call.type)))
    return Column(call.type, np.ascontiguousarray(rows["value"]), None if valid.all() else valid)


FIRST = AggregateFunction(same_type, partial(_states, last=False), _column, counted=False, takes_nulls=True)
LAST = AggregateFunction(same_type, partial(_states, last=True), _column, counted=False, takes_nulls=True)
