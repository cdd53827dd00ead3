"""The pairs that one call of a join has found, and how they become a train."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.column import Column, concat_columns, null_column
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Numbers, Train
from millstream.engine.data.watermarks import WatermarkTrack
from millstream.engine.expressions.kernel import EvaluationContext, Predicate
from millstream.engine.operators.contract import Emitter, EvaluationErrors
from millstream.engine.operators.join_state import RowStore

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
            failed = self.train(schema, like.lo, like.hi, like.track, 0)
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

    def train(self, schema: Schema, lo: int, hi: int, track: WatermarkTrack, arrival_ns: int) -> Train:
        """Return the pairs in order: by the seq of the later row, then of the earlier, then by place on the edges."""
        later, earlier = self._seqs()
        order = self._order(later, earlier)
        width = len(self._schemas[0]) + len(self._schemas[1])
        columns = [self.column(i) for i in range(width)]
        time, arrival = self._time(), self._arrival(arrival_ns)
        if order is not None:
            columns = [c.take(order) for c in columns]
            later, time, arrival = later[order], time[order], arrival[order]
        rows = len(later)
        return Train(
            schema,
            columns,
            rows=rows,
            lo=lo,
            hi=hi,
            seq=Numbers(rows, array=later),
            time=Numbers(rows, array=time),
            arrival=Numbers(rows, array=arrival),
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

    def _arrival(self, newest_ns: int) -> Int64Array:
        """Return the arrival of the later row of each pair; a padded row left because of the newest item."""
        parts = []
        for part in self._parts:
            if part.left_at is not None:
                parts.append(np.full(len(part.at_left), newest_ns, dtype=np.int64))
                continue
            (left, right), (left_seq, right_seq) = self._both("arrival", part), self._both("seq", part)
            parts.append(np.where(left_seq >= right_seq, left, right))
        return np.concatenate(parts)
