"""What an output costs from each box on (Carney 2005, 4.3.2)."""

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
