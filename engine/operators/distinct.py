"""DISTINCT: each different row once, the first to come (K7 says when rows are equal).

Where the rows carry window bounds they are part of the row, and what is known of a window is forgotten once W has passed its end.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.data.watermarks import TIME_MAX, TIME_MIN
from millstream.engine.language.recipes import DistinctRecipe
from millstream.engine.operators.contract import Emitter, Operator


class Distinct(Operator):
    """Remembers the id of each row seen."""

    state_name = "distinct"
    state_fields: tuple[str, ...] = ("_encoder", "_known", "_ends")

    def __init__(self, recipe: DistinctRecipe, inputs: Schema) -> None:
        super().__init__([recipe.schema])
        self._encoder = key_encoder([f.type for f in inputs.fields])
        self._width = len(inputs)
        self._end = recipe.end
        self._known: Int64Array = np.zeros(16, dtype=np.bool_).astype(np.int64)
        self._ends: Int64Array = np.full(16, TIME_MAX, dtype=np.int64)

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Pass on rows not seen before."""
        train = inputs[0]
        if train.rows:
            out.emit(self._new_rows(train))
        else:
            out.emit(train)
        if self._end is not None:
            self._forget(train.track.end)

    def _new_rows(self, train: Train) -> Train:
        ids = self._encoder.encode([train.column(i) for i in range(self._width)])
        size = self._encoder.size
        if size > len(self._known):
            room = max(size, len(self._known))
            self._known = np.concatenate((self._known, np.zeros(room, dtype=np.int64)))
            self._ends = np.concatenate((self._ends, np.full(room, TIME_MAX, dtype=np.int64)))
        unknown = np.flatnonzero(self._known[ids] == 0)
        if not len(unknown):
            return train.select(np.zeros(train.rows, dtype=np.bool_))
        self._known[ids[unknown[::-1]]] = unknown[::-1]  # the first of equal rows writes last
        mask = np.zeros(train.rows, dtype=np.bool_)
        mask[unknown[self._known[ids[unknown]] == unknown]] = True
        self._known[ids] = 1
        if self._end is not None:
            self._ends[ids] = train.column(self._end).values
        return train.select(mask)

    def _forget(self, watermark_us: int) -> None:
        if watermark_us == TIME_MIN:
            return
        gone = np.flatnonzero((self._known == 1) & (self._ends <= watermark_us))
        if len(gone):
            self._known[gone], self._ends[gone] = 0, TIME_MAX
            self._encoder.free(gone)

    def state_rows(self) -> int:
        """Return the different rows remembered."""
        return self._encoder.alive

    def state_bytes(self) -> int:
        """Return their bytes."""
        return self._encoder.nbytes() + int(self._known.nbytes + self._ends.nbytes)
