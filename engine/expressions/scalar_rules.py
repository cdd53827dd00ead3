"""Types of the scalar functions over numbers and of those over any type: ABS … ATAN2, COALESCE, NULLIF, GREATEST, IF, TYPEOF."""

from __future__ import annotations

from typing import Any

from millstream.engine.data.types import BIGINT, BOOLEAN, DOUBLE, INT, INTERVAL, NULL, TEXT, DataType, Kind
from millstream.engine.expressions.coercion import capped_decimal, integer_digits
from millstream.engine.expressions.operator_rules import arithmetic
from millstream.engine.expressions.signature import Rule, Signature, all_in_common, expect_count, of_kind, refuse, refuse_argument

Types = tuple[DataType, ...]
Options = tuple[Any, ...]


def number(name: str, position: int, type_: DataType) -> DataType:
    """Return the numeric type an argument is computed in (INT in BIGINT), or refuse it."""
    if type_.is_integer or type_ == NULL:
        return BIGINT
    if not type_.is_numeric:
        refuse_argument(name, position, type_, "a number", "cast it, as in CAST(x AS DOUBLE)" if type_ == TEXT else None)
    return type_


def absolute(name: str, types: Types, options: Options) -> Signature:
    """ABS keeps the type (INT becomes BIGINT); also of an INTERVAL."""
    expect_count(name, types, 1, 1)
    type_ = INTERVAL if types[0] == INTERVAL else number(name, 0, types[0])
    return Signature(name, (type_,), type_)


def sign(name: str, types: Types, options: Options) -> Signature:
    """SIGN is -1, 0 or 1: an INT, of a DOUBLE a DOUBLE (NaN stays NaN)."""
    expect_count(name, types, 1, 1)
    type_ = number(name, 0, types[0])
    return Signature(name, (type_,), DOUBLE if type_ == DOUBLE else INT)


def rounding(name: str, types: Types, options: Options) -> Signature:
    """ROUND and TRUNC (x [, digits]), FLOOR and CEIL (x). DECIMAL gives DECIMAL.

    Options hold the digits when they are a constant: then the scale of a DECIMAL result is that many digits (never more than it had).
    """
    digits_allowed = name in ("round", "trunc")
    expect_count(name, types, 1, 2 if digits_allowed else 1)
    type_ = number(name, 0, types[0])
    arguments: Types = (type_,)
    if len(types) == 2:
        if not (types[1].is_integer or types[1] == NULL):
            refuse_argument(name, 1, types[1], "a whole number of digits")
        arguments = (type_, BIGINT)
    if type_.kind is not Kind.DECIMAL:
        return Signature(name, arguments, type_, options)
    scale = 0
    if len(types) == 2:
        scale = min(type_.scale, max(0, int(options[0]))) if options and options[0] is not None else type_.scale
    return Signature(name, arguments, capped_decimal(integer_digits(type_) + (name != "trunc"), scale), options)


def modulo(name: str, types: Types, options: Options) -> Signature:
    """MOD(a, b) is a % b."""
    expect_count(name, types, 2, 2)
    return arithmetic("%", types, options)


def floating(least: int) -> Rule:
    """Return the rule of a function of `least` numbers that computes in DOUBLE."""

    def rule(name: str, types: Types, options: Options) -> Signature:
        expect_count(name, types, least, least)
        for i, type_ in enumerate(types):
            number(name, i, type_)
        return Signature(name, (DOUBLE,) * least, DOUBLE)

    return rule


def logarithm(name: str, types: Types, options: Options) -> Signature:
    """LOG(x) is base 10, LOG(base, x) any base."""
    expect_count(name, types, 1, 2)
    for i, type_ in enumerate(types):
        number(name, i, type_)
    return Signature("log10" if len(types) == 1 else "log", (DOUBLE,) * len(types), DOUBLE)


def float_test(name: str, types: Types, options: Options) -> Signature:
    """ISNAN, ISINF, ISFINITE."""
    expect_count(name, types, 1, 1)
    number(name, 0, types[0])
    return Signature(name, (DOUBLE,), BOOLEAN)


def constant_pi(name: str, types: Types, options: Options) -> Signature:
    """PI()."""
    expect_count(name, types, 0, 0)
    return Signature(name, (), DOUBLE)


def coalesce(name: str, types: Types, options: Options) -> Signature:
    """The first argument that is not NULL, in the type where all meet."""
    expect_count(name, types, 1)
    common = all_in_common(name, types)
    return Signature("coalesce", tuple(common for _ in types), common)


def extreme(name: str, types: Types, options: Options) -> Signature:
    """GREATEST and LEAST: NULLs are passed over, NULL only when all are (as in PostgreSQL)."""
    expect_count(name, types, 1)
    common = all_in_common(name, types)
    if common.kind is Kind.LIST:
        refuse(name, types, "lists have no order")
    return Signature(name, tuple(common for _ in types), common)


def null_if(name: str, types: Types, options: Options) -> Signature:
    """NULLIF(a, b): a, or NULL where a = b. The result has the type of a."""
    expect_count(name, types, 2, 2)
    common = all_in_common(name, types)
    keeps = types[0].is_numeric and common != DOUBLE
    first = types[0] if keeps and types[0] != NULL else common
    second = types[1] if keeps and types[1] != NULL else common
    return Signature(name, (first, second), first)


def condition(name: str, types: Types, options: Options) -> Signature:
    """IF(condition, then, else)."""
    expect_count(name, types, 3, 3)
    of_kind(name, 0, types[0], BOOLEAN)
    common = all_in_common(name, types[1:])
    return Signature("if", (BOOLEAN, common, common), common)


SCALAR_RULES: dict[str, Rule] = {
    "abs": absolute,
    "sign": sign,
    "round": rounding,
    "trunc": rounding,
    "floor": rounding,
    "ceil": rounding,
    "mod": modulo,
    "power": floating(2),
    "atan2": floating(2),
    **dict.fromkeys(
        ("sqrt", "cbrt", "ln", "log2", "log10", "exp", "sin", "cos", "tan", "asin", "acos", "atan", "degrees", "radians"), floating(1)
    ),
    "log": logarithm,
    **dict.fromkeys(("isnan", "isinf", "isfinite"), float_test),
    "pi": constant_pi,
    "coalesce": coalesce,
    "greatest": extreme,
    "least": extreme,
    "nullif": null_if,
    "if": condition,
}
