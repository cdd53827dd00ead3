"""What became of offered rows: columns of the accepted ones, and each refused row with its reason and raw form (K8)."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.data.column import Column, Mask
from millstream.engine.data.records import dataclass


@dataclass(frozen=True, slots=True)
class Rejection:
    """A refused row. `index` is its 0-based place among the rows offered, `line` its 1-based line where the input has lines.

    `raw` is the row as it came: the bytes of a CSV record or JSON line, JSON for what came as Arrow or plain values.
    """

    index: int
    reason: str
    raw: bytes
    line: int | None = None


@dataclass(slots=True)
class Coerced:
    """The accepted rows as columns of the schema (`rows` of them, in its order), the refused ones, and warnings about all of them.

    `index` gives the place of each accepted row among those offered (None: all were accepted). `ignored` names input columns that the
    schema does not have. `warnings` are sentences for the user that refuse nothing, such as event times that look like another unit.
    """

    columns: list[Column]
    rows: int
    rejected: list[Rejection] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    index: npt.NDArray[np.int64] | None = None
    ignored: tuple[str, ...] = ()


class Reasons:
    """Why rows of one batch are bad; the first reason of a row stands."""

    __slots__ = ("by_row", "rows")

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.by_row: dict[int, str] = {}

    def add(self, index: int, reason: str) -> None:
        """Refuse one row."""
        self.by_row.setdefault(index, reason)

    def add_failed(self, failed: dict[int, str], column: str) -> None:
        """Refuse rows because of a column, whose name goes before the reason."""
        for index, reason in failed.items():
            self.by_row.setdefault(index, f"column {column}: {reason}")

    def add_where(self, mask: Mask, reason: str) -> None:
        """Refuse all rows where the mask is true, for one reason."""
        for index in np.flatnonzero(mask).tolist():
            self.by_row.setdefault(index, reason)

    def kept(self) -> npt.NDArray[np.int64] | None:
        """Return the places of the rows without a reason, None when no row has one."""
        if not self.by_row:
            return None
        mask = np.ones(self.rows, dtype=np.bool_)
        mask[list(self.by_row)] = False
        return np.flatnonzero(mask)


Failed = dict[int, str]
Converted = tuple[Column, Failed]


def failed_at(mask: Any, reason: str) -> Failed:
    """Return the same reason for every row where the mask is true."""
    return dict.fromkeys(np.flatnonzero(mask).tolist(), reason)
