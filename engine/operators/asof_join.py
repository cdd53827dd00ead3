"""As-of join (K18): a left row meets the right row of its keys with the greatest time not above its own, or the least not below it.

At equal times the last right row to arrive counts. A left row is answered by the item that made the answer certain: looking back, when the
right side's W passes its time; looking ahead, when W passes the time of the right row that it found, or the bound within which none was.
Versions are kept as long as a left row may need them.

The output comes by those items, then by the left rows' arrival. Looking back, rows have the left row's time, looking ahead the right one's;
a LEFT join that looks ahead has rows without one at the left row's time, so that its W is the bound behind.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.arrays import distinct
from millstream.engine.data.arrivals import latest_arrivals
from millstream.engine.data.buffered import BufferedRows, buffered, concat_rows, no_rows
from millstream.engine.data.column import taken_or_null
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN, WatermarkTrack, lagged, lagged_track, minimum_track
from millstream.engine.expressions.compile import compile_predicate
from millstream.engine.expressions.kernel import EvaluationContext
from millstream.engine.language.recipes import AsofJoinRecipe, JoinKind
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.join_keys import KeyColumns
from millstream.engine.operators.outputs import MinimumWatermark, made_train, progress
from millstream.engine.operators.row_operators import report_errors
from millstream.engine.operators.running_aggregate import as_train

LEFT, RIGHT = 0, 1


class AsofJoin(Operator):
    """For each left row the nearest right row of its key, in one direction of time."""

    calls_late = True
    state_name = "asof_join"
    state_fields: tuple[str, ...] = ("_watermark", "_right_reached", "_waiting", "_versions", "_ordinals")

    def __init__(self, recipe: AsofJoinRecipe, inputs: Sequence[Schema]) -> None:
        super().__init__([recipe.schema])
        self._recipe = recipe
        self._inputs = tuple(inputs)
        self._keys = KeyColumns(recipe, inputs)
        self._residual = None if recipe.residual is None else compile_predicate(recipe.residual)
        self._watermark = MinimumWatermark(2)
        self._right_reached = TIME_MIN
        self._waiting = no_rows(inputs[LEFT])
        self._versions = no_rows(inputs[RIGHT])
        self._ordinals = [0, 0]
        self._lags = recipe.forward and recipe.kind is JoinKind.LEFT

    def attached(self, watermarks_us: Sequence[int], idle: Sequence[bool]) -> int:
        """Take up W where the inputs stand."""
        self._right_reached = watermarks_us[RIGHT]
        watermark = self._watermark.attached(watermarks_us, idle)
        if not self._lags:
            return watermark
        return TIME_MIN if self._recipe.within_us is None else lagged(watermark, self._recipe.within_us)

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Take both sides in, answer the left rows whose time the right side has passed."""
        was_idle = self._watermark.all_idle
        right_idle = self._watermark.idle[RIGHT]
        track = self._watermark.advance(inputs)
        # While the right side is idle it does not hold anything back: W itself is how far things have come.
        right_track = track if right_idle and not inputs[RIGHT].rows else minimum_track([inputs[RIGHT].track], self._right_reached)
        left = self._admit(LEFT, inputs[LEFT], track, out)
        right = self._admit(RIGHT, inputs[RIGHT], track, out)
        self._waiting = concat_rows(self._waiting, left)
        parts: list[tuple[BufferedRows, Int64Array]] = []
        self._in_order(right, right_track, parts, out)
        self._right_reached = max(self._right_reached, right_track.end)
        self._forget()
        behind = lagged_track(track, self._recipe.within_us or 0, self._recipe.within_us is None) if self._lags else track
        train = self._answered(inputs[LEFT], behind, parts)
        train.arrival = latest_arrivals([t.arrival for t in inputs])
        train.ended = all(t.ended for t in inputs)
        train.idle = self._watermark.all_idle if self._watermark.all_idle != was_idle else None
        train.flush = any(t.flush for t in inputs) and self._watermark.all_idle
        out.emit(train)

    def _admit(self, side: int, train: Train, track: WatermarkTrack, out: Emitter) -> BufferedRows:
        if train.rows:
            late = train.time.array() < track.before(train.seq.array())
            if late.any():
                out.late.append((side, train.take(np.flatnonzero(late))))
                train = train.select(~late)
        rows = buffered(train, self._ordinals[side])
        self._ordinals[side] += train.rows
        return rows

    def _in_order(self, right: BufferedRows, track: WatermarkTrack, parts: list[tuple[BufferedRows, Int64Array]], out: Emitter) -> None:
        """Add versions; one below the right side's own W comes too late for left rows that have been answered by then."""
        done = 0
        if len(right):
            below = np.flatnonzero(right.time < track.before(right.seq))
            for place in below.tolist():
                self._versions = concat_rows(self._versions, right.take(np.arange(done, place)))
                self._answer(track, int(right.seq[place]), parts, out)
                done = place
        self._versions = concat_rows(self._versions, right.take(np.arange(done, len(right))))
        self._answer(track, track.hi, parts, out)

    def _answer(self, track: WatermarkTrack, before_seq: int, parts: list[tuple[BufferedRows, Int64Array]], out: Emitter) -> None:
        """Answer waiting left rows for which that is certain by an item below `before_seq`."""
        if not len(self._waiting):
            return
        ahead = self._ahead(self._waiting) if self._recipe.forward else None
        at = self._certain_at(track, ahead)
        due = (at >= 0) & (at < before_seq)
        if not due.any():
            return
        rows, at, ahead = self._waiting.take(np.flatnonzero(due)), at[due], None if ahead is None else ahead[due]
        self._waiting = self._waiting.take(np.flatnonzero(~due))
        order = np.lexsort((rows.ordinal, at))
        rows, at = rows.take(order), at[order]
        matched = self._match(rows, out) if ahead is None else ahead[order]
        if self._recipe.kind is not JoinKind.LEFT:
            met = np.flatnonzero(matched >= 0)
            rows, at, matched = rows.take(met), at[met], matched[met]
        if len(rows):
            parts.append((self._joined(rows, matched), at))

    def _certain_at(self, track: WatermarkTrack, ahead: Int64Array | None) -> Int64Array:
        """Return the seq of the item after which no right row can change the answer, -1 where that is still to come.

        `ahead` are the positions of the versions found so far, looking ahead.
        """
        rows, came = self._waiting, self._waiting.seq
        if ahead is None:
            needed = np.minimum(rows.time, TIME_MAX - 1) + (0 if self._recipe.strict else 1)
        else:
            found, within = ahead >= 0, self._recipe.within_us
            # Beyond the bound no right row counts, so W need only reach the time behind it.
            needed = np.full(len(rows), TIME_MAX) if within is None else np.minimum(rows.time, TIME_MAX - 2 - within) + within + 1
            needed[found] = np.minimum(self._versions.time[ahead[found]], TIME_MAX - 1) + 1
            came = came.copy()
            came[found] = np.maximum(came[found], self._versions.seq[ahead[found]])
        at = np.full(len(rows), -1, dtype=np.int64)
        passed = needed <= track.start
        at[passed] = came[passed]
        now = ~passed & (needed <= track.end)
        if now.any():
            at[now] = np.maximum(track.first_reaching(needed[now]), came[now])
        return at

    def _ahead(self, rows: BufferedRows) -> Int64Array:
        """Return for each left row the position of the first version not before it, the last to arrive of equal ones; -1 for none yet."""
        versions = self._versions = self._versions.in_order()
        found = np.full(len(rows), -1, dtype=np.int64)
        if not len(versions):
            return found
        left_ids, right_ids = self._keys.ids(rows.columns, versions.columns)
        order = np.lexsort((np.arange(len(versions)), right_ids))
        groups, clocks = right_ids[order], versions.time[order]
        places = Places(groups, clocks)
        first = places.find(left_ids, rows.time if self._recipe.strict else rows.time - 1)
        ok = np.flatnonzero((left_ids >= 0) & (first < np.searchsorted(groups, left_ids, side="right")))
        at = clocks[first[ok]]
        if self._recipe.within_us is not None:
            near = at <= np.minimum(rows.time[ok], TIME_MAX - self._recipe.within_us) + self._recipe.within_us
            ok, at = ok[near], at[near]
        found[ok] = order[places.find(left_ids[ok], at) - 1]
        return found

    def _match(self, rows: BufferedRows, out: Emitter) -> Int64Array:
        """Return for each left row the position of its version, -1 for none."""
        versions = self._versions = self._versions.in_order()
        found = np.full(len(rows), -1, dtype=np.int64)
        if len(versions):
            left_ids, right_ids = self._keys.ids(rows.columns, versions.columns)
            order = np.lexsort((np.arange(len(versions)), right_ids))
            places = Places(right_ids[order], versions.time[order])
            stop = places.find(left_ids, rows.time - 1 if self._recipe.strict else rows.time)
            start = np.searchsorted(right_ids[order], left_ids, side="left")
            ok = (stop > start) & (left_ids >= 0)
            found[ok] = order[stop[ok] - 1]
            if self._recipe.within_us is not None:
                far = ok & (versions.time[found] < np.maximum(rows.time, TIME_MIN + self._recipe.within_us) - self._recipe.within_us)
                found[far] = -1
        if self._residual is not None:
            train, context = as_train(rows, self._inputs[LEFT]), EvaluationContext()
            true = self._residual(train, context)
            report_errors(context, train, out)
            found[~true] = -1
        return found

    def _joined(self, rows: BufferedRows, matched: Int64Array) -> BufferedRows:
        columns = [taken_or_null(c, matched) for c in self._versions.columns]
        time = rows.time
        if self._recipe.forward and len(self._versions):
            time = np.where(matched >= 0, self._versions.time[matched], time)
        return BufferedRows([*rows.columns, *columns], time, rows.seq, rows.ordinal)

    def _answered(self, train: Train, track: WatermarkTrack, parts: list[tuple[BufferedRows, Int64Array]]) -> Train:
        if not parts:
            return progress(train, self.schemas[0], track)
        rows, seqs = parts[0]
        for more, at in parts[1:]:
            rows, seqs = concat_rows(rows, more), np.concatenate((seqs, at))
        return made_train(train, self.schemas[0], rows.columns, seqs, rows.time, track)

    def _forget(self) -> None:
        """Keep of each key the versions that a left row at or after W, or one that waits, may need."""
        bound = self._watermark.value
        # What a waiting row has found ahead lies at or above W, or it would have been answered; what lies below W it has not found.
        if len(self._waiting) and not self._recipe.forward:
            bound = min(bound, int(self._waiting.time.min()))
        if bound == TIME_MIN or len(self._versions) == 0:
            return
        versions = self._versions.in_order()
        if self._recipe.forward:
            self._versions = versions.kept(versions.time >= bound)
            return
        ids = self._keys.ids_of(RIGHT, versions.columns)
        order = np.lexsort((np.arange(len(versions)), ids))
        in_order = ids[order]
        last_below = np.zeros(len(versions), dtype=np.bool_)
        below = versions.time[order] < bound
        last_below[:-1] = below[:-1] & ((in_order[1:] != in_order[:-1]) | ~below[1:])
        last_below[-1] = below[-1]
        keep = np.zeros(len(versions), dtype=np.bool_)
        keep[order] = last_below | ~below
        if self._recipe.within_us is not None:
            keep &= versions.time >= max(bound, TIME_MIN + self._recipe.within_us) - self._recipe.within_us
        self._versions = versions.kept(keep & (ids >= 0)) if bound != TIME_MAX else versions.take(np.empty(0, dtype=np.int64))

    def state_rows(self) -> int:
        """Return the rows that wait and the versions kept."""
        return len(self._waiting) + len(self._versions)

    def state_bytes(self) -> int:
        """Return their bytes."""
        return self._waiting.nbytes() + self._versions.nbytes()


class Places:
    """Rows sorted by (group, clock): where the rows of a group end that have a clock at most c."""

    def __init__(self, groups: Int64Array, clocks: Int64Array) -> None:
        self._different = distinct(clocks)
        self._span = len(self._different) + 1
        self._keys = groups * self._span + np.searchsorted(self._different, clocks) + 1

    def find(self, groups: Int64Array, clocks: Int64Array) -> Int64Array:
        """Return for each pair how many rows stand before, or at, (group, clock)."""
        rank = np.searchsorted(self._different, clocks, side="right")
        return np.searchsorted(self._keys, groups * self._span + rank, side="right")
