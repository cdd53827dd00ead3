"""A histogram of bounded memory: bins a fixed share apart, so that a quantile is right to within one part in a hundred.

Only the stretch of bins that values fell into is kept: latencies that span three orders of magnitude take 5 KiB, never more than 31 KiB.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

BINS_PER_OCTAVE: Final = 64
"""2^(1/64) is 1.1% apart; half a bin is the error."""

_OCTAVES: Final = 62
_LOG_STEP: Final = math.log(2.0) / BINS_PER_OCTAVE
_LAST: Final = BINS_PER_OCTAVE * _OCTAVES


class Histogram:
    """Counts of non-negative values. Below `least` everything falls into the first bin. Sum, sum of squares and maximum are exact."""

    __slots__ = ("_bins", "_first", "count", "least", "maximum", "square", "total")

    def __init__(self, least: float = 1.0) -> None:
        self.least = least
        self.count = 0
        self.total = 0.0
        self.square = 0.0
        self.maximum = 0.0
        self._first = 0
        self._bins: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def add(self, value: float, count: int = 1) -> None:
        """Count a value."""
        place = 0 if value <= self.least else min(1 + int(math.log(value / self.least) / _LOG_STEP), _LAST)
        self._reach(place, place)
        self._bins[place - self._first] += count
        self.count += count
        self.total += value * count
        self.square += value * value * count
        if value > self.maximum:
            self.maximum = value

    def add_many(self, values: NDArray[np.float64], counts: NDArray[np.int64]) -> None:
        """Count every value as many times as `counts` says."""
        if not len(values):
            return
        places = np.log(np.maximum(values, self.least) / self.least) / _LOG_STEP
        bins = np.minimum(places.astype(np.int64) + (values > self.least), _LAST)
        low = int(bins.min())
        self._reach(low, int(bins.max()))
        found = np.bincount(bins - low, weights=counts).astype(np.int64)
        self._bins[low - self._first : low - self._first + len(found)] += found
        weighted = values * counts
        self.count += int(counts.sum())
        self.total += float(weighted.sum())
        self.square += float((weighted * values).sum())
        self.maximum = max(self.maximum, float(values.max()))

    def _reach(self, low: int, high: int) -> None:
        """Grow the kept stretch by whole octaves until it holds both bins."""
        first, end = self._first, self._first + len(self._bins)
        if len(self._bins) and first <= low and high < end:
            return
        if not len(self._bins):
            first = end = low - low % BINS_PER_OCTAVE
        new_first = min(first, low - low % BINS_PER_OCTAVE)
        new_end = max(end, high - high % BINS_PER_OCTAVE + BINS_PER_OCTAVE)
        grown = np.zeros(new_end - new_first, dtype=np.int64)
        grown[first - new_first : first - new_first + len(self._bins)] = self._bins
        self._first, self._bins = new_first, grown

    def merge(self, other: Histogram) -> None:
        """Count everything that another histogram of the same `least` counted."""
        assert other.least == self.least
        if len(other._bins):
            self._reach(other._first, other._first + len(other._bins) - 1)
            start = other._first - self._first
            self._bins[start : start + len(other._bins)] += other._bins
        self.count += other.count
        self.total += other.total
        self.square += other.square
        self.maximum = max(self.maximum, other.maximum)

    def copy(self) -> Histogram:
        """Return one that counts on by itself."""
        found = Histogram(self.least)
        found.count, found.total, found.square, found.maximum = self.count, self.total, self.square, self.maximum
        found._first, found._bins = self._first, self._bins.copy()
        return found

    @property
    def average(self) -> float:
        """Mean of the values, 0 when there are none."""
        return self.total / self.count if self.count else 0.0

    @property
    def norm(self) -> float:
        """l2 norm, the square root of the sum of squares."""
        return math.sqrt(self.square)

    def quantile(self, share: float) -> float:
        """Return the value below or at which this share of the values lies (0 to 1); 0 when there are none."""
        if not self.count:
            return 0.0
        place = self._first + int(np.searchsorted(np.cumsum(self._bins), max(1, math.ceil(share * self.count))))
        if place == 0:
            return min(self.least, self.maximum)
        return float(min(self.maximum, self.least * math.exp((place - 0.5) * _LOG_STEP)))
