"""Stream–table join (K18): a left row meets the rows that stand in the table at its place in arrival order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.column import Column, concat_columns, null_column, taken_or_null
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.expressions.compile import compile_predicate
from millstream.engine.language.recipes import JoinKind, TableJoinRecipe
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.join_keys import KeyColumns
from millstream.engine.operators.outputs import progress
from millstream.engine.operators.row_operators import context_of, report_errors
from millstream.engine.state.forms import state_record

FOR_EVER = np.iinfo(np.int64).max


@state_record("table_versions", 1, ("_schema", "_key", "columns", "begins", "ends", "changed"))
class TableVersions:
    """All versions that some arrival number at or above the last `forget` may still see."""

    def __init__(self, schema: Schema, key: Sequence[int], columns: Sequence[Column]) -> None:
        self._schema = schema
        self._key = tuple(key)
        self.columns = list(columns)
        rows = len(columns[0])
        self.begins: Int64Array = np.zeros(rows, dtype=np.int64)
        self.ends: Int64Array = np.full(rows, FOR_EVER, dtype=np.int64)
        self.changed = True

    def __len__(self) -> int:
        """Return the number of versions."""
        return len(self.begins)

    def nbytes(self) -> int:
        """Return the bytes of all versions."""
        return sum(c.nbytes() for c in self.columns) + int(self.begins.nbytes + self.ends.nbytes)

    def apply(self, columns: Sequence[Column], op: Column, seqs: Int64Array) -> None:
        """Apply changes in order of arrival."""
        if len(seqs) == 0:
            return
        every = [concat_columns([a, b]) for a, b in zip(self.columns, columns, strict=True)]
        begins = np.concatenate((self.begins, seqs))
        ends = np.concatenate((self.ends, np.full(len(seqs), FOR_EVER, dtype=np.int64)))
        added = np.array(op.values.to_pylist(), dtype=np.str_) != "-"
        alive = np.concatenate((np.ones(len(self), dtype=np.bool_), added))
        keys = [every[k] for k in self._key]
        ids = key_encoder([k.type for k in keys]).encode(keys)
        order = np.argsort(ids, kind="stable")
        same = ids[order][1:] == ids[order][:-1]
        # Each version of a key ends where the next change of that key begins.
        earlier, later = order[:-1][same], order[1:][same]
        ends[earlier] = np.minimum(ends[earlier], begins[later])
        kept = np.flatnonzero(alive & (begins < ends))
        self.columns = [c.take(kept) for c in every]
        self.begins, self.ends = begins[kept], ends[kept]
        self.changed = True

    def forget(self, below_seq: int) -> None:
        """Drop versions that ended at or before an arrival number; nobody asks about earlier ones any more."""
        kept = self.ends > below_seq
        if kept.all():
            return
        index = np.flatnonzero(kept)
        self.columns = [c.take(index) for c in self.columns]
        self.begins, self.ends = self.begins[index], self.ends[index]
        self.changed = True


STREAM, TABLE = 0, 1


class TableJoin(Operator):
    """Port 0 is the stream, port 1 the table's change log. The answer's W, and its end, are the stream's."""

    state_name = "table_join"
    state_fields: tuple[str, ...] = ("_table", "_ended")

    def __init__(self, recipe: TableJoinRecipe, inputs: Sequence[Schema]) -> None:
        super().__init__([recipe.schema])
        self._ended = False
        self._recipe = recipe
        self._width = len(inputs[TABLE]) - 1
        self._fields = inputs[TABLE].fields[: self._width]
        table = Schema(self._fields)
        self._table = TableVersions(table, recipe.table_key, [null_column(f.type, 0) for f in self._fields])
        self._make_ready(recipe, inputs[STREAM], table)

    def _make_ready(self, recipe: TableJoinRecipe, stream: Schema, table: Schema) -> None:
        """Prepare what is asked of each row."""
        self._keys = KeyColumns(recipe, (stream, table))
        self._residual = None if recipe.residual is None else compile_predicate(recipe.residual)

    def preload(self, port: int, rows: Train) -> None:
        """Take up what stands in the table when the query is attached."""
        assert port == TABLE
        self._change(rows)

    def attached(self, watermarks_us: Sequence[int], idle: Sequence[bool]) -> int:
        """W is the stream's."""
        return watermarks_us[STREAM]

    def _change(self, rows: Train) -> None:
        columns = [rows.column(i) for i in range(self._width)]
        self._table.apply(columns, rows.column(self._width), rows.seq.array())

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Apply the table's changes, then look each left row up among the versions of its place."""
        train, changes = inputs
        if changes.rows:
            self._change(changes)
        joined = self._join(train, out) if train.rows else progress(train, self.schemas[0])
        self._table.forget(train.hi)
        # The stream's end is the join's; what the table does after it must not end it again.
        joined.ended, self._ended = train.ended and not self._ended, train.ended
        out.emit(joined)

    def _join(self, train: Train, out: Emitter) -> Train:
        at_left, at_right = self._pairs(train)
        if self._residual is not None and len(at_left):
            candidates = self._train(train, at_left, at_right)
            context = context_of(candidates)
            true = self._residual(candidates, context)
            report_errors(context, candidates, out)
            at_left, at_right = at_left[true], at_right[true]
        if self._recipe.kind is JoinKind.LEFT:
            alone = np.setdiff1d(np.arange(train.rows, dtype=np.int64), at_left)
            at_left = np.concatenate((at_left, alone))
            at_right = np.concatenate((at_right, np.full(len(alone), -1, dtype=np.int64)))
            order = np.argsort(at_left, kind="stable")
            at_left, at_right = at_left[order], at_right[order]
        return self._train(train, at_left, at_right)

    def _pairs(self, train: Train) -> tuple[Int64Array, Int64Array]:
        """Return left rows and table versions with equal keys, the version standing when the row came; by left row, then version."""
        nothing = np.empty(0, dtype=np.int64)
        if len(self._table) == 0:
            return nothing, nothing
        left, right = self._keys.ids(train.columns(), self._table.columns)
        order = np.lexsort((self._table.begins, right))
        first = np.searchsorted(right[order], left, side="left")
        counts = np.searchsorted(right[order], left, side="right") - first
        counts[left < 0] = 0
        at_left = np.repeat(np.arange(train.rows, dtype=np.int64), counts)
        before = np.cumsum(counts) - counts
        at_right = order[np.arange(len(at_left), dtype=np.int64) - np.repeat(before - first, counts)]
        seqs = train.seq.array()[at_left]
        stands = (self._table.begins[at_right] <= seqs) & (seqs < self._table.ends[at_right])
        return at_left[stands], at_right[stands]

    def _train(self, train: Train, at_left: Int64Array, at_right: Int64Array) -> Train:
        left = train.take(at_left)
        columns = [taken_or_null(c, at_right) for c in self._table.columns]
        slots = [*(left.slot(i) for i in range(len(train.schema))), *columns]
        return left.replace_columns(self.schemas[0], slots)

    def state_rows(self) -> int:
        """Return the versions held."""
        return len(self._table)

    def state_bytes(self) -> int:
        """Return their bytes."""
        return self._table.nbytes()
