"""Aged means of what operators did, in columns by slot: the calls of one operator are taken in one by one, those of thousands at once."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from millstream.engine.data.records import dataclass
from millstream.scheduler.limits import COST_NS_MIN, SELECTIVITY_MIN
from numpy.typing import NDArray

FloatColumn = NDArray[np.float64]
IntColumn = NDArray[np.int64]

PRIOR_TUPLES: Final = 20
"""What a declared value weighs against measured tuples."""

_GAINS_MAX = 4_096

# Once this many tuples have been seen, so many calls are taken into the means together, as the one train they add up to.
_TUPLES_SETTLED = 1_000
_CALLS_SETTLED = 8

_FLOATS = ("selectivity", "call_ns", "length", "length_square", "product", "share", "guess_ns", "spent_ns", "products")
_INTS = ("seen", "prior", "rows_in", "rows_out", "calls", "squares", "due")


@dataclass(frozen=True, slots=True)
class OperatorMeans:
    """What is known of one operator: selectivity; cost, length, length² and length · cost of a call; tuples seen.

    `guess_ns` is the cost that it began with, of which `share` is still in the means.
    """

    selectivity: float
    call_ns: float
    length: float
    length_square: float
    product: float
    seen: int
    guess_ns: float
    share: float

    @property
    def cost_ns(self) -> float:
        """a / E[n] + b, in ns per tuple."""
        return max(COST_NS_MIN, self.call_ns / self.length)

    @property
    def learnt_ns(self) -> float:
        """The same of the measured calls alone, without what is left of the guess, a call of one tuple; NaN before the first."""
        if self.share >= 1.0:
            return math.nan
        return max(COST_NS_MIN, (self.call_ns - self.share * self.guess_ns) / (self.length - self.share))


class MeansColumns:
    """The means of all operators. `prior`: the tuples that the first value weighs.

    The sums `rows_in`, `rows_out`, `spent_ns`, `calls`, `squares` (of rows in) and `products` (rows in times cost) add up until `due`
    tuples have come, at most a window, and then enter the means. Names that end in `_at` are views of single values.
    """

    def __init__(self, window: int, aging: float) -> None:
        self.set_aging(window, aging)
        self._capacity = 0
        self._gains: dict[int, float] = {}
        self.known: list[bool] = []
        self.grow(16)

    def set_aging(self, window: int, aging: float) -> None:
        """Measure over windows of so many tuples with this weight of the newest, from now on."""
        self.window, self._log_keep, self._gains = window, math.log(1.0 - aging) / window, {}

    def grow(self, needed: int) -> None:
        """Have room for so many slots."""
        if needed <= self._capacity:
            return
        capacity = max(needed, 2 * self._capacity)
        for names, dtype in ((_FLOATS, np.float64), (_INTS, np.int64)):
            for name in names:
                column = np.zeros(capacity, dtype=dtype)
                if self._capacity:
                    column[: self._capacity] = getattr(self, name)
                setattr(self, name, column)
        self.known.extend([False] * (capacity - self._capacity))
        self._capacity = capacity
        self._view()

    selectivity: FloatColumn
    call_ns: FloatColumn
    length: FloatColumn
    length_square: FloatColumn
    product: FloatColumn
    share: FloatColumn
    guess_ns: FloatColumn
    spent_ns: FloatColumn
    products: FloatColumn
    seen: IntColumn
    prior: IntColumn
    rows_in: IntColumn
    rows_out: IntColumn
    calls: IntColumn
    squares: IntColumn
    due: IntColumn

    def _view(self) -> None:
        self._rows_in_at: memoryview[int] = memoryview(self.rows_in)  # type: ignore[arg-type]
        self._rows_out_at: memoryview[int] = memoryview(self.rows_out)  # type: ignore[arg-type]
        self._calls_at: memoryview[int] = memoryview(self.calls)  # type: ignore[arg-type]
        self._squares_at: memoryview[int] = memoryview(self.squares)  # type: ignore[arg-type]
        self._due_at: memoryview[int] = memoryview(self.due)  # type: ignore[arg-type]
        self._seen_at: memoryview[int] = memoryview(self.seen)  # type: ignore[arg-type]
        self._prior_at: memoryview[int] = memoryview(self.prior)  # type: ignore[arg-type]
        self._spent_at: memoryview[float] = memoryview(self.spent_ns)  # type: ignore[arg-type]
        self._products_at: memoryview[float] = memoryview(self.products)  # type: ignore[arg-type]
        self._selectivity_at: memoryview[float] = memoryview(self.selectivity)  # type: ignore[arg-type]
        self._call_at: memoryview[float] = memoryview(self.call_ns)  # type: ignore[arg-type]
        self._length_at: memoryview[float] = memoryview(self.length)  # type: ignore[arg-type]
        self._length_square_at: memoryview[float] = memoryview(self.length_square)  # type: ignore[arg-type]
        self._product_at: memoryview[float] = memoryview(self.product)  # type: ignore[arg-type]
        self._share_at: memoryview[float] = memoryview(self.share)  # type: ignore[arg-type]

    def begin(self, slot: int, selectivity: float, cost_ns: float) -> None:
        """Give an operator what was declared of it, as if measured over calls of one tuple."""
        self.grow(slot + 1)
        for name in (*_FLOATS, *_INTS):
            getattr(self, name)[slot] = 0
        self.selectivity[slot] = selectivity
        self.call_ns[slot] = self.product[slot] = self.guess_ns[slot] = cost_ns
        self.length[slot] = self.length_square[slot] = self.share[slot] = 1.0
        self.prior[slot], self.due[slot], self.known[slot] = PRIOR_TUPLES, 1, True

    def expect(self, slot: int, selectivity: float) -> None:
        """Give an operator of which nothing was measured another selectivity, which the first measurement displaces whole."""
        self.selectivity[slot], self.prior[slot] = selectivity, 0

    def forget(self, slot: int) -> None:
        """Nobody is at the slot any more."""
        self.known[slot] = False

    def of(self, slot: int) -> OperatorMeans | None:
        """Return what is known at a slot, None where no operator is."""
        if not self.known[slot]:
            return None
        return OperatorMeans(
            selectivity=self.selectivity.item(slot),
            call_ns=self.call_ns.item(slot),
            length=self.length.item(slot),
            length_square=self.length_square.item(slot),
            product=self.product.item(slot),
            seen=self.seen.item(slot),
            guess_ns=self.guess_ns.item(slot),
            share=self.share.item(slot),
        )

    def cost_ns(self, slots: IntColumn) -> FloatColumn:
        """Return `OperatorMeans.cost_ns` of several."""
        return np.maximum(COST_NS_MIN, self.call_ns[slots] / self.length[slots])

    def learnt_ns(self, slots: IntColumn) -> FloatColumn:
        """Return `OperatorMeans.learnt_ns` of several."""
        share = self.share[slots]
        is_measured = share < 1.0
        over = np.where(is_measured, self.length[slots] - share, 1.0)
        learnt = np.maximum(COST_NS_MIN, (self.call_ns[slots] - share * self.guess_ns[slots]) / over)
        return np.where(is_measured, learnt, np.nan)

    def add(self, slot: int, rows_in: int, rows_out: int, cost_ns: int) -> bool:
        """Add one call; return whether the sums are due."""
        calls = self._calls_at[slot] = self._calls_at[slot] + 1
        self._rows_out_at[slot] += rows_out
        self._spent_at[slot] += cost_ns
        self._squares_at[slot] += rows_in * rows_in
        self._products_at[slot] += rows_in * cost_ns
        rows = self._rows_in_at[slot] = self._rows_in_at[slot] + rows_in
        return rows >= self._due_at[slot] and (calls >= _CALLS_SETTLED or self._seen_at[slot] < _TUPLES_SETTLED)

    def add_sums(self, slot: int, calls: int, rows_in: int, rows_out: int, cost_ns: float, squares: int, products: float) -> bool:
        """Add several calls of one operator; return whether the sums are due."""
        self._calls_at[slot] += calls
        self._rows_in_at[slot] += rows_in
        self._rows_out_at[slot] += rows_out
        self._spent_at[slot] += cost_ns
        self._squares_at[slot] += squares
        self._products_at[slot] += products
        is_enough = self._calls_at[slot] >= _CALLS_SETTLED or self._seen_at[slot] < _TUPLES_SETTLED
        return is_enough and self._rows_in_at[slot] >= self._due_at[slot]

    def add_columns(
        self,
        slots: IntColumn,
        calls: IntColumn,
        rows_in: IntColumn,
        rows_out: IntColumn,
        cost_ns: FloatColumn,
        squares: IntColumn,
        products: FloatColumn,
    ) -> IntColumn:
        """Add several calls of each of these operators, none of them twice; return those whose sums are due."""
        self.calls[slots] += calls
        self.rows_in[slots] += rows_in
        self.rows_out[slots] += rows_out
        self.spent_ns[slots] += cost_ns
        self.squares[slots] += squares
        self.products[slots] += products
        is_enough = (self.calls[slots] >= _CALLS_SETTLED) | (self.seen[slots] < _TUPLES_SETTLED)
        return slots[is_enough & (self.rows_in[slots] >= self.due[slots])]

    def gain(self, rows: int) -> float:
        """Return what a window of so many tuples weighs against what was known before."""
        gain = self._gains.get(rows)
        if gain is None:
            if len(self._gains) >= _GAINS_MAX:
                self._gains.clear()
            gain = self._gains[rows] = -math.expm1(self._log_keep * rows)
        return gain

    def take(self, slot: int, outputs: int) -> None:
        """Take the sums into the means. `outputs` are the operator's; a sink has none, and what it takes are results."""
        rows_in, seen, calls = self._rows_in_at[slot], self._seen_at[slot], self._calls_at[slot]
        gain = self.gain(rows_in)
        if seen < self.window:
            gain = max(gain, rows_in / (self._prior_at[slot] + seen + rows_in))
        keep = 1.0 - gain
        # A shared aggregate has an output a query: the sums count its selectivity once for each, so it is that of one of them.
        made = self._rows_out_at[slot] if outputs else rows_in
        selectivity = keep * self._selectivity_at[slot] + gain * made / (rows_in * (outputs or 1))
        self._selectivity_at[slot] = selectivity if selectivity > SELECTIVITY_MIN else SELECTIVITY_MIN
        self._share_at[slot] *= keep
        self._call_at[slot] = keep * self._call_at[slot] + gain * (self._spent_at[slot] / calls)
        self._length_at[slot] = keep * self._length_at[slot] + gain * (rows_in / calls)
        self._length_square_at[slot] = keep * self._length_square_at[slot] + gain * self._squares_at[slot] / calls
        self._product_at[slot] = keep * self._product_at[slot] + gain * self._products_at[slot] / calls
        seen = self._seen_at[slot] = seen + rows_in
        self._due_at[slot] = min(self.window, 1 + seen // 4)
        self._rows_in_at[slot] = self._rows_out_at[slot] = self._calls_at[slot] = self._squares_at[slot] = 0
        self._spent_at[slot] = self._products_at[slot] = 0.0

    def take_columns(self, slots: IntColumn, outputs: IntColumn) -> None:
        """Do the same for several operators, with the same results to the bit."""
        rows_in, seen, calls = self.rows_in[slots], self.seen[slots], self.calls[slots]
        lengths, places = np.unique(rows_in, return_inverse=True)
        gain = np.array([self.gain(rows) for rows in lengths.tolist()])[places]
        gain = np.where(seen < self.window, np.maximum(gain, rows_in / (self.prior[slots] + seen + rows_in)), gain)
        keep = 1.0 - gain
        made = np.where(outputs > 0, self.rows_out[slots], rows_in)
        selectivity = keep * self.selectivity[slots] + gain * made / (rows_in * np.maximum(outputs, 1))
        self.selectivity[slots] = np.maximum(SELECTIVITY_MIN, selectivity)
        self.share[slots] *= keep
        self.call_ns[slots] = keep * self.call_ns[slots] + gain * (self.spent_ns[slots] / calls)
        self.length[slots] = keep * self.length[slots] + gain * (rows_in / calls)
        self.length_square[slots] = keep * self.length_square[slots] + gain * self.squares[slots] / calls
        self.product[slots] = keep * self.product[slots] + gain * self.products[slots] / calls
        seen = self.seen[slots] = seen + rows_in
        self.due[slots] = np.minimum(self.window, 1 + seen // 4)
        for column in (self.rows_in, self.rows_out, self.calls, self.squares, self.spent_ns, self.products):
            column[slots] = 0


def has_repeats(slots: IntColumn) -> bool:
    """Return whether a slot is there more than once."""
    places = np.arange(len(slots))
    last = np.zeros(int(slots.max()) + 1, dtype=np.int64)
    last[slots] = places
    return bool((last[slots] != places).any())
