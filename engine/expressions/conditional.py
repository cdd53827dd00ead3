"""CASE, IF, COALESCE, NULLIF, GREATEST and LEAST. A branch is evaluated only over the rows that take it, so its errors are theirs alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import arrow_type
from millstream.engine.data.column import Column, Index, Mask, null_column, numpy_dtype
from millstream.engine.data.types import DataType
from millstream.engine.expressions.comparison import comparison_core, pair_test
from millstream.engine.expressions.ir import Call, Case
from millstream.engine.expressions.kernel import Compiler, EvaluationContext, Kernel, Predicate, Rows, evaluate_at, test_at

Piece = tuple[Index, Column]


def assemble(type_: DataType, rows: int, pieces: Sequence[Piece]) -> Column:
    """Return the column of `rows` rows whose values are given piece by piece; positions no piece names are NULL."""
    pieces = [p for p in pieces if len(p[0])]
    if len(pieces) == 1 and len(pieces[0][0]) == rows:
        return pieces[0][1]
    if type_.is_arrow:
        return Column(type_, _assemble_arrow(type_, rows, pieces))
    values = np.zeros(rows, dtype=numpy_dtype(type_))
    valid = np.zeros(rows, dtype=np.bool_)
    for index, column in pieces:
        values[index] = column.values
        valid[index] = True if column.valid is None else column.valid
    return Column(type_, values, None if valid.all() else valid)


def _assemble_arrow(type_: DataType, rows: int, pieces: Sequence[Piece]) -> Any:
    if not pieces:
        return pa.nulls(rows, arrow_type(type_))
    place = np.full(rows, -1, dtype=np.int64)
    start = 0
    for index, column in pieces:
        place[index] = np.arange(start, start + len(column))
        start += len(column)
    joined = pa.concat_arrays([c.values for _, c in pieces])
    return joined.take(pa.array(place, mask=place < 0))


def build_case(case: Case, compiler: Compiler) -> Kernel:
    """Build CASE WHEN … THEN … ELSE … END."""
    branches = [(compiler.predicate(c), compiler.kernel(v)) for c, v in case.branches]
    return _choose(case.type, branches, compiler.kernel(case.otherwise))


def build_if(call: Call, compiler: Compiler) -> Kernel:
    """Build IF(condition, then, else)."""
    condition, then, otherwise = call.arguments
    return _choose(call.type, [(compiler.predicate(condition), compiler.kernel(then))], compiler.kernel(otherwise))


def _choose(type_: DataType, branches: list[tuple[Predicate, Kernel]], otherwise: Kernel) -> Kernel:
    def kernel(rows: Rows, context: EvaluationContext) -> Column:
        remaining: Index = np.arange(rows.rows, dtype=np.int64)
        pieces: list[Piece] = []
        for condition, value in branches:
            if len(remaining) == 0:
                break
            mask = test_at(condition, rows, context, remaining)
            chosen = remaining[mask]
            if len(chosen):
                pieces.append((chosen, evaluate_at(value, rows, context, chosen)))
                remaining = remaining[~mask]
        if len(remaining) or not pieces:
            pieces.append((remaining, evaluate_at(otherwise, rows, context, remaining)))
        return assemble(type_, rows.rows, pieces)

    return kernel


def build_coalesce(call: Call, compiler: Compiler) -> Kernel:
    """Build COALESCE: later arguments only where all earlier ones are NULL."""
    first, *others = [compiler.kernel(a) for a in call.arguments]

    def kernel(rows: Rows, context: EvaluationContext) -> Column:
        column = first(rows, context)
        valid = column.validity()
        if valid is None or not others:
            return column
        pieces: list[Piece] = [(np.flatnonzero(valid), column.filter(valid))]
        remaining = np.flatnonzero(~valid)
        for other in others:
            part = evaluate_at(other, rows, context, remaining)
            found = part.validity()
            if found is None:
                pieces.append((remaining, part))
                break
            pieces.append((remaining[found], part.filter(found)))
            remaining = remaining[~found]
        return assemble(call.type, rows.rows, pieces)

    return kernel


def build_nullif(call: Call, compiler: Compiler) -> Kernel:
    """Build NULLIF(a, b): NULL where a = b, else a."""
    left, right = call.arguments
    first = compiler.kernel(left)
    equal = comparison_core("=", left, right, compiler)

    def kernel(rows: Rows, context: EvaluationContext) -> Column:
        column = first(rows, context)
        # The comparison evaluates `a` once more, so its errors are not taken twice.
        quiet = EvaluationContext(context.watermark_us)
        mask, valid = equal(rows, quiet)
        return without(column, mask if valid is None else mask & valid)

    return kernel


def without(column: Column, drop: Mask) -> Column:
    """Return the column with NULL where `drop` is true."""
    if not drop.any():
        return column
    keep = ~drop
    if column.type.is_arrow:
        return Column(column.type, column.values.take(pa.array(np.arange(len(column)), mask=drop)))
    return Column(column.type, column.values, keep if column.valid is None else column.valid & keep)


def build_extreme(call: Call, compiler: Compiler) -> Kernel:
    """Build GREATEST or LEAST: NULLs are passed over; NaN is the greatest DOUBLE."""
    kernels = [compiler.kernel(a) for a in call.arguments]
    better = pair_test(">" if call.function == "greatest" else "<", call.type, call.type)

    def kernel(rows: Rows, context: EvaluationContext) -> Column:
        best = kernels[0](rows, context)
        for other in kernels[1:]:
            best = _better_of(best, other(rows, context), better)
        return best

    return kernel


def _better_of(best: Column, other: Column, better: Any) -> Column:
    take_other = better(other, best)
    best_valid, other_valid = best.validity(), other.validity()
    if best_valid is not None:
        take_other = take_other | ~best_valid
    if other_valid is not None:
        take_other = take_other & other_valid
    pieces = [(np.flatnonzero(~take_other), best.filter(~take_other)), (np.flatnonzero(take_other), other.filter(take_other))]
    return assemble(best.type, len(best), pieces) if len(best) else null_column(best.type, 0)
