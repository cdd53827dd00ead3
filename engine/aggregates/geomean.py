"""GEOMEAN(x), the geometric mean: the n-th root of the product of n values, computed as exp(Σ ln x / n).

NULLs do not count. A zero makes it 0. A negative value makes it NULL, as it has no logarithm, and a NaN makes it NaN, each while it is in
the window and not a moment longer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.aggregates.contract import AggregateFunction, AggregateUse, Array, Folding, in_double
from millstream.engine.aggregates.sums import COUNTS
from millstream.engine.data.column import Column
from millstream.engine.data.types import DataType
from millstream.engine.state.forms import state_constant


def _logarithms(values: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):  # of 0 it is -inf, of a negative value NaN
        logarithms: Array = np.log(values)
    return logarithms


def _negative(values: Array) -> Array:
    return (values < 0).astype(np.int64)


state_constant("logarithm", _logarithms)
state_constant("is_negative", _negative)


def _column(call: AggregateUse, argument: DataType, states: Sequence[Array]) -> Column:
    counts, sums, negative = states
    with np.errstate(over="ignore"):
        means = np.exp(sums / np.maximum(counts, 1))
    return Column(call.type, means, None if not negative.any() else negative == 0)


GEOMEAN = AggregateFunction(
    in_double,
    lambda argument: (COUNTS, Folding("add", "f8", 0.0, _logarithms), Folding("add", "i8", 0, _negative)),
    _column,
)
