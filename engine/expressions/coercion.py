"""Which type two types meet in, and the precision and scale of DECIMAL results (K13)."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.engine.data.types import BIGINT, DECIMAL_PRECISION_MAX, DOUBLE, NULL, TIMESTAMP, DataType, Kind, decimal

INT_DIGITS = 10
BIGINT_DIGITS = 19
DIVISION_EXTRA_SCALE = 4  # K13: a quotient has the greater scale + 4


def as_decimal(type_: DataType) -> DataType:
    """Return the DECIMAL that holds every value of an exact numeric type; ValueError for other types."""
    if type_.kind is Kind.DECIMAL:
        return type_
    if type_.kind is Kind.INT:
        return decimal(INT_DIGITS, 0)
    if type_.kind is Kind.BIGINT:
        return decimal(BIGINT_DIGITS, 0)
    raise ValueError(f"{type_} is not an exact number")


def capped_decimal(integer_digits: int, scale: int) -> DataType:
    """Return DECIMAL with that many digits before and after the point, cut at 38 digits (values beyond are K8 errors)."""
    return decimal(max(1, min(integer_digits + scale, DECIMAL_PRECISION_MAX)), scale)


def integer_digits(type_: DataType) -> int:
    """Return the digits before the point of a DECIMAL."""
    return type_.precision - type_.scale


def common_type(left: DataType, right: DataType) -> DataType | None:
    """Return the type in which values of both can be compared or mixed, or None when there is none.

    NULL meets anything; integers meet in BIGINT, exact numbers in DECIMAL, any number with DOUBLE in DOUBLE, DATE and TIMESTAMP in
    TIMESTAMP (midnight UTC). TEXT meets only TEXT: text and numbers never mix silently.
    """
    if left == right or right == NULL:
        return left
    if left == NULL:
        return right
    if left.is_numeric and right.is_numeric:
        return _common_number(left, right)
    if {left.kind, right.kind} == {Kind.DATE, Kind.TIMESTAMP}:
        return TIMESTAMP
    return None


def _common_number(left: DataType, right: DataType) -> DataType:
    if Kind.DOUBLE in (left.kind, right.kind):
        return DOUBLE
    if left.is_integer and right.is_integer:
        return BIGINT
    a, b = as_decimal(left), as_decimal(right)
    return capped_decimal(max(integer_digits(a), integer_digits(b)), max(a.scale, b.scale))


def common_type_of_all(types: Sequence[DataType]) -> DataType | None:
    """Return the type in which all meet, or None; NULL for no types at all."""
    result: DataType | None = NULL
    for type_ in types:
        if result is None:
            return None
        result = common_type(result, type_)
    return result


def sum_type(left: DataType, right: DataType) -> DataType:
    """Return the DECIMAL type of a + b and a - b: one more digit before the point than the greater operand."""
    return capped_decimal(max(integer_digits(left), integer_digits(right)) + 1, max(left.scale, right.scale))


def product_type(left: DataType, right: DataType) -> DataType | None:
    """Return the DECIMAL type of a * b (scales add up), or None when the scale passes 38."""
    scale = left.scale + right.scale
    if scale > DECIMAL_PRECISION_MAX:
        return None
    return capped_decimal(integer_digits(left) + integer_digits(right), scale)


def quotient_type(left: DataType, right: DataType) -> DataType:
    """Return the DECIMAL type of a / b: the greater scale + 4."""
    scale = min(max(left.scale, right.scale) + DIVISION_EXTRA_SCALE, DECIMAL_PRECISION_MAX)
    return capped_decimal(integer_digits(left) + right.scale, scale)


def remainder_type(left: DataType, right: DataType) -> DataType:
    """Return the DECIMAL type of a % b: as exact as the finer operand, no greater than the smaller one."""
    return capped_decimal(min(integer_digits(left), integer_digits(right)), max(left.scale, right.scale))


def average_type(type_: DataType) -> DataType:
    """Return the DECIMAL type of AVG over DECIMAL(p, s): scale min(s + 4, 38)."""
    scale = min(type_.scale + DIVISION_EXTRA_SCALE, DECIMAL_PRECISION_MAX)
    return capped_decimal(integer_digits(type_), scale)
