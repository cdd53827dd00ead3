"""Upstream first: every box once, children before parents (Aurora's min-cost walk, Carney 2005, 4.3.1; MavStream's bottom-up)."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.scheduler.estimates import Estimates
from millstream.scheduler.network import Network


def upstream_first(network: Network, estimates: Estimates, members: Sequence[int]) -> list[int]:
    """Return the members as they are: a cut lists them children before parents."""
    return list(members)
