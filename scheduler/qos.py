"""Latency QoS graphs: piecewise-linear utility over output latency (Carney 2005, 4.4).

A graph is a list of points (latency in s, utility), by latency; two points of one latency make a step. Before the first point the
utility is the first point's, after the last the last point's.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from millstream.engine.graph import NS_PER_S

Graph = Sequence[tuple[float, float]]


def utility(graph: Graph, latency_ns: float) -> float:
    """Return the utility of an output of this latency; at a step the value before it."""
    latency = latency_ns / NS_PER_S
    if latency <= graph[0][0]:
        return graph[0][1]
    for (start, before), (end, after) in pairwise(graph):
        if latency <= end:
            return before + (after - before) * (latency - start) / (end - start) if end > start else before
    return graph[-1][1]


def critical_points_ns(graph: Graph) -> list[float]:
    """Return the latencies, in ns, at which the graph bends, beyond 0."""
    return sorted({latency * NS_PER_S for latency, _ in graph if latency > 0.0})


def first_critical_ns(graph: Graph) -> float:
    """Return the first latency beyond 0 at which the graph bends, in ns; infinite when there is none."""
    return next(iter(critical_points_ns(graph)), float("inf"))


def last_useful_ns(graph: Graph) -> float:
    """Return the latency, in ns, from which on no utility is left to lose: after it the graph is flat."""
    last = 0.0
    for (_, before), (end, after) in pairwise(graph):
        if after != before:
            last = end
    return last * NS_PER_S


def gradient(graph: Graph, latency_ns: float) -> float:
    """Return the utility lost per second just after this latency (0 on flat parts; a step counts as nothing until it is reached)."""
    latency = latency_ns / NS_PER_S
    for (start, before), (end, after) in pairwise(graph):
        if start <= latency < end:
            return (before - after) / (end - start)
    return 0.0
