"""Conditions joined by AND, taken apart and put together."""

from __future__ import annotations

from millstream.engine.expressions import build
from millstream.engine.expressions.ir import Call, Expression


def conjuncts(condition: Expression) -> list[Expression]:
    """Return the conditions that AND joins."""
    if isinstance(condition, Call) and condition.function == "and":
        return [part for argument in condition.arguments for part in conjuncts(argument)]
    return [condition]


def conjunction(conditions: list[Expression]) -> Expression | None:
    """Return the conditions joined by AND; None for none."""
    if not conditions:
        return None
    return conditions[0] if len(conditions) == 1 else build.call("and", conditions)
