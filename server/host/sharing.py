"""The sharing policy at work: the periods of queries with SLIDE WITHIN over one synopsis, from the names of `scheduler/sharing`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from millstream.engine.data.durations import duration_text
from millstream.engine.sharing.splicing import ChoosePeriods, InForce, Periodic
from millstream.engine.synopses.answers import LateRule
from millstream.scheduler.names import SHARING_OFF
from millstream.scheduler.sharing.catalog import assign, sharing_policy
from millstream.scheduler.sharing.contract import PeriodAssignment, PeriodicQuery, ScanCost, comparisons, sub_groups
from millstream.scheduler.sharing.periods import sorting
from millstream.scheduler.sharing.tasks import Together

SHAPES_REMEMBERED_MAX = 1_000


def period_chooser(policy: str) -> ChoosePeriods | None:
    """Return how periods are chosen under a sharing policy; None where every period stays as asked."""
    if policy == SHARING_OFF:
        return None
    sharing_policy(policy)
    known: dict[tuple[int, tuple[tuple[int, int, int], ...]], dict[int, tuple[int, float]]] = {}

    def choose(queries: Sequence[Periodic], step_us: int) -> Mapping[str, InForce]:
        asked = [
            PeriodicQuery(q.name, max(1, q.range_us // step_us), max(1, q.slide_us // step_us), sum(map(sorting, q.sorts))) for q in queries
        ]
        entries = max((values for q in queries for values in q.sorts), default=0)
        ranges = {q.name: q.range_us for q in queries}
        groups = sub_groups(asked)
        shape = entries, tuple((g.period, g.scan, round(g.answer_cost)) for g in groups)
        if shape not in known:  # one more query like others changes nothing: regrouping must cost less than it saves
            if len(known) >= SHAPES_REMEMBERED_MAX:
                known.clear()
            known[shape] = {a.sub_group.period: (a.period, a.cost / max(1, entries)) for a in assign(policy, asked, _scan(entries))}
        assignments = [PeriodAssignment(g, *known[shape][g.period]) for g in groups]
        return {q.name: _in_force(a, assignments, ranges, step_us) for a in assignments for q in a.sub_group.queries}

    return choose


def _scan(entries: int) -> ScanCost:
    """Return what reading panes costs: the values that one holds, or a value each where nothing is counted by value."""
    return (lambda panes: float(entries * panes)) if entries else comparisons


def late_rule(policy: str, now_ns: Callable[[], int]) -> LateRule | None:
    """Return what a sharing policy does with answers that are late by a clock; None where every window is answered, however late."""
    together = Together.NEVER if policy == SHARING_OFF else sharing_policy(policy).together
    if together not in (Together.LATE, Together.LATE_PENDING):
        return None
    return LateRule(lambda arrived_ns: now_ns() - arrived_ns, together is Together.LATE_PENDING)


def _in_force(assignment: PeriodAssignment, all_: Sequence[PeriodAssignment], ranges: Mapping[str, int], step_us: int) -> InForce:
    if not assignment.shortened:
        return InForce(assignment.sub_group.period * step_us)
    hosts = [a.sub_group for a in all_ if a.sub_group.period == assignment.period]
    names = [q.name for host in hosts for q in host.queries]
    longest = max(ranges[name] for name in names)
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    why = f"shortened to run with {shown}: the group then costs the reading of {assignment.cost:.4g} panes each {duration_text(step_us)}"
    return InForce(assignment.period * step_us, longest, why)
