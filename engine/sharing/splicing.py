"""Changes of running operators when a query comes or goes, made while they are idle.

Among them are the periods of queries with SLIDE WITHIN over one synopsis; whoever owns the network chooses those.

A query that keeps its period keeps its windows (K1). One whose period is shortened to that of others gets windows that end when theirs
do, so that one pass over the panes answers all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from millstream.engine.data.records import dataclass
from millstream.engine.flow.queues import OutputLog
from millstream.engine.flow.running import RunningOperator
from millstream.engine.sharing.registry import SharedOutput
from millstream.engine.synopses.answers import LateRule
from millstream.engine.synopses.shared_aggregate import SharedAggregate


@dataclass(frozen=True, slots=True)
class Periodic:
    """One query with SLIDE WITHIN: its window and the longest period it allows, in µs.

    `sorts` are the different values that each of its aggregates sorts for an answer, as far as one pane of those now held tells.
    """

    name: str
    range_us: int
    slide_us: int
    sorts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class InForce:
    """The period for a query, the length of a window among those it runs with (None when as asked), and why."""

    period_us: int
    host_range_us: int | None = None
    why: str = "as asked"


ChoosePeriods = Callable[[Sequence[Periodic], int], Mapping[str, InForce]]
"""From the queries of a synopsis and its step in µs to the period of each by name."""


def regroup(running: RunningOperator, name_of: Callable[[int], str], choose: ChoosePeriods, late_rule: LateRule | None = None) -> None:
    """Choose anew and put in force; the operator is idle. `name_of` tells whose an output is."""
    running.come_home()
    logic = running.logic
    assert isinstance(logic, SharedAggregate)
    logic.late_rule = late_rule
    asked = {port: Periodic(name_of(port), *logic.asked(port), logic.sorts(port)) for port in logic.within}
    if not asked:
        return
    chosen = choose(list(asked.values()), logic.step_us)
    for port, periodic in asked.items():
        found = chosen[periodic.name]
        host = found.host_range_us
        offset = 0 if host is None else (host - periodic.range_us) % found.period_us
        logic.set_period(port, found.period_us, offset, found.why)


def awaken(log: OutputLog) -> None:
    """Let a log that kept no bare progress carry it from now on, with all logs above it: a new reader waits for W.

    Its producer is idle, so what it has taken is also what it has answered; there the log goes on.
    """
    producer = log.producer
    if not isinstance(producer, RunningOperator):
        return
    for cursor in producer.inputs:
        awaken(cursor.log)
    if log.quiet:
        log.quiet = False
        log.hi = max(log.hi, min(c.position for c in producer.inputs))
        log.watermark_us = max(log.watermark_us, min(c.watermark_us for c in producer.inputs))


def put_in_force(subscription: SharedOutput, at: int, newest_us: int | None) -> None:
    """Open an output of a shared aggregate for a query that sees rows from `at` on."""
    running, log = subscription.running, subscription.log
    running.come_home()
    logic = running.logic
    assert isinstance(logic, SharedAggregate)
    if subscription.port is None:
        if logic.free_ports:
            subscription.port = logic.free_ports.pop()
            running.outputs[subscription.port] = log
        else:
            subscription.port = len(running.outputs)
            running.outputs.append(log)
        log.producer = running
        log.hi = at
        log.watermark_us = running.inputs[0].log.watermark_us
        log.idle = running.inputs[0].log.idle
    recipe, history = subscription.recipe, subscription.history
    logic.subscribe(recipe, at, subscription.port, subscription.shown, newest_us=newest_us, history=history)
    logic.set_loud(subscription.port, not log.quiet)


def take_out_of_force(subscription: SharedOutput) -> None:
    """Close an output; its number is free for the next query."""
    subscription.running.come_home()
    logic = subscription.running.logic
    assert isinstance(logic, SharedAggregate)
    if subscription.port is not None:
        logic.unsubscribe(subscription.port)
