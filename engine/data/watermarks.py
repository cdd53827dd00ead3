"""The watermark of an edge as a step function of the arrival number (K3).

W promises "no more rows with event time < W". It moves after each row, never per train: `before(seqs)` is W as a row with that
seq saw it, `first_reaching(values)` the seq of the row (or control item) that brought W to a value. Tracks are computed
lazily, as a filter chain never asks. Times in microseconds. A track covers [lo, hi): `start` is W just before lo, `end` just before hi.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt
from millstream.engine.data.arrays import distinct

Int64Array = npt.NDArray[np.int64]
Steps = tuple[Int64Array, Int64Array]

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

    @property
    def in_order(self) -> bool:
        """True when it is certain that no source row of the interval came with a time below W, so none on the edge is late."""
        return False

    def sorted_span(self) -> tuple[int, int] | None:
        """Return the times of the first and the last source row when the rows are known to stand in order of time, else None."""
        return None

    @property
    def step_count(self) -> int:
        """Steps that the track holds on to, for the memory measure."""
        return 0

    def steps(self) -> Steps:
        """Return (seqs, values): after the item with seqs[i], W is values[i]. Non-decreasing in both."""
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)

    @property
    def last_open(self) -> int:
        """W at the end of the interval; after the end of the stream, which makes it TIME_MAX, where it had come before that."""
        if self.end != TIME_MAX or self.start == TIME_MAX:
            return self.end
        values = self.steps()[1]
        open_until = int(np.searchsorted(values, TIME_MAX, side="left"))
        return int(values[open_until - 1]) if open_until else self.start

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

    def over(self, lo: int, hi: int) -> Self:
        """Return the same steps over another interval, which must still hold all of them."""
        if lo == self.lo and hi == self.hi:
            return self
        changed = copy.copy(self)
        changed.lo, changed.hi = lo, hi
        return changed


class StepTrack(WatermarkTrack):
    """A track given by its steps."""

    __slots__ = ("_seqs", "_values")

    def __init__(self, lo: int, hi: int, start: int, seqs: Int64Array, values: Int64Array) -> None:
        super().__init__(lo, hi, start, int(values[-1]) if len(values) else start)
        self._seqs = seqs
        self._values = values

    @property
    def step_count(self) -> int:
        """The number of given steps."""
        return len(self._seqs)

    def steps(self) -> Steps:
        """Return the given steps."""
        return self._seqs, self._values


class RowsTrack(WatermarkTrack):
    """The track of a chunk of source rows: the running maximum of event time, less the delay.

    `times` are the event times that may move W: a row too far in the future holds TIME_MIN instead (SKEW). The rows have the
    seqs first, first + 1, …, all within [lo, hi).
    """

    __slots__ = ("_delay_us", "_first", "_in_order", "_times", "_values")

    def __init__(self, lo: int, hi: int, start: int, times: Int64Array, delay_us: int, first: int | None = None) -> None:
        self.lo = lo
        self.hi = hi
        self.start = start
        reached = times.item(times.argmax()) - delay_us if len(times) else TIME_MIN  # `max` takes a few calls more
        self.end = reached if reached > start else start
        self._first = lo if first is None else first
        self._times = times
        self._delay_us = delay_us
        self._values: Int64Array | None = None
        self._in_order: bool | None = None

    @property
    def given(self) -> tuple[int, Int64Array, int]:
        """What it was made of: the first row's seq, the times that may move W, the delay in µs."""
        return self._first, self._times, self._delay_us

    @property
    def in_order(self) -> bool:
        """True when the rows came in order of time, none of them below the start. Not known where one is too far in the future."""
        if self._in_order is None:
            self._in_order = self._stand_in_order()
        return self._in_order

    def _stand_in_order(self) -> bool:
        times = self._times
        if not len(times):
            return True
        first = times.item(0)
        if first < self.start or first == TIME_MIN:
            return False
        back = times[1:] < times[:-1]
        return not len(back) or not back.item(back.argmax())  # which stops at the first

    def sorted_span(self) -> tuple[int, int] | None:
        """Known from `in_order`."""
        if not self.in_order or len(self._times) == 0:
            return None
        return int(self._times[0]), int(self._times[-1])

    @property
    def step_count(self) -> int:
        """One step a row."""
        return len(self._times)

    def steps(self) -> Steps:
        """Compute the running maximum once."""
        return np.arange(self._first, self._first + len(self._times), dtype=np.int64), self._reached()

    def _reached(self) -> Int64Array:
        if self._values is None:
            if self.in_order and self._delay_us == 0:
                self._values = self._times
            else:
                floor = TIME_MIN + self._delay_us
                running = np.maximum.accumulate(np.maximum(self._times, floor)) - self._delay_us
                self._values = np.maximum(running, self.start)
        return self._values

    def __copy__(self) -> RowsTrack:
        """Return a track of its own with the same members, quicker than `copy` does it."""
        twin = RowsTrack.__new__(RowsTrack)
        twin.lo, twin.hi, twin.start, twin.end = self.lo, self.hi, self.start, self.end
        twin._first, twin._times, twin._delay_us = self._first, self._times, self._delay_us
        twin._values, twin._in_order = self._values, self._in_order
        return twin

    def first_reaching(self, values: Int64Array) -> Int64Array:
        """As the base says, without making the seqs."""
        return self._reached().searchsorted(values, side="left") + self._first


class RowTrack(WatermarkTrack):
    """The track of one source row by itself: what `RowsTrack` says, without an array. `time_us` is TIME_MIN where it may not move W."""

    __slots__ = ("_delay_us", "_seq", "_time_us")

    def __init__(self, lo: int, hi: int, start: int, time_us: int, delay_us: int, seq: int) -> None:
        self.lo = lo
        self.hi = hi
        self.start = start
        reached = time_us - delay_us
        self.end = reached if reached > start else start
        self._seq = seq
        self._time_us = time_us
        self._delay_us = delay_us

    @property
    def given(self) -> tuple[int, int, int]:
        """What it was made of: the time that may move W, the delay in µs, the row's seq."""
        return self._time_us, self._delay_us, self._seq

    @property
    def in_order(self) -> bool:
        """True when the row is not below the start, and its time is known."""
        return self._time_us >= self.start and self._time_us != TIME_MIN

    def sorted_span(self) -> tuple[int, int] | None:
        """Known from `in_order`."""
        return (self._time_us, self._time_us) if self.in_order else None

    @property
    def step_count(self) -> int:
        """One."""
        return 1

    def steps(self) -> Steps:
        """Return the one step."""
        return np.array([self._seq], dtype=np.int64), np.array([self.end], dtype=np.int64)


class LazyTrack(WatermarkTrack):
    """Base of tracks made of others, whose steps are computed when first asked for."""

    __slots__ = ("_computed", "_parts")

    def __init__(self, lo: int, hi: int, start: int, end: int, parts: Sequence[WatermarkTrack]) -> None:
        super().__init__(lo, hi, start, end)
        self._parts = tuple(parts)
        self._computed: Steps | None = None

    @property
    def parts(self) -> tuple[WatermarkTrack, ...]:
        """The tracks that it is made of."""
        return self._parts

    @property
    def step_count(self) -> int:
        """Steps of all parts."""
        return sum(p.step_count for p in self._parts)

    def steps(self) -> Steps:
        """Compute once."""
        if self._computed is None:
            self._computed = self._compute()
        return self._computed

    def _compute(self) -> Steps:
        """Each subclass has its own; the base is never made by itself. Not abstract: `isinstance` is quicker without ABCMeta."""
        raise NotImplementedError


class ChainTrack(LazyTrack):
    """Tracks that follow one another."""

    __slots__ = ()

    @property
    def in_order(self) -> bool:
        """True when every part is; a part on which nothing moves holds no row that could say otherwise only if it says so."""
        return all(p.in_order for p in self._parts)

    def sorted_span(self) -> tuple[int, int] | None:
        """Sorted when each part is and none begins before the one before it ends; a delay allows that."""
        first: int | None = None
        last = TIME_MIN
        for part in self._parts:
            span = part.sorted_span()
            if span is None or span[0] < last:
                return None
            first = span[0] if first is None else first
            last = span[1]
        return None if first is None else (first, last)

    def _compute(self) -> Steps:
        pairs = [p.steps() for p in self._links()]
        return np.concatenate([p[0] for p in pairs]), np.concatenate([p[1] for p in pairs])

    def _links(self) -> list[WatermarkTrack]:
        """Return the tracks to put together. Chains within are opened: one that grew a train at a time would copy all before each train."""
        found: list[WatermarkTrack] = []
        left = list(reversed(self._parts))
        while left:
            part = left.pop()
            if isinstance(part, ChainTrack) and part._computed is None:
                left.extend(reversed(part._parts))
            else:
                found.append(part)
        return found


class MinimumTrack(LazyTrack):
    """The least of several tracks over one interval, never below the start."""

    __slots__ = ()

    def _compute(self) -> Steps:
        seqs = distinct(np.concatenate([p.steps()[0] for p in self._parts]))
        values = np.minimum.reduce([p.after(seqs) for p in self._parts])
        return seqs, np.maximum(values, self.start)


def compact_track(track: WatermarkTrack) -> WatermarkTrack:
    """Return a track that says the same in arrays, without the parts that it was made of; of single rows it stays known how they came."""
    if not isinstance(track, ChainTrack):
        return track
    chunks = [part.given for part in track.parts if isinstance(part, RowsTrack)]
    if len(chunks) == len(track.parts) and len({delay for _, _, delay in chunks}) == 1:
        firsts = [first + len(times) for first, times, _ in chunks]
        if firsts[:-1] == [first for first, _, _ in chunks[1:]]:
            times = np.concatenate([times for _, times, _ in chunks])
            return RowsTrack(track.lo, track.hi, track.start, times, chunks[0][2], first=chunks[0][0])
    rows = [part.given for part in track.parts if isinstance(part, RowTrack)]
    delays, seqs = {delay for _, delay, _ in rows}, [seq for _, _, seq in rows]
    if len(rows) == len(track.parts) and len(delays) == 1 and seqs == list(range(seqs[0], seqs[0] + len(seqs))):
        times = np.array([time_us for time_us, _, _ in rows], dtype=np.int64)
        return RowsTrack(track.lo, track.hi, track.start, times, delays.pop(), first=seqs[0])
    steps, values = track.steps()
    found = StepTrack(track.lo, track.hi, track.start, steps, values)
    found.end = track.end
    return found


def arrays_of(track: WatermarkTrack) -> tuple[Int64Array, ...]:
    """Return the arrays that a compact track is made of, for `with_arrays`; none of one that is made of a few numbers."""
    if isinstance(track, RowsTrack):
        return (track.given[1],)
    return track.steps() if track.step_count > 1 else ()


def with_arrays(track: WatermarkTrack, arrays: Sequence[Int64Array]) -> WatermarkTrack:
    """Return the same track over arrays of the same content that lie elsewhere."""
    if not arrays:
        return track
    if isinstance(track, RowsTrack):
        moved = copy.copy(track)
        moved._times, moved._values = arrays[0], None
        return moved
    found = StepTrack(track.lo, track.hi, track.start, *arrays)
    found.end = track.end
    return found


def thinned(track: WatermarkTrack, steps_max: int) -> WatermarkTrack:
    """Return a track of fewer steps over a stretch without rows: W moves later than it did, at the same items, and ends where it did.

    The last step but one is kept too, as the last may be the end of the stream.
    """
    at, values = track.steps()
    moved = np.flatnonzero(np.diff(values, prepend=track.start))
    if len(moved) > steps_max:
        moved = distinct(np.append(moved[:: -(-len(moved) // steps_max)], moved[-2:]))
    return StepTrack(track.lo, track.hi, track.start, at[moved], values[moved])


def constant_track(lo: int, hi: int, value: int) -> WatermarkTrack:
    """Return the track on which W stays at `value`."""
    return WatermarkTrack(lo, hi, value, value)


def jump_track(lo: int, hi: int, start: int, seq: int, value: int) -> WatermarkTrack:
    """Return the track on which the item `seq` moves W from `start` to `value`, if that is higher."""
    if value <= start:
        return constant_track(lo, hi, start)
    return StepTrack(lo, hi, start, np.array([seq], dtype=np.int64), np.array([value], dtype=np.int64))


def concat_tracks(tracks: Sequence[WatermarkTrack]) -> WatermarkTrack:
    """Return as one the tracks that follow one another.

    One over nothing says less than its successor, which may begin higher (queues.py).
    """
    if len(tracks) > 1:
        tracks = [t for t in tracks if t.lo < t.hi] or tracks[-1:]
    first, last = tracks[0], tracks[-1]
    if len(tracks) == 1:
        return first
    if first.start == last.end and not any(t.in_order for t in tracks):
        return constant_track(first.lo, last.hi, first.start)
    return ChainTrack(first.lo, last.hi, first.start, last.end, tracks)


def minimum_track(tracks: Sequence[WatermarkTrack], floor: int) -> WatermarkTrack:
    """Return the least of several inputs' tracks over the same interval, never below `floor` (K3: W does not go back)."""
    if len(tracks) == 1 and tracks[0].start >= floor:
        return tracks[0]
    lo, hi = tracks[0].lo, tracks[0].hi
    start = max(floor, min(t.start for t in tracks))
    end = max(start, min(t.end for t in tracks))
    if start == end:
        return constant_track(lo, hi, start)
    return MinimumTrack(lo, hi, start, end, tracks)


class LaggedTrack(LazyTrack):
    """Another track, some time behind (an outer join's output, K19); it only reaches TIME_MAX with it."""

    __slots__ = ("_lag_us",)

    def __init__(self, track: WatermarkTrack, lag_us: int) -> None:
        super().__init__(track.lo, track.hi, lagged(track.start, lag_us), lagged(track.end, lag_us), [track])
        self._lag_us = lag_us

    def _compute(self) -> Steps:
        seqs, values = self._parts[0].steps()
        behind = np.maximum(values, TIME_MIN + self._lag_us) - self._lag_us
        return seqs, np.where(values == TIME_MAX, TIME_MAX, behind)


def lagged(watermark_us: int, lag_us: int) -> int:
    """Return W - lag; the two ends of time stay where they are."""
    return watermark_us if watermark_us in (TIME_MIN, TIME_MAX) else max(TIME_MIN, watermark_us - lag_us)


def lagged_track(track: WatermarkTrack, lag_us: int, for_ever: bool) -> WatermarkTrack:
    """Return the track `lag_us` behind; with `for_ever` W only moves at the end of the stream."""
    if not for_ever:
        return LaggedTrack(track, lag_us)
    if track.end != TIME_MAX:
        return constant_track(track.lo, track.hi, TIME_MIN)
    if track.start == TIME_MAX:
        return constant_track(track.lo, track.hi, TIME_MAX)
    return jump_track(track.lo, track.hi, TIME_MIN, int(track.first_reaching(np.array([TIME_MAX]))[0]), TIME_MAX)
