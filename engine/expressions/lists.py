"""Functions over lists, which aggregates such as ARRAY_AGG and TOP give: how long, which element, whether a value is in one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import arrow_type, column_from_arrow, column_to_arrow
from millstream.engine.data.column import Column, Mask
from millstream.engine.data.errors import TypeProblem
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.types import BIGINT, BOOLEAN, NULL, DataType, Kind
from millstream.engine.expressions.ir import Call
from millstream.engine.expressions.kernel import Compiler, EvaluationContext, Kernel, KernelRows, always_null, both_valid, is_null_literal
from millstream.engine.expressions.signature import Rule, Signature, common_type, expect_count, refuse, refuse_argument
from millstream.protocol.values import arrow_functions as pc

Types = tuple[DataType, ...]
Options = tuple[Any, ...]


def _element(name: str, type_: DataType) -> DataType:
    if type_.kind is not Kind.LIST or type_.element is None:
        refuse_argument(name, 0, type_, "a list")
    return type_.element


def length_rule(name: str, types: Types, options: Options) -> Signature:
    """CARDINALITY(list), also spelled ARRAY_LENGTH(list [, 1]) as in PostgreSQL, where 1 is the only dimension."""
    expect_count(name, types, 1, 1)
    if types[0].kind is not Kind.MAP:
        _element(name, types[0])
    return Signature("cardinality", types, BIGINT)


def element_rule(name: str, types: Types, options: Options) -> Signature:
    """`list[n]`, counted from 1."""
    expect_count(name, types, 2, 2)
    element = _element(name, types[0])
    if not (types[1].is_integer or types[1] == NULL):
        raise TypeProblem(f"an element of a list is named by a whole number, not by {types[1]}", hint="the first one is list[1]")
    return Signature(name, (types[0], BIGINT), element)


def contains_rule(name: str, types: Types, options: Options) -> Signature:
    """ARRAY_CONTAINS(list, value), the same as `value = ANY (list)`."""
    expect_count(name, types, 2, 2)
    element = _element(name, types[0])
    if element.is_nested or common_type(element, types[1]) != element:
        refuse(name, types, f"the value must be {element}")
    return Signature(name, (types[0], element), BOOLEAN)


LIST_RULES: dict[str, Rule] = {"cardinality": length_rule, "array_contains": contains_rule}


def build_length(call: Call, compiler: Compiler) -> Kernel:
    """Build CARDINALITY: NULL of a NULL list, 0 of an empty one."""
    inner = compiler.kernel(call.arguments[0])

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        column = inner(rows, context)
        if column.type.kind is Kind.MAP:
            from millstream.engine.expressions.nested_values import offsets_of

            return Column(BIGINT, np.diff(offsets_of(column.values)).astype(np.int64), column.validity())
        return column_from_arrow(pc.list_value_length(column.values).cast(pa.int64()), BIGINT)

    return kernel


def build_element(call: Call, compiler: Compiler) -> Kernel:
    """Build `list[n]`: NULL where there is no such element, as in PostgreSQL."""
    if is_null_literal(call.arguments[1]):
        return always_null(call.type)
    lists, numbers = (compiler.kernel(a) for a in call.arguments)

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        column, index = lists(rows, context), numbers(rows, context)
        starts, lengths = spans(column)
        there = _known(column, index) & (index.values >= 1) & (index.values <= lengths)
        places = pa.array(np.where(there, starts + index.values - 1, 0), mask=~there)
        if not there.any():
            return column_from_arrow(pa.nulls(rows.rows, arrow_type(call.type)), call.type)
        return column_from_arrow(column.values.values.take(places), call.type)

    return kernel


def build_contains(call: Call, compiler: Compiler) -> Kernel:
    """Build ARRAY_CONTAINS. Not found beside a NULL is unknown, as `=` of each would be; NaN is found (K7)."""
    if is_null_literal(call.arguments[1]):
        return always_null(call.type)
    lists, values = (compiler.kernel(a) for a in call.arguments)
    element = call.arguments[1].type

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        column, wanted = lists(rows, context), values(rows, context)
        _, lengths = spans(column)
        row = np.repeat(np.arange(rows.rows, dtype=np.int64), lengths)
        elements = column_from_arrow(column.values.flatten(), element)
        both = pa.concat_arrays([column_to_arrow(elements), column_to_arrow(wanted)])
        codes = key_encoder([element]).encode([column_from_arrow(both, element)])
        given = elements.validity()
        known = np.ones(len(row), dtype=np.bool_) if given is None else given
        found = np.zeros(rows.rows, dtype=np.bool_)
        found[row[known & (codes[: len(row)] == codes[len(row) :][row])]] = True
        holds_null = np.zeros(rows.rows, dtype=np.bool_)
        holds_null[row[~known]] = True
        valid = _known(column, wanted) & (found | ~holds_null)
        return Column(BOOLEAN, found, None if valid.all() else valid)

    return kernel


def spans(column: Column) -> tuple[Any, Any]:
    """Return where each list begins among all elements and how many it has, 0 for a NULL list."""
    offsets = column.values.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    lengths = np.diff(offsets)
    valid = column.validity()
    return offsets[:-1], lengths if valid is None else np.where(valid, lengths, 0)


def _known(left: Column, right: Column) -> Mask:
    valid = both_valid(left.validity(), right.validity())
    return np.ones(len(left), dtype=np.bool_) if valid is None else valid
