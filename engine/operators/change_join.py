"""Join of two change logs (K28): what changes of the answer when rows come and go on either side.

Only the keys that a train touches are looked at. Of these, pairs of which a row has changed are formed once, over what stood before and
what stands now together; a pair that stood before and does not now goes, one that did not and does comes. The same pairs tell which rows
of an outer side have lost their last partner or found a first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.allowance import claim, pause
from millstream.engine.data.arrays import distinct, expanded
from millstream.engine.data.arrivals import latest_arrivals
from millstream.engine.data.buffered import BufferedRows, buffered, concat_rows, no_rows
from millstream.engine.data.column import Mask, taken_or_null
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train, empty_train
from millstream.engine.data.watermarks import TIME_MIN, constant_track
from millstream.engine.expressions.compile import compile_predicate
from millstream.engine.language.recipes import ChangeJoinRecipe, JoinKind
from millstream.engine.operators.contract import Emitter, EvaluationErrors, Operator
from millstream.engine.operators.group_runs import GroupRun, found, merged, replaced
from millstream.engine.operators.join_keys import JoinKeys
from millstream.engine.operators.join_state import NO_KEY
from millstream.engine.operators.outputs import MinimumWatermark, change_column, is_plus, made_train
from millstream.engine.operators.row_operators import context_of
from millstream.engine.operators.table_changes import standing_after

LEFT, RIGHT = 0, 1
CLAIMED_FROM = 16_384  # pairs of one call; fewer are small
PAIR_BYTES = 48  # two places and what they are put in order by


@dataclass(slots=True)
class Touched:
    """The rows of the touched keys of a side, by key: those that stood before (`was`), those that stand now (`is_`)."""

    rows: BufferedRows
    groups: Int64Array
    was: Mask
    is_: Mask

    @property
    def changed(self) -> Mask:
        """Which have come or gone."""
        changed: Mask = self.was != self.is_
        return changed


class ChangeJoin(Operator):
    """Port 0 is the left change log, port 1 the right one; output: the left's columns, the right's, and the kind of the change."""

    state_name = "change_join"
    state_fields: tuple[str, ...] = ("_keys", "_runs", "_watermark", "_ordinal")

    def __init__(self, recipe: ChangeJoinRecipe, inputs: Sequence[Schema]) -> None:
        super().__init__([recipe.schema])
        own = [Schema(schema.fields[:-1]) for schema in inputs]
        self._nothing = [no_rows(schema) for schema in own]
        self._pair_schema = Schema(recipe.schema.fields[:-1])
        self._keys = JoinKeys(recipe, own)
        self._runs: list[list[GroupRun]] = [[], []]
        self._kept = (recipe.kind in (JoinKind.LEFT, JoinKind.FULL), recipe.kind in (JoinKind.RIGHT, JoinKind.FULL))
        self._residual = None if recipe.residual is None else compile_predicate(recipe.residual)
        self._watermark = MinimumWatermark(2)
        self._ordinal = 0

    def attached(self, watermarks_us: Sequence[int], idle: Sequence[bool]) -> int:
        """Take up W where the inputs stand."""
        return self._watermark.attached(watermarks_us, idle)

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Apply the changes of both sides; give what that changes of the join."""
        track = self._watermark.advance(inputs)
        lo, hi = inputs[0].lo, inputs[0].hi
        base = empty_train(self.schemas[0], lo, hi, track, arrival=latest_arrivals([t.arrival for t in inputs]))
        base.ended = all(t.ended for t in inputs)
        base.idle = self._watermark.mark(inputs)
        base.flush = any(t.flush for t in inputs) and self._watermark.all_idle
        out.emit(self._changes(inputs, base, out) if any(t.rows for t in inputs) else base)

    def _changes(self, inputs: Sequence[Train], base: Train, out: Emitter) -> Train:
        new = [self._arrived(side, inputs[side]) for side in (LEFT, RIGHT)]
        touched = distinct(np.concatenate([ids for _, ids, _ in new]))
        sides = [self._touch(side, *new[side], touched) for side in (LEFT, RIGHT)]
        return self._answer(base, sides, *self._pairs(sides, base, out))

    def _arrived(self, side: int, train: Train) -> tuple[BufferedRows, Int64Array, Mask]:
        """Return what came on a side: the rows, the ids of their keys, and which of them are '+'."""
        rows = buffered(train, self._ordinal)
        self._ordinal += train.rows
        plus = is_plus(rows.columns.pop()) if train.rows else np.empty(0, dtype=np.bool_)
        if not train.rows:
            return self._nothing[side], _NONE, plus
        ids = self._keys.encode_columns(side, rows.columns)
        known = ids != NO_KEY
        if self._kept[side] or known.all():
            return rows, ids, plus
        return rows.kept(known), ids[known], plus[known]  # what pairs with nothing is not kept

    def _touch(self, side: int, new: BufferedRows, ids: Int64Array, plus: Mask, touched: Int64Array) -> Touched:
        """Apply a side's changes; return its rows of the touched keys, those that came and went within the train left out."""
        runs = self._runs[side]
        places = [run.of(touched) for run in runs]
        old, groups = found(runs, places, self._nothing[side])
        standing = np.ones(len(old), dtype=np.bool_)
        if not len(new):
            return _by_group(old, groups, standing, standing)
        rows, groups = concat_rows(old, new), np.concatenate((groups, ids))
        is_ = np.zeros(len(rows), dtype=np.bool_)
        is_[standing_after(rows, np.concatenate((standing, plus)))] = True
        was = np.arange(len(rows)) < len(old)
        changed = distinct(ids)
        kept = np.flatnonzero(is_ & np.isin(groups, changed))
        by_group = kept[np.argsort(groups[kept], kind="stable")]
        self._runs[side] = replaced(runs, places, changed, GroupRun(rows.take(by_group), groups[by_group]))
        self._keys.released(groups[~is_])
        either = np.flatnonzero(was | is_)
        return _by_group(rows.take(either), groups[either], was[either], is_[either])

    def _pairs(self, sides: Sequence[Touched], base: Train, out: Emitter) -> tuple[Int64Array, Int64Array]:
        """Return the pairs of which a row has changed; with a condition of an outer join all pairs of the touched keys."""
        left, right = sides
        if self._residual is not None and any(self._kept):
            at_left, at_right = _matching(left.groups, right.groups)
        else:
            changed, same = np.flatnonzero(left.changed), np.flatnonzero(~left.changed)
            others = np.flatnonzero(right.changed)
            one, other = _matching(left.groups[changed], right.groups)
            two, another = _matching(left.groups[same], right.groups[others])
            at_left, at_right = np.concatenate((changed[one], same[two])), np.concatenate((other, others[another]))
        if self._residual is None or not len(at_left):
            return at_left, at_right
        columns = [*(c.take(at_left) for c in left.rows.columns), *(c.take(at_right) for c in right.rows.columns)]
        count = len(at_left)
        seqs, times = np.full(count, base.hi - 1, dtype=np.int64), np.full(count, TIME_MIN, dtype=np.int64)
        candidates = made_train(base, self._pair_schema, columns, seqs, times)
        context = context_of(candidates)
        true = self._residual(candidates, context)
        came = left.is_[at_left] & right.is_[at_right] & ~(left.was[at_left] & right.was[at_right])
        for positions, reason in context.errors:  # a pair counts as failed when it comes, not each time that its key is looked at
            failed = positions[came[positions]]
            if len(failed):
                out.errors.append(EvaluationErrors(reason, candidates.take(failed)))
        return at_left[true], at_right[true]

    def _answer(self, base: Train, sides: Sequence[Touched], at_left: Int64Array, at_right: Int64Array) -> Train:
        left, right = sides
        was, is_ = left.was[at_left] & right.was[at_right], left.is_[at_left] & right.is_[at_right]
        parts = [(at_left[was & ~is_], at_right[was & ~is_], False), (at_left[is_ & ~was], at_right[is_ & ~was], True)]
        for side, at in ((LEFT, at_left), (RIGHT, at_right)):
            if self._kept[side]:
                parts += [_padded(side, rows, plus) for rows, plus in self._alone(sides, side, at, was, is_)]
        lefts, rights = np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
        plus = np.concatenate([np.full(len(p[0]), p[2], dtype=np.bool_) for p in parts])
        if not len(plus):
            return base
        _claim(len(plus), PAIR_BYTES + sum(side.rows.nbytes() // max(1, len(side.groups)) for side in sides))
        groups = np.where(lefts >= 0, _at(left.groups, lefts), _at(right.groups, rights))
        order = np.lexsort((_at(right.rows.ordinal, rights), _at(left.rows.ordinal, lefts), plus, groups))
        lefts, rights, plus = lefts[order], rights[order], plus[order]
        columns = [*(taken_or_null(c, lefts) for c in left.rows.columns), *(taken_or_null(c, rights) for c in right.rows.columns)]
        times = np.maximum(_at(left.rows.time, lefts), _at(right.rows.time, rights))
        return made_train(base, self.schemas[0], [*columns, change_column(plus)], np.full(len(plus), base.hi - 1, dtype=np.int64), times)

    def _alone(self, sides: Sequence[Touched], side: int, at: Int64Array, was: Mask, is_: Mask) -> list[tuple[Int64Array, bool]]:
        """Return the rows of a side that stood without a partner and do so no longer, and those that now do."""
        own, other = sides[side], sides[1 - side]
        if self._residual is None:
            before, after = (np.isin(own.groups, other.groups[mask]) for mask in (other.was, other.is_))
            unknown = own.groups == NO_KEY
            before, after = before & ~unknown, after & ~unknown
        else:
            before, after = (_hit(at[mask], len(own.groups)) for mask in (was, is_))
        alone_before, alone_now = own.was & ~before, own.is_ & ~after
        return [(np.flatnonzero(alone_before & ~alone_now), False), (np.flatnonzero(alone_now & ~alone_before), True)]

    def standing(self, lo: int, watermark_us: int) -> Train:
        """Return the rows of the join that stand as the base does."""
        sides = []
        for side in (LEFT, RIGHT):
            runs = self._runs[side]
            whole = merged(*runs) if runs else GroupRun(self._nothing[side], _NONE)
            count = len(whole.groups)
            sides.append(Touched(whole.rows, whole.groups, np.zeros(count, dtype=np.bool_), np.ones(count, dtype=np.bool_)))
        base = empty_train(self.schemas[0], lo, lo + 1, constant_track(lo, lo + 1, watermark_us))
        return self._answer(base, sides, *self._pairs(sides, base, Emitter()))

    def state_rows(self) -> int:
        """Return the rows of both sides."""
        return sum(run.size for runs in self._runs for run in runs)

    def state_bytes(self) -> int:
        """Return their bytes."""
        return self._keys.nbytes() + sum(run.nbytes() for runs in self._runs for run in runs)


_NONE: Int64Array = np.empty(0, dtype=np.int64)


def _by_group(rows: BufferedRows, groups: Int64Array, was: Mask, is_: Mask) -> Touched:
    order = np.argsort(groups, kind="stable")
    return Touched(rows.take(order), groups[order], was[order], is_[order])


def _matching(left: Int64Array, right: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the places of pairs of equal groups; those on the right rise."""
    first = np.searchsorted(right, left, side="left")
    counts = np.searchsorted(right, left, side="right") - first
    counts[left == NO_KEY] = 0
    if not len(left):
        return _NONE, _NONE
    _claim(int(counts.sum()), PAIR_BYTES)
    return np.repeat(np.arange(len(left), dtype=np.int64), counts), expanded(first, counts)


def _claim(pairs: int, pair_bytes: int) -> None:
    """Ask before many pairs are made. TooMuchAtOnce where they are too many."""
    if pairs > CLAIMED_FROM:
        claim(pairs * pair_bytes, "a join's output")
        pause()


def _padded(side: int, rows: Int64Array, plus: bool) -> tuple[Int64Array, Int64Array, bool]:
    nobody = np.full(len(rows), -1, dtype=np.int64)
    return (rows, nobody, plus) if side == LEFT else (nobody, rows, plus)


def _hit(at: Int64Array, count: int) -> Mask:
    hit = np.zeros(count, dtype=np.bool_)
    hit[at] = True
    return hit


def _at(values: Int64Array, places: Int64Array) -> Int64Array:
    """Return the values at places, the least of all at a negative one."""
    return np.where(places >= 0, values[np.maximum(places, 0)], TIME_MIN) if len(values) else np.full(len(places), TIME_MIN, dtype=np.int64)
