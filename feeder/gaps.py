"""Random gaps between arrivals, each a pure function of (seed, stream, number): whoever computes it, wherever, gets the same.

A counter-based generator: number i is hashed with a key made of seed and stream (the finalizer of SplitMix64, Steele, Lea and
Flood 2014), so a partition that begins at row 1,000,000 need not know the rows before it. Gaps are exponential with mean 1 and held as
whole parts of `UNIT`, so that sums over any cut of the rows are the same to the last bit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

UNIT = 1 << 30  # one mean gap; a sum of eight billion gaps still fits an int64

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_BLOCK = 1 << 16  # gaps computed at a time when only their sum is wanted


def unit_gaps(seed: int, stream: int, start: int, stop: int) -> NDArray[np.int64]:
    """Return gaps number start to stop (excluded) of a stream: int64, mean UNIT, exponentially distributed."""
    uniform = uniforms(seed, stream, start, stop)
    gaps: NDArray[np.int64] = np.rint(-np.log(uniform) * UNIT).astype(np.int64)
    return gaps


def sum_of_gaps(seed: int, stream: int, start: int, stop: int) -> int:
    """Return the sum of gaps start to stop (excluded) without holding them all."""
    return sum(int(unit_gaps(seed, stream, at, min(at + _BLOCK, stop)).sum()) for at in range(start, stop, _BLOCK))


def uniforms(seed: int, stream: int, start: int, stop: int) -> NDArray[np.float64]:
    """Return uniform numbers in (0, 1), both ends excluded, 53 bits each."""
    key = np.uint64(stream_key(seed, stream))
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is the point
        counters = np.arange(start + 1, stop + 1, dtype=np.uint64) * np.uint64(_GOLDEN) + key
    return ((_mixed(counters) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def stream_key(seed: int, stream: int) -> int:
    """Return the 64-bit key of a stream's sequence; different streams start at unrelated places."""
    return _mix(_mix(seed & _MASK) ^ _mix((stream + 1) * _GOLDEN & _MASK))


def _mix(value: int) -> int:
    return int(_mixed(np.array([value], dtype=np.uint64))[0])


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))
