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
from millstream.engine.data.column import Column, Mask, taken_or_null
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN, WatermarkTrack, lagged, lagged_track, minimum_track
from millstream.engine.expressions.compile import compile_predicate
from millstream.engine.expressions.kernel import EvaluationContext
from millstream.engine.language.recipes import AsofJoinRecipe, JoinKind
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.join_keys import JoinKeys
from millstream.engine.operators.outputs import MinimumWatermark, made_train, progress
from millstream.engine.operators.row_operators import report_errors
from millstream.engine.operators.running_aggregate import as_train

LEFT, RIGHT = 0, 1
ROWS_KEPT_MIN = 64  # of versions, however few are needed: a merge has a cost of its own


class AsofJoin(Operator):
    """For each left row the nearest right row of its key, in one direction of time."""

    calls_late = True
    state_name = "asof_join"
    state_fields: tuple[str, ...] = ("_watermark", "_right_reached", "_waiting", "_versions", "_ordinals")

    def __init__(self, recipe: AsofJoinRecipe, inputs: Sequence[Schema]) -> None:
        super().__init__([recipe.schema])
        self._recipe = recipe
        self._inputs = tuple(inputs)
        self._held = Versions(recipe, inputs)
        self._residual = None if recipe.residual is None else compile_predicate(recipe.residual)
        self._watermark = MinimumWatermark(2)
        self._right_reached = TIME_MIN
        self._waiting = no_rows(inputs[LEFT])
        self._ordinals = [0, 0]
        self._lags = recipe.forward and recipe.kind is JoinKind.LEFT

    def attached(self, watermarks_us: Sequence[int], idle: Sequence[bool]) -> int:
        """Take up W where the inputs stand."""
        self._right_reached = watermarks_us[RIGHT]
        watermark = self._watermark.attached(watermarks_us, idle)
        if not self._lags:
            return watermark
        return TIME_MIN if self._recipe.within_us is None else lagged(watermark, self._recipe.within_us)

    @property
    def _versions(self) -> BufferedRows:
        """The versions that a left row may still need, in order: what a state keeps of them."""
        return self._held.whole()

    @_versions.setter
    def _versions(self, rows: BufferedRows) -> None:
        self._held = Versions(self._recipe, self._inputs)
        self._held.add(rows)

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Take both sides in, answer the left rows whose time the right side has passed."""
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
        train.idle = self._watermark.mark(inputs)
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
                self._held.add(right.slice(done, place))
                self._answer(track, int(right.seq[place]), parts, out)
                done = place
        self._held.add(right.slice(done, len(right)))
        self._answer(track, track.hi, parts, out)

    def _answer(self, track: WatermarkTrack, before_seq: int, parts: list[tuple[BufferedRows, Int64Array]], out: Emitter) -> None:
        """Answer waiting left rows for which that is certain by an item below `before_seq`."""
        if not len(self._waiting):
            return
        ahead = self._held.find(self._waiting) if self._recipe.forward else None
        at = self._certain_at(track, ahead)
        due = (at >= 0) & (at < before_seq)
        if not due.any():
            return
        rows, at, ahead = self._waiting.take(np.flatnonzero(due)), at[due], None if ahead is None else ahead.take(due)
        self._waiting = self._waiting.take(np.flatnonzero(~due))
        order = np.lexsort((rows.ordinal, at))
        rows, at = rows.take(order), at[order]
        matched = self._match(rows, out) if ahead is None else ahead.take(order)
        if self._recipe.kind is not JoinKind.LEFT:
            met = np.flatnonzero(matched.run >= 0)
            rows, at, matched = rows.take(met), at[met], matched.take(met)
        if len(rows):
            parts.append((self._joined(rows, matched), at))

    def _certain_at(self, track: WatermarkTrack, ahead: Found | None) -> Int64Array:
        """Return the seq of the item after which no right row can change the answer, -1 where that is still to come.

        `ahead` are the versions found so far, looking ahead.
        """
        rows, came = self._waiting, self._waiting.seq
        if ahead is None:
            needed = np.minimum(rows.time, TIME_MAX - 1) + (0 if self._recipe.strict else 1)
        else:
            found, within = ahead.run >= 0, self._recipe.within_us
            # Beyond the bound no right row counts, so W need only reach the time behind it.
            needed = np.full(len(rows), TIME_MAX) if within is None else np.minimum(rows.time, TIME_MAX - 2 - within) + within + 1
            needed[found] = np.minimum(ahead.time[found], TIME_MAX - 1) + 1
            came = came.copy()
            came[found] = np.maximum(came[found], ahead.seq[found])
        at = np.full(len(rows), -1, dtype=np.int64)
        passed = needed <= track.start
        at[passed] = came[passed]
        now = ~passed & (needed <= track.end)
        if now.any():
            at[now] = np.maximum(track.first_reaching(needed[now]), came[now])
        return at

    def _match(self, rows: BufferedRows, out: Emitter) -> Found:
        """Return for each left row its version."""
        found = self._held.find(rows)
        if self._residual is not None:
            train, context = as_train(rows, self._inputs[LEFT]), EvaluationContext()
            true = self._residual(train, context)
            report_errors(context, train, out)
            found.run[~true] = -1
        return found

    def _joined(self, rows: BufferedRows, matched: Found) -> BufferedRows:
        time = np.where(matched.run >= 0, matched.time, rows.time) if self._recipe.forward else rows.time
        return BufferedRows([*rows.columns, *self._held.columns(matched)], time, rows.seq, rows.ordinal)

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
        self._held.forget(bound)

    def state_rows(self) -> int:
        """Return the rows that wait and the versions kept."""
        return len(self._waiting) + self._held.rows

    def state_bytes(self) -> int:
        """Return their bytes."""
        return self._waiting.nbytes() + self._held.nbytes()


@dataclass(slots=True)
class Found:
    """For each left row the run and the place in it of its version, its time and seq; run -1 for none."""

    run: Int64Array
    place: Int64Array
    time: Int64Array
    seq: Int64Array

    def take(self, index: Int64Array | Mask) -> Found:
        """Return what was found for some of the rows."""
        return Found(self.run[index], self.place[index], self.time[index], self.seq[index])


class _Run:
    """Versions by key, time and arrival."""

    __slots__ = ("ids", "places", "rows")

    def __init__(self, rows: BufferedRows, ids: Int64Array) -> None:
        order = np.lexsort((rows.ordinal, rows.time, ids))
        self.rows, self.ids = rows.take(order), ids[order]
        self.places = Places(self.ids, self.rows.time)


class Versions:
    """The right rows that left rows may need, in runs of rising size, the youngest last: a train costs what it brings, not what is held.

    Runs of like size are merged, so that a version is sorted about log2(versions) times. What no left row needs any more is left out when
    all is merged, which is whenever as much has come as was kept. `rows` counts what is held, `sorted_rows` what was ever sorted.
    """

    def __init__(self, recipe: AsofJoinRecipe, inputs: Sequence[Schema]) -> None:
        self._recipe = recipe
        self._keys = JoinKeys(recipe, inputs)
        self._nothing = no_rows(inputs[RIGHT])
        self._runs: list[_Run] = []
        self._bound = TIME_MIN
        self._rows_max = ROWS_KEPT_MIN
        self.rows = 0
        self.sorted_rows = 0

    def add(self, rows: BufferedRows) -> None:
        """Take versions in."""
        if not len(rows):
            return
        ids = self._keys.encode_columns(RIGHT, rows.columns)
        known = ids >= 0
        if not known.all():
            rows, ids = rows.kept(known), ids[known]
        if not len(rows):
            return
        self.rows += len(rows)
        self._append(rows, ids)
        while len(self._runs) > 1 and len(self._runs[-2].ids) < 2 * len(self._runs[-1].ids):
            self._merge(len(self._runs) - 2)

    def _append(self, rows: BufferedRows, ids: Int64Array) -> None:
        self.sorted_rows += len(rows)
        self._runs.append(_Run(rows, ids))

    def _merge(self, first: int) -> None:
        """Make one run of those from `first` on."""
        runs, self._runs = self._runs[first:], self._runs[:first]
        self._append(concat_rows(*(run.rows for run in runs)), np.concatenate([run.ids for run in runs]))

    def forget(self, bound: int) -> None:
        """Learn below which time no left row comes any more, and leave out what only such could need, if that is worth a merge."""
        self._bound = bound
        if self._runs and bound != TIME_MIN and (self.rows > self._rows_max or bound == TIME_MAX):
            self._compact()

    def _compact(self) -> None:
        if len(self._runs) > 1:
            self._merge(0)
        (run,) = self._runs
        keep = self._needed(run)
        self._keys.released(run.ids[~keep])
        self._runs, self.rows = [], int(np.count_nonzero(keep))
        if self.rows:
            self._append(run.rows.kept(keep), run.ids[keep])
        self._rows_max = max(ROWS_KEPT_MIN, 2 * self.rows)

    def _needed(self, run: _Run) -> Mask:
        """Return which versions a left row at or above the bound may need."""
        bound, time, within = self._bound, run.rows.time, self._recipe.within_us
        if self._recipe.forward or bound == TIME_MAX:
            return np.asarray(time >= bound) if bound != TIME_MAX else np.zeros(len(time), dtype=np.bool_)
        below = time < bound
        last_below = below.copy()
        last_below[:-1] &= (run.ids[1:] != run.ids[:-1]) | ~below[1:]
        needed: Mask = last_below | ~below
        return needed if within is None else needed & (time >= max(bound, TIME_MIN + within) - within)

    def find(self, rows: BufferedRows) -> Found:
        """Return the version of each left row: the nearest in time, of equal times the last to arrive."""
        size, forward = len(rows), self._recipe.forward
        found = Found(*(np.full(size, fill, dtype=np.int64) for fill in (-1, 0, TIME_MAX if forward else TIME_MIN, 0)))
        if not self._runs or not size:
            return found
        ids = self._keys.encode_columns(LEFT, rows.columns)
        best = np.full(size, -1, dtype=np.int64)
        for number, run in enumerate(self._runs):
            at = run.places.first_from(ids, rows.time, strict=self._recipe.strict) if forward else None
            at = run.places.last_upto(ids, rows.time, strict=self._recipe.strict) if at is None else at
            ok = np.flatnonzero(at >= 0)
            time, ordinal = run.rows.time[at[ok]], run.rows.ordinal[at[ok]]
            nearer = time < found.time[ok] if forward else time > found.time[ok]
            ok = ok[nearer | (found.run[ok] < 0) | ((time == found.time[ok]) & (ordinal > best[ok]))]
            place = at[ok]
            found.run[ok], found.place[ok], best[ok] = number, place, run.rows.ordinal[place]
            found.time[ok], found.seq[ok] = run.rows.time[place], run.rows.seq[place]
        self._keys.released(ids)
        within = self._recipe.within_us
        if within is not None:
            met = np.flatnonzero(found.run >= 0)
            far = np.abs(found.time[met] - rows.time[met]) > within
            found.run[met[far]] = -1
        return found

    def columns(self, found: Found) -> list[Column]:
        """Return the columns of what was found, NULL where nothing was."""
        index = np.full(len(found.run), -1, dtype=np.int64)
        parts, at = [self._nothing], 0
        for number, run in enumerate(self._runs):
            mine = np.flatnonzero(found.run == number)
            if len(mine):
                parts.append(run.rows.take(found.place[mine]))
                index[mine] = np.arange(at, at + len(mine))
                at += len(mine)
        return [taken_or_null(column, index) for column in concat_rows(*parts).columns]

    def whole(self) -> BufferedRows:
        """Return what is needed, by time and arrival."""
        if not self._runs:
            return self._nothing
        self._compact()
        return self._runs[0].rows.in_order() if self._runs else self._nothing

    def nbytes(self) -> int:
        """Return the bytes held."""
        return sum(run.rows.nbytes() + int(run.ids.nbytes) for run in self._runs)


class Places:
    """Rows sorted by (group, clock), to be found by both."""

    def __init__(self, groups: Int64Array, clocks: Int64Array) -> None:
        self._groups, self._clocks = groups, clocks
        self._different = distinct(clocks)
        self._span = len(self._different) + 1
        self._keys = groups * self._span + np.searchsorted(self._different, clocks) + 1

    def find(self, groups: Int64Array, clocks: Int64Array) -> Int64Array:
        """Return for each pair how many rows stand before, or at, (group, clock)."""
        rank = np.searchsorted(self._different, clocks, side="right")
        return np.searchsorted(self._keys, groups * self._span + rank, side="right")

    def last_upto(self, groups: Int64Array, clocks: Int64Array, *, strict: bool) -> Int64Array:
        """Return the place of the last row of each group whose clock is at most (`strict`: below) the one given; -1 for none."""
        stop = self.find(groups, clocks - 1 if strict else clocks)
        return np.where((groups >= 0) & (stop > np.searchsorted(self._groups, groups, side="left")), stop - 1, -1)

    def first_from(self, groups: Int64Array, clocks: Int64Array, *, strict: bool) -> Int64Array:
        """Return the last place of the first clock of each group that is at least (`strict`: above) the one given; -1 for none."""
        first = self.find(groups, clocks if strict else clocks - 1)
        there = (groups >= 0) & (first < np.searchsorted(self._groups, groups, side="right"))
        clock = self._clocks[np.where(there, first, 0)]
        return np.where(there, self.find(groups, clock) - 1, -1)
