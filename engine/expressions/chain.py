"""A long chain of binary operators, such as `a + b - c + d …`, as one node whose operands stand beside one another.

Nested in one another, its steps would need a stack as deep as the chain is long in every pass over expressions. The meaning stays that
of the nested steps, from left to right, rounding and row errors (K8) included. Short chains stay nested: most rewrites know pairs only.
"""

from __future__ import annotations

from millstream.engine.data.column import Column
from millstream.engine.data.types import BYTES, TEXT
from millstream.engine.expressions import build
from millstream.engine.expressions.ir import Call, ColumnRef, Expression, Literal
from millstream.engine.expressions.kernel import Compiler, EvaluationContext, Kernel, KernelRows

CHAIN = "chain"
"""The function of such a node: arguments are the operands, options the operators between them."""

NESTED_STEPS_MAX = 8


class ChainBuilder:
    """Puts a chain together from the left. `value` is the typed expression of what was added."""

    def __init__(self, first: Expression) -> None:
        self._done = first
        self._steps: list[Call] = []  # on `_done`, which the first operand of each stands for; all give its type

    def add(self, operator: str, operand: Expression) -> None:
        """Apply an operator to what there is and an operand. TypeProblem when it is not defined on them."""
        before = ColumnRef(self._done.type, 0)
        if not isinstance(self._done, Literal):
            step = build.call(operator, [before, operand])
            if step.type == before.type and step.arguments[0] == before and not step.options:
                self._steps.append(step)
                return
        made = build.call(operator, [self.value(), operand])
        first = made.arguments[0]
        # A first operand that was cast to what comes out begins a chain of that type, as it does where the cast is written.
        self._done, self._steps = (first, [made]) if first.type == made.type and not made.options else (made, [])

    def alone(self) -> Expression | None:
        """Return the first operand as long as nothing was added to it."""
        return None if self._steps else self._done

    def replace(self, value: Expression) -> None:
        """Let an expression stand for all that was added."""
        self._done, self._steps = value, []

    def value(self) -> Expression:
        """Return the expression."""
        if len(self._steps) > NESTED_STEPS_MAX:
            operands = (self._done, *(step.arguments[1] for step in self._steps))
            return Call(self._done.type, CHAIN, operands, tuple(step.function for step in self._steps))
        value = self._done
        for step in self._steps:
            value = Call(step.type, step.function, (value, step.arguments[1]))
        return value


class _Pair:
    """Rows of two columns: what a chain has come to, and its next operand."""

    __slots__ = ("_columns", "rows")

    def __init__(self, rows: int, columns: tuple[Column, ...]) -> None:
        self.rows = rows
        self._columns = columns

    def column(self, position: int) -> Column:
        """Return one of them."""
        return self._columns[position]


def build_chain(call: Call, compiler: Compiler) -> Kernel:
    """Build the steps of a chain, which are run one after the other."""
    if call.type in (TEXT, BYTES):
        return compiler.kernel(Call(call.type, "||", call.arguments))
    first = compiler.kernel(call.arguments[0])
    so_far = ColumnRef(call.type, 0)
    steps: list[tuple[Kernel, Kernel | None]] = []
    for operator, operand in zip(call.options, call.arguments[1:], strict=True):
        fixed = isinstance(operand, Literal)
        right = operand if fixed else ColumnRef(operand.type, 1)
        steps.append((compiler.kernel(Call(call.type, operator, (so_far, right))), None if fixed else compiler.kernel(operand)))

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        column = first(rows, context)
        for step, operand in steps:
            columns = (column,) if operand is None else (column, operand(rows, context))
            column = step(_Pair(rows.rows, columns), context)
        return column

    return kernel
