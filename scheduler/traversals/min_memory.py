"""Min-memory walk of a superbox (Carney 2005, 4.3.3): what frees the most bytes per ns goes first.

    mem_rr(b) = tsize(b) (1 - sel(b)) / cost(b)

    tsize(b)  size of a tuple before b

Boxes by decreasing mem_rr, ties by post-order position. After each, its way to the output is walked and a box below is appended when
its mem_rr exceeds that of the last box appended. A walk must leave no tuple inside the superbox, so what is still needed is appended
at the end, children before parents.

The order printed in the thesis for its example does not follow from its own pseudocode; this follows the pseudocode and completes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.scheduler.estimates import Estimates
from millstream.scheduler.network import Network


def release_rate(network: Network, estimates: Estimates, slot: int) -> float:
    """Return mem_rr of a box, in bytes per ns."""
    return network.node(slot).row_bytes_in * (1.0 - estimates.selectivity.item(slot)) / estimates.cost_ns.item(slot)


def min_memory(network: Network, estimates: Estimates, members: Sequence[int]) -> list[int]:
    """Return the walk."""
    inside = set(members)
    rates = {slot: release_rate(network, estimates, slot) for slot in members}
    walk: list[int] = []
    for slot in sorted(members, key=lambda one: (-rates[one], members.index(one))):
        walk.append(slot)
        for below in network.topology.downstream(slot)[1:]:
            if below in inside and rates[below] > rates[walk[-1]]:
                walk.append(below)
    return walk + still_needed(network, members, walk)


def still_needed(network: Network, members: Sequence[int], walk: Sequence[int]) -> list[int]:
    """Return the boxes that would still hold tuples after the walk, with what lies below them, children before parents."""
    holding = set(members)
    for slot in walk:
        holding.discard(slot)
        holding.update(consumer for consumer in network.topology.consumers[slot] if consumer in members)
    needed: set[int] = set()
    for slot in holding:
        needed.update(below for below in network.topology.downstream(slot) if below in members)
    return [slot for slot in members if slot in needed]
