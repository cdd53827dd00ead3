"""Paths through the network: the operators a tuple passes on its way to an output."""

from __future__ import annotations

from millstream.scheduler.network import Topology


def leaf_to_root_paths(topology: Topology) -> list[tuple[int, ...]]:
    """List all paths, by the place of their leaf and then of the operators after it. A leaf reads a source."""
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
