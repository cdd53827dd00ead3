"""ARG_MIN(x, y) and ARG_MAX(x, y): the x of the row where y is least or greatest; of equal ones the first by event time, then by arrival.

A row counts where neither is NULL. As in MIN and MAX a NaN dominates while it is in the window (K7), and text compares by code point.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from millstream.engine.aggregates.contract import (
    SPAN_MOST,
    AggregateFunction,
    AggregateUse,
    Array,
    FoldedRows,
    Int64Array,
    StateKind,
)
from millstream.engine.data.arrays import copied, running_fold
from millstream.engine.data.arrow import column_from_arrow, column_of_values, value_array
from millstream.engine.data.column import Column, Mask, numpy_dtype
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import DataType
from millstream.engine.expressions.signature import Options, Signature, Types, expect_count, refuse_argument
from millstream.engine.state.forms import state_record


@state_record("fold_arg_extreme", 1)
@dataclass(frozen=True, slots=True)
class ArgExtreme(StateKind):
    """A row: its y, time and ordinal, by which rows are compared, and its x. `has` tells whether there is one."""

    key_code: str  # of the dtype of y
    code: str  # of the dtype of x
    greatest: bool

    @property
    def dtype(self) -> np.dtype[Any]:
        """A row."""
        return np.dtype([("key", self.key_code), ("time", "i8"), ("ordinal", "i8"), ("value", self.code), ("has", "?")])

    @property
    def neutral(self) -> tuple[Any, ...]:
        """No row."""
        return (0, 0, 0, 0, False)

    def fold(self, states: Array, rows: FoldedRows) -> None:
        """Find the best row of each cell, then compare it with what is kept."""
        if not len(rows.cells):
            return
        value, key = (
            column_from_arrow(rows.argument.values.field(place), type_) for place, (_, type_) in enumerate(rows.argument.type.fields)
        )
        keys = value_array(key)
        at = rows.places.ends_of(self._best(keys, rows.cells), last=False)
        times, ordinals = rows.places.order()
        cells, keys, times, ordinals = rows.cells[at], keys[at], times[at], ordinals[at]
        held = states["has"][cells].nonzero()[0]
        if len(held):
            known = cells[held]
            goes = np.ones(len(at), dtype=np.bool_)
            old, new = (states["key"][known], states["time"][known], states["ordinal"][known]), (keys[held], times[held], ordinals[held])
            goes[held] = self._beats(old, new)
            at, cells, keys, times, ordinals = at[goes], cells[goes], keys[goes], times[goes], ordinals[goes]
        # Field by field: NumPy copies whole states that hold an object ten times as slowly.
        states["key"][cells], states["time"][cells], states["ordinal"][cells], states["has"][cells] = keys, times, ordinals, True
        states["value"][cells] = value_array(value.take(at))

    def _best(self, keys: Array, cells: Int64Array) -> Int64Array:
        """Return the places, rising, of the rows whose y no other row of the cell has a better one than: at least one a cell."""
        if keys.dtype.hasobject:
            keys = np.unique(keys, return_inverse=True)[1]
        elif keys.dtype == np.bool_:
            keys = keys.view(np.int8)
        least = int(cells.min())
        near = cells - least
        span = int(near.max()) + 1
        if span > SPAN_MOST * len(near):
            near = np.unique(near, return_inverse=True)[1]
            span = int(near.max()) + 1
        best = np.empty(span, dtype=keys.dtype)
        best[near] = keys  # any of the cell's own
        with np.errstate(invalid="ignore"):
            (np.maximum if self.greatest else np.minimum).at(best, near, keys)
        best = best[near]
        dominates = keys != keys if keys.dtype.kind == "f" else np.zeros(1, dtype=np.bool_)
        return np.flatnonzero((keys == best) | dominates)

    def _beats(self, old: Sequence[Array], new: Sequence[Array]) -> Mask:
        """Return where the new row of a pair, each a y, a time and an ordinal, is the one to keep."""
        better: Mask = (new[0] > old[0] if self.greatest else new[0] < old[0]).astype(np.bool_)
        same: Mask = (new[0] == old[0]).astype(np.bool_)
        if new[0].dtype.kind == "f":
            was, came = np.isnan(old[0]), np.isnan(new[0])
            better, same = better | (came & ~was), same | (came & was)
        earlier = (new[1] < old[1]) | ((new[1] == old[1]) & (new[2] < old[2]))
        wins: Mask = better | (same & earlier)
        return wins

    def merge(self, left: Array, right: Array) -> Array:
        """Choose, pair by pair."""
        picked = copied(left)
        taken = right["has"] & ~left["has"]
        both = (right["has"] & left["has"]).nonzero()[0]
        if len(both):
            taken[both] = self._beats(*([side[name][both] for name in ("key", "time", "ordinal")] for side in (left, right)))
        picked[taken] = right[taken]
        return picked

    def scan(self, states: Array, starts: Int64Array, sizes: Int64Array) -> None:
        """Find the running least of the rows' ranks."""
        ranks = self._ranks(states)
        places = np.empty(len(states), dtype=np.int64)
        places[ranks] = np.arange(len(states))
        running_fold(np.minimum, ranks, starts, sizes)
        states[:] = states[places[ranks]]

    def _ranks(self, rows: Array) -> Int64Array:
        """Return the place of each row from the best to the worst; those that are none stand last."""
        codes = np.full(len(rows), len(rows), dtype=np.int64)
        keys, places = np.unique(rows["key"][rows["has"]], return_inverse=True)  # NaN last
        codes[rows["has"]] = -places if self.greatest else places
        if keys.dtype.kind == "f" and len(keys) and np.isnan(keys[-1]):
            codes[codes == (-(len(keys) - 1) if self.greatest else len(keys) - 1)] = -len(keys)
        order = np.lexsort((rows["ordinal"], rows["time"], codes))
        ranks = np.empty(len(rows), dtype=np.int64)
        ranks[order] = np.arange(len(rows), dtype=np.int64)
        return ranks


def _code(type_: DataType) -> str:
    return "O" if type_.is_arrow else np.dtype(numpy_dtype(type_)).str


def _rule(name: str, types: Types, options: Options) -> Signature:
    """Take anything, and something that has an order; answer with one of the former."""
    expect_count(name, types, 2, 2)
    if not types[1].is_ordered:
        refuse_argument(name, 1, types[1], "something that has an order")
    return Signature(name, types, types[0])


def _states(argument: DataType, *, greatest: bool) -> tuple[StateKind, ...]:
    (_, value), (_, key) = argument.fields
    return (ArgExtreme(_code(key), _code(value), greatest),)


def _column(call: AggregateUse, argument: DataType, states: Sequence[Array]) -> Column:
    rows = states[0]
    return column_of_values(rows["value"], call.type, rows["has"].copy())


ARG_MIN = AggregateFunction(_rule, partial(_states, greatest=False), _column, counted=False, ignores_distinct=True)
ARG_MAX = AggregateFunction(_rule, partial(_states, greatest=True), _column, counted=False, ignores_distinct=True)
