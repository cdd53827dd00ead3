"""The rank arithmetic of percentiles, shared by those that see every value and those that see a synopsis."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import isinf
from typing import Any

import numpy as np
import numpy.typing as npt


def exact_rank(fraction: float, count: int) -> Decimal:
    """Return fraction * count in decimal, so that 0.85 * 13 is 11.05."""
    return Decimal(repr(fraction)) * count


def interpolated(ordered: npt.NDArray[Any], fraction: float) -> Any:
    """Return the value at the 0-based rank p·(n−1) of sorted values, between two of them by its share; at least one value."""
    rank = exact_rank(fraction, len(ordered) - 1)
    low = int(rank)
    below, share = ordered[low], float(rank - low)
    if share == 0.0:
        return below
    return between(below, ordered[low + 1], share)


def between(below: Any, above: Any, share: float) -> Any:
    """Return what lies between two values of a percentile's neighbourhood, `share` of the way up; of integers, the nearest integer."""
    if isinstance(below, int | np.integer):  # their difference may exceed 64 bits, and a DOUBLE would round what exceeds 53
        return round(int(below) + (int(above) - int(below)) * Fraction(share))
    if np.isinf(below):  # the difference would be NaN; from -inf to +inf there is no middle
        return below if above == below or np.isfinite(above) else np.float64("nan")
    low, high = float(below), float(above)
    if isinf(high - low) and not isinf(high):
        return low * (1.0 - share) + high * share
    return low + (high - low) * share
