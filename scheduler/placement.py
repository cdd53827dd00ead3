"""Which worker the operators of a new query go to, and which group of operators goes to another one.

Functions of what is known: no clock, no chance. Workers are numbered from 1; 0 is the server itself. Queries that share operators are
one group, and a group is in one worker.
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


IMBALANCE = 0.3
"""By how much the busiest worker's load (a part of one processor) must be above another's for groups to move."""

RELIEF_MIN = 0.1
"""By how much a move must lessen the greater load of the two workers: moving costs a snapshot, and loads swing."""

LOOKS = 6
"""Looks in a row, half a second or so apart, that must find a move: what is over by then is not worth one."""

REST_LOOKS = 20
"""Looks after a move without another: the loads are averages, and must follow first."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Where operators go, and why."""

    worker: int
    why: str


MOVED_BYTES_MAX = 128 * 1024 * 1024
"""State that goes with one move: all orders wait while it is copied."""


@dataclass(frozen=True, slots=True)
class GroupLoad:
    """A group: its worker, the part of that worker's time that it took lately, the workers that its class allows (none: all), its state."""

    name: int
    worker: int
    load: float
    pinned: tuple[int, ...] = ()
    state_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    """Groups that are to go on in another worker, and why."""

    names: tuple[int, ...]
    worker: int
    why: str


def choose(loads: Sequence[WorkerLoad], beside: Sequence[int] = (), pinned: Sequence[int] = ()) -> Choice:
    """Return the worker for a query's new operators. `beside` are workers that have operators which it shares.

    `pinned` are the workers that its class allows; where none of these is there, any will do. While nobody is busy the one with the fewest
    operators, else the one with the least load, with that of operators that came since guessed from the others'.
    """
    if beside:
        return Choice(beside[0], f"in worker {beside[0]}, which has operators that it shares")
    allowed = [one for one in loads if one.number in pinned]
    if len(allowed) == 1:
        return Choice(allowed[0].number, f"in worker {allowed[0].number}, which its class names")
    if allowed:
        found = choose(allowed)
        return Choice(found.worker, f"{found.why}, of those that its class names")
    measured = [one for one in loads if one.load >= IDLE_BELOW]
    each = sum(one.load for one in measured) / max(1, sum(one.operators for one in measured))
    if max(one.load for one in loads) < IDLE_BELOW:
        best = min(loads, key=lambda one: (one.operators, one.number))
        return Choice(best.number, f"in worker {best.number}, which had the fewest operators")
    best = min(loads, key=lambda one: (round(max(one.load, each * one.operators), 2), one.operators, one.number))
    return Choice(best.number, f"in worker {best.number}, which had the least to do")


def helps_most(loads: Sequence[WorkerLoad], groups: Sequence[GroupLoad]) -> Move | None:
    """Return the move that lessens the load of the busiest worker most, None where none is worth it."""
    busiest = max(loads, key=lambda one: (one.load, -one.number))
    ordered = sorted((group for group in groups if group.worker == busiest.number), key=lambda group: -group.load)
    best: tuple[float, Move] | None = None
    for other in loads:
        if busiest.load - other.load < IMBALANCE:
            continue
        names, left, there, state_bytes = [], busiest.load, other.load, 0
        for group in ordered:  # the largest first: what they leave uneven smaller ones even out
            fits = there + group.load < left and state_bytes + group.state_bytes <= MOVED_BYTES_MAX
            if group.load > 0.0 and fits and (not group.pinned or other.number in group.pinned):
                names.append(group.name)
                left, there, state_bytes = left - group.load, there + group.load, state_bytes + group.state_bytes
        relief = busiest.load - max(left, there)
        if relief >= RELIEF_MIN and (best is None or relief > best[0]):
            why = f"in worker {other.number}, as worker {busiest.number} had {busiest.load:.0%} to do and this one {other.load:.0%}"
            best = relief, Move(tuple(names), other.number, why)
    return None if best is None else best[1]


class Balance:
    """Says which groups move, look by look: only what several looks in a row find, and not soon after another move."""

    def __init__(self) -> None:
        self._found = 0
        self._rest = 0

    def look(self, loads: Sequence[WorkerLoad], groups: Sequence[GroupLoad]) -> Move | None:
        """Return the move that is due now."""
        if self._rest:
            self._rest -= 1
            return None
        move = helps_most(loads, groups)
        self._found = 0 if move is None else self._found + 1
        if self._found < LOOKS:
            return None
        self._found, self._rest = 0, REST_LOOKS
        return move
