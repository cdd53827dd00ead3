"""Freshness-aware scheduling, FAS-MCQ (Sharaf 2007, 4.3).

    rank(x) = α (1 - (1 - S)^(N^β)) / (N^β Cbar)

    α     weight of the query, in (0, 1]
    S     outputs expected of one tuple from x to the end, at most 1 as a probability where N^β > 1
    N     tuples waiting at x
    Cbar  ns expected for one tuple from x to the end
    β     0 to 1: 0 is HR (weighted), 1 is full freshness: the chance that anything new is in the queue, over the cost of emptying it

Aim: output streams that lag little behind their input. Moves with the queue, not with time.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from millstream.scheduler.contracts import FloatColumn, RankingBase
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.view import View
from numpy.typing import NDArray


class FreshnessAware(RankingBase):
    """Chance of news per ns, weighted."""

    moves_with_queue: ClassVar[bool] = True

    def __init__(self, beta: float = 1.0) -> None:
        if not 0.0 <= beta <= 1.0:
            raise PolicyError(f"policy option beta={beta} is not between 0 and 1")
        self.beta = beta

    def rank(self, view: View, now_ns: int) -> FloatColumn:
        """Return α (1 - (1 - S)^(N^β)) / (N^β Cbar)."""
        return self.rank_at(view, view.rows)

    def rank_at(self, view: View, rows: NDArray[np.int64]) -> FloatColumn:
        """Return the rank that so many waiting tuples give."""
        number = np.maximum(rows, 1).astype(np.float64) ** self.beta
        outputs = view.output_per_tuple
        chance = np.where(number > 1.0, 1.0 - (1.0 - np.minimum(outputs, 1.0)) ** number, outputs)
        return view.weight * chance / (number * view.cost_to_end_ns)
