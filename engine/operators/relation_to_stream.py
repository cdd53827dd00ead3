"""ISTREAM, DSTREAM and RSTREAM of CQL over a change log, and EMIT FINAL.

The changes of one instant are taken together, and what cancels drops out: 'i' gives the rows that came, 'd' those that went, 'r' the whole
relation after the instant, or with EVERY at multiples of a duration. An instant is over once W has passed it. 'f' gives the rows that stand
at the end of the stream, in the order of their values: which of them came first depends on what a change log left out (K9, K15).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data import limits
from millstream.engine.data.allowance import cut_rows, pause
from millstream.engine.data.arrays import distinct
from millstream.engine.data.buffered import BufferedRows, buffered, concat_rows, no_rows
from millstream.engine.data.column import concat_columns
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN, WatermarkTrack, minimum_track
from millstream.engine.language.recipes import OrderColumn, RelationToStreamRecipe
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.ordered_rows import order_keys
from millstream.engine.operators.outputs import is_plus, made_train, progress
from millstream.engine.windows.early import moments_after

FINAL = "f"
FINAL_WAITING_MIN = 4096  # changes that are kept before they are applied together: each time costs the whole relation


class RelationToStream(Operator):
    """Keeps the changes of instants that are not over, and the relation itself."""

    state_name = "relation_to_stream"
    state_fields: tuple[str, ...] = ("_waiting", "_relation", "_watermark", "_newest", "_applied", "_ordinal")

    def __init__(self, recipe: RelationToStreamRecipe, inputs: Schema) -> None:
        super().__init__([recipe.schema])
        self._recipe = recipe
        self._waiting = no_rows(inputs)
        self._relation = no_rows(inputs)
        self._values = [i for i in range(len(inputs)) if i != recipe.change]
        self._watermark = TIME_MIN
        self._newest = TIME_MIN
        self._applied = TIME_MIN  # the greatest instant whose changes the relation has
        self._ordinal = 0

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Take changes in; answer for the instants that are over."""
        train = inputs[0]
        if self._recipe.stream == FINAL:
            out.emit(self._final(train))
            return
        # Each instant looks at the whole relation, and a value costs more here than where values are only read.
        cut_rows(train, max(1, limits.CALL_VALUES_MAX // (4 * max(1, len(self._relation)))))
        self._watermark = max(self._watermark, train.track.start)
        track = minimum_track([train.track], self._watermark)
        if train.rows:
            self._waiting = concat_rows(self._waiting, buffered(train, self._ordinal))
            self._ordinal += train.rows
            self._newest = max(self._newest, int(train.time.array().max()))
        before, self._watermark = self._watermark, max(self._watermark, track.end)
        out.emit(self._answer(train, track, before))

    def _final(self, train: Train) -> Train:
        """Take changes in, and cancel what cancels now and then; at the end answer with what stands."""
        if train.rows:
            self._waiting = concat_rows(self._waiting, buffered(train, self._ordinal))
            self._ordinal += train.rows
            self._newest = max(self._newest, int(train.time.array().max()))
        if train.ended or len(self._waiting) >= max(FINAL_WAITING_MIN, len(self._relation)):
            self._apply(self._waiting)
            self._waiting = self._waiting.take(np.empty(0, dtype=np.int64))
        if not train.ended or not len(self._relation):
            return progress(train, self.schemas[0])
        columns = [self._relation.columns[i] for i in self._values]
        order = np.lexsort(order_keys(columns, [OrderColumn(i) for i in range(len(columns))])[::-1])
        count = len(order)
        seqs, times = np.full(count, train.hi - 1, dtype=np.int64), np.full(count, self._newest, dtype=np.int64)
        return made_train(train, self.schemas[0], [c.take(order) for c in columns], seqs, times)

    def _answer(self, train: Train, track: WatermarkTrack, before: int) -> Train:
        passed = self._waiting.time < self._watermark
        ready = self._waiting.take(np.flatnonzero(passed))
        self._waiting = self._waiting.take(np.flatnonzero(~passed))
        parts: list[tuple[BufferedRows, int, int]] = []
        if self._recipe.stream == "r" and self._recipe.every_us is not None:
            self._at_moments(train, ready, track, before, parts)
        else:
            for instant in distinct(ready.time).tolist():
                self._instant(ready.take(np.flatnonzero(ready.time == instant)), instant, track, parts)
                pause()
        parts = [p for p in parts if len(p[0])]
        if not parts:
            return progress(train, self.schemas[0], track)
        columns = [concat_columns([p[0].columns[i] for p in parts]) for i in self._values]
        seqs = np.concatenate([np.full(len(p[0]), p[1], dtype=np.int64) for p in parts])
        times = np.concatenate([np.full(len(p[0]), p[2], dtype=np.int64) for p in parts])
        return made_train(train, self.schemas[0], columns, seqs, times, track)

    def _seq(self, after: int, track: WatermarkTrack) -> int:
        """Return the seq of the item that moved W to `after` or beyond."""
        if track.start == track.end:
            return track.hi - 1
        target = np.clip(np.array([after], dtype=np.int64), track.start + 1, track.end)
        return int(track.first_reaching(target)[0])

    def _instant(self, changes: BufferedRows, instant: int, track: WatermarkTrack, parts: list[tuple[BufferedRows, int, int]]) -> None:
        came, went = self._apply(changes)
        answer = {"i": came, "d": went, "r": self._relation}[self._recipe.stream]
        parts.append((answer, self._seq(instant + 1, track), instant))

    def _at_moments(
        self, train: Train, ready: BufferedRows, track: WatermarkTrack, before: int, parts: list[tuple[BufferedRows, int, int]]
    ) -> None:
        """Answer at the multiples of d that W has passed, with the changes up to and at each, none after the last event time."""
        every = self._recipe.every_us
        assert every is not None
        if self._newest == TIME_MIN:
            return
        instants = distinct(ready.time)
        if self._applied != TIME_MIN:
            instants = distinct(np.append(instants, self._applied))
        upto = self._watermark - 1
        if self._watermark == TIME_MAX:  # what changed nothing moved W all the same, before the end of the stream did
            upto = max(self._newest, track.last_open)
        lower = (int(instants[0]) if len(instants) else self._newest) if before == TIME_MIN else before
        for moment in moments_after(every, lower, upto, instants).tolist():
            due = ready.time <= moment
            self._apply_in_turn(ready.take(np.flatnonzero(due)))
            ready = ready.take(np.flatnonzero(~due))
            parts.append((self._relation, self._seq(moment + 1, track), moment))
        self._apply_in_turn(ready)

    def _apply_in_turn(self, changes: BufferedRows) -> None:
        """Apply changes instant by instant: a row that goes and comes again later stands behind those that stayed."""
        for instant in distinct(changes.time).tolist():
            self._apply(changes.take(np.flatnonzero(changes.time == instant)))

    def _apply(self, changes: BufferedRows) -> tuple[BufferedRows, BufferedRows]:
        """Apply changes to the relation; return the rows that came and went, less what cancels."""
        rows = concat_rows(self._relation, changes)
        if len(changes) == 0:
            return changes, changes
        self._applied = max(self._applied, int(changes.time.max()))
        codes = key_encoder([rows.columns[i].type for i in self._values]).encode([rows.columns[i] for i in self._values])
        sign = np.where(is_plus(rows.columns[self._recipe.change]), 1, -1)
        old = len(self._relation)
        size = int(codes.max()) + 1
        net = np.bincount(codes[old:], weights=sign[old:], minlength=size).astype(np.int64)
        came = self._first(rows, codes, np.arange(len(rows)) >= old, sign > 0, net)
        went = self._first(rows, codes, np.arange(len(rows)) >= old, sign < 0, -net)
        standing = np.bincount(codes, weights=sign, minlength=size).astype(np.int64)
        self._relation = self._first(rows, codes, np.ones(len(rows), dtype=np.bool_), sign > 0, standing)
        return came, went

    def _first(self, rows: BufferedRows, codes: Int64Array, among: np.ndarray, signed: np.ndarray, wanted: Int64Array) -> BufferedRows:
        """Return for each code the first `wanted` rows of one sign, in order."""
        index = np.flatnonzero(among & signed)
        order = index[np.argsort(codes[index], kind="stable")]
        sorted_codes = codes[order]
        place = np.arange(len(order)) - np.searchsorted(sorted_codes, sorted_codes, side="left")
        return rows.take(np.sort(order[place < wanted[sorted_codes]]))

    def wake_at_us(self) -> int | None:
        """Return when W must tick past the oldest instant that waits."""
        return int(self._waiting.time.min()) + 1 if len(self._waiting) and self._recipe.stream != FINAL else None

    def state_rows(self) -> int:
        """Return the rows held."""
        return len(self._waiting) + len(self._relation)

    def state_bytes(self) -> int:
        """Return their bytes."""
        return self._waiting.nbytes() + self._relation.nbytes()
