"""The rank arithmetic of percentiles, shared by those that see every value and those that see a synopsis."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy.typing as npt


def exact_rank(fraction: float, count: int) -> Decimal:
    """Return fraction * count in decimal, so that 0.85 * 13 is 11.05."""
    return Decimal(repr(fraction)) * count


def interpolated(ordered: npt.NDArray[Any], fraction: float) -> Any:
    """Return the value at the 0-based rank p·(n−1) of sorted values, between two of them by its share; at least one value."""
    rank = exact_rank(fraction, len(ordered) - 1)
    low = int(rank)
    below, share = ordered[low], float(rank - low)
    return below if share == 0.0 else below + (ordered[low + 1] - below) * share
