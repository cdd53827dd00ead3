"""Operations that put together cell states of more than one number: the moments of values, and the first or last row.

They stand where a ufunc would: called on two arrays of states, or `accumulate` over one. States are structured arrays.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

MOMENTS = np.dtype([("count", "f8"), ("mean", "f8"), ("spread", "f8")])  # spread: the sum of squared distances from the mean


class Operation(Protocol):
    """What a fold needs of its operation; NumPy's ufuncs have it."""

    def __call__(self, left: Any, right: Any, /) -> Any:
        """Put states together, pair by pair."""

    def accumulate(self, array: Any, /, *, dtype: Any) -> Any:
        """Return the fold of all elements up to each."""


class Moments:
    """Count, mean and squared distances of two lots of values put together (Chan, Golub and LeVeque 1979, eq. 2.1).

    Nothing is ever subtracted from the squared distances. A NaN or an infinity makes them NaN, for as long as its cell is in the window.
    """

    def __call__(self, left: Array, right: Array, /) -> Array:
        """Put states together, pair by pair."""
        merged = np.empty(len(left), dtype=MOMENTS)
        count = left["count"] + right["count"]
        with np.errstate(all="ignore"):
            share = right["count"] / np.maximum(count, 1.0)
            apart = right["mean"] - left["mean"]
            mean = left["mean"] + apart * share
            wide = ~np.isfinite(apart)  # two finite means may be too far apart for a DOUBLE
            mean[wide] = (left["mean"] * (1.0 - share) + right["mean"] * share)[wide]
            merged["spread"] = left["spread"] + right["spread"] + apart * apart * (left["count"] * share)
        merged["count"], merged["mean"] = count, mean
        for side, other in ((left, right), (right, left)):
            nothing = side["count"] == 0
            if nothing.any():
                merged[nothing] = other[nothing]
        return merged

    def accumulate(self, array: Array, /, *, dtype: Any) -> Array:
        """Return the fold of all elements up to each, strictly in turn: no kernel does that, so plain floats do. Bits as by calls."""
        folded: list[tuple[float, float, float]] = []
        total = (0.0, 0.0, 0.0)
        for state in array.tolist():
            total = _put_together(total, state)
            folded.append(total)
        return np.array(folded, dtype=dtype)


def _put_together(left: tuple[float, float, float], right: tuple[float, float, float]) -> tuple[float, float, float]:
    """Do to one pair what `Moments` does to arrays, operation by operation."""
    if left[0] == 0.0:
        return right
    if right[0] == 0.0:
        return left
    count = left[0] + right[0]
    share = right[0] / count
    apart = right[1] - left[1]
    mean = left[1] + apart * share
    if apart - apart != 0.0:  # infinite or NaN
        mean = left[1] * (1.0 - share) + right[1] * share
    return count, mean, left[2] + right[2] + apart * apart * (left[0] * share)


def lone_moments(values: npt.NDArray[np.float64]) -> Array:
    """Return the moments of each value by itself."""
    states = np.empty(len(values), dtype=MOMENTS)
    states["count"], states["mean"] = 1.0, values
    with np.errstate(invalid="ignore"):
        states["spread"] = values - values  # 0, or NaN
    return states


def end_states(value_dtype: Any) -> np.dtype[Any]:
    """Return the dtype of FIRST's and LAST's states: a row's time, ordinal and value, whether that is no NULL, whether there is a row."""
    return np.dtype([("time", "i8"), ("ordinal", "i8"), ("value", value_dtype), ("valid", "?"), ("has", "?")])


class End:
    """The earlier or the later row of two, by event time, ties by arrival, whichever side it stands on."""

    def __init__(self, *, last: bool) -> None:
        self._last = last

    def __call__(self, left: Array, right: Array, /) -> Array:
        """Put states together, pair by pair."""
        later = (right["time"] > left["time"]) | ((right["time"] == left["time"]) & (right["ordinal"] > left["ordinal"]))
        taken = right["has"] & (~left["has"] | (later if self._last else ~later))
        picked = left.copy()
        picked[taken] = right[taken]
        return picked

    def accumulate(self, array: Array, /, *, dtype: Any) -> Array:
        """Return the fold of all elements up to each: the running extreme of the rows' ranks."""
        order = np.lexsort((array["ordinal"], array["time"]))
        ranks = np.empty(len(array), dtype=np.int64)
        ranks[order] = np.arange(len(array), dtype=np.int64)
        nothing = -1 if self._last else len(array)
        ranks[~array["has"]] = nothing
        best = (np.maximum if self._last else np.minimum).accumulate(ranks)
        places = np.where(best == nothing, np.arange(len(array), dtype=np.int64), order[np.clip(best, 0, len(array) - 1)])
        picked: Array = array[places].astype(dtype, copy=False)
        return picked
