"""Semantic shedding: which rows are worth least, by an expression that a query declares (`shed_by`).

Rows are told apart by (utility, chance), chance being the hash that random shedding uses, so that equal utilities are no hindrance; NULL
and NaN are worth least. A row falls when its pair is below a threshold: the quantile, at the drop ratio, of the pairs of the HISTORY_ROWS
rows before the block of BLOCK_NUMBERS arrival numbers that the row is in. So the threshold is the same however the rows are cut into
trains. Before a block has history enough, chance alone decides. The share that falls follows the ratio as far as the next rows are
like the last ones; what fell is counted exactly all the same.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from millstream.engine.data.distinct_values import distinct
from millstream.engine.data.train import Train
from millstream.engine.expressions.compile import compile_expression
from millstream.engine.expressions.ir import Expression
from millstream.engine.operators.evaluate import context_of

BLOCK_NUMBERS = 1_024
HISTORY_ROWS = 4_096
HISTORY_ROWS_MIN = 256

FloatArray = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class Utilities:
    """A compiled DOUBLE expression over a stream's columns; rows at which it fails or is NULL get NaN.

    `failed` counts the rows at which it failed, `reason` is that of the last of them.
    """

    def __init__(self, expression: Expression) -> None:
        self._kernel = compile_expression(expression)
        self.failed = 0
        self.reason = ""

    def __call__(self, train: Train) -> FloatArray:
        """Evaluate over all rows of a chunk."""
        context = context_of(train)
        with np.errstate(all="ignore"):
            column = self._kernel(train, context)
        if context.errors:
            self.failed += len(distinct(np.concatenate([positions for positions, _ in context.errors])))
            self.reason = context.errors[-1][1]
        values: FloatArray = column.values.astype(np.float64)
        return values if column.valid is None else np.where(column.valid, values, np.nan)


class UtilityOrder:
    """The order of one query's rows. `utilities` evaluates the expression over a chunk of the stream: NaN where it is NULL."""

    def __init__(self, utilities: Callable[[Train], FloatArray]) -> None:
        self._utilities = utilities
        self._block = -1
        self._open: list[tuple[FloatArray, FloatArray]] = []  # pairs of the block that is not over yet
        self._history: tuple[FloatArray, FloatArray] = (np.empty(0), np.empty(0))
        self._sorted: tuple[FloatArray, FloatArray] | None = None

    @property
    def failures(self) -> tuple[int, str]:
        """At how many rows the expression failed, and why at the last of them."""
        return (self._utilities.failed, self._utilities.reason) if isinstance(self._utilities, Utilities) else (0, "")

    def keep(self, train: Train, ratio: float, chance: FloatArray) -> Mask | None:
        """Return which rows to keep at a drop ratio, None for all of them; learn from all."""
        utilities = self._utilities(train)
        utilities = np.where(np.isnan(utilities), -np.inf, utilities)
        blocks = train.seq.array() // BLOCK_NUMBERS
        keep: Mask = np.ones(train.rows, dtype=np.bool_)
        starts = np.concatenate((np.zeros(1, dtype=np.int64), np.flatnonzero(np.diff(blocks)) + 1))
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), train.rows], strict=True):
            block = int(blocks[start])
            if block != self._block:
                self._close(block)
            pair = utilities[start:stop], chance[start:stop]
            if ratio > 0.0:
                keep[start:stop] = self._kept(pair, ratio)
            self._open.append(pair)
        return None if keep.all() else keep

    def _close(self, block: int) -> None:
        self._block = block
        if not self._open:
            return
        parts = [self._history, *self._open]
        self._history = np.concatenate([p[0] for p in parts])[-HISTORY_ROWS:], np.concatenate([p[1] for p in parts])[-HISTORY_ROWS:]
        self._open = []
        self._sorted = None

    def _kept(self, pair: tuple[FloatArray, FloatArray], ratio: float) -> Mask:
        utility, chance = pair
        known = len(self._history[0])
        if known < HISTORY_ROWS_MIN or ratio >= 1.0:
            by_chance: Mask = chance >= ratio
            return by_chance
        if self._sorted is None:
            order = np.lexsort((self._history[1], self._history[0]))
            self._sorted = self._history[0][order], self._history[1][order]
        place = min(int(ratio * known), known - 1)
        limit, tie = self._sorted[0][place], self._sorted[1][place]
        keep: Mask = (utility > limit) | ((utility == limit) & (chance >= tie))
        return keep
