"""A workload: a network of universal boxes and what arrives on its streams. Made in Python, read from a file, or drawn at random.

Nothing in a workload depends on a policy: the same tuples come at the same times, and meet the same fate at every box.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from millstream.engine.data.graph import GraphDelta, LogId, OperatorId, OperatorNode
from millstream.scheduler.errors import SimulationError
from millstream.scheduler.simulation.arrivals import Times
from millstream.scheduler.simulation.networks import NetworkBuilder, SimulatedSource
from millstream.scheduler.simulation.path_outcomes import Draws, HashedDraws

DrawsOf = Callable[[int], Draws]


@dataclass(frozen=True)
class Workload:
    """A network as the deltas that bring it into force, and per source log the arrival times of its tuples, in order.

    `draws` makes from a seed what decides which tuples pass; by default a hash of (seed, box, tuple). `load` is the load manager, None
    for none.
    """

    name: str
    deltas: tuple[GraphDelta, ...]
    arrivals: Mapping[LogId, Times]
    draws: DrawsOf | None = None
    row_bytes: Mapping[LogId, int] = field(default_factory=dict)
    load: str | None = None

    @property
    def nodes(self) -> list[OperatorNode]:
        """All operators, in the order they were added."""
        return [node for delta in self.deltas for node in delta.operators]

    def draws_for(self, seed: int) -> Draws:
        """Return what decides the tuples' fates under a seed."""
        return self.draws(seed) if self.draws is not None else HashedDraws(seed, self.nodes)

    @property
    def tuples(self) -> int:
        """How many tuples arrive."""
        return sum(len(times) for times in self.arrivals.values())

    @property
    def span_ns(self) -> int:
        """From time 0 to the last arrival."""
        return max((int(times[-1]) for times in self.arrivals.values() if len(times)), default=0)

    def in_order(self) -> tuple[Times, Times]:
        """Return the times of all arrivals in order, and the log of each; equal times go by log, then by tuple."""
        logs = sorted(self.arrivals)
        times = np.concatenate([self.arrivals[log] for log in logs]) if logs else np.zeros(0, dtype=np.int64)
        names = np.repeat(np.array(logs, dtype=np.int64), [len(self.arrivals[log]) for log in logs])
        order = np.argsort(times, kind="stable")
        return times[order], names[order]

    def with_cost_scaled(self, factor: float) -> Workload:
        """Return the same workload with every cost multiplied."""
        return replace(self, deltas=tuple(_scaled(delta, factor) for delta in self.deltas))

    def at_utilisation(self, target: float) -> Workload:
        """Return the same workload with its costs scaled so that the work a second is `target` seconds."""
        present = utilisation(self)
        if present <= 0:
            raise SimulationError("a workload without work cannot be brought to a utilisation")
        return self.with_cost_scaled(target / present)


def workload(name: str, builder: NetworkBuilder, deltas: Iterable[GraphDelta], arrivals: Mapping[SimulatedSource, Times]) -> Workload:
    """Return a workload put together from these; streams that no query reads are left out."""
    logs: dict[LogId, Times] = {}
    for source, times in arrivals.items():
        try:
            logs[builder.log(source)] = times
        except KeyError:
            continue
    return Workload(name, tuple(deltas), logs)


def _scaled(delta: GraphDelta, factor: float) -> GraphDelta:
    nodes = tuple(replace(node, cost_ns=node.cost_ns * factor, call_ns=node.call_ns * factor) for node in delta.operators)
    return replace(delta, operators=nodes)


def utilisation(work: Workload) -> float:
    """Return the expected work in seconds a second: Σ over logs of tuples times Cbar of what reads it, over the time of arrivals.

    A join takes one probe a tuple and makes S_J partners' worth of results: s of the other side's rate times the window each (Sharaf
    2007, 3.4).
    """
    rates = operator_rates(work)
    nodes = {node.id: node for node in work.nodes}
    return sum(rate * (nodes[operator].cost_ns + nodes[operator].call_ns) for operator, rate in rates.items()) / 1e9


def operator_rates(work: Workload) -> dict[OperatorId, float]:
    """Return the input rate of every operator in tuples a second (a source's output rate)."""
    span_s = max(work.span_ns, 1) / 1e9
    made: dict[int, float] = {log: len(times) / span_s for log, times in work.arrivals.items()}
    edge_log = {edge.id: edge.log for delta in work.deltas for edge in delta.edges}
    rates: dict[OperatorId, float] = {}
    for node in work.nodes:
        if not node.inputs:
            continue
        inputs = [made.get(edge_log[edge], 0.0) for edge in node.inputs]
        rates[node.id] = sum(inputs)
        out = node.selectivity * sum(inputs)
        if node.window_ns is not None and len(inputs) == 2:
            # A pair that lies within the window of each other is met once, by the later of the two.
            out = node.selectivity * 2.0 * inputs[0] * inputs[1] * node.window_ns / 1e9
        for log in node.outputs:
            made[log] = out
    return rates
