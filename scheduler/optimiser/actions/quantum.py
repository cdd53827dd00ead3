"""Change the quantum where the policy has one: shorter turns come round sooner, longer ones waste less on deciding."""

from __future__ import annotations

from typing import Final

from millstream.scheduler.optimiser.contract import Facts, Proposal, SetPolicy, Subject

KIND: Final = "quantum"
QUANTUM_MS_MIN: Final = 0.1
QUANTUM_MS_MAX: Final = 100.0
BUSY: Final = 0.9
"""From this share of the machine on, overhead matters more than turns."""


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
    return [Proposal(SetPolicy(KIND, facts.policy, facts.policy.with_option("quantum", after)), why)]
