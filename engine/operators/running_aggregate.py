"""Aggregates that never close: without a window, [UNBOUNDED], [LANDMARK] (K9).

State is one cell a group. EMIT CHANGES takes back and gives anew the answer of each group that a train touches. EMIT FINAL answers once, at
the end of the stream. EMIT EVERY d answers whenever W crosses a multiple m of d, with the rows of times below m; rows wait for that, so
at most those of the last d and the delay are kept as rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.arrays import distinct
from millstream.engine.data.arrivals import NO_ARRIVALS
from millstream.engine.data.buffered import BufferedRows, buffered, concat_rows, no_rows
from millstream.engine.data.column import Column, concat_columns
from millstream.engine.data.keys import NoKeys, key_encoder
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Numbers, Train, empty_train
from millstream.engine.data.types import TIMESTAMP
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN, WatermarkTrack, constant_track, minimum_track
from millstream.engine.language.recipes import AggregateRecipe, EmitKind
from millstream.engine.operators.changes import Changes
from millstream.engine.operators.contract import Emitter, EvaluationErrors, Operator
from millstream.engine.operators.intake import Intake
from millstream.engine.operators.outputs import change_column, made_train, progress
from millstream.engine.windows.early import moments_after
from millstream.engine.windows.pane_aggregates import Aggregates
from millstream.engine.windows.pane_states import Batch
from millstream.engine.windows.ranges import Ranges, aggregate_ranges

PANE = 0  # the one pane that holds everything


class RunningAggregate(Operator):
    """GROUP BY over all rows so far: EMIT CHANGES, EMIT FINAL at the end of the stream, or EMIT EVERY d."""

    state_name = "running_aggregate"
    state_fields: tuple[str, ...] = ("_keys", "_aggregates", "_slot", "_ordinal", "_waiting", "_watermark", "_newest", "_folded")

    def __init__(self, recipe: AggregateRecipe, inputs: Schema) -> None:
        super().__init__([recipe.schema])
        self._recipe = recipe
        self._inputs = inputs
        self._kind = recipe.emit.kind
        self._has_bounds = recipe.window is not None
        self._from = None if recipe.window is None else recipe.window.from_us
        self._limit = None if recipe.window is None else recipe.window.state_rows_max
        self._keys = key_encoder([inputs.fields[k].type for k in recipe.keys])
        self._aggregates = Aggregates(recipe.aggregates, inputs)
        self._slot = self._aggregates.table.open(PANE)
        self._ordinal = 0
        self._waiting = no_rows(inputs)
        self._watermark = TIME_MIN
        self._newest = TIME_MIN
        self._folded = TIME_MIN  # the greatest event time folded in (EMIT EVERY)

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Fold the rows and answer as EMIT says."""
        train = inputs[0]
        rows = self._admitted(train, out)
        if self._kind is EmitKind.CHANGES:
            out.emit(self._change(train, rows))
            return
        if self._kind is EmitKind.EVERY:
            out.emit(self._early(train, rows))
            return
        if rows.rows:
            self._fold(rows, self._ids(rows))
        out.emit(self._final(train) if train.ended else progress(train, self.schemas[0]))

    # Rows in -----------------------------------------------------------------------------------------------------------

    def _admitted(self, train: Train, out: Emitter) -> Train:
        """Leave out rows before the landmark, rows that touch no group, and new groups beyond STATE n ROWS."""
        rows = train
        if self._recipe.live is not None and rows.rows:
            rows = rows.select(rows.column(self._recipe.live).truths())
        if self._from is not None and rows.rows:
            rows = rows.select(rows.time.array() >= self._from)
        if self._limit is not None and rows.rows and self._recipe.keys:
            ids = self._ids(rows)
            if self._keys.size > self._limit:
                refused = np.flatnonzero(ids >= self._limit)
                self._keys.free(distinct(ids[refused]))
                out.errors.append(EvaluationErrors(f"the query holds {self._limit} groups already", rows.take(refused)))
                rows = rows.select(ids < self._limit)
        return rows

    def _ids(self, rows: Train) -> Int64Array:
        if isinstance(self._keys, NoKeys):
            return np.zeros(rows.rows, dtype=np.int64)
        return self._keys.encode([rows.column(k) for k in self._recipe.keys])

    def _fold(self, rows: Train, ids: Int64Array) -> None:
        table = self._aggregates.table
        table.reserve_groups(self._keys.size)
        lo = self._slot * table.capacity
        self._aggregates.update(Batch(rows, 0, rows.rows, ids, lo, lo + table.capacity, self._ordinal))
        self._ordinal += rows.rows

    # Answers -----------------------------------------------------------------------------------------------------------

    def _columns(self, ids: Int64Array, end_us: int) -> list[Column]:
        columns = [*self._keys.columns(ids), *self._aggregates.combine([self._slot], ids)]
        if self._has_bounds:
            start = TIME_MIN if self._from is None else self._from
            columns.append(
                Column(TIMESTAMP, np.full(len(ids), start, dtype=np.int64), None if start != TIME_MIN else np.zeros(len(ids), bool))
            )
            columns.append(Column(TIMESTAMP, np.full(len(ids), end_us, dtype=np.int64)))
        return columns

    def _change(self, train: Train, rows: Train) -> Train:
        if rows.rows == 0:
            return progress(train, self.schemas[0])
        ids = self._ids(rows)
        self._aggregates.table.reserve_groups(self._keys.size)
        touched = distinct(ids)
        known = self._aggregates.rows.combine([self._slot], touched) > 0
        before = self._columns(touched[known], 0)
        self._fold(rows, ids)
        after = self._columns(touched, 0)
        if self._has_bounds:  # a running window has no bounds that stay: its end is the newest row's time
            before, after = self._bounded(before, rows), self._bounded(after, rows)
        last = np.zeros(self._keys.size, dtype=np.int64)
        last[ids] = np.arange(len(ids), dtype=np.int64)
        compared = len(self._recipe.keys) + len(self._recipe.aggregates)
        changes = Changes(before, after, known, np.ones(len(known), dtype=np.bool_), compared)
        columns, groups = changes.ordered(changes.groups, last[touched][changes.groups])
        rows_at = last[touched][groups]
        return made_train(train, self.schemas[0], columns, rows.seq.array()[rows_at], rows.time.array()[rows_at])

    def _bounded(self, columns: list[Column], rows: Train) -> list[Column]:
        return [*columns[:-1], Column(TIMESTAMP, np.full(len(columns[-1]), int(rows.time.array().max()), dtype=np.int64))]

    def _final(self, train: Train) -> Train:
        ids = self._aggregates.rows.present([self._slot])
        self._newest = max(self._newest, train.track.last_open)
        columns = self._columns(ids, self._newest)
        if self._recipe.emit.always and not len(ids):
            nothing = np.zeros(1, dtype=np.int64)
            columns = aggregate_ranges(self._recipe.aggregates, Ranges(no_rows(self._inputs).columns.__getitem__, 0, nothing, nothing))
        count = len(columns[0]) if columns else 0
        seq = np.full(count, train.hi - 1, dtype=np.int64)
        time = np.full(count, self._newest, dtype=np.int64)
        return made_train(train, self.schemas[0], columns, seq, time)

    def standing(self, lo: int, watermark_us: int) -> Train:
        """Return the answers that stand now as the base does."""
        ids = self._aggregates.rows.present([self._slot])
        columns = [*self._columns(ids, self._newest), change_column(np.ones(len(ids), dtype=np.bool_))]
        base = empty_train(self.schemas[0], lo, lo + 1, constant_track(lo, lo + 1, watermark_us))
        seq = np.full(len(ids), lo, dtype=np.int64)
        return made_train(base, self.schemas[0], columns, seq, np.full(len(ids), self._newest, dtype=np.int64))

    # EMIT EVERY --------------------------------------------------------------------------------------------------------

    def _early(self, train: Train, rows: Train) -> Train:
        self._watermark = max(self._watermark, train.track.start)
        track = minimum_track([train.track], self._watermark)
        if rows.rows:
            self._waiting = concat_rows(self._waiting, buffered(rows, 0))
            self._newest = max(self._newest, int(rows.time.array().max()))
        parts: list[tuple[int, int, Int64Array, list[Column]]] = []
        for moment, seq in self._moments(track.end, track):
            self._take_waiting(moment, seq)
            self._add(parts, moment, seq)
        self._watermark = max(self._watermark, track.end)
        if train.ended:
            self._take_waiting(TIME_MAX, train.hi)
            self._add(parts, self._newest + 1, train.hi - 1)
        if not parts:
            return progress(train, self.schemas[0], track)
        columns = [concat_columns(list(c)) for c in zip(*(p[3] for p in parts), strict=True)]
        seqs = np.concatenate([np.full(len(p[2]), p[1], dtype=np.int64) for p in parts])
        time = np.concatenate([np.full(len(p[2]), p[0] - 1, dtype=np.int64) for p in parts])
        return made_train(train, self.schemas[0], columns, seqs, time, track)

    def _moments(self, watermark: int, track: WatermarkTrack) -> list[tuple[int, int]]:
        """Return the multiples of d that W crosses now, not beyond the last event time, with the seq of the item that moved it."""
        every = self._recipe.emit.every_us
        last = (max(self._newest, track.last_open) if watermark == TIME_MAX else watermark) // every
        if self._newest == TIME_MIN:
            return []
        instants = distinct(self._waiting.time)
        if self._folded != TIME_MIN:
            instants = distinct(np.append(instants, self._folded))
        lower = int(instants[0]) if self._watermark == TIME_MIN and len(instants) else self._watermark
        moments = moments_after(every, lower + 1, last * every, instants + 1)
        seqs = track.first_reaching(moments)
        return list(zip(moments.tolist(), seqs.tolist(), strict=True))

    def _take_waiting(self, moment: int, seq: int) -> None:
        """Fold the waiting rows below a moment that had come by then, in order of arrival."""
        due = (self._waiting.time < moment) & (self._waiting.seq <= seq)
        if not due.any():
            return
        rows = self._waiting.take(np.flatnonzero(due))
        self._folded = max(self._folded, int(rows.time.max()))
        self._waiting = self._waiting.take(np.flatnonzero(~due))
        train = as_train(rows, self._inputs)
        self._fold(train, self._ids(train))

    def _add(self, parts: list[tuple[int, int, Int64Array, list[Column]]], moment: int, seq: int) -> None:
        ids = self._aggregates.rows.present([self._slot])
        if len(ids):
            parts.append((moment, seq, ids, self._columns(ids, moment)))

    def state_rows(self) -> int:
        """Return groups and waiting rows."""
        return self._keys.alive + len(self._waiting)

    def state_bytes(self) -> int:
        """Return the bytes held."""
        return self._keys.nbytes() + self._aggregates.nbytes() + self._waiting.nbytes()


class InstantAggregate(RunningAggregate):
    """An aggregate without a window as a relation over time, for ISTREAM, DSTREAM and RSTREAM: what changes at each instant.

    The change log of a RunningAggregate takes a train's rows together, so which of the values in between it shows depends on trains; its
    sum does not (K9). CQL's words look at the relation at every instant, so here rows wait until W has passed their time and the rows of
    one instant, in order, are folded together. A row below W is late, as for a sliding window (K4).
    """

    calls_late = True
    state_name = "instant_aggregate"
    state_fields: tuple[str, ...] = (*RunningAggregate.state_fields, "_intake")

    def __init__(self, recipe: AggregateRecipe, inputs: Schema) -> None:
        super().__init__(recipe, inputs)
        self._intake = Intake(inputs)

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Take rows in; give the changes of the instants that W has passed."""
        train = inputs[0]
        taken = self._intake.take(train, out)
        out.emit(self._changes(train, taken.track, taken.ready, out))

    def _changes(self, train: Train, track: WatermarkTrack, ready: BufferedRows, out: Emitter) -> Train:
        parts: list[list[Column]] = []
        times: list[Int64Array] = []
        starts = np.flatnonzero(np.diff(ready.time, prepend=ready.time[:1] - 1)) if len(ready) else np.empty(0, dtype=np.int64)
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(ready)], strict=False):
            rows = self._admitted(as_train(ready.take(np.arange(start, stop, dtype=np.int64)), self._inputs), out)
            changed = self._change(rows, rows)
            if changed.rows:
                parts.append(changed.columns())
                times.append(changed.time.array())
        if not parts:
            return progress(train, self.schemas[0], track)
        columns = [concat_columns(list(c)) for c in zip(*parts, strict=True)]
        instants = np.concatenate(times)
        target = np.clip(instants, track.start, track.end - 1) + 1
        return made_train(train, self.schemas[0], columns, track.first_reaching(target), instants, track)

    def wake_at_us(self) -> int | None:
        """Return when W must tick past the oldest row that waits."""
        return None if self._intake.oldest_us is None else self._intake.oldest_us + 1

    def state_rows(self) -> int:
        """Return groups and waiting rows."""
        return super().state_rows() + len(self._intake)

    def state_bytes(self) -> int:
        """Return the bytes held."""
        return super().state_bytes() + self._intake.nbytes()


def as_train(rows: BufferedRows, schema: Schema) -> Train:
    """Return kept rows as a train, for what reads columns by position."""
    count = len(rows)
    lo, hi = (int(rows.seq.min()), int(rows.seq.max()) + 1) if count else (0, 0)
    return Train(
        schema,
        rows.columns,
        rows=count,
        lo=lo,
        hi=hi,
        seq=Numbers(count, array=rows.seq),
        time=Numbers(count, array=rows.time),
        arrival=NO_ARRIVALS,
        track=constant_track(lo, hi, TIME_MIN),
    )
