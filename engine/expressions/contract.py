"""What a compiled expression looks like to the operators that run it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt
from millstream.engine.data.column import Column, Mask


class Rows(Protocol):
    """What a kernel reads: a train, or anything with columns by position."""

    rows: int

    def column(self, position: int) -> Column:
        """Return one input column with `rows` values."""
        ...


class EvaluationContext:
    """Gathers the row-level errors of one evaluation (K8) and carries what functions may ask about their surroundings.

    `errors` holds (positions of rows in the batch, reason); the failing operation has given NULL there. `watermark_us` answers
    CURRENT_WATERMARK() row by row, and is called only when asked; `weights` likewise SAMPLING_WEIGHT(), None where all rows weigh 1.
    """

    __slots__ = ("errors", "watermark_us", "weights")

    def __init__(
        self,
        watermark_us: Callable[[], npt.NDArray[np.int64]] | None = None,
        weights: Callable[[], npt.NDArray[np.float64]] | None = None,
    ) -> None:
        self.errors: list[tuple[npt.NDArray[np.int64], str]] = []
        self.watermark_us = watermark_us
        self.weights = weights

    def fail(self, where: Mask, reason: str) -> None:
        """Record that the operation failed at the rows where `where` is true."""
        self.errors.append((np.flatnonzero(where), reason))


class Kernel(Protocol):
    """A compiled scalar expression: one column out, one value a row. Pure; may be called from any thread."""

    def __call__(self, rows: Rows, context: EvaluationContext) -> Column:
        """Evaluate over all rows."""
        ...


class Predicate(Protocol):
    """A compiled condition: the mask of rows where it is true (NULL counts as false)."""

    def __call__(self, rows: Rows, context: EvaluationContext) -> Mask:
        """Evaluate over all rows."""
        ...
