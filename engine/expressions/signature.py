"""Which type two types meet in (K13), what a resolved function call looks like, and how the rules of functions refuse arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from millstream.engine.data.errors import TypeProblem
from millstream.engine.data.records import dataclass
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
    return _common_nested(left, right) if left.is_nested and left.kind is right.kind else None


def _common_nested(left: DataType, right: DataType) -> DataType | None:
    """Nested types meet where their parts do; the parts of a STRUCT have the same names in the same order."""
    if left.element is not None and right.element is not None:
        element = common_type(left.element, right.element)
        return None if element is None else replace(left, element=element)
    if [name for name, _ in left.fields] != [name for name, _ in right.fields]:
        return None
    parts = [(name, common_type(one, other)) for (name, one), (_, other) in zip(left.fields, right.fields, strict=True)]
    met = tuple((name, part) for name, part in parts if part is not None)
    return replace(left, fields=met) if len(met) == len(parts) else None


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


@dataclass(frozen=True, slots=True)
class Signature:
    """A call whose types fit: the canonical name, the types to cast the arguments to, the type of the result, checked options."""

    name: str
    arguments: tuple[DataType, ...]
    result: DataType
    options: tuple[Any, ...] = ()


Types = tuple[DataType, ...]
Options = tuple[Any, ...]
Rule = Callable[[str, Types, Options], Signature]


def refuse(name: str, types: Sequence[DataType], hint: str | None = None) -> NoReturn:
    """Raise the TypeProblem for a call whose argument types do not fit, naming function, place and type."""
    shown = ", ".join(str(t) for t in types)
    if len(types) == 2 and not name[:1].isalpha():
        raise TypeProblem(f"{types[0]} {name} {types[1]} is not defined", hint=hint)
    raise TypeProblem(f"{name.upper()}({shown}) is not defined", hint=hint)


def refuse_argument(name: str, position: int, type_: DataType, wanted: str, hint: str | None = None) -> NoReturn:
    """Raise the TypeProblem for one argument (0-based position) of the wrong type."""
    raise TypeProblem(f"argument {position + 1} of {name.upper()} is {type_}, it must be {wanted}", hint=hint)


def expect_count(name: str, types: Sequence[DataType], least: int, most: int | None = None) -> None:
    """Refuse a call with fewer than `least` or more than `most` arguments (None: no bound): raise TypeProblem."""
    if len(types) < least or (most is not None and len(types) > most):
        wanted = str(least) if most == least else f"at least {least}" if most is None else f"{least} to {most}"
        raise TypeProblem(f"{name.upper()} takes {wanted} argument{'' if wanted == '1' else 's'}, not {len(types)}")


def all_in_common(name: str, types: Sequence[DataType]) -> DataType:
    """Return the type in which all arguments meet, or refuse the call."""
    common = common_type_of_all(types)
    if common is None:
        refuse(name, types, "cast one side, as in CAST(x AS TEXT)")
    return common


def of_kind(name: str, position: int, type_: DataType, wanted: DataType) -> DataType:
    """Return `wanted` when the argument has that type or is a bare NULL, else refuse it."""
    if type_ not in (wanted, NULL):
        refuse_argument(name, position, type_, str(wanted), f"cast it, as in CAST(x AS {wanted})")
    return wanted
