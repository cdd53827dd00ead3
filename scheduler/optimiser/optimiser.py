"""The optimiser: told the facts now and then, it answers with at most one thing to do, and judges what it did (Pajjuri 2004, 3.5).

    watch     nothing is missed, or not for long enough: nothing is done
    act       the query that misses its targets by most: the first proposal of `actions` that is not barred
    settle    for `settle_ns` after a change nothing else is changed
    judge     the distance from all targets, before and after, each a mean of some looks: what made things worse is undone, and barred
              for `retry_ns`

When nothing is missed and there is room, what was shed is given back; that is the only thing done then. An undoing is a change too:
nothing follows it within the settling time, and it is not judged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final

from millstream.engine.data.graph import QueryId
from millstream.engine.data.records import dataclass
from millstream.scheduler.optimiser.actions import ACTIONS, give_back
from millstream.scheduler.optimiser.contract import (
    Action,
    Decision,
    DecisionOutcome,
    Facts,
    PolicyChange,
    Proposal,
    Shed,
    Subject,
    TargetState,
    UsePlan,
    undone,
)

NS_PER_S: Final = 1_000_000_000
DECISIONS_KEPT: Final = 256
RETRY_FACTOR: Final = 12


@dataclass(frozen=True, slots=True)
class OptimiserSettings:
    """`patience_ns` is how long a target must be missed before anything is done, `worse` by what share the distance must have grown
    for a change to be undone; `retry_ns` how long what was undone, or changed nothing, is not tried again.
    """

    settle_ns: int = 5 * NS_PER_S
    patience_ns: int = 2 * NS_PER_S
    retry_ns: int = RETRY_FACTOR * 5 * NS_PER_S
    worse: float = 0.05

    @classmethod
    def of_settling(cls, seconds: float) -> OptimiserSettings:
        """Return settings whose other times follow from the settling time."""
        settle_ns = int(seconds * NS_PER_S)
        return cls(settle_ns, max(1, settle_ns * 2 // 5), RETRY_FACTOR * settle_ns)


@dataclass(frozen=True, slots=True)
class ToDo:
    """What is to be done now: a decision's action, or the undoing of one."""

    decision: Decision
    action: Action
    undoes: bool


class Optimiser:
    """See the module's text. Whoever carries `step`'s answer out tells `failed` when it could not be done."""

    def __init__(self, settings: OptimiserSettings | None = None) -> None:
        self.settings = settings or OptimiserSettings()
        self.decisions: deque[Decision] = deque(maxlen=DECISIONS_KEPT)
        self._number = 0
        self._settling: Decision | None = None
        self._changed_ns: int | None = None
        self._barred: dict[Hashable, int] = {}
        self._seen: deque[tuple[int, float]] = deque()

    def step(self, facts: Facts, now_ns: int) -> ToDo | None:
        """Judge what has settled, and return what is to be done now, if anything."""
        self._seen.append((now_ns, facts.distance))
        while now_ns - self._seen[0][0] > max(self.settings.settle_ns, self.settings.patience_ns):
            self._seen.popleft()
        if self._changed_ns is not None and now_ns - self._changed_ns < self.settings.settle_ns:
            return None
        self._barred = {key: until for key, until in self._barred.items() if until > now_ns}
        if self._settling is not None:
            undoing = self._judge(self._settling, facts, now_ns)
            self._settling = None
            if undoing is not None:
                self._changed_ns = now_ns
                return undoing
        return self._act(facts, now_ns)

    def failed(self, todo: ToDo, why: str, now_ns: int) -> None:
        """Hear that something could not be done: it is barred, and the time of the last change is forgotten."""
        todo.decision.note = why
        self._bar(todo.action, now_ns)
        if not todo.undoes:
            todo.decision.outcome = DecisionOutcome.FAILED
            self._settling = None
            self._changed_ns = None

    def moved(self, query: QueryId, to: QueryId) -> None:
        """A query goes on under another id: what is remembered of it is the other's."""
        for one in self.decisions:
            if isinstance(one.action, UsePlan) and one.action.query == query:
                one.action = UsePlan(to, one.action.kind, one.action.before, one.action.after)
        self._barred = {_moved(key, query, to): until for key, until in self._barred.items()}

    # ---- inside

    def _distance(self, since_ns: int) -> float:
        """Return the mean of what was seen from then on: one look alone says little."""
        found = [distance for at, distance in self._seen if at >= since_ns]
        return sum(found) / max(1, len(found))

    def _judge(self, decision: Decision, facts: Facts, now_ns: int) -> ToDo | None:
        """Measure the effect; return the undoing of what made things worse."""
        after = decision.distance_after = self._distance(now_ns - self.settings.settle_ns // 2)
        decision.observed_after = next((q.verdict.observation for q in facts.queries if q.name == decision.query), None)
        self._bar(decision.action, now_ns)
        if after <= decision.distance_before * self._allowed(decision.action):
            decision.outcome = DecisionOutcome.KEPT
            return None
        undoing = undone(decision.action)
        if not _stands(decision.action, facts):
            decision.outcome, decision.note = DecisionOutcome.KEPT, "somebody has changed it since"
            return None
        decision.outcome = DecisionOutcome.UNDONE
        return ToDo(decision, undoing, True)

    def _allowed(self, action: Action) -> float:
        """Return by what factor the distance may have changed: what costs rows must have brought something."""
        costs_rows = isinstance(action, Shed) and action.after > action.before
        return 1.0 - self.settings.worse if costs_rows else 1.0 + self.settings.worse

    def _act(self, facts: Facts, now_ns: int) -> ToDo | None:
        for query in self._missed(facts, now_ns):
            for propose in ACTIONS:
                for proposal in propose(facts, query):
                    if _key(proposal.action) not in self._barred:
                        return self._decide(facts, query, proposal, now_ns)
        if facts.distance == 0.0 and (found := give_back(facts)) is not None and _key(found[1].action) not in self._barred:
            return self._decide(facts, *found, now_ns)
        return None

    def _missed(self, facts: Facts, now_ns: int) -> list[Subject]:
        """Return the queries that have missed a target for long enough, the worst first."""
        since = now_ns - self.settings.patience_ns
        found = [q for q in facts.queries if q.verdict.state is TargetState.MISSED and q.verdict.since_ns <= since]
        return sorted(found, key=lambda q: (-q.weight * q.verdict.excess, q.name))

    def _decide(self, facts: Facts, query: Subject, proposal: Proposal, now_ns: int) -> ToDo:
        self._number += 1
        reason = "; ".join(filter(None, (_missed_text(query), proposal.reason)))
        before = self._distance(now_ns - self.settings.patience_ns)
        decision = Decision(self._number, now_ns, query.name, proposal.action, reason, before, query.verdict.observation)
        self.decisions.append(decision)
        self._settling, self._changed_ns = decision, now_ns
        return ToDo(decision, proposal.action, False)

    def _bar(self, action: Action, now_ns: int) -> None:
        self._barred[_key(action)] = now_ns + self.settings.retry_ns


def _key(action: Action) -> Hashable:
    """Return what must not be tried again: the same end by the same means, from wherever."""
    if isinstance(action, PolicyChange):
        return (action.kind, str(action.after))
    if isinstance(action, UsePlan):
        return (action.kind, action.query, action.after)
    if isinstance(action, Shed):
        return (action.kind, action.class_id, action.after)
    return (action.kind, action.query, action.after)


def _moved(key: Hashable, query: QueryId, to: QueryId) -> Hashable:
    is_plan = isinstance(key, tuple) and len(key) == 3 and key[0] != "shed" and key[1] == query
    return (key[0], to, key[2]) if is_plan and isinstance(key, tuple) else key


def _stands(action: Action, facts: Facts) -> bool:
    """Tell whether what an action brought about is still in force, so that undoing it takes nobody else's change back."""
    if isinstance(action, PolicyChange):
        return facts.policy == action.after
    if isinstance(action, Shed):
        return any(q.class_id == action.class_id and abs(q.drop_ratio - action.after) < 1e-9 for q in facts.queries)
    if isinstance(action, UsePlan):
        return any(q.id == action.query and q.plan == action.after for q in facts.queries)
    return any(q.id == action.query and q.weight == action.after for q in facts.queries)


def _missed_text(query: Subject) -> str:
    seen, target, parts = query.verdict.observation, query.target, []
    if query.verdict.latency_missed and seen is not None and seen.latency_ns is not None and target.latency_ns is not None:
        parts.append(f"latency {seen.latency_ns / 1e6:.3g} ms exceeds {target.latency_ns / 1e6:.3g} ms")
    if query.verdict.memory_missed and seen is not None and target.memory_bytes is not None:
        parts.append(f"memory {seen.memory_bytes:.3g} bytes exceeds {target.memory_bytes:.3g}")
    return " and ".join(parts)
