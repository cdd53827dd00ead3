"""The memory of running queries against its bounds: what each holds in state, queues and results, and who ends when it is too much (K8).

Operators say what their state occupies. They are asked when CLAIM_BYTES_MIN have reached them since they last were, so that asking is paid
by as many bytes; what has come since counts as if it were state. What a call is about to make is asked for beforehand (allowance.py).
`look` sums everything up now and then, for the bound of all together.

What serves several queries is divided among them, as their bill divides it (bill.py): each pays its part, and what one call of it
may make is bounded by what the most generous of them still allows. Rows that wait in a stream's own log belong to the stream: while a
query lags, the stream's publishers wait. They end no query.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.engine.data.errors import BoundReached
from millstream.engine.data.graph import OperatorId, QueryId
from millstream.engine.data.records import dataclass
from millstream.engine.runtime.bill import divided, state_weights

if TYPE_CHECKING:
    from millstream.engine.flow.running import RunningOperator
    from millstream.engine.flow.sources import Source
    from millstream.engine.runtime.blueprint import RunningQuery
    from millstream.engine.runtime.network import Network

NO_BOUND = 1 << 62
ASKED_A_LOOK = 64  # operators; some µs each
NEAR_FACTOR = 2  # what can have come to all queries since the last look, generously
FAR_FACTOR = 4  # how often one query may count the rows of a log that it reads at several places, generously
BUSY_FROM = 0.1  # of the server's bound: below it nothing is looked for while no row comes
PRESSED_FROM = 0.75  # of a bound: from here on publishers wait, so that what they have sent already still finds room
SPILLED_FROM = 0.5  # of a bound: from here on rows that wait leave memory, where they can
SPILLED_FROM_FULLNESS, SPILLED_TO_FULLNESS = 0.5, 0.25  # of a stream's own queue: where they begin to leave memory, and where they stop


@dataclass(slots=True)
class Use:
    """The bytes of one query: state, rows between its operators, rows of its streams that it has yet to take, results nobody has had.

    `spilled` is what it has yet to take that lies in files, and is no memory.
    """

    state: int = 0
    inner: int = 0
    waiting: int = 0
    results: int = 0
    spilled: int = 0

    @property
    def held(self) -> int:
        """What only ending the query, or its readers, can free."""
        return self.state + self.inner + self.results

    @property
    def total(self) -> int:
        """All of it."""
        return self.held + self.waiting


Shares = dict[OperatorId, dict[QueryId, int]]
"""Of operators that serve several queries, the bytes that each of these pays for."""


class Memory:
    """How much queries may hold in queues and state.

    `query_bytes_max` bounds queries that say nothing themselves, `server_bytes_max` all together.

    `pressed` are the streams whose publishers should wait, `spilling` those whose waiting rows should leave memory. `total_bytes` is what
    was held at the last look, with what state has grown by since, `ended` counts the queries that a bound has ended.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self.query_bytes_max = NO_BOUND
        self.server_bytes_max = NO_BOUND
        self.pressed: frozenset[str] = frozenset()
        self.spilling: frozenset[str] = frozenset()
        self.spills: Callable[[], bool] = lambda: False  # whether rows that wait can leave memory now
        self.total_bytes = 0
        self.ended = 0
        self._asked: deque[OperatorId] = deque()  # operators in the order in which they are asked anew
        self._leaving: dict[QueryId, int] = {}  # queries that have ended and are still to be taken out, with what they held

    @property
    def is_busy(self) -> bool:
        """Whether publishers wait, queries are about to go, or there is enough held to look again soon."""
        return bool(self.pressed or self._leaving) or self.total_bytes > BUSY_FROM * self.server_bytes_max

    @property
    def has_leaving(self) -> bool:
        """Whether queries have ended that are not yet taken out."""
        return bool(self._leaving)

    def bound_of(self, query: RunningQuery) -> int:
        """Return the most that a query may hold."""
        return self.query_bytes_max if query.bytes_max is None else query.bytes_max

    def use_of(self, query: RunningQuery, shares: Shares | None = None) -> Use:
        """Return what a query holds now, by the last look at each operator. `shares`: what other queries' uses found at this look."""
        use = Use(results=query.results_bytes())
        own = {operator.id for operator in query.blueprint.operators}
        for operator in query.blueprint.operators:
            use.state += self._part(operator, query, {} if shares is None else shares)
            for cursor in operator.inputs:
                waiting = cursor.waiting_bytes
                if getattr(cursor.log.producer, "id", None) in own:
                    use.inner += waiting
                else:
                    use.waiting += waiting
                    use.spilled += cursor.spilled_bytes
        return use

    def _held_at_most(self, query: RunningQuery) -> int:
        """Return no less than a query holds: what it shares is counted whole, so that no shares among hundreds need to be found."""
        held = query.results_bytes()
        for operator in query.blueprint.operators:
            held += operator.state_bytes + operator.unseen_bytes
            for cursor in operator.inputs:
                if cursor.log.rows_total > cursor.rows_before + cursor.rows_taken:  # few wait while an order is carried out
                    held += cursor.waiting_bytes
        return held

    def _part(self, operator: RunningOperator, query: RunningQuery, shares: Shares) -> int:
        held = operator.state_bytes + operator.unseen_bytes if operator.logic.stateful and operator.outputs else 0
        if operator.queries <= 1 or not held:
            return held
        parts = shares.get(operator.id)
        if parts is None:
            served = list(self._network.queries_served(operator.id))
            sizes = divided(held, state_weights(operator, served))
            parts = shares[operator.id] = {one.node.id: size for one, size in zip(served, sizes, strict=True)}
        return parts.get(query.node.id, 0)

    # While operators run ---------------------------------------------------------------------------------------------------

    def left(self, operator: RunningOperator) -> tuple[int, str]:
        """Return what a call of an operator may still make, and the bound that says so."""
        if operator.failed:
            return -1, "a query that has ended"
        found, bound = -1, "its bound"
        for query in list(self._network.queries_served(operator.id)):
            left = self.bound_of(query) - self.use_of(query).held
            if left >= found:
                found, bound = left, _name(query, self.bound_of(query))
        whole = self.server_bytes_max - self.total_bytes
        return (whole, f"server_memory_bytes_max = {self.server_bytes_max}") if whole < found else (found, bound)

    def passed(self, operator: RunningOperator) -> None:
        """Ask an operator that much has reached, between two of its calls, and end the queries that it has brought over their bound."""
        self._ask(operator)
        served = list(self._network.queries_served(operator.id))
        if len(served) > 1 and NEAR_FACTOR * self.total_bytes < min(map(self.bound_of, served)):
            return  # all queries together hold far less than any of these may; `look` counts again what is not asked here
        for query in served:
            if self._held_at_most(query) > self.bound_of(query):
                self._judge(query, operator.id)

    def _ask(self, operator: RunningOperator) -> None:
        before = operator.state_bytes
        try:
            operator.state_bytes = operator.asked_bytes()
        except RuntimeError:  # a dictionary that another thread changes meanwhile: what was known stands until it is asked again
            return
        operator.unseen_bytes = 0
        self.total_bytes += operator.state_bytes - before

    def _judge(self, query: RunningQuery, operator: OperatorId) -> None:
        """End a query that holds more than it may; what has only passed its operators may have gone again, so they are asked first."""
        bound = self.bound_of(query)
        if self.use_of(query).held <= bound or query.node.id in self._leaving:
            return
        for running in query.blueprint.operators:
            self._ask(running)
        use = self.use_of(query)
        if use.held > bound:
            self._end(query, use, operator, f"query {query.node.name} holds {_spelled(use)}, more than {_name(query, bound)} allows", _MEND)

    def _end(self, query: RunningQuery, use: Use, operator: OperatorId, message: str, hint: str) -> None:
        self._leaving[query.node.id] = use.total
        self._network.end_query(query, operator, BoundReached(message, hint=hint))

    # Now and then ----------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Sum everything up: what should spill, who must wait, and who ends: in this order, each from a greater part of the bound on.

        At most one query ends for the server's sake at a time.
        """
        network = self._network
        queries = [q for q in list(network.queries.values()) if q.attached]
        present = {q.node.id for q in queries}
        self._leaving = {one: held for one, held in self._leaving.items() if one in present}
        self._ask_some()
        total = leaves = 0
        for running in list(network.operators.values()):
            total += running.state_bytes + sum([log.bytes_held for log in running.outputs])
        for source in list(network.sources.values()):
            waiting = sum([log.bytes_in_memory for log in source.whole_logs])
            leaves += waiting if source.log.can_spill else 0
            total += waiting + sum([shed.log.bytes_held for shed in list(source.shed_logs.values())])
        self.total_bytes = total + sum([query.results_bytes() for query in queries])
        if self._is_far(queries):
            self.pressed = self.spilling = frozenset()
            return
        shares: Shares = {}
        uses = [(query, self.use_of(query, shares)) for query in queries]
        self.pressed, self.spilling = self._beyond(PRESSED_FROM, uses), self._beyond(SPILLED_FROM, uses)
        for query, use in uses:
            if use.held > self.bound_of(query):
                self._judge(query, query.blueprint.operators[-1].id)
        leaves = leaves if self.spills() else 0  # rows that are about to leave memory end no query
        if self.total_bytes - leaves - sum(self._leaving.values()) > self.server_bytes_max:
            self._relieve(uses)

    def _is_far(self, queries: list[RunningQuery]) -> bool:
        """Whether all queries together hold far less than any of them may, so that nothing needs to be divided among them."""
        least = min([query.bytes_max for query in queries if query.bytes_max is not None], default=self.query_bytes_max)
        return FAR_FACTOR * self.total_bytes < min(least, self.query_bytes_max, self.server_bytes_max)

    def _ask_some(self) -> None:
        """Ask operators in turn, so that state that has shrunk is known too although little has come since."""
        operators = self._network.operators
        if not self._asked:
            self._asked.extend(operators)
        for _ in range(min(ASKED_A_LOOK, len(self._asked))):
            running = operators.get(self._asked.popleft())
            if running is not None and running.logic.stateful:
                self._ask(running)

    def part_kept(self, source: Source) -> float | None:
        """Return what part of what a stream's queue may hold in memory should stay there; None while it may be as it is, or must."""
        if not source.log.can_spill:
            return None
        logs = source.whole_logs
        if source.definition.name in self.spilling and any(log.rows_in_memory for log in logs):
            return 0.0
        return SPILLED_TO_FULLNESS if any(log.fullness > SPILLED_FROM_FULLNESS for log in logs) else None

    @property
    def wants_to_spill(self) -> bool:
        """Whether rows of some stream should leave memory."""
        return any(self.part_kept(source) is not None for source in list(self._network.sources.values()))

    def _beyond(self, part: float, uses: list[tuple[RunningQuery, Use]]) -> frozenset[str]:
        """Return the streams whose rows wait before queries that hold more than this part of a bound."""
        if self.total_bytes > part * self.server_bytes_max:
            return frozenset(self._network.sources)
        full = [q for q, use in uses if use.waiting and q.holds_up and use.total > part * self.bound_of(q)]
        return frozenset[str]().union(*(q.blueprint.base_streams for q in full))

    def _relieve(self, uses: list[tuple[RunningQuery, Use]]) -> None:
        """End the query that holds most: each one's fair share is the same, so it is the one most over it."""
        standing = [(use.total, -int(query.node.id), query, use) for query, use in uses if query.node.id not in self._leaving]
        if not standing:
            return
        _, _, query, use = max(standing, key=lambda one: one[:2])
        self._end(
            query,
            use,
            query.blueprint.operators[-1].id,
            f"all queries together hold {self.total_bytes} bytes, more than server_memory_bytes_max = {self.server_bytes_max} allows, and "
            f"query {query.node.name} holds most, {_spelled(use)}",
            "make its window shorter or its groups fewer, or raise the server's server_memory_bytes_max",
        )


_MEND = "make its window shorter or its groups fewer, or raise memory_bytes_max in its WITH, or the server's query_memory_bytes_max"


def _name(query: RunningQuery, bound: int) -> str:
    return f"{'query_memory_bytes_max' if query.bytes_max is None else 'memory_bytes_max'} = {bound}"


def _spelled(use: Use) -> str:
    parts = (("state", use.state), ("rows between operators", use.inner), ("rows that wait", use.waiting), ("results", use.results))
    return f"{use.total} bytes ({', '.join(f'{name} {size}' for name, size in parts if size)})"
