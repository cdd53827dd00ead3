"""A stored relation as versions in arrival order: which rows stood in it at a given arrival number.

'+' replaces the row with the same primary key, '-' removes it. A version stands from its own seq up to, not including, the seq of the
change that ended it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.column import Column, concat_columns
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array

FOR_EVER = np.iinfo(np.int64).max


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
