"""Sessions whose rows are kept (K5): GROUP BY over those with MAX or aggregates that need all values, and sessions without an aggregate.

A row within the gap of the last one (strictly) belongs to its session; the session is [first, last + gap), with MAX cut at first + max.
Rows are kept until their session has closed, as a row may still come that joins two sessions or, with MAX, moves a cut.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from millstream.engine.data.buffered import BufferedRows, buffered, concat_rows, no_rows
from millstream.engine.data.column import Column
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.data.types import TIMESTAMP
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN, WatermarkTrack, minimum_track
from millstream.engine.language.recipes import AggregateRecipe, WindowRecipe, WindowSpec
from millstream.engine.operators.changes import canonical_key
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.outputs import Part, flushed_track, joined_train
from millstream.engine.state.forms import state_record
from millstream.engine.windows.ranges import Ranges, aggregate_ranges


@dataclass(slots=True)
class Sessions:
    """Rows sorted by key and time; session i holds the rows starts[i] … stops[i]. `order` is the permutation that sorted them.

    `turns` ranks the rows as W passed them, where that was in another order.
    """

    rows: BufferedRows
    starts: Int64Array
    stops: Int64Array
    begins: Int64Array
    ends: Int64Array
    order: Int64Array
    turns: Int64Array | None = None

    def picked(self, sessions: Int64Array) -> Sessions:
        """Return some of the sessions, in another order."""
        starts, stops, begins, ends = (each[sessions] for each in (self.starts, self.stops, self.begins, self.ends))
        return Sessions(self.rows, starts, stops, begins, ends, self.order, self.turns)


@dataclass(slots=True)
class ClosedSessions:
    """Sessions that one item closed, by (end, start, first arrival), with the seq of that item for each."""

    sessions: Sessions
    seqs: Int64Array


@state_record("session_rows", 1, ("_gap", "_max", "_positions", "_rows", "_next_close", "_ordinal", "_below"))
class SessionRows:
    """The open sessions of all keys."""

    def __init__(self, window: WindowSpec, keys: tuple[int, ...], inputs: Schema) -> None:
        self._gap, self._max = window.gap_us, window.max_us
        self._positions = keys
        self._rows = no_rows(inputs)
        self._next_close = TIME_MAX  # no open session ends before this
        self._ordinal = 0
        self._below: list[tuple[int, int]] = []  # the rows that came below W: their ordinals, and W then

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
                else:
                    self._below.append((self._ordinal, int(watermarks[place])))
        self._add(train, done, train.rows)
        self._close(track.end, track, closed)
        return closed

    def open_sessions(self) -> Sessions | None:
        """Return the sessions that are open, as they stand, by (end, start, first arrival)."""
        if not len(self._rows):
            return None
        sessions = self._in_turn(self._split(self._rows))
        first = np.minimum.reduceat(sessions.rows.ordinal, sessions.starts)
        return sessions.picked(np.lexsort((first, sessions.begins, sessions.ends)))

    def flush(self) -> Sessions | None:
        """Close everything that is open."""
        if not len(self._rows):
            return None
        sessions = self._in_turn(self._split(self._rows))
        self._rows = self._rows.take(np.empty(0, dtype=np.int64))
        self._below = []
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
        picked = self._in_turn(sessions).picked(order)
        target = np.clip(picked.ends, track.start + 1, track.end)
        closed.append(ClosedSessions(picked, track.first_reaching(target)))
        if self._below:
            held = set(self._rows.ordinal.tolist())
            self._below = [row for row in self._below if row[0] in held]

    def _in_turn(self, sessions: Sessions) -> Sessions:
        """Note the order in which sums take the rows: by event time as W passes them, rows below W as they come.

        That is how sessions are summed of which only states are kept (session_folds.py), so a MAX that cuts none changes no bit.
        """
        if self._below:
            rows = sessions.rows
            ordinals, watermarks = np.array(self._below, dtype=np.int64).T
            passed_by = np.maximum(np.searchsorted(ordinals, rows.ordinal), np.searchsorted(watermarks, rows.time, side="right"))
            order = np.lexsort((rows.ordinal, rows.time, np.isin(rows.ordinal, ordinals), passed_by))
            sessions.turns = np.empty(len(order), dtype=np.int64)
            sessions.turns[order] = np.arange(len(order), dtype=np.int64)
        return sessions


class SessionWindow(Operator):
    """What both have in common: when sessions close. Subclasses turn closed sessions into rows."""

    state_fields: tuple[str, ...] = ("_rows", "_watermark")

    def __init__(self, schema: Schema, rows: SessionRows) -> None:
        super().__init__([schema])
        self._rows = rows
        self._watermark = TIME_MIN

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Take the rows in, put out what has closed."""
        train = inputs[0]
        closed, track = self._taken_in(train, out)
        out.emit(joined_train(train, self.schemas[0], track, [self._made(c) for c in closed]))

    def _taken_in(self, train: Train, out: Emitter) -> tuple[list[ClosedSessions], WatermarkTrack]:
        """Return what the train closes, and W over it."""
        self._watermark = max(self._watermark, train.track.start)
        track = minimum_track([train.track], self._watermark)
        closed = self._rows.take_in(train, track, out)
        self._watermark = max(self._watermark, track.end)
        return closed, self._flushed(train, track, closed) if train.flush else track

    def _flushed(self, train: Train, track: WatermarkTrack, closed: list[ClosedSessions]) -> WatermarkTrack:
        """An idle flush closes all sessions; W becomes the greatest flushed end."""
        sessions = self._rows.flush()
        if sessions is None:
            return track
        seq = train.hi - 1
        first = np.minimum.reduceat(sessions.rows.ordinal, sessions.starts)
        order = np.lexsort((first, sessions.begins, sessions.ends))
        closed.append(ClosedSessions(sessions.picked(order), np.full(len(order), seq, dtype=np.int64)))
        self._watermark = max(self._watermark, int(sessions.ends.max()))
        return flushed_track(train, track, self._watermark)

    @abstractmethod
    def _made(self, closed: ClosedSessions) -> Part:
        """Return the rows of closed sessions."""

    def wake_at_us(self) -> int | None:
        """Return when the next session may close."""
        return self._rows.next_close_us if len(self._rows) else None

    def oldest_us(self) -> int | None:
        """Return the first row of the oldest session."""
        return self._rows.oldest_us

    def state_rows(self) -> int:
        """Return the rows of open sessions."""
        return len(self._rows)

    def state_bytes(self) -> int:
        """Return their bytes."""
        return self._rows.nbytes()


class SessionAggregate(SessionWindow):
    """One row a session and key. A row that WHERE drops makes or prolongs a session but is not aggregated (K17)."""

    state_name = "session_aggregate"

    def __init__(self, recipe: AggregateRecipe, inputs: Schema) -> None:
        assert recipe.window is not None
        super().__init__(recipe.schema, SessionRows(recipe.window, recipe.keys, inputs))
        self._recipe = recipe

    def _made(self, closed: ClosedSessions) -> Part:
        sessions = closed.sessions
        rows, starts, stops, turns = sessions.rows, sessions.starts, sessions.stops, sessions.turns
        if self._recipe.live is not None:
            live = rows.columns[self._recipe.live].truths()
            before = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(live, dtype=np.int64)))
            rows, starts, stops = rows.take(np.flatnonzero(live)), before[starts], before[stops]
            turns = None if turns is None else turns[live]
        full = stops > starts
        starts, stops = starts[full], stops[full]
        ranges = Ranges(lambda p: rows.columns[p], len(rows), starts, stops, turns)
        keys = [canonical_key(rows.columns[k].take(starts)) for k in self._recipe.keys]
        bounds = [Column(TIMESTAMP, sessions.begins[full]), Column(TIMESTAMP, sessions.ends[full])]
        columns = [*keys, *aggregate_ranges(self._recipe.aggregates, ranges), *bounds]
        return columns, closed.seqs[full], sessions.ends[full] - 1


class SessionedRows(SessionWindow):
    """Each row of a closed session, with the session's bounds appended; by session, then event time, then arrival."""

    calls_late = True
    state_name = "sessioned_rows"

    def __init__(self, recipe: WindowRecipe, inputs: Schema) -> None:
        super().__init__(recipe.schema, SessionRows(recipe.window, recipe.keys, inputs))

    def _made(self, closed: ClosedSessions) -> Part:
        sessions = closed.sessions
        sizes = sessions.stops - sessions.starts
        before = np.cumsum(sizes) - sizes
        index = np.arange(int(sizes.sum()), dtype=np.int64) - np.repeat(before - sessions.starts, sizes)
        columns = [c.take(index) for c in sessions.rows.columns]
        bounds = [Column(TIMESTAMP, np.repeat(b, sizes)) for b in (sessions.begins, sessions.ends)]
        return [*columns, *bounds], np.repeat(closed.seqs, sizes), sessions.rows.time[index]
