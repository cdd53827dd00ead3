"""The load managers to which DILOS is compared (Pham 2013, IV): none, one for all classes, one for each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.engine.data.graph import ClassId
from millstream.scheduler.load.aloma import Aloma
from millstream.scheduler.load.contract import ClassCycle, Said

_ALL = ClassId(-1)


class NoShedder:
    """No shedder (IV-A): says that every class has what its priority gives it, and drops nothing."""

    name = "none"

    def __init__(self) -> None:
        self._shares: dict[ClassId, float] = {}

    def begin(self, shares: Mapping[ClassId, float]) -> None:
        """Take the classes."""
        self._shares = dict(shares)

    def decide(self, seen: Sequence[ClassCycle]) -> Said:
        """Return the shares that the priorities give."""
        return Said(dict(self._shares), dict(self._shares), dict.fromkeys(self._shares, 0.0))


class CommonShedder:
    """One shedder for all classes, which knows nothing of their priorities (IV-A): one ALoMa drops the same share everywhere.

    It sees the sum of the loads and of the backlogs, and the response time of the class that is furthest over its target. Its headroom
    begins at one processor. A class that is never shed loses nothing; the others then lose what it would have.
    """

    name = "common"

    def __init__(self) -> None:
        self._aloma = Aloma(1.0)
        self._shares: dict[ClassId, float] = {}

    def begin(self, shares: Mapping[ClassId, float]) -> None:
        """Take the classes; what was learnt of the machine stays."""
        self._shares = dict(shares)

    def decide(self, seen: Sequence[ClassCycle]) -> Said:
        """Return one drop for all classes that may be shed; a class's headroom is its part of the one."""
        if not seen:
            return Said()
        worst = max(seen, key=lambda one: one.lateness)
        load = sum(one.load for one in seen)
        self._aloma.decide(ClassCycle(_ALL, load, sum(one.backlog_s for one in seen), worst.response_ns, worst.target_ns))
        sheddable = sum(one.load for one in seen if one.may_shed)
        drop = min(1.0, self._aloma.drop * load / sheddable) if sheddable > 0.0 else 0.0
        drops = {one.class_id: drop if one.may_shed else 0.0 for one in seen}
        headrooms = {one.class_id: self._aloma.headroom * self._shares.get(one.class_id, 0.0) for one in seen}
        return Said(headrooms, dict(self._shares), drops)


class ClassShedders:
    """A load manager for each class (IV-B): each finds out by itself what the scheduler gives its class, and sheds the rest.

    An ALoMa a class; its headroom begins at the class's share.
    """

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
