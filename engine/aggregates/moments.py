"""STDDEV and VARIANCE, of the sample and of the population.

A state is the count of its values, the first of them, the sum of the others' distances from it, and the sum of squared distances from the
mean. States are put together as Chan, Golub and LeVeque 1979 do (eq. 2.1), a row being a state of one value. Equal values have no
variance however large they are, as their distances from the first are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from millstream.engine.aggregates.contract import AggregateFunction, AggregateUse, Array, FoldedRows, Int64Array, StateKind, in_double
from millstream.engine.data.arrays import grouped, running_fold
from millstream.engine.data.column import Column
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import DataType
from millstream.engine.state.forms import state_record

MOMENTS = np.dtype([("count", "f8"), ("first", "f8"), ("total", "f8"), ("spread", "f8")])


@state_record("fold_moments", 1)
@dataclass(frozen=True, slots=True)
class Moments(StateKind):
    """See the module's text. Nothing is subtracted from `spread`; a NaN or an infinity makes it NaN."""

    @property
    def dtype(self) -> np.dtype[np.void]:
        """Four numbers."""
        return MOMENTS

    @property
    def neutral(self) -> tuple[float, ...]:
        """No values."""
        return (0.0, 0.0, 0.0, 0.0)

    def fold(self, states: Array, rows: FoldedRows) -> None:
        """Merge values in turn into what their cell has."""
        order, starts, sizes = grouped(rows.cells, len(states))
        values = rows.argument.values[order]
        which = rows.cells[order[starts]]
        old = states[which]
        old["first"] = np.where(old["count"] > 0, old["first"], values[starts])
        before = np.arange(len(values)) - np.repeat(starts - old["count"], sizes)
        with np.errstate(all="ignore"):
            distance = values - np.repeat(old["first"], sizes)
            total = distance.copy()
            total[starts] += old["total"]
            running_fold(np.add, total, starts, sizes)
            earlier = np.empty(len(total))
            earlier[1:], earlier[starts] = total[:-1], old["total"]
            added = _added(before, earlier, np.ones(len(values)), distance, values - values)
        runs = np.arange(len(starts))
        sums = np.bincount(np.concatenate((runs, np.repeat(runs, sizes))), np.concatenate((old["spread"], added)), len(runs))
        old["count"] += sizes
        old["total"], old["spread"] = total[starts + sizes - 1], sums
        states[which] = old

    def merge(self, left: Array, right: Array) -> Array:
        """As the base says."""
        merged = np.empty(len(left), dtype=MOMENTS)
        count = right["count"]
        merged["count"] = left["count"] + count
        merged["first"] = np.where(left["count"] > 0, left["first"], right["first"])
        with np.errstate(all="ignore"):
            distance = np.where(count > 0, right["total"] + count * (right["first"] - merged["first"]), 0.0)
            merged["total"] = left["total"] + distance
            merged["spread"] = left["spread"] + _added(left["count"], left["total"], count, distance, right["spread"])
        return merged

    def scan(self, states: Array, starts: Int64Array, sizes: Int64Array) -> None:
        """Merge in turn: counts and distances from the stretch's first value are running sums, and so is what each state adds."""
        if not len(states):
            return
        count = states["count"].copy()
        has = count > 0
        lead = np.minimum.reduceat(np.where(has, np.arange(len(states)), len(states) - 1), starts)
        first = np.repeat(states["first"][lead], sizes)
        with np.errstate(all="ignore"):
            distance = np.where(has, states["total"] + count * (states["first"] - first), 0.0)
            upto = np.cumsum(count)
            upto -= np.repeat(upto[starts] - count[starts], sizes)  # whole numbers: exact
            total = distance.copy()
            running_fold(np.add, total, starts, sizes)
            earlier = np.empty(len(total))
            earlier[1:], earlier[starts] = total[:-1], 0.0
            spread = _added(upto - count, earlier, count, distance, states["spread"])
        running_fold(np.add, spread, starts, sizes)
        states["count"], states["first"], states["total"], states["spread"] = upto, first, total, spread


def _added(before: Array, earlier: Array, count: Array, distance: Array, spread: Array) -> Array:
    """Return what states with `count` values add to the spread of `before` earlier ones: their own, and for how far the means are apart.

    `earlier` and `distance` are the sums of both sides' distances from one value.
    """
    both = (count > 0) & (before > 0)
    apart = np.where(both, distance / np.maximum(count, 1.0) - earlier / np.maximum(before, 1.0), 0.0)
    added: Array = spread + apart * apart * (before * count / np.maximum(before + count, 1.0))
    added[np.isnan(added) & ~np.isnan(spread)] = np.inf  # too far apart for a DOUBLE
    return added


def _column(call: AggregateUse, argument: DataType, states: Sequence[Array], *, least: int, root: bool) -> Column:
    """Return spread over count, less one for the sample's, which is NULL for one value."""
    moments = states[0]
    valid = moments["count"] >= least
    variance = np.where(valid, moments["spread"], 0.0) / np.maximum(moments["count"] - (least - 1), 1.0)
    return Column(call.type, np.sqrt(variance) if root else variance, None if valid.all() else valid)


def _aggregate(*, least: int, root: bool) -> AggregateFunction:
    return AggregateFunction(in_double, lambda argument: (Moments(),), partial(_column, least=least, root=root), counted=False)


STDDEV = _aggregate(least=2, root=True)
VARIANCE = _aggregate(least=2, root=False)
STDDEV_POP = _aggregate(least=1, root=True)
VAR_POP = _aggregate(least=1, root=False)
