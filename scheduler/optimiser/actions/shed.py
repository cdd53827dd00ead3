"""Ask for shedding, where the class allows it and the machine cannot do all the work; and give it back when it can.

Load managers shed by themselves (`scheduler/load`): the optimiser asks only where none is in force.
"""

from __future__ import annotations

from typing import Final

from millstream.scheduler.optimiser.contract import Facts, Proposal, Shed, Subject

KIND: Final = "shed"
STEP: Final = 0.1
RATIO_MAX: Final = 0.9
OVERLOADED: Final = 0.95
"""From this share of the machine on it has more to do than it can."""

SPARE: Final = 0.85
"""Below this share there is room to give some of it back."""


def shed(facts: Facts, query: Subject) -> list[Proposal]:
    """Propose to drop a tenth more of the input of the lowest class that may be shed."""
    if facts.busy < OVERLOADED:
        return []
    able = [one for one in facts.queries if one.may_shed and one.drop_ratio < RATIO_MAX]
    if not able:
        return []
    own = [one for one in able if one.class_id == query.class_id]
    one = min(own or able, key=lambda found: (found.weight, found.drop_ratio))
    after = min(RATIO_MAX, round(one.drop_ratio + STEP, 6))
    why = f"the machine is {facts.busy:.0%} busy and the class of {one.name} may be shed"
    return [Proposal(Shed(one.class_id, one.drop_ratio, after), why)]


def give_back(facts: Facts) -> tuple[Subject, Proposal] | None:
    """Propose to drop a tenth less for the class of the greatest weight that is shed, once there is room."""
    shed_now = [one for one in facts.queries if one.may_shed and one.drop_ratio > 0.0]
    if not shed_now or facts.busy >= SPARE:
        return None
    one = max(shed_now, key=lambda found: (found.weight, found.drop_ratio))
    after = max(0.0, round(one.drop_ratio - STEP, 6))
    return one, Proposal(Shed(one.class_id, one.drop_ratio, after), f"all targets are met and the machine is {facts.busy:.0%} busy")
