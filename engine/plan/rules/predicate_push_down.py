"""Predicate push-down: filter as early as possible, below projections, unions, joins and windows.

    SELECT … FROM a JOIN b ON … WITHIN d WHERE a.x > 1   ->   the filter on a.x runs before the join

Below a window only where its extent does not depend on which rows there are: a RANGE window agrees with both orders, ROWS and
SESSION are formed before WHERE (K17). Below an outer join only on the side whose rows are all kept.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.engine.expressions.ir import Expression
from millstream.engine.language.recipes import JoinKind
from millstream.engine.plan.join_binder import moved
from millstream.engine.plan.logical import (
    AsofJoin,
    ChangeJoin,
    Distinct,
    Filter,
    Join,
    Node,
    Project,
    RunningTop,
    Scan,
    SubqueryJoin,
    TableJoin,
    Union,
    Window,
)
from millstream.engine.plan.rules.rewriting import bottom_up, filtered, is_movable, is_simple, split, substituted
from millstream.engine.plan.windows import FORMED_FIRST

NAME = "predicate_push_down"


def concerns(node: Node) -> bool:
    """Tell whether a condition stands there that could stand further down."""
    return isinstance(node, Join) or (isinstance(node, Filter) and not isinstance(node.input, Scan))


def apply(plan: Node) -> Node:
    """Return the plan with filters moved down one step wherever they may."""
    return bottom_up(plan, _change)


def _change(node: Node) -> Node:
    if isinstance(node, Join) and node.residual is not None and node.kind is JoinKind.INNER:
        return _from_residual(node)
    if not isinstance(node, Filter) or not is_movable(node.condition):
        return node
    below = node.input
    if isinstance(below, Project):
        return _below_project(node, below)
    if isinstance(below, Union):
        return replace(below, branches=tuple(_change(filtered(b, [node.condition], node)) for b in below.branches))
    if isinstance(below, Join):
        return _below_join(node, below)
    if isinstance(below, TableJoin | AsofJoin | SubqueryJoin):
        return _below_left(node, below)
    if isinstance(below, ChangeJoin):
        return _below_change_join(node, below)
    if isinstance(below, Window):
        return _below_window(node, below)
    if isinstance(below, RunningTop):
        return _below_running_top(node, below)
    if isinstance(below, Distinct):
        return replace(below, input=_change(filtered(below.input, [node.condition], node)))
    return node


def _below_running_top(node: Filter, below: RunningTop) -> Node:
    """Whole groups that are not wanted need not be kept."""
    down, stay = split(node.condition, lambda used: bool(used) and used <= set(below.partition))
    if not down:
        return node
    return filtered(replace(below, input=_pushed(below.input, down, node)), stay, node)


def _below_project(node: Filter, below: Project) -> Node:
    """Move conditions on columns that the projection only passes on; computed ones would be computed twice."""
    down, stay = split(node.condition, lambda used: all(is_simple(below.expressions[p]) for p in used))
    if not down:
        return node
    pushed = filtered(below.input, [substituted(c, below.expressions) for c in down], node)
    return filtered(replace(below, input=_change(pushed)), stay, node)


def _below_join(node: Filter, below: Join) -> Node:
    width = len(below.left.attributes)
    left_kept = below.kind in (JoinKind.INNER, JoinKind.LEFT)
    right_kept = below.kind in (JoinKind.INNER, JoinKind.RIGHT)
    to_left, rest = split(node.condition, lambda used: bool(used) and left_kept and max(used) < width)
    to_right: list[Expression] = []
    if rest and right_kept:
        to_right, rest = _split_list(rest, width)
    if not to_left and not to_right:
        return node
    left = _pushed(below.left, to_left, node)
    right = _pushed(below.right, [moved(c, 0, -width) for c in to_right], node)
    return filtered(replace(below, left=left, right=right), rest, node)


def _below_change_join(node: Filter, below: ChangeJoin) -> Node:
    width = len(below.left.attributes) - 1
    left_kept = below.kind in (JoinKind.INNER, JoinKind.LEFT)
    right_kept = below.kind in (JoinKind.INNER, JoinKind.RIGHT)
    to_left, rest = split(node.condition, lambda used: bool(used) and left_kept and max(used) < width)
    to_right, rest = _split_list(rest, width) if right_kept else ([], rest)
    if not to_left and not to_right:
        return node
    left = _pushed(below.left, to_left, node)
    right = _pushed(below.right, [moved(c, 0, -width) for c in to_right], node)
    return filtered(replace(below, left=left, right=right), rest, node)


def _split_list(conditions: list[Expression], width: int) -> tuple[list[Expression], list[Expression]]:
    down: list[Expression] = []
    stay: list[Expression] = []
    for condition in conditions:
        yes, no = split(condition, lambda used: bool(used) and min(used) >= width)
        down += yes
        stay += no
    return down, stay


def _pushed(node: Node, conditions: list[Expression], like: Filter) -> Node:
    return _change(filtered(node, conditions, like)) if conditions else node


def _from_residual(node: Join) -> Node:
    """Conditions of an inner join's ON that concern one side only are filters on that side."""
    assert node.residual is not None
    width = len(node.left.attributes)
    to_left, rest = split(node.residual, lambda used: bool(used) and max(used) < width)
    to_right, rest = _split_list(rest, width)
    if not (to_left or to_right) or not all(is_movable(c) for c in (*to_left, *to_right)):
        return node
    left = _change(filtered(node.left, to_left))
    right = _change(filtered(node.right, [moved(c, 0, -width) for c in to_right]))
    kept = filtered(node, rest)
    return replace(node, left=left, right=right, residual=kept.condition if isinstance(kept, Filter) else None)


def _below_left(node: Filter, below: TableJoin | AsofJoin | SubqueryJoin) -> Node:
    width = len(below.left.attributes)
    down, stay = split(node.condition, lambda used: bool(used) and max(used) < width)
    if not down:
        return node
    return filtered(replace(below, left=_change(filtered(below.left, down, node))), stay, node)


def _below_window(node: Filter, below: Window) -> Node:
    if below.spec.kind in FORMED_FIRST or below.changes:
        return node
    width = len(below.input.attributes)
    down, stay = split(node.condition, lambda used: bool(used) and max(used) < width)
    if not down:
        return node
    return filtered(replace(below, input=_change(filtered(below.input, down, node))), stay, node)
