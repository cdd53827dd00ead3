"""The tally of a train: which items its interval offered and which of them were shed; and what of it each row of an answer saw.

Behind a source that sheds, every train carries, beside the rows that were kept, the arrival numbers and event times of all that were
offered, without copying them. Selections and projections pass it on untouched, so a window can tell how much of its input it saw, whatever
a filter has dropped since. Behind a window an item stands for a whole answer and weighs as many rows as that had. Classes that are never
shed have no tallies at all.

A tally has one part a lineage: a join's output has those of both sides, and the share seen is then the product of the parts' shares.

`weights` are (arrival number, weight) from where on a kept row stands for `weight` offered ones: 1 over the chance that it was kept
(Horvitz and Thompson 1952), 0 where that is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.data.records import dataclass

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

ITEMS_MAX = 16_384  # of a stretch without rows that waits: beyond, event times are rounded down until half as many are left
GRAINS_US = (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 60_000_000, 600_000_000, 3_600_000_000, 86_400_000_000)


@dataclass(frozen=True, slots=True)
class Part:
    """Items in order of arrival: numbers (an int: the first of a range), times in µs, rows offered (None: one each) and shed (None: none).

    `grain_us`: some times have been rounded down to its multiples, which matters to windows whose borders are none. `rounded`: it did.
    """

    seq: Int64Array | int
    time: Int64Array
    offered: Int64Array | None = None
    shed: Int64Array | None = None
    grain_us: int = 1
    rounded: bool = False

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self.time)

    def seqs(self) -> Int64Array:
        """Return the arrival numbers."""
        return np.arange(self.seq, self.seq + len(self.time), dtype=np.int64) if isinstance(self.seq, int) else self.seq

    def counts(self) -> tuple[Int64Array, Int64Array]:
        """Return the rows offered and shed of each item."""
        size = len(self.time)
        offered = np.ones(size, dtype=np.int64) if self.offered is None else self.offered
        return offered, np.zeros(size, dtype=np.int64) if self.shed is None else self.shed

    def totals(self) -> tuple[int, int]:
        """Return the rows offered and shed of all items."""
        offered = len(self.time) if self.offered is None else int(self.offered.sum())
        return offered, 0 if self.shed is None else int(self.shed.sum())

    def slice(self, start: int, stop: int) -> Part:
        """Return the items from start to stop (excluded)."""
        seq = self.seq + start if isinstance(self.seq, int) else self.seq[start:stop]
        offered = None if self.offered is None else self.offered[start:stop]
        shed = None if self.shed is None else self.shed[start:stop]
        return Part(seq, self.time[start:stop], offered, shed, self.grain_us, self.rounded)

    def take(self, index: npt.NDArray[np.intp]) -> Part:
        """Return the items at rising places."""
        offered, shed = self.counts()
        return Part(self.seqs()[index], self.time[index], offered[index], shed[index], self.grain_us, self.rounded)

    def place_of(self, seq: int) -> int:
        """Return how many items have a lower arrival number."""
        if isinstance(self.seq, int):
            return min(max(seq - self.seq, 0), len(self.time))
        return int(np.searchsorted(self.seq, seq, side="left"))

    def nbytes(self) -> int:
        """Return the bytes held beside the times, which a source's train holds as well."""
        arrays = [a for a in (self.seq, self.time, self.offered, self.shed) if isinstance(a, np.ndarray)]
        return sum(a.nbytes for a in arrays)


@dataclass(frozen=True, slots=True)
class Tally:
    """What an interval offered and what of it was kept, one part a lineage."""

    parts: tuple[Part, ...]
    weights: tuple[tuple[int, float], ...] = ()

    def __len__(self) -> int:
        """Return the items of all parts."""
        return sum(len(p) for p in self.parts)

    def split_at(self, seq: int) -> tuple[Tally, Tally]:
        """Return the items below an arrival number, and the others."""
        places = [p.place_of(seq) for p in self.parts]
        below = tuple(p.slice(0, at) for p, at in zip(self.parts, places, strict=True))
        rest = tuple(p.slice(at, len(p)) for p, at in zip(self.parts, places, strict=True))
        return Tally(below, self.weights), Tally(rest, self.weights)

    def weights_of(self, seqs: Int64Array) -> FloatArray:
        """Return how many offered rows each kept row stands for; 1 where rows are no stream's."""
        if not self.weights:
            return np.ones(len(seqs), dtype=np.float64)
        starts = np.array([w[0] for w in self.weights], dtype=np.int64)
        values = np.array([w[1] for w in self.weights], dtype=np.float64)
        return values[np.maximum(np.searchsorted(starts, seqs, side="right") - 1, 0)]

    def nbytes(self) -> int:
        """Return about the bytes held."""
        return sum(p.nbytes() for p in self.parts)


def follow(tallies: Sequence[Tally | None], *, rows: int) -> Tally | None:
    """Return the joined tallies of trains that follow one another; with no `rows` among them they may wait for long, so they are kept
    small.
    """
    known = [t for t in tallies if t is not None]
    if len(known) <= 1:
        return known[0] if known else None
    count = max(len(t.parts) for t in known)
    parts = [_joined([t.parts[i] for t in known if i < len(t.parts)]) for i in range(count)]
    if not rows:
        parts = [smaller(p) for p in parts]
    weights: list[tuple[int, float]] = []
    for seq, weight in (w for t in known for w in t.weights):
        if not weights or weights[-1][1] != weight:
            weights.append((seq, weight))
    return Tally(tuple(parts), tuple(weights))


def merged(tallies: Sequence[Tally | None]) -> Tally | None:
    """Return the items of several inputs over one interval as those of one, in order of arrival (UNION)."""
    known = [t for t in tallies if t is not None]
    if len(known) <= 1:
        return known[0] if known else None
    parts = []
    for place in range(max(len(t.parts) for t in known)):
        joined = _joined([t.parts[place] for t in known if place < len(t.parts)])
        order = np.argsort(joined.seqs(), kind="stable")
        parts.append(joined.take(order))
    return Tally(tuple(parts))


def paired(tallies: Sequence[Tally | None], widths: Sequence[int]) -> Tally | None:
    """Return the tally of a join's output: every part of every input, of which there are so many each."""
    if sum(w > 0 for w in widths) == 1:
        return next((t for t in tallies if t is not None), None)
    if not any(t is not None for t in tallies):
        return None
    parts: list[Part] = []
    for tally, width in zip(tallies, widths, strict=True):
        known = () if tally is None else tally.parts
        parts.extend(known)
        parts.extend(_NO_ITEMS for _ in range(width - len(known)))
    return Tally(tuple(parts))


def summed(tally: Tally) -> Tally:
    """Return one item a part, where only sums matter."""
    return Tally(tuple(_sum(p) if len(p) else p for p in tally.parts), tally.weights)


def smaller(part: Part) -> Part:
    """Return the same sums over fewer items when there are more than ITEMS_MAX: event times rounded down, the newest arrival number."""
    if len(part) <= ITEMS_MAX:
        return part
    for grain_us in GRAINS_US:
        if grain_us >= part.grain_us:
            part = _rounded(part, grain_us)
            if 2 * len(part) <= ITEMS_MAX:
                break
    return part


_NO_ITEMS = Part(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def _rounded(part: Part, grain_us: int) -> Part:
    offered, shed = part.counts()
    cells, place = np.unique(np.floor_divide(part.time, grain_us), return_inverse=True)
    newest = np.zeros(len(cells), dtype=np.int64)
    np.maximum.at(newest, place, part.seqs())
    order = np.argsort(newest, kind="stable")
    sums = [np.bincount(place, weights=one, minlength=len(cells)).astype(np.int64)[order] for one in (offered, shed)]
    return Part(newest[order], cells[order] * grain_us, sums[0], sums[1], grain_us, part.rounded)


def _sum(part: Part) -> Part:
    offered, shed = part.totals()
    last = part.seqs()[-1:].copy()
    return Part(last, part.time[-1:].copy(), np.array([offered], dtype=np.int64), np.array([shed], dtype=np.int64), 1, part.rounded)


def _joined(parts: Sequence[Part]) -> Part:
    full = [p for p in parts if len(p)] or list(parts[:1])
    if len(full) == 1:
        return full[0]
    time = np.concatenate([p.time for p in full])
    first, end = full[0].seq, 0
    for part in full:
        if not isinstance(part.seq, int) or (end and part.seq != end):
            first = np.concatenate([p.seqs() for p in full])
            break
        end = part.seq + len(part)
    plain = all(p.offered is None for p in full)
    offered = None if plain else np.concatenate([p.counts()[0] for p in full])
    shed = None if all(p.shed is None for p in full) else np.concatenate([p.counts()[1] for p in full])
    return Part(first, time, offered, shed, max(p.grain_us for p in full), any(p.rounded for p in full))


@dataclass(frozen=True, slots=True)
class RowShares:
    """One entry a row: the share of the window's input that was seen (0 to 1), the rows it was offered, and those of them shed."""

    share: FloatArray
    offered: Int64Array
    shed: Int64Array

    def take(self, index: Any) -> RowShares:
        """Return the entries of picked rows; a slice will do."""
        return RowShares(self.share[index], self.offered[index], self.shed[index])


def shares_of(parts: Sequence[tuple[Int64Array, Int64Array]]) -> RowShares:
    """Return the receipts of answers from the rows offered and shed of each lineage; with several the shares multiply."""
    rows = len(parts[0][0])
    share = np.ones(rows, dtype=np.float64)
    for offered, shed in parts:
        share *= np.where(offered > 0, (offered - shed) / np.maximum(offered, 1), 1.0)
    return RowShares(share, np.add.reduce([p[0] for p in parts]), np.add.reduce([p[1] for p in parts]))


def joined_shares(parts: Sequence[tuple[RowShares | None, int]]) -> RowShares | None:
    """Join the receipts of trains of so many rows; rows that have none saw all there was."""
    if all(shares is None for shares, _ in parts):
        return None
    full = [_all_seen(rows) if shares is None else shares for shares, rows in parts]
    return RowShares(*(np.concatenate([getattr(s, name) for s in full]) for name in ("share", "offered", "shed")))


def _all_seen(rows: int) -> RowShares:
    nothing = np.zeros(rows, dtype=np.int64)
    return RowShares(np.ones(rows, dtype=np.float64), nothing, nothing)


class Receipts:
    """What a sink says of its results: sums over the items since the last result, and the receipts of its rows."""

    def __init__(self) -> None:
        self._sums: list[list[int]] = []  # offered, shed of each lineage
        self._rounded = False

    def add(self, tally: Tally) -> None:
        """Count the items of a train."""
        for place, part in enumerate(tally.parts):
            if place == len(self._sums):
                self._sums.append([0, 0])
            offered, shed = part.totals()
            self._sums[place][0] += offered
            self._sums[place][1] += shed
            self._rounded = self._rounded or part.rounded

    def take(self, shares: RowShares | None) -> dict[str, Any]:
        """Return the notes of a result and begin anew. `receipts` are runs of rows: [rows, rows seen, rows shed, share].

        Rows that belong to no window that has closed have none: what is known then is what came since the last result.
        """
        share, lost = 1.0, 0
        for offered, shed in self._sums:
            share *= (offered - shed) / offered if offered else 1.0
            lost += shed
        notes: dict[str, Any] = {"share_seen": share}
        if shares is None:
            notes["share_is_of_batch"] = True
        if lost:
            notes["shed_rows"] = lost
        if self._rounded:
            notes["share_is_rounded"] = True
        if shares is not None and len(shares.shed) and (lost or bool(shares.shed.any())):
            notes["receipts"] = _runs(shares)
        self._sums, self._rounded = [], False
        return notes


def _runs(shares: RowShares) -> list[list[Any]]:
    different = np.flatnonzero((np.diff(shares.offered) != 0) | (np.diff(shares.shed) != 0) | (np.diff(shares.share) != 0))
    starts = np.concatenate((np.zeros(1, dtype=np.int64), different + 1))
    sizes = np.diff(np.append(starts, len(shares.shed)))
    seen = (shares.offered - shares.shed)[starts]
    columns = (sizes, seen, shares.shed[starts], shares.share[starts])
    return [list(run) for run in zip(*(column.tolist() for column in columns), strict=True)]
