"""Shedding at a source: which rows the queries of a class that may be shed get to see.

Each such class has a log of its own per stream. What is kept depends on the seed and the arrival numbers alone, given the drop ratios
in force when the rows came: a greater ratio drops a superset, and neither trains nor workers matter. Two things set the ratio:

- whoever manages load (`ratio`, a share of the rows to drop);
- the log itself (`fullness`): from half of its bound on it drops more and more, and everything once it is full. So a class whose queries
  lag sheds instead of making its publishers wait, and memory stays bounded.

The greater of the two holds for a chunk. Unless it is 1, every row is kept with the chance 1 − ratio, which the tally's weights remember.
"""

from __future__ import annotations

import copy

import numpy as np
import numpy.typing as npt
from millstream.engine.data import limits
from millstream.engine.data.graph import ClassId
from millstream.engine.data.records import dataclass
from millstream.engine.data.tally import Part, Tally
from millstream.engine.data.train import Int64Array, Train
from millstream.engine.flow.queues import OutputLog
from millstream.engine.flow.utility import UtilityOrder

_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)
_INCREMENT = 0x9E3779B97F4A7C15
_MASK_64 = (1 << 64) - 1

Mask = npt.NDArray[np.bool_]
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
    call for. `utility` ranks rows, if not by chance.
    """

    log: OutputLog
    ratio: float = 0.0
    shed: int = 0
    shed_full: int = 0
    when_full: bool = False
    pressure: float = 0.0
    utility: UtilityOrder | None = None

    def fullness(self) -> float:
        """Return the drop ratio that the log itself asks for: 0 while it is less than half full, rising to 1 when it is full."""
        if not self.when_full:
            return 0.0
        share = max(self.log.rows_held / limits.LOG_ROWS_MAX, self.log.bytes_held / limits.LOG_BYTES_MAX)
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
