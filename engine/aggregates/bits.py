"""BIT_AND, BIT_OR, BIT_XOR of integers, in two's complement, and BOOL_AND (EVERY), BOOL_OR of conditions. NULLs do not count."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from millstream.engine.aggregates.contract import AggregateFunction, AggregateUse, Array, Folding, StateKind
from millstream.engine.data.column import Column, numpy_dtype
from millstream.engine.data.types import BOOLEAN, INT, NULL, DataType
from millstream.engine.expressions.signature import Options, Signature, Types, expect_count, refuse_argument


def _integer(name: str, types: Types, options: Options) -> Signature:
    """Take an INT or BIGINT, answer in the same."""
    expect_count(name, types, 1, 1)
    type_ = INT if types[0] == NULL else types[0]
    if not type_.is_integer:
        refuse_argument(name, 0, type_, "an INT or a BIGINT")
    return Signature(name, (type_,), type_)


def _condition(name: str, types: Types, options: Options) -> Signature:
    """Take a BOOLEAN, answer in BOOLEAN."""
    expect_count(name, types, 1, 1)
    if types[0] not in (BOOLEAN, NULL):
        refuse_argument(name, 0, types[0], "a condition", "compare it with something, as in x <> 0")
    return Signature(name, (BOOLEAN,), BOOLEAN)


def _states(argument: DataType, *, operation: str, neutral: int) -> tuple[StateKind, ...]:
    return (Folding(operation, np.dtype(numpy_dtype(argument)).str, neutral),)


def _column(call: AggregateUse, argument: DataType, states: Sequence[Array]) -> Column:
    return Column(call.type, states[0])


BIT_AND = AggregateFunction(_integer, partial(_states, operation="bit_and", neutral=-1), _column, ignores_distinct=True)
BIT_OR = AggregateFunction(_integer, partial(_states, operation="bit_or", neutral=0), _column, ignores_distinct=True)
BIT_XOR = AggregateFunction(_integer, partial(_states, operation="bit_xor", neutral=0), _column)
BOOL_AND = AggregateFunction(_condition, partial(_states, operation="minimum", neutral=1), _column, ignores_distinct=True)
BOOL_OR = AggregateFunction(_condition, partial(_states, operation="maximum", neutral=0), _column, ignores_distinct=True)
