"""Stored relations: what stands in a table now, for queries that come later, and the shape of its change log."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrivals import NO_ARRIVALS
from millstream.engine.data.column import Column, concat_columns, null_column
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.schema import Field, Schema
from millstream.engine.data.train import Int64Array, Numbers, Train
from millstream.engine.data.types import TEXT
from millstream.engine.data.watermarks import constant_track
from numpy.typing import NDArray

PENDING_ROWS_MIN = 10_000  # changes are merged into the content when there are this many, and more of them than rows


def change_schema(schema: Schema) -> Schema:
    """Return the schema of a table's change log: its columns, then `op` ('+' or '-')."""
    return Schema((*schema.fields, Field("op", TEXT, nullable=False)))


def plus_column(rows: int) -> Column:
    """Return an `op` column of '+'."""
    return Column(TEXT, pa.array(["+"] * rows, type=pa.string()))


def standing_places(keys: Sequence[Column], added: NDArray[np.bool_]) -> Int64Array:
    """Return the places, in order, of the rows that stand after all of them came: the last of each key, unless it deletes."""
    ids = key_encoder([k.type for k in keys]).encode(keys)
    last = len(ids) - 1 - np.unique(ids[::-1], return_index=True)[1]
    return np.sort(last[added[last]])


class TableContent:
    """The standing rows; recent changes are merged in when asked for or when they pile up. Guarded by the ingress lock."""

    def __init__(self, schema: Schema, key: Sequence[int]) -> None:
        self.schema = schema
        self._key = tuple(key)
        self._columns = [null_column(f.type, 0) for f in schema.fields]
        self._pending: list[Train] = []
        self._pending_rows = 0

    def with_op(self, columns: Sequence[Column]) -> Sequence[Column]:
        """Return the columns of a publish as changes: without an `op` column every row is an upsert; a NULL there is one too."""
        width = len(self.schema)
        rows = len(columns[0])
        if len(columns) == width:
            return [*columns, plus_column(rows)]
        op = columns[width]
        return [*columns[:width], Column(TEXT, op.values.fill_null("+")) if op.values.null_count else op]

    def changed(self, train: Train) -> None:
        """Note changes that have been let in."""
        if train.rows:
            self._pending.append(train)
            self._pending_rows += train.rows
            if self._pending_rows > max(PENDING_ROWS_MIN, len(self._columns[0])):
                self._merge()

    def _merge(self) -> None:
        if not self._pending:
            return
        width = len(self.schema)
        columns = [concat_columns([self._columns[i], *(t.column(i) for t in self._pending)]) for i in range(width)]
        standing = len(self._columns[0])
        ops = [op for t in self._pending for op in t.column(width).values.to_pylist()]
        added = np.concatenate((np.ones(standing, dtype=np.bool_), np.array([op != "-" for op in ops], dtype=np.bool_)))
        kept = standing_places([columns[k] for k in self._key], added)
        self._columns = [c.take(kept) for c in columns]
        self._pending, self._pending_rows = [], 0

    def load(self, columns: Sequence[Column]) -> None:
        """Let these rows stand, as `content` gave them."""
        self._columns = list(columns[: len(self.schema)])
        self._pending, self._pending_rows = [], 0

    def content(self, at: int) -> Train:
        """Return the standing rows as '+' changes that came just before the arrival number `at`."""
        self._merge()
        rows = len(self._columns[0])
        return Train(
            change_schema(self.schema),
            [*self._columns, plus_column(rows)],
            rows=rows,
            lo=at - 1,
            hi=at,
            seq=Numbers(rows, start=at - 1),
            time=Numbers(rows),
            arrival=NO_ARRIVALS,
            track=constant_track(at - 1, at, 0),
        )
