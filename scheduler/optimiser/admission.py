"""Whether one more query can be let in: what it would do to the latency and the utility of every class.

What the query itself can expect is a mean and an interval (`prediction.Work`): rows wait behind their batch in other queries and behind
what is found. Latencies of those that run grow by (1 - ρ) / (1 - ρ') when the load rises from ρ to ρ', and without bound from ρ' = 1 on.
Where load managers protect classes from those below them, a class feels the load of its own priority and above only.

A query is refused when a class with a target would miss it (or miss it by more than now), or when it would miss its own.
A class without queries misses nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import Final

from millstream.engine.data.graph import ClassId
from millstream.engine.data.records import dataclass
from millstream.scheduler.optimiser.prediction import AddedLoad, Work
from millstream.scheduler.qos import Graph, utility

WORSE_MIN: Final = 1.001
"""A latency that grows by less than this factor has not grown."""


class AdmissionAnswer(Enum):
    """What a query is told."""

    ACCEPTED = "accepted"
    REDUCED = "accepted with expected utility"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class ClassFacts:
    """A class with its load (seconds of work per second) now."""

    id: ClassId
    name: str
    priority: float
    target_ns: int | None
    load: float


@dataclass(frozen=True, slots=True)
class QueryFacts:
    """A running query: its class, QoS graph and mean latency (None while nothing was measured)."""

    class_id: ClassId
    qos: Graph
    latency_ns: float | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """The query that asks."""

    class_id: ClassId
    added: AddedLoad
    qos: Graph
    target_ns: int | None = None
    work: Work | None = None


@dataclass(frozen=True, slots=True)
class Outlook:
    """What would become of a class: mean latency (ns, None: not measured, infinite: beyond bound) and mean utility, now and then."""

    name: str
    target_ns: int | None
    load_before: float
    load_after: float
    latency_before_ns: float | None
    latency_after_ns: float | None
    utility_before: float | None
    utility_after: float | None

    @property
    def misses(self) -> bool:
        """Whether it would miss its target, and not merely go on as it does."""
        if self.target_ns is None or self.latency_after_ns is None or self.latency_after_ns <= self.target_ns:
            return False
        before = self.latency_before_ns
        return before is None or before <= self.target_ns or self.latency_after_ns > WORSE_MIN * before


@dataclass(frozen=True, slots=True)
class Admission:
    """The answer with its numbers. `latency_ns` and `utility` are what the query itself can expect on average, `between_ns` says from where
    to where most of its results lie; `reasons` name what would be missed.
    """

    answer: AdmissionAnswer
    added: AddedLoad
    load_before: float
    capacity: float
    latency_ns: float
    between_ns: tuple[float, float]
    utility: float
    outlooks: tuple[Outlook, ...]
    reasons: tuple[str, ...]


def admit(
    capacity: float, classes: Sequence[ClassFacts], queries: Sequence[QueryFacts], candidate: Candidate, *, protected: bool = False
) -> Admission:
    """Return whether a query may begin, and why.

    `capacity` is the seconds of work that the machine does in a second, `protected` whether lower classes yield to higher.
    """
    outlooks = tuple(_outlook(one, capacity, classes, queries, candidate, protected) for one in classes)
    own = next(one for one in classes if one.id == candidate.class_id)
    before, after = _felt(own, classes, candidate, protected)
    latency_ns, *between = expected_ns(candidate.added.ideal_ns, candidate.work, after / capacity)
    reasons = [_class_reason(one) for one in outlooks if one.misses]
    if candidate.target_ns is not None and latency_ns > candidate.target_ns:
        reasons.append(f"the query itself would need {spelled_ms(latency_ns)} and its target is {spelled_ms(candidate.target_ns)}")
    expected = _utility(candidate.qos, latency_ns)
    answer = (
        AdmissionAnswer.REFUSED if reasons else AdmissionAnswer.ACCEPTED if expected >= candidate.qos[0][1] else AdmissionAnswer.REDUCED
    )
    return Admission(answer, candidate.added, before, capacity, latency_ns, (between[0], between[1]), expected, outlooks, tuple(reasons))


def _felt(one: ClassFacts, classes: Sequence[ClassFacts], candidate: Candidate, protected: bool) -> tuple[float, float]:
    """Return the load that a class feels, now and with the candidate."""
    felt = [other for other in classes if not protected or other.priority >= one.priority]
    before = sum(other.load for other in felt)
    return before, before + (candidate.added.load if any(other.id == candidate.class_id for other in felt) else 0.0)


def _outlook(
    one: ClassFacts, capacity: float, classes: Sequence[ClassFacts], queries: Sequence[QueryFacts], candidate: Candidate, protected: bool
) -> Outlook:
    before, after = (load / capacity for load in _felt(one, classes, candidate, protected))
    measured = [(q.qos, q.latency_ns) for q in queries if q.class_id == one.id and q.latency_ns is not None]
    grown = [(graph, latency_ns, _grown(latency_ns, before, after)) for graph, latency_ns in measured]
    then_ns = _mean([then for _, _, then in grown])
    peopled = one.id == candidate.class_id or any(q.class_id == one.id for q in queries)
    if then_ns is None and peopled and after > before and after >= 1.0:
        then_ns = math.inf  # whatever it is now
    return Outlook(
        one.name,
        one.target_ns,
        before,
        after,
        _mean([now for _, now, _ in grown]),
        then_ns,
        _mean([_utility(graph, now) for graph, now, _ in grown]),
        _mean([_utility(graph, then) for graph, _, then in grown]),
    )


def _grown(latency_ns: float, before: float, after: float) -> float:
    if after <= before:
        return latency_ns
    return math.inf if after >= 1.0 else latency_ns * (1.0 - before) / (1.0 - after)


def expected_ns(ideal_ns: float, work: Work | None, share: float) -> tuple[float, float, float]:
    """Return the mean latency of a query, and from where to where it lies. Where nobody knows how rows come, each comes alone."""
    if work is not None and work.own_ns:
        return work.latency_ns(share)
    waited = math.inf if share >= 1.0 else ideal_ns / (1.0 - share)
    return waited, ideal_ns, 2.0 * waited - ideal_ns


def _utility(graph: Graph, latency_ns: float) -> float:
    return graph[-1][1] if math.isinf(latency_ns) else utility(graph, latency_ns)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _class_reason(one: Outlook) -> str:
    assert one.latency_after_ns is not None
    assert one.target_ns is not None
    now = "" if one.latency_before_ns is None else f" (now {spelled_ms(one.latency_before_ns)})"
    return (
        f"class {one.name} would go from load {one.load_before:.2f} to {one.load_after:.2f} and miss its target of "
        f"{spelled_ms(one.target_ns)}: {spelled_ms(one.latency_after_ns)} expected{now}"
    )


NOT_KNOWN = "not known yet: no rows come in"


def spelled_interval(mean_ns: float, between_ns: tuple[float, float]) -> str:
    """Return a mean with the interval around it for people. One without width was made of no rows, so nothing is known."""
    if math.isinf(mean_ns):
        return spelled_ms(mean_ns)
    if between_ns[0] == between_ns[1]:
        return NOT_KNOWN
    return f"{spelled_ms(mean_ns)} on average ({between_ns[0] / 1e6:.3g} to {between_ns[1] / 1e6:.3g} ms)"


def spelled_ms(latency_ns: float) -> str:
    """Return a latency for people."""
    return "latency without bound" if math.isinf(latency_ns) else f"{latency_ns / 1e6:.3g} ms"
