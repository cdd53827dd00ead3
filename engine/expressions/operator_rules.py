"""Types of the operators: arithmetic, comparison, logic, pattern matching. Each rule maps argument types to a Signature."""

from __future__ import annotations

from typing import Any

from millstream.engine.data.types import BIGINT, BOOLEAN, DATE, DOUBLE, INTERVAL, NULL, TEXT, TIMESTAMP, DataType, Kind
from millstream.engine.expressions.coercion import as_decimal, common_type, product_type, quotient_type, remainder_type, sum_type
from millstream.engine.expressions.signature import Rule, Signature, all_in_common, expect_count, of_kind, refuse, refuse_argument

Types = tuple[DataType, ...]
Options = tuple[Any, ...]

# Operand kinds of temporal arithmetic -> (types to cast to, result). Arithmetic between numbers is computed in _numbers.
TEMPORAL: dict[tuple[str, Kind, Kind], tuple[Types, DataType]] = {
    ("+", Kind.TIMESTAMP, Kind.INTERVAL): ((TIMESTAMP, INTERVAL), TIMESTAMP),
    ("+", Kind.INTERVAL, Kind.TIMESTAMP): ((INTERVAL, TIMESTAMP), TIMESTAMP),
    ("-", Kind.TIMESTAMP, Kind.INTERVAL): ((TIMESTAMP, INTERVAL), TIMESTAMP),
    ("+", Kind.DATE, Kind.INTERVAL): ((TIMESTAMP, INTERVAL), TIMESTAMP),
    ("+", Kind.INTERVAL, Kind.DATE): ((INTERVAL, TIMESTAMP), TIMESTAMP),
    ("-", Kind.DATE, Kind.INTERVAL): ((TIMESTAMP, INTERVAL), TIMESTAMP),
    ("-", Kind.TIMESTAMP, Kind.TIMESTAMP): ((TIMESTAMP, TIMESTAMP), INTERVAL),
    ("-", Kind.TIMESTAMP, Kind.DATE): ((TIMESTAMP, TIMESTAMP), INTERVAL),
    ("-", Kind.DATE, Kind.TIMESTAMP): ((TIMESTAMP, TIMESTAMP), INTERVAL),
    ("-", Kind.DATE, Kind.DATE): ((DATE, DATE), BIGINT),
    ("+", Kind.INTERVAL, Kind.INTERVAL): ((INTERVAL, INTERVAL), INTERVAL),
    ("-", Kind.INTERVAL, Kind.INTERVAL): ((INTERVAL, INTERVAL), INTERVAL),
    ("%", Kind.INTERVAL, Kind.INTERVAL): ((INTERVAL, INTERVAL), INTERVAL),
}


def arithmetic(name: str, types: Types, options: Options) -> Signature:
    """`+ - * / %` on numbers, instants, dates and intervals."""
    expect_count(name, types, 2, 2)
    left, right = types
    if NULL in types:
        left, right = _null_operand(left, right, name)
    if left.is_numeric and right.is_numeric:
        return _numbers(name, left, right)
    temporal = TEMPORAL.get((name, left.kind, right.kind)) or _scaled(name, left, right)
    if temporal is None:
        text = TEXT in types and name in ("+", "-", "*", "/", "%")
        refuse(name, types, "join texts with ||, or cast to a number" if text else None)
    return Signature(name, temporal[0], temporal[1])


def _null_operand(left: DataType, right: DataType, name: str) -> Types:
    """Give a bare NULL the type that makes the operator defined."""
    if left == NULL and right == NULL:
        return BIGINT, BIGINT
    other = right if left == NULL else left
    if other.kind in (Kind.TIMESTAMP, Kind.DATE):
        other = INTERVAL
    elif other.kind is Kind.INTERVAL and name in ("*", "/"):
        other = BIGINT
    return (other, right) if left == NULL else (left, other)


def _numbers(name: str, left: DataType, right: DataType) -> Signature:
    if Kind.DOUBLE in (left.kind, right.kind):
        return Signature(name, (DOUBLE, DOUBLE), DOUBLE)
    if left.is_integer and right.is_integer:
        return Signature(name, (BIGINT, BIGINT), BIGINT)
    a, b = as_decimal(left), as_decimal(right)
    if name in ("+", "-"):
        return Signature(name, (a, b), sum_type(a, b))
    if name == "/":
        return Signature(name, (a, b), quotient_type(a, b))
    if name == "%":
        return Signature(name, (a, b), remainder_type(a, b))
    product = product_type(a, b)
    if product is None:
        refuse(name, (left, right), f"its scale {a.scale + b.scale} passes 38; cast one side to fewer digits")
    return Signature(name, (a, b), product)


def _scaled(name: str, left: DataType, right: DataType) -> tuple[Types, DataType] | None:
    """INTERVAL times or divided by a number; DATE plus or minus whole days."""
    if left == INTERVAL and right.is_numeric and name in ("*", "/"):
        return (INTERVAL, BIGINT if right.is_integer else DOUBLE), INTERVAL
    if right == INTERVAL and left.is_numeric and name == "*":
        return (BIGINT if left.is_integer else DOUBLE, INTERVAL), INTERVAL
    if left == DATE and right.is_integer and name in ("+", "-"):
        return (DATE, BIGINT), DATE
    if right == DATE and left.is_integer and name == "+":
        return (BIGINT, DATE), DATE
    return None


def negation(name: str, types: Types, options: Options) -> Signature:
    """Unary minus: integers in BIGINT, the others keep their type."""
    expect_count(name, types, 1, 1)
    type_ = BIGINT if types[0].is_integer or types[0] == NULL else types[0]
    if not type_.is_numeric and type_ != INTERVAL:
        refuse_argument("-", 0, types[0], "a number or an INTERVAL")
    return Signature(name, (type_,), type_)


def comparison(name: str, types: Types, options: Options) -> Signature:
    """`= <> < <= > >=` and IS [NOT] DISTINCT FROM. Exact numbers of different types stay as they are and compare by value."""
    expect_count(name, types, 2, 2)
    return Signature(name, _compared(name, types), BOOLEAN)


def _compared(name: str, types: Types) -> Types:
    common = all_in_common(name, types)
    if common.kind is Kind.LIST and name not in ("=", "<>", "is_distinct_from", "is_not_distinct_from"):
        refuse(name, types, "lists have no order")
    if common.is_numeric and common != DOUBLE:
        return tuple(common if t == NULL else t for t in types)
    return tuple(common for _ in types)


def logic(name: str, types: Types, options: Options) -> Signature:
    """AND and OR, of two or more conditions."""
    expect_count(name, types, 2)
    return Signature(name, tuple(of_kind(name, i, t, BOOLEAN) for i, t in enumerate(types)), BOOLEAN)


def truth(name: str, types: Types, options: Options) -> Signature:
    """NOT, IS TRUE, IS FALSE, IS UNKNOWN and their negations."""
    expect_count(name, types, 1, 1)
    return Signature(name, (of_kind(name, 0, types[0], BOOLEAN),), BOOLEAN)


def null_test(name: str, types: Types, options: Options) -> Signature:
    """IS NULL and IS NOT NULL, of anything."""
    expect_count(name, types, 1, 1)
    return Signature(name, types, BOOLEAN)


def between(name: str, types: Types, options: Options) -> Signature:
    """`x BETWEEN low AND high`, both ends included; arguments (x, low, high)."""
    expect_count(name, types, 3, 3)
    return Signature(name, _compared(name, types), BOOLEAN)


def membership(name: str, types: Types, options: Options) -> Signature:
    """`x IN (a, b, …)`; arguments (x, a, b, …)."""
    expect_count(name, types, 2)
    return Signature(name, _compared(name, types), BOOLEAN)


def pattern(name: str, types: Types, options: Options) -> Signature:
    """LIKE and ILIKE; arguments (text, pattern), option the escape character (absent: backslash; '': none)."""
    expect_count(name, types, 2, 2)
    escape = str(options[0]) if options else "\\"
    if len(escape) > 1:
        refuse(name, types, "ESCAPE takes one character")
    return Signature(name, tuple(of_kind(name, i, t, TEXT) for i, t in enumerate(types)), BOOLEAN, (escape,))


def concatenation(name: str, types: Types, options: Options) -> Signature:
    """`||`: NULL when any side is NULL; a side that is not TEXT is written as text, but one must be TEXT."""
    expect_count(name, types, 2)
    if TEXT not in types and any(t != NULL for t in types):
        refuse(name, types[:2], "one side of || must be TEXT; cast it, as in CAST(x AS TEXT)")
    if any(t.kind is Kind.LIST for t in types):
        refuse(name, types[:2], "lists cannot be joined to text")
    return Signature(name, tuple(TEXT for _ in types), TEXT)


def comparable(left: DataType, right: DataType) -> bool:
    """Tell whether `=` is defined between the two types."""
    return common_type(left, right) is not None


def bitwise(name: str, types: Types, options: Options) -> Signature:
    """`& | #` of integers."""
    expect_count(name, types, 2, 2)
    if not all(t.is_integer or t == NULL for t in types):
        refuse(name, types, "the bits are those of integers")
    return Signature(name, (BIGINT, BIGINT), BIGINT)


OPERATOR_RULES: dict[str, Rule] = {
    **dict.fromkeys(("+", "-", "*", "/", "%"), arithmetic),
    **dict.fromkeys(("&", "|", "#"), bitwise),
    "neg": negation,
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "is_distinct_from", "is_not_distinct_from"), comparison),
    "and": logic,
    "or": logic,
    **dict.fromkeys(("not", "is_true", "is_false", "is_unknown", "is_not_true", "is_not_false", "is_not_unknown"), truth),
    "is_null": null_test,
    "is_not_null": null_test,
    "between": between,
    "in": membership,
    "like": pattern,
    "ilike": pattern,
    "||": concatenation,
}
