"""`= <> < <= > >=` and IS [NOT] DISTINCT FROM.

DOUBLE: NaN equals NaN and is greater than every other value, -0.0 equals 0.0 (as PostgreSQL and DuckDB have it, and K7 for keys).
Exact numbers of different types compare by value without rounding; beside a DOUBLE they are compared as DOUBLEs. TEXT compares by code
point, BYTES byte by byte. A comparison with a constant is one NumPy operation (two for `>` and `>=` of DOUBLEs).

A core returns (mask, validity): the mask is arbitrary where validity is false.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import arrow_type, mask_from_arrow, plain_values
from millstream.engine.data.column import Column, Mask
from millstream.engine.data.types import BOOLEAN, FLAT_ARROW_KINDS, DataType, Kind
from millstream.engine.expressions.ir import Call, Cast, Expression
from millstream.engine.expressions.kernel import (
    Compiler,
    EvaluationContext,
    Kernel,
    KernelRows,
    Predicate,
    both_valid,
    constant_value,
    is_constant,
    is_null_literal,
)
from millstream.protocol.values import arrow_functions as pc

MaskCore = Callable[[KernelRows, EvaluationContext], tuple[Mask, Mask | None]]
PairCore = Callable[[Column, Column], Mask]

NEGATED = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
MIRRORED = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
UFUNCS: dict[str, Any] = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
ARROW_COMPARE: dict[str, str] = {
    "=": "equal",
    "<>": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}


def build_comparison(call: Call, compiler: Compiler) -> Kernel:
    """Build the BOOLEAN column of a comparison."""
    core = comparison_core(call.function, call.arguments[0], call.arguments[1], compiler)

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        mask, valid = core(rows, context)
        return Column(BOOLEAN, mask, valid)

    return kernel


def comparison_predicate(call: Call, compiler: Compiler, wanted: bool) -> Predicate:
    """Build the mask of a comparison as a filter needs it; for `wanted` false the opposite operator is compared."""
    function = call.function if wanted else NEGATED[call.function]
    core = comparison_core(function, call.arguments[0], call.arguments[1], compiler)

    def predicate(rows: KernelRows, context: EvaluationContext) -> Mask:
        mask, valid = core(rows, context)
        return mask if valid is None else mask & valid

    return predicate


def comparison_core(function: str, left: Expression, right: Expression, compiler: Compiler) -> MaskCore:
    """Return the core of `left function right` by the operands' types; a constant goes to the right side."""
    if is_null_literal(left) or is_null_literal(right):
        return _never_valid
    if is_constant(left) and not is_constant(right):
        return comparison_core(MIRRORED[function], right, left, compiler)
    left, right = _exact_operand(left), _exact_operand(right)
    if is_constant(right) and not is_constant(left):
        against = constant_test(function, left.type, constant_value(right), right.type)
        kernel = compiler.kernel(left)

        def with_constant(rows: KernelRows, context: EvaluationContext) -> tuple[Mask, Mask | None]:
            column = kernel(rows, context)
            return against(column), column.validity()

        return with_constant
    return _pair_core(function, left, right, compiler)


def _pair_core(function: str, left: Expression, right: Expression, compiler: Compiler) -> MaskCore:
    first, second = compiler.kernel(left), compiler.kernel(right)
    compare = pair_test(function, left.type, right.type)

    def pair(rows: KernelRows, context: EvaluationContext) -> tuple[Mask, Mask | None]:
        a, b = first(rows, context), second(rows, context)
        return compare(a, b), both_valid(a.validity(), b.validity())

    return pair


def _never_valid(rows: KernelRows, context: EvaluationContext) -> tuple[Mask, Mask | None]:
    nothing = np.zeros(rows.rows, dtype=np.bool_)
    return nothing, nothing


def _exact_operand(expression: Expression) -> Expression:
    """Widening casts among exact numbers change no value and need not be made to compare."""
    if isinstance(expression, Cast) and expression.argument.type.is_integer and expression.type.kind is Kind.BIGINT:
        return expression.argument
    return expression


def constant_test(function: str, type_: DataType, value: Any, value_type: DataType) -> Callable[[Column], Mask]:
    """Return the test of a column of `type_` against a constant that is not NULL."""
    if type_.kind in FLAT_ARROW_KINDS:
        compare, scalar = getattr(pc, ARROW_COMPARE[function]), pa.scalar(value, arrow_type(type_))
        return lambda column: mask_from_arrow(compare(column.values, scalar))
    if type_.kind is Kind.DOUBLE:
        return _double_constant_test(function, float(value))
    if type_.scale != value_type.scale:
        return _scaled_constant_test(function, type_.scale, int(value), value_type.scale)
    ufunc, constant = UFUNCS[function], value
    if type_.is_wide:
        return lambda column: np.asarray(ufunc(column.values, constant), dtype=np.bool_)
    return lambda column: ufunc(column.values, constant)


def _double_constant_test(function: str, constant: float) -> Callable[[Column], Mask]:
    if constant != constant:
        return _nan_test(function)
    if function in (">", ">="):  # true for NaN, so ask the opposite and turn the answer
        ufunc = UFUNCS[NEGATED[function]]

        def turned(column: Column) -> Mask:
            mask: Mask = ufunc(column.values, constant)
            np.logical_not(mask, out=mask)
            return mask

        return turned
    plain = UFUNCS[function]
    return lambda column: plain(column.values, constant)


def _nan_test(function: str) -> Callable[[Column], Mask]:
    if function in ("=", ">="):
        return lambda column: np.isnan(column.values)
    if function in ("<>", "<"):
        return lambda column: ~np.isnan(column.values)
    return lambda column: np.full(len(column), function == "<=", dtype=np.bool_)


def _scaled_constant_test(function: str, scale: int, value: int, value_scale: int) -> Callable[[Column], Mask]:
    """Bring the constant to the column's scale: between two of its steps `<` and `<=` mean the same, and `=` nothing."""
    whole, rest = divmod(value * 10**scale, 10**value_scale)
    if rest and function in ("=", "<>"):
        return lambda column: np.full(len(column), function == "<>", dtype=np.bool_)
    ufunc = UFUNCS[{"<": "<=", "<=": "<=", ">": ">", ">=": ">"}[function] if rest else function]
    return lambda column: np.asarray(ufunc(column.values, whole), dtype=np.bool_)


def pair_test(function: str, left: DataType, right: DataType) -> PairCore:
    """Return the test of two columns of types that the binder let be compared."""
    if left.kind in FLAT_ARROW_KINDS:
        compare = getattr(pc, ARROW_COMPARE[function])
        return lambda a, b: mask_from_arrow(compare(a.values, b.values))
    if left.kind is Kind.DOUBLE:
        return _double_pair_test(function)
    if left.is_nested:
        return _nested_pair_test(function)
    if left.scale != right.scale:
        return _scaled_pair_test(function, left.scale, right.scale)
    ufunc = UFUNCS[function]
    return lambda a, b: np.asarray(ufunc(a.values, b.values), dtype=np.bool_)


def _double_pair_test(function: str) -> PairCore:
    """IEEE comparison, put right where there is a NaN."""
    if function in (">", ">=", "<>"):
        opposite = _double_pair_test(NEGATED[function])
        return lambda a, b: ~opposite(a, b)
    ufunc = UFUNCS[function]

    def compare(a: Column, b: Column) -> Mask:
        mask: Mask = ufunc(a.values, b.values)
        nan = np.isnan(b.values)
        if function == "<":
            nan &= ~np.isnan(a.values)
        elif function == "=":
            nan &= np.isnan(a.values)
        mask |= nan
        return mask

    return compare


def _scaled_pair_test(function: str, left_scale: int, right_scale: int) -> PairCore:
    """Compare the coarser side with the floor of the finer one, so that nothing has to be widened."""
    if left_scale > right_scale:
        mirrored = _scaled_pair_test(MIRRORED[function], right_scale, left_scale)
        return lambda a, b: mirrored(b, a)
    unit = 10 ** (right_scale - left_scale)

    def compare(a: Column, b: Column) -> Mask:
        fine = b.values.astype(np.object_) if unit > 10**18 else b.values
        whole = fine // unit
        broken = np.asarray(whole * unit != fine, dtype=np.bool_)
        coarse = a.values
        if function in ("=", "<>"):
            equal = np.asarray(coarse == whole, dtype=np.bool_) & ~broken
            return equal if function == "=" else ~equal
        if function in ("<", ">="):  # coarse < fine: below the floor, or on it with something over
            less = np.asarray(coarse < whole, dtype=np.bool_) | (np.asarray(coarse == whole, dtype=np.bool_) & broken)
            return less if function == "<" else ~less
        at_most = np.asarray(coarse <= whole, dtype=np.bool_)
        return at_most if function == "<=" else ~at_most

    return compare


def _nested_pair_test(function: str) -> PairCore:
    def compare(a: Column, b: Column) -> Mask:
        equal = np.array([x == y for x, y in zip(plain_values(a), plain_values(b), strict=True)], dtype=np.bool_)
        return equal if function == "=" else ~equal

    return compare


def build_distinct(call: Call, compiler: Compiler) -> Kernel:
    """IS [NOT] DISTINCT FROM: never NULL, NULL is not distinct from NULL."""
    left, right = call.arguments
    first, second = compiler.kernel(left), compiler.kernel(right)
    same = None if is_null_literal(left) or is_null_literal(right) else pair_test("=", left.type, right.type)
    wanted = call.function == "is_not_distinct_from"

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        a, b = first(rows, context), second(rows, context)
        equal = np.zeros(rows.rows, dtype=np.bool_) if same is None else same(a, b)
        left_valid, right_valid = a.validity(), b.validity()
        if left_valid is not None or right_valid is not None:
            left_valid = np.ones(rows.rows, dtype=np.bool_) if left_valid is None else left_valid
            right_valid = np.ones(rows.rows, dtype=np.bool_) if right_valid is None else right_valid
            equal = (equal & left_valid & right_valid) | ~(left_valid | right_valid)
        return Column(BOOLEAN, equal if wanted else ~equal)

    return kernel
