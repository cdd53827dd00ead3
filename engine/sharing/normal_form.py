"""When two recipes are the same: names gone, conjuncts and the operands of commutative operators in one order, comparisons one way round.

An expression that can fail on a row keeps the order of its conditions, since that order decides which rows it fails on (K8).
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from millstream.engine.data.schema import Schema
from millstream.engine.expressions.bounds import may_fail
from millstream.engine.expressions.ir import Call, ColumnRef, Expression, transform
from millstream.engine.language.recipes import Recipe, SinkRecipe

COMMUTATIVE = frozenset(("+", "*", "=", "<>", "and", "or", "is_distinct_from", "is_not_distinct_from"))
NESTED = frozenset(("and", "or"))
TURNED = {">": "<", ">=": "<="}


def normal_expression(expression: Expression) -> Expression:
    """Return the expression that stands for all that are written differently and mean the same."""
    reorders = not may_fail(expression)

    def change(node: Expression) -> Expression:
        if isinstance(node, ColumnRef):
            return replace(node, name="")
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
    return replace(call, arguments=tuple(sorted(arguments, key=repr)))


def _operands(expression: Expression, function: str) -> list[Expression]:
    if isinstance(expression, Call) and expression.function == function:
        return [part for a in expression.arguments for part in _operands(a, function)]
    return [expression]


def normal_schema(schema: Schema) -> Schema:
    """Return the schema without names."""
    return Schema(tuple(replace(f, name="") for f in schema.fields))


def normal_recipe(recipe: Recipe) -> Recipe | None:
    """Return the recipe that equals that of every operator doing the same; None for one that belongs to its query alone."""
    if isinstance(recipe, SinkRecipe):
        return None
    changed: dict[str, Any] = {"schema": normal_schema(recipe.schema)}
    for field in fields(recipe):
        value = getattr(recipe, field.name)
        if isinstance(value, Expression):
            changed[field.name] = normal_expression(value)
        elif isinstance(value, tuple) and value and all(isinstance(v, Expression) for v in value):
            changed[field.name] = tuple(normal_expression(v) for v in value)
    return replace(recipe, **changed)
