"""When two recipes are the same, and when one filter or projection holds another: the stricter filter goes on top of the looser one, the
narrower projection reads the wider.

Recipes are compared in a normal form: names gone, conjuncts and the operands of commutative operators in one order, comparisons one way
round. An expression that can fail on a row keeps the order of its conditions, since that order decides which rows it fails on (K8). Only
expressions that can never fail take part in containment, so that nobody is told of errors that are another query's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import isfinite
from typing import Any

from millstream.engine.data.records import members_of
from millstream.engine.data.types import Kind
from millstream.engine.expressions.bounds import may_fail
from millstream.engine.expressions.build import conjuncts
from millstream.engine.expressions.ir import Call, ColumnRef, Expression, Literal, transform
from millstream.engine.language.recipes import Recipe, SinkRecipe, TableChangesRecipe, ViewChangesRecipe

COMMUTATIVE = frozenset(("+", "*", "=", "<>", "and", "or", "is_distinct_from", "is_not_distinct_from"))
NESTED = frozenset(("and", "or"))
TURNED = {">": "<", ">=": "<="}
_ITS_OWN = SinkRecipe, TableChangesRecipe, ViewChangesRecipe  # the last two have shown what stood, and who comes later must see it too
ASKED_AGAIN = 64  # expressions whose normal form is kept: those of one query are asked for when it is placed, and when it is entered


@lru_cache(ASKED_AGAIN)
def normal_expression(expression: Expression) -> Expression:
    """Return the expression that stands for all that are written differently and mean the same."""
    reorders = not may_fail(expression)

    def change(node: Expression) -> Expression:
        if isinstance(node, ColumnRef):
            return ColumnRef(node.type, node.position)
        if isinstance(node, Call):
            return _normal_call(node, reorders)
        return node

    return transform(expression, change)


def _normal_call(call: Call, reorders: bool) -> Expression:
    if call.function in TURNED and len(call.arguments) == 2:
        return replace(call, function=TURNED[call.function], arguments=call.arguments[::-1])
    if call.function not in COMMUTATIVE or (call.function in NESTED and not reorders):
        return call
    arguments = list(call.arguments)
    if call.function in NESTED:
        arguments = [part for a in arguments for part in _operands(a, call.function)]
        arguments = list(dict.fromkeys(arguments))
    if call.function in NESTED and len(arguments) == 1:
        return arguments[0]
    return replace(call, arguments=tuple(_in_order(arguments)))


def _in_order(arguments: list[Expression]) -> list[Expression]:
    """Return them by what `repr` shows, which begins with the kind; writing it all out takes long."""
    kinds = [type(a).__qualname__ for a in arguments]
    if len(set(kinds)) == len(kinds):
        return [arguments[kinds.index(kind)] for kind in sorted(kinds)]
    return sorted(arguments, key=repr)


def _operands(expression: Expression, function: str) -> list[Expression]:
    if isinstance(expression, Call) and expression.function == function:
        return [part for a in expression.arguments for part in _operands(a, function)]
    return [expression]


class NormalRecipe:
    """What is left of a recipe without its names, as a key: hashed once, since a new filter is looked for behind each that holds it."""

    __slots__ = ("_hash", "_parts")

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self._parts = parts
        self._hash = hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NormalRecipe) and self._parts == other._parts


def normal_recipe(recipe: Recipe) -> NormalRecipe | None:
    """Return the key that equals that of every operator doing the same; None for one that belongs to its query alone."""
    if isinstance(recipe, _ITS_OWN):
        return None
    parts: list[Any] = [type(recipe), tuple([(f.type, f.nullable) for f in recipe.schema.fields])]
    for name in members_of(type(recipe)):
        if name == "schema":
            continue
        value = getattr(recipe, name)
        if isinstance(value, Expression):
            value = normal_expression(value)
        elif isinstance(value, tuple) and value and all(isinstance(v, Expression) for v in value):
            value = tuple([normal_expression(v) for v in value])
        parts.append(value)
    return NormalRecipe(tuple(parts))


INTEGERS = (Kind.INT, Kind.BIGINT)


def implies(first: Expression, second: Expression) -> bool:
    """Tell whether a row for which the first condition is true makes the second true; both in normal form. False when in doubt."""
    return all_implied(((first, _range_of(first)),), ((second, _range_of(second)),))


_Bound = tuple[Any, bool] | None  # the constant, and whether it belongs to the range
_Range = tuple[ColumnRef, _Bound, _Bound]
Part = tuple[Expression, _Range | None]
"""A conjunct in normal form, and its range (column, lower, upper bound) if it has one."""


def all_implied(ours: Sequence[Part], theirs: Sequence[Part]) -> bool:
    """Tell whether a row that meets all of our conjuncts meets all of theirs. False when in doubt."""
    for expression, other in theirs:
        for part, one in ours:
            if one is None or other is None:
                if part == expression:
                    break
            # The columns are compared last: with a thousand filters on a stream most differ in their constants.
            elif _above(one[1], other[1]) and _below(one[2], other[2]) and one[0] == other[0]:
                break
        else:
            return False
    return True


def parts_beyond(ours: Sequence[Part], theirs: Sequence[Part]) -> Sequence[Part]:
    """Return those of our conjuncts that are none of theirs. Constants are compared first, as most differ in those."""
    left: list[Part] = []
    for part in ours:
        bounds = part[1] and part[1][1:]
        for expression, other in theirs:
            if bounds == (other and other[1:]) and part[0] == expression:
                break
        else:
            left.append(part)
    return left


@lru_cache(ASKED_AGAIN)
def parts_of(condition: Expression) -> tuple[Part, ...] | None:
    """Return the conjuncts of a condition, None where it can fail."""
    if may_fail(condition):
        return None
    normal = [normal_expression(c) for c in conjuncts(condition)]
    return tuple([(c, _range_of(c)) for c in normal])


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
    """Tell whether the constant is compared in the column's own type or as an integer, where Python orders as the engine does."""
    value = constant.value
    integers = column.type.kind in INTEGERS and constant.type.kind in INTEGERS
    if isinstance(value, bool) or not (integers or column.type == constant.type):
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
