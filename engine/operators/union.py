"""Union: merge inputs of one schema by arrival number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.train import Train, empty_train, merge_trains
from millstream.engine.language.recipes import UnionRecipe
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.minimum import MinimumWatermark


class Union(Operator):
    """Keeps only the watermark. Rows of equal arrival number come in order of the inputs."""

    state_fields: tuple[str, ...] = ("_watermark",)

    def __init__(self, recipe: UnionRecipe) -> None:
        super().__init__([recipe.schema])
        self.input_count = recipe.inputs
        self._watermark = MinimumWatermark(recipe.inputs)

    def attached(self, watermarks_us: Sequence[int], idle: Sequence[bool]) -> int:
        """Take up W where the inputs stand."""
        return self._watermark.attached(watermarks_us, idle)

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Merge one interval."""
        was_idle = self._watermark.all_idle
        track = self._watermark.advance(inputs)
        full = [t for t in inputs if t.rows]
        lo, hi = inputs[0].lo, inputs[0].hi
        if not full:
            merged = empty_train(self.schemas[0], lo, hi, track, arrival_ns=max(t.newest_arrival() for t in inputs))
        elif len(full) == 1:
            merged = full[0].replace_columns(self.schemas[0], [full[0].slot(i) for i in range(len(self.schemas[0]))])
        else:
            order = np.argsort(np.concatenate([t.seq.array() for t in full]), kind="stable")
            merged = merge_trains(full, self.schemas[0], order)
        merged.track = track
        merged.ended = all(t.ended for t in inputs)
        merged.idle = self._watermark.all_idle if self._watermark.all_idle != was_idle else None
        merged.flush = any(t.flush for t in inputs) and self._watermark.all_idle
        out.emit(merged)
