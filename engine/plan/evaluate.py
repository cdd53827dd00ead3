"""Computing a constant expression at planning time, with the same kernels that would run it."""

from __future__ import annotations

from millstream.engine.data.column import Column
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import Kind
from millstream.engine.expressions.compile import NOT_CONSTANT, compile_expression
from millstream.engine.expressions.ir import Call, Expression, Literal, children
from millstream.engine.expressions.kernel import EvaluationContext
from millstream.engine.expressions.user_functions import user_function_of


@dataclass(slots=True)
class _OneRow:
    """A single row without columns."""

    rows: int = 1

    def column(self, position: int) -> Column:
        raise AssertionError(f"a constant reads column {position}")


def evaluate(expression: Expression) -> Expression:
    """Return the constant that an expression over constants is; itself when it is none, or when computing it fails."""
    parts = children(expression)
    if not parts and not isinstance(expression, Call):
        return expression
    if not all(isinstance(part, Literal) for part in parts) or expression.type.kind is Kind.LIST:
        return expression
    if (isinstance(expression, Call) and expression.function in NOT_CONSTANT) or user_function_of(expression) is not None:
        return expression
    context = EvaluationContext()
    column = compile_expression(expression)(_OneRow(), context)
    return expression if context.errors else Literal(expression.type, _value(column))


def _value(column: Column) -> object:
    valid = column.validity()
    if valid is not None and not valid[0]:
        return None
    value = column.values[0]
    if column.type.is_arrow:
        return value.as_py()
    return value if column.type.is_wide else value.item()
