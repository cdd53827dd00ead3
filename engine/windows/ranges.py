"""Aggregates over contiguous ranges of sorted rows: sliding and row windows, sessions, and whatever needs all values of a group.

Rows stand sorted by group and then in the order that the aggregate wants (event time, ties by arrival). A range is a window's rows of
one group; ranges may overlap. Floats are summed range by range, never by adding and subtracting (K13), so a NaN or an infinity is gone
with the range that held it (K7); what is exact is taken from running totals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.data.column import Column, Mask, null_column
from millstream.engine.data.errors import Unsupported
from millstream.engine.data.types import DataType, Kind
from millstream.engine.language.recipes import AggregateCall
from millstream.engine.windows.extremes import object_column
from millstream.engine.windows.holistic import HOLISTIC, distinct_values, with_nulls
from millstream.engine.windows.sums import average_column, exact_column

Int64Array = npt.NDArray[np.int64]

KEEP_NULLS = frozenset(("first", "last", "array_agg"))


class Ranges:
    """Sorted columns by position, and ranges [starts, stops) of their rows."""

    def __init__(self, column: Callable[[int], Column], rows: int, starts: Int64Array, stops: Int64Array) -> None:
        self._column = column
        self._rows = rows
        self.starts, self.stops = starts, stops

    def aggregate(self, call: AggregateCall) -> Column:
        """Return one value a range."""
        if not call.arguments:
            starts, stops = self._narrowed(self._mask(None, call.filter))
            return Column(call.type, stops - starts)
        column = self._column(call.arguments[0])
        mask = self._mask(None if call.function in KEEP_NULLS else column, call.filter)
        starts, stops = self._narrowed(mask)
        if mask is not None:
            column = column.filter(mask)
        if call.distinct and call.function not in ("min", "max"):
            column, starts, stops = distinct_values(column, starts, stops)
        return evaluate(call, column, starts, stops)

    def _mask(self, column: Column | None, filter_: int | None) -> Mask | None:
        mask = None if column is None else column.validity()
        if filter_ is not None:
            condition = self._column(filter_)
            passed: Mask = condition.values if condition.valid is None else condition.values & condition.valid
            mask = passed if mask is None else mask & passed
        return None if mask is None or mask.all() else mask

    def _narrowed(self, mask: Mask | None) -> tuple[Int64Array, Int64Array]:
        if mask is None:
            return self.starts, self.stops
        before: Int64Array = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(mask, dtype=np.int64)))
        return before[self.starts], before[self.stops]


def evaluate(call: AggregateCall, column: Column, starts: Int64Array, stops: Int64Array) -> Column:
    """Evaluate a call over values that all count."""
    function = call.function
    if function == "count":
        return Column(call.type, stops - starts)
    if function == "sum":
        return _null_where_empty(call.type, range_totals(column, starts, stops), starts, stops)
    if function == "avg":
        return average_column(call.type, column.type, range_totals(column, starts, stops), stops - starts)
    if function in ("min", "max"):
        return _extreme(call.type, column, starts, stops, greatest=function == "max")
    if function in ("first", "last"):
        return _end(call.type, column, starts, stops, last=function == "last")
    made = HOLISTIC.get(function)
    if made is None:
        raise Unsupported(f"the aggregate {function.upper()} is not supported")
    return made(call, column, starts, stops)


def range_totals(column: Column, starts: Int64Array, stops: Int64Array) -> npt.NDArray[Any]:
    """Return the sum of each range: float64, or exact integers (int64 or Python's); 0 for an empty one."""
    values = column.values
    if column.type.kind is Kind.DOUBLE:
        return reduce_ranges(np.add, values, starts, stops, 0.0)
    if len(values) and values.dtype != np.object_:
        greatest = max(abs(int(values.max())), abs(int(values.min())))
        wide = values.astype(np.int64) if greatest * len(values) < 2**62 else values.astype(np.object_)
    else:
        wide = values
    totals = np.zeros(len(values) + 1, dtype=wide.dtype if len(values) else np.int64)
    np.cumsum(wide, out=totals[1:])
    return totals[stops] - totals[starts]


def reduce_ranges(operation: np.ufunc, values: npt.NDArray[Any], starts: Int64Array, stops: Int64Array, empty: Any) -> npt.NDArray[Any]:
    """Reduce each range by itself; the result depends on the range's values alone. Empty ranges give `empty`."""
    result = np.empty(len(starts), dtype=values.dtype)
    result[:] = empty
    full = np.flatnonzero(stops > starts)
    if len(full):
        # Pairs of indices: the even places reduce start … stop, the odd ones what lies between, which nobody wants.
        bounds = np.empty(2 * len(full), dtype=np.int64)
        bounds[0::2], bounds[1::2] = starts[full], stops[full]
        padded = np.concatenate((values, values[-1:]))
        result[full] = operation.reduceat(padded, bounds)[0::2]
    return result


def _extreme(type_: DataType, column: Column, starts: Int64Array, stops: Int64Array, *, greatest: bool) -> Column:
    if type_.is_arrow or type_.is_wide:
        values = column.values.to_pylist() if type_.is_arrow else column.values.tolist()
        pick = max if greatest else min
        best = [pick(values[a:b]) if b > a else None for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
        return object_column(type_, best)
    operation = np.maximum if greatest else np.minimum
    reduced = reduce_ranges(operation, column.values, starts, stops, np.zeros(1, dtype=column.values.dtype)[0])
    if reduced.dtype == np.float64:
        reduced += 0.0  # as in extremes.py
    valid = stops > starts
    return Column(type_, reduced, None if valid.all() else valid)


def _end(type_: DataType, column: Column, starts: Int64Array, stops: Int64Array, *, last: bool) -> Column:
    full = stops > starts
    if not len(column):
        return null_column(type_, len(starts))
    picked = column.take(np.where(full, stops - 1 if last else starts, 0))
    return picked if full.all() else with_nulls(picked, full)


def _null_where_empty(type_: DataType, totals: npt.NDArray[Any], starts: Int64Array, stops: Int64Array) -> Column:
    valid = stops > starts
    return exact_column(type_, totals, None if valid.all() else valid)


def aggregate_ranges(calls: Sequence[AggregateCall], ranges: Ranges) -> list[Column]:
    """Return a column per call."""
    return [ranges.aggregate(call) for call in calls]
