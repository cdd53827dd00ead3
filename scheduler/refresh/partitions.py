"""The thesis's heuristics for many copies (Carney 2005, 2.3 to 2.5): start in `partitioned_polls`.

Copies sorted by a key are cut into partitions of as many copies each, which iterations of k-means may then mend. A mean copy stands for
each partition and is solved for; every copy of the partition is polled as often as it, or gets as much of the budget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.refresh.allocation import Column, Copies, solved
from millstream.scheduler.refresh.freshness import freshness
from numpy.typing import NDArray

_CHUNK = 50_000
"""Copies whose distances to all partitions are computed at a time."""

KEYS: Mapping[str, Callable[[Copies], Column]] = {
    "access": lambda copies: copies.access,
    "changes": lambda copies: copies.changes,
    "ratio": lambda copies: copies.access / copies.changes,
    "pf": lambda copies: copies.access * freshness(np.ones(len(copies)), copies.changes),
    "pfs": lambda copies: copies.access * freshness(1.0 / copies.sizes, copies.changes),
}
"""By what copies are sorted: p, λ, p/λ, PF (p F at one poll) or PFS (at one unit of bandwidth)."""


def partitioned_polls(
    copies: Copies, budget: float, partitions: int, key: str = "pf", *, fixed_bandwidth: bool = False, iterations: int = 0
) -> Column:
    """Return the polls by partitions of as many copies each, sorted by a key and mended by so many `iterations` of k-means.

    In a partition every copy is polled as often, or with `fixed_bandwidth` gets as much of the budget. Raises `PolicyError` for a key that
    is not there, less than one partition, or a budget that is not positive.
    """
    if key not in KEYS:
        raise PolicyError(f"unknown key '{key}' of partitions", hint="known are " + ", ".join(KEYS))
    if partitions < 1:
        raise PolicyError(f"{partitions} partitions are not at least 1")
    part = np.empty(len(copies), dtype=np.int64)
    part[np.argsort(KEYS[key](copies), kind="stable")] = np.arange(len(copies)) * min(partitions, len(copies)) // max(1, len(copies))
    sized = bool(np.ptp(copies.sizes) > 0.0) if len(copies) else False
    for _ in range(iterations):
        moved = _nearest(copies, part, sized=sized)
        if (moved == part).all():
            break
        part = moved
    present, part = np.unique(part, return_inverse=True)  # k-means may leave a partition empty
    counts = np.bincount(part, minlength=len(present)).astype(np.float64)
    means = Copies(*(np.bincount(part, weights=one, minlength=len(present)) / counts for one in _columns(copies)))
    found = solved(means, budget, counts)
    return np.asarray((found * means.sizes)[part] / copies.sizes if fixed_bandwidth else found[part])


def _columns(copies: Copies) -> tuple[Column, Column, Column]:
    return copies.access, copies.changes, copies.sizes


def _nearest(copies: Copies, part: NDArray[np.int64], *, sized: bool) -> NDArray[np.int64]:
    """Return the partition whose mean each copy is nearest to, after equation 2.3: p, λ and, where they differ, z sum to 1 each."""
    scaled = [one / one.sum() for one in _columns(copies)[: 3 if sized else 2]]
    present = np.unique(part)
    counts = np.bincount(part)[present]
    means = [np.bincount(part, weights=one)[present] / counts for one in scaled]
    found = np.empty_like(part)
    for start in range(0, len(part), _CHUNK):
        rows = slice(start, start + _CHUNK)
        distance = sum((one[rows, None] - mean) ** 2 for one, mean in zip(scaled, means, strict=True))
        found[rows] = present[np.argmin(distance, axis=1)]
    return found
