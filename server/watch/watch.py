"""The QoS monitor at work: now and then, what each query with a target gave since the last look, and whether that keeps it.

Looks are made on the thread that executes statements; verdicts are read from any.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from millstream.engine.data.graph import ClassNode, QueryId
from millstream.engine.data.records import dataclass
from millstream.engine.flow.cursors import Cursor
from millstream.engine.plan.physical import QueryOptions
from millstream.scheduler.optimiser.contract import TOLERANCE_PERCENT, Observation, ServiceTarget, TargetState, TargetVerdict
from millstream.scheduler.optimiser.monitor import Monitor
from millstream.server.host.lifecycle import QueryState
from millstream.server.host.queries import Query

if TYPE_CHECKING:
    from millstream.server.host.engine_host import EngineHost

NS_PER_US = 1_000


def target_of(options: QueryOptions, node: ClassNode) -> ServiceTarget:
    """Return what a query was promised: its own targets, else its class's delay target for its latency."""
    latency_ns = options.latency_target_ns if options.latency_target_ns is not None else node.target_ns
    percent = TOLERANCE_PERCENT if options.tolerance_percent is None else options.tolerance_percent
    return ServiceTarget(
        None if latency_ns is None else float(latency_ns),
        None if options.memory_bytes_max is None else float(options.memory_bytes_max),
        percent / 100.0,
    )


@dataclass(slots=True)
class QosWatch:
    """Whether queries keep their targets. `verdicts` by the query's name, of queries that have a target and run (not paused)."""

    host: EngineHost
    monitor: Monitor = field(default_factory=Monitor)
    verdicts: dict[str, TargetVerdict] = field(default_factory=dict)
    _sums: dict[QueryId, tuple[int, float]] = field(default_factory=dict)
    _taken: dict[QueryId, int] = field(default_factory=dict)

    @property
    def has_work(self) -> bool:
        """Whether any running query has a target."""
        with_target = [name for name, node in self.host.class_nodes.items() if node.target_ns is not None]
        return any(query.id is not None for query in self.host.queries.promised(with_target))

    def target(self, query: Query) -> ServiceTarget:
        """Return a query's targets."""
        options = query.planned.physical.options
        return target_of(options, self.host.class_node(options))

    def look(self) -> dict[str, TargetVerdict]:
        """Judge every running query that has a target, and return the verdicts."""
        host, found = self.host, dict[str, TargetVerdict]()
        scheduler = host.runtime.scheduler
        judged = [(q, q.id, target) for q in host.queries if q.id is not None and (target := self.target(q)).is_any]
        if not judged or scheduler is None:
            self._sums, self._taken, self.verdicts = {}, {}, found
            return found
        ids = [one for _, one, _ in judged]
        sums = scheduler.ask(lambda core: {} if core.measures is None else core.measures.latency_sums(ids))
        now_ns, taken = host.runtime.arrival_ns(), dict[QueryId, int]()
        for query, one, target in judged:
            if query.state is QueryState.PAUSED:
                continue  # what waits meanwhile waits because somebody wants it to
            (count, total_ns), before = sums.get(one, (0, 0.0)), self._sums.get(one, (0, 0.0))
            latency_ns = self._latency_ns(query, count - before[0], total_ns - before[1], now_ns)
            taken[one] = sum(cursor.rows_taken for cursor in self._cursors(query))
            seen = Observation(now_ns, latency_ns, self._memory(query), came=taken[one] != self._taken.get(one, 0))
            found[query.name] = self.monitor.observe(one, target, seen)
        for gone in self._sums.keys() - sums.keys():
            self.monitor.forget(gone)
        self._sums, self._taken, self.verdicts = sums, taken, found
        return found

    def moved(self, query: QueryId, to: QueryId) -> None:
        """Go on with a query whose plan, and so its id, has changed."""
        self.monitor.moved(query, to)
        if query in self._sums:
            self._sums[to] = self._sums.pop(query)

    def _latency_ns(self, query: Query, count: int, total_ns: float, now_ns: int) -> float | None:
        """Return the mean latency of the results since the last look, or the wait of the oldest row that waits if that is longer."""
        mean = total_ns / count if count > 0 else None
        heads = [head for cursor in self._cursors(query) if (head := cursor.head_arrival_ns()) is not None]
        waited = float(now_ns - min(heads)) if heads else None
        return max((one for one in (mean, waited) if one is not None), default=None)

    def _memory(self, query: Query) -> float:
        """Return the bytes in the query's queues and windows."""
        operators = self.host.network.queries[query.id].blueprint.operators if query.id is not None else ()
        state = sum(operator.held_bytes() for operator in operators)
        return float(state + sum(cursor.pending_rows() * cursor.log.row_bytes for cursor in self._cursors(query)))

    def _cursors(self, query: Query) -> list[Cursor]:
        operators = self.host.network.queries[query.id].blueprint.operators if query.id is not None else ()
        return [cursor for operator in operators for cursor in operator.inputs]

    def shown(self, query: Query) -> tuple[str | None, int | None]:
        """Return what SHOW QUERIES says: the state, and since when (µs since 1970); nothing of a query without a target."""
        verdict = self.verdicts.get(query.name)
        runtime = self.host.runtime
        if query.id is None or verdict is None:
            return None, None
        if verdict.state is TargetState.UNKNOWN:
            return verdict.state.value, None
        return verdict.state.value, runtime.now_us() - (runtime.arrival_ns() - verdict.since_ns) // NS_PER_US
