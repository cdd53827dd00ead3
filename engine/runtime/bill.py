"""What each query uses of what it shares, and what sharing saved it: the bill.

An operator's time and state are divided among the queries it serves as these use them; what serves one query alone is that query's. So
the bills of all queries sum to what all operators used, what queries used that have left among it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from millstream.engine.data.graph import OperatorId, QueryId
from millstream.engine.data.records import dataclass
from millstream.engine.flow.running import RunningOperator
from millstream.engine.language.recipes import AggregateRecipe
from millstream.engine.operators.window_aggregate import WindowAggregate
from millstream.engine.runtime.blueprint import RunningQuery
from millstream.engine.synopses.shared_aggregate import SharedAggregate

if TYPE_CHECKING:
    from millstream.engine.runtime.network import Network


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
    """A query's part in a synopsis: which, how many share it, its step, the period asked for and in force, why, complete from when.

    `late_runs` of its answers were given late, `skipped` windows left out for that.
    """

    operator: int
    members: int
    step_us: int
    asked_us: int
    period_us: int
    why: str
    complete_from_us: int | None
    late_runs: int
    skipped: int


def divided(whole: int, weights: Sequence[int]) -> list[int]:
    """Return parts that are as the weights (evenly when these are all 0) and sum to the whole."""
    weights = weights if any(weights) else [1] * len(weights)
    total, reached, parts = sum(weights), 0, []
    for weight in weights:
        before, reached = whole * reached // total, reached + weight
        parts.append(whole * reached // total - before)
    return parts


def _outputs_of(query: RunningQuery, operator: RunningOperator) -> list[int]:
    return [s.port for s in query.blueprint.subscriptions if s.running is operator and s.port is not None]


def _time_weights(operator: RunningOperator, queries: Sequence[RunningQuery]) -> list[int]:
    """What each query used: of a synopsis the cells read for its windows, of another operator the rows taken since it came."""
    logic = operator.logic
    if isinstance(logic, SharedAggregate):
        return [sum(logic.cells_read(port) for port in _outputs_of(query, operator)) for query in queries]
    return [operator.statistics.rows_in - query.rows_before.get(operator.id, 0) for query in queries]


def state_weights(operator: RunningOperator, queries: Sequence[RunningQuery]) -> list[int]:
    """How long each query keeps panes: its longest window; of other state all have the same."""
    logic = operator.logic
    if isinstance(logic, SharedAggregate):
        return [max((logic.asked(port)[0] for port in _outputs_of(query, operator)), default=0) for query in queries]
    return [1] * len(queries)


def _bills(queries: Sequence[RunningQuery], served: Callable[[OperatorId], list[RunningQuery]]) -> list[Bill]:
    operators = {operator.id: operator for query in queries for operator in query.blueprint.operators}
    parts: dict[tuple[OperatorId, QueryId], tuple[int, int]] = {}
    wholes: dict[OperatorId, tuple[int, int]] = {}
    for operator in operators.values():
        cost, size = wholes[operator.id] = operator.statistics.cost_ns, operator.held_bytes()
        sharing = served(operator.id)
        costs = divided(cost, _time_weights(operator, sharing))
        sizes = divided(size, state_weights(operator, sharing))
        parts.update(((operator.id, one.node.id), pair) for one, pair in zip(sharing, zip(costs, sizes, strict=True), strict=True))
    found = []
    for query in queries:
        used = query.blueprint.operators
        mine = [parts.get((operator.id, query.node.id), (0, 0)) for operator in used]
        whole = [wholes[operator.id] for operator in used]
        shared = sum(1 for operator in used if operator.queries > 1)
        cpu, state = sum(cost for cost, _ in mine), sum(size for _, size in mine)
        alone = sum(cost for cost, _ in whole), sum(size for _, size in whole)
        found.append(Bill(query.node.name, len(used), shared, cpu, alone[0], state, alone[1]))
    return found


def complete_from_us(query: RunningQuery) -> int | None:
    """Return the start of the first window, of any of the query's, that it sees whole; None when it saw the beginning or has no panes."""
    logics = [operator.logic for operator in query.blueprint.operators if isinstance(operator.recipe, AggregateRecipe)]
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
    return Membership(
        int(running.id), running.queries, logic.step_us, asked_us, logic.period_us(port), logic.why(port), complete, *logic.lateness(port)
    )


def bills(network: Network) -> list[tuple[Bill, list[Membership]]]:
    """Return the bill of every query in force, in the order they came; since the operators began."""
    queries = [query for query in list(network.queries.values()) if query.attached]
    return [(bill, memberships(query)) for bill, query in zip(_bills(queries, network.queries_served), queries, strict=True)]
