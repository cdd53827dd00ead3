"""Min-latency walk of a superbox (Carney 2005, 4.3.2): outputs as early as possible, at the price of more calls.

    output_cost(b) = Σ over k in D(b) of cost(k) / o_sel(k)

    D(b)      b and all boxes below it
    o_sel(k)  outputs per tuple from k on, the product of the selectivities below in a chain

Boxes by increasing output cost; for each, b and all of D(b) are appended, so that what b held leaves at once. Ties go by post-order
position, which here means: later in the list of members (nearer to the root) after earlier.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.scheduler.estimates import Estimates
from millstream.scheduler.network import Network


def output_costs(network: Network, estimates: Estimates, members: Sequence[int]) -> dict[int, float]:
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


def min_latency(network: Network, estimates: Estimates, members: Sequence[int]) -> list[int]:
    """Return the walk; boxes near the root come many times."""
    costs = output_costs(network, estimates, members)
    inside = set(members)
    walk: list[int] = []
    for slot in sorted(members, key=lambda one: (costs[one], members.index(one))):
        walk.extend(below for below in network.topology.downstream(slot) if below in inside)
    return walk
