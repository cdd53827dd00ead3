"""Keepers: what an operator behind a source that sheds does with tallies, besides its work.

The executor calls `mark` after each call of the operator, with what it took and what it put out. Selections and projections need none,
since a train's tally goes with its rows. A keeper belongs to one operator and is called like it, one call at a time where that has state.

A window's keeper counts all items in cells of event time and answers, for each row that its operator puts out, how many rows the window was
offered and how many of them were shed. Items at or above W cannot belong to a window that has closed, so they are counted at once; an
item below W is counted after the windows that closed before it came, as its operator does with rows (K4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
from millstream.engine.data.tally import Part, RowShares, Tally, merged, paired, shares_of
from millstream.engine.data.train import Train
from millstream.engine.data.watermarks import TIME_MIN
from millstream.engine.operators.contract import Emitter
from millstream.engine.receipts.counts import IntervalCounts
from millstream.engine.receipts.spans import Bounds, Span

Int64Array = npt.NDArray[np.int64]


class Keeper(Protocol):
    """The contract."""

    def mark(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Give the trains that a call put out their tallies, and their rows receipts."""
        ...


class PassOn:
    """Of an operator whose rows belong to no window: it passes its inputs' tallies on.

    `joins`: for a join, how many lineages each input has.
    """

    def __init__(self, joins: Sequence[int] | None = None) -> None:
        self._joins = joins

    def mark(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Put the inputs' items together: one after the other for a union, side by side for a join."""
        tallies = [t.tally for t in inputs]
        tally = merged(tallies) if self._joins is None else paired(tallies, self._joins)
        for made in distinct(out):
            made.tally = tally


class WindowKeeper:
    """Of an operator that answers by windows. See the module's text."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._counts: list[IntervalCounts] = []  # of each lineage
        self._watermark = TIME_MIN
        self._grain_us = 1
        self._rounded = False

    def mark(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Count the items, then look up what each answer was given from."""
        train = inputs[0]
        tally = train.tally
        made = distinct(out)
        while tally is not None and len(self._counts) < len(tally.parts):
            self._counts.append(IntervalCounts())
        below = [] if tally is None else [self._counted(place, part, train) for place, part in enumerate(tally.parts)]
        for one in made:
            one.tally = None
            if one.rows and self._counts:
                self._answer(one, below)
            self._watermark = max(self._watermark, one.track.end)
        for place, late in enumerate(below):
            if late is not None and not self._span.drops_late:
                self._add(place, late)
        kept_from = self._span.kept_from(self._watermark)
        if kept_from is not None:
            for counts in self._counts:
                counts.forget(kept_from)

    def _counted(self, place: int, part: Part, train: Train) -> Part | None:
        """Count the items at or above W; return those below it, None when there are none."""
        if not len(part):
            return None
        if part.grain_us > self._grain_us:
            self._grain_us = part.grain_us
            self._rounded = self._rounded or self._span.cuts(part.grain_us)
        if train.track.in_order and self._watermark <= train.track.start:
            self._add(place, part)
            return None
        watermark = np.maximum(train.track.before(part.seqs()), self._watermark)
        below = part.time < watermark
        if not below.any():
            self._add(place, part)
            return None
        self._add(place, part.take(np.flatnonzero(~below)))
        return part.take(np.flatnonzero(below))

    def _add(self, place: int, part: Part) -> None:
        self._counts[place].add(self._span.cells(part.time), *part.counts())

    def _answer(self, answers: Train, below: Sequence[Part | None]) -> None:
        """Give each row its receipt, and the train an item for each different answer."""
        bounds = self._span.of(answers)
        seqs = answers.seq.array()
        firsts = _changes(seqs, *bounds)
        low, high, seq = bounds[0][firsts], bounds[1][firsts], seqs[firsts]
        sums = [self._sums(place, (low, high)) for place in range(len(self._counts))]
        if not self._span.drops_late:
            for place, late in enumerate(below):
                if late is not None:
                    offered, shed = self._come_before(late, seq, (low, high))
                    sums[place] = (sums[place][0] + offered, sums[place][1] + shed)
        rounded = self._rounded or any(c.coarse for c in self._counts)
        spread = np.repeat(np.arange(len(firsts), dtype=np.int64), np.diff(np.append(firsts, answers.rows)))
        answers.receipts = shares_of(sums).take(spread)
        times = answers.time.array()[firsts]
        answers.tally = Tally(tuple(Part(seq, times, offered, shed, 1, rounded) for offered, shed in sums))

    def _sums(self, place: int, bounds: Bounds) -> tuple[Int64Array, Int64Array]:
        return self._counts[place].between(*bounds)

    def _come_before(self, late: Part, seqs: Int64Array, bounds: Bounds) -> tuple[Int64Array, Int64Array]:
        """Sum the items below W that had come when each answer was given and lie in its window."""
        cells, (offered, shed) = self._span.cells(late.time), late.counts()
        inside = (cells >= bounds[0][:, None]) & (cells < bounds[1][:, None]) & (late.seqs() <= seqs[:, None])
        return inside @ offered, inside @ shed


class LimitKeeper(WindowKeeper):
    """Of LIMIT per window: rows that have receipts keep those of their window; others are rows of the stream, counted like any window's."""

    def __init__(self, span: Span, window: tuple[int, int]) -> None:
        super().__init__(span)
        self._columns = window
        self._known: dict[tuple[int, int], tuple[float, int, int]] = {}

    def mark(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Remember the receipts of windows until they leave."""
        train = inputs[0]
        if train.receipts is not None:
            self._remember(train, train.receipts)
        if not self._known:
            super().mark(inputs, out)
            return
        for one in distinct(out):
            one.tally = train.tally
            if one.rows:
                found = [self._known.get(w, (1.0, 0, 0)) for w in self._windows(one)]
                share, offered, shed = zip(*found, strict=True)
                one.receipts = RowShares(np.array(share), np.array(offered, dtype=np.int64), np.array(shed, dtype=np.int64))
            gone = [w for w in self._known if w[1] <= one.track.end]
            for window in gone:
                del self._known[window]

    def _windows(self, train: Train) -> list[tuple[int, int]]:
        start, end = (train.column(c).values.tolist() for c in self._columns)
        return list(zip(start, end, strict=True))

    def _remember(self, train: Train, shares: RowShares) -> None:
        entries = zip(shares.share.tolist(), shares.offered.tolist(), shares.shed.tolist(), strict=True)
        self._known.update(zip(self._windows(train), entries, strict=True))


def distinct(out: Emitter) -> list[Train]:
    """Return the trains that a call put out, each once however many outputs got it."""
    if len(out.trains) == 1:
        return [out.trains[0]] if out.trains[0] is not None else []
    found = {id(train): train for port in out.ports if (train := out.trains[port]) is not None}
    return list(found.values())


def _changes(seqs: Int64Array, low: Int64Array, high: Int64Array) -> npt.NDArray[np.intp]:
    """Return the places where another answer begins: its item or its window differs from the row before."""
    changed = np.ones(len(seqs), dtype=np.bool_)
    changed[1:] = (np.diff(seqs) != 0) | (np.diff(low) != 0) | (np.diff(high) != 0)
    return np.flatnonzero(changed)
