"""Aggregates over a change log: rows with '-' take back an equal row with '+'.

Nothing is subtracted (K13): the rows that stand are kept by group (group_runs.py), and the groups that a train touches are evaluated anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from millstream.engine.data.arrays import distinct
from millstream.engine.data.buffered import BufferedRows, buffered, concat_rows, no_rows
from millstream.engine.data.column import Column, Mask
from millstream.engine.data.keys import NoKeys
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train, empty_train
from millstream.engine.data.watermarks import TIME_MIN, constant_track
from millstream.engine.language.recipes import AggregateRecipe, EmitKind, OrderColumn
from millstream.engine.operators.changes import Changes, canonical_key
from millstream.engine.operators.contract import Emitter
from millstream.engine.operators.group_runs import GroupedRows, GroupRun, found, merged, replaced
from millstream.engine.operators.ordered_rows import order_keys
from millstream.engine.operators.outputs import change_column, is_plus, made_train, progress
from millstream.engine.operators.table_changes import standing_after
from millstream.engine.windows.ranges import Ranges, aggregate_ranges


def _ungrouped(fields: dict[str, Any]) -> dict[str, Any]:
    """Version 1 had all rows side by side, with the kind of the change; `take_up` forms the groups."""
    rows = fields.pop("_rows")
    return {**fields, "_keys": None, "_runs": [GroupRun(rows, np.zeros(len(rows), dtype=np.int64))]}


class GroupedChanges(GroupedRows):
    """Keeps the rows that stand after a change log, by group. `change` is the position of the kind of a change, `keys` are the group's."""

    def __init__(self, schema: Schema, inputs: Schema, change: int, keys: Sequence[int]) -> None:
        super().__init__(schema, [inputs.fields[k].type for k in keys])
        self._change = change
        self._places = [p - (p > change) for p in range(len(inputs))]  # without the kind of the change
        self._key_places = [self._places[k] for k in keys]
        self._nothing = no_rows(Schema(tuple(f for i, f in enumerate(inputs.fields) if i != change)))
        self._ordinal = 0
        self._newest = 0

    def _ids(self, rows: BufferedRows) -> Int64Array:
        if isinstance(self._keys, NoKeys):
            return np.zeros(len(rows), dtype=np.int64)
        return self._keys.encode([rows.columns[k] for k in self._key_places])

    def _taken(self, train: Train) -> tuple[BufferedRows, Mask, Int64Array]:
        """Return the changes of a train, which of them are a '+', and their groups."""
        new = buffered(train, self._ordinal)
        self._ordinal += train.rows
        self._newest = max(self._newest, int(new.time.max()))
        plus = is_plus(new.columns.pop(self._change))
        return new, plus, self._ids(new)

    def _applied(self, new: BufferedRows, plus: Mask, ids: Int64Array) -> tuple[GroupRun, GroupRun]:
        """Apply changes; return the rows of the touched groups before and after."""
        touched = distinct(ids)
        places = [run.of(touched) for run in self._runs]
        old, groups = found(self._runs, places, self._nothing)
        by_group = np.argsort(groups, kind="stable")
        before = GroupRun(old.take(by_group), groups[by_group])
        rows, groups = concat_rows(before.rows, new), np.concatenate((before.groups, ids))
        kept = standing_after(rows, np.concatenate((np.ones(len(before.groups), dtype=np.bool_), plus)))
        kept = kept[np.argsort(groups[kept], kind="stable")]
        after = self._settled(GroupRun(rows.take(kept), groups[kept]), touched)
        self._runs = replaced(self._runs, places, touched, after)
        if not isinstance(self._keys, NoKeys):
            self._keys.free(touched[~np.isin(touched, after.groups)])
        return before, GroupRun(after.rows, after.groups)

    def _settled(self, after: GroupRun, touched: Int64Array) -> GroupRun:
        """Return what is kept of the touched groups."""
        return after

    def _whole(self) -> GroupRun:
        """Return all rows."""
        return merged(*self._runs) if self._runs else GroupRun(self._nothing, np.empty(0, dtype=np.int64))


class RetractingAggregate(GroupedChanges):
    """EMIT CHANGES after each train, or EMIT FINAL once at the end."""

    state_name = "retracting_aggregate"
    state_version = 2
    state_migrations: ClassVar = {1: _ungrouped}
    state_fields: tuple[str, ...] = ("_keys", "_runs", "_ordinal", "_newest")

    def __init__(self, recipe: AggregateRecipe, inputs: Schema) -> None:
        assert recipe.retracts is not None
        super().__init__(recipe.schema, inputs, recipe.retracts, recipe.keys)
        self._recipe = recipe
        self._calls = tuple(call.moved(self._places) for call in recipe.aggregates)

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Apply the changes; answer."""
        train = inputs[0]
        if self._recipe.emit.kind is EmitKind.FINAL:
            if train.rows:
                self._applied(*self._taken(train))
            out.emit(self._final(train) if train.ended else progress(train, self.schemas[0]))
            return
        out.emit(self._changes(train) if train.rows else progress(train, self.schemas[0]))

    def _answers(self, run: GroupRun, wanted: Int64Array) -> list[Column]:
        """Return keys and aggregates of the groups `wanted`, all of which have rows."""
        starts = np.searchsorted(run.groups, wanted, side="left")
        stops = np.searchsorted(run.groups, wanted, side="right")
        keys = [canonical_key(run.rows.columns[k].take(starts)) for k in self._key_places]
        return [*keys, *aggregate_ranges(self._calls, Ranges(lambda p: run.rows.columns[p], len(run.rows), starts, stops))]

    def _changes(self, train: Train) -> Train:
        new, plus, ids = self._taken(train)
        before, after = self._applied(new, plus, ids)
        touched = distinct(ids)
        was, is_ = np.isin(touched, before.groups), np.isin(touched, after.groups)
        changes = Changes(self._answers(before, touched[was]), self._answers(after, touched[is_]), was, is_)
        last = np.zeros(len(touched), dtype=np.int64)
        last[np.searchsorted(touched, ids)] = np.arange(len(new), dtype=np.int64)
        columns, changed = changes.ordered(changes.groups, last[changes.groups])
        rows_at = last[changed]
        return made_train(train, self.schemas[0], columns, new.seq[rows_at], new.time[rows_at])

    def _final(self, train: Train) -> Train:
        """Answer by group in the order of the keys: which of equal rows came first depends on what a change log left out (K9, K15)."""
        columns = self._all()
        count = len(columns[0])
        if self._recipe.keys and count:
            ranks = order_keys(columns[: len(self._recipe.keys)], [OrderColumn(at) for at in range(len(self._recipe.keys))])
            order = np.lexsort(ranks[::-1])
            columns = [c.take(order) for c in columns]
        seq, time = np.full(count, train.hi - 1, dtype=np.int64), np.full(count, self._newest, dtype=np.int64)
        return made_train(train, self.schemas[0], columns, seq, time)

    def _all(self) -> list[Column]:
        """Return the answers of all groups."""
        whole = self._whole()
        return self._answers(whole, distinct(whole.groups))

    def standing(self, lo: int, watermark_us: int) -> Train:
        """Return the answers of all groups as the base does."""
        base = empty_train(self.schemas[0], lo, lo + 1, constant_track(lo, lo + 1, watermark_us))
        columns = self._all()
        count = len(columns[0])
        columns.append(change_column(np.ones(count, dtype=np.bool_)))
        return made_train(base, self.schemas[0], columns, np.full(count, lo, dtype=np.int64), np.full(count, TIME_MIN, dtype=np.int64))

    def take_up(self, fields: dict[str, Any]) -> None:
        """Take up a snapshot; one of version 1 has yet to form its groups."""
        keys = self._keys
        super().take_up(fields)
        if fields["_keys"] is None:
            self._keys, (former,), self._runs = keys, self._runs, []
            rows = former.rows
            rows.columns.pop(self._change)
            if len(rows):
                ids = self._ids(rows)
                order = np.argsort(ids, kind="stable")
                self._runs = [GroupRun(rows.take(order), ids[order])]
