"""Sessions (K5): rows of open sessions, the split into sessions, and what closes.

A row within the gap of the last one (strictly) belongs to its session; the session is [first, last + gap), with MAX cut at first + max.
Rows are kept until their session has closed, as a row may still come that joins two sessions or, with MAX, moves a cut.
"""

from __future__ import annotations

import numpy as np
from millstream.engine.data.buffered import BufferedRows, buffered, concat_rows, no_rows
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.data.watermarks import TIME_MAX, WatermarkTrack
from millstream.engine.language.recipes import WindowSpec
from millstream.engine.operators.contract import Emitter


@dataclass(slots=True)
class Sessions:
    """Rows sorted by key and time; session i holds the rows starts[i] … stops[i]. `order` is the permutation that sorted them."""

    rows: BufferedRows
    starts: Int64Array
    stops: Int64Array
    begins: Int64Array
    ends: Int64Array
    order: Int64Array

    def picked(self, sessions: Int64Array) -> Sessions:
        """Return some of the sessions, in another order."""
        return Sessions(self.rows, self.starts[sessions], self.stops[sessions], self.begins[sessions], self.ends[sessions], self.order)


@dataclass(slots=True)
class ClosedSessions:
    """Sessions that one item closed, by (end, start, first arrival), with the seq of that item for each."""

    sessions: Sessions
    seqs: Int64Array


class SessionRows:
    """The open sessions of all keys."""

    def __init__(self, window: WindowSpec, keys: tuple[int, ...], inputs: Schema) -> None:
        self._gap, self._max = window.gap_us, window.max_us
        self._positions = keys
        self._rows = no_rows(inputs)
        self._next_close = TIME_MAX  # no open session ends before this
        self._ordinal = 0

    def __len__(self) -> int:
        """Return the rows kept."""
        return len(self._rows)

    @property
    def next_close_us(self) -> int:
        """No open session ends before this."""
        return self._next_close

    @property
    def oldest_us(self) -> int | None:
        """The least event time kept."""
        return int(self._rows.time.min()) if len(self._rows) else None

    def nbytes(self) -> int:
        """Return the bytes kept."""
        return self._rows.nbytes()

    def take_in(self, train: Train, track: WatermarkTrack, out: Emitter) -> list[ClosedSessions]:
        """Add a train's rows and return what W closes, in order.

        Rows at or above W cannot touch a session that has closed, so they are taken together; a row below W is looked at by itself, as
        the sessions stood when it came.
        """
        closed: list[ClosedSessions] = []
        done = 0
        if train.rows and not track.in_order:
            watermarks = track.before(train.seq.array())
            times = train.time.array()
            for place in np.flatnonzero(times < watermarks).tolist():
                self._add(train, done, place)
                self._close(int(watermarks[place]), track, closed)
                done = place
                if self._is_late(train, place, int(watermarks[place])):
                    out.late.append((0, train.take(np.array([place], dtype=np.int64))))
                    done = place + 1
        self._add(train, done, train.rows)
        self._close(track.end, track, closed)
        return closed

    def open_sessions(self) -> Sessions | None:
        """Return the sessions that are open, as they stand, by (end, start, first arrival)."""
        if not len(self._rows):
            return None
        sessions = self._split(self._rows)
        first = np.minimum.reduceat(sessions.rows.ordinal, sessions.starts)
        return sessions.picked(np.lexsort((first, sessions.begins, sessions.ends)))

    def flush(self) -> Sessions | None:
        """Close everything that is open."""
        if not len(self._rows):
            return None
        sessions = self._split(self._rows)
        self._rows = self._rows.take(np.empty(0, dtype=np.int64))
        self._next_close = TIME_MAX
        return sessions

    def _add(self, train: Train, start: int, stop: int) -> None:
        if start >= stop:
            return
        part = buffered(train, 0)
        if start or stop < train.rows:
            part = part.take(np.arange(start, stop, dtype=np.int64))
        part.ordinal = np.arange(self._ordinal, self._ordinal + len(part), dtype=np.int64)
        self._ordinal += len(part)
        self._rows = concat_rows(self._rows, part)
        reach = self._gap if self._max is None else min(self._gap, self._max)
        self._next_close = min(self._next_close, int(part.time.min()) + reach)

    def _is_late(self, train: Train, place: int, watermark: int) -> bool:
        """A row is late when the session that it would form or join has closed (K4)."""
        row = buffered(train, 0).take(np.array([place], dtype=np.int64))
        together = concat_rows(self._rows, row)
        sessions = self._split(together)
        at = int(np.flatnonzero(sessions.order == len(together) - 1)[0])
        session = int(np.searchsorted(sessions.stops, at, side="right"))
        return int(sessions.ends[session]) <= watermark

    def _split(self, rows: BufferedRows) -> Sessions:
        keys = np.zeros(len(rows), dtype=np.int64)
        if self._positions:
            columns = [rows.columns[p] for p in self._positions]
            keys = key_encoder([c.type for c in columns]).encode(columns)
        order = np.lexsort((rows.ordinal, rows.time, keys))
        rows, keys = rows.take(order), keys[order]
        times = rows.time
        begins = np.ones(len(rows), dtype=np.bool_)
        begins[1:] = (keys[1:] != keys[:-1]) | (times[1:] - times[:-1] >= self._gap)
        starts = np.flatnonzero(begins)
        if self._max is not None:
            starts = self._cut(starts, times, self._max)
        stops = np.append(starts[1:], len(rows))
        ends = times[stops - 1] + self._gap
        if self._max is not None:
            ends = np.minimum(ends, times[starts] + self._max)
        return Sessions(rows, starts, stops, times[starts], ends, order)

    def _cut(self, starts: Int64Array, times: Int64Array, longest: int) -> Int64Array:
        """Cut chains that last longer than MAX: each piece begins with the first row at or beyond the last one's end."""
        found: list[int] = []
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(times)], strict=True):
            at = start
            while at < stop:
                found.append(at)
                at = start + int(np.searchsorted(times[start:stop], times[at] + longest, side="left"))
        return np.array(found, dtype=np.int64)

    def _close(self, watermark: int, track: WatermarkTrack, closed: list[ClosedSessions]) -> None:
        if watermark < self._next_close or not len(self._rows):
            return
        sessions = self._split(self._rows)
        gone = sessions.ends <= watermark
        open_ends = sessions.ends[~gone]
        self._next_close = int(open_ends.min()) if len(open_ends) else TIME_MAX
        if not gone.any():
            return
        kept = np.repeat(~gone, sessions.stops - sessions.starts)
        self._rows = sessions.rows.take(np.flatnonzero(kept))
        first = np.minimum.reduceat(sessions.rows.ordinal, sessions.starts)
        order = np.lexsort((first, sessions.begins, sessions.ends))
        order = order[gone[order]]
        picked = sessions.picked(order)
        target = np.clip(picked.ends, track.start + 1, track.end)
        closed.append(ClosedSessions(picked, track.first_reaching(target)))
