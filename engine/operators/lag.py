"""LAG(x, n) OVER (PARTITION BY …): values of n rows before, in event-time order (ties: arrival) within the partition.

A row leaves once W has passed its time, as only then its place is certain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from millstream.engine.data.arrays import distinct
from millstream.engine.data.buffered import BufferedRows
from millstream.engine.data.column import Column, with_nulls
from millstream.engine.data.keys import KeyEncoder, key_encoder
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.language.recipes import LagRecipe
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.intake import Intake
from millstream.engine.operators.outputs import made_train, progress
from millstream.engine.windows.vectors import StoredColumns, Vectors


def _from_version_1(fields: dict[str, Any]) -> dict[str, Any]:
    """Version 1 kept whole rows: they are counted in when the next ones come."""
    return {"_intake": fields["_intake"], "_keys": None, "_last": None, "_older": fields["_before"]}


class Lag(Operator):
    """Keeps rows that wait for W, and the last `offset` values of each partition."""

    calls_late = True
    state_name = "lag"
    state_version = 2
    state_fields: tuple[str, ...] = ("_intake", "_keys", "_last", "_older")
    state_migrations: ClassVar = {1: _from_version_1}

    def __init__(self, recipe: LagRecipe, inputs: Schema) -> None:
        super().__init__([recipe.schema])
        self._recipe = recipe
        self._inputs = inputs
        self._intake = Intake(inputs)
        self._stored = StoredColumns(inputs, recipe.values, 0)
        self._keys: KeyEncoder | None = None
        self._last: Vectors | None = None  # by partition, the last values of it
        self._older: BufferedRows | None = None

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Take rows in; let those go that W has passed."""
        train = inputs[0]
        taken = self._intake.take(train, out)
        if not len(taken.ready):
            out.emit(progress(train, self.schemas[0], taken.track))
            return
        if self._older is not None:
            older, self._older = self._older, None
            if len(older):
                self._values(older)
        ready, track = taken.ready, taken.track
        columns = [*ready.columns, *self._values(ready)]
        seqs = track.first_reaching(np.clip(ready.time, track.start, track.end - 1) + 1)
        out.emit(made_train(train, self.schemas[0], columns, seqs, ready.time, track))

    def _values(self, rows: BufferedRows) -> list[Column]:
        """Return what each row looks back to, and keep of each partition what the next ones will."""
        last = self._last = self._last or Vectors(self._stored.dtypes)
        ids = self._partitions(rows)
        last.reserve_ids(int(ids.max()) + 1)
        order = np.argsort(ids, kind="stable")
        in_order = ids[order]
        at = np.empty(len(rows), dtype=np.int64)
        at[order] = last.append(in_order, [array[order] for array in self._stored.stored(rows.columns, len(rows))])
        at -= self._recipe.offset
        known = at >= last.start[ids]
        columns = self._stored.gathered(last, np.where(known, at, 0))
        touched = distinct(in_order)
        last.drop_front(touched, np.maximum(0, last.size[touched] - self._recipe.offset))
        return columns if known.all() else [with_nulls(column, known) for column in columns]

    def _partitions(self, rows: BufferedRows) -> Int64Array:
        if not self._recipe.partition:
            return np.zeros(len(rows), dtype=np.int64)
        columns = [rows.columns[p] for p in self._recipe.partition]
        if self._keys is None:
            self._keys = key_encoder([column.type for column in columns])
        return self._keys.encode(columns).astype(np.int64)

    def wake_at_us(self) -> int | None:
        """Return when W must tick past the oldest row that waits."""
        return None if self._intake.oldest_us is None else self._intake.oldest_us + 1

    def state_rows(self) -> int:
        """Return the rows held."""
        return len(self._intake) + (0 if self._last is None else self._last.live)

    def state_bytes(self) -> int:
        """Return their bytes."""
        held = 0 if self._last is None else self._last.nbytes()
        return self._intake.nbytes() + held + (0 if self._keys is None else self._keys.nbytes())
