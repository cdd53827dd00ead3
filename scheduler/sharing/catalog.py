"""The six policies of schedule sharing by name, and what each does with the periods of a group.

name                 periods        run together
golab-none           as asked       never: each sub-group by itself
aggressive           the shortest   the whole group is one task
conservative         as asked       sub-groups with equal time until deadline
hybrid               shortened      the same
hybrid-late          shortened      the same, and all that are late
hybrid-late-pending  shortened      the same, and once any is late all that are due
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from millstream.engine.data.records import dataclass
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.sharing.contract import PeriodAssignment, PeriodicQuery, Periods, ScanCost, SubGroup, comparisons, sub_groups
from millstream.scheduler.sharing.periods import aggressive, conservative, hybrid
from millstream.scheduler.sharing.tasks import Together


@dataclass(frozen=True, slots=True)
class SharingPolicy:
    """How the periods come about, and who runs with the task that is due."""

    name: str
    summary: str
    periods: Periods
    together: Together


SHARING: Mapping[str, SharingPolicy] = MappingProxyType(
    {
        policy.name: policy
        for policy in (
            SharingPolicy("golab-none", "every period as asked, sub-groups never together", conservative, Together.NEVER),
            SharingPolicy("aggressive", "a group runs as one task at its shortest period", aggressive, Together.SAME),
            SharingPolicy(
                "conservative", "every period as asked; tasks that are due at the same time run together", conservative, Together.SAME
            ),
            SharingPolicy("hybrid", "periods are shortened where that costs less", hybrid, Together.SAME),
            SharingPolicy("hybrid-late", "hybrid, and all late sub-groups of a group run together", hybrid, Together.LATE),
            SharingPolicy(
                "hybrid-late-pending", "hybrid, and once one is late all that are due run with it", hybrid, Together.LATE_PENDING
            ),
        )
    }
)


def sharing_policy(name: str) -> SharingPolicy:
    """Return a policy by name; `PolicyError` for one that is not there."""
    found = SHARING.get(name)
    if found is None:
        raise PolicyError(f"unknown sharing policy '{name}', known are {', '.join(SHARING)}")
    return found


def assign(name: str, queries: Sequence[PeriodicQuery], scan_cost: ScanCost = comparisons) -> list[PeriodAssignment]:
    """Return the sub-groups of one group with the periods that a policy puts in force."""
    return sharing_policy(name).periods(sub_groups(queries), scan_cost)


def reason(assignment: PeriodAssignment, groups: Sequence[SubGroup], step: str = "step") -> str:
    """Say in one sentence why a sub-group has the period it has."""
    if not assignment.shortened:
        return "as asked"
    host = next(g for g in groups if g.period == assignment.period)
    return f"shortened to run with {', '.join(q.name for q in host.queries)}: the group costs {assignment.cost:.4g} a {step}"
