"""The receipt of each row of an answer: what part of the input its window saw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.data.records import dataclass
from millstream.engine.data.tally import Tally

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


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
        """Return the notes of a result and begin anew. `receipts` are runs of rows: [rows, rows seen, rows shed, share]."""
        share, lost = 1.0, 0
        for offered, shed in self._sums:
            share *= (offered - shed) / offered if offered else 1.0
            lost += shed
        notes: dict[str, Any] = {"share_seen": share}
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
