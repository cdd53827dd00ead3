"""What each query uses of what it shares, and what sharing saved it: the bill.

An operator's time and state are divided evenly among the queries it serves; what serves one query alone is that query's. So the bills
of all queries sum to what all operators used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.engine.operators.shared_aggregate import SharedAggregate
from millstream.engine.operators.window_aggregate import WindowAggregate
from millstream.engine.running import RunningOperator

if TYPE_CHECKING:
    from millstream.engine.network import Network, RunningQuery


@dataclass(frozen=True, slots=True)
class Bill:
    """One query's: operators, how many of them serve others too, time and state as its share, and as if it had borne all of it."""

    query: str
    operators: int
    shared: int
    cpu_ns: int
    cpu_unshared_ns: int
    state_bytes: int
    state_unshared_bytes: int


@dataclass(frozen=True, slots=True)
class Membership:
    """A query's part in a synopsis: which, how many share it, its step, the period asked for and in force, why, complete from when."""

    operator: int
    members: int
    step_us: int
    asked_us: int
    period_us: int
    why: str
    complete_from_us: int | None


def bill_of(query: RunningQuery) -> Bill:
    """Return the bill of a running query so far; since an operator began, whoever it served."""
    operators = query.blueprint.operators
    costs = [(o, o.statistics.cost_ns, o.logic.state_bytes()) for o in operators]
    return Bill(
        query.node.name,
        len(operators),
        sum(1 for o in operators if o.queries > 1),
        sum(cost // max(1, o.queries) for o, cost, _ in costs),
        sum(cost for _, cost, _ in costs),
        sum(size // max(1, o.queries) for o, _, size in costs),
        sum(size for _, _, size in costs),
    )


def complete_from_us(query: RunningQuery) -> int | None:
    """Return the start of the first window, of any of the query's, that it sees whole; None when it saw the beginning or has no panes."""
    logics = [operator.logic for operator in query.blueprint.operators]
    own = [one for one in logics if isinstance(one, WindowAggregate) and not isinstance(one, SharedAggregate)]
    found = [one.whole_from_us() for one in own]
    outputs = [(s.running.logic, s.port) for s in query.blueprint.subscriptions]
    found += [logic.complete_from_us(port) for logic, port in outputs if isinstance(logic, SharedAggregate) and port is not None]
    return max((us for us in found if us is not None), default=None)


def memberships(query: RunningQuery) -> list[Membership]:
    """Return the query's parts in synopses; most have one or none."""
    found = []
    for subscription in query.blueprint.subscriptions:
        logic, port = subscription.running.logic, subscription.port
        if isinstance(logic, SharedAggregate) and port is not None and query.attached:
            found.append(_membership(subscription.running, logic, port))
    return found


def _membership(running: RunningOperator, logic: SharedAggregate, port: int) -> Membership:
    _, asked_us = logic.asked(port)
    complete = logic.complete_from_us(port)
    return Membership(int(running.id), running.queries, logic.step_us, asked_us, logic.period_us(port), logic.why(port), complete)


def bills(network: Network) -> list[tuple[Bill, list[Membership]]]:
    """Return the bill of every query in force, in the order they came."""
    return [(bill_of(q), memberships(q)) for q in list(network.queries.values()) if q.attached]
