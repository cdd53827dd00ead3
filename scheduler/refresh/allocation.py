"""How often each copy is polled, within a budget (Carney 2005, chapter 2; the policies of the setting `refresh`).

    perceived   the greatest Σ p F(f, λ) with Σ z f = B
    general     the same as if every element were asked for alike: fresh copies, whoever reads them
    uniform     every element equally often

At the optimum p ∂F/∂f = μ z for one μ, and what has p / (λ z) <= μ is not polled at all. With h(x) = 1 - (1 + x) e^(-x) and x = λ/f that
reads h(x) = μ λ z / p. The budget spent falls as μ rises, so one root of a monotone function is sought, for any number of elements.

The thesis's heuristics stand beside it: elements sorted by a key are cut into partitions, the representatives are solved for, and each
element of a partition is polled as often (or gets as much bandwidth) as its representative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from millstream.engine.data.records import dataclass
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.refresh.freshness import freshness, ratio_of
from numpy.typing import NDArray

Column = NDArray[np.float64]

_STEPS_MAX = 200
_CLOSE = 1e-10
"""How near to the budget, as a part of it, a solution must come."""


@dataclass(frozen=True, slots=True)
class Copies:
    """What is known of the copies: `access` p (any scale), `changes` λ in a period, `sizes` z in units of the budget."""

    access: Column
    changes: Column
    sizes: Column

    def __len__(self) -> int:
        """Return how many copies there are."""
        return len(self.access)


Policy = Callable[[Copies, float], Column]
"""Returns the polls of each copy in a period, from the copies and the budget."""


def perceived_polls(copies: Copies, budget: float) -> Column:
    """Return the polls that users perceive most of; raises `PolicyError` for a budget that is not positive.

    A copy that never changes is fresh after its first poll, and gets none here.
    """
    return _solved(copies, budget, np.ones(len(copies)))


def general_polls(copies: Copies, budget: float) -> Column:
    """Return the polls that keep most copies fresh, whoever reads them; raises `PolicyError` for a budget that is not positive."""
    return _solved(Copies(np.ones(len(copies)), copies.changes, copies.sizes), budget, np.ones(len(copies)))


def uniform_polls(copies: Copies, budget: float) -> Column:
    """Return as many polls for each copy; raises `PolicyError` for a budget that is not positive."""
    _check(budget)
    return np.full(len(copies), budget / float(copies.sizes.sum()))


POLICIES: Mapping[str, Policy] = {"perceived": perceived_polls, "general": general_polls, "uniform": uniform_polls}


def _check(budget: float) -> None:
    if not 0.0 < budget < math.inf:
        raise PolicyError(f"a refresh budget of {budget:g} is not a positive number of polls")


def _solved(copies: Copies, budget: float, counts: Column) -> Column:
    """Solve where `counts` copies stand behind each element."""
    _check(budget)
    polls = np.zeros(len(copies))
    wanted = np.flatnonzero((copies.changes > 0.0) & (copies.access > 0.0))
    if not len(wanted):
        return polls
    changes, cost = copies.changes[wanted], counts[wanted] * copies.sizes[wanted]
    worth = copies.access[wanted] / (changes * copies.sizes[wanted])  # the greatest μ at which it is polled

    def at(log_price: float) -> Column:
        gain = math.exp(log_price) / worth
        found = np.zeros(len(worth))
        polled = gain < 1.0
        found[polled] = changes[polled] / ratio_of(gain[polled])
        return found

    polls[wanted] = _within(at, lambda found: float((cost * found).sum()), budget, math.log(float(worth.max())))
    return polls


def _within(at: Callable[[float], Column], spent: Callable[[Column], float], budget: float, dearest: float) -> Column:
    """Find the price at which the budget is spent: a falling function of the price's logarithm, `dearest` where nothing is bought."""
    high, low = dearest, dearest - 1.0
    while spent(at(low)) < budget:
        high, low = low, dearest - 2.0 * (dearest - low)
    much = at(low)
    little = at(high) if high < dearest else np.zeros_like(much)  # rounding may buy at the dearest price what it should not
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


# ---- partitions

KEYS: Mapping[str, Callable[[Copies], Column]] = {
    "access": lambda copies: copies.access,
    "changes": lambda copies: copies.changes,
    "ratio": lambda copies: copies.access / copies.changes,
    "pf": lambda copies: copies.access * freshness(np.ones(len(copies)), copies.changes),
    "pfs": lambda copies: copies.access * freshness(1.0 / copies.sizes, copies.changes),
}
"""By what copies are sorted: p, λ, p/λ, PF (p F at one poll) or PFS (at one unit of bandwidth)."""


def partitioned_polls(copies: Copies, budget: float, partitions: int, key: str = "pf", *, fixed_bandwidth: bool = False) -> Column:
    """Return the polls by partitions of as many copies each, sorted by a key.

    In a partition every copy is polled as often, or with `fixed_bandwidth` gets as much of the budget. Raises `PolicyError` for a key that
    is not there, less than one partition, or a budget that is not positive.
    """
    if key not in KEYS:
        raise PolicyError(f"unknown key '{key}' of partitions", hint="known are " + ", ".join(KEYS))
    if partitions < 1:
        raise PolicyError(f"{partitions} partitions are not at least 1")
    count = min(partitions, len(copies))
    part = np.empty(len(copies), dtype=np.int64)
    part[np.argsort(KEYS[key](copies), kind="stable")] = np.arange(len(copies)) * count // max(1, len(copies))
    counts = np.bincount(part, minlength=count).astype(np.float64)
    means = Copies(*(np.bincount(part, weights=one, minlength=count) / counts for one in (copies.access, copies.changes, copies.sizes)))
    found = _solved(means, budget, counts)
    return np.asarray((found * means.sizes)[part] / copies.sizes if fixed_bandwidth else found[part])
