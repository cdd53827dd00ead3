"""How often each copy is polled, within a budget (Carney 2005, chapter 2; the policies of the setting `refresh`).

    perceived   the greatest Σ p F(f, λ) with Σ z f = B
    general     the same as if every element were asked for alike: fresh copies, whoever reads them
    uniform     every element equally often

At the optimum p ∂F/∂f = μ z for one μ, and what has p / (λ z) <= μ is not polled at all. With h(x) = 1 - (1 + x) e^(-x) and x = λ/f that
reads h(x) = μ λ z / p. The budget spent falls as μ rises, so one root of a monotone function is sought, for any number of elements.

A copy may ask for a least number of polls, which keep it as fresh as somebody needs it (6.2.1): then it gets the greater of both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from millstream.engine.data.records import dataclass
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.refresh.freshness import ratio_of
from numpy.typing import NDArray

Column = NDArray[np.float64]

_STEPS_MAX = 200
_NEVER = 1e-30
"""Changes in a period up to which a copy counts as one that never changes: its gain would be too small for a number."""
_CLOSE = 1e-10
"""How near to the budget, as a part of it, a solution must come."""


@dataclass(frozen=True, slots=True)
class Copies:
    """What is known of the copies: `access` p (any scale), `changes` λ in a period, `sizes` z in units of the budget, `least` polls."""

    access: Column
    changes: Column
    sizes: Column
    least: Column | None = None

    def __len__(self) -> int:
        """Return how many copies there are."""
        return len(self.access)


Policy = Callable[[Copies, float], Column]
"""Returns the polls of each copy in a period, from the copies and the budget."""


def perceived_polls(copies: Copies, budget: float) -> Column:
    """Return the polls that users perceive most of; raises `PolicyError` for a budget that is not positive.

    A copy that never changes is fresh after its first poll, and gets no more than its least here. Where the least polls of all cost more
    than the budget, each gets the same part of its own.
    """
    return solved(copies, budget, np.ones(len(copies)))


def general_polls(copies: Copies, budget: float) -> Column:
    """Return the polls that keep most copies fresh, whoever reads them; raises `PolicyError` for a budget that is not positive."""
    return perceived_polls(replace(copies, access=np.ones(len(copies))), budget)


def uniform_polls(copies: Copies, budget: float) -> Column:
    """Return as many polls for each copy, whatever its least; raises `PolicyError` for a budget that is not positive."""
    _check(budget)
    return np.full(len(copies), budget / float(copies.sizes.sum()))


POLICIES: Mapping[str, Policy] = {"perceived": perceived_polls, "general": general_polls, "uniform": uniform_polls}


def _check(budget: float) -> None:
    if not 0.0 < budget < math.inf:
        raise PolicyError(f"a refresh budget of {budget:g} is not a positive number of polls")


def solved(copies: Copies, budget: float, counts: Column) -> Column:
    """Return the polls of one of the copies behind each element, of which `counts` are alike."""
    _check(budget)
    polls = np.zeros(len(copies)) if copies.least is None else copies.least.copy()
    asked = float((counts * copies.sizes * polls).sum())
    if asked >= budget:
        return polls * (budget / asked)
    wanted = np.flatnonzero((copies.changes > _NEVER) & (copies.access > 0.0))
    if not len(wanted):
        return polls
    least, budget = polls[wanted], budget - asked + float((counts * copies.sizes * polls)[wanted].sum())
    changes, cost = copies.changes[wanted], counts[wanted] * copies.sizes[wanted]
    access = copies.access[wanted] / copies.access.max()
    worth = access / (changes * copies.sizes[wanted])  # the greatest μ at which it is polled

    def at(log_price: float) -> Column:
        gain = math.exp(log_price) / worth
        found = least.copy()
        polled = gain < 1.0
        found[polled] = np.maximum(changes[polled] / ratio_of(gain[polled]), least[polled])
        return found

    polls[wanted] = _within(at, least, lambda found: float((cost * found).sum()), budget, math.log(float(worth.max())))
    return polls


def _within(at: Callable[[float], Column], least: Column, spent: Callable[[Column], float], budget: float, dearest: float) -> Column:
    """Find the price at which the budget is spent, which falls with the price's logarithm; `dearest` is where only the least is bought."""
    high, low = dearest, dearest - 1.0
    while spent(at(low)) < budget:
        high, low = low, dearest - 2.0 * (dearest - low)
    much = at(low)
    little = at(high) if high < dearest else least  # rounding may buy at the dearest price what it should not
    above, below = spent(much) - budget, spent(little) - budget
    for step in range(_STEPS_MAX):
        # The line between the ends where it helps, else the middle: every third step halves what is left.
        middle = low + (high - low) * (above / (above - below) if step % 3 else 0.5)
        if not low < middle < high:
            break
        found = at(middle)
        rest = spent(found) - budget
        if rest > 0.0:
            low, above, much = middle, rest, found
        else:
            high, below, little = middle, rest, found
        if abs(rest) <= _CLOSE * budget:
            break
    # What copies of equal worth get may jump between two neighbouring prices. All that lies between is worth the same.
    return little + (much - little) * (-below / (above - below))
