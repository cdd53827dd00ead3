"""Windowed symmetric join of two streams: inner, left, right and full.

Both inputs give the same interval. New left rows meet old right rows, new right rows old left ones, and the new ones each other; a row
of a self-join so meets itself exactly once. Pairs come by (seq of the later row, seq of the earlier), at the later row's seq, and carry
the later time (K19, K20). A row below W is late (K4), so whatever can no longer pair is known from W alone: state shrinks by it, and an
unmatched row of an outer join leaves when W passes the last time that could match it, at the seq of the item that moved W.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from millstream.engine.data import limits
from millstream.engine.data.allowance import CutAt, can_cut, claim, pause
from millstream.engine.data.arrivals import ArrivalTimes, latest_arrivals
from millstream.engine.data.column import Column, concat_columns, null_column
from millstream.engine.data.errors import InvalidDefinition
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Numbers, Train, empty_train
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN, WatermarkTrack, lagged_track
from millstream.engine.expressions.compile import compile_predicate
from millstream.engine.expressions.kernel import EvaluationContext, Predicate
from millstream.engine.language.recipes import JoinKind, JoinRecipe
from millstream.engine.operators.contract import Emitter, EvaluationErrors, Operator
from millstream.engine.operators.join_keys import JoinKeys
from millstream.engine.operators.join_state import NO_KEY, RowStore, Run, SideState
from millstream.engine.operators.outputs import MinimumWatermark, Stand

COMPOSITE_MAX = 2**62


@dataclass(slots=True)
class Pairs:
    """Rows of a left and a right store that belong together; a store of None stands for NULLs. `left_at`: seq of a padded row."""

    left: RowStore | None
    at_left: Int64Array
    right: RowStore | None
    at_right: Int64Array
    left_at: Int64Array | None = None

    def sides(self) -> tuple[tuple[RowStore | None, Int64Array], tuple[RowStore | None, Int64Array]]:
        """Return both halves."""
        return (self.left, self.at_left), (self.right, self.at_right)


def unmatched_pairs(side: int, rows: RowStore, lost: Int64Array, left_at: Int64Array) -> Pairs:
    """Return rows that found no partner, to be padded with NULLs, with the seq of the item at which that was certain."""
    return Pairs(rows, lost, None, lost, left_at) if side == 0 else Pairs(None, lost, rows, lost, left_at)


class PairSet:
    """Gathers columns only when asked: for the residual condition those it reads, for the output all."""

    def __init__(self, schemas: Sequence[Schema]) -> None:
        self._schemas = schemas
        self._parts: list[Pairs] = []
        self._cache: dict[int, Column] = {}
        self.rows = 0

    def add(self, pairs: Pairs) -> None:
        """Add pairs; columns gathered before are forgotten."""
        self._parts.append(pairs)
        self.rows += len(pairs.at_left)
        self._cache.clear()

    def column(self, position: int) -> Column:
        """Return a column of the joined rows, left's first."""
        if position not in self._cache:
            width = len(self._schemas[0])
            side, place = (0, position) if position < width else (1, position - width)
            type_ = self._schemas[side].fields[place].type
            parts = [
                null_column(type_, len(at)) if store is None else store.columns[place].take(at)
                for store, at in (p.sides()[side] for p in self._parts)
            ]
            self._cache[position] = concat_columns(parts)
        return self._cache[position]

    def filter(self, residual: Predicate, like: Train, schema: Schema, out: Emitter) -> None:
        """Keep the pairs for which the residual condition is true."""
        context = EvaluationContext()
        mask = residual(self, context)
        for positions, reason in context.errors:
            failed = self.train(schema, like.lo, like.hi, like.track, like.arrival)
            out.errors.append(EvaluationErrors(reason, failed.take(positions)))
        if mask.all():
            return
        start = 0
        for part in self._parts:
            stop = start + len(part.at_left)
            kept = mask[start:stop]
            part.at_left, part.at_right = part.at_left[kept], part.at_right[kept]
            start = stop
        self._parts = [p for p in self._parts if len(p.at_left)]
        self.rows = int(np.count_nonzero(mask))
        self._cache.clear()

    def mark(self, side: int) -> None:
        """Note in the stores that rows have found a partner."""
        for part in self._parts:
            store, at = part.sides()[side]
            if store is not None and part.left_at is None:
                store.matched[at] = True

    def train(self, schema: Schema, lo: int, hi: int, track: WatermarkTrack, arrival: ArrivalTimes) -> Train:
        """Return the pairs in order: by the seq of the later row, then of the earlier, then by place on the edges."""
        later, earlier = self._seqs()
        order = self._order(later, earlier)
        width = len(self._schemas[0]) + len(self._schemas[1])
        columns = [self.column(i) for i in range(width)]
        time = self._time()
        if order is not None:
            columns = [c.take(order) for c in columns]
            later, time = later[order], time[order]
        rows = len(later)
        return Train(
            schema,
            columns,
            rows=rows,
            lo=lo,
            hi=hi,
            seq=Numbers(rows, array=later),
            time=Numbers(rows, array=time),
            arrival=arrival,
            track=track,
        )

    def _both(self, name: str, part: Pairs) -> tuple[Int64Array, Int64Array]:
        """Return an array of both halves' rows, the other half's for a padded row."""
        if part.left is None or part.right is None:
            store, at = (part.left, part.at_left) if part.right is None else (part.right, part.at_right)
            only: Int64Array = getattr(store, name)[at]
            return only, only
        return getattr(part.left, name)[part.at_left], getattr(part.right, name)[part.at_right]

    def _seqs(self) -> tuple[Int64Array, Int64Array]:
        later, earlier = [], []
        for part in self._parts:
            left, right = self._both("seq", part)
            later.append(np.maximum(left, right) if part.left_at is None else part.left_at)
            earlier.append(np.minimum(left, right))
        return np.concatenate(later), np.concatenate(earlier)

    def _order(self, later: Int64Array, earlier: Int64Array) -> Int64Array | None:
        """Return the permutation that sorts the pairs, None when they are sorted."""
        base, least = int(later.min()), int(earlier.min())
        span = int(earlier.max()) - least + 1
        if (int(later.max()) - base + 1) * span >= COMPOSITE_MAX:
            return self._full_order(later, earlier)
        composite = (later - base) * span + (earlier - least)
        steps = np.diff(composite)
        if len(steps) == 0 or int(steps.min()) > 0:
            return None
        order = np.argsort(composite, kind="stable")
        in_order = composite[order]
        if bool((in_order[1:] == in_order[:-1]).any()):
            return self._full_order(later, earlier)
        return order

    def _full_order(self, later: Int64Array, earlier: Int64Array) -> Int64Array:
        ordinals = [self._both("ordinal", p) for p in self._parts]
        left = np.concatenate([o[0] for o in ordinals])
        right = np.concatenate([o[1] for o in ordinals])
        return np.lexsort((right, left, earlier, later))

    def _time(self) -> Int64Array:
        return np.concatenate([np.maximum(*self._both("time", p)) for p in self._parts])


LEFT, RIGHT = 0, 1
CLAIMED_FROM = 16_384  # pairs of one key run; fewer are small
PAIR_BYTES = 48  # two places, and seq and time twice while they are put in order


@dataclass(slots=True)
class Probe:
    """New rows and a run of the other side: where the rows of each new row's key begin in the run, and how many they are."""

    rows: RowStore
    run: Run
    first: Int64Array
    counts: Int64Array
    swapped: bool


def _cut_of(probes: Sequence[Probe]) -> int | None:
    """Return where to cut a train whose rows have more candidates than one call looks at; None when they have not, or cannot be cut."""
    if sum(len(p.rows) * len(p.run) for p in probes) <= limits.CALL_PAIRS_MAX:
        return None
    if sum(int(p.counts.sum()) for p in probes) <= limits.CALL_PAIRS_MAX or not can_cut():
        return None
    seqs, counts = np.concatenate([p.rows.seq for p in probes]), np.concatenate([p.counts for p in probes])
    order = np.argsort(seqs, kind="stable")
    seqs = seqs[order]
    seq = int(seqs[min(int(np.searchsorted(np.cumsum(counts[order]), limits.CALL_PAIRS_MAX)), len(seqs) - 1)])
    seq = max(seq, int(seqs[0]) + 1)
    return seq if seq <= int(seqs[-1]) else None


class WindowJoin(Operator):
    """Windowed hash join of two streams: rows pair by equal keys, a bound on their distance in time, and a residual."""

    calls_late = True
    state_name = "window_join"
    state_fields: tuple[str, ...] = ("_keys", "_state", "_watermark", "_ordinals")

    def __init__(self, recipe: JoinRecipe, inputs: Sequence[Schema]) -> None:
        super().__init__([recipe.schema])
        lower, upper = recipe.lower_us, recipe.upper_us
        if lower is not None and upper is not None and lower > upper:
            raise InvalidDefinition(f"the join's time bound is empty: from {lower} to {upper} µs")
        self._lower, self._upper = lower, upper
        self._keys = JoinKeys(recipe, inputs)
        self._state = [SideState(self._keys.released), SideState(self._keys.released)]
        self._keep = (recipe.kind in (JoinKind.LEFT, JoinKind.FULL), recipe.kind in (JoinKind.RIGHT, JoinKind.FULL))
        self._residual = None if recipe.residual is None else compile_predicate(recipe.residual)
        self._watermark = MinimumWatermark(2)
        self._ordinals = [0, 0]
        self._schemas_in = tuple(inputs)
        # A row of a side lives until W passes its time by this much (None: for ever).
        self._reach: tuple[int | None, int | None] = (upper, None if lower is None else -lower)
        self._lag = max([0, *(r for r, keep in zip(self._reach, self._keep, strict=True) if keep and r is not None)])
        self._lags_for_ever = any(r is None for r, keep in zip(self._reach, self._keep, strict=True) if keep)

    def attached(self, watermarks_us: Sequence[int], idle: Sequence[bool]) -> int:
        """Take up W where the inputs stand."""
        watermark = self._watermark.attached(watermarks_us, idle)
        return self._lagged(watermark)

    # The call ----------------------------------------------------------------------------------------------------------

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Join one interval."""
        floor = self._watermark.value
        before = self._watermark.stand(), list(self._ordinals)
        track = self._watermark.advance(inputs)
        new = [self._admit(side, inputs[side], track, floor, out) for side in (LEFT, RIGHT)]
        probes = self._probes(new)
        if (seq := _cut_of(probes)) is not None:
            self._take_back(new, *before)
            raise CutAt(seq)
        pairs = PairSet(self._schemas_in)
        for probe in probes:
            self._probe(probe, pairs)
        self._keep_matching(pairs, inputs, out)
        for side, run in enumerate(new):
            if run is not None:
                self._state[side].add(run)
            if self._keep[side]:
                self._pad(side, track, pairs)
            self._state[side].settle(self._bound(side, self._watermark.value), self._keys.size)
        out.emit(self._train_of(inputs, track, pairs))

    def _bound(self, side: int, watermark: int) -> int | None:
        """Return the time below which rows of a side can pair with nothing that is still to come."""
        reach = self._reach[side]
        if watermark == TIME_MAX:
            return TIME_MAX
        return None if reach is None or watermark == TIME_MIN else max(TIME_MIN, watermark - reach)

    def _admit(self, side: int, train: Train, track: WatermarkTrack, floor: int, out: Emitter) -> Run | None:
        """Take out late rows and rows whose key is NULL; index the rest."""
        if train.rows and not (train.track.in_order and floor <= train.track.start):
            times = train.time.array()
            if int(times.min()) < track.end:
                late = times < track.before(train.seq.array())
                if late.any():
                    out.late.append((side, train.take(np.flatnonzero(late))))
                    train = train.select(~late)
        if train.rows == 0:
            return None
        ids = self._keys.encode(side, train)
        ordinal = np.arange(self._ordinals[side], self._ordinals[side] + train.rows, dtype=np.int64)
        self._ordinals[side] += train.rows
        matched = np.zeros(train.rows, dtype=np.bool_)
        rows = RowStore(train.columns(), train.time.array(), train.seq.array(), ordinal, ids, matched)
        if not self._keep[side] and int(ids.min()) == NO_KEY:
            rows = rows.kept(ids != NO_KEY)
        return Run(rows, self._keys.size) if len(rows) else None

    def _take_back(self, new: Sequence[Run | None], stand: Stand, ordinals: list[int]) -> None:
        """Stand as before the call, which is to come again with fewer rows."""
        self._watermark.stand_at(stand)
        self._ordinals = ordinals
        for run in new:
            if run is not None:
                self._keys.released(run.rows.ids)

    def _probes(self, new: Sequence[Run | None]) -> list[Probe]:
        """Return which rows meet which."""
        left, right = new
        probes: list[Probe] = []
        if left is not None:
            runs = [*self._state[RIGHT].runs, *([right] if right is not None else [])]
            probes += [Probe(left.rows, run, *run.ranges(left.rows.ids), swapped=False) for run in runs]
        if right is not None:
            probes += [Probe(right.rows, run, *run.ranges(right.rows.ids), swapped=True) for run in self._state[LEFT].runs]
        return probes

    def _probe(self, probe: Probe, pairs: PairSet) -> None:
        rows, run = probe.rows, probe.run
        for probes, found in run.candidates(probe.first, probe.counts):
            left, right = (run.rows, rows) if probe.swapped else (rows, run.rows)
            at_left, at_right = (found, probes) if probe.swapped else (probes, found)
            distance = right.time[at_right] - left.time[at_left]
            inside = None
            if self._lower is not None:
                inside = distance >= self._lower
            if self._upper is not None:
                below = distance <= self._upper
                inside = below if inside is None else inside & below
            if inside is not None and not inside.all():
                at_left, at_right = at_left[inside], at_right[inside]
            if len(at_left):
                if len(at_left) > CLAIMED_FROM:
                    claim(len(at_left) * (PAIR_BYTES + left.row_bytes() + right.row_bytes()), "a join's output")
                    pause()
                pairs.add(Pairs(left, at_left, right, at_right))

    def _keep_matching(self, pairs: PairSet, inputs: Sequence[Train], out: Emitter) -> None:
        if self._residual is not None and pairs.rows:
            pairs.filter(self._residual, inputs[0], self.schemas[0], out)
        for side in (LEFT, RIGHT):
            if self._keep[side]:
                pairs.mark(side)

    def _pad(self, side: int, track: WatermarkTrack, pairs: PairSet) -> None:
        """Let unmatched rows go that nothing can match any more."""
        bound = self._bound(side, self._watermark.value)
        if bound is None:
            return
        for run in self._state[side].runs:
            if run.time_min >= bound and bound != TIME_MAX:
                continue
            rows = run.rows
            lost = np.flatnonzero(((rows.time < bound) | (bound == TIME_MAX)) & ~rows.matched)
            if len(lost):
                rows.matched[lost] = True
                pairs.add(unmatched_pairs(side, rows, lost, self._left_at(side, rows, lost, track)))

    def _left_at(self, side: int, rows: RowStore, lost: Int64Array, track: WatermarkTrack) -> Int64Array:
        """Return the seq of the item that moved W past the reach of each row; its own when W had passed that before it came."""
        reach = self._reach[side]
        times, own = rows.time[lost], rows.seq[lost]
        if reach is None:
            target = np.full(len(times), TIME_MAX, dtype=np.int64)
        else:
            target = np.minimum(times, TIME_MAX - 1 - max(reach, 0)) + (reach + 1)
        if track.start == track.end:
            return own
        moved = np.maximum(track.first_reaching(np.clip(target, track.start + 1, track.end)), own)
        return np.where(target <= track.start, own, moved)

    # Output ------------------------------------------------------------------------------------------------------------

    def _lagged(self, watermark: int) -> int:
        if watermark in (TIME_MIN, TIME_MAX):
            return watermark
        return TIME_MIN if self._lags_for_ever else max(TIME_MIN, watermark - self._lag)

    def _train_of(self, inputs: Sequence[Train], track: WatermarkTrack, pairs: PairSet) -> Train:
        lo, hi = inputs[0].lo, inputs[0].hi
        lagged = lagged_track(track, self._lag, self._lags_for_ever) if self._lag or self._lags_for_ever else track
        arrival = latest_arrivals([t.arrival for t in inputs])
        if pairs.rows:
            train = pairs.train(self.schemas[0], lo, hi, lagged, arrival)
        else:
            train = empty_train(self.schemas[0], lo, hi, lagged, arrival=arrival)
        train.ended = all(t.ended for t in inputs)
        train.idle = self._watermark.mark(inputs)
        train.flush = any(t.flush for t in inputs) and self._watermark.all_idle
        return train

    def take_up(self, fields: dict[str, Any]) -> None:
        """Take up a snapshot."""
        super().take_up(fields)
        for side in self._state:
            side.expired = self._keys.released

    def state_rows(self) -> int:
        """Return the rows kept on both sides."""
        return sum(s.rows for s in self._state)

    def state_bytes(self) -> int:
        """Return the bytes kept on both sides."""
        return self._keys.nbytes() + sum(s.nbytes() for s in self._state)
