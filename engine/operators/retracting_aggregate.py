"""Aggregates over a change log: rows with '-' take back an equal row with '+'.

Nothing is subtracted (K13): the rows that stand are kept, and the groups that a train touches are evaluated anew.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.arrays import distinct
from millstream.engine.data.buffered import BufferedRows, buffered, concat_rows, no_rows
from millstream.engine.data.column import Column
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train, empty_train
from millstream.engine.data.watermarks import TIME_MIN, constant_track
from millstream.engine.language.recipes import AggregateRecipe, EmitKind, OrderColumn
from millstream.engine.operators.changes import Changes, canonical_key
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.ordered_rows import order_keys
from millstream.engine.operators.outputs import change_column, made_train, progress
from millstream.engine.windows.ranges import Ranges, aggregate_ranges


class RetractingAggregate(Operator):
    """EMIT CHANGES after each train, or EMIT FINAL once at the end."""

    state_name = "retracting_aggregate"
    state_fields: tuple[str, ...] = ("_rows", "_ordinal", "_newest")

    def __init__(self, recipe: AggregateRecipe, inputs: Schema) -> None:
        super().__init__([recipe.schema])
        assert recipe.retracts is not None
        self._recipe = recipe
        self._change = recipe.retracts
        self._rows = no_rows(inputs)
        self._values = [i for i in range(len(inputs)) if i != self._change]
        self._ordinal = 0
        self._newest = 0

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Apply the changes; answer."""
        train = inputs[0]
        final = self._recipe.emit.kind is EmitKind.FINAL
        if train.rows == 0:
            out.emit(self._final(train) if final and train.ended else progress(train, self.schemas[0]))
            return
        old = self._rows
        new = buffered(train, self._ordinal)
        self._ordinal += train.rows
        self._newest = max(self._newest, int(new.time.max()))
        self._rows = self._applied(concat_rows(old, new))
        if final:
            out.emit(self._final(train) if train.ended else progress(train, self.schemas[0]))
            return
        out.emit(self._changes(train, old, new))

    def _applied(self, rows: BufferedRows) -> BufferedRows:
        """Cancel each '-' against the last equal '+' before it."""
        codes = np.zeros(len(rows), dtype=np.int64)  # without columns (COUNT(*) needs none) all rows are equal
        if self._values:
            codes = key_encoder([rows.columns[i].type for i in self._values]).encode([rows.columns[i] for i in self._values])
        sign = np.where(np.array(rows.columns[self._change].values.to_pylist(), dtype=np.str_) == "+", 1, -1)
        standing = np.zeros(int(codes.max()) + 1, dtype=np.int64)
        np.add.at(standing, codes, sign)
        order = np.argsort(codes, kind="stable")
        order = order[sign[order] > 0]
        place = np.arange(len(order)) - np.searchsorted(codes[order], codes[order], side="left")
        return rows.take(np.sort(order[place < standing[codes[order]]]))

    def _groups(self, rows: BufferedRows, encoder: object | None = None) -> Int64Array:
        if not self._recipe.keys or len(rows) == 0:
            return np.zeros(len(rows), dtype=np.int64)
        columns = [rows.columns[k] for k in self._recipe.keys]
        return key_encoder([c.type for c in columns]).encode(columns)

    def _answers(self, rows: BufferedRows, groups: Int64Array, wanted: Int64Array) -> list[Column]:
        """Return keys and aggregates of the groups `wanted`, all of which have rows."""
        order = np.argsort(groups, kind="stable")
        in_order = groups[order]
        starts = np.searchsorted(in_order, wanted, side="left")
        stops = np.searchsorted(in_order, wanted, side="right")
        by_group = rows.take(order)
        keys = [canonical_key(by_group.columns[k].take(starts)) for k in self._recipe.keys]
        ranges = Ranges(lambda p: by_group.columns[p], len(rows), starts, stops)
        return [*keys, *aggregate_ranges(self._recipe.aggregates, ranges)]

    def _changes(self, train: Train, old: BufferedRows, new: BufferedRows) -> Train:
        every = concat_rows(old, new, self._rows)
        groups = self._groups(every)
        parts = np.split(groups, [len(old), len(old) + len(new)])
        touched = distinct(parts[1])
        was, is_ = np.isin(touched, parts[0]), np.isin(touched, parts[2])
        before = self._answers(old, parts[0], touched[was])
        after = self._answers(self._rows, parts[2], touched[is_])
        changes = Changes(before, after, was, is_)
        last = np.zeros(int(groups.max()) + 1, dtype=np.int64)
        last[parts[1]] = np.arange(len(new), dtype=np.int64)
        columns, changed = changes.ordered(changes.groups, last[touched][changes.groups])
        rows_at = last[touched][changed]
        return made_train(train, self.schemas[0], columns, new.seq[rows_at], new.time[rows_at])

    def _final(self, train: Train) -> Train:
        """Answer by group in the order of the keys: which of equal rows came first depends on what a change log left out (K9, K15)."""
        groups = self._groups(self._rows)
        wanted = distinct(groups)
        columns = self._answers(self._rows, groups, wanted)
        if self._recipe.keys and len(wanted):
            ranks = order_keys(columns[: len(self._recipe.keys)], [OrderColumn(at) for at in range(len(self._recipe.keys))])
            order = np.lexsort(ranks[::-1])
            columns = [c.take(order) for c in columns]
        count = len(wanted)
        seq, time = np.full(count, train.hi - 1, dtype=np.int64), np.full(count, self._newest, dtype=np.int64)
        return made_train(train, self.schemas[0], columns, seq, time)

    def standing(self, lo: int, watermark_us: int) -> Train:
        """Return the answers of all groups as the base does."""
        groups = self._groups(self._rows)
        wanted = distinct(groups)
        count = len(wanted)
        base = empty_train(self.schemas[0], lo, lo + 1, constant_track(lo, lo + 1, watermark_us))
        columns = [*self._answers(self._rows, groups, wanted), change_column(np.ones(count, dtype=np.bool_))]
        return made_train(base, self.schemas[0], columns, np.full(count, lo, dtype=np.int64), np.full(count, TIME_MIN, dtype=np.int64))

    def state_rows(self) -> int:
        """Return the rows that stand."""
        return len(self._rows)

    def state_bytes(self) -> int:
        """Return their bytes."""
        return self._rows.nbytes()
