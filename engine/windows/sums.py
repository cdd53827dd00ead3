"""SUM and AVG.

Integers and narrow DECIMALs are summed exactly in int64 as long as the values seen cannot overflow it, after that in two halves (the
value's high and low 32 bits), which 2**31 rows a pane cannot overflow. Wide DECIMALs are summed as Python integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.data.column import Column
from millstream.engine.data.types import DataType, Kind
from millstream.engine.windows.accumulators import Accumulator, Fold, Request, ValueCounts, sum_panes
from millstream.engine.windows.batch import Batch
from millstream.engine.windows.grids import Grid, PaneTable, combined
from millstream.engine.windows.passes import Passed

Int64Array = npt.NDArray[np.int64]

HALF_BITS = 32
HALF_MASK = (1 << HALF_BITS) - 1
INT64_SAFE = 2**62
DECIMAL_DIGITS_MAX = 38


class DoubleSums:
    """Sums of DOUBLE, NaN and infinities included (K7)."""

    def __init__(self, table: PaneTable) -> None:
        self._grid = table.grid(np.float64, 0.0)

    def fold_into(self, lo: int, hi: int) -> Fold:
        """Return what adds values one after the other: `add.at` goes by position, so it does not matter where trains were cut."""
        return partial(np.add.at, self._grid.flat[lo:hi])

    def total(self, slots: Sequence[int], ids: Int64Array) -> npt.NDArray[np.float64]:
        """Add panes in order of time."""
        answer: npt.NDArray[np.float64] = combined(self._grid, slots, np.add)[ids]
        return answer

    def totals(self, slots: Sequence[int], requests: Sequence[Request]) -> list[npt.NDArray[Any]]:
        """Return the totals of each request in one pass from the newest pane on (see `Accumulator.answers`)."""
        passed = Passed(self._grid, slots, [count for count, _ in requests], np.add)
        return [passed.upto(count)[ids] for count, ids in requests]


class IntegerSums:
    """Exact sums of int64 values."""

    def __init__(self, table: PaneTable) -> None:
        self._table = table
        self._low: Grid = table.grid(np.int64, 0)
        self._high: Grid | None = None
        self._bound = 0

    def fold_into(self, lo: int, hi: int) -> Fold:
        """Return what adds values to cells lo to hi."""
        return partial(self._add, lo, hi)

    def _add(self, lo: int, hi: int, cells: Int64Array, values: npt.NDArray[Any]) -> None:
        if len(values) == 0:
            return
        added = len(values) * max(abs(int(values.max())), abs(int(values.min())))
        self._bound += added
        if self._high is None and self._bound >= INT64_SAFE and not self._bound_again(added):
            self._halve()
        low = self._low.flat[lo:hi]
        if self._high is None:
            np.add.at(low, cells, values.astype(np.int64, copy=False))
            return
        wide = values.astype(np.int64, copy=False)
        np.add.at(low, cells, wide & HALF_MASK)
        np.add.at(self._high.flat[lo:hi], cells, wide >> HALF_BITS)

    def _bound_again(self, added: int) -> bool:
        """The running bound counts closed panes too; look at what is really there before giving up the fast way."""
        greatest = int(np.abs(self._low.array).max()) * self._table.slot_count
        self._bound = greatest + added
        return self._bound < INT64_SAFE

    def _halve(self) -> None:
        self._high = self._table.grid(np.int64, 0)
        self._high.array[:] = self._low.array >> HALF_BITS
        self._low.array[:] &= HALF_MASK

    def total(self, slots: Sequence[int], ids: Int64Array) -> npt.NDArray[Any]:
        """Return exact totals: int64, or Python integers once int64 might not hold them."""
        if self._high is None:
            return sum_panes(self._low, slots, ids)
        low = self._low.array[list(slots)][:, ids]
        high = self._high.array[list(slots)][:, ids]
        wide: npt.NDArray[Any] = (high.astype(np.object_).sum(axis=0) << HALF_BITS) + low.astype(np.object_).sum(axis=0)
        return wide

    def totals(self, slots: Sequence[int], requests: Sequence[Request]) -> list[npt.NDArray[Any]]:
        """Return exact totals of each request, in one pass as long as int64 holds them."""
        if self._high is not None:
            return [self.total(slots[:count], ids) for count, ids in requests]
        passed = Passed(self._low, slots, [count for count, _ in requests], np.add)
        return [passed.upto(count)[ids] for count, ids in requests]


class ObjectSums:
    """Exact sums of Python integers (wide DECIMAL)."""

    def __init__(self, table: PaneTable) -> None:
        self._grid = table.grid(np.object_, 0)

    def fold_into(self, lo: int, hi: int) -> Fold:
        """Return what adds values to cells lo to hi."""
        return partial(np.add.at, self._grid.flat[lo:hi])

    def total(self, slots: Sequence[int], ids: Int64Array) -> npt.NDArray[Any]:
        """Return totals as Python integers."""
        total: npt.NDArray[Any] = self._grid.array[list(slots)][:, ids].sum(axis=0)
        return total

    def totals(self, slots: Sequence[int], requests: Sequence[Request]) -> list[npt.NDArray[Any]]:
        """Return the totals of each request."""
        return [self.total(slots[:count], ids) for count, ids in requests]


Sums = DoubleSums | IntegerSums | ObjectSums


def sums_of(table: PaneTable, argument: DataType) -> Sums:
    """Return the sums for an argument of this type; INTERVAL sums as integers."""
    if argument.kind is Kind.DOUBLE:
        return DoubleSums(table)
    return ObjectSums(table) if argument.is_wide else IntegerSums(table)


class SharedSums:
    """Sums of one (argument, FILTER), kept once for SUM and AVG of the same."""

    def __init__(self, sums: Sums, position: int, filter_: int | None) -> None:
        self.sums = sums
        self._position, self._filter = position, filter_

    def update(self, batch: Batch) -> None:
        """Fold the rows that count in."""
        self.sums.fold_into(batch.lo, batch.hi)(*batch.values(self._position, self._filter))

    def fold_into(self, lo: int, hi: int) -> tuple[int, Fold] | None:
        """Return the column and what folds its values, see `Accumulator.fold_into`."""
        return None if self._filter is not None else (self._position, self.sums.fold_into(lo, hi))


class Sum(Accumulator):
    """SUM: NULL when no row counts; BIGINT widens to DECIMAL(38, 0) (K13)."""

    folds = False

    def __init__(self, type_: DataType, sums: SharedSums, counts: ValueCounts) -> None:
        super().__init__(type_)
        self._sums, self._counts = sums, counts

    def update(self, batch: Batch) -> None:
        """Nothing of its own."""

    def combine(self, slots: Sequence[int], ids: Int64Array) -> Column:
        """Return the sums."""
        valid = None if self._counts.are_row_counts else self._counts.total(slots, ids) > 0
        return exact_column(self.type, self._sums.sums.total(slots, ids), valid)

    def answers(self, slots: Sequence[int], requests: Sequence[Request]) -> list[Column]:
        """Return the sums in one pass."""
        totals = self._sums.sums.totals(slots, requests)
        if self._counts.are_row_counts:
            return [exact_column(self.type, total, None) for total in totals]
        counts = self._counts.totals(slots, requests)
        return [exact_column(self.type, total, count > 0) for total, count in zip(totals, counts, strict=True)]


class Average(Accumulator):
    """AVG: DOUBLE of integers and DOUBLE; of DECIMAL with more digits, rounded once, half away from zero (K13)."""

    folds = False

    def __init__(self, type_: DataType, argument: DataType, sums: SharedSums, counts: ValueCounts) -> None:
        super().__init__(type_)
        self._argument = argument
        self._sums, self._counts = sums, counts

    def update(self, batch: Batch) -> None:
        """Nothing of its own."""

    def combine(self, slots: Sequence[int], ids: Int64Array) -> Column:
        """Return sums over counts."""
        counts = self._counts.total(slots, ids)
        return average_column(self.type, self._argument, self._sums.sums.total(slots, ids), counts)

    def answers(self, slots: Sequence[int], requests: Sequence[Request]) -> list[Column]:
        """Return sums over counts in one pass."""
        pairs = zip(self._sums.sums.totals(slots, requests), self._counts.totals(slots, requests), strict=True)
        return [average_column(self.type, self._argument, total, count) for total, count in pairs]


def average_column(type_: DataType, argument: DataType, totals: npt.NDArray[Any], counts: Int64Array) -> Column:
    """Return totals / counts as the type asks, NULL where the count is 0."""
    valid = counts > 0
    missing = None if valid.all() else valid
    divisor = np.maximum(counts, 1)
    if type_.kind is Kind.DECIMAL:
        factor = 10 ** (type_.scale - argument.scale)
        quotients = [_rounded(int(t) * factor, int(n)) for t, n in zip(totals.tolist(), divisor.tolist(), strict=True)]
        return exact_column(type_, _objects(quotients), missing)
    if type_.kind is not Kind.DOUBLE:  # AVG of INTERVAL: whole microseconds
        quotients = [_rounded(int(t), int(n)) for t, n in zip(totals.tolist(), divisor.tolist(), strict=True)]
        return Column(type_, np.array(quotients, dtype=np.int64), missing)
    # The exact total is rounded to DOUBLE first, whether it came as int64 or as Python integers.
    return Column(type_, totals.astype(np.float64) / divisor, missing)


def exact_column(type_: DataType, totals: npt.NDArray[Any], valid: npt.NDArray[np.bool_] | None) -> Column:
    """Return a column of exact integers in the storage form of `type_`; NULL where a DECIMAL overflows (K8)."""
    if type_.is_wide:
        wide = totals.astype(np.object_)
        limit = 10 ** min(type_.precision, DECIMAL_DIGITS_MAX)
        if totals.dtype == np.object_ and any(abs(v) >= limit for v in wide.tolist()):
            fits = np.array([abs(v) < limit for v in wide.tolist()], dtype=np.bool_)
            wide[~fits] = 0
            valid = fits if valid is None else valid & fits
        return Column(type_, wide, valid)
    if type_.kind is Kind.DOUBLE:
        return Column(type_, totals.astype(np.float64, copy=False), valid)
    if totals.dtype == np.object_:
        fits = np.array([-(2**63) <= v < 2**63 for v in totals.tolist()], dtype=np.bool_)
        if not fits.all():
            totals = np.where(fits, totals, 0)
            valid = fits if valid is None else valid & fits
    return Column(type_, totals.astype(np.int64), valid)


def _rounded(numerator: int, denominator: int) -> int:
    """Divide, halves away from zero."""
    quotient, rest = divmod(abs(numerator), denominator)
    quotient += 2 * rest >= denominator
    return quotient if numerator >= 0 else -quotient


def _objects(values: list[int]) -> npt.NDArray[Any]:
    array = np.empty(len(values), dtype=np.object_)
    array[:] = values
    return array
