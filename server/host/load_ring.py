"""What has come lately, in counts, so that one can ask afterwards which policy would have served it best.

Arrivals are counted per source in bins: a bin begins with an arrival and takes what comes within 10 ms. It lies as 20 bytes in a chunk of
4,096 bins, and the oldest chunk goes when it is too old or all of them together are too large. Now and then a mark is set: what each
operator has done by then, so that its cost and selectivity can be told for what came after the mark. An idle server notes nothing.
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
from millstream.engine.data.arrays import Int64Array
from millstream.engine.data.graph import LogId, OperatorId
from millstream.engine.data.records import dataclass
from millstream.scheduler.drivers.live import Spent
from millstream.scheduler.events import Arrived, Event
from millstream.scheduler.measured_graph import OperatorActivity
from millstream.server.host.live_runtime import RingBounds

BIN_NS = 10_000_000
CHUNK_BINS = 4_096
_FIELDS = 5  # of a bin: log, µs since its chunk began, rows, bytes, trains
_CHUNK_BYTES = CHUNK_BINS * _FIELDS * 4
_OPEN_BYTES = 250  # of a bin that still counts, beside its 20
_MARK_BYTES = 400  # of a mark, beside its activities
_MOST = 2**32 - 1
_NS_PER_US = 1_000


@dataclass(slots=True)
class _Bin:
    """A bin that still counts; its place in its chunk is taken."""

    end_ns: int
    rows: int
    bytes: int
    trains: int
    values: array[int]
    place: int

    def close(self) -> None:
        """Write the counts where they belong."""
        at = self.place
        self.values[at], self.values[at + 1], self.values[at + 2] = self.rows, min(self.bytes, _MOST), self.trains


@dataclass(slots=True)
class _Chunk:
    began_ns: int
    values: array[int]


@dataclass(frozen=True, slots=True)
class Mark:
    """What scheduler and operators had done at a time. Nothing is packed for the first mark, before which nothing was done."""

    at_ns: int
    spent: Spent
    packed: array[int]

    @property
    def did(self) -> dict[OperatorId, OperatorActivity]:
        """Return what each operator had done."""
        found, at, values = {}, 0, self.packed
        while at < len(values):
            operator, calls, rows_in, cost_ns, outputs = values[at : at + 5]
            at += 5
            made = {LogId(values[at + 2 * one]): values[at + 2 * one + 1] for one in range(outputs)}
            found[OperatorId(operator)] = OperatorActivity(calls, rows_in, cost_ns, made)
            at += 2 * outputs
        return found


def packed(did: Mapping[OperatorId, OperatorActivity]) -> array[int]:
    """Return what operators did as numbers: operator, calls, rows, ns, and of so many outputs log and rows."""
    values = array("q")
    for operator, one in did.items():
        values.extend((operator, one.calls, one.rows_in, one.cost_ns, len(one.made)))
        for log, rows in one.made.items():
            values.extend((log, rows))
    return values


@dataclass(frozen=True, slots=True)
class KeptLoad:
    """What came from `began_ns` on: columns log, time in ns, rows, bytes. `mark` is of then or before, `cut` where more was asked for."""

    began_ns: int
    arrivals: Int64Array
    mark: Mark
    cut: bool


class LoadRing:
    """Counts arrivals from any thread. `began` is the mark of the scheduler's start."""

    def __init__(self, bounds: RingBounds, began: Mark) -> None:
        self.bounds = bounds
        self._lock = threading.Lock()
        self._open: dict[LogId, _Bin] = {}
        self._chunks: deque[_Chunk] = deque()
        self._marks: deque[Mark] = deque((began,))
        self._began = began
        self._whole_from_ns = began.at_ns  # since then nothing has been let go of
        self._fresh = False  # something has come since the last mark

    def note(self, events: Sequence[Event]) -> None:
        """Count what arrives."""
        with self._lock:
            for event in events:
                if type(event) is not Arrived or not event.rows:
                    continue
                counting = self._open.get(event.log)
                if counting is not None and event.arrival_ns < counting.end_ns:
                    counting.rows += event.rows
                    counting.bytes += event.bytes
                    counting.trains += 1
                else:
                    self._begin_bin(event, counting)

    def _begin_bin(self, event: Arrived, ended: _Bin | None) -> None:
        if ended is not None:
            ended.close()
        self._fresh = True
        at_ns = event.arrival_ns
        chunk = self._chunks[-1] if self._chunks else None
        if chunk is None or len(chunk.values) == CHUNK_BINS * _FIELDS or at_ns - chunk.began_ns > _MOST * _NS_PER_US:
            self._close_bins()
            if chunk is not None:
                chunk.values = chunk.values[:]  # without the room that it grew into
            chunk = _Chunk(at_ns, array("I"))
            self._forget(at_ns, _CHUNK_BYTES)
            self._chunks.append(chunk)
        values = chunk.values
        values.extend((event.log, max(0, (at_ns - chunk.began_ns) // _NS_PER_US), 0, 0, 0))
        self._open[event.log] = _Bin(at_ns + BIN_NS, event.rows, event.bytes, 1, values, len(values) - 3)

    def _close_bins(self) -> None:
        for one in self._open.values():
            one.close()
        self._open.clear()

    # ---- marks and bounds

    @property
    def is_fresh(self) -> bool:
        """Tell whether something has come since the last mark."""
        return self._fresh

    @property
    def marks(self) -> tuple[Mark, ...]:
        """The marks that are kept, the oldest first."""
        with self._lock:
            return tuple(self._marks)

    @property
    def bytes(self) -> int:
        """Return how much memory is held."""
        marks = sum(_MARK_BYTES + 8 * len(one.packed) for one in self._marks)
        return marks + sum(4 * len(one.values) for one in self._chunks) + _OPEN_BYTES * len(self._open)

    def wants_mark(self, now_ns: int) -> bool:
        """Tell whether a mark is due. What has become too old goes."""
        with self._lock:
            self._forget(now_ns, 0)
            last_ns = self._marks[-1].at_ns if self._marks else 0
            return self._fresh and now_ns - last_ns >= self.bounds.mark_ns

    def set_mark(self, mark: Mark) -> None:
        """Keep a mark. What comes from now on goes into bins of its own."""
        with self._lock:
            self._close_bins()
            self._fresh = False
            self._marks.append(mark)
            self._forget(mark.at_ns, 0)

    def _forget(self, now_ns: int, more_bytes: int) -> None:
        """Let go of what is too old, and of the oldest until `more_bytes` have room."""
        oldest_ns = now_ns - self.bounds.kept_ns
        while self._chunks and self._end_ns() < oldest_ns:
            self._drop_chunk()
        while len(self._marks) > 1 and self._marks[1].at_ns <= max(oldest_ns, self._whole_from_ns):
            self._marks.popleft()
        while self.bytes + more_bytes > self.bounds.bytes_max and (self._chunks or self._marks):
            if not self._chunks or (self._marks and self._marks[0].at_ns <= self._chunks[0].began_ns):
                self._marks.popleft()
            else:
                self._drop_chunk()

    def _end_ns(self) -> int:
        """Return when the oldest chunk ended."""
        if len(self._chunks) > 1:
            return self._chunks[1].began_ns
        values = self._chunks[0].values
        return self._chunks[0].began_ns + values[-4] * _NS_PER_US + BIN_NS

    def _drop_chunk(self) -> None:
        self._whole_from_ns = max(self._whole_from_ns, self._end_ns())
        self._chunks.popleft()
        if not self._chunks:
            self._open.clear()

    # ---- what came

    def last(self, now_ns: int, asked_ns: int, rows_max: int) -> KeptLoad:
        """Return what came in the last `asked_ns`, of at most `rows_max` rows: it begins at a mark where one is old enough.

        So rows and what operators did are of the same while. Where nothing came between mark and the asked beginning, it begins there.
        """
        with self._lock:
            for one in self._open.values():
                one.close()
            chunks = [(one.began_ns, one.values[:]) for one in self._chunks]
            marks = [one for one in self._marks if one.at_ns >= self._whole_from_ns] or list(self._marks)[-1:] or [self._began]
            whole_from_ns = self._whole_from_ns
        bins = _bins(chunks)
        wanted_ns = now_ns - asked_ns
        mark = next((one for one in reversed(marks) if one.at_ns <= wanted_ns), marks[0])
        moved = (bins[:, 1] >= mark.at_ns) & (bins[:, 1] < wanted_ns)
        began_ns = max(whole_from_ns, mark.at_ns if moved.any() else max(mark.at_ns, wanted_ns))
        bins = bins[bins[:, 1] >= began_ns]
        behind = np.cumsum(bins[::-1, 2])[::-1]  # rows from each bin on
        fits = behind <= rows_max
        cut = began_ns > max(wanted_ns, self._began.at_ns) or not fits.all()
        if not fits.all():
            bins = bins[fits]
            began_ns = int(bins[0, 1]) if len(bins) else now_ns
            mark = next((one for one in reversed(marks) if one.at_ns <= began_ns), mark)
        return KeptLoad(began_ns, _trains(bins), mark, cut)


def _bins(chunks: Sequence[tuple[int, array[int]]]) -> Int64Array:
    """Return bins in order of time: log, beginning in ns, rows, bytes, trains."""
    parts = []
    for began_ns, values in chunks:
        part = np.frombuffer(values, np.uint32).reshape(-1, _FIELDS).astype(np.int64)
        part[:, 1] = began_ns + part[:, 1] * _NS_PER_US
        parts.append(part)
    found = np.concatenate(parts) if parts else np.zeros((0, _FIELDS), np.int64)
    return found[np.argsort(found[:, 1], kind="stable")]


def _trains(bins: Int64Array) -> Int64Array:
    """Return the trains of bins, spread evenly over their 10 ms: log, time in ns, rows, bytes. The first is where it was."""
    trains = bins[:, 4]
    of = np.repeat(np.arange(len(bins)), trains)
    place = np.arange(len(of)) - np.repeat(np.cumsum(trains) - trains, trains)
    times = bins[of, 1] + place * BIN_NS // np.maximum(trains[of], 1)
    shares = (whole[of] // trains[of] + (place < whole[of] % trains[of]) for whole in (bins[:, 2], bins[:, 3]))
    return np.stack((bins[of, 0], times, *shares), axis=1)
