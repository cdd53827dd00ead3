"""A load manager for each class (Pham 2013, IV-B): each finds out by itself what the scheduler gives its class, and sheds the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.engine.data.graph import ClassId
from millstream.scheduler.load.aloma import Aloma
from millstream.scheduler.load.contract import ClassCycle, Said


class ClassShedders:
    """An ALoMa a class; its headroom begins at the class's share."""

    name = "class"

    def __init__(self) -> None:
        self.shares: dict[ClassId, float] = {}
        self.alomas: dict[ClassId, Aloma] = {}

    def begin(self, shares: Mapping[ClassId, float]) -> None:
        """Take the classes. One that was there before keeps what it learnt, in proportion to its new share."""
        kept = {one: aloma for one, aloma in self.alomas.items() if one in shares}
        for one, aloma in kept.items():
            aloma.scale(shares[one] / self.shares[one])
        self.alomas = {one: kept.get(one) or Aloma(share) for one, share in shares.items()}
        self.shares = dict(shares)

    def decide(self, seen: Sequence[ClassCycle]) -> Said:
        """Let each manager see its class."""
        for one in seen:
            self.alomas[one.class_id].decide(one)
        headrooms = {one.class_id: self.alomas[one.class_id].headroom for one in seen}
        drops = {one.class_id: self.alomas[one.class_id].drop if one.may_shed else 0.0 for one in seen}
        return Said(headrooms, dict(self.shares), drops)
