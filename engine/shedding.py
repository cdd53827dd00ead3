"""Random shedding at a source that can be repeated: which rows go depends on the seed and the arrival number alone."""

from __future__ import annotations

import numpy as np
from millstream.engine.train import Int64Array, Train

_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)
_INCREMENT = 0x9E3779B97F4A7C15
_MASK_64 = (1 << 64) - 1


def uniform_of(seqs: Int64Array, seed: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return a number in [0, 1) for each arrival number: the finaliser of SplitMix64 (Steele, Lea, Flood 2014) over seed and seq."""
    state = seqs.astype(np.uint64) * np.uint64(_INCREMENT) + np.uint64((seed * _INCREMENT + _INCREMENT) & _MASK_64)
    state = (state ^ (state >> np.uint64(30))) * _MULTIPLIER_1
    state = (state ^ (state >> np.uint64(27))) * _MULTIPLIER_2
    state ^= state >> np.uint64(31)
    numbers: np.ndarray[tuple[int], np.dtype[np.float64]] = (state >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return numbers


def kept_rows(train: Train, ratio: float, seed: int) -> Train:
    """Return the rows that survive a drop ratio between 0 (all) and 1 (none). A greater ratio drops a superset."""
    if ratio <= 0.0 or train.rows == 0:
        return train
    return train.select(uniform_of(train.seq.array(), seed) >= ratio)
