"""An aggregate without a window as a relation over time, for ISTREAM, DSTREAM and RSTREAM: what changes at each instant.

The change log of a RunningAggregate takes a train's rows together, so which of the values in between it shows depends on trains; its sum
does not (K9). CQL's words look at the relation at every instant, so here rows wait until W has passed their time and the rows of one
instant, in order, are folded together. A row below W is late, as for a sliding window (K4).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.buffered import BufferedRows
from millstream.engine.data.column import Column, concat_columns
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.data.watermarks import WatermarkTrack
from millstream.engine.language.recipes import AggregateRecipe
from millstream.engine.operators.contract import Emitter
from millstream.engine.operators.intake import Intake
from millstream.engine.operators.outputs import made_train, progress
from millstream.engine.operators.running_aggregate import RunningAggregate, as_train


class InstantAggregate(RunningAggregate):
    """See the module's text. Uses the folding and the comparing of the RunningAggregate, one instant at a time."""

    calls_late = True
    state_fields: tuple[str, ...] = (*RunningAggregate.state_fields, "_intake")

    def __init__(self, recipe: AggregateRecipe, inputs: Schema) -> None:
        super().__init__(recipe, inputs)
        self._intake = Intake(inputs)

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Take rows in; give the changes of the instants that W has passed."""
        train = inputs[0]
        taken = self._intake.take(train, out)
        out.emit(self._changes(train, taken.track, taken.ready, out))

    def _changes(self, train: Train, track: WatermarkTrack, ready: BufferedRows, out: Emitter) -> Train:
        parts: list[list[Column]] = []
        times: list[Int64Array] = []
        starts = np.flatnonzero(np.diff(ready.time, prepend=ready.time[:1] - 1)) if len(ready) else np.empty(0, dtype=np.int64)
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(ready)], strict=False):
            rows = self._admitted(as_train(ready.take(np.arange(start, stop, dtype=np.int64)), self._inputs), out)
            changed = self._change(rows, rows)
            if changed.rows:
                parts.append(changed.columns())
                times.append(changed.time.array())
        if not parts:
            return progress(train, self.schemas[0], track)
        columns = [concat_columns(list(c)) for c in zip(*parts, strict=True)]
        instants = np.concatenate(times)
        target = np.clip(instants, track.start, track.end - 1) + 1
        return made_train(train, self.schemas[0], columns, track.first_reaching(target), instants, track)

    def wake_at_us(self) -> int | None:
        """Return when W must tick past the oldest row that waits."""
        return None if self._intake.oldest_us is None else self._intake.oldest_us + 1

    def state_rows(self) -> int:
        """Return groups and waiting rows."""
        return super().state_rows() + len(self._intake)

    def state_bytes(self) -> int:
        """Return the bytes held."""
        return super().state_bytes() + self._intake.nbytes()
