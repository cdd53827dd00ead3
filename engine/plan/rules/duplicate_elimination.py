"""Duplicate elimination: conditions said twice, DISTINCT of what is distinct already.

    WHERE a > 1 AND a > 1                          ->   WHERE a > 1
    DISTINCT over DISTINCT, over all GROUP BY keys ->   without the outer one

Parts of a plan that are equal need no rewrite: the lowering makes one operator of them.
"""

from __future__ import annotations

from millstream.engine.expressions.build import conjuncts
from millstream.engine.expressions.ir import ColumnRef
from millstream.engine.language.recipes import EmitKind
from millstream.engine.plan.logical import Aggregate, Distinct, Filter, Node, Project
from millstream.engine.plan.rules.rewriting import bottom_up, filtered
from millstream.engine.plan.windows import PER_WINDOW, window_below

NAME = "duplicate_elimination"


def concerns(node: Node) -> bool:
    """Tell whether something may stand there twice."""
    if isinstance(node, Filter):
        return isinstance(node.input, Filter) or len(conjuncts(node.condition)) > 1
    return isinstance(node, Distinct)


def apply(plan: Node) -> Node:
    """Return the plan without repeated conditions and needless DISTINCTs."""
    return bottom_up(plan, _change)


def _change(node: Node) -> Node:
    if isinstance(node, Filter):
        return _filter(node)
    if isinstance(node, Distinct) and _is_distinct(node.input, set(range(len(node.attributes)))):
        return node.input
    return node


def _filter(node: Filter) -> Node:
    above = set()
    below = node.input
    while isinstance(below, Filter):
        above |= set(conjuncts(below.condition))
        below = below.input
    parts = conjuncts(node.condition)
    kept = [p for p in dict.fromkeys(parts) if p not in above]
    return node if len(kept) == len(parts) else filtered(node.input, kept, node)


def _is_distinct(node: Node, columns: set[int]) -> bool:
    """No two rows of a window agree in all of these columns."""
    if isinstance(node, Distinct):
        return columns >= set(range(len(node.attributes)))
    if isinstance(node, Filter):
        return _is_distinct(node.input, columns)
    if isinstance(node, Project):
        used = {e.position for i, e in enumerate(node.expressions) if i in columns and isinstance(e, ColumnRef)}
        return _is_distinct(node.input, used)
    if isinstance(node, Aggregate):
        window = window_below(node.input) if node.windowed else None
        if window is None or window.spec.kind not in PER_WINDOW or node.emit.kind is not EmitKind.FINAL:
            return False  # other windows may answer twice with the same bounds
        bounds = range(len(node.keys) + len(node.items), len(node.attributes))
        return columns >= {*range(len(node.keys)), *bounds}
    return False
