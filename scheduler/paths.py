"""Paths through the network, from a leaf to a root, and which operators count how often in a query's ideal time (Sharaf 2007, 3.3.2)."""

from __future__ import annotations

import numpy as np
from millstream.scheduler.network import NetworkModel, Topology
from numpy.typing import NDArray


def leaf_to_root_paths(topology: Topology) -> list[tuple[int, ...]]:
    """Return all paths, by the place of their leaf and then of the operators after it. A leaf reads a source."""
    found: list[tuple[int, ...]] = []
    for leaf in topology.order:
        if topology.is_leaf(leaf):
            found.extend(paths_from(topology, leaf))
    return found


def paths_from(topology: Topology, operator: int) -> list[tuple[int, ...]]:
    """List the paths from one operator to the outputs."""
    finished: list[tuple[int, ...]] = []
    stack: list[tuple[int, ...]] = [(operator,)]
    while stack:
        path = stack.pop()
        following = list(dict.fromkeys(topology.consumers[path[-1]]))
        if not following or path[-1] in topology.roots_of:
            finished.append(path)
        stack.extend((*path, consumer) for consumer in reversed(following))
    return finished


FloatColumn = NDArray[np.float64]


def is_join(network: NetworkModel, slot: int) -> bool:
    """Tell whether the operator pairs the tuples of several inputs, so that a result has a parent on each."""
    return len(network.inputs[slot]) > 1 and "join" in network.node(slot).kind


def sums_at(places: NDArray[np.int64], weights: FloatColumn | None = None, minlength: int = 0) -> FloatColumn:
    """Return the sums of the weights that fall on each place (1 each without weights)."""
    return np.bincount(places, weights=weights, minlength=minlength).astype(np.float64, copy=False)


class IdealPaths:
    """Which operators count how often in the ideal time of which query. Follows from the network's shape alone."""

    def __init__(self, network: NetworkModel) -> None:
        topology = network.topology
        self.version = network.version
        self.queries = list(topology.query_slots)
        self.with_union: list[int] = []
        index: list[int] = []
        slots: list[int] = []
        counted: list[float] = []
        for place, (_query, members) in enumerate(topology.query_slots.items()):
            joins = [is_join(network, slot) for slot in members]
            index.extend([place] * len(members))
            slots.extend(members)
            counted.extend(float(len(network.inputs[slot])) if join else 1.0 for slot, join in zip(members, joins, strict=True))
            if any(len(network.inputs[slot]) > 1 and not join for slot, join in zip(members, joins, strict=True)):
                self.with_union.append(place)
        self.query_index = np.array(index, dtype=np.int64)
        self.slots = np.array(slots, dtype=np.int64)
        self.times_counted = np.array(counted)
        slot_of = network.operators.slot_of
        self.roots = np.array([slot_of[network.queries[query].root] for query in self.queries], dtype=np.int64)
