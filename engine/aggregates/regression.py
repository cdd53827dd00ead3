"""CORR, COVAR_* and REGR_* of two numbers, the dependent one first: REGR_SLOPE(y, x). A row counts where neither is NULL.

A state is the count of its pairs, the first of them, the sums of the others' distances from it, and the sums of products of distances from
the means: of x, of y, and of both. States are put together as Chan, Golub and LeVeque 1979 do (eq. 2.1), for a product of two columns as
for a square, a row being a state of one pair. Equal values have no variance however large they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from millstream.engine.aggregates.contract import AggregateFunction, AggregateUse, Array, FoldedRows, Int64Array, StateKind
from millstream.engine.data.arrays import grouped, running_fold
from millstream.engine.data.column import Column
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import BIGINT, DOUBLE, NULL, TEXT, DataType
from millstream.engine.expressions.signature import Options, Signature, Types, expect_count, refuse_argument
from millstream.engine.state.forms import state_record

AXES = ("y", "x")
PRODUCTS = (("xx", "x", "x"), ("yy", "y", "y"), ("xy", "x", "y"))
FIELDS = ("count", "x_first", "y_first", "x", "y", "xx", "yy", "xy")
PAIRS = np.dtype([(name, "f8") for name in FIELDS])


@state_record("fold_pairs", 1)
@dataclass(frozen=True, slots=True)
class PairMoments(StateKind):
    """See the module's text. A NaN or an infinity makes the sums that it is part of NaN."""

    @property
    def dtype(self) -> np.dtype[np.void]:
        """Eight numbers."""
        return PAIRS

    @property
    def neutral(self) -> tuple[float, ...]:
        """No pairs."""
        return (0.0,) * len(FIELDS)

    def fold(self, states: Array, rows: FoldedRows) -> None:
        """Merge pairs in turn into what their cell has, which stands before them."""
        order, starts, sizes = grouped(rows.cells, len(states))
        heads = starts + np.arange(len(starts))
        added = np.arange(len(order)) + np.repeat(np.arange(1, len(starts) + 1), sizes)
        which = rows.cells[order[starts]]
        stretches = np.zeros(len(order) + len(starts), dtype=PAIRS)
        stretches[heads] = states[which]
        stretches["count"][added] = 1.0
        pairs = rows.argument.values
        firsts = {axis: pairs.field(place).to_numpy(zero_copy_only=False)[order] for place, axis in enumerate(AXES)}
        with np.errstate(invalid="ignore"):  # an infinity has no distance from itself
            for axis, values in firsts.items():
                stretches[f"{axis}_first"][added] = values
            for product, one, other in PRODUCTS:
                stretches[product][added] = (firsts[one] - firsts[one]) + (firsts[other] - firsts[other])
        self.scan(stretches, heads, sizes + 1)
        states[which] = stretches[heads + sizes]

    def merge(self, left: Array, right: Array) -> Array:
        """As the base says."""
        stretches = np.empty(2 * len(left), dtype=PAIRS)
        stretches[0::2], stretches[1::2] = left, right
        self.scan(stretches, np.arange(0, 2 * len(left), 2), np.full(len(left), 2))
        return stretches[1::2].copy()

    def scan(self, states: Array, starts: Int64Array, sizes: Int64Array) -> None:
        """Merge in turn: counts and distances from the stretch's first pair are running sums, and so is what each state adds."""
        if not len(states):
            return
        count = states["count"].copy()
        has = count > 0
        lead = np.minimum.reduceat(np.where(has, np.arange(len(states)), len(states) - 1), starts)
        upto = np.cumsum(count)
        upto -= np.repeat(upto[starts] - count[starts], sizes)  # whole numbers: exact
        before = upto - count
        apart = {}
        with np.errstate(all="ignore"):
            for axis in AXES:
                first = np.repeat(states[f"{axis}_first"][lead], sizes)
                distance = np.where(has, states[axis] + count * (states[f"{axis}_first"] - first), 0.0)
                total = distance.copy()
                running_fold(np.add, total, starts, sizes)
                earlier = np.empty(len(total))
                earlier[1:], earlier[starts] = total[:-1], 0.0
                means = distance / np.maximum(count, 1.0) - earlier / np.maximum(before, 1.0)
                apart[axis] = np.where(has & (before > 0), means, 0.0)
                states[f"{axis}_first"], states[axis] = first, total
            weight = before * count / np.maximum(upto, 1.0)
            for product, one, other in PRODUCTS:
                sums = states[product] + apart[one] * apart[other] * weight
                running_fold(np.add, sums, starts, sizes)
                states[product] = sums
        states["count"] = upto


def _numbers(name: str, types: Types, options: Options) -> Signature:
    """Take two numbers, compute in DOUBLE."""
    expect_count(name, types, 2, 2)
    for place, type_ in enumerate(types):
        if type_ != NULL and not type_.is_numeric:
            refuse_argument(name, place, type_, "a number", "cast it, as in CAST(x AS DOUBLE)" if type_ == TEXT else None)
    return Signature(name, (DOUBLE, DOUBLE), BIGINT if name == "regr_count" else DOUBLE)


Value = Callable[[Array], Array]
"""Takes the states of cells, each with a pair at least."""


def _column(call: AggregateUse, argument: DataType, states: Sequence[Array], *, value: Value, least: int, varies: str) -> Column:
    """Return the value where there are pairs enough, and where what `varies` names does; elsewhere NULL."""
    pairs = states[0]
    valid = pairs["count"] >= least
    for axis in varies:
        valid = valid & (pairs[axis + axis] != 0.0)
    with np.errstate(all="ignore"):
        values = np.where(valid, value(pairs), 0.0)
    return Column(call.type, values, None if valid.all() else valid)


def _aggregate(value: Value, *, least: int = 1, varies: str = "") -> AggregateFunction:
    answer = partial(_column, value=value, least=least, varies=varies)
    return AggregateFunction(_numbers, lambda argument: (PairMoments(),), answer, counted=False)


def _mean(pairs: Array, axis: str) -> Array:
    means: Array = pairs[f"{axis}_first"] + pairs[axis] / pairs["count"]
    return means


def _slope(pairs: Array) -> Array:
    slopes: Array = pairs["xy"] / pairs["xx"]
    return slopes


def _intercept(pairs: Array) -> Array:
    intercepts: Array = _mean(pairs, "y") - _slope(pairs) * _mean(pairs, "x")
    return intercepts


def _correlation(pairs: Array) -> Array:
    ratio = pairs["xy"] / np.sqrt(pairs["xx"]) / np.sqrt(pairs["yy"])
    clipped: Array = np.clip(ratio, -1.0, 1.0)
    return clipped


def _determination(pairs: Array) -> Array:
    """Return how much of the variance of y the line explains: all of it where y does not vary."""
    return np.where(pairs["yy"] == 0.0, 1.0, _slope(pairs) * (pairs["xy"] / pairs["yy"]))


def _count_column(call: AggregateUse, argument: DataType, states: Sequence[Array]) -> Column:
    return Column(call.type, states[0]["count"].astype(np.int64))


CORR = _aggregate(_correlation, varies="xy")
COVAR_POP = _aggregate(lambda pairs: pairs["xy"] / pairs["count"])
COVAR_SAMP = _aggregate(lambda pairs: pairs["xy"] / (pairs["count"] - 1.0), least=2)
REGR_SLOPE = _aggregate(_slope, varies="x")
REGR_INTERCEPT = _aggregate(_intercept, varies="x")
REGR_R2 = _aggregate(_determination, varies="x")
REGR_AVGX = _aggregate(lambda pairs: _mean(pairs, "x"))
REGR_AVGY = _aggregate(lambda pairs: _mean(pairs, "y"))
REGR_SXX = _aggregate(lambda pairs: pairs["xx"])
REGR_SYY = _aggregate(lambda pairs: pairs["yy"])
REGR_SXY = _aggregate(lambda pairs: pairs["xy"])
REGR_COUNT = AggregateFunction(_numbers, lambda argument: (PairMoments(),), _count_column, counted=False, zero_if_empty=True)
