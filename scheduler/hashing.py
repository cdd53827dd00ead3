"""A seeded hash of small integers: outcomes that depend on what happens to whom, never on when or in what order.

The mixer is the finaliser of SplitMix64 (Steele, Lea and Flood 2014).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

MASK: Final = 2**64 - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15
_FIRST: Final = 0xBF58476D1CE4E5B9
_SECOND: Final = 0x94D049BB133111EB
_COLUMN_GOLDEN, _COLUMN_FIRST, _COLUMN_SECOND = np.uint64(_GOLDEN), np.uint64(_FIRST), np.uint64(_SECOND)
_SHIFTS: Final = (np.uint64(30), np.uint64(27), np.uint64(31))


def mix(value: int) -> int:
    """Return 64 well-mixed bits of a non-negative integer."""
    value = (value + _GOLDEN) & MASK
    value = ((value ^ (value >> 30)) * _FIRST) & MASK
    value = ((value ^ (value >> 27)) * _SECOND) & MASK
    return value ^ (value >> 31)


def mix_many(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return `mix` of every value; of a column, where sums and products wrap without a warning."""
    mixed = values + _COLUMN_GOLDEN
    mixed = (mixed ^ (mixed >> _SHIFTS[0])) * _COLUMN_FIRST
    mixed = (mixed ^ (mixed >> _SHIFTS[1])) * _COLUMN_SECOND
    return mixed ^ (mixed >> _SHIFTS[2])


def salt(*parts: int) -> int:
    """Return several integers folded into one."""
    folded = 0
    for part in parts:
        folded = mix(folded ^ (part & MASK))
    return folded


def uniform(number: int, seed: int) -> float:
    """Return a number in [0, 1) for an arrival number: what the engine draws to decide which rows are shed."""
    return (mix((number + seed) * _GOLDEN & MASK) >> 11) * 2.0**-53
