"""The watermark of an edge as a step function of the arrival number (K3).

W promises "no more rows with event time < W". It moves after each row, never per train: `before(seqs)` is W as a row with that
seq saw it, `first_reaching(values)` the seq of the row (or control item) that brought W to a value. Tracks are computed
lazily, as a filter chain never asks. Times in microseconds. A track covers [lo, hi): `start` is W just before lo, `end` just before hi.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]

TIME_MIN = -(2**63)  # W before anything came
TIME_MAX = 2**63 - 1  # W after the end of the stream


class WatermarkTrack:
    """A constant track, and the base of the others."""

    __slots__ = ("end", "hi", "lo", "start")

    def __init__(self, lo: int, hi: int, start: int, end: int) -> None:
        self.lo = lo
        self.hi = hi
        self.start = start
        self.end = end

    def steps(self) -> tuple[Int64Array, Int64Array]:
        """Return (seqs, values): after the item with seqs[i], W is values[i]. Non-decreasing in both."""
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)

    def before(self, seqs: Int64Array) -> Int64Array:
        """Return W as it was just before each of the arrival numbers, shape as given."""
        if self.start == self.end:
            return np.full(len(seqs), self.start, dtype=np.int64)
        at, values = self.steps()
        position = np.searchsorted(at, seqs, side="left")
        return np.concatenate((np.array([self.start], dtype=np.int64), values))[position]

    def after(self, seqs: Int64Array) -> Int64Array:
        """Return W just after each of the arrival numbers."""
        return self.before(seqs + 1)

    def first_reaching(self, values: Int64Array) -> Int64Array:
        """Return for each value in (start, end] the seq of the item whose coming made W >= value."""
        at, reached = self.steps()
        return at[np.searchsorted(reached, values, side="left")]

    def split_at(self, seq: int) -> tuple[WatermarkTrack, WatermarkTrack]:
        """Cut into [lo, seq) and [seq, hi)."""
        if self.start == self.end:
            return constant_track(self.lo, seq, self.start), constant_track(seq, self.hi, self.start)
        at, values = self.steps()
        cut = int(np.searchsorted(at, seq, side="left"))
        return (
            StepTrack(self.lo, seq, self.start, at[:cut], values[:cut]),
            StepTrack(seq, self.hi, int(values[cut - 1]) if cut else self.start, at[cut:], values[cut:]),
        )


class StepTrack(WatermarkTrack):
    """A track given by its steps."""

    __slots__ = ("_seqs", "_values")

    def __init__(self, lo: int, hi: int, start: int, seqs: Int64Array, values: Int64Array) -> None:
        super().__init__(lo, hi, start, int(values[-1]) if len(values) else start)
        self._seqs = seqs
        self._values = values

    def steps(self) -> tuple[Int64Array, Int64Array]:
        """Return the given steps."""
        return self._seqs, self._values


class RowsTrack(WatermarkTrack):
    """The track of a chunk of source rows with seqs lo … hi-1: the running maximum of event time, less the delay.

    `times` are the event times that may move W: a row too far in the future holds TIME_MIN instead (SKEW).
    """

    __slots__ = ("_delay_us", "_times", "_values")

    def __init__(self, lo: int, hi: int, start: int, times: Int64Array, delay_us: int) -> None:
        newest = int(times.max()) if len(times) else TIME_MIN
        super().__init__(lo, hi, start, max(start, less_delay(newest, delay_us)))
        self._times = times
        self._delay_us = delay_us
        self._values: Int64Array | None = None

    def steps(self) -> tuple[Int64Array, Int64Array]:
        """Compute the running maximum once."""
        if self._values is None:
            floor = TIME_MIN + self._delay_us
            running = np.maximum.accumulate(np.maximum(self._times, floor)) - self._delay_us
            self._values = np.maximum(running, self.start)
        return np.arange(self.lo, self.hi, dtype=np.int64), self._values


def less_delay(time_us: int, delay_us: int) -> int:
    """Return time - delay without passing TIME_MIN."""
    return max(TIME_MIN, time_us - delay_us)


def constant_track(lo: int, hi: int, value: int) -> WatermarkTrack:
    """Return the track on which W stays at `value`."""
    return WatermarkTrack(lo, hi, value, value)


def jump_track(lo: int, hi: int, start: int, seq: int, value: int) -> WatermarkTrack:
    """Return the track on which the item `seq` moves W from `start` to `value`, if that is higher."""
    if value <= start:
        return constant_track(lo, hi, start)
    return StepTrack(lo, hi, start, np.array([seq], dtype=np.int64), np.array([value], dtype=np.int64))


def concat_tracks(tracks: Sequence[WatermarkTrack]) -> WatermarkTrack:
    """Join tracks that follow one another."""
    first, last = tracks[0], tracks[-1]
    if len(tracks) == 1:
        return first
    if all(t.start == t.end for t in tracks) and first.start == last.end:
        return constant_track(first.lo, last.hi, first.start)
    parts = [t.steps() for t in tracks]
    return StepTrack(first.lo, last.hi, first.start, np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]))


def minimum_track(tracks: Sequence[WatermarkTrack], floor: int) -> WatermarkTrack:
    """Return the least of several inputs' tracks over the same interval, never below `floor` (K3: W does not go back)."""
    if len(tracks) == 1 and tracks[0].start >= floor:
        return tracks[0]
    lo, hi = tracks[0].lo, tracks[0].hi
    start = max(floor, min(t.start for t in tracks))
    end = max(floor, min(t.end for t in tracks))
    if start == end:
        return constant_track(lo, hi, start)
    seqs = np.unique(np.concatenate([t.steps()[0] for t in tracks]))
    values = np.minimum.reduce([t.after(seqs) for t in tracks])
    return StepTrack(lo, hi, start, seqs, np.maximum(values, floor))
