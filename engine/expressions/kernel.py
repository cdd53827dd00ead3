"""What a compiled expression looks like to the operators that run it, and what all kernel files share: the compiler they are handed, NULL
masks, row errors, evaluation on some of the rows.

A kernel file offers builders: functions that turn one node of the expression, given a `Compiler` for its operands, into a closure.
What can be decided from types and constants is decided while building; at run time a kernel does little besides its NumPy calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from millstream.engine.data.column import Column, Index, Mask, null_column
from millstream.engine.data.types import DataType
from millstream.engine.expressions.ir import Call, Expression, Literal
from millstream.protocol.values import arrow_functions as pc


class KernelRows(Protocol):
    """What a kernel reads: a train, or anything with columns by position."""

    rows: int

    def column(self, position: int) -> Column:
        """Return one input column with `rows` values."""
        ...


class EvaluationContext:
    """Gathers the row-level errors of one evaluation (K8) and carries what functions may ask about their surroundings.

    `errors` holds (positions of rows in the batch, reason); the failing operation has given NULL there. `watermark_us` answers
    CURRENT_WATERMARK() row by row, and is called only when asked; `weights` likewise SAMPLING_WEIGHT(), None where all rows weigh 1, and
    `arrivals` the rows' arrival numbers.
    """

    __slots__ = ("_split", "arrivals", "errors", "watermark_us", "weights")

    def __init__(
        self,
        watermark_us: Callable[[], npt.NDArray[np.int64]] | None = None,
        weights: Callable[[], npt.NDArray[np.float64]] | None = None,
        arrivals: Callable[[], npt.NDArray[np.int64]] | None = None,
    ) -> None:
        self.errors: list[tuple[npt.NDArray[np.int64], str]] = []
        self.watermark_us = watermark_us
        self.weights = weights
        self.arrivals = arrivals
        self._split: dict[tuple[int, str], tuple[Any, Any]] = {}

    def split(self, texts: Any, delimiter: str) -> Any:
        """Return the parts of texts (an Arrow array of lists): several expressions often ask for parts of the same ones."""
        found = self._split.get((id(texts), delimiter))
        if found is None:
            found = self._split[id(texts), delimiter] = texts, pc.split_pattern(texts, delimiter)  # what is kept, no other array is called
        return found[1]

    def fail(self, where: Mask, reason: str) -> None:
        """Record that the operation failed at the rows where `where` is true."""
        self.errors.append((np.flatnonzero(where), reason))


class Kernel(Protocol):
    """A compiled scalar expression: one column out, one value a row. Pure; may be called from any thread."""

    def __call__(self, rows: KernelRows, context: EvaluationContext) -> Column:
        """Evaluate over all rows."""
        ...


class Predicate(Protocol):
    """A compiled condition: the mask of rows where it is true (NULL counts as false)."""

    def __call__(self, rows: KernelRows, context: EvaluationContext) -> Mask:
        """Evaluate over all rows."""
        ...


class Compiler(Protocol):
    """Compiles operands for a builder."""

    def kernel(self, expression: Expression) -> Kernel:
        """Return the kernel of an operand."""
        ...

    def predicate(self, expression: Expression, wanted: bool = True) -> Predicate:
        """Return the mask of rows where a BOOLEAN operand is `wanted` and not NULL."""
        ...


Builder = Callable[[Call, Compiler], Kernel]


def both_valid(left: Mask | None, right: Mask | None) -> Mask | None:
    """Return where both operands are not NULL; None for everywhere."""
    if left is None:
        return right
    if right is None:
        return left
    return left & right


def fail_where(context: EvaluationContext, bad: Mask, valid: Mask | None, reason: str) -> Mask | None:
    """Record a K8 error at the rows that are bad and were not NULL already; return validity without them."""
    if valid is not None:
        bad = bad & valid
    if not bad.any():
        return valid
    context.fail(bad, reason)
    return ~bad if valid is None else valid & ~bad


def null_or_fail(context: EvaluationContext, bad: Mask, valid: Mask | None, reason: str | None) -> Mask | None:
    """Make the bad rows NULL, as errors when there is a reason; without one (TRY_CAST) silently."""
    if reason is not None:
        return fail_where(context, bad, valid, reason)
    return ~bad if valid is None else valid & ~bad


def is_null_literal(expression: Expression) -> bool:
    """Tell whether the operand is the constant NULL."""
    return isinstance(expression, Literal) and expression.value is None


def is_constant(expression: Expression) -> bool:
    """Tell whether the operand is a constant that is not NULL."""
    return isinstance(expression, Literal) and expression.value is not None


def constant_value(expression: Expression) -> Any:
    """Return the value of an operand for which `is_constant` holds."""
    assert isinstance(expression, Literal)
    return expression.value


def always_null(type_: DataType) -> Kernel:
    """Return the kernel of an expression that is NULL whatever the row."""

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        return null_column(type_, rows.rows)

    return kernel


class Subset:
    """Some rows of another: the rows at the increasing positions `index`, columns gathered when asked for."""

    __slots__ = ("_base", "_columns", "_index", "rows")

    def __init__(self, base: KernelRows, index: Index) -> None:
        self._base = base
        self._index = index
        self._columns: dict[int, Column] = {}
        self.rows = len(index)

    def column(self, position: int) -> Column:
        """Return one column of the chosen rows."""
        found = self._columns.get(position)
        if found is None:
            found = self._columns[position] = self._base.column(position).take(self._index)
        return found


def evaluate_at(kernel: Kernel, rows: KernelRows, context: EvaluationContext, index: Index) -> Column:
    """Evaluate over the rows at `index` only; errors are recorded at their positions in `rows`."""
    if len(index) == rows.rows:
        return kernel(rows, context)
    inner = narrowed(context, index)
    column = kernel(Subset(rows, index), inner)
    widen_errors(context, inner, index)
    return column


def test_at(predicate: Predicate, rows: KernelRows, context: EvaluationContext, index: Index) -> Mask:
    """Return the predicate's mask over the rows at `index`, as long as `index`."""
    if len(index) == rows.rows:
        return predicate(rows, context)
    inner = narrowed(context, index)
    mask = predicate(Subset(rows, index), inner)
    widen_errors(context, inner, index)
    return mask


def narrowed(context: EvaluationContext, index: Index) -> EvaluationContext:
    """Return a context for an evaluation over some of the rows."""
    outer = context.watermark_us
    if outer is None:
        return EvaluationContext()

    def watermark() -> npt.NDArray[np.int64]:
        return outer()[index]

    return EvaluationContext(watermark)


def widen_errors(context: EvaluationContext, inner: EvaluationContext, index: Index) -> None:
    """Take over the errors of an evaluation over some of the rows."""
    context.errors.extend((index[positions], reason) for positions, reason in inner.errors)
