"""Give more of the turns to what is missed: the query's weight where the policy goes by it, those of leaves and joins in turns."""

from __future__ import annotations

from typing import Final

from millstream.scheduler.optimiser.contract import Facts, Proposal, SetPolicy, SetWeight, Subject

KIND: Final = "weights"
BY_QUERY: Final = ("fas",)
"""Policies that rank by the weight of the query."""

FACTOR: Final = 2.0
WEIGHT_MAX: Final = 8.0
WEIGHT_MAX_OF_RANK: Final = 1.0
"""Sharaf's α lies in (0, 1]."""


def change_weights(facts: Facts, query: Subject) -> list[Proposal]:
    """Propose to double the weight, up to its bound."""
    policy = facts.policy
    if policy.name in BY_QUERY and query.weight < WEIGHT_MAX_OF_RANK and len(facts.queries) > 1:
        after = min(WEIGHT_MAX_OF_RANK, query.weight * FACTOR)
        return [Proposal(SetWeight(query.id, query.weight, after), f"{policy.name} ranks by the query's weight")]
    if policy.name == "weighted-round-robin" and query.verdict.latency_missed:
        join = float(policy.get("join", 3.0))
        if join < WEIGHT_MAX:
            after_policy = policy.with_option("join", min(WEIGHT_MAX, join * FACTOR))
            return [Proposal(SetPolicy(KIND, policy, after_policy), "joins hold up the results behind them")]
    return []
