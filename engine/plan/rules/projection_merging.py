"""Projection merging: a projection over a projection becomes one, where that computes nothing twice.

SELECT x + 1 FROM (SELECT a AS x FROM s)   ->   SELECT a + 1 FROM s
"""

from __future__ import annotations

from dataclasses import replace

from millstream.engine.expressions.ir import ColumnRef, walk
from millstream.engine.plan.logical import Node, Project
from millstream.engine.plan.rules.rewriting import bottom_up, is_simple, substituted

NAME = "projection_merging"


def concerns(node: Node) -> bool:
    """Tell whether two projections meet there."""
    return isinstance(node, Project) and isinstance(node.input, Project)


def apply(plan: Node) -> Node:
    """Return the plan with adjacent projections merged."""
    return bottom_up(plan, _change)


def _change(node: Node) -> Node:
    if not isinstance(node, Project) or not isinstance(node.input, Project):
        return node
    below = node.input
    uses: dict[int, int] = {}
    for expression in node.expressions:
        for part in walk(expression):
            if isinstance(part, ColumnRef):
                uses[part.position] = uses.get(part.position, 0) + 1
    if any(count > 1 and not is_simple(below.expressions[position]) for position, count in uses.items()):
        return node
    merged = tuple(substituted(e, below.expressions) for e in node.expressions)
    return replace(node, input=below.input, expressions=merged)
