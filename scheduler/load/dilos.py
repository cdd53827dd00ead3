"""DILoS: load managers of the classes that tell the scheduler what they have left and what they lack (Pham 2013, IV-C).

Every ten cycles, with u_i = L_i / H_i (mean over the round), p_i the present and p0_i the original share:

    demand_i = (u_i - 1) p_i                    if u_i > 1 (the paper prints u_i < 1, which cannot be meant)
    supply_i = (1 - u_i) p_i - 0.05 p0_i        if that is positive
    budget   = Σ supply_i

1. demands are met from the budget in the order of original priority
2. a class whose demand is not met gets its original share all the same, from those above theirs, the least important first
3. what is left of the budget goes to classes under their original share, the most important first
4. so the sum of shares stays what it was

    H_new = H_old * share_new / share_old

What is lent is taken back at once and not only after ten cycles: a class that is late while it has less than its original share gets
that back, in the order of rule 2, and sheds nothing more in that cycle. The paper has no such rule; without it the most important
class sheds whenever its load grows, for up to a round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from millstream.engine.data.graph import ClassId
from millstream.scheduler.load.contract import CYCLES_A_ROUND, ClassCycle, Said
from millstream.scheduler.load.shedders import ClassShedders

KEPT_BACK: Final = 0.05
"""The part of its original share that a class keeps unused, for stability."""

Shares = Mapping[ClassId, float]


def demands(usage: Shares, shares: Shares) -> dict[ClassId, float]:
    """Return what each class lacks."""
    return {one: max(0.0, (usage[one] - 1.0) * share) for one, share in shares.items()}


def supplies(usage: Shares, shares: Shares, original: Shares) -> dict[ClassId, float]:
    """Return what each class can do without."""
    return {one: max(0.0, (1.0 - usage[one]) * share - KEPT_BACK * original[one]) for one, share in shares.items()}


def redistributed(usage: Shares, shares: Shares, original: Shares) -> dict[ClassId, float]:
    """Return the new shares; `usage` is u, load by headroom. Classes of equal priority go by their number."""
    by_priority = sorted(shares, key=lambda one: (-original[one], one))
    lacking = demands(usage, shares)
    given = supplies(usage, shares, original)
    found = {one: share - given[one] for one, share in shares.items()}
    budget = sum(given.values())
    for one in by_priority:
        part = min(lacking[one], budget)
        found[one] += part
        lacking[one] -= part
        budget -= part
    for one in by_priority:
        _take_back(one, min(lacking[one], original[one] - found[one]), found, original, by_priority)
    for one in by_priority:
        part = min(budget, max(0.0, original[one] - found[one]))
        found[one] += part
        budget -= part
    return found


def recalled(short: Sequence[ClassId], shares: Shares, original: Shares) -> dict[ClassId, float]:
    """Return the shares after these classes have got their original ones back."""
    by_priority = sorted(shares, key=lambda one: (-original[one], one))
    found = dict(shares)
    for one in by_priority:
        if one in short:
            _take_back(one, original[one] - found[one], found, original, by_priority)
    return found


def _take_back(needy: ClassId, amount: float, found: dict[ClassId, float], original: Shares, by_priority: Sequence[ClassId]) -> None:
    for one in reversed(by_priority):
        part = min(amount, found[one] - original[one])
        if part > 0.0 and one != needy:
            found[one] -= part
            found[needy] += part
            amount -= part


class Dilos(ClassShedders):
    """A load manager a class, and the shares of all of them."""

    name = "dilos"

    def __init__(self) -> None:
        super().__init__()
        self._original: dict[ClassId, float] = {}
        self._usage: dict[ClassId, float] = {}
        self._cycles = 0

    def begin(self, shares: Shares) -> None:
        """Take the classes, each with its original share."""
        super().begin(shares)
        self._original = dict(shares)
        self._forget()

    def _forget(self) -> None:
        self._cycles, self._usage = 0, dict.fromkeys(self.shares, 0.0)

    def decide(self, seen: Sequence[ClassCycle]) -> Said:
        """Let each manager see its class; take back what was lent where it is missed; in every tenth cycle distribute shares anew."""
        short = [one.class_id for one in seen if one.lateness > 1.0 and self.shares[one.class_id] < self._original[one.class_id]]
        before = {one: self.alomas[one].drop for one in short}
        super().decide(seen)
        if short:
            for one, drop in before.items():
                self.alomas[one].drop = min(drop, self.alomas[one].drop)
            self._put_in_force(recalled(short, self.shares, self._original))
        else:
            self._count(seen)
        return Said(
            {one.class_id: self.alomas[one.class_id].headroom for one in seen},
            dict(self.shares),
            {one.class_id: self.alomas[one.class_id].drop if one.may_shed else 0.0 for one in seen},
        )

    def _count(self, seen: Sequence[ClassCycle]) -> None:
        for one in seen:
            self._usage[one.class_id] += one.load / self.alomas[one.class_id].headroom
        self._cycles += 1
        if self._cycles == CYCLES_A_ROUND:
            usage = {one: total / self._cycles for one, total in self._usage.items()}
            self._put_in_force(redistributed(usage, self.shares, self._original))

    def _put_in_force(self, shares: dict[ClassId, float]) -> None:
        for one, aloma in self.alomas.items():
            aloma.scale(shares[one] / self.shares[one] if self.shares[one] > 0.0 else 1.0)
        self.shares = shares
        self._forget()
