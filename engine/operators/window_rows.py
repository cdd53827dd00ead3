"""Rows of windows without an aggregate: each row once per window, bounds appended.

Hopping windows are stateless: a row leaves at once, in order of its windows, and is never late, as a plain selection's is not (K4), unless
what stands above answers when windows close. A row between windows leaves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.column import Column
from millstream.engine.data.train import Train
from millstream.engine.data.types import TIMESTAMP
from millstream.engine.data.watermarks import TIME_MIN
from millstream.engine.language.recipes import WindowRecipe
from millstream.engine.operators.contract import Emitter, Operator
from millstream.engine.operators.outputs import progress
from millstream.engine.windows.assigners import assigner_for


class WindowRows(Operator):
    """Each row of a hopping or cumulating window, once per window."""

    stateful = False

    def __init__(self, recipe: WindowRecipe) -> None:
        super().__init__([recipe.schema])
        self._assigner = assigner_for(recipe.window)
        self._closes = self.calls_late = recipe.closes

    def process(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Repeat each row for its windows."""
        train = inputs[0]
        if self._closes and train.rows:
            train = self._take_out_late(train, out)
        if train.rows == 0:
            out.emit(progress(train, self.schemas[0]))
            return
        panes, place = np.unique(self._assigner.panes(train.time.array()), return_inverse=True)
        spans = np.array([self._assigner.windows_of(p) for p in panes.tolist()], dtype=np.int64)
        first, last = spans[place, 0], spans[place, 1]
        sizes = np.maximum(last - first + 1, 0)
        index = np.repeat(np.arange(train.rows, dtype=np.int64), sizes)
        before = np.cumsum(sizes) - sizes
        windows = np.arange(len(index), dtype=np.int64) - np.repeat(before - first, sizes)
        different, at = np.unique(windows, return_inverse=True)
        starts = np.array([self._assigner.start(w) for w in different.tolist()], dtype=np.int64)[at]
        ends = np.array([self._assigner.end(w) for w in different.tolist()], dtype=np.int64)[at]
        if self._closes:
            reached = ends > train.track.before(train.seq.array())[index]
            index, starts, ends = index[reached], starts[reached], ends[reached]
        repeated = train.take(index)
        slots = [*(repeated.slot(i) for i in range(len(train.schema))), Column(TIMESTAMP, starts), Column(TIMESTAMP, ends)]
        out.emit(repeated.replace_columns(self.schemas[0], slots))

    def _take_out_late(self, train: Train, out: Emitter) -> Train:
        """Part the rows that reach no window that is open from the others, and count those that miss only some."""
        first, last = self._assigner.closings(train.time.array())
        watermark = train.track.before(train.seq.array())
        inside = last != TIME_MIN
        late = inside & (last <= watermark)
        partly = train.seq.array()[inside & ~late & (first <= watermark)]
        if len(partly):
            out.partly_late.append((0, partly))
        if not late.any():
            return train
        out.late.append((0, train.take(np.flatnonzero(late))))
        return train.select(~late)
