"""Which worker the operators of a new query go to.

A function of what is known: no clock, no chance. Workers are numbered from 1; 0 is the server itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.engine.data.records import dataclass

IDLE_BELOW = 0.05
"""A worker that was at work for a smaller part of the time says nothing yet about what its operators will cost."""


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """How busy a worker was lately (0 to 1), and how many operators it has."""

    number: int
    load: float
    operators: int


@dataclass(frozen=True, slots=True)
class Choice:
    """Where operators go, and why."""

    worker: int
    why: str


def choose(loads: Sequence[WorkerLoad], beside: Sequence[int] = ()) -> Choice:
    """Return the worker for a query's new operators. `beside` are workers that have operators which it shares.

    While nobody is busy the one with the fewest operators, else the one with the least load, with that of operators that came since
    guessed from the others'.
    """
    if beside:
        return Choice(beside[0], f"in worker {beside[0]}, which has operators that it shares")
    measured = [one for one in loads if one.load >= IDLE_BELOW]
    each = sum(one.load for one in measured) / max(1, sum(one.operators for one in measured))
    if max(one.load for one in loads) < IDLE_BELOW:
        best = min(loads, key=lambda one: (one.operators, one.number))
        return Choice(best.number, f"in worker {best.number}, which had the fewest operators")
    best = min(loads, key=lambda one: (round(max(one.load, each * one.operators), 2), one.operators, one.number))
    return Choice(best.number, f"in worker {best.number}, which had the least to do")
