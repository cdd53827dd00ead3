"""The questions a policy is made of, each a small contract (architecture: cutter, ranking or turns, selector, traversal, train)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol, TypeVar

import numpy as np
from millstream.scheduler.estimates import Estimates
from millstream.scheduler.ledger import Ledger
from millstream.scheduler.network import NetworkModel
from millstream.scheduler.qos import GraphTable
from millstream.scheduler.unit_set import UnitSet
from millstream.scheduler.view import UnitView, View
from numpy.typing import NDArray

Answer = TypeVar("Answer")
FloatColumn = NDArray[np.float64]
Cutter = Callable[[Ledger, Estimates], UnitSet]
Traversal = Callable[[NetworkModel, Estimates, Sequence[int]], list[int]]
"""Turns the members of a unit (children before parents) into the order of steps; an operator may come more than once."""


class Ranking(Protocol):
    """How good it is to run each unit now; the greatest first. It keeps nothing between calls.

    `moves_with_time`: the rank of a waiting unit drifts as time goes on. `moves_with_queue`: it depends on the unit's queue. A rank
    that does neither changes only when an estimate does. Equal ranks go by the oldest head, then by unit (`selectors/rank_order.py`).
    """

    @property
    def moves_with_time(self) -> bool:
        """Whether the rank of a waiting unit drifts."""
        ...

    @property
    def moves_with_queue(self) -> bool:
        """Whether the rank depends on what waits."""
        ...

    def rank(self, view: View, now_ns: int) -> FloatColumn:
        """Return one number for each unit the view shows."""
        ...


class RankingBase:
    """A rank that changes only with estimates. A policy overrides what differs."""

    moves_with_time: ClassVar[bool] = False
    moves_with_queue: ClassVar[bool] = False


class FactoredRanking(Ranking, Protocol):
    """A rank that is a fixed part times a part that grows with the wait: what clusters and pruning need."""

    def fixed_part(self, view: View) -> FloatColumn:
        """Return the factor that changes only with estimates."""
        ...


class QueueRanking(Ranking, Protocol):
    """A rank that depends on how many tuples wait and does not grow with them: what a calendar queue needs."""

    def rank_at(self, view: View, rows: NDArray[np.int64]) -> FloatColumn:
        """Return the rank of each unit the view shows if so many tuples waited at it; never negative."""
        ...


class UrgencyRanking(Ranking, Protocol):
    """A rank in two parts, what is lost by not running and how long that can wait: what buckets need."""

    def urgency(self, view: View, now_ns: int) -> tuple[FloatColumn, FloatColumn]:
        """Return utility (per second; negative for too late) and slack (ns) of each unit."""
        ...

    def urgency_one(self, view: View, unit: int, now_ns: int) -> tuple[float, float] | None:
        """Return the same of one unit; None where only columns can tell."""
        ...

    def tables(self, view: View) -> tuple[NDArray[np.int64], list[GraphTable]]:
        """Return the number of each unit's QoS graph, and the graphs."""
        ...


class UserCalls(Protocol):
    """How a user's code is called."""

    def __call__(self, work: Callable[[], Answer], limit_ns: int) -> Answer:
        """Return what `work` returns, or raise within that time."""
        ...


class UnitRanking(Protocol):
    """The simple form for a user's own file: one unit at a time."""

    def rank(self, unit: UnitView, now_ns: int) -> float:
        """Return the rank of one unit."""
        ...


class Selector(Protocol):
    """Finds the best available units without asking all of them where it can.

    `evaluations` counts the ranks computed so far, `moves` the queue operations; a simulator can charge for both.
    """

    evaluations: int
    moves: int

    def reset(self, view: View, now_ns: int) -> None:
        """Begin anew: the cut or the estimates changed."""
        ...

    def changed(self, view: View, units: Sequence[int], now_ns: int) -> None:
        """Hear that the state of these units changed."""
        ...

    def pick(self, view: View, now_ns: int, count: int) -> list[int]:
        """Return up to `count` available units, best first; each at most once."""
        ...


class Turns(Protocol):
    """Whose turn it is, without a number: shapes the train of each turn."""

    def share(self, view: View, unit: int) -> float:
        """Return the factor on the quantum of this unit (1 for plain turns)."""
        ...
