"""A table as a change log, and a change log as a table (K28).

What is done to a table ('+' puts a row in the place of that of its key, '-' deletes it) becomes what changes by that: a '-' for the row
that goes, a '+' for the one that comes. `StandingRows` passes a change log on and keeps what stands after it: FETCH reads a materialized
view from there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.buffered import BufferedRows, buffered, concat_rows, no_rows
from millstream.engine.data.column import Mask
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train, empty_train
from millstream.engine.data.watermarks import TIME_MIN, constant_track
from millstream.engine.language.recipes import StandingRowsRecipe, TableChangesRecipe
from millstream.engine.operators.changes import Changes
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.group_runs import GroupRun, all_of, found, replaced
from millstream.engine.operators.outputs import change_column, is_plus, made_train, progress

PENDING_ROWS_MIN = 10_000  # changes are taken into what stands when there are this many, and more of them than rows


def standing_after(rows: BufferedRows, plus: Mask) -> Int64Array:
    """Return the places, rising, of the rows that stand after all changes: each '-' takes back the last equal '+' before it."""
    codes = np.zeros(len(rows), dtype=np.int64)  # without columns all rows are equal
    if rows.columns:
        codes = key_encoder([c.type for c in rows.columns]).encode(rows.columns)
    count = np.bincount(codes, weights=np.where(plus, 1, -1)).astype(np.int64)
    order = np.argsort(codes, kind="stable")
    order = order[plus[order]]
    place = np.arange(len(order)) - np.searchsorted(codes[order], codes[order], side="left")
    return np.sort(order[place < count[codes[order]]])


class TableChanges(Operator):
    """The changes of a train, one pair at most for each key; with the first train, all that stands. W is the table's."""

    state_name = "table_changes"
    state_fields: tuple[str, ...] = ("_keys", "_runs", "_due")

    def __init__(self, recipe: TableChangesRecipe, inputs: Schema) -> None:
        super().__init__([recipe.schema])
        self._recipe = recipe
        self._width = len(inputs) - 1
        self._nothing = no_rows(Schema(inputs.fields[: self._width]))
        self._keys = key_encoder([inputs.fields[p].type for p in recipe.table_key])
        self._runs: list[GroupRun] = []
        self._due = True

    def preload(self, port: int, rows: Train) -> None:
        """Take up what stands in the table when the query is attached."""
        if rows.rows:
            self._apply(rows)

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Apply what was done to the table; give what that changes."""
        train = inputs[0]
        changes = self._apply(train) if train.rows else None
        if self._due:
            self._due = False
            time = max(train.track.start, 0)
            changes = self._all(train, train.hi - 1, time)
        out.emit(progress(train, self.schemas[0]) if changes is None else changes)

    def _apply(self, train: Train) -> Train:
        """The last change of each key decides what stands."""
        new = buffered(train, 0)
        op = new.columns.pop()
        ids = self._keys.encode([new.columns[p] for p in self._recipe.table_key])
        order = np.argsort(ids, kind="stable")
        last = order[np.append(np.flatnonzero(np.diff(ids[order])), len(order) - 1)]
        touched = ids[last]
        places = [run.of(touched) for run in self._runs]
        old, groups = found(self._runs, places, self._nothing)
        by_group = np.argsort(groups, kind="stable")
        was, is_ = np.isin(touched, groups), is_plus(op)[last]
        changes = Changes(old.take(by_group).columns, new.take(last[is_]).columns, was, is_)
        plus = last[changes.plus]
        self._runs = replaced(self._runs, places, touched[changes.groups], GroupRun(new.take(plus), ids[plus]))
        gone = touched[~is_]
        if len(gone):
            self._keys.free(gone)
        columns, changed = changes.ordered(last[changes.groups])
        rows_at = last[changed]
        return made_train(train, self.schemas[0], columns, new.seq[rows_at], new.time[rows_at])

    def _all(self, train: Train, seq: int, time: int) -> Train:
        """Return all that stands, in the order in which it came, as '+'."""
        if not self._runs:
            return progress(train, self.schemas[0])
        rows = all_of(self._runs).rows
        rows = rows.take(np.argsort(rows.seq, kind="stable"))
        count = len(rows)
        columns = [*rows.columns, change_column(np.ones(count, dtype=np.bool_))]
        return made_train(train, self.schemas[0], columns, np.full(count, seq, dtype=np.int64), np.full(count, time, dtype=np.int64))

    def standing(self, lo: int, watermark_us: int) -> Train:
        """Return the rows of the table as the base does."""
        return self._all(empty_train(self.schemas[0], lo, lo + 1, constant_track(lo, lo + 1, watermark_us)), lo, TIME_MIN)

    def state_rows(self) -> int:
        """Return the rows of the table."""
        return sum(run.size for run in self._runs)

    def state_bytes(self) -> int:
        """Return their bytes."""
        return self._keys.nbytes() + sum(run.nbytes() for run in self._runs)


class StandingRows(Operator):
    """Passes a change log on, and keeps the rows that stand after it. Changes wait until there are more of them than rows."""

    state_name = "standing_rows"
    state_fields: tuple[str, ...] = ("_rows", "_pending")

    def __init__(self, recipe: StandingRowsRecipe, inputs: Schema) -> None:
        super().__init__([recipe.schema])
        self._rows = no_rows(Schema(inputs.fields[:-1]))
        self._pending: list[BufferedRows] = []

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Note the changes and pass them on."""
        train = inputs[0]
        if train.rows:
            self._pending.append(buffered(train, 0).copied())
            if sum(map(len, self._pending)) > max(PENDING_ROWS_MIN, len(self._rows)):
                self._merge()
        out.emit(train)

    def _merge(self) -> None:
        if not self._pending:
            return
        changes = concat_rows(*self._pending)
        plus = np.concatenate((np.ones(len(self._rows), dtype=np.bool_), is_plus(changes.columns[-1])))
        rows = concat_rows(self._rows, BufferedRows(changes.columns[:-1], *changes.arrays))
        self._rows, self._pending = rows.take(standing_after(rows, plus)), []

    def standing(self, lo: int, watermark_us: int) -> Train:
        """Return the rows that stand as the base does."""
        self._merge()
        base = empty_train(self.schemas[0], lo, lo + 1, constant_track(lo, lo + 1, watermark_us))
        count = len(self._rows)
        columns = [*self._rows.columns, change_column(np.ones(count, dtype=np.bool_))]
        return made_train(base, self.schemas[0], columns, np.full(count, lo, dtype=np.int64), np.full(count, TIME_MIN, dtype=np.int64))

    def state_rows(self) -> int:
        """Return the rows that stand, and the changes that wait."""
        return len(self._rows) + sum(map(len, self._pending))

    def state_bytes(self) -> int:
        """Return their bytes."""
        return self._rows.nbytes() + sum(rows.nbytes() for rows in self._pending)
