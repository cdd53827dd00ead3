"""The periods of queries with SLIDE WITHIN over one synopsis: who asks, and what is put in force. Whoever owns the network chooses them.

A query that keeps its period keeps its windows (K1). One whose period is shortened to that of others gets windows that end when theirs
do, so that one pass over the panes answers all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from millstream.engine.data.records import dataclass
from millstream.engine.flow.running import RunningOperator
from millstream.engine.synopses.lateness import LateRule
from millstream.engine.synopses.shared_aggregate import SharedAggregate


@dataclass(frozen=True, slots=True)
class Periodic:
    """One query with SLIDE WITHIN: its window and the longest period it allows, in µs."""

    name: str
    range_us: int
    slide_us: int


@dataclass(frozen=True, slots=True)
class InForce:
    """The period for a query, the length of a window among those it runs with (None when as asked), and why."""

    period_us: int
    host_range_us: int | None = None
    why: str = "as asked"


ChoosePeriods = Callable[[Sequence[Periodic], int], Mapping[str, InForce]]
"""From the queries of a synopsis and its step in µs to the period of each by name."""


def regroup(running: RunningOperator, outputs: Mapping[int, str], choose: ChoosePeriods, late_rule: LateRule | None = None) -> None:
    """Choose anew and put in force; the operator is idle."""
    logic = running.logic
    assert isinstance(logic, SharedAggregate)
    logic.late_rule = late_rule
    asked = {port: Periodic(name, *logic.asked(port)) for port, name in outputs.items() if logic.is_within(port)}
    if not asked:
        return
    chosen = choose(list(asked.values()), logic.step_us)
    for port, periodic in asked.items():
        found = chosen[periodic.name]
        host = found.host_range_us
        offset = 0 if host is None else (host - periodic.range_us) % found.period_us
        logic.set_period(port, found.period_us, offset, found.why)
