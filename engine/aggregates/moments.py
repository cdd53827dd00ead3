"""STDDEV and VARIANCE, of the sample and of the population.

A state is the count of its values, the first of them, the sum of the others' distances from it, and the sum of squared distances from the
mean. States are put together as Chan, Golub and LeVeque 1979 do (eq. 2.1), a row being a state of one value. Equal values have no
variance however large they are, as their distances from the first are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
from millstream.engine.aggregates.contract import Aggregate, Array, Call, Int64Array, Rows, StateKind
from millstream.engine.aggregates.rules import in_double
from millstream.engine.data.column import Column
from millstream.engine.data.records import dataclass
from millstream.engine.data.runs import run_sizes, run_starts, running_fold
from millstream.engine.data.types import DataType

MOMENTS = np.dtype([("count", "f8"), ("first", "f8"), ("total", "f8"), ("spread", "f8")])


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

    def fold(self, states: Array, rows: Rows) -> None:
        """Put what a cell has in front of its rows, and merge in turn."""
        touched = np.unique(rows.cells)
        cells = np.concatenate((touched, rows.cells))
        order = np.argsort(cells, kind="stable")
        starts = run_starts(cells[order])
        sizes = run_sizes(starts, len(cells))
        turns = np.concatenate((states[touched], lone_moments(rows.argument.values)))[order]
        self.scan(turns, starts, sizes)
        states[touched] = turns[starts + sizes - 1]

    def merge(self, left: Array, right: Array) -> Array:
        """Return stretches of two, merged."""
        pairs = np.empty(2 * len(left), dtype=MOMENTS)
        pairs[0::2], pairs[1::2] = left, right
        starts = np.arange(0, len(pairs), 2, dtype=np.int64)
        self.scan(pairs, starts, np.full(len(left), 2, dtype=np.int64))
        return pairs[1::2]

    def scan(self, states: Array, starts: Int64Array, sizes: Int64Array) -> None:
        """Merge in turn: counts and distances from the stretch's first value are running sums, and so is what each state adds."""
        count, spread = states["count"].copy(), states["spread"].copy()
        has = count > 0
        places = np.where(has, np.arange(len(states), dtype=np.int64), len(states) - 1)
        lead = places if not len(starts) else np.minimum.reduceat(places, starts)
        first = np.repeat(states["first"][lead], sizes)
        with np.errstate(all="ignore"):
            distance = np.where(has, states["total"] + count * (states["first"] - first), 0.0)
            upto, total = count.copy(), distance.copy()
            running_fold(np.add, upto, starts, sizes)
            running_fold(np.add, total, starts, sizes)
            before, total_before = upto - count, np.concatenate((np.zeros(1), total[:-1]))
            total_before[starts] = 0.0
            both = has & (before > 0)
            apart = np.where(both, distance / np.maximum(count, 1.0) - total_before / np.maximum(before, 1.0), 0.0)
            added = spread + apart * apart * (before * count / np.maximum(upto, 1.0))
        added[np.isnan(added) & ~np.isnan(spread)] = np.inf  # too far apart for a DOUBLE
        running_fold(np.add, added, starts, sizes)
        states["count"], states["first"], states["total"], states["spread"] = upto, first, total, added


def lone_moments(values: npt.NDArray[np.float64]) -> Array:
    """Return the moments of each value by itself."""
    states = np.zeros(len(values), dtype=MOMENTS)
    states["count"], states["first"] = 1.0, values
    with np.errstate(invalid="ignore"):
        states["spread"] = values - values  # 0, or NaN
    return states


def _column(call: Call, argument: DataType, states: Sequence[Array], *, least: int, root: bool) -> Column:
    """Return spread over count, less one for the sample's, which is NULL for one value."""
    moments = states[0]
    valid = moments["count"] >= least
    variance = np.where(valid, moments["spread"], 0.0) / np.maximum(moments["count"] - (least - 1), 1.0)
    return Column(call.type, np.sqrt(variance) if root else variance, None if valid.all() else valid)


def _aggregate(*, least: int, root: bool) -> Aggregate:
    return Aggregate(in_double, lambda argument: (Moments(),), partial(_column, least=least, root=root), counted=False)


STDDEV = _aggregate(least=2, root=True)
VARIANCE = _aggregate(least=2, root=False)
STDDEV_POP = _aggregate(least=1, root=True)
VAR_POP = _aggregate(least=1, root=False)
