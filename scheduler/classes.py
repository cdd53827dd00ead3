"""Classes that have queries, and what share of the processor their priorities give them."""

from __future__ import annotations

from millstream.engine.data.graph import ClassId, ClassNode
from millstream.scheduler.network import Network


def classes_in_use(network: Network) -> dict[ClassId, ClassNode]:
    """Return the classes of the running queries, by ascending number; one that nobody described has priority 1 and no target."""
    used = sorted({query.class_id for query in network.queries.values()})
    return {one: network.classes.get(one) or ClassNode(one, f"class {one}") for one in used}


def shares_in_use(network: Network) -> dict[ClassId, float]:
    """Return P_i by the sum of all P (Pham 2013, II)."""
    classes = classes_in_use(network)
    total = sum(node.priority for node in classes.values())
    return {one: node.priority / total for one, node in classes.items()}
