"""Rules that aggregates share: which arguments they take, and how those are refused (result types per K13)."""

from __future__ import annotations

from millstream.engine.data.types import DOUBLE, INT, INTERVAL, NULL, TEXT, DataType, Kind
from millstream.engine.expressions.signature import Options, Signature, Types, expect_count, refuse_argument


def number(name: str, types: Types, *, intervals: bool = False) -> DataType:
    """Return the type of the one argument (NULL counts as INT). TypeProblem for what has no sum."""
    expect_count(name, types, 1, 1)
    type_ = types[0]
    if type_ == NULL:
        return INT
    if not type_.is_numeric and not (intervals and type_ == INTERVAL):
        wanted = "a number or an INTERVAL" if intervals else "a number"
        refuse_argument(name, 0, type_, wanted, "cast it, as in CAST(x AS DOUBLE)" if type_ == TEXT else None)
    return type_


def ordered(name: str, types: Types) -> DataType:
    """Return the type of the one argument. TypeProblem for a LIST, which has no order."""
    expect_count(name, types, 1, 1)
    if types[0].kind is Kind.LIST:
        refuse_argument(name, 0, types[0], "something that has an order")
    return types[0]


def in_double(name: str, types: Types, options: Options) -> Signature:
    """Take a number, compute in DOUBLE."""
    number(name, types)
    return Signature(name, (DOUBLE,), DOUBLE)


def same_type(name: str, types: Types, options: Options) -> Signature:
    """Take anything, answer with one of its values."""
    expect_count(name, types, 1, 1)
    return Signature(name, types, types[0])


def same_ordered(name: str, types: Types, options: Options) -> Signature:
    """Take anything that has an order, answer with one of its values."""
    type_ = ordered(name, types)
    return Signature(name, (type_,), type_)
