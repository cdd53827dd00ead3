"""A pane that rows of every group have reached: what is left to do for a train that stays in it, prepared once.

Most trains of a busy stream are such: no group is new, no argument is NULL, so each aggregate is one call over whole columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.train import Int64Array, Train
from millstream.engine.windows.accumulators import Fold, ValueCounts


class FullPane:
    """The pane in a slot, whichever it is, while the table keeps its shape. `folds` None: an aggregate wants more than whole columns."""

    __slots__ = ("_asked", "_counts", "_folds", "shape")

    def __init__(
        self,
        shape: tuple[int, int],
        counts: Int64Array,
        asked: Sequence[tuple[int, ValueCounts]],
        folds: Sequence[tuple[int, Fold]] | None,
    ) -> None:
        self.shape = shape
        self._counts = counts
        self._asked = asked
        self._folds = folds

    def fold(self, rows: Train, ids: Int64Array) -> bool:
        """Fold all rows of a train, whose groups are given; False, and nothing done, where some rows do not count everywhere."""
        if self._folds is None:
            return False
        for column, counts in self._asked:
            if not counts.leaves_none_out(rows.column(column)):
                return False
        self._counts += np.bincount(ids, minlength=len(self._counts))
        for column, fold in self._folds:
            fold(ids, rows.column(column).values)
        return True
