"""Aggregates as folds: what a cell (the rows of one group at one instant, or of one session) keeps, how two neighbours are put
together, and the answer.

A fold is an associative operation with a neutral value, so a window is the fold of its cells in order of time. DOUBLE sums are folded one
value after another inside a cell and one cell after another across cells, never subtracted from (K13), so that a NaN or an infinity is gone
with its cell (K7); so are the moments of STDDEV and VARIANCE. FIRST and LAST keep one row a cell. Equal folds of several calls are kept
once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from millstream.engine.data.arrow import arrow_type, plain_values
from millstream.engine.data.buffered import BufferedRows
from millstream.engine.data.column import Column, Mask, numpy_dtype
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.data.types import DataType, Kind
from millstream.engine.language.recipes import AggregateCall
from millstream.engine.windows.extremes import object_column, worst_value
from millstream.engine.windows.fold_operations import MOMENTS, End, Moments, Operation, end_states, lone_moments
from millstream.engine.windows.scans import running_fold
from millstream.engine.windows.sums import HALF_BITS, HALF_MASK, average_column, exact_column
from millstream.engine.windows.vectors import run_sizes, run_starts

Int64Array = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

SPREADS = frozenset(("stddev", "variance", "stddev_pop", "var_pop"))
ENDS = {"first": "earliest", "last": "latest"}
FOLDED = frozenset(("count", "sum", "avg", "min", "max")) | SPREADS | ENDS.keys()
HALF_SAFE = 2**29  # upper halves below this, and the lower ones below 2**60, add up inside int64


def _object_pick(left: Any, right: Any, greatest: bool) -> Any:
    if left is None or right is None:
        return right if left is None else left
    return max(left, right) if greatest else min(left, right)


def _greater(left: Any, right: Any) -> Any:
    return _object_pick(left, right, True)


def _lesser(left: Any, right: Any) -> Any:
    return _object_pick(left, right, False)


# A ufunc of Python objects cannot be pickled, so folds name their operation.
OPERATIONS: dict[str, Operation] = {
    "add": np.add,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "greater": np.frompyfunc(_greater, 2, 1),
    "lesser": np.frompyfunc(_lesser, 2, 1),
    "moments": Moments(),
    "earliest": End(last=False),
    "latest": End(last=True),
}


@dataclass(frozen=True, slots=True)
class Fold:
    """One array of cell states. `part`: what of the argument is folded; `position` None counts rows."""

    operation: str
    dtype: str | np.dtype[Any]
    neutral: Any
    part: str  # "one", "value", "low" or "high" half, "row"
    position: int | None
    filter: int | None

    @property
    def ufunc(self) -> Operation:
        """The operation."""
        return OPERATIONS[self.operation]

    @property
    def in_turn(self) -> bool:
        """The last bits depend on the order, so rows are folded into a cell's state one after another, also when it is continued."""
        return self.operation == "moments" or (self.operation == "add" and self.dtype == "f8")


Answer = Callable[[Sequence[Array]], Column]


class Folds:
    """The folds of some aggregate calls. `answer` takes one array of states per fold."""

    def __init__(self, calls: Sequence[AggregateCall], inputs: Schema) -> None:
        self.folds: list[Fold] = []
        self._inputs = inputs
        self._answers: list[tuple[AggregateCall, tuple[int, ...]]] = [(call, self._needed(call)) for call in calls]

    def __len__(self) -> int:
        """Return the number of folds."""
        return len(self.folds)

    def _fold(self, fold: Fold) -> int:
        if fold not in self.folds:
            self.folds.append(fold)
        return self.folds.index(fold)

    def _needed(self, call: AggregateCall) -> tuple[int, ...]:
        """Return the folds of a call: the count of values first, then those of the values."""
        position = call.arguments[0] if call.arguments else None
        if position is not None and call.function in SPREADS:
            return (self._fold(Fold("moments", MOMENTS, (0.0, 0.0, 0.0), "value", position, call.filter)),)
        if position is not None and call.function in ENDS:
            return (self._fold(_end(self._inputs.fields[position].type, position, call)),)
        count = self._fold(Fold("add", "i8", 0, "one", position, call.filter))
        if call.function == "count" or position is None:
            return (count,)
        type_ = self._inputs.fields[position].type
        if call.function in ("min", "max"):
            return (count, self._fold(_extreme(type_, position, call)))
        return (count, *(self._fold(f) for f in _sums(type_, position, call.filter)))

    def lifted(self, rows: BufferedRows, cells: Int64Array, count: int) -> list[Array]:
        """Return the state per cell of each fold; `cells` is the cell of each row, rising; there are `count` of them.

        The rows of a cell stand in order of event time, ties by arrival.
        """
        columns = rows.columns
        alone = count == len(cells) and bool((cells == np.arange(count)).all())
        masks: dict[tuple[int | None, int | None], Mask | None] = {}
        states: list[Array] = []
        for fold in self.folds:
            key = (None if fold.part == "row" else fold.position, fold.filter)  # FIRST and LAST take NULLs (K13)
            if key not in masks:
                masks[key] = _mask(columns, *key)
            if fold.part == "row":
                states.append(_lift_rows(fold, rows, masks[key], cells, count))
            else:
                states.append(_lift(fold, columns, masks[key], cells, count, alone))
        return states

    def continued(self, rows: BufferedRows, cells: Int64Array, count: int, carried: Int64Array, before: Sequence[Array]) -> list[Array]:
        """As `lifted`, where the cells `carried` (rising) had the states `before` already; what is folded in turn goes on in turn."""
        states = self.lifted(rows, cells, count)
        if not len(carried):
            return states
        for place, (fold, old) in enumerate(zip(self.folds, before, strict=True)):
            if fold.in_turn:
                assert fold.position is not None
                mask = _mask(rows.columns, fold.position, fold.filter)
                values = _part(fold, rows.columns[fold.position], mask)
                at = np.concatenate((carried, cells if mask is None else cells[mask]))
                states[place] = _in_turn(fold, np.concatenate((old, values)), at, count)
            else:
                states[place][carried] = fold.ufunc(old, states[place][carried])
        return states

    def answer(self, states: Sequence[Array]) -> list[Column]:
        """Return the columns of the calls."""
        return [self._answer(call, [states[i] for i in which]) for call, which in self._answers]

    def _answer(self, call: AggregateCall, states: Sequence[Array]) -> Column:
        if call.function in SPREADS:
            return spread_column(call, states[0])
        if call.function in ENDS:
            return end_column(call.type, states[0])
        counts = states[0]
        if call.function == "count":
            return Column(call.type, counts.astype(np.int64, copy=False))
        valid: Mask | None = counts > 0
        assert valid is not None
        valid = None if valid.all() else valid
        if call.function in ("min", "max"):
            return _extreme_column(call.type, states[1], valid)
        totals = _total(states[1:])
        if call.function == "sum":
            return exact_column(call.type, totals, valid)
        return average_column(call.type, self._inputs.fields[call.arguments[0]].type, totals, counts)


def foldable(calls: Sequence[AggregateCall]) -> bool:
    """All calls can be kept as folds; the others need every value."""
    return all(c.function in FOLDED and (not c.distinct or c.function in ("min", "max")) for c in calls)


def _extreme(type_: DataType, position: int, call: AggregateCall) -> Fold:
    greatest = call.function == "max"
    if type_.is_arrow or type_.is_wide:
        return Fold("greater" if greatest else "lesser", "O", None, "value", position, call.filter)
    dtype = np.dtype(numpy_dtype(type_)).str
    return Fold("maximum" if greatest else "minimum", dtype, worst_value(type_, greatest), "value", position, call.filter)


def _end(type_: DataType, position: int, call: AggregateCall) -> Fold:
    dtype = end_states(np.object_ if type_.is_arrow else numpy_dtype(type_))
    return Fold(ENDS[call.function], dtype, (0, 0, 0, False, False), "row", position, call.filter)


def _sums(type_: DataType, position: int, filter_: int | None) -> list[Fold]:
    if type_.kind is Kind.DOUBLE:
        return [Fold("add", "f8", 0.0, "value", position, filter_)]
    if type_.is_wide:
        return [Fold("add", "O", 0, "value", position, filter_)]
    if np.dtype(numpy_dtype(type_)).itemsize < 8:
        return [Fold("add", "i8", 0, "value", position, filter_)]  # 2**32 values of 32 bits fit
    return [Fold("add", "i8", 0, part, position, filter_) for part in ("low", "high")]


def _mask(columns: Sequence[Column], position: int | None, filter_: int | None) -> Mask | None:
    """Return which rows count: argument not NULL and FILTER true. None when all do."""
    mask = None if position is None else columns[position].validity()
    if filter_ is not None:
        condition = columns[filter_]
        passed: Mask = condition.values if condition.valid is None else condition.values & condition.valid
        mask = passed if mask is None else mask & passed
    return None if mask is None or mask.all() else mask


def _lift(fold: Fold, columns: Sequence[Column], mask: Mask | None, cells: Int64Array, count: int, alone: bool) -> Array:
    at = cells if mask is None else cells[mask]
    if fold.part == "one":
        return np.bincount(at, minlength=count).astype(np.int64, copy=False)
    assert fold.position is not None
    values = _part(fold, columns[fold.position], mask)
    if alone and mask is None and fold.operation != "add":
        return values.astype(fold.dtype)  # a copy: states are written to
    if fold.in_turn:
        return _in_turn(fold, values, at, count)
    states: Array = np.empty(count, dtype=fold.dtype)
    states[:] = fold.neutral
    if fold.operation in ("greater", "lesser"):
        for cell, value in zip(at.tolist(), values.tolist(), strict=True):
            states[cell] = _object_pick(states[cell], value, fold.operation == "greater")
        return states
    operation = fold.ufunc
    assert isinstance(operation, np.ufunc)
    operation.at(states, at, values.astype(states.dtype, copy=False))
    return states


def _in_turn(fold: Fold, values: Array, at: Int64Array, count: int) -> Array:
    """Fold values into the cells `at`, one after the other."""
    if fold.operation == "add":
        # From 0.0; without any row NumPy makes integers.
        return np.bincount(at, weights=values, minlength=count).astype(np.float64, copy=False)
    order = np.argsort(at, kind="stable")
    at, values = at[order], values[order]
    starts = run_starts(at)
    sizes = run_sizes(starts, len(at))
    running_fold(fold.ufunc, values, starts, sizes)
    states = np.zeros(count, dtype=fold.dtype)
    states[at[starts]] = values[starts + sizes - 1]
    return states


def _lift_rows(fold: Fold, rows: BufferedRows, mask: Mask | None, cells: Int64Array, count: int) -> Array:
    """Return the first or last row of each cell, of those that count."""
    assert fold.position is not None
    chosen = np.arange(len(cells), dtype=np.int64) if mask is None else np.flatnonzero(mask)
    starts = run_starts(cells[chosen])
    at = chosen[starts if fold.operation == "earliest" else starts + run_sizes(starts, len(chosen)) - 1]
    column = rows.columns[fold.position].take(at)
    states: Array = np.zeros(count, dtype=fold.dtype)
    which = cells[at]
    states["time"][which], states["ordinal"][which], states["has"][which] = rows.time[at], rows.ordinal[at], True
    valid = column.validity()
    states["value"][which] = np.fromiter(plain_values(column), np.object_, len(at)) if column.type.is_arrow else column.values
    states["valid"][which] = True if valid is None else valid
    return states


def _part(fold: Fold, column: Column, mask: Mask | None) -> Array:
    if column.type.is_arrow:
        texts = column.values if mask is None else column.filter(mask).values
        array = np.empty(len(texts), dtype=np.object_)
        array[:] = texts.to_pylist()
        return array
    values: Array = column.values if mask is None else column.values[mask]
    if fold.operation == "moments":
        return lone_moments(values)
    if fold.part == "low":
        return values & HALF_MASK
    return values >> HALF_BITS if fold.part == "high" else values


def _total(states: Sequence[Array]) -> Array:
    """Return sums from their states: int64 where that is certain to hold them, else Python's integers."""
    if len(states) == 1:
        return states[0]
    low, high = states
    if len(high) == 0 or (int(np.abs(high).max()) < HALF_SAFE and int(low.max()) < 2**60):
        total: Array = (high << HALF_BITS) + low
        return total
    wide: Array = (high.astype(np.object_) << HALF_BITS) + low.astype(np.object_)
    return wide


def _extreme_column(type_: DataType, best: Array, valid: Mask | None) -> Column:
    if type_.is_arrow or type_.is_wide:
        return object_column(type_, best.tolist())
    if best.dtype == np.float64:
        best = best + 0.0  # which of 0.0 and -0.0 wins would depend on how NumPy splits the work
    if valid is not None:
        best = np.where(valid, best, np.zeros(1, dtype=best.dtype))
    return Column(type_, best, valid)


def spread_column(call: AggregateCall, moments: Array) -> Column:
    """STDDEV and VARIANCE of the sample (NULL for one value), or of the population."""
    least = 1 if call.function.endswith("_pop") else 2
    valid = moments["count"] >= least
    variance = np.where(valid, moments["spread"], 0.0) / np.maximum(moments["count"] - (least - 1), 1.0)
    values = np.sqrt(variance) if call.function.startswith("stddev") else variance
    return Column(call.type, values, None if valid.all() else valid)


def end_column(type_: DataType, rows: Array) -> Column:
    """Return the values of first or last rows."""
    valid = rows["has"] & rows["valid"]
    if type_.is_arrow:
        values = [v if keep else None for v, keep in zip(rows["value"].tolist(), valid.tolist(), strict=True)]
        return Column(type_, pa.array(values, type=arrow_type(type_)))
    return Column(type_, np.ascontiguousarray(rows["value"]), None if valid.all() else valid)
