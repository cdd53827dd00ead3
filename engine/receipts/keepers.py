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
from millstream.engine.data.arrays import distinct
from millstream.engine.data.tally import Part, RowShares, Tally, merged, paired, shares_of
from millstream.engine.data.train import Train
from millstream.engine.data.watermarks import TIME_MIN
from millstream.engine.operators.contract import Emitter
from millstream.engine.receipts.spans import AnswerSpan, Bounds

Int64Array = npt.NDArray[np.int64]

CELLS_MAX = 65_536  # beyond, the older half is rounded: windows that reach back so far are answered from coarser sums
ROUNDING_BITS = 6
_EMPTY: Int64Array = np.empty(0, dtype=np.int64)
_ZERO: Int64Array = np.zeros(1, dtype=np.int64)


class IntervalCounts:
    """Sums by cell: event times, or numbers of panes. `coarse` once cells had to be rounded."""

    def __init__(self) -> None:
        self._cells = _EMPTY
        self._offered = self._shed = _ZERO  # running sums, one longer than the cells
        self._new: list[tuple[Int64Array, Int64Array, Int64Array]] = []
        self._gone = [0, 0]  # below all cells
        self.coarse = False

    def __len__(self) -> int:
        """Return the number of cells."""
        self._settle()
        return len(self._cells)

    def add(self, cells: Int64Array, offered: Int64Array, shed: Int64Array) -> None:
        """Count rows in their cells, in any order."""
        if len(cells):
            self._new.append(_by_cell(cells, offered, shed))

    def between(self, low: Int64Array, high: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the rows offered and shed in the cells from each `low` to `high` (excluded)."""
        self._settle()
        first, beyond = np.searchsorted(self._cells, low), np.searchsorted(self._cells, high)
        beyond = np.maximum(first, beyond)
        return self._offered[beyond] - self._offered[first], self._shed[beyond] - self._shed[first]

    def below(self, high: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the rows offered and shed in all cells below each `high`, forgotten ones too."""
        self._settle()
        beyond = np.searchsorted(self._cells, high)
        return self._offered[beyond] + self._gone[0], self._shed[beyond] + self._gone[1]

    def forget(self, below: int) -> None:
        """Let go of the cells below one that nobody will ask for."""
        if not len(self._cells) and not self._new:
            return
        self._settle()
        at = int(np.searchsorted(self._cells, below))
        if at:
            self._gone[0] += int(self._offered[at])
            self._gone[1] += int(self._shed[at])
            self._cells = self._cells[at:]
            self._offered = self._offered[at:] - self._offered[at]
            self._shed = self._shed[at:] - self._shed[at]

    def _settle(self) -> None:
        if not self._new:
            return
        parts = [(self._cells, np.diff(self._offered), np.diff(self._shed)), *self._new]
        self._new = []
        cells, offered, shed = (np.concatenate(one) for one in zip(*parts, strict=True))
        self._keep(*_by_cell(cells, offered, shed))
        while len(self._cells) > CELLS_MAX:
            self._round_older_half()

    def _round_older_half(self) -> None:
        middle = len(self._cells) // 2
        older = self._cells[:middle]
        rounded = older
        bits = 0
        while len(rounded) > middle // 2:
            bits += ROUNDING_BITS
            rounded = distinct((older >> bits) << bits)
        cells = np.concatenate(((older >> bits) << bits, self._cells[middle:]))
        self._keep(*_by_cell(cells, np.diff(self._offered), np.diff(self._shed)))
        self.coarse = True

    def _keep(self, cells: Int64Array, offered: Int64Array, shed: Int64Array) -> None:
        self._cells = cells
        self._offered = np.concatenate((_ZERO, np.cumsum(offered)))
        self._shed = np.concatenate((_ZERO, np.cumsum(shed)))


def _by_cell(cells: Int64Array, offered: Int64Array, shed: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return the different cells, rising, with their sums."""
    if bool(np.all(cells[1:] >= cells[:-1])):
        starts = np.concatenate((_ZERO, np.flatnonzero(cells[1:] != cells[:-1]) + 1)) if len(cells) else _EMPTY
    else:
        order = np.argsort(cells, kind="stable")
        cells, offered, shed = cells[order], offered[order], shed[order]
        starts = np.concatenate((_ZERO, np.flatnonzero(cells[1:] != cells[:-1]) + 1))
    if len(starts) == len(cells):
        return cells, offered, shed
    return cells[starts], np.add.reduceat(offered, starts), np.add.reduceat(shed, starts)


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
        for made in trains_of(out):
            made.tally = tally


class WindowKeeper:
    """Of an operator that answers by windows: says of each answer how many rows its window was offered and how many it saw."""

    def __init__(self, span: AnswerSpan) -> None:
        self._span = span
        self._counts: list[IntervalCounts] = []  # of each lineage
        self._watermark = TIME_MIN
        self._grain_us = 1
        self._rounded = False

    def mark(self, inputs: Sequence[Train], out: Emitter) -> None:
        """Count the items, then look up what each answer was given from."""
        train = inputs[0]
        tally = train.tally
        made = trains_of(out)
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

    def __init__(self, span: AnswerSpan, window: tuple[int, int]) -> None:
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
        for one in trains_of(out):
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


def trains_of(out: Emitter) -> list[Train]:
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
