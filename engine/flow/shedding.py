"""Shedding at a source: which rows the queries of a class that may be shed get to see.

Each such class has a log of its own per stream. What is kept depends on the seed and the arrival numbers alone, given the drop ratios
in force when the rows came: a greater ratio drops a superset, and neither trains nor workers matter. Two things set the ratio:

- whoever manages load (`ratio`, a share of the rows to drop);
- the log itself (`fullness`): from half of its bound on it drops more and more, and everything once it is full. So a class whose queries
  lag sheds instead of making its publishers wait, and memory stays bounded. Rows may wait further down too, before readers of a derived
  stream of the class: the fullest of these logs counts.

The greater of the two holds for a chunk. Unless it is 1, every row is kept with the chance 1 − ratio, which the tally's weights remember.

Semantic shedding drops the rows that are worth least, by an expression that a query declares (`shed_by`):

Rows are told apart by (utility, chance), chance being the hash that random shedding uses, so that equal utilities are no hindrance; NULL
and NaN are worth least. A row falls when its pair is below a threshold: the quantile, at the drop ratio, of the pairs of the HISTORY_ROWS
rows before the block of BLOCK_NUMBERS arrival numbers that the row is in. So the threshold is the same however the rows are cut into
trains. Before a block has history enough, chance alone decides. The share that falls follows the ratio as far as the next rows are
like the last ones; what fell is counted exactly all the same.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from millstream.engine.data import limits
from millstream.engine.data.arrays import distinct
from millstream.engine.data.graph import ClassId
from millstream.engine.data.records import dataclass
from millstream.engine.data.tally import Part, Tally
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.expressions.compile import compile_expression
from millstream.engine.expressions.ir import Expression
from millstream.engine.flow.queues import OutputLog
from millstream.engine.operators.row_operators import context_of

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


_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)
_INCREMENT = 0x9E3779B97F4A7C15
_MASK_64 = (1 << 64) - 1

ShedKey = tuple[ClassId, str]
"""Whose log: the class, and the text of `shed_by` (empty: rows fall by chance)."""


def uniform_of(seqs: Int64Array, seed: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return a number in [0, 1) for each arrival number: the finaliser of SplitMix64 (Steele, Lea, Flood 2014) over seed and seq."""
    state = seqs.astype(np.uint64) * np.uint64(_INCREMENT) + np.uint64((seed * _INCREMENT + _INCREMENT) & _MASK_64)
    state = (state ^ (state >> np.uint64(30))) * _MULTIPLIER_1
    state = (state ^ (state >> np.uint64(27))) * _MULTIPLIER_2
    state ^= state >> np.uint64(31)
    numbers: np.ndarray[tuple[int], np.dtype[np.float64]] = (state >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return numbers


@dataclass(slots=True)
class ShedLog:
    """The log of one class on one stream, with what decides about its rows. Used under the ingress lock.

    `ratio` is the drop ratio that was asked for, `shed` the rows shed so far, `shed_full` those of them that only fell because the log
    was filling up. `when_full`: it may shed by itself (else it grows). `pressure` is the drop ratio that readers of results who are behind
    call for. `utility` ranks rows, if not by chance. `behind` are the outputs of derived streams and views that come from it.
    """

    log: OutputLog
    ratio: float = 0.0
    shed: int = 0
    shed_full: int = 0
    when_full: bool = False
    pressure: float = 0.0
    utility: UtilityOrder | None = None
    behind: tuple[OutputLog, ...] = ()

    def fullness(self) -> float:
        """Return the drop ratio that the log itself, or one behind it, asks for: 0 while it is less than half full, 1 when it is full."""
        if not self.when_full:
            return 0.0
        share = max(max(log.rows_held / limits.LOG_ROWS_MAX, log.bytes_held / limits.LOG_BYTES_MAX) for log in (self.log, *self.behind))
        return min(1.0, max(self.pressure, 2.0 * share - 1.0, 0.0))

    def kept(self, train: Train, seed: int) -> Train:
        """Return the rows of a chunk that its queries get, with the tally of what they were offered; count the others."""
        if not train.rows or not self.log.cursors:
            return train
        full = self.fullness()
        ratio = max(self.ratio, full)
        keep = self._chosen(train, ratio, seed)
        if keep is None:
            kept = copy.copy(train)
        else:
            kept = train.take(np.flatnonzero(keep))
            lost = train.rows - kept.rows
            self.shed += lost
            if full > self.ratio:
                self.shed_full += lost - int(np.count_nonzero(~self._by_ratio(train, self.ratio, seed)))
        kept.tally = _tally(train, keep, ratio, by_chance=self.utility is None)
        return kept

    def _chosen(self, train: Train, ratio: float, seed: int) -> Mask | None:
        """Return which rows to keep, None for all of them."""
        if self.utility is not None:
            return self.utility.keep(train, ratio, uniform_of(train.seq.array(), seed))
        if ratio <= 0.0:
            return None
        keep = self._by_ratio(train, ratio, seed)
        return None if keep.all() else keep

    def _by_ratio(self, train: Train, ratio: float, seed: int) -> Mask:
        keep: Mask = uniform_of(train.seq.array(), seed) >= ratio
        return keep


def _tally(train: Train, keep: Mask | None, ratio: float, *, by_chance: bool) -> Tally:
    seqs = train.seq
    first = seqs.array() if seqs.start + train.rows != train.hi else seqs.start
    shed = None if keep is None else (~keep).astype(np.int64)
    weight = 0.0 if (not by_chance and keep is not None) or ratio >= 1.0 else 1.0 / (1.0 - ratio)
    return Tally((Part(first, train.time.array(), None, shed),), ((int(seqs.array()[0]), weight),))
