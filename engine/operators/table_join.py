"""Stream–table join (K18): a left row meets the rows that stand in the table at its place in arrival order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from millstream.engine.data.arrays import distinct
from millstream.engine.data.column import Column, concat_columns, null_column, taken_or_null
from millstream.engine.data.keys import KeyEncoder, key_encoder
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.expressions.compile import compile_predicate
from millstream.engine.language.recipes import JoinKind, TableJoinRecipe
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.join_keys import KeyIndex
from millstream.engine.operators.outputs import is_plus, progress
from millstream.engine.operators.row_operators import context_of, report_errors
from millstream.engine.state.forms import state_record

FOR_EVER = np.iinfo(np.int64).max
FEW = 256  # versions that are made anew with each change whatever there are
ENDED_PART = 4  # one of so many versions may have ended before they are written without those


class _Versions:
    """Some versions, by begin. What finds them by a key is made when it is first needed, and holds until rows come or go."""

    def __init__(self, columns: Sequence[Column], begins: Int64Array, ends: Int64Array) -> None:
        self.columns = list(columns)
        self.begins = begins
        self.ends = ends
        self.ended = int(np.count_nonzero(ends != FOR_EVER))
        self.index: KeyIndex | None = None  # by the columns of the join
        self._latest: tuple[KeyEncoder, Int64Array] | None = None  # by the table's key: the place of the last version of each

    def __len__(self) -> int:
        return len(self.begins)

    def take(self, at: Int64Array) -> _Versions:
        """Return the versions at these places."""
        return _Versions([c.take(at) for c in self.columns], self.begins[at], self.ends[at])

    def and_then(self, later: _Versions) -> _Versions:
        """Return these versions and later ones."""
        columns = [concat_columns([a, b]) for a, b in zip(self.columns, later.columns, strict=True)]
        return _Versions(columns, np.concatenate((self.begins, later.begins)), np.concatenate((self.ends, later.ends)))

    def end(self, key: Sequence[int], columns: Sequence[Column], seqs: Int64Array) -> None:
        """End the versions that changes of their keys follow."""
        if not len(self):
            return
        if self._latest is None:
            encoder = key_encoder([self.columns[k].type for k in key])
            ids = encoder.encode([self.columns[k] for k in key])
            latest = np.zeros(encoder.size, dtype=np.int64)
            latest[ids] = np.arange(len(self), dtype=np.int64)  # of several places the last is kept
            self._latest = encoder, latest
        encoder, latest = self._latest
        ids = encoder.find([columns[k] for k in key])
        at = latest[ids[ids >= 0]]
        self.ended += len(distinct(at[self.ends[at] == FOR_EVER]))
        np.minimum.at(self.ends, at, seqs[ids >= 0])

    def nbytes(self) -> int:
        """Return the bytes of the versions, and of what finds them."""
        found = 0 if self.index is None else self.index.nbytes()
        found += 0 if self._latest is None else self._latest[0].nbytes() + int(self._latest[1].nbytes)
        return sum(c.nbytes() for c in self.columns) + int(self.begins.nbytes + self.ends.nbytes) + found


@state_record("table_versions", 1, ("_schema", "_key", "columns", "begins", "ends", "changed"))
class TableVersions:
    """All versions that some arrival number at or above the last `forget` may still see.

    Most lie in `parts[0]`, which only ends some of them when the table changes; the latest are in `parts[1]`, few enough to be made anew
    with each change. They join the others when that costs as much as they have cost, so a change to a large table costs about the root
    of its rows.
    """

    def __init__(self, schema: Schema, key: Sequence[int], columns: Sequence[Column]) -> None:
        self._schema = schema
        self._key = tuple(key)
        rows = len(columns[0])
        self._hold(_Versions(columns, np.zeros(rows, dtype=np.int64), np.full(rows, FOR_EVER, dtype=np.int64)))

    def _hold(self, versions: _Versions) -> None:
        self.parts = versions, versions.take(np.empty(0, dtype=np.int64))

    def to_state(self) -> tuple[Any, ...]:
        """Return all versions; `changed` told once that what had been looked up was no longer true."""
        whole = self.parts[0].and_then(self.parts[1])
        return self._schema, self._key, whole.columns, whole.begins, whole.ends, True

    @classmethod
    def from_state(cls, fields: dict[str, Any]) -> TableVersions:
        """Return the versions; what finds them is made again."""
        made = cls(fields["_schema"], fields["_key"], [null_column(f.type, 0) for f in fields["_schema"].fields])
        made._hold(_Versions(fields["columns"], fields["begins"], np.array(fields["ends"], dtype=np.int64)))
        return made

    def __len__(self) -> int:
        """Return the number of versions that may be seen; of the many those that have ended are not counted."""
        return len(self.parts[0]) - self.parts[0].ended + len(self.parts[1])

    def nbytes(self) -> int:
        """Return the bytes of all versions, and of what finds them."""
        return sum(part.nbytes() for part in self.parts)

    def apply(self, columns: Sequence[Column], op: Column, seqs: Int64Array) -> None:
        """Apply changes in order of arrival."""
        if len(seqs) == 0:
            return
        most, few = self.parts
        most.end(self._key, columns, seqs)
        added = is_plus(op)
        alive = np.concatenate((np.ones(len(few), dtype=np.bool_), added))
        few = few.and_then(_Versions(columns, seqs, np.full(len(seqs), FOR_EVER, dtype=np.int64)))
        keys = [few.columns[k] for k in self._key]
        ids = key_encoder([k.type for k in keys]).encode(keys)
        order = np.argsort(ids, kind="stable")
        same = ids[order][1:] == ids[order][:-1]
        # Each version of a key ends where the next change of that key begins.
        earlier, later = order[:-1][same], order[1:][same]
        few.ends[earlier] = np.minimum(few.ends[earlier], few.begins[later])
        few = few.take(np.flatnonzero(alive & (few.begins < few.ends)))
        self.parts = most, few
        if len(few) > FEW and len(few) ** 2 > 2 * len(most) * len(seqs):
            self._hold(most.and_then(few))

    def forget(self, below_seq: int) -> None:
        """Drop versions that ended at or before an arrival number; nobody asks about earlier ones any more."""
        most, few = self.parts
        if few.ended:
            few = _without(few, below_seq)
        if ENDED_PART * most.ended > len(most):
            most = _without(most, below_seq)
        self.parts = most, few

    def standing(self, seq: int) -> tuple[list[Column], int]:
        """Return the columns of the rows that stood at an arrival number, and how many they are."""
        stood = [part.take(np.flatnonzero((part.begins <= seq) & (seq < part.ends))) for part in self.parts]
        whole = stood[0].and_then(stood[1])
        return whole.columns, len(whole)

    def take(self, at: Int64Array) -> list[Column]:
        """Return the columns of versions, NULL at a negative place. Places of `parts[1]` follow those of `parts[0]`."""
        most, few = self.parts
        is_few = at >= len(most)
        if not is_few.any():
            return [taken_or_null(column, at) for column in most.columns]
        is_most = (at >= 0) & ~is_few
        place = np.full(len(at), -1, dtype=np.int64)
        count = int(np.count_nonzero(is_most))
        place[is_most] = np.arange(count, dtype=np.int64)
        place[is_few] = np.arange(count, count + int(np.count_nonzero(is_few)), dtype=np.int64)
        found = most.take(at[is_most]).and_then(few.take(at[is_few] - len(most)))
        return [taken_or_null(column, place) for column in found.columns]


def _without(versions: _Versions, below_seq: int) -> _Versions:
    kept = versions.ends > below_seq
    return versions if kept.all() else versions.take(np.flatnonzero(kept))


STREAM, TABLE = 0, 1
_NOTHING: Int64Array = np.empty(0, dtype=np.int64)


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
        self._inputs = stream, table
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
            alone = np.flatnonzero(np.bincount(at_left, minlength=train.rows) == 0)
            at_left = np.concatenate((at_left, alone))
            at_right = np.concatenate((at_right, np.full(len(alone), -1, dtype=np.int64)))
            order = np.argsort(at_left, kind="stable")
            at_left, at_right = at_left[order], at_right[order]
        return self._train(train, at_left, at_right)

    def _pairs(self, train: Train) -> tuple[Int64Array, Int64Array]:
        """Return left rows and table versions with equal keys, the version standing when the row came; by left row, then version."""
        seqs = train.seq.array()
        found, before = [], 0
        for part in self._table.parts:
            if len(part):
                if part.index is None:
                    part.index = KeyIndex(self._recipe, self._inputs, part.columns, len(part))
                ids = part.index.find(train.columns(), train.rows)
                at_left, at_right = part.index.pairs(ids, part.index.counts(ids))
                stands = (part.begins[at_right] <= seqs[at_left]) & (seqs[at_left] < part.ends[at_right])
                found.append((at_left[stands], at_right[stands] + before))
            before += len(part)
        if len(found) == 1:
            return found[0]
        at_left, at_right = (np.concatenate([_NOTHING, *one]) for one in zip(*found, strict=True)) if found else (_NOTHING, _NOTHING)
        order = np.argsort(at_left, kind="stable")
        return at_left[order], at_right[order]

    def _train(self, train: Train, at_left: Int64Array, at_right: Int64Array) -> Train:
        left = train.take(at_left)
        slots = [*(left.slot(i) for i in range(len(train.schema))), *self._table.take(at_right)]
        return left.replace_columns(self.schemas[0], slots)

    def state_rows(self) -> int:
        """Return the versions held."""
        return len(self._table)

    def state_bytes(self) -> int:
        """Return their bytes."""
        return self._table.nbytes()
