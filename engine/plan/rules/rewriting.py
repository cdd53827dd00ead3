"""What the rewrites share: walking a plan from the leaves up, and moving expressions between nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import is_not

from millstream.engine.data.effort import Effort, effort_in_force
from millstream.engine.expressions.build import conjunction, conjuncts
from millstream.engine.expressions.compile import NOT_CONSTANT
from millstream.engine.expressions.ir import Call, ColumnRef, Expression, Literal, columns_used, transform, walk
from millstream.engine.plan.logical import Filter, Node, Project, Unary, with_inputs


def bottom_up(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return the plan rebuilt from the leaves, `change` applied to every node; itself where that changes nothing."""
    return _rebuilt(node, change, effort_in_force())


def _rebuilt(node: Node, change: Callable[[Node], Node], effort: Effort | None) -> Node:
    if effort is not None:
        effort.spend(1 + len(node.attributes) // 8)
    if isinstance(node, Unary):  # as most are; the general way takes longer for them
        below = _rebuilt(node.input, change, effort)
        return change(node if below is node.input else replace(node, input=below))
    if not node.inputs:
        return change(node)
    inputs = tuple([_rebuilt(below, change, effort) for below in node.inputs])
    return change(node if are_same(inputs, node.inputs) else with_inputs(node, inputs))


def are_same(some: Sequence[object], others: Sequence[object]) -> bool:
    """Whether two sequences hold the same objects."""
    return len(some) == len(others) and not any(map(is_not, some, others))


def substituted(expression: Expression, by: Sequence[Expression]) -> Expression:
    """Return the expression with each column replaced by the expression at its position."""
    if isinstance(expression, ColumnRef):  # as most are, here and below
        return by[expression.position]
    return transform(expression, lambda e: by[e.position] if isinstance(e, ColumnRef) else e)


def remapped(expression: Expression, mapping: dict[int, int]) -> Expression:
    """Return the expression with its columns at their new positions."""

    def moved(part: Expression) -> Expression:
        if not isinstance(part, ColumnRef) or (place := mapping[part.position]) == part.position:
            return part
        return ColumnRef(part.type, place, part.name)

    return moved(expression) if isinstance(expression, ColumnRef) else transform(expression, moved)


def filtered(node: Node, conditions: list[Expression], like: Filter | None = None) -> Node:
    """Return the node behind a filter on all conditions; itself when there are none. `like` gives the declared hints."""
    condition = conjunction(conditions)
    if condition is None:
        return node
    made = Filter(attributes=node.attributes, input=node, condition=condition)
    return made if like is None else replace(made, hints=like.hints)


def split(condition: Expression, allowed: Callable[[set[int]], bool]) -> tuple[list[Expression], list[Expression]]:
    """Return the conjuncts whose columns are allowed, and the others."""
    yes: list[Expression] = []
    no: list[Expression] = []
    for part in conjuncts(condition):
        (yes if allowed(columns_used(part)) else no).append(part)
    return yes, no


def is_simple(expression: Expression) -> bool:
    """A column or a constant: as cheap to repeat as to keep."""
    return isinstance(expression, ColumnRef | Literal)


def is_movable(expression: Expression) -> bool:
    """The value depends on the row alone, so that it may be computed elsewhere. CURRENT_WATERMARK depends on when."""
    return not any(isinstance(part, Call) and part.function in NOT_CONSTANT for part in walk(expression))


def passes(node: Project, position: int) -> bool:
    """The projection hands the column at `position` of its output on as it is."""
    return is_simple(node.expressions[position])
