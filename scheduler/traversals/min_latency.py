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
from millstream.scheduler.output_costs import output_costs


def min_latency(network: Network, estimates: Estimates, members: Sequence[int]) -> list[int]:
    """Return the walk; boxes near the root come many times."""
    costs = output_costs(network, estimates, members)
    inside = set(members)
    walk: list[int] = []
    for slot in sorted(members, key=lambda one: (costs[one], members.index(one))):
        walk.extend(below for below in network.topology.downstream(slot) if below in inside)
    return walk
