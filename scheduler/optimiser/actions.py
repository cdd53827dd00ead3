"""What the optimiser can do: each action proposes itself where it may help, with the reason, and knows nothing of the others.

`ACTIONS` is the order in which they are asked: first what harms nobody, then what shifts time between queries, shedding last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from millstream.scheduler.optimiser.contract import Facts, PlanChoice, PolicyChange, Proposal, SetWeight, Shed, Subject, UsePlan
from millstream.scheduler.spec import PolicySpec

# Run the selections of a query in the order of (s - 1) / c as measured: the most rows dropped for the least cost goes first.
SELECTION_ORDER_KIND: Final = "selection order"

SAVING_MIN: Final = 0.1
"""A plan that is expected to save less than this share of the cost is not worth the change."""

# Answer a query by another plan that the planner holds for equivalent, such as selections below a join.
ALTERNATIVE_PLAN_KIND: Final = "alternative plan"

# Schedule by a policy that serves what is missed (Pajjuri 2004, 4.1): rates for latency, the release of memory for memory.
# latency missed            hr, path-capacity
# memory missed             segment, chain
# both                      simplified-segment, which is between the two
POLICY_KIND: Final = "policy"
FOR_LATENCY: Final = ("hr", "path-capacity")
FOR_MEMORY: Final = ("segment", "chain")
FOR_BOTH: Final = ("simplified-segment", "hr")

BY_CLASS: Final = ("cqc",)
"""Policies that divide the machine between classes: the optimiser leaves them in force."""

# Give more of the turns to what is missed: the query's weight where the policy goes by it, those of leaves and joins in turns.
WEIGHTS_KIND: Final = "weights"
BY_QUERY_WEIGHT: Final = ("fas",)
"""Policies that rank by the weight of the query."""

WEIGHT_FACTOR: Final = 2.0
TURN_WEIGHT_MAX: Final = 8.0
RANK_WEIGHT_MAX: Final = 1.0
"""Sharaf's α lies in (0, 1]."""

# Change the quantum where the policy has one: shorter turns come round sooner, longer ones waste less on deciding.
QUANTUM_KIND: Final = "quantum"
QUANTUM_MS_MIN: Final = 0.1
QUANTUM_MS_MAX: Final = 100.0
BUSY: Final = 0.9
"""From this share of the machine on, overhead matters more than turns."""

# Change how many rows a unit takes at a time: short trains answer sooner, long ones cost less a row (Carney 2005, 3.3.1).
TRAIN_SIZE_KIND: Final = "train size"
TRAIN_ROWS_MIN: Final = 64
TRAIN_ROWS_MAX: Final = 16_384
TRAIN_ROWS_FIRST: Final = 512
"""The first count that is tried in the place of trains that follow the estimates."""

# Ask for shedding, where the class allows it and the machine cannot do all the work; and give it back when it can.
# Load managers shed by themselves (`scheduler/load`): the optimiser asks only where none is in force.
DROP_RATIO_STEP: Final = 0.1
DROP_RATIO_MAX: Final = 0.9
OVERLOADED: Final = 0.95
"""From this share of the machine on it has more to do than it can."""

SPARE: Final = 0.85
"""Below this share there is room to give some of it back."""


def reorder_selections(facts: Facts, query: Subject) -> list[Proposal]:
    """Propose the orders that are expected to save enough, the best first; those whose effect nobody knows come last."""
    return plans_of(query, SELECTION_ORDER_KIND)


def plans_of(query: Subject, kind: str) -> list[Proposal]:
    """Return proposals for the plans of a kind, the greatest expected saving first."""
    worth = [one for one in query.choices if one.kind == kind and (one.saving is None or one.saving >= SAVING_MIN)]
    worth.sort(key=lambda one: -1.0 if one.saving is None else one.saving, reverse=True)
    return [Proposal(UsePlan(query.id, kind, query.plan, one.key), _reason(one)) for one in worth if one.key != query.plan]


def _reason(one: PlanChoice) -> str:
    expected = "its effect is not known" if one.saving is None else f"it should save {one.saving:.0%} of the query's cost"
    return f"{one.why}; {expected}"


def alternative_plan(facts: Facts, query: Subject) -> list[Proposal]:
    """Propose them, the greatest expected saving first."""
    return plans_of(query, ALTERNATIVE_PLAN_KIND)


def change_policy(facts: Facts, query: Subject) -> list[Proposal]:
    """Propose the policies for what is missed that are not in force. One query alone has nobody to be preferred to."""
    if facts.policy.name in BY_CLASS or len(facts.queries) < 2:
        return []
    verdict = query.verdict
    if verdict.latency_missed and verdict.memory_missed:
        wanted, what = FOR_BOTH, "latency and memory are"
    elif verdict.latency_missed:
        wanted, what = FOR_LATENCY, "latency is"
    elif verdict.memory_missed:
        wanted, what = FOR_MEMORY, "memory is"
    else:
        return []
    if facts.policy.name in wanted:
        return []
    reason = f"{what} missed under {facts.policy.name}"
    return [Proposal(PolicyChange(POLICY_KIND, facts.policy, PolicySpec(name)), f"{reason}, which {name} serves better") for name in wanted]


def change_weights(facts: Facts, query: Subject) -> list[Proposal]:
    """Propose to double the weight, up to its bound."""
    policy = facts.policy
    if policy.name in BY_QUERY_WEIGHT and query.weight < RANK_WEIGHT_MAX and len(facts.queries) > 1:
        after = min(RANK_WEIGHT_MAX, query.weight * WEIGHT_FACTOR)
        return [Proposal(SetWeight(query.id, query.weight, after), f"{policy.name} ranks by the query's weight")]
    if policy.name == "weighted-round-robin" and query.verdict.latency_missed:
        join = float(policy.get("join", 3.0))
        if join < TURN_WEIGHT_MAX:
            after_policy = policy.with_option("join", min(TURN_WEIGHT_MAX, join * WEIGHT_FACTOR))
            return [Proposal(PolicyChange(WEIGHTS_KIND, policy, after_policy), "joins hold up the results behind them")]
    return []


def change_quantum(facts: Facts, query: Subject) -> list[Proposal]:
    """Propose to halve the quantum, or on a busy machine to double it."""
    quantum = facts.policy.get("quantum", 0)
    if not query.verdict.latency_missed or isinstance(quantum, str) or not quantum:
        return []
    longer = facts.busy >= BUSY
    after = min(QUANTUM_MS_MAX, quantum * 2.0) if longer else max(QUANTUM_MS_MIN, quantum / 2.0)
    if after == quantum:
        return []
    why = "the machine is busy: fewer turns cost less" if longer else "a shorter quantum lets others' turns come sooner"
    return [Proposal(PolicyChange(QUANTUM_KIND, facts.policy, facts.policy.with_option("quantum", after)), why)]


def change_train_size(facts: Facts, query: Subject) -> list[Proposal]:
    """Propose shorter trains, or on a busy machine all that waits at once."""
    policy = facts.policy
    if not query.verdict.latency_missed or policy.get("quantum", 0):
        return []
    train = policy.get("train", "adaptive")
    count = train if isinstance(train, int) and not isinstance(train, bool) else None
    if facts.busy >= BUSY:
        after: str | int = "all" if count is None or count >= TRAIN_ROWS_MAX else min(TRAIN_ROWS_MAX, count * 4)
        why = "the machine is busy: longer trains cost less a row"
    else:
        after = TRAIN_ROWS_FIRST if count is None else max(TRAIN_ROWS_MIN, count // 4)
        why = "shorter trains are through sooner"
    if after == train:
        return []
    return [Proposal(PolicyChange(TRAIN_SIZE_KIND, policy, policy.with_option("train", after)), why)]


def shed(facts: Facts, query: Subject) -> list[Proposal]:
    """Propose to drop a tenth more of the input of the lowest class that may be shed."""
    if facts.busy < OVERLOADED:
        return []
    able = [one for one in facts.queries if one.may_shed and one.drop_ratio < DROP_RATIO_MAX]
    if not able:
        return []
    own = [one for one in able if one.class_id == query.class_id]
    one = min(own or able, key=lambda found: (found.weight, found.drop_ratio))
    after = min(DROP_RATIO_MAX, round(one.drop_ratio + DROP_RATIO_STEP, 6))
    why = f"the machine is {facts.busy:.0%} busy and the class of {one.name} may be shed"
    return [Proposal(Shed(one.class_id, one.drop_ratio, after), why)]


def give_back(facts: Facts) -> tuple[Subject, Proposal] | None:
    """Propose to drop a tenth less for the class of the greatest weight that is shed, once there is room."""
    shed_now = [one for one in facts.queries if one.may_shed and one.drop_ratio > 0.0]
    if not shed_now or facts.busy >= SPARE:
        return None
    one = max(shed_now, key=lambda found: (found.weight, found.drop_ratio))
    after = max(0.0, round(one.drop_ratio - DROP_RATIO_STEP, 6))
    return one, Proposal(Shed(one.class_id, one.drop_ratio, after), f"all targets are met and the machine is {facts.busy:.0%} busy")


ACTIONS: Final[tuple[Callable[[Facts, Subject], list[Proposal]], ...]] = (
    reorder_selections,
    alternative_plan,
    change_policy,
    change_weights,
    change_quantum,
    change_train_size,
    shed,
)
