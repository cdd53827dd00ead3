"""Constant folding: parts of an expression that read no row become constants, computed by the same kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.engine.data.column import Column
from millstream.engine.data.types import Kind
from millstream.engine.expressions.contract import EvaluationContext, Kernel
from millstream.engine.expressions.ir import Call, Case, Cast, Expression, Literal, children, columns_used, transform, walk
from millstream.engine.expressions.user_functions import user_function_of

_CONDITIONAL = frozenset(("coalesce", "if", "and", "or"))  # only the first operand is computed at every row
NOT_CONSTANT = frozenset(("current_watermark", "sampling_weight"))


class _OneRow:
    """A single row without columns, over which constants are computed."""

    rows = 1

    def column(self, position: int) -> Column:
        raise LookupError("a constant reads no column")


def fold_with(expression: Expression, compile_: Callable[[Expression], Kernel]) -> Expression:
    """Return the expression with its constant parts computed; a part whose computation fails stays, to fail at each row (K8)."""

    def change(node: Expression) -> Expression:
        operands = children(node)
        if isinstance(node, Literal) or not all(isinstance(c, Literal) for c in operands):
            return node
        if not operands and not isinstance(node, Call):
            return node
        if node.type.kind is Kind.LIST or (isinstance(node, Call) and node.function in NOT_CONSTANT) or user_function_of(node) is not None:
            return node
        context = EvaluationContext()
        column = compile_(node)(_OneRow(), context)
        return node if context.errors else Literal(node.type, first_value(column))

    return transform(expression, change)


def failure_of_constants(expression: Expression, compile_: Callable[[Expression], Kernel]) -> str | None:
    """Return why an expression fails at every row, where a part that reads no column and is always computed says so; else None."""
    conditional = isinstance(expression, Case) or (isinstance(expression, Call) and expression.function in _CONDITIONAL)
    if isinstance(expression, Cast) and expression.quiet:
        return None
    for part in children(expression)[: 1 if conditional else None]:
        reason = failure_of_constants(part, compile_)
        if reason is not None:
            return reason
    calls = {part.function for part in walk(expression) if isinstance(part, Call)}
    if columns_used(expression) or calls & NOT_CONSTANT:
        return None
    context = EvaluationContext()
    compile_(expression)(_OneRow(), context)
    return context.errors[0][1] if context.errors else None


def first_value(column: Column) -> Any:
    """Return the first row's value in the form of a Literal, None for NULL."""
    if column.type.is_arrow:
        return column.values[0].as_py()
    if column.valid is not None and not column.valid[0]:
        return None
    value = column.values[0]
    return value if column.type.is_wide else value.item()
