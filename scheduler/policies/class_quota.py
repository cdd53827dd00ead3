"""Continuous query classes, CQC (Pham 2013, III-A): classes in turn, each for a quota of time; inside a class any ranking.

    T_i = k P_i / Σ P

A class is served until its quota is used up or nothing of it waits; then it is the next one's turn, and what was left of the quota is
lost. Nothing is interrupted: what a class has used beyond its quota is taken from its next ones (negative credit).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from millstream.engine.data.graph import ClassId
from millstream.scheduler.errors import PolicyError


class ClassQuotas:
    """Whose turn it is, and what each class has left of its quota. Times in ns; `round_ns` is k."""

    def __init__(self, round_ns: float) -> None:
        if not 0.0 < round_ns < float("inf"):
            raise PolicyError(f"policy option k={round_ns / 1e6:g} is not a positive number of ms")
        self.round_ns = round_ns
        self.shares: dict[ClassId, float] = {}
        self.credit_ns: dict[ClassId, float] = {}
        self._order: list[ClassId] = []
        self._place = -1

    def begin(self, shares: Mapping[ClassId, float]) -> None:
        """Take the classes, in the order of their turns; one that was there before keeps its credit, and its turn if it has it."""
        present = self.present
        self.credit_ns = {one: self.credit_ns.get(one, 0.0) for one in shares}
        self.shares, self._order = dict(shares), list(shares)
        self._place = self._order.index(present) if present is not None and present in shares else -1

    @property
    def present(self) -> ClassId | None:
        """Whose turn it is, None before the first."""
        return self._order[self._place] if self._place >= 0 else None

    def set_shares(self, shares: Mapping[ClassId, float]) -> None:
        """Give these classes other shares of a round from their next turn on."""
        self.shares.update((one, share) for one, share in shares.items() if one in self.shares)

    def quota_ns(self, class_id: ClassId) -> float:
        """Return T_i."""
        return self.round_ns * self.shares[class_id]

    def charge(self, class_id: ClassId, spent_ns: float) -> None:
        """Take time that a class has used from its credit."""
        if class_id in self.credit_ns:
            self.credit_ns[class_id] -= spent_ns

    def turn(self, waiting: Collection[ClassId]) -> ClassId | None:
        """Return the class to serve now, of those for which something waits."""
        if not waiting:
            return None
        present = self.present
        if present is not None and present in waiting and self.credit_ns[present] > 0.0:
            return present
        while True:
            for _ in self._order:
                found = self._next(waiting)
                if found is not None:
                    return found
            self._skip_rounds(waiting)

    def _next(self, waiting: Collection[ClassId]) -> ClassId | None:
        """Give the turn to the next class, with its quota; return it if it can use it."""
        self._place = (self._place + 1) % len(self._order)
        one = self._order[self._place]
        credit = self.credit_ns[one] = min(0.0, self.credit_ns[one]) + self.quota_ns(one)
        return one if one in waiting and credit > 0.0 else None

    def _skip_rounds(self, waiting: Collection[ClassId]) -> None:
        """Whoever has something waiting is in debt: let the rounds pass in which nobody could be served, all at once."""
        rounds = min(int(-self.credit_ns[one] / self.quota_ns(one)) for one in sorted(waiting))
        for one in self._order if rounds > 0 else ():
            self.credit_ns[one] = min(0.0, self.credit_ns[one]) + rounds * self.quota_ns(one)
