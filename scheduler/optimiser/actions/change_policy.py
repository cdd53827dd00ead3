"""Schedule by a policy that serves what is missed (Pajjuri 2004, 4.1): rates for latency, the release of memory for memory.

latency missed            hr, path-capacity
memory missed             segment, chain
both                      simplified-segment, which is between the two
"""

from __future__ import annotations

from typing import Final

from millstream.scheduler.optimiser.contract import Facts, Proposal, SetPolicy, Subject
from millstream.scheduler.spec import PolicySpec

KIND: Final = "policy"
FOR_LATENCY: Final = ("hr", "path-capacity")
FOR_MEMORY: Final = ("segment", "chain")
FOR_BOTH: Final = ("simplified-segment", "hr")

BY_CLASS: Final = ("cqc",)
"""Policies that divide the machine between classes: the optimiser leaves them in force."""


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
    return [Proposal(SetPolicy(KIND, facts.policy, PolicySpec(name)), f"{reason}, which {name} serves better") for name in wanted]
