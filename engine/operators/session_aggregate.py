"""GROUP BY over sessions, and sessions without an aggregate: each row with its session once that has closed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.column import Column, concat_columns
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.data.types import TIMESTAMP
from millstream.engine.data.watermarks import TIME_MIN, WatermarkTrack, concat_tracks, jump_track, minimum_track
from millstream.engine.language.recipes import AggregateRecipe, WindowRecipe
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.ordered_aggregate import canonical_key
from millstream.engine.operators.outputs import made_train, progress
from millstream.engine.operators.sessions import ClosedSessions, SessionRows
from millstream.engine.windows.ranges import Ranges, aggregate_ranges

Part = tuple[list[Column], Int64Array, Int64Array]  # columns, seq, event time


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
        self._watermark = max(self._watermark, train.track.start)
        track = minimum_track([train.track], self._watermark)
        closed = self._rows.take_in(train, track, out)
        self._watermark = max(self._watermark, track.end)
        if train.flush:
            track = self._flushed(train, track, closed)
        parts = [self._made(c) for c in closed]
        parts = [p for p in parts if len(p[1])]
        if not parts:
            out.emit(progress(train, self.schemas[0], track))
            return
        columns = [concat_columns(list(c)) for c in zip(*(p[0] for p in parts), strict=True)]
        out.emit(
            made_train(train, self.schemas[0], columns, np.concatenate([p[1] for p in parts]), np.concatenate([p[2] for p in parts]), track)
        )

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
        if train.hi - train.lo == 1:
            return jump_track(train.lo, train.hi, track.start, seq, self._watermark)
        body, last = track.split_at(seq)
        return concat_tracks([body, jump_track(seq, train.hi, last.start, seq, self._watermark)])

    def _made(self, closed: ClosedSessions) -> Part:
        """Each subclass has its own; the base is never made by itself."""
        raise NotImplementedError

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

    def __init__(self, recipe: AggregateRecipe, inputs: Schema) -> None:
        assert recipe.window is not None
        super().__init__(recipe.schema, SessionRows(recipe.window, recipe.keys, inputs))
        self._recipe = recipe

    def _made(self, closed: ClosedSessions) -> Part:
        sessions = closed.sessions
        rows, starts, stops = sessions.rows, sessions.starts, sessions.stops
        if self._recipe.live is not None:
            column = rows.columns[self._recipe.live]
            live = column.values if column.valid is None else column.values & column.valid
            before = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(live)))
            rows, starts, stops = rows.take(np.flatnonzero(live)), before[starts], before[stops]
        full = stops > starts
        starts, stops = starts[full], stops[full]
        ranges = Ranges(lambda p: rows.columns[p], len(rows), starts, stops)
        keys = [canonical_key(rows.columns[k].take(starts)) for k in self._recipe.keys]
        bounds = [Column(TIMESTAMP, sessions.begins[full]), Column(TIMESTAMP, sessions.ends[full])]
        columns = [*keys, *aggregate_ranges(self._recipe.aggregates, ranges), *bounds]
        return columns, closed.seqs[full], sessions.ends[full] - 1


class SessionedRows(SessionWindow):
    """Each row of a closed session, with the session's bounds appended; by session, then event time, then arrival."""

    calls_late = True

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
