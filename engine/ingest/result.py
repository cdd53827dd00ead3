"""What comes of rows on their way in: columns of the accepted ones, and each refused row with its reason and raw form (K8)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.column import Column, Mask


@dataclass(frozen=True, slots=True)
class Rejection:
    """A refused row. `index` is its 0-based place in what was handed in, `line` its 1-based line where the input has lines."""

    index: int
    reason: str
    raw: bytes
    line: int | None = None


@dataclass(slots=True)
class Ingested:
    """The outcome of one batch.

    `columns` are the stream's, in its order, `rows` long, accepted rows only. `index` gives the place of each in the input (None:
    all were accepted). `time_us` is the event time of each, None for TIMESTAMP BY ARRIVAL. `ignored` names input columns that the
    stream does not have, `warnings` are sentences about what was accepted but looks wrong.
    """

    columns: list[Column]
    rows: int
    rejected: list[Rejection] = field(default_factory=list)
    index: npt.NDArray[np.int64] | None = None
    time_us: npt.NDArray[np.int64] | None = None
    ignored: tuple[str, ...] = ()
    warnings: list[str] = field(default_factory=list)


class BadRows:
    """The rows of one batch found bad so far; the first reason stands."""

    __slots__ = ("reasons",)

    def __init__(self) -> None:
        self.reasons: dict[int, str] = {}

    def add(self, index: int, reason: str) -> None:
        """Refuse one row."""
        self.reasons.setdefault(index, reason)

    def add_all(self, failed: dict[int, str], column: str) -> None:
        """Refuse rows because of a column; the column's name goes before the reason."""
        for index, reason in failed.items():
            self.add(index, f"{column}: {reason}")

    def add_mask(self, mask: Mask, reason: str) -> None:
        """Refuse all rows where the mask is true, for one reason."""
        for index in np.flatnonzero(mask).tolist():
            self.add(index, reason)

    def keep(self, rows: int) -> npt.NDArray[np.int64] | None:
        """Return the places of the rows that are left, None when that is all of them."""
        if not self.reasons:
            return None
        mask = np.ones(rows, dtype=np.bool_)
        mask[list(self.reasons)] = False
        return np.flatnonzero(mask)


Failed = dict[int, str]
Converted = tuple[Column, Failed]


def failed_at(mask: Any, reason: str) -> Failed:
    """Return the same reason for every row where the mask is true."""
    return dict.fromkeys(np.flatnonzero(mask).tolist(), reason)
