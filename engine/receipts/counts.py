"""Rows offered and shed by event time, for sums over any stretch of it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from millstream.engine.data.distinct_values import distinct

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
