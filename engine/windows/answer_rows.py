"""What all rows of a window's answer have in common: its start, its end, the arrival number that closed it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.column import Column
from millstream.engine.data.train import Numbers
from millstream.engine.data.types import TIMESTAMP


def for_each_row(values: Sequence[int], sizes: Sequence[int]) -> Numbers:
    """Return the value of each answer for all of its rows, which `sizes` counts. At least one answer."""
    if len(values) == 1:
        return Numbers(sizes[0], start=values[0])
    if min(values) == max(values):
        return Numbers(sum(sizes), start=values[0])
    spread = np.repeat(np.array(values, dtype=np.int64), sizes)
    return Numbers(len(spread), array=spread)


def timestamps(values: Sequence[int], sizes: Sequence[int]) -> Column:
    """Return the same as a column, of times in µs."""
    return Column(TIMESTAMP, for_each_row(values, sizes).array())
