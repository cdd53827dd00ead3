"""When the items of an edge arrived, as a step function of their arrival numbers.

The server gives an arrival number and an arrival time to every item, both never going back. So the number that a result carries, that of
the item that caused it, tells when that item arrived, whatever lies between: operators keep and compute no arrival times. Times in ns of
the clock that the scheduler reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from millstream.engine.data.arrays import distinct

Int64Array = npt.NDArray[np.int64]
Steps = tuple[Int64Array, Int64Array]
Part = tuple["ArrivalTimes", int, int]


class ArrivalTimes:
    """What one edge knows: items from `first` on arrived at `start_ns`, unless steps say more. Below `first` nothing is known.

    `is_constant`: there is one step only, as in a chunk that came from outside, and all rows arrived then.
    """

    __slots__ = ("first", "is_constant", "start_ns")

    def __init__(self, first: int, start_ns: int, is_constant: bool = True) -> None:
        self.first = first
        self.start_ns = start_ns
        self.is_constant = is_constant

    def at(self, seqs: Int64Array) -> Int64Array:
        """Return when the items with these arrival numbers arrived, in ns, shape as given."""
        if self.is_constant:
            return np.full(len(seqs), self.start_ns, dtype=np.int64)
        first, times = self.steps()
        return times[np.maximum(np.searchsorted(first, seqs, side="right") - 1, 0)]

    def steps(self) -> Steps:
        """Return (seqs, times): items from seqs[i] on arrived at times[i]."""
        return np.array([self.first], dtype=np.int64), np.array([self.start_ns], dtype=np.int64)

    @property
    def step_count(self) -> int:
        """Steps held in arrays, for the memory measure."""
        return 0

    def only(self, seqs: Int64Array) -> ArrivalTimes:
        """Return what is true of these items alone (at least one, in order), for a stretch without rows."""
        return SteppedArrivals(seqs, self.at(seqs))


class SteppedArrivals(ArrivalTimes):
    """Given by steps, of which those that change nothing are dropped."""

    __slots__ = ("_seqs", "_times")

    def __init__(self, seqs: Int64Array, times: Int64Array, *, distinct: bool = False) -> None:
        """`distinct`: each step changes something, so that the arrays are kept as they are."""
        super().__init__(int(seqs[0]), int(times[0]), is_constant=False)
        if not distinct:
            kept = np.flatnonzero(np.diff(times, prepend=times[0] - 1))
            seqs, times = seqs[kept], times[kept]
        self._seqs, self._times = seqs, times

    def steps(self) -> Steps:
        """Return the given steps."""
        return self._seqs, self._times

    @property
    def step_count(self) -> int:
        """The number of given steps."""
        return len(self._seqs)


class FollowingArrivals(ArrivalTimes):
    """Of intervals [lo, hi) that follow one another; put together when first asked for, as a filter chain never asks."""

    __slots__ = ("_computed", "_parts")

    def __init__(self, parts: Sequence[Part]) -> None:
        first, lo, _ = parts[0]
        super().__init__(max(first.first, lo), first.start_ns, is_constant=False)
        self._parts = parts
        self._computed: Steps | None = None

    def steps(self) -> Steps:
        """Compute once."""
        if self._computed is None:
            if all(arrivals.is_constant for arrivals, _, _ in self._parts):  # as of trains that were joined
                begins = [max(arrivals.first, lo) for arrivals, lo, _ in self._parts]
                self._computed = np.array(begins, dtype=np.int64), np.array([one.start_ns for one, _, _ in self._parts], dtype=np.int64)
            else:
                seqs, times = zip(*(_within(*part) for part in self._parts), strict=True)
                self._computed = np.concatenate(seqs), np.concatenate(times)
        return self._computed

    @property
    def step_count(self) -> int:
        """Steps of all parts."""
        return sum(max(1, arrivals.step_count) for arrivals, _, _ in self._parts)


NO_ARRIVALS: Final = ArrivalTimes(0, 0)
"""Of an edge on which nothing came, and of rows of tables, which cause nothing."""


def following_arrivals(parts: Sequence[Part]) -> ArrivalTimes:
    """Return as one what intervals [lo, hi) that follow one another know, given as (arrivals, lo, hi)."""
    known = [part for part in parts if part[0] is not NO_ARRIVALS]
    if not known:
        return NO_ARRIVALS
    first = known[0][0]
    if len(known) == 1 or all(a is first or (a.is_constant and first.is_constant and a.start_ns == first.start_ns) for a, _, _ in known):
        return first
    return FollowingArrivals(known)


def latest_arrivals(inputs: Sequence[ArrivalTimes]) -> ArrivalTimes:
    """Return what several edges know together of one interval: each knows its own items, and the latest answer is the nearest item's."""
    known = [one for one in inputs if one is not NO_ARRIVALS]
    if len(known) < 2:
        return known[0] if known else NO_ARRIVALS
    steps = [one.steps() for one in known]
    seqs = distinct(np.concatenate([at for at, _ in steps]))
    times = np.maximum.reduce([np.where(seqs < at[0], 0, one.at(seqs)) for one, (at, _) in zip(known, steps, strict=True)])
    return SteppedArrivals(seqs, times)


def _within(arrivals: ArrivalTimes, lo: int, hi: int) -> tuple[Int64Array, Int64Array]:
    """Return the steps that hold in [lo, hi), the first one cut off at lo."""
    seqs, times = arrivals.steps()
    start = max(0, int(np.searchsorted(seqs, lo, side="right")) - 1)
    stop = max(start + 1, int(np.searchsorted(seqs, hi, side="left")))
    seqs, times = seqs[start:stop], times[start:stop]
    return (seqs, times) if seqs[0] >= lo else (np.maximum(seqs, lo), times)
