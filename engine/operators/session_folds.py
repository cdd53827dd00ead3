"""GROUP BY over sessions (K5) whose aggregates are folds: one state per open session and key, and the rows that W has not passed.

Rows are taken in order of event time once W has passed them, so a key has at most one open session: a later one begins a gap after its
last row, when W has reached its end. A row below W that is not late (K4) is folded in as it comes; it can only reach that session. So
which value follows which in a DOUBLE sum depends on rows and watermarks, not on trains (K15).

EMIT EVERY d gives at each multiple of d the open sessions with their rows below it; a session's final row comes when it closes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.data.arrays import distinct
from millstream.engine.data.buffered import BufferedRows, buffered
from millstream.engine.data.column import Column, concat_columns
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.data.types import TIMESTAMP
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN, WatermarkTrack, minimum_track
from millstream.engine.language.recipes import AggregateRecipe, EmitKind
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.intake import Intake
from millstream.engine.operators.outputs import flushed_track, made_train, progress, take_out_late
from millstream.engine.windows.early import moments_after
from millstream.engine.windows.session_states import ClosedStates, SessionStates


class FoldedSessions(Operator):
    """GROUP BY over sessions of which only states are kept, not rows."""

    calls_late = True
    state_name = "folded_sessions"
    state_fields: tuple[str, ...] = ("_intake", "_states", "_encoder", "_newest")

    def __init__(self, recipe: AggregateRecipe, inputs: Schema) -> None:
        super().__init__([recipe.schema])
        assert recipe.window is not None
        self._recipe = recipe
        self._gap = recipe.window.gap_us
        self._every = recipe.emit.every_us if recipe.emit.kind is EmitKind.EVERY else 0
        self._intake = Intake(inputs)
        self._encoder = key_encoder([inputs.fields[k].type for k in recipe.keys])
        self._states = SessionStates(self._gap, recipe.aggregates, inputs)
        self._newest = TIME_MIN

    # The call ----------------------------------------------------------------------------------------------------------

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Take the rows in, put out what has closed."""
        train = inputs[0]
        floor = max(self._intake.watermark, train.track.start)
        track = minimum_track([train.track], floor)
        parts: list[ClosedStates] = []
        timely, below = take_out_late(train, track)
        if below is not None:
            timely = self._one_by_one(timely, below, track, parts, out)
        self._advance(self._intake.moved(timely, max(floor, track.end)), floor, track, parts)
        if train.flush:
            track = self._flushed(train, track, parts)
        out.emit(self._train_of(train, track, parts))

    def _one_by_one(self, timely: Train, below: Train, track: WatermarkTrack, parts: list[ClosedStates], out: Emitter) -> Train:
        """Look at each row below W by itself, as the sessions stood when it came; return the timely rows after the last one."""
        late: list[int] = []
        seqs, marks = timely.seq.array(), track.before(below.seq.array())
        done = 0
        rows = buffered(below, 0)
        for place in range(below.rows):
            stop = int(np.searchsorted(seqs, below.seq.array()[place], side="left"))
            before, watermark = self._intake.watermark, max(self._intake.watermark, int(marks[place]))
            part = timely.take(np.arange(done, stop, dtype=np.int64))
            self._advance(self._intake.moved(part, watermark), max(before, track.start), track, parts)
            done = stop
            row = rows.take(np.array([place], dtype=np.int64))
            row.ordinal = np.array([self._intake.ordinal], dtype=np.int64)
            if self._join(row, watermark):
                self._intake.ordinal += 1
            else:
                late.append(place)
        if late:
            out.late.append((0, below.take(np.array(late, dtype=np.int64))))
        return timely.take(np.arange(done, timely.rows, dtype=np.int64)) if done else timely

    def _join(self, row: BufferedRows, watermark: int) -> bool:
        """Fold a row below W into its key's open session, or make one; False when that would have closed (K4)."""
        ids = self._ids(row)
        fits = self._states.reaches(int(ids[0]), int(row.time[0]))
        if not fits and int(row.time[0]) + self._gap <= watermark:
            self._free(self._states.forgotten(ids))
            return False
        self._states.fold(row, self._live(row), ids, joins_all=True)
        return True

    def _advance(self, ready: BufferedRows, before: int, track: WatermarkTrack, parts: list[ClosedStates]) -> None:
        """Fold what W has passed and close what it has reached the end of; with EVERY stop at each multiple of d."""
        watermark = self._intake.watermark
        for moment in self._moments(ready, before, track).tolist():
            stop = int(np.searchsorted(ready.time, moment, side="left"))
            self._pass(ready.slice(0, stop), moment, track, parts)
            ready = ready.slice(stop, len(ready))
            shown = self._states.open_now(moment)
            if len(shown.ids):
                shown.seqs = np.full(len(shown.ids), self._seqs(track, np.array([moment], dtype=np.int64))[0], dtype=np.int64)
                shown.keys = self._encoder.columns(shown.ids)
                parts.append(shown)
        self._pass(ready, watermark, track, parts)

    def _moments(self, ready: BufferedRows, before: int, track: WatermarkTrack) -> Int64Array:
        known = self._newest
        if len(ready):
            self._newest = max(self._newest, int(ready.time[-1]))
        if not self._every:
            return np.empty(0, dtype=np.int64)
        instants = distinct(ready.time)
        if known != TIME_MIN:
            instants = distinct(np.append(instants, known))
        upto = max(self._newest, track.last_open) if track.end == TIME_MAX else self._intake.watermark
        return moments_after(self._every, -(2**62) if before == TIME_MIN else before + 1, upto, instants)

    def _pass(self, ready: BufferedRows, watermark: int, track: WatermarkTrack, parts: list[ClosedStates]) -> None:
        ids = self._ids(ready)
        closed = self._states.fold(ready, self._live(ready), ids) if len(ready) else None
        expired, unused = self._states.close(watermark)
        for gone in (closed, expired):
            if gone is not None and len(gone.ids):
                gone.keys = self._encoder.columns(gone.ids)
                gone.seqs = self._seqs(track, gone.ends)
                parts.append(gone)
        self._free(unused)

    def _seqs(self, track: WatermarkTrack, reached: Int64Array) -> Int64Array:
        """Return the seq of the item that moved W to each time."""
        if track.start == track.end:
            return np.full(len(reached), track.hi - 1, dtype=np.int64)
        return track.first_reaching(np.clip(reached, track.start + 1, track.end))

    def _ids(self, rows: BufferedRows) -> Int64Array:
        if not self._recipe.keys or not len(rows):
            ids = np.zeros(len(rows), dtype=np.int64)
        else:
            ids = self._encoder.encode([rows.columns[k] for k in self._recipe.keys])
        self._states.reserve(max(1, self._encoder.size))
        return ids

    def _free(self, ids: Int64Array) -> None:
        if self._recipe.keys and len(ids):
            self._encoder.free(ids)

    def _live(self, rows: BufferedRows) -> npt.NDArray[np.bool_] | None:
        return None if self._recipe.live is None else rows.columns[self._recipe.live].truths()

    def _flushed(self, train: Train, track: WatermarkTrack, parts: list[ClosedStates]) -> WatermarkTrack:
        """An idle flush closes all sessions; W becomes the greatest flushed end (K3, K14)."""
        watermark, seq = self._intake.watermark, train.hi - 1
        start = len(parts)
        empty = train.take(np.empty(0, dtype=np.int64))
        self._pass(self._intake.moved(empty, TIME_MAX), TIME_MAX, track, parts)
        for gone in parts[start:]:
            gone.seqs = np.full(len(gone.ids), seq, dtype=np.int64)
        ends = [int(gone.ends.max()) for gone in parts[start:]]
        self._intake.watermark = max([watermark, *ends])
        if not ends:
            return track
        return flushed_track(train, track, self._intake.watermark)

    # Answers -----------------------------------------------------------------------------------------------------------

    def _train_of(self, train: Train, track: WatermarkTrack, parts: list[ClosedStates]) -> Train:
        """Return the sessions, those without a live row left out, by (end, start, first arrival) (K20); early ones at their moment."""
        answers = [self._columns(gone) for gone in parts]
        if not any(len(seqs) for _, _, seqs in answers):
            return progress(train, self.schemas[0], track)
        columns = [concat_columns(list(c)) for c in zip(*(c for c, _, _ in answers), strict=True)]
        first, seqs = np.concatenate([f for _, f, _ in answers]), np.concatenate([s for _, _, s in answers])
        begins, ends = columns[-2].values, columns[-1].values
        instants = ends.copy()
        early = np.zeros(len(ends), dtype=np.bool_)
        start = 0
        for gone, (_, _, part) in zip(parts, answers, strict=True):
            if gone.moment is not None:
                instants[start : start + len(part)], early[start : start + len(part)] = gone.moment, True
            start += len(part)
        order = np.lexsort((first, begins, ends, early, instants))
        columns = [c.take(order) for c in columns]
        return made_train(train, self.schemas[0], columns, seqs[order], ends[order] - 1, track)

    def _columns(self, gone: ClosedStates) -> tuple[list[Column], Int64Array, Int64Array]:
        live = gone.live > 0
        columns: list[Any] = [*gone.keys, *self._states.cells.answer(gone.states)]
        columns += [Column(TIMESTAMP, gone.begins), Column(TIMESTAMP, gone.ends)]
        first, seqs = gone.first, gone.seqs
        if not live.all():
            columns, first, seqs = [c.filter(live) for c in columns], first[live], seqs[live]
        return columns, first, seqs

    # State -------------------------------------------------------------------------------------------------------------

    def wake_at_us(self) -> int | None:
        """Return when the next session may close, or W must pass a row or reach a moment."""
        found = [t for t in (self._states.next_close_us,) if t is not None]
        if self._intake.oldest_us is not None:
            found.append(self._intake.oldest_us + 1)
        if self._every and len(self._states):
            found.append((max(self._newest, self._intake.watermark) // self._every + 1) * self._every)
        return min(found, default=None)

    def oldest_us(self) -> int | None:
        """Return the first row of the oldest session, or the oldest row that W has not passed."""
        return min((t for t in (self._states.oldest_us, self._intake.oldest_us) if t is not None), default=None)

    def state_rows(self) -> int:
        """Return the rows that wait and the open sessions."""
        return len(self._intake) + len(self._states)

    def state_bytes(self) -> int:
        """Return their bytes."""
        return self._encoder.nbytes() + self._intake.nbytes() + self._states.nbytes()
