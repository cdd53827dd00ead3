"""When one filter or projection holds another: the stricter filter goes on top of the looser one, the narrower projection reads the wider.

Only expressions that can never fail on a row take part, so that nobody is told of errors that are another query's (K8).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any

from millstream.engine.expressions.bounds import may_fail
from millstream.engine.expressions.ir import Call, ColumnRef, Expression, Literal
from millstream.engine.operators.recipes import ProjectRecipe, SelectRecipe
from millstream.engine.planner.expression_binder import conjunction, conjuncts
from millstream.engine.sharing.normal_form import normal_expression
from millstream.engine.sharing.registry import Shared


def looser_filter(condition: Expression, running: Iterable[Shared]) -> tuple[Shared, Expression] | None:
    """Return the running filter that drops most of what this one drops and nothing else, with the condition that is left to do."""
    if may_fail(condition):
        return None
    ours = [normal_expression(c) for c in conjuncts(condition)]
    best: tuple[int, Shared, Expression] | None = None
    for shared in running:
        recipe = shared.running.recipe
        if not isinstance(recipe, SelectRecipe) or may_fail(recipe.condition):
            continue
        theirs = [normal_expression(c) for c in conjuncts(recipe.condition)]
        if not all(any(implies(mine, their) for mine in ours) for their in theirs):
            continue
        left = conjunction([c for c in ours if c not in theirs])
        if left is not None and (best is None or len(theirs) > best[0]):
            best = len(theirs), shared, left
    return None if best is None else (best[1], best[2])


def wider_projection(columns: Sequence[Expression], running: Iterable[Shared]) -> tuple[Shared, list[int]] | None:
    """Return the running projection that computes all these columns, with the place of each."""
    wanted = [normal_expression(c) for c in columns]
    for shared in running:
        recipe = shared.running.recipe
        if not isinstance(recipe, ProjectRecipe):
            continue
        places = {normal_expression(c): i for i, c in reversed(list(enumerate(recipe.columns)))}
        extra = [c for c in recipe.columns if normal_expression(c) not in wanted]
        if all(c in places for c in wanted) and not any(may_fail(c) for c in extra):
            return shared, [places[c] for c in wanted]
    return None


def implies(first: Expression, second: Expression) -> bool:
    """Tell whether a row for which the first condition is true makes the second true; both in normal form. False when in doubt."""
    if first == second:
        return True
    one, other = _range_of(first), _range_of(second)
    if one is None or other is None or one[0] != other[0]:
        return False
    return _above(one[1], other[1]) and _below(one[2], other[2])


_Bound = tuple[Any, bool] | None  # the constant, and whether it belongs to the range
_Range = tuple[Expression, _Bound, _Bound]


def _range_of(condition: Expression) -> _Range | None:
    """Return (column, lower bound, upper bound) of a comparison of a column with a constant."""
    if not isinstance(condition, Call) or condition.function not in ("<", "<=", "=") or len(condition.arguments) != 2:
        return None
    left, right = condition.arguments
    closed = condition.function != "<"
    if isinstance(left, ColumnRef) and isinstance(right, Literal) and _orders(left, right):
        bound = (right.value, closed)
        return (left, bound, bound) if condition.function == "=" else (left, None, bound)
    if isinstance(left, Literal) and isinstance(right, ColumnRef) and _orders(right, left):
        bound = (left.value, closed)
        return (right, bound, bound) if condition.function == "=" else (right, bound, None)
    return None


def _orders(column: ColumnRef, constant: Literal) -> bool:
    """Tell whether the constant is compared in the column's own type, where Python orders as the engine does."""
    value = constant.value
    if column.type != constant.type or isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and isfinite(value))


def _above(bound: _Bound, least: _Bound) -> bool:
    if least is None:
        return True
    return bound is not None and (bound[0] > least[0] or (bound[0] == least[0] and (least[1] or not bound[1])))


def _below(bound: _Bound, greatest: _Bound) -> bool:
    if greatest is None:
        return True
    return bound is not None and (bound[0] < greatest[0] or (bound[0] == greatest[0] and (greatest[1] or not bound[1])))
