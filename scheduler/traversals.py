"""In what order the boxes inside a unit are walked: Aurora's three walks of a superbox (Carney 2005, 4.3), and what an output costs."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.scheduler.estimates import Estimates
from millstream.scheduler.network import NetworkModel


def upstream_first(network: NetworkModel, estimates: Estimates, members: Sequence[int]) -> list[int]:
    """Upstream first: every box once, children before parents (Aurora's min-cost walk, Carney 2005, 4.3.1; MavStream's bottom-up).

    Returns the members as they are: a cut lists them children before parents.
    """
    return list(members)


def min_latency(network: NetworkModel, estimates: Estimates, members: Sequence[int]) -> list[int]:
    """Min-latency walk of a superbox (Carney 2005, 4.3.2): outputs as early as possible, at the price of more calls.

        output_cost(b) = Σ over k in D(b) of cost(k) / o_sel(k)

        D(b)      b and all boxes below it
        o_sel(k)  outputs per tuple from k on, the product of the selectivities below in a chain

    Boxes by increasing output cost; for each, b and all of D(b) are appended, so that what b held leaves at once. Ties go by post-order
    position, which here means: later in the list of members (nearer to the root) after earlier.

    Returns the walk; boxes near the root come many times.
    """
    costs = output_costs(network, estimates, members)
    inside = set(members)
    walk: list[int] = []
    for slot in sorted(members, key=lambda one: (costs[one], members.index(one))):
        walk.extend(below for below in network.topology.downstream(slot) if below in inside)
    return walk


def release_rate(network: NetworkModel, estimates: Estimates, slot: int) -> float:
    """Return mem_rr of a box, in bytes per ns."""
    return network.node(slot).row_bytes_in * (1.0 - estimates.selectivity.item(slot)) / estimates.cost_ns.item(slot)


def min_memory(network: NetworkModel, estimates: Estimates, members: Sequence[int]) -> list[int]:
    """Min-memory walk of a superbox (Carney 2005, 4.3.3): what frees the most bytes per ns goes first.

        mem_rr(b) = tsize(b) (1 - sel(b)) / cost(b)

        tsize(b)  size of a tuple before b

    Boxes by decreasing mem_rr, ties by post-order position. After each, its way to the output is walked and a box below is appended when
    its mem_rr exceeds that of the last box appended. A walk must leave no tuple inside the superbox, so what is still needed is appended
    at the end, children before parents.

    The order printed in the thesis for its example does not follow from its own pseudocode; this follows the pseudocode and completes it.

    Returns the walk.
    """
    inside = set(members)
    rates = {slot: release_rate(network, estimates, slot) for slot in members}
    walk: list[int] = []
    for slot in sorted(members, key=lambda one: (-rates[one], members.index(one))):
        walk.append(slot)
        for below in network.topology.downstream(slot)[1:]:
            if below in inside and rates[below] > rates[walk[-1]]:
                walk.append(below)
    return walk + still_needed(network, members, walk)


def still_needed(network: NetworkModel, members: Sequence[int], walk: Sequence[int]) -> list[int]:
    """Return the boxes that would still hold tuples after the walk, with what lies below them, children before parents."""
    holding = set(members)
    for slot in walk:
        holding.discard(slot)
        holding.update(consumer for consumer in network.topology.consumers[slot] if consumer in members)
    needed: set[int] = set()
    for slot in holding:
        needed.update(below for below in network.topology.downstream(slot) if below in members)
    return [slot for slot in members if slot in needed]


def output_costs(network: NetworkModel, estimates: Estimates, members: Sequence[int]) -> dict[int, float]:
    """Return output_cost of each member; `members` lists children before parents, and only what lies in it counts."""
    consumers = network.topology.consumers
    inside = set(members)
    outputs: dict[int, float] = {}
    costs: dict[int, float] = {}
    for slot in reversed(members):
        below = [consumer for consumer in consumers[slot] if consumer in inside]
        onward = sum(outputs[consumer] for consumer in below) if below else 1.0
        outputs[slot] = estimates.selectivity.item(slot) * onward
        costs[slot] = estimates.cost_ns.item(slot) / outputs[slot] + sum(costs[consumer] for consumer in below)
    return costs
