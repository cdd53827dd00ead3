"""The loads that policies are tried on: stretches of what was recorded, the same faster, and the same with queries set apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from millstream.engine.data.graph import DEFAULT_CLASS, ClassId, ClassNode, GraphDelta, OperatorId
from millstream.scheduler.simulation.arrivals import Times
from millstream.scheduler.simulation.workloads import Workload, operator_rates

STRETCHES = 240
APART = "apart"
"""The name of the class that heavy queries are tried in."""


def sampled(work: Workload, rows_max: int, seed: int) -> Workload:
    """Return a load of about `rows_max` rows, at most, that is like `work`: some of its 240 stretches, one after the other.

    The busiest is always among them. With seed 1 the others are equally far apart, and all of a load that is small enough is returned as it
    is. Other seeds draw them, each as often as it may come: what another hour of the kind might bring (a bootstrap by blocks).
    """
    total = work.tuples
    if seed == 1 and total <= rows_max:
        return work
    length_ns = work.span_ns // STRETCHES + 1
    counts = sum(np.bincount(times // length_ns, minlength=STRETCHES) for times in work.arrivals.values())
    count = STRETCHES if total <= rows_max else max(1, STRETCHES * rows_max // total)
    others = count - 1
    if seed == 1:
        drawn = (np.arange(others) * STRETCHES + STRETCHES // 2) // max(1, others)
    else:
        drawn = np.random.default_rng(seed).integers(0, STRETCHES, others)
    chosen = np.sort(np.append(drawn, int(np.argmax(counts))))
    return _cut(replace(work, arrivals={log: _glued(times, chosen, length_ns) for log, times in work.arrivals.items()}), rows_max)


def _glued(times: Times, chosen: np.ndarray, length_ns: int) -> Times:
    begins = np.searchsorted(times, chosen * length_ns)
    ends = np.searchsorted(times, (chosen + 1) * length_ns)
    parts = [times[a:b] + (place - stretch) * length_ns for place, (a, b, stretch) in enumerate(zip(begins, ends, chosen, strict=True))]
    return np.concatenate(parts) if parts else times[:0]


def _cut(work: Workload, rows_max: int) -> Workload:
    """Return the first rows, where the busiest stretch alone has more."""
    if work.tuples <= rows_max:
        return work
    first = work.in_order()[1][:rows_max]
    return replace(work, arrivals={log: times[: np.count_nonzero(first == log)] for log, times in work.arrivals.items()})


def faster(work: Workload, load: float) -> Workload:
    """Return the same rows in less time: so many times the load."""
    if load == 1.0:
        return work
    return replace(work, arrivals={log: (times / load).astype(np.int64) for log, times in work.arrivals.items()})


def shares_operators(work: Workload) -> bool:
    """Tell whether a query uses an operator that another has brought, beside sources."""
    brought: set[int] = set()
    for delta in work.deltas:
        own = {node.id for node in delta.operators}
        sources = {node.id for node in delta.operators if not node.inputs}
        if any(one in brought for one in delta.query.operators if one not in own):
            return True
        brought |= own - sources
    return False


def has_classes(work: Workload) -> bool:
    """Tell whether queries are of several classes."""
    return len({delta.query.class_id for delta in work.deltas}) > 1


def heavy_queries(work: Workload) -> tuple[str, ...]:
    """Return the queries that take most of the time, where they are the lesser half and share no operator with the others; else nothing.

    They are what may be set apart: the others then have a share of the processor of their own.
    """
    if has_classes(work):
        return ()
    rates = operator_rates(work)
    cost = {node.id: rates.get(node.id, 0.0) * (node.cost_ns + node.call_ns) for node in work.nodes}
    groups = sorted(_groups(work.deltas), key=lambda group: (-sum(cost[one] for one in group[1]), group[0]))
    total, taken, heavy = sum(cost.values()), 0.0, []
    for queries, operators in groups:
        if taken > 0.5 * total:
            break
        taken += sum(cost[one] for one in operators)
        heavy += queries
    return tuple(sorted(heavy)) if total and 2 * len(heavy) <= len(work.deltas) else ()


def _groups(deltas: Sequence[GraphDelta]) -> list[tuple[list[str], set[OperatorId]]]:
    """Return queries that share operators together, with all their operators but sources."""
    sources = {node.id for delta in deltas for node in delta.operators if not node.inputs}
    found: list[tuple[list[str], set[OperatorId]]] = []
    for delta in deltas:
        queries, operators = [delta.query.name], {one for one in delta.query.operators if one not in sources}
        apart = []
        for group in found:
            if group[1] & operators:
                queries, operators = group[0] + queries, group[1] | operators
            else:
                apart.append(group)
        found = [*apart, (queries, operators)]
    return found


def set_apart(work: Workload, queries: Sequence[str]) -> Workload:
    """Return the workload with these queries in a class of their own, which counts as much as all others together."""
    if not queries:
        return work
    known = [int(node.id) for delta in work.deltas for node in delta.classes]
    new = ClassNode(ClassId(max([*known, DEFAULT_CLASS]) + 1), APART)
    moved = {one for delta in work.deltas if delta.query.name in queries for one in delta.query.operators}
    deltas = []
    for delta in work.deltas:
        nodes = tuple(replace(node, class_id=new.id) if node.inputs and node.id in moved else node for node in delta.operators)
        if delta.query.name in queries:
            delta = replace(delta, query=replace(delta.query, class_id=new.id), classes=(*delta.classes, new))
        deltas.append(replace(delta, operators=nodes))
    return replace(work, deltas=tuple(deltas))
