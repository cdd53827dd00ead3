"""The words of the optimiser: what it is told, what it can do, what became of it. Plain data; times in ns, memory in bytes."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Any, Final

from millstream.engine.data.graph import ClassId, QueryId
from millstream.engine.data.records import dataclass
from millstream.scheduler.spec import PolicySpec

TOLERANCE_PERCENT: Final = 10.0
"""How far a target may be exceeded where the query does not say."""
QUIET_NS: Final = 10_000_000_000
"""After so long without rows nothing is said of a query's latency any more."""


@dataclass(frozen=True, slots=True)
class ServiceTarget:
    """What a query was promised: mean latency and memory (None: nothing was said), and how far either may be exceeded (0.1 is 10 %)."""

    latency_ns: float | None = None
    memory_bytes: float | None = None
    tolerance: float = TOLERANCE_PERCENT / 100.0

    @property
    def is_any(self) -> bool:
        """Whether anything was promised."""
        return self.latency_ns is not None or self.memory_bytes is not None


@dataclass(frozen=True, slots=True)
class Observation:
    """What a query gave since the last look: mean latency of its results, or the age of its oldest waiting row when that is greater.

    `latency_ns` None: no results, and nothing waits. `came`: whether any row of its streams has reached it.
    """

    at_ns: int
    latency_ns: float | None
    memory_bytes: float
    came: bool = True


class TargetState(Enum):
    """How a query stands to its targets."""

    NONE = "none"  # it has no target
    UNKNOWN = "unknown"  # nothing was observed yet
    IDLE = "idle"  # nothing has come for a while and nothing waits, so there is no latency to judge
    MET = "met"
    MISSED = "missed"


@dataclass(frozen=True, slots=True)
class TargetVerdict:
    """A query's state, since when, and by how much its targets are exceeded: 0.5 is half as much again, summed over those missed.

    `latency_missed` and `memory_missed` say which. `misses` counts how often it has become missed. `heard_ns`: when something last came.
    """

    state: TargetState
    since_ns: int
    excess: float = 0.0
    latency_missed: bool = False
    memory_missed: bool = False
    misses: int = 0
    observation: Observation | None = None
    heard_ns: int = 0


@dataclass(frozen=True, slots=True)
class PlanChoice:
    """A plan that gives the same answers. `saving` is the share of the query's cost that it is expected to save; None: not known.

    `key` names it among the plans of the query, `kind` is `selection order` or `alternative plan`.
    """

    key: str
    kind: str
    saving: float | None
    why: str


@dataclass(frozen=True, slots=True)
class Subject:
    """A running query as the optimiser sees it. `plan` is the key of the plan in force; `drop_ratio` what its class sheds now."""

    id: QueryId
    name: str
    class_id: ClassId
    target: ServiceTarget
    verdict: TargetVerdict
    weight: float = 1.0
    may_shed: bool = False
    drop_ratio: float = 0.0
    plan: str = ""
    choices: tuple[PlanChoice, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything at one moment. `busy` is the share of the machine in use (1.0: all of it)."""

    policy: PolicySpec
    busy: float
    queries: tuple[Subject, ...]

    @property
    def distance(self) -> float:
        """How far all targets are missed, weighted: what the optimiser wants to be 0."""
        return sum(one.weight * one.verdict.excess for one in self.queries if one.verdict.state is TargetState.MISSED)


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """Schedule by another policy, or by the same with other options. `kind`: policy, weights, quantum or train size."""

    kind: str
    before: PolicySpec
    after: PolicySpec

    def __str__(self) -> str:
        """Say it."""
        return f"{self.kind}: {self.before} becomes {self.after}"


@dataclass(frozen=True, slots=True)
class SetWeight:
    """Give a query another weight."""

    query: QueryId
    before: float
    after: float
    kind: str = "weights"

    def __str__(self) -> str:
        """Say it."""
        return f"{self.kind}: {self.before:g} becomes {self.after:g}"


@dataclass(frozen=True, slots=True)
class UsePlan:
    """Answer a query by another plan."""

    query: QueryId
    kind: str
    before: str
    after: str

    def __str__(self) -> str:
        """Say it."""
        return f"{self.kind}: {self.after or 'as first planned'}"


@dataclass(frozen=True, slots=True)
class Shed:
    """Drop another share of the input of a class that may be shed."""

    class_id: ClassId
    before: float
    after: float
    kind: str = "shed"

    def __str__(self) -> str:
        """Say it."""
        return f"{self.kind}: {self.before:.0%} becomes {self.after:.0%} of the input"


Action = PolicyChange | SetWeight | UsePlan | Shed


def undone(action: Action) -> Action:
    """Return what takes an action back."""
    turned: dict[str, Any] = {"before": action.after, "after": action.before}
    return replace(action, **turned)


@dataclass(frozen=True, slots=True)
class Proposal:
    """Something that could be done for a query, and why."""

    action: Action
    reason: str


class DecisionOutcome(Enum):
    """What became of a decision."""

    SETTLING = "settling"
    KEPT = "kept"
    UNDONE = "undone"
    FAILED = "failed"


@dataclass(slots=True)
class Decision:
    """One decision: for which query, why, the distance from all targets before it and after it had settled."""

    number: int
    at_ns: int
    query: str
    action: Action
    reason: str
    distance_before: float
    observed_before: Observation | None
    outcome: DecisionOutcome = DecisionOutcome.SETTLING
    distance_after: float | None = None
    observed_after: Observation | None = None
    note: str = ""
