"""A table as a change log, and a change log as a table (K28).

What is done to a table ('+' puts a row in the place of that of its key, '-' deletes it) becomes what changes by that: a '-' for the row
that goes, a '+' for the one that comes. `StandingRows` passes a change log on and keeps what stands after it, `KeptRows` makes one of rows
that only come, each as long as it is kept: FETCH reads a materialized view from there.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from millstream.engine.data.buffered import BufferedRows, buffered, concat_rows, no_rows
from millstream.engine.data.column import Mask
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train, empty_train
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN, constant_track
from millstream.engine.language.recipes import KeptRowsRecipe, StandingRowsRecipe, TableChangesRecipe, ViewChangesRecipe
from millstream.engine.operators.changes import Changes
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.group_runs import GroupedRows, GroupRun, found, merged, replaced
from millstream.engine.operators.intake import Intake
from millstream.engine.operators.outputs import change_column, is_plus, made_train, progress
from millstream.engine.operators.window_rows import RowQueue

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


class TableChanges(GroupedRows):
    """The changes of a train, one pair at most for each key; with the first train, all that stands. W is the table's."""

    state_name = "table_changes"
    state_fields: tuple[str, ...] = ("_keys", "_runs", "_due")

    def __init__(self, recipe: TableChangesRecipe, inputs: Schema) -> None:
        super().__init__(recipe.schema, [inputs.fields[p].type for p in recipe.table_key])
        self._recipe = recipe
        self._width = len(inputs) - 1
        self._nothing = no_rows(Schema(inputs.fields[: self._width]))
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
        rows = merged(*self._runs).rows
        rows = rows.take(np.argsort(rows.seq, kind="stable"))
        count = len(rows)
        columns = [*rows.columns, change_column(np.ones(count, dtype=np.bool_))]
        return made_train(train, self.schemas[0], columns, np.full(count, seq, dtype=np.int64), np.full(count, time, dtype=np.int64))

    def standing(self, lo: int, watermark_us: int) -> Train:
        """Return the rows of the table as the base does."""
        return self._all(empty_train(self.schemas[0], lo, lo + 1, constant_track(lo, lo + 1, watermark_us)), lo, TIME_MIN)


class ViewChanges(Operator):
    """The changes of a view; with the first train that reaches beyond the coming of the query, all that stands by then."""

    state_name = "view_changes"
    state_fields: tuple[str, ...] = ("_due", "_at")

    def __init__(self, recipe: ViewChangesRecipe, inputs: Schema) -> None:
        super().__init__([recipe.schema])
        self._due: BufferedRows | None = no_rows(Schema(inputs.fields[:-1]))
        self._at = 0

    def preload(self, port: int, rows: Train) -> None:
        """Take up what the view has put out; its changes since, also those of rows from before the query's coming, are read."""
        self._due, _ = _without_kind(rows)
        self._at = rows.hi

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Pass the changes on, once what stood has been shown."""
        train = inputs[0]
        if self._due is None:
            out.emit(train)
            return
        if train.rows:
            new, plus = _without_kind(train)
            rows = concat_rows(self._due, new)
            self._due = rows.take(standing_after(rows, np.concatenate((np.ones(len(self._due), dtype=np.bool_), plus))))
        track = constant_track(train.lo, train.hi, train.track.end)  # its steps may lie before the coming of the query
        if train.hi <= self._at:
            out.emit(progress(train, self.schemas[0], track))
            return
        rows, self._due = self._due, None
        count, time = len(rows), max(train.track.start, 0)
        columns = [*rows.columns, change_column(np.ones(count, dtype=np.bool_))]
        seqs, times = np.full(count, train.hi - 1, dtype=np.int64), np.full(count, time, dtype=np.int64)
        out.emit(made_train(train, self.schemas[0], columns, seqs, times, track))

    def state_rows(self) -> int:
        """Return the rows that are yet to be shown."""
        return len(self._due or ())

    def state_bytes(self) -> int:
        """Return their bytes."""
        return 0 if self._due is None else self._due.nbytes()


def _without_kind(train: Train) -> tuple[BufferedRows, Mask]:
    """Return the rows of a change log, and which of them come."""
    rows = buffered(train, 0).copied()
    return rows, is_plus(rows.columns.pop())


class RowKeeper(Operator):
    """Keeps the rows of a view."""

    @abstractmethod
    def held(self) -> BufferedRows:
        """Return the rows that stand, in order of arrival, without the kind of the change."""

    def standing(self, lo: int, watermark_us: int) -> Train:
        """Return the rows that stand as the base does."""
        rows = self.held()
        base = empty_train(self.schemas[0], lo, lo + 1, constant_track(lo, lo + 1, watermark_us))
        count = len(rows)
        columns = [*rows.columns, change_column(np.ones(count, dtype=np.bool_))]
        return made_train(base, self.schemas[0], columns, np.full(count, lo, dtype=np.int64), np.full(count, TIME_MIN, dtype=np.int64))


class StandingRows(RowKeeper):
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

    def held(self) -> BufferedRows:
        """Return the rows that stand, those of which equal ones go later first."""
        self._merge()
        return self._rows

    def state_rows(self) -> int:
        """Return the rows that stand, and the changes that wait."""
        return len(self._rows) + sum(map(len, self._pending))

    def state_bytes(self) -> int:
        """Return their bytes."""
        return self._rows.nbytes() + sum(rows.nbytes() for rows in self._pending)


class KeptRows(RowKeeper):
    """Rows that only come, as a change log: '+' for one that comes, '-' for one that is kept no longer (K29).

    What has come and is over within a train is not shown. At the end of the stream nothing goes any more (K9).
    """

    state_name = "kept_rows"
    state_fields: tuple[str, ...] = ("_recent", "_last", "_ordinal")

    def __init__(self, recipe: KeptRowsRecipe, inputs: Schema) -> None:
        super().__init__([recipe.schema])
        self._recipe = recipe
        self._recent = Intake(inputs) if recipe.kept_us is not None else None
        self._last = RowQueue(inputs) if recipe.rows_max is not None else None
        self._ordinal = 0

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Take what comes, and let go of what is over."""
        train = inputs[0]
        first = self._ordinal
        self._ordinal += train.rows
        gone = self._moved(train) if self._last is None else self._pushed(train, self._last)
        if not train.rows and not len(gone):
            out.emit(progress(train, self.schemas[0]))
            return
        shown = np.ones(train.rows, dtype=np.bool_)
        shown[gone.ordinal[gone.ordinal >= first] - first] = False
        stood = gone.kept(gone.ordinal < first)
        came = buffered(train, first).kept(shown)
        rows = concat_rows(came, stood)
        op = change_column(np.arange(len(rows)) < len(came))
        seqs = np.concatenate((came.seq, np.full(len(stood), train.hi - 1, dtype=np.int64)))
        out.emit(made_train(train, self.schemas[0], [*rows.columns, op], seqs, rows.time))

    def _moved(self, train: Train) -> BufferedRows:
        assert self._recent is not None
        assert self._recipe.kept_us is not None
        reached = train.track.last_open
        floor = self._recent.watermark
        if TIME_MIN + self._recipe.kept_us < reached < TIME_MAX:
            floor = max(floor, reached - self._recipe.kept_us)
        return self._recent.moved(train, floor)

    def _pushed(self, train: Train, last: RowQueue) -> BufferedRows:
        assert self._recipe.rows_max is not None
        last.push(buffered(train, self._ordinal - train.rows))
        return last.pop_first(max(0, len(last) - self._recipe.rows_max))

    def held(self) -> BufferedRows:
        """Return the rows that are kept."""
        if self._last is not None:
            return self._last.to_state()[1]
        assert self._recent is not None
        rows = self._recent.held()
        return rows.take(np.argsort(rows.ordinal, kind="stable"))

    def wake_at_us(self) -> int | None:
        """Return when the oldest row has been kept long enough: W of a stream by ARRIVAL moves by the clock."""
        oldest = None if self._recent is None else self._recent.oldest_us
        return None if oldest is None or self._recipe.kept_us is None else oldest + self._recipe.kept_us + 1

    def state_rows(self) -> int:
        """Return the rows that are kept."""
        return len(self._recent or self._last or ())

    def state_bytes(self) -> int:
        """Return their bytes."""
        return sum(part.nbytes() for part in (self._recent, self._last) if part is not None)
