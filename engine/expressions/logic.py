"""AND, OR, NOT, IS TRUE … in three-valued logic (K6), as columns and as the masks of filters.

The right side of AND is evaluated only where the left is not false, that of OR only where it is not true, whenever the right side
could record an error: so `x <> 0 AND 8 / x > 1` is clean. A filter does not need NULLs: NOT is pushed down to the comparisons.
"""

from __future__ import annotations

import numpy as np
from millstream.engine.data.column import Column, Mask
from millstream.engine.data.types import BOOLEAN
from millstream.engine.expressions.bounds import may_fail
from millstream.engine.expressions.contract import EvaluationContext, Kernel, Predicate, Rows
from millstream.engine.expressions.ir import Call
from millstream.engine.expressions.kernel import Compiler, evaluate_at, test_at


def build_connective(call: Call, compiler: Compiler) -> Kernel:
    """Build AND or OR of two or more operands as a BOOLEAN column."""
    is_and = call.function == "and"
    left = compiler.kernel(call.arguments[0])
    others = [(compiler.kernel(operand), may_fail(operand)) for operand in call.arguments[1:]]

    def kernel(rows: Rows, context: EvaluationContext) -> Column:
        a = left(rows, context)
        for right, careful in others:
            if not careful:
                a = _combine(is_and, a, right(rows, context))
                continue
            decided = ~a.values if is_and else a.values
            if a.valid is not None:
                decided = decided & a.valid
            a = _combine(is_and, a, _spread(right, rows, context, ~decided, is_and))
        return a

    return kernel


def _spread(kernel: Kernel, rows: Rows, context: EvaluationContext, where: Mask, filler: bool) -> Column:
    """Evaluate where asked; elsewhere put the value that leaves the other side's decision standing."""
    index = np.flatnonzero(where)
    if len(index) == rows.rows:
        return kernel(rows, context)
    part = evaluate_at(kernel, rows, context, index)
    values = np.full(rows.rows, filler, dtype=np.bool_)
    values[index] = part.values
    if part.valid is None:
        return Column(BOOLEAN, values)
    valid = np.ones(rows.rows, dtype=np.bool_)
    valid[index] = part.valid
    return Column(BOOLEAN, values, valid)


def _combine(is_and: bool, a: Column, b: Column) -> Column:
    """A side that decides alone (false for AND, true for OR) makes the result known although the other is NULL."""
    values = a.values & b.values if is_and else a.values | b.values
    if a.valid is None and b.valid is None:
        return Column(BOOLEAN, values)
    a_decides = (~a.values if is_and else a.values) & (True if a.valid is None else a.valid)
    b_decides = (~b.values if is_and else b.values) & (True if b.valid is None else b.valid)
    both = np.ones(len(values), dtype=np.bool_)
    if a.valid is not None:
        both &= a.valid
    if b.valid is not None:
        both &= b.valid
    decided = a_decides | b_decides
    # Under a NULL the stored value is arbitrary, so a decided row is written out.
    values = np.where(decided, not is_and, values)
    return Column(BOOLEAN, values, both | decided)


def build_not(call: Call, compiler: Compiler) -> Kernel:
    """NOT: NULL stays NULL."""
    inner = compiler.kernel(call.arguments[0])

    def kernel(rows: Rows, context: EvaluationContext) -> Column:
        column = inner(rows, context)
        return Column(BOOLEAN, ~column.values, column.valid)

    return kernel


def build_truth_test(call: Call, compiler: Compiler) -> Kernel:
    """IS [NOT] TRUE, FALSE, UNKNOWN: never NULL."""
    inner, turn = compiler.kernel(call.arguments[0]), call.function.startswith("is_not_")
    asked = call.function.rsplit("_", 1)[1]

    def kernel(rows: Rows, context: EvaluationContext) -> Column:
        column = inner(rows, context)
        if asked == "unknown":
            mask = np.zeros(rows.rows, dtype=np.bool_) if column.valid is None else ~column.valid
        else:
            mask = column.values if asked == "true" else ~column.values
            mask = mask if column.valid is None else mask & column.valid
        return Column(BOOLEAN, ~mask if turn else mask)

    return kernel


def build_null_test(call: Call, compiler: Compiler) -> Kernel:
    """IS [NOT] NULL."""
    inner, wanted = compiler.kernel(call.arguments[0]), call.function == "is_not_null"

    def kernel(rows: Rows, context: EvaluationContext) -> Column:
        valid = inner(rows, context).validity()
        if valid is None:
            return Column(BOOLEAN, np.full(rows.rows, wanted, dtype=np.bool_))
        return Column(BOOLEAN, valid if wanted else ~valid)

    return kernel


def connective_predicate(call: Call, compiler: Compiler, wanted: bool) -> Predicate:
    """Build the mask of AND or OR; by De Morgan the wanted falsehood of one is the other over falsehoods."""
    all_needed = (call.function == "and") == wanted
    left = compiler.predicate(call.arguments[0], wanted)
    others = [(compiler.predicate(operand, wanted), may_fail(operand)) for operand in call.arguments[1:]]

    def predicate(rows: Rows, context: EvaluationContext) -> Mask:
        mask = left(rows, context)
        for right, careful in others:
            if careful:
                mask = _tested_where_open(all_needed, mask, right, rows, context)
            else:
                mask = mask & right(rows, context) if all_needed else mask | right(rows, context)
        return mask

    return predicate


def _tested_where_open(all_needed: bool, mask: Mask, right: Predicate, rows: Rows, context: EvaluationContext) -> Mask:
    """Return the mask with a condition more, which is tested only where it decides."""
    index = np.flatnonzero(mask if all_needed else ~mask)
    if len(index) == 0:
        return mask
    result = mask.copy()
    result[index] = test_at(right, rows, context, index)
    return result
