"""What became of offered rows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from millstream.engine.column import Column

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Rejection:
    """One row refused: its index among the rows offered, why, and the row as it came (bytes where it was no valid text)."""

    index: int
    reason: str
    raw: str | bytes


@dataclass(slots=True)
class Coerced:
    """The accepted rows as columns of the stream's schema (`rows` of them), the refused ones, and warnings about all of them.

    `warnings` are sentences for the user that do not refuse anything, such as event times in 1970.
    """

    columns: list[Column]
    rows: int
    rejected: list[Rejection] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class Reasons:
    """The first reason for each bad row, gathered column by column."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.by_row: dict[int, str] = {}

    def add(self, index: int, reason: str) -> None:
        """Note a reason; the first one given for a row stays."""
        self.by_row.setdefault(index, reason)

    def add_where(self, mask: Bools, reason: str) -> None:
        """Note the same reason for every row where `mask` is true."""
        for i in np.flatnonzero(mask).tolist():
            self.by_row.setdefault(i, reason)

    def kept(self) -> Bools | None:
        """Return the mask of rows without a reason, or None when no row has one."""
        if not self.by_row:
            return None
        mask = np.ones(self.rows, dtype=np.bool_)
        mask[np.fromiter(self.by_row, dtype=np.int64, count=len(self.by_row))] = False
        return mask
