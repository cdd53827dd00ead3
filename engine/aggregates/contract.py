"""What an aggregate is: a rule for its types, the states it keeps, and its answer; or, where it needs every value, a function of those.

A state is what is kept of the rows of one cell: a group in a pane, a group at an instant, an open session. States lie in arrays, an
array for each kind of state that an aggregate names, a place for each cell. `fold` takes rows into states one row after another, so its
result does not depend on where the rows were cut into calls (K15). `merge` puts together the states of two neighbours in time. Nothing
is ever taken away from a state again (K13), so a NaN is gone with the cell that held it (K7).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from millstream.engine.data.arrays import filled, run_sizes, run_starts, running_fold
from millstream.engine.data.column import Column, Mask, with_nulls
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import DOUBLE, INT, INTERVAL, NULL, TEXT, DataType
from millstream.engine.expressions.signature import Options, Rule, Signature, Types, expect_count, refuse_argument
from millstream.engine.state.forms import state_record

SPAN_MOST = 8  # with more cells in range than this many times the rows, sorting these is cheaper

Int64Array = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
Lift = Callable[[Array], Array]
Fold = Callable[[Int64Array, Array], object]
"""Folds values into cells."""


class AggregateUse(Protocol):
    """What an aggregate needs to know of a call: its name in the table, the type of the result, its constant arguments."""

    @property
    def function(self) -> str:
        """The canonical name."""

    @property
    def type(self) -> DataType:
        """The type of the answer."""

    @property
    def options(self) -> tuple[Any, ...]:
        """The options that the rule has checked."""

    @property
    def distinct(self) -> bool:
        """Whether each different value counts once."""


class RowPlaces:
    """Where rows are folded: the cell of each, in the order of folding. Arguments whose rows all count share one.

    `order` returns event times and arrival ordinals, for aggregates that look at these.
    """

    __slots__ = ("_ends", "_order", "_turns", "cells")

    def __init__(self, cells: Int64Array, order: Callable[[], tuple[Int64Array, Int64Array]]) -> None:
        self.cells = cells
        self._order: Callable[[], tuple[Int64Array, Int64Array]] | tuple[Int64Array, Int64Array] = order
        self._turns: tuple[Int64Array | None] | None = None
        self._ends: dict[bool, Int64Array] = {}

    def order(self) -> tuple[Int64Array, Int64Array]:
        """Return event times and arrival ordinals, asked for once."""
        if not isinstance(self._order, tuple):
            self._order = self._order()
        return self._order

    def ends(self, *, last: bool) -> Int64Array:
        """Return the places of each cell's first or last row by event time, ties by arrival; one place a cell, in no order."""
        found = self._ends.get(last)
        if found is None:
            found = self._ends[last] = self.ends_of(None, last=last)
        return found

    def ends_of(self, among: Int64Array | None, *, last: bool) -> Int64Array:
        """Return what `ends` does, of some rows alone: their places, rising (None for all)."""
        places = self._in_order(among)
        cells = self.cells if places is None else self.cells[places]
        if places is None:
            places = np.arange(len(cells), dtype=np.int64)
        if not len(cells):
            return places
        if not last:
            cells, places = cells[::-1], places[::-1]
        least = int(cells.min())
        span = int(cells.max()) - least + 1
        if span > SPAN_MOST * len(cells):
            order = cells.argsort(kind="stable")
            starts = run_starts(cells[order])
            found: Int64Array = places[order[starts + run_sizes(starts, len(order)) - 1]]
            return found
        # Of several values for one element, NumPy lets the last one stand.
        ends = np.full(span, -1, dtype=np.int64)
        ends[cells - least] = places
        return ends[ends >= 0]

    def _in_order(self, among: Int64Array | None) -> Int64Array | None:
        """Return the places of the rows by event time, ties by arrival: None where all stand so already, as rows in order of arrival do."""
        if self._turns is None:
            times, ordinals = self.order()
            rises = bool((times[1:] >= times[:-1]).all() and (ordinals[1:] > ordinals[:-1]).all())
            self._turns = (None if rises else np.lexsort((ordinals, times)),)
        turns = self._turns[0]
        if turns is None or among is None:
            return among if turns is None else turns
        wanted = np.zeros(len(turns), dtype=np.bool_)
        wanted[among] = True
        return turns[wanted[turns]]


class FoldedRows:
    """Rows to be folded: where, and the column of the argument (None for COUNT(*)).

    Row i has the value at `index[i]` of the column, if there is an index: whoever looks at few rows has only these gathered.
    """

    __slots__ = ("_column", "_index", "places")

    def __init__(self, places: RowPlaces, column: Column | None, index: Int64Array | None = None) -> None:
        self.places = places
        self._column = column
        self._index = index

    @property
    def cells(self) -> Int64Array:
        """The cell of each row."""
        return self.places.cells

    @property
    def argument(self) -> Column:
        """The column of an aggregate that has one, a value a row."""
        column = self._source
        if self._index is not None:
            column = self._column = column.take(self._index)
            self._index = None
        return column

    def argument_at(self, places: Int64Array) -> Column:
        """Return the argument's values of some rows."""
        return self._source.take(places if self._index is None else self._index[places])

    @property
    def _source(self) -> Column:
        assert self._column is not None
        return self._column


class StateKind(ABC):
    """One array of states. Kinds compare by value: what several aggregates keep of the same argument is kept once."""

    __slots__ = ()

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """The type of a state in an array."""

    @property
    @abstractmethod
    def neutral(self) -> Any:
        """The state of no rows."""

    @property
    def ufunc(self) -> np.ufunc | None:
        """The operation that merges, where NumPy has it."""
        return None

    def fresh(self, cells: int) -> Array:
        """Return the states of so many cells without rows."""
        return filled(cells, self.dtype, self.neutral)

    def folder(self, states: Array) -> Fold | None:
        """Return what folds values of the argument into these states; None where a state is made of more than values, or of objects."""
        return None

    @abstractmethod
    def fold(self, states: Array, rows: FoldedRows) -> None:
        """Fold rows into the states of their cells, in place."""

    @abstractmethod
    def merge(self, left: Array, right: Array) -> Array:
        """Return the states of pairs of neighbours put together, the earlier one on the left."""

    @abstractmethod
    def scan(self, states: Array, starts: Int64Array, sizes: Int64Array) -> None:
        """Replace each state of the stretches starts[i] … starts[i] + sizes[i] by its stretch up to it, merged in turn, in place."""


def _lesser(left: Any, right: Any) -> Any:
    return right if left is None or (right is not None and right < left) else left


def _greater(left: Any, right: Any) -> Any:
    return right if left is None or (right is not None and right > left) else left


# A ufunc of Python objects cannot be pickled, so kinds name their operation.
OPERATIONS: dict[str, np.ufunc] = {
    "add": np.add,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "bit_and": np.bitwise_and,
    "bit_or": np.bitwise_or,
    "bit_xor": np.bitwise_xor,
    "lesser": np.frompyfunc(_lesser, 2, 1),
    "greater": np.frompyfunc(_greater, 2, 1),
}


@state_record("fold", 1)
@dataclass(frozen=True, slots=True)
class Folding(StateKind):
    """A state that is one value, merged by a ufunc; `lift` makes of the argument's values what is folded."""

    operation: str
    code: str  # of the dtype
    neutral: Any = 0
    lift: Lift | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """As the code says."""
        return np.dtype(self.code)

    @property
    def ufunc(self) -> np.ufunc:
        """The operation."""
        return OPERATIONS[self.operation]

    def folder(self, states: Array) -> Fold | None:
        """Return the ufunc's `at`, which goes by position."""
        fold = partial(self.ufunc.at, states)
        lift = self.lift
        return fold if lift is None else lambda cells, values: fold(cells, lift(values))

    def fold(self, states: Array, rows: FoldedRows) -> None:
        """Fold one value after the other."""
        values = rows.argument.values
        self.ufunc.at(states, rows.cells, values if self.lift is None else self.lift(values))

    def merge(self, left: Array, right: Array) -> Array:
        """Apply the operation."""
        merged: Array = self.ufunc(left, right)
        return merged

    def scan(self, states: Array, starts: Int64Array, sizes: Int64Array) -> None:
        """As the base says."""
        running_fold(self.ufunc, states, starts, sizes)


Answer = Callable[[AggregateUse, DataType, Sequence[Array]], Column]
"""Takes the call, the argument's type and an array a state kind, cells in each."""

OfValues = Callable[[AggregateUse, Column, Int64Array, Int64Array], Column]
"""Takes the call, values that count, and the ranges [starts, stops) of them to answer for, each in order of event time."""


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An aggregate function. It has `states` and `answer`, or else `of_values` or `of_ranks`.

    With `counted` the answer is NULL where no row counts; without, the states tell. `takes_nulls`: a row counts whose argument is NULL.
    `ignores_distinct`: an equal value more makes no difference. `zero_if_empty`: the answer over no rows is 0, otherwise NULL (K6).
    """

    rule: Rule
    states: Callable[[DataType], tuple[StateKind, ...]] | None = None
    answer: Answer | None = None
    of_values: OfValues | None = None
    of_ranks: Callable[[AggregateUse, Any], Column] | None = None  # see ranked.py
    counted: bool = True
    takes_nulls: bool = False
    ignores_distinct: bool = False
    zero_if_empty: bool = False


def null_unless(column: Column, counted: Mask) -> Column:
    """Return a column that is NULL, and 0 below that, also where no row was counted."""
    if counted.all():
        return column
    if column.type.is_arrow:
        return with_nulls(column, counted)
    values = np.where(counted, column.values, np.zeros(1, dtype=column.values.dtype))
    return Column(column.type, values, counted if column.valid is None else counted & column.valid)


# Rules that aggregates share: which arguments they take, and how those are refused (result types per K13) --------------------


def number(name: str, types: Types, *, intervals: bool = False) -> DataType:
    """Return the type of the one argument (NULL counts as INT). TypeProblem for what has no sum."""
    expect_count(name, types, 1, 1)
    type_ = types[0]
    if type_ == NULL:
        return INT
    if not type_.is_numeric and not (intervals and type_ == INTERVAL):
        wanted = "a number or an INTERVAL" if intervals else "a number"
        refuse_argument(name, 0, type_, wanted, "cast it, as in CAST(x AS DOUBLE)" if type_ == TEXT else None)
    return type_


def ordered(name: str, types: Types) -> DataType:
    """Return the type of the one argument. TypeProblem for what has no order: nested values, JSON."""
    expect_count(name, types, 1, 1)
    if not types[0].is_ordered:
        refuse_argument(name, 0, types[0], "something that has an order")
    return types[0]


def in_double(name: str, types: Types, options: Options) -> Signature:
    """Take a number, compute in DOUBLE."""
    number(name, types)
    return Signature(name, (DOUBLE,), DOUBLE)


def same_type(name: str, types: Types, options: Options) -> Signature:
    """Take anything, answer with one of its values."""
    expect_count(name, types, 1, 1)
    return Signature(name, types, types[0])


def same_ordered(name: str, types: Types, options: Options) -> Signature:
    """Take anything that has an order, answer with one of its values."""
    type_ = ordered(name, types)
    return Signature(name, (type_,), type_)
