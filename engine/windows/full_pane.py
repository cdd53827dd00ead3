"""A pane that rows of every group have reached: what is left to do for a train that stays in it, prepared once.

Most trains of a busy stream are such: no group is new, no argument is NULL, so each aggregate is one call over whole columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.windows.accumulators import Fold, ValueCounts

Argument = tuple[int, ValueCounts, Sequence[Fold]]


class FullPane:
    """The pane in cells lo to hi of every grid, whichever it is, while the table keeps its memory.

    `counts` are its row counts, a part of `memory`. `columns` are those that aggregates read, each with whom to ask whether all of its rows
    count and with what folds its values; None where some aggregate wants more than whole columns.
    """

    __slots__ = ("_columns", "_counts", "memory")

    def __init__(self, memory: Int64Array, lo: int, hi: int, columns: Sequence[Argument] | None) -> None:
        self.memory = memory
        self._counts = memory[lo:hi]
        self._columns = columns

    def fold(self, rows: Train, ids: Int64Array) -> bool:
        """Fold all rows of a train, whose groups are given; False, and nothing done, where some rows do not count everywhere."""
        if self._columns is None:
            return False
        values = []
        for position, counts, _ in self._columns:
            column = rows.column(position)
            if not counts.leaves_none_out(column):
                return False
            values.append(column.values)
        self._counts += np.bincount(ids, minlength=len(self._counts))
        for (_, _, folds), given in zip(self._columns, values, strict=True):
            for fold in folds:
                fold(ids, given)
        return True
