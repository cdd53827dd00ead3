"""Change how many rows a unit takes at a time: short trains answer sooner, long ones cost less a row (Carney 2005, 3.3.1)."""

from __future__ import annotations

from typing import Final

from millstream.scheduler.optimiser.actions.quantum import BUSY
from millstream.scheduler.optimiser.contract import Facts, Proposal, SetPolicy, Subject

KIND: Final = "train size"
ROWS_MIN: Final = 64
ROWS_MAX: Final = 16_384
ROWS_FIRST: Final = 512
"""The first count that is tried in the place of trains that follow the estimates."""


def change_train_size(facts: Facts, query: Subject) -> list[Proposal]:
    """Propose shorter trains, or on a busy machine all that waits at once."""
    policy = facts.policy
    if not query.verdict.latency_missed or policy.get("quantum", 0):
        return []
    train = policy.get("train", "adaptive")
    count = train if isinstance(train, int) and not isinstance(train, bool) else None
    if facts.busy >= BUSY:
        after: str | int = "all" if count is None or count >= ROWS_MAX else min(ROWS_MAX, count * 4)
        why = "the machine is busy: longer trains cost less a row"
    else:
        after = ROWS_FIRST if count is None else max(ROWS_MIN, count // 4)
        why = "shorter trains are through sooner"
    if after == train:
        return []
    return [Proposal(SetPolicy(KIND, policy, policy.with_option("train", after)), why)]
