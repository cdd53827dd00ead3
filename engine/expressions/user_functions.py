"""Functions that users wrote: what the engine knows of one, and the kernel that calls it.

Where and how such a function runs is none of the engine's business: it is handed a `runner`. The runner gets whole columns and is
expected to fail: a row for which the function raises is NULL and counted (K8); a call that takes too long, or whose process dies, makes all
its rows NULL. A function is declared pure, each of its values a matter of the arguments beside it alone; only then does an answer not
depend on trains (K15). It is strict: where an argument is NULL the value is, and the function never sees the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from millstream.engine.data.arrow import arrow_type, column_from_arrow, column_to_arrow
from millstream.engine.data.column import Column, Index
from millstream.engine.data.durations import duration_text
from millstream.engine.data.errors import TypeProblem
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Field
from millstream.engine.data.types import DataType
from millstream.engine.expressions import build
from millstream.engine.expressions.ir import Call, Expression, Literal
from millstream.engine.expressions.kernel import Compiler, EvaluationContext, Kernel, KernelRows, both_valid
from millstream.engine.expressions.logic import Piece, assemble
from millstream.engine.expressions.signature import common_type_of_all, refuse_argument

ROWS_MAX = 16_384  # of one call, so that the time limit means the same for every train


class FunctionFailed(Exception):
    """A call gave no column; the text says why, for the counted errors."""


@dataclass(frozen=True, slots=True)
class FunctionAnswer:
    """An Arrow array of `values`; `failed` gives the rows for which the function raised, which are NULL there, by reason."""

    values: Any
    failed: Mapping[str, Sequence[int]] = field(default_factory=dict)


Runner = Callable[[Sequence[Any]], FunctionAnswer]  # takes Arrow arrays without NULLs, all as long; raises FunctionFailed


@dataclass(frozen=True, slots=True)
class UserFunction:
    """CREATE FUNCTION name (parameters) RETURNS result. `digest` tells versions of its source apart; equal ones may be shared."""

    name: str
    parameters: tuple[Field, ...]
    result: DataType
    limit_us: int
    digest: str
    runner: Runner = field(compare=False, repr=False)

    @property
    def signature(self) -> str:
        """The function as CREATE FUNCTION spells it."""
        return f"{self.name}({', '.join(f'{p.name} {p.type}' for p in self.parameters)}) RETURNS {self.result}"

    @property
    def promise(self) -> str:
        """One line of what EXPLAIN says of it."""
        limit = duration_text(self.limit_us)
        return (
            f"{self.signature}: Python, declared pure, a call of at most {ROWS_MAX} rows may take {limit}; rows for which it fails are NULL"
        )


def call_user_function(function: UserFunction, arguments: Sequence[Expression]) -> Call:
    """Return the typed call, arguments cast to the parameters' types. Raises TypeProblem."""
    if len(arguments) != len(function.parameters):
        wanted = len(function.parameters)
        raise TypeProblem(
            f"{function.name.upper()} takes {wanted} argument{'' if wanted == 1 else 's'}, not {len(arguments)}", hint=function.signature
        )
    for position, (argument, parameter) in enumerate(zip(arguments, function.parameters, strict=True)):
        fits = isinstance(argument, Literal) and build.convert_literal(argument, parameter.type) is not None
        if not fits and common_type_of_all([argument.type, parameter.type]) != parameter.type:
            hint = f"cast it, as in CAST(x AS {parameter.type})"
            refuse_argument(function.name, position, argument.type, str(parameter.type), hint)
    cast = tuple(build.cast(a, p.type) for a, p in zip(arguments, function.parameters, strict=True))
    return Call(function.result, function.name, cast, (function,))


def user_function_of(expression: Expression) -> UserFunction | None:
    """Return the user's function that an expression calls, None when it is anything else."""
    if isinstance(expression, Call) and expression.options and isinstance(expression.options[0], UserFunction):
        return expression.options[0]
    return None


def build_user_function(call: Call, compiler: Compiler) -> Kernel:
    """Build the kernel of a call."""
    function = call.options[0]
    inner = [compiler.kernel(a) for a in call.arguments]

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        columns = [k(rows, context) for k in inner]
        valid = None
        for column in columns:
            valid = both_valid(valid, column.validity())
        index = np.arange(rows.rows, dtype=np.int64) if valid is None else np.flatnonzero(valid)
        pieces: list[Piece] = []
        for start in range(0, len(index), ROWS_MAX):
            here = index[start : start + ROWS_MAX]
            failed: dict[str, Index] = {}
            try:
                values, found = _checked(function, [column_to_arrow(_rows_of(c, here)) for c in columns], len(here))
                pieces.append((here, values))
                failed = {reason: here[np.asarray(places, dtype=np.int64)] for reason, places in found.items()}
            except FunctionFailed as problem:
                failed = {str(problem): here}
            for reason, index in failed.items():
                bad = np.zeros(rows.rows, dtype=np.bool_)
                bad[index] = True
                context.fail(bad, f"{function.name.upper()}: {reason}")
        return assemble(call.type, rows.rows, pieces)

    return kernel


def _rows_of(column: Column, index: Index) -> Column:
    return column if len(index) == len(column) else column.take(index)


def _checked(function: UserFunction, arrays: list[Any], rows: int) -> tuple[Column, Mapping[str, Sequence[int]]]:
    answer = function.runner(arrays)
    array = answer.values
    if array.type != arrow_type(function.result):
        raise FunctionFailed(f"it gave {array.type} instead of {function.result}")
    if len(array) != rows:
        raise FunctionFailed(f"it gave {len(array)} values for {rows} rows")
    return column_from_arrow(array, function.result), answer.failed
