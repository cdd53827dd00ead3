"""COUNT, SUM and AVG.

Integers and narrow DECIMALs are summed exactly: in int64, which wraps around, and beside it the upper halves of the values (their high
32 bits), from which the true sum is found as long as a cell has less than 2**30 rows. Wide DECIMALs are summed as Python integers, and
DOUBLEs one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from millstream.engine.aggregates.contract import AggregateFunction, AggregateUse, Array, FoldedRows, Folding, StateKind, number
from millstream.engine.data.column import Column, numpy_dtype
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import BIGINT, DECIMAL_PRECISION_MAX, DOUBLE, DataType, Kind, decimal
from millstream.engine.expressions.signature import Options, Signature, Types, average_type, expect_count
from millstream.engine.state.forms import state_constant, state_record

HALF_BITS = 32
HALF_SAFE = 2**29  # with sums of upper halves below this the sum fits in int64


@state_record("fold_count", 1)
@dataclass(frozen=True, slots=True)
class Counting(Folding):
    """The rows that count."""

    operation: str = "add"
    code: str = "i8"

    def folder(self, states: Array) -> None:
        """Panes count in a way of their own."""

    def fold(self, states: Array, rows: FoldedRows) -> None:
        """Count."""
        states += np.bincount(rows.cells, minlength=len(states))


def _widened(values: Array) -> Array:
    return values.astype(np.int64, copy=False)


def _upper(values: Array) -> Array:
    return values >> HALF_BITS


state_constant("widened", _widened)
state_constant("upper_half", _upper)

COUNTS = Counting()
WRAPPED_SUMS = Folding("add", "i8")
UPPER_HALVES = Folding("add", "i8", 0, _upper)


def sums(argument: DataType) -> tuple[StateKind, ...]:
    """Return the states of a sum; upper halves stand before the sums that they belong to."""
    if argument.kind is Kind.DOUBLE:
        return (Folding("add", "f8", 0.0),)
    if argument.is_wide:
        return (Folding("add", "O"),)
    if np.dtype(numpy_dtype(argument)).itemsize < 8:
        return (Folding("add", "i8", 0, _widened),)  # 2**32 values of 32 bits fit
    return (UPPER_HALVES, WRAPPED_SUMS)


def totals(states: Sequence[Any]) -> Any:
    """Return sums from their states: int64 where that is certain to hold them, else Python's integers.

    The upper halves are None where nobody has summed them because int64 cannot have been left.
    """
    wrapped = states[-1]
    if len(states) == 1 or states[0] is None:
        return wrapped
    upper = states[0]
    if len(upper) == 0 or int(np.abs(upper).max()) < HALF_SAFE:
        return wrapped
    high = upper.astype(np.object_) << HALF_BITS
    return high + (wrapped.astype(np.object_) - high) % (1 << 64)


def _count(name: str, types: Types, options: Options) -> Signature:
    """COUNT(*) has no argument, COUNT(x) one of any type."""
    expect_count(name, types, 0, 1)
    return Signature(name, types, BIGINT)


def _sum(name: str, types: Types, options: Options) -> Signature:
    """INT sums up in BIGINT, BIGINT in DECIMAL(38, 0), DECIMAL(p, s) in DECIMAL(38, s)."""
    type_ = number(name, types, intervals=True)
    results = {Kind.INT: BIGINT, Kind.BIGINT: decimal(DECIMAL_PRECISION_MAX, 0)}
    result = decimal(DECIMAL_PRECISION_MAX, type_.scale) if type_.kind is Kind.DECIMAL else results.get(type_.kind, type_)
    return Signature(name, (type_,), result)


def _average(name: str, types: Types, options: Options) -> Signature:
    """AVG of integers is DOUBLE, of DECIMAL(p, s) a DECIMAL of scale min(s + 4, 38)."""
    type_ = number(name, types, intervals=True)
    result = average_type(type_) if type_.kind is Kind.DECIMAL else DOUBLE if type_.is_integer else type_
    return Signature(name, (type_,), result)


def _counts_column(call: AggregateUse, argument: DataType, states: Sequence[Array]) -> Column:
    return Column(call.type, states[0])


def _sums_column(call: AggregateUse, argument: DataType, states: Sequence[Array]) -> Column:
    return _exact_column(call.type, totals(states))


def _average_column(call: AggregateUse, argument: DataType, states: Sequence[Array]) -> Column:
    """Return totals over counts: of DECIMAL rounded once, half away from zero (K13)."""
    total, divisor = totals(states[1:]), np.maximum(states[0], 1)
    if call.type.kind is Kind.DOUBLE:  # the exact total is rounded to DOUBLE first, whether it came as int64 or as Python's integers
        return Column(call.type, total.astype(np.float64) / divisor)
    factor = 10 ** (call.type.scale - argument.scale) if call.type.kind is Kind.DECIMAL else 1
    quotients = np.empty(len(total), dtype=np.object_)
    quotients[:] = [_rounded(int(t) * factor, int(n)) for t, n in zip(total.tolist(), divisor.tolist(), strict=True)]
    return _exact_column(call.type, quotients)


def _exact_column(type_: DataType, total: Array) -> Column:
    """Return a column of exact numbers in the storage form of `type_`; NULL where they are too large for it (K8)."""
    if type_.kind is Kind.DOUBLE or (total.dtype != np.object_ and not type_.is_wide):
        return Column(type_, total)
    wide = total.astype(np.object_)
    if total.dtype != np.object_:
        return Column(type_, wide)
    limit = 10 ** min(type_.precision, DECIMAL_PRECISION_MAX) if type_.is_wide else 2**63
    fits = np.array([-limit - (not type_.is_wide) < v < limit for v in wide.tolist()], dtype=np.bool_)
    if not fits.all():
        wide[~fits] = 0
    return Column(type_, wide if type_.is_wide else wide.astype(np.int64), None if fits.all() else fits)


def _rounded(numerator: int, denominator: int) -> int:
    """Divide, halves away from zero."""
    quotient, rest = divmod(abs(numerator), denominator)
    quotient += 2 * rest >= denominator
    return quotient if numerator >= 0 else -quotient


COUNT = AggregateFunction(_count, lambda argument: (COUNTS,), _counts_column, counted=False, zero_if_empty=True)
SUM = AggregateFunction(_sum, sums, _sums_column)
AVG = AggregateFunction(_average, lambda argument: (COUNTS, *sums(argument)), _average_column)
