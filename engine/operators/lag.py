"""LAG(x, n) OVER (PARTITION BY …): the value n rows before, in event-time order (ties: arrival) within the partition.

A row leaves once W has passed its time, as only then its place is certain.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.buffered import BufferedRows, concat_rows, no_rows
from millstream.engine.data.column import with_nulls
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Train
from millstream.engine.data.watermarks import WatermarkTrack
from millstream.engine.language.recipes import LagRecipe
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.intake import Intake
from millstream.engine.operators.outputs import made_train, progress


class Lag(Operator):
    """Keeps rows that wait for W, and the last `offset` rows of each partition."""

    calls_late = True
    state_name = "lag"
    state_fields: tuple[str, ...] = ("_intake", "_before")

    def __init__(self, recipe: LagRecipe, inputs: Schema) -> None:
        super().__init__([recipe.schema])
        self._recipe = recipe
        self._inputs = inputs
        self._intake = Intake(inputs)
        self._before = no_rows(inputs)

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Take rows in; let those go that W has passed."""
        train = inputs[0]
        taken = self._intake.take(train, out)
        if len(taken.ready):
            out.emit(self._with_values(train, taken.track, taken.ready))
        else:
            out.emit(progress(train, self.schemas[0], taken.track))

    def _with_values(self, train: Train, track: WatermarkTrack, ready: BufferedRows) -> Train:
        rows = concat_rows(self._before, ready)
        ids = np.zeros(len(rows), dtype=np.int64)
        if self._recipe.partition:
            columns = [rows.columns[p] for p in self._recipe.partition]
            ids = key_encoder([c.type for c in columns]).encode(columns)
        order = np.argsort(ids, kind="stable")
        place = np.empty(len(rows), dtype=np.int64)
        place[order] = np.arange(len(rows), dtype=np.int64)
        in_order = ids[order]
        first = np.searchsorted(in_order, in_order, side="left")[place]
        after = np.searchsorted(in_order, in_order, side="right")[place] - place
        source = place - self._recipe.offset
        known = source >= first
        new = slice(len(rows) - len(ready), len(rows))
        picked = order[np.where(known, source, 0)][new]
        values = rows.columns[self._recipe.value].take(picked)
        if not known[new].all():
            values = with_nulls(values, known[new])
        self._before = rows.take(np.flatnonzero(after <= self._recipe.offset))
        seqs = track.first_reaching(np.clip(ready.time, track.start, track.end - 1) + 1)
        return made_train(train, self.schemas[0], [*ready.columns, values], seqs, ready.time, track)

    def wake_at_us(self) -> int | None:
        """Return when W must tick past the oldest row that waits."""
        return None if self._intake.oldest_us is None else self._intake.oldest_us + 1

    def state_rows(self) -> int:
        """Return the rows held."""
        return len(self._intake) + len(self._before)

    def state_bytes(self) -> int:
        """Return their bytes."""
        return self._intake.nbytes() + self._before.nbytes()
