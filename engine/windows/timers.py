"""Ids that ask to be looked at once W has reached a time: sorted runs, merged when they are of like size."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]


class Timers:
    """Each id is added with a time and comes back once, when the time has come."""

    def __init__(self) -> None:
        self._runs: list[tuple[Int64Array, Int64Array]] = []

    def __len__(self) -> int:
        """Return the timers that run."""
        return sum(len(times) for times, _ in self._runs)

    @property
    def next_us(self) -> int | None:
        """The least time."""
        return min((int(times[0]) for times, _ in self._runs), default=None)

    def add(self, times: Int64Array, ids: Int64Array) -> None:
        """Start timers."""
        if len(times) == 0:
            return
        order = np.argsort(times, kind="stable")
        self._runs.append((times[order], ids[order]))
        while len(self._runs) > 1 and len(self._runs[-2][0]) < 2 * len(self._runs[-1][0]):
            last, before = self._runs.pop(), self._runs.pop()
            merged = np.concatenate((before[0], last[0])), np.concatenate((before[1], last[1]))
            order = np.argsort(merged[0], kind="stable")
            self._runs.append((merged[0][order], merged[1][order]))

    def due(self, watermark_us: int) -> Int64Array:
        """Take out the ids whose time is at or before W."""
        found: list[Int64Array] = []
        kept: list[tuple[Int64Array, Int64Array]] = []
        for times, ids in self._runs:
            stop = int(np.searchsorted(times, watermark_us, side="right"))
            found.append(ids[:stop])
            if stop < len(times):
                kept.append((times[stop:], ids[stop:]) if stop else (times, ids))
        self._runs = kept
        return np.concatenate(found) if found else np.empty(0, dtype=np.int64)
