"""Passes over whole arrays: the different values of one; runs (stretches of neighbours, by where they begin and how long they are) and
folds along them.
"""

from __future__ import annotations

from math import isqrt
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Number = TypeVar("Number", bound=np.integer)


def distinct(values: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Return the different values of integers, rising. NumPy's `unique` hashes them, which takes 2 to 25 times as long as sorting does."""
    if len(values) < 2:
        return values
    ordered = np.sort(values)
    kept = np.empty(len(ordered), dtype=np.bool_)
    kept[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=kept[1:])
    return ordered[kept]


Int64Array = npt.NDArray[np.int64]


def filled(shape: int | tuple[int, ...], dtype: Any, value: Any) -> npt.NDArray[Any]:
    """Return an array that holds one value everywhere.

    Records with an object among them are made by `zeros`: NumPy's `empty` takes thirty times as long for these, and setting all fifty.
    """
    if np.dtype(dtype).names is None:
        return np.full(shape, value, dtype=dtype)
    made = np.zeros(shape, dtype=dtype)
    if np.zeros((), dtype=dtype).item() != value:
        made[...] = value
    return made


def copied(records: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the same in memory of its own. NumPy's `copy` takes fifteen times as long for records with an object among them."""
    return records.take(np.arange(len(records)))


def run_starts(sorted_ids: Int64Array) -> Int64Array:
    """Return where runs of equal values begin."""
    if len(sorted_ids) == 0:
        return np.empty(0, dtype=np.int64)
    changed = np.empty(len(sorted_ids), dtype=np.bool_)
    changed[0] = True
    np.not_equal(sorted_ids[1:], sorted_ids[:-1], out=changed[1:])
    return np.flatnonzero(changed)


def run_sizes(starts: Int64Array, total: int) -> Int64Array:
    """Return how long the runs are that begin at `starts` and fill `total` places."""
    sizes = np.empty(len(starts), dtype=np.int64)
    if len(starts):
        np.subtract(starts[1:], starts[:-1], out=sizes[:-1])
        sizes[-1] = total - starts[-1]
    return sizes


def grouped(ids: Int64Array, beyond: int) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return the order that sorts ids, equal ones as they stand, and where the runs of it begin and how long they are.

    Ids are from 0 to `beyond` (excluded).
    """
    # NumPy sorts 16 bits by radix.
    order: Int64Array = (ids.astype(np.uint16) if beyond <= 1 << 16 else ids).argsort(kind="stable")
    starts = run_starts(ids[order])
    return order, starts, run_sizes(starts, len(ids))


def expanded(starts: Int64Array, counts: Int64Array) -> Int64Array:
    """Return starts[0], starts[0] + 1, … counts[0] of them, then starts[1] …, as one array."""
    total = int(counts.sum())
    if len(counts) == 1:
        return np.arange(int(starts[0]), int(starts[0]) + total, dtype=np.int64)
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(total, dtype=np.int64)


def running_fold(operation: np.ufunc, values: npt.NDArray[Any], starts: Int64Array, sizes: Int64Array) -> None:
    """Replace each element of the runs by the fold of its run up to it, in place.

    Strictly one element after the other: the fold of a run depends on its values alone, also in the last bit, so it does not matter how
    runs were cut into calls. Long runs are folded by `accumulate`, one call each; of the others the second elements are folded together,
    then the third …
    """
    longest = int(sizes.max()) if len(sizes) else 0
    if longest < 2:
        return
    bound = longest if len(sizes) > longest else max(4, isqrt(int(sizes.sum())))
    for place in np.flatnonzero(sizes > bound).tolist():
        start, stop = int(starts[place]), int(starts[place] + sizes[place])
        values[start:stop] = operation.accumulate(values[start:stop], dtype=values.dtype)
    short = np.flatnonzero((sizes > 1) & (sizes <= bound))
    order = short[np.argsort(-sizes[short], kind="stable")]
    begins, lengths = starts[order], sizes[order]
    # Sorted by falling size, those with more than i elements are the first few.
    for i in range(1, int(lengths[0]) if len(lengths) else 0):
        at = begins[: int(np.searchsorted(-lengths, -i, side="left"))] + i
        values[at] = operation(values[at - 1], values[at])
