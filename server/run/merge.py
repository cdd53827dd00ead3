"""Merging inputs by event time, each in its own order, without looking at rows one by one.

The rule: of the rows that are next in each input, the one with the least event time comes first; at equal times the input that was
named first. A row that goes back in time comes as soon as the row before it has. So the key of a row is the greatest event time of its
input so far, and a stable sort of all keys, inputs in their order, gives the merged order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]


def merged_order(times: Sequence[Int64Array]) -> Int64Array:
    """Return for each place of the merged order which input its row comes from. `times[i]` are the event times of input i."""
    keys = np.concatenate([np.maximum.accumulate(t) if len(t) else t for t in times])
    sources = np.repeat(np.arange(len(times), dtype=np.int64), [len(t) for t in times])
    merged: Int64Array = sources[np.argsort(keys, kind="stable")]
    return merged
