"""Aggregates over contiguous ranges of sorted rows: where the rows of a window are held, and for whatever needs all values of a group.

Rows stand sorted by group and then in the order that the aggregate wants (event time, ties by arrival). A range is a window's rows of
one group; ranges may overlap. Each range is folded by itself, so a NaN or an infinity is gone with the range that held it (K7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
from millstream.engine.aggregates.collected import distinct_values
from millstream.engine.aggregates.contract import AggregateFunction, FoldedRows, RowPlaces, null_unless
from millstream.engine.aggregates.ranked import Ranked, sort_order
from millstream.engine.aggregates.table import aggregate_of
from millstream.engine.data import limits
from millstream.engine.data.allowance import pause
from millstream.engine.data.arrays import expanded
from millstream.engine.data.column import Column, Mask, concat_columns, counted_rows
from millstream.engine.language.recipes import AggregateCall

Int64Array = npt.NDArray[np.int64]


class Ranges:
    """Sorted columns by position, and ranges [starts, stops) of their rows.

    `turns` says in which order sums take the rows of a range in, where that is not the order in which they stand.
    """

    def __init__(
        self, column: Callable[[int], Column], rows: int, starts: Int64Array, stops: Int64Array, turns: Int64Array | None = None
    ) -> None:
        self._column = column
        self._rows = rows
        self.starts, self.stops = starts, stops
        self._turns = turns

    def aggregate(self, call: AggregateCall) -> Column:
        """Return one value a range."""
        if not call.arguments:
            starts, stops = self._narrowed(self._mask(None, call.filter))
            return Column(call.type, stops - starts)
        aggregate, column, turns = aggregate_of(call.function), self._column(call.arguments[0]), self._turns
        mask = self._mask(None if aggregate.takes_nulls else column, call.filter)
        starts, stops = self._narrowed(mask)
        if mask is not None:
            column = column.filter(mask)
            turns = None if turns is None else turns[mask]
        if call.distinct and not aggregate.ignores_distinct:
            column, starts, stops = distinct_values(column, starts, stops)
            turns = None
        return evaluate(call, column, starts, stops, turns)

    def _mask(self, column: Column | None, filter_: int | None) -> Mask | None:
        mask = counted_rows(column, None if filter_ is None else self._column(filter_))
        return None if mask is None or mask.all() else mask

    def _narrowed(self, mask: Mask | None) -> tuple[Int64Array, Int64Array]:
        if mask is None:
            return self.starts, self.stops
        before: Int64Array = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(mask, dtype=np.int64)))
        return before[self.starts], before[self.stops]


def evaluate(call: AggregateCall, column: Column, starts: Int64Array, stops: Int64Array, turns: Int64Array | None = None) -> Column:
    """Evaluate a call over values that all count."""
    aggregate = aggregate_of(call.function)
    parts: list[Column] = []
    order = None if aggregate.of_ranks is None else sort_order(column)
    for low, high in _pieces(stops - starts):
        if low:
            pause()
        if aggregate.of_values is not None:
            parts.append(aggregate.of_values(call, column, starts[low:high], stops[low:high]))
            continue
        sizes = stops[low:high] - starts[low:high]
        index = expanded(starts[low:high], sizes)
        cells = np.repeat(np.arange(high - low, dtype=np.int64), sizes)
        if order is not None:
            parts.append(_ranked(aggregate, call, column, order, index, cells, sizes))
        else:
            if turns is not None:
                index = index[np.lexsort((turns[index], cells))]
            parts.append(_folded(aggregate, call, column.take(index), cells, index, sizes))
    return concat_columns(parts)


def _pieces(sizes: Int64Array) -> Iterator[tuple[int, int]]:
    """Yield from which range to which (excluded) they are worked on together: at least one piece, at least one range in each of several."""
    low = 0
    upto = np.cumsum(sizes)
    while True:
        laid = int(upto[low - 1]) if low else 0
        high = max(low + 1, int(np.searchsorted(upto, laid + limits.CALL_VALUES_MAX, side="right")))
        yield low, min(high, len(sizes))
        low = high
        if low >= len(sizes):
            return


def _folded(
    aggregate: AggregateFunction, call: AggregateCall, column: Column, cells: Int64Array, places: Int64Array, sizes: Int64Array
) -> Column:
    """Fold rows into one cell a range; they stand in order of time, so that their places tell which is the earlier one."""
    assert aggregate.states is not None
    assert aggregate.answer is not None
    rows = FoldedRows(RowPlaces(cells, lambda: (places, places)), column)
    states = []
    for kind in aggregate.states(column.type):
        states.append(kind.fresh(len(sizes)))
        kind.fold(states[-1], rows)
    answer = aggregate.answer(call, column.type, states)
    return null_unless(answer, sizes > 0) if aggregate.counted else answer


def _ranked(
    aggregate: AggregateFunction,
    call: AggregateCall,
    column: Column,
    order: Int64Array,
    index: Int64Array,
    cells: Int64Array,
    sizes: Int64Array,
) -> Column:
    """Sort the rows of each range; `order` sorts all rows."""
    assert aggregate.of_ranks is not None
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order), dtype=np.int64)
    keys = cells * len(order) + ranks[index]
    keys.sort()
    values = column.take(order[keys % max(1, len(order))])
    stops = np.cumsum(sizes)
    return aggregate.of_ranks(call, Ranked(values, None, stops - sizes, stops))


def reduce_ranges(operation: np.ufunc, values: Int64Array, starts: Int64Array, stops: Int64Array) -> Int64Array:
    """Reduce each range by itself; none is empty."""
    # Pairs of indices: the even places reduce start … stop, the odd ones what lies between, which nobody wants.
    bounds = np.stack((starts, stops), axis=1).reshape(-1)
    reduced: Int64Array = operation.reduceat(np.append(values, values[-1:]), bounds)[0::2] if len(bounds) else bounds
    return reduced


def aggregate_ranges(calls: Sequence[AggregateCall], ranges: Ranges) -> list[Column]:
    """Return a column per call."""
    return [ranges.aggregate(call) for call in calls]
