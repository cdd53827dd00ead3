"""Typed expressions to kernels: the table of builders, constants folded first.

`compile_expression` gives a column, `compile_predicate` the mask of rows where a condition is true. Both are made once per operator and
may be called from any thread. The mask may be a column's own storage: don't write into it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import arrow_type
from millstream.engine.data.column import Column, Mask, null_column, numpy_dtype
from millstream.engine.data.errors import Unsupported
from millstream.engine.data.types import BOOLEAN, FLAT_ARROW_KINDS, DataType, Kind
from millstream.engine.expressions.arithmetic import OPERATIONS, build_arithmetic, build_bitwise, build_negation
from millstream.engine.expressions.casts import build_cast
from millstream.engine.expressions.chain import CHAIN, build_chain
from millstream.engine.expressions.comparison import NEGATED, build_comparison, build_distinct, comparison_predicate
from millstream.engine.expressions.dates import (
    build_add_months,
    build_arrival,
    build_current_watermark,
    build_date_trunc,
    build_extract,
    build_sampling_weight,
    build_to_char,
    build_to_timestamp,
)
from millstream.engine.expressions.decimals import build_decimal
from millstream.engine.expressions.functions import BYTE_NAMES, FORMAT_NAMES, JSON_NAMES, NESTED_NAMES
from millstream.engine.expressions.ir import Call, Case, Cast, ColumnRef, Expression, Literal, children, columns_used, transform, walk
from millstream.engine.expressions.kernel import Builder, Compiler, EvaluationContext, Kernel, KernelRows, Predicate
from millstream.engine.expressions.lists import build_contains, build_length
from millstream.engine.expressions.logic import (
    build_between,
    build_case,
    build_coalesce,
    build_connective,
    build_extreme,
    build_if,
    build_in,
    build_key_part,
    build_not,
    build_null_test,
    build_nullif,
    build_truth_test,
    connective_predicate,
)
from millstream.engine.expressions.numeric_functions import (
    FLOAT_FUNCTIONS,
    build_absolute,
    build_float_function,
    build_float_pair,
    build_float_test,
    build_pi,
    build_rounding,
    build_sign,
)
from millstream.engine.expressions.patterns import build_pattern, build_regex_extract, build_regex_replace
from millstream.engine.expressions.strings import FAST, build_join, build_string_function
from millstream.engine.expressions.text_functions import FUNCTIONS as TEXT_FUNCTIONS
from millstream.engine.expressions.user_functions import build_user_function, user_function_of

_CONDITIONAL = frozenset(("coalesce", "if", "and", "or"))  # only the first operand is computed at every row
NOT_CONSTANT = frozenset(("current_watermark", "sampling_weight", "arrival"))


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
        if node.type.is_nested or (isinstance(node, Call) and node.function in NOT_CONSTANT) or user_function_of(node) is not None:
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


def build_nested(call: Call, compiler: Compiler) -> Kernel:
    """Build what makes nested values and steps into them."""
    from millstream.engine.expressions.nested import NESTED_BUILDERS

    return NESTED_BUILDERS[call.function](call, compiler)


def build_json(call: Call, compiler: Compiler) -> Kernel:
    """Build a step into JSON."""
    from millstream.engine.expressions.json_functions import JSON_BUILDERS

    return JSON_BUILDERS[call.function](call, compiler)


def build_bytes(call: Call, compiler: Compiler) -> Kernel:
    """Build a function of BYTES."""
    from millstream.engine.expressions.byte_functions import build_byte_function

    return build_byte_function(call, compiler)


def build_formats(call: Call, compiler: Compiler) -> Kernel:
    """Build a function of texts of a written form, or of buckets."""
    from millstream.engine.expressions.text_formats import build_format

    return build_format(call, compiler)


def _has_bytes(call: Call) -> bool:
    return call.arguments[0].type.kind is Kind.BYTES or (call.function == "||" and call.type.kind is Kind.BYTES)


BUILDERS: dict[str, Builder] = {
    **dict.fromkeys((*FAST, *TEXT_FUNCTIONS), build_string_function),
    **dict.fromkeys(FLOAT_FUNCTIONS, build_float_function),
    **dict.fromkeys(("+", "-", "*", "/", "%"), build_arithmetic),
    **dict.fromkeys(OPERATIONS, build_bitwise),
    "neg": build_negation,
    **dict.fromkeys(NEGATED, build_comparison),
    "is_distinct_from": build_distinct,
    "is_not_distinct_from": build_distinct,
    "and": build_connective,
    "or": build_connective,
    "not": build_not,
    **dict.fromkeys(("is_true", "is_false", "is_unknown", "is_not_true", "is_not_false", "is_not_unknown"), build_truth_test),
    "is_null": build_null_test,
    "is_not_null": build_null_test,
    "between": build_between,
    "in": build_in,
    **dict.fromkeys(("like", "ilike", "regexp_like"), build_pattern),
    "regexp_replace": build_regex_replace,
    "regexp_extract": build_regex_extract,
    **dict.fromkeys(("||", "concat", "concat_ws"), build_join),
    "abs": build_absolute,
    "sign": build_sign,
    **dict.fromkeys(("round", "trunc", "floor", "ceil"), build_rounding),
    **dict.fromkeys(("power", "log", "atan2"), build_float_pair),
    **dict.fromkeys(("isnan", "isinf", "isfinite"), build_float_test),
    "pi": build_pi,
    "coalesce": build_coalesce,
    "greatest": build_extreme,
    "least": build_extreme,
    "nullif": build_nullif,
    "if": build_if,
    "extract": build_extract,
    "date_trunc": build_date_trunc,
    "to_timestamp": build_to_timestamp,
    "cardinality": build_length,
    **dict.fromkeys((*NESTED_NAMES, "map_element"), build_nested),
    **dict.fromkeys(("json_get", *(name for name in JSON_NAMES if name.isidentifier())), build_json),
    **dict.fromkeys(BYTE_NAMES, build_bytes),
    **dict.fromkeys(FORMAT_NAMES, build_formats),
    "array_contains": build_contains,
    "add_months": build_add_months,
    "to_char": build_to_char,
    CHAIN: build_chain,
    "current_watermark": build_current_watermark,
    "sampling_weight": build_sampling_weight,
    "arrival": build_arrival,
    "key_part": build_key_part,
}
_TRUTH_TESTS = {"is_true": (True, False), "is_false": (False, False), "is_not_true": (True, True), "is_not_false": (False, True)}


def compile_expression(expression: Expression) -> Kernel:
    """Return the kernel of a scalar expression; TypeProblem for a bad constant pattern, Unsupported for an unknown function."""
    folded = fold(expression)
    return _silent_kernel(_COMPILER.kernel(folded)) if _may_warn(folded) else _COMPILER.kernel(folded)


def compile_predicate(expression: Expression) -> Predicate:
    """Return the predicate of a BOOLEAN expression: true where it is true, false where it is false or NULL."""
    folded = fold(expression)
    return _silent_predicate(_COMPILER.predicate(folded)) if _may_warn(folded) else _COMPILER.predicate(folded)


def fold(expression: Expression) -> Expression:
    """Return the expression with every part that needs no row computed, save parts that fail (they fail at each row)."""
    return fold_with(expression, lambda e: _silent_kernel(_COMPILER.kernel(e)))


class _Compiler:
    """Chooses the builder of each node."""

    def kernel(self, expression: Expression) -> Kernel:
        """Return the kernel of any expression."""
        match expression:
            case ColumnRef(position=position):
                return lambda rows, context: rows.column(position)
            case Literal():
                return constant_kernel(expression)
            case Case():
                return build_case(expression, self)
            case Cast():
                return build_cast(expression, self)
            case Call():
                return self._call(expression)
        raise Unsupported(f"expressions of the kind {type(expression).__name__} cannot be compiled")

    def _call(self, call: Call) -> Kernel:
        if user_function_of(call) is not None:
            return build_user_function(call, self)
        builder = BUILDERS.get(call.function)
        if builder is None:
            raise Unsupported(f"the function {call.function.upper()} cannot be computed here")
        if builder is build_arithmetic and call.type.kind is Kind.DECIMAL:
            builder = build_decimal
        if builder in (build_string_function, build_join) and _has_bytes(call):
            builder = build_bytes
        return builder(call, self)

    def predicate(self, expression: Expression, wanted: bool = True) -> Predicate:
        """Return the mask of rows where a BOOLEAN expression is `wanted`."""
        if isinstance(expression, Call):
            function = expression.function
            if function in NEGATED:
                return comparison_predicate(expression, self, wanted)
            if function in ("and", "or"):
                return connective_predicate(expression, self, wanted)
            if function == "not":
                return self.predicate(expression.arguments[0], not wanted)
            if function == "between" and isinstance(expression.arguments[0], ColumnRef):
                return self.predicate(between_as_and(expression), wanted)
            if function in _TRUTH_TESTS:
                return self._truth_test(expression, wanted)
        return _mask_of(self.kernel(expression), wanted)

    def _truth_test(self, call: Call, wanted: bool) -> Predicate:
        """IS TRUE … are never NULL, so the opposite is the mask turned over."""
        asked, turned = _TRUTH_TESTS[call.function]
        inner = self.predicate(call.arguments[0], asked)
        if turned == wanted:
            return lambda rows, context: ~inner(rows, context)
        return inner


_COMPILER = _Compiler()


def between_as_and(call: Call) -> Call:
    """Return `x BETWEEN low AND high` as two comparisons."""
    operand, low, high = call.arguments
    return Call(BOOLEAN, "and", (Call(BOOLEAN, ">=", (operand, low)), Call(BOOLEAN, "<=", (operand, high))))


def _mask_of(kernel: Kernel, wanted: bool) -> Predicate:
    def predicate(rows: KernelRows, context: EvaluationContext) -> Mask:
        column = kernel(rows, context)
        mask: Mask = column.values if wanted else ~column.values
        return mask if column.valid is None else mask & column.valid

    return predicate


def constant_kernel(literal: Literal) -> Kernel:
    """Return the kernel that gives a constant for every row."""
    type_, value = literal.type, literal.value
    if value is None:
        return lambda rows, context: null_column(type_, rows.rows)
    if type_.kind in FLAT_ARROW_KINDS:
        scalar = pa.scalar(value, arrow_type(type_))
        return lambda rows, context: Column(type_, pa.repeat(scalar, rows.rows))
    dtype = numpy_dtype(type_)
    bounds = (int(value), int(value)) if _is_integer_stored(type_) else None

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        return Column(type_, np.full(rows.rows, value, dtype=dtype), None, bounds)

    return kernel


def _is_integer_stored(type_: DataType) -> bool:
    return type_.kind not in (Kind.DOUBLE, Kind.BOOLEAN, Kind.NULL)


def _may_warn(expression: Expression) -> bool:
    """NumPy warns of overflow, invalid operands and division by zero only in floats and in integer division."""
    for node in walk(expression):
        if isinstance(node, Call | Cast) and (node.type.kind is Kind.DOUBLE or _takes_double(node)):
            return True
        if isinstance(node, Call) and (node.function in ("/", "%") or node.function == CHAIN):
            return True
    return False


def _takes_double(node: Any) -> bool:
    if isinstance(node, Cast):
        return node.argument.type.kind is Kind.DOUBLE
    return node.function not in NEGATED and any(a.type.kind is Kind.DOUBLE for a in node.arguments)


def _silent_kernel(kernel: Kernel) -> Kernel:
    def silent(rows: KernelRows, context: EvaluationContext) -> Column:
        with np.errstate(all="ignore"):
            return kernel(rows, context)

    return silent


def _silent_predicate(predicate: Predicate) -> Predicate:
    def silent(rows: KernelRows, context: EvaluationContext) -> Mask:
        with np.errstate(all="ignore"):
            return predicate(rows, context)

    return silent
