"""A histogram of bounded memory: bins a fixed share apart, so that a quantile is right to within one part in a hundred."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

BINS_PER_OCTAVE: Final = 64
"""2^(1/64) is 1.1% apart; half a bin is the error."""

_OCTAVES: Final = 62
_LOG_STEP: Final = math.log(2.0) / BINS_PER_OCTAVE


class Histogram:
    """Counts of non-negative values. Below `least` everything falls into the first bin. Sum, sum of squares and maximum are exact."""

    def __init__(self, least: float = 1.0) -> None:
        self.least = least
        self.count = 0
        self.total = 0.0
        self.square = 0.0
        self.maximum = 0.0
        self._last = BINS_PER_OCTAVE * _OCTAVES
        self._bins: NDArray[np.int64] = np.zeros(BINS_PER_OCTAVE * _OCTAVES + 1, dtype=np.int64)
        self._bin_at: memoryview[int] = memoryview(self._bins)  # type: ignore[arg-type]  # a single bin is counted in a third of the time

    def add(self, value: float, count: int = 1) -> None:
        """Count a value."""
        place = 0 if value <= self.least else min(1 + int(math.log(value / self.least) / _LOG_STEP), self._last)
        self._bin_at[place] += count
        self.count += count
        self.total += value * count
        self.square += value * value * count
        if value > self.maximum:
            self.maximum = value

    def merge(self, other: Histogram) -> None:
        """Count everything that another histogram of the same `least` counted."""
        assert other.least == self.least
        self._bins += other._bins
        self.count += other.count
        self.total += other.total
        self.square += other.square
        self.maximum = max(self.maximum, other.maximum)

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
        place = int(np.searchsorted(np.cumsum(self._bins), max(1, math.ceil(share * self.count))))
        if place == 0:
            return min(self.least, self.maximum)
        return float(min(self.maximum, self.least * math.exp((place - 0.5) * _LOG_STEP)))
