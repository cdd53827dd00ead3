"""The QoS monitor: whether each query keeps what it was promised (Pajjuri 2004, 3.5 and 4.2).

A target is missed when it is exceeded by more than its tolerance, and met again only when it is no longer exceeded at all: between the
two the state stays what it was, so that a value on the edge does not flutter. Of latency nothing is said while nothing comes.
"""

from __future__ import annotations

from millstream.engine.data.graph import QueryId
from millstream.engine.data.records import dataclass
from millstream.scheduler.optimiser.contract import QUIET_NS, Observation, ServiceTarget, TargetState, TargetVerdict


@dataclass(frozen=True, slots=True)
class _Seen:
    target: ServiceTarget
    verdict: TargetVerdict


class Monitor:
    """Remembers the last verdict of each query."""

    def __init__(self) -> None:
        self._seen: dict[QueryId, _Seen] = {}

    def observe(self, query: QueryId, target: ServiceTarget, seen: Observation) -> TargetVerdict:
        """Judge what was observed of a query since the last look."""
        if not target.is_any:
            self._seen.pop(query, None)
            return TargetVerdict(TargetState.NONE, seen.at_ns, observation=seen)
        before = self._seen.get(query)
        last = before.verdict if before is not None and before.target == target else TargetVerdict(TargetState.UNKNOWN, seen.at_ns)
        verdict = _judged(target, seen, last)
        self._seen[query] = _Seen(target, verdict)
        return verdict

    def verdict(self, query: QueryId) -> TargetVerdict | None:
        """Return the last verdict on a query."""
        found = self._seen.get(query)
        return None if found is None else found.verdict

    def moved(self, query: QueryId, to: QueryId) -> None:
        """Go on with a query under another id."""
        found = self._seen.pop(query, None)
        if found is not None:
            self._seen[to] = found

    def forget(self, query: QueryId) -> None:
        """Forget a query that left."""
        self._seen.pop(query, None)


def _judged(target: ServiceTarget, seen: Observation, last: TargetVerdict) -> TargetVerdict:
    latency, latency_excess = _missed(seen.latency_ns, target.latency_ns, target.tolerance, last.latency_missed)
    memory, memory_excess = _missed(seen.memory_bytes, target.memory_bytes, target.tolerance, last.memory_missed)
    if last.state is TargetState.UNKNOWN and seen.latency_ns is None and not memory:
        return TargetVerdict(TargetState.UNKNOWN, last.since_ns, observation=seen)
    is_silent = target.latency_ns is not None and seen.latency_ns is None and not seen.came
    heard_ns = last.heard_ns if is_silent else seen.at_ns
    if latency or memory:
        state = TargetState.MISSED
    elif is_silent and (last.state is not TargetState.MET or seen.at_ns - heard_ns >= QUIET_NS):
        state = TargetState.IDLE
    else:
        state = TargetState.MET
    since_ns = last.since_ns if state is last.state else seen.at_ns
    misses = last.misses + int(state is TargetState.MISSED and last.state is not TargetState.MISSED)
    return TargetVerdict(state, since_ns, latency_excess + memory_excess, latency, memory, misses, seen, heard_ns)


def _missed(value: float | None, target: float | None, tolerance: float, was_missed: bool) -> tuple[bool, float]:
    """Return whether a target is missed, and by what share it is exceeded then. Without news it stays as it was."""
    if target is None or (value is None and not was_missed):
        return False, 0.0
    if value is None:  # nothing came and nothing waits
        return False, 0.0
    missed = value > target * (1.0 if was_missed else 1.0 + tolerance)
    return missed, value / target - 1.0 if missed else 0.0
