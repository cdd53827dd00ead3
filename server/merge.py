"""Merging inputs by event time, each in its own order, without looking at rows one by one.

The rule: of the rows that are next in each input, the one with the least event time comes first; at equal times the input that was
named first. A row that goes back in time comes as soon as the row before it has. So the key of a row is the greatest event time of its
input so far, and a stable sort of all keys, inputs in their order, gives the merged order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Run:
    """Rows `start` to `stop` (excluded) of input `source`, which follow one another in the merged order."""

    source: int
    start: int
    stop: int


def merged_runs(times: Sequence[Int64Array], rows_max: int) -> Iterator[Run]:
    """Yield the runs of the merged order, cut to at most `rows_max` rows each. `times[i]` are the event times of input i."""
    if len(times) == 1:
        yield from _cut(0, 0, len(times[0]), rows_max)
        return
    keys = np.concatenate([np.maximum.accumulate(t) if len(t) else t for t in times])
    sources = np.repeat(np.arange(len(times)), [len(t) for t in times])
    merged = sources[np.argsort(keys, kind="stable")]
    if not len(merged):
        return
    switches = np.flatnonzero(np.diff(merged)) + 1
    starts = [0, *switches.tolist()]
    stops = [*switches.tolist(), len(merged)]
    at = [0] * len(times)
    for start, stop in zip(starts, stops, strict=True):
        source, rows = int(merged[start]), stop - start
        yield from _cut(source, at[source], at[source] + rows, rows_max)
        at[source] += rows


def _cut(source: int, start: int, stop: int, rows_max: int) -> Iterator[Run]:
    for at in range(start, stop, rows_max):
        yield Run(source, at, min(at + rows_max, stop))
