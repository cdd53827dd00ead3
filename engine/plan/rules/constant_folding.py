"""Constant folding: what does not depend on a row is computed once, when the query is planned.

    WHERE v > 2 + 3 AND TRUE   ->   WHERE v > 5

An expression that would fail (1 / 0) is left alone, so that it stays a row-level error (K8).
"""

from __future__ import annotations

from dataclasses import replace

from millstream.engine.data.column import Column
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import BOOLEAN
from millstream.engine.expressions.compile import NOT_CONSTANT, compile_expression
from millstream.engine.expressions.ir import Call, Case, ColumnRef, Expression, Literal, children, transform
from millstream.engine.expressions.kernel import EvaluationContext
from millstream.engine.expressions.user_functions import user_function_of
from millstream.engine.plan.logical import Filter, KeyedJoin, Node, Project, Split
from millstream.engine.plan.rules.rewriting import are_same, bottom_up


@dataclass(slots=True)
class ConstantRow:
    """A single row without columns."""

    rows: int = 1

    def column(self, position: int) -> Column:
        """A constant reads none."""
        raise AssertionError(f"a constant reads column {position}")


def evaluate(expression: Expression) -> Expression:
    """Return the constant that an expression over constants is; itself when it is none, or when computing it fails."""
    parts = children(expression)
    if not parts and not isinstance(expression, Call):
        return expression
    if not all(isinstance(part, Literal) for part in parts) or expression.type.is_nested:
        return expression
    if (isinstance(expression, Call) and expression.function in NOT_CONSTANT) or user_function_of(expression) is not None:
        return expression
    context = EvaluationContext()
    column = compile_expression(expression)(ConstantRow(), context)
    return expression if context.errors else Literal(expression.type, _value(column))


def _value(column: Column) -> object:
    valid = column.validity()
    if valid is not None and not valid[0]:
        return None
    value = column.values[0]
    if column.type.is_arrow:
        return value.as_py()
    return value if column.type.is_wide else value.item()


NAME = "constant_folding"

_TRUE, _FALSE = Literal(BOOLEAN, True), Literal(BOOLEAN, False)


def apply(plan: Node) -> Node:
    """Return the plan with all constant parts of its expressions computed, and filters that are always true gone."""
    return bottom_up(plan, _change)


def fold(expression: Expression) -> Expression:
    """Return the expression with its constant parts computed."""
    return expression if isinstance(expression, ColumnRef | Literal) else transform(expression, _fold_one)


def _change(node: Node) -> Node:
    if isinstance(node, Filter):
        condition = fold(node.condition)
        if condition is node.condition:
            return node
        return node.input if condition == _TRUE else replace(node, condition=condition)
    if isinstance(node, Project):
        expressions = tuple([fold(e) for e in node.expressions])
        return node if are_same(expressions, node.expressions) else replace(node, expressions=expressions)
    if isinstance(node, Split):
        return replace(node, condition=fold(node.condition))
    if isinstance(node, KeyedJoin) and node.residual is not None:
        residual = fold(node.residual)
        return replace(node, residual=None if residual == _TRUE else residual)
    return node


def _fold_one(expression: Expression) -> Expression:
    if isinstance(expression, ColumnRef | Literal):  # as most are
        return expression
    if isinstance(expression, Call) and expression.function in ("and", "or"):
        return _fold_logic(expression)
    if isinstance(expression, Case):
        return _fold_case(expression)
    return evaluate(expression)


def _fold_logic(call: Call) -> Expression:
    """TRUE drops out of AND and FALSE decides it, also beside NULL; the other way round for OR."""
    neutral, deciding = (_TRUE, _FALSE) if call.function == "and" else (_FALSE, _TRUE)
    if deciding in call.arguments:
        return deciding
    kept = tuple(a for a in call.arguments if a != neutral)
    if not kept:
        return neutral
    if len(kept) == 1:
        return kept[0]
    return evaluate(call if len(kept) == len(call.arguments) else replace(call, arguments=kept))


def _fold_case(case: Case) -> Expression:
    """Branches that can never be taken go; a branch that is always taken ends the list."""
    branches: list[tuple[Expression, Expression]] = []
    for condition, value in case.branches:
        if isinstance(condition, Literal) and condition.value is not True:
            continue
        if condition == _TRUE:
            return value if not branches else Case(case.type, tuple(branches), value)
        branches.append((condition, value))
    return replace(case, branches=tuple(branches)) if branches else case.otherwise
