"""Running folds over many stretches of an array at once, strictly one element after the other.

The fold of a stretch depends on its values alone, also in the last bit, so it does not matter how the stretches were cut into calls.
Long stretches are folded by `accumulate`, one call each; of the others the second elements are folded together, then the third …
"""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.windows.fold_operations import Operation

Int64Array = npt.NDArray[np.int64]


def running_fold(operation: Operation, values: npt.NDArray[Any], starts: Int64Array, sizes: Int64Array) -> None:
    """Replace each element of the stretches starts[i] … starts[i] + sizes[i] by the fold of its stretch up to it, in place."""
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
