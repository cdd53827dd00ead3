"""The registry of operators and scalar functions: a name and argument types to a Signature.

A rule maps argument types to a Signature: first those of the operators, then those of the functions over numbers and any type, then those
over TEXT, whose positions and lengths count code points, the first being 1. Dates have a file of their own (`date_rules.py`). The binder
normally uses `build.call`, which also turns constants into options, casts the arguments and makes the `Call`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.engine.data.errors import UnknownName
from millstream.engine.data.nearest import did_you_mean
from millstream.engine.data.types import BIGINT, BOOLEAN, BYTES, DATE, DOUBLE, INT, INTERVAL, NULL, TEXT, TIME, TIMESTAMP, DataType, Kind
from millstream.engine.expressions.date_rules import DATE_RULES
from millstream.engine.expressions.lists import LIST_RULES
from millstream.engine.expressions.signature import (
    Rule,
    Signature,
    all_in_common,
    as_decimal,
    capped_decimal,
    expect_count,
    integer_digits,
    of_kind,
    product_type,
    quotient_type,
    refuse,
    refuse_argument,
    remainder_type,
    sum_type,
)

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
    ("+", Kind.TIME, Kind.INTERVAL): ((TIME, INTERVAL), TIME),
    ("+", Kind.INTERVAL, Kind.TIME): ((INTERVAL, TIME), TIME),
    ("-", Kind.TIME, Kind.INTERVAL): ((TIME, INTERVAL), TIME),
    ("-", Kind.TIME, Kind.TIME): ((TIME, TIME), INTERVAL),
    ("+", Kind.DATE, Kind.TIME): ((TIMESTAMP, INTERVAL), TIMESTAMP),
    ("+", Kind.TIME, Kind.DATE): ((INTERVAL, TIMESTAMP), TIMESTAMP),
}


def arithmetic(name: str, types: Types, options: Options) -> Signature:
    """`+ - * / %` on numbers, instants, dates, times of day and intervals."""
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
    if other.kind in (Kind.TIMESTAMP, Kind.DATE, Kind.TIME):
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
    if not common.is_ordered and name not in ("=", "<>", "in", "is_distinct_from", "is_not_distinct_from"):
        refuse(name, types, f"values of the type {common} have no order; compare their parts")
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
    if BYTES in types:
        return of_bytes(name, types, options)
    if TEXT not in types and any(t != NULL for t in types):
        refuse(name, types[:2], "one side of || must be TEXT; cast it, as in CAST(x AS TEXT)")
    if any(t.is_nested for t in types):
        refuse(name, types[:2], "write CAST(x AS TEXT) to join its JSON form to text")
    return Signature(name, tuple(TEXT for _ in types), TEXT)


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
    """GREATEST and LEAST, also of the elements of one list: NULLs are passed over, NULL only when all are (as in PostgreSQL)."""
    expect_count(name, types, 1)
    if len(types) == 1 and types[0].kind is Kind.LIST:
        return of_formats(f"list_{name}", types, options)
    common = all_in_common(name, types)
    if not common.is_ordered:
        refuse(name, types, f"values of the type {common} have no order; compare their parts")
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


def texts(result: DataType, least: int, most: int | None = None, *, integers: frozenset[int] = frozenset()) -> Rule:
    """Return the rule of a function of `least` to `most` TEXT arguments, integers at the given positions."""

    def rule(name: str, types: Types, options: Options) -> Signature:
        expect_count(name, types, least, least if most is None else most)
        arguments = tuple(_whole(name, i, t) if i in integers else of_kind(name, i, t, TEXT) for i, t in enumerate(types))
        return Signature(name, arguments, result, options)

    return rule


def texts_or_bytes(result: DataType, least: int, most: int | None = None, *, integers: frozenset[int] = frozenset()) -> Rule:
    """Return the rule of a function that BYTES have, too."""
    of_texts = texts(result, least, most, integers=integers)
    return lambda name, types, options: (of_bytes if types[:1] == (BYTES,) else of_texts)(name, types, options)


def _whole(name: str, position: int, type_: DataType) -> DataType:
    if not (type_.is_integer or type_ == NULL):
        refuse_argument(name, position, type_, "a whole number")
    return BIGINT


def joined(name: str, types: Types, options: Options) -> Signature:
    """CONCAT(a, …) and CONCAT_WS(separator, a, …): arguments of any type are written as text, NULLs passed over."""
    expect_count(name, types, 1 if name == "concat" else 2)
    for i, type_ in enumerate(types):
        if type_.is_nested:
            refuse_argument(name, i, type_, "a plain value", "write CAST(x AS TEXT) for its JSON form")
    if name == "concat_ws":
        of_kind(name, 0, types[0], TEXT)
    return Signature(name, tuple(TEXT for _ in types), TEXT)


def character(name: str, types: Types, options: Options) -> Signature:
    """CHR(code point)."""
    expect_count(name, types, 1, 1)
    return Signature(name, (_whole(name, 0, types[0]),), TEXT)


def split_part(name: str, types: Types, options: Options) -> Signature:
    """SPLIT_PART(text, delimiter, n)."""
    return texts(TEXT, 3, integers=frozenset((2,)))(name, types, options)


TEXT_RULES: dict[str, Rule] = {
    **dict.fromkeys(("upper", "lower", "initcap", "reverse"), texts(TEXT, 1)),
    **dict.fromkeys(("trim", "ltrim", "rtrim"), texts(TEXT, 1, 2)),
    "substring": texts_or_bytes(TEXT, 2, 3, integers=frozenset((1, 2))),
    "left": texts(TEXT, 2, integers=frozenset((1,))),
    "right": texts(TEXT, 2, integers=frozenset((1,))),
    "repeat": texts(TEXT, 2, integers=frozenset((1,))),
    "lpad": texts(TEXT, 2, 3, integers=frozenset((1,))),
    "rpad": texts(TEXT, 2, 3, integers=frozenset((1,))),
    "length": texts_or_bytes(BIGINT, 1),
    "octet_length": texts_or_bytes(BIGINT, 1),
    "ascii": texts(BIGINT, 1),
    "chr": character,
    "replace": texts(TEXT, 3),
    "translate": texts(TEXT, 3),
    "strpos": texts(BIGINT, 2),
    "position": texts(BIGINT, 2),
    "split_part": split_part,
    "starts_with": texts(BOOLEAN, 2),
    "ends_with": texts(BOOLEAN, 2),
    "contains": texts(BOOLEAN, 2),
    "regexp_like": texts(BOOLEAN, 2, 3),
    "regexp_replace": texts(TEXT, 3, 4),
    "regexp_extract": texts(TEXT, 2, 3, integers=frozenset((2,))),
    "concat": joined,
    "concat_ws": joined,
}


NESTED_NAMES = ("array", "struct", "map", "part", "array_element", "map_keys", "map_values", "array_concat")
BYTE_NAMES = (
    *("to_bytes", "decode", "convert_to", "from_bytes", "encode", "convert_from", "get_byte"),
    *("md5", "sha1", "sha224", "sha256", "sha384", "sha512"),
)
FORMAT_NAMES = (
    *("strftime", "strptime", "parse_timestamp", "split", "width_bucket", "date_bin", "time_bucket", "div", "list_greatest", "list_least"),
    *("url_encode_param", "url_decode_param", "url_extract_fragment", "url_extract_host", "url_extract_parameter", "url_extract_path"),
    *("url_extract_port", "url_extract_protocol", "url_extract_query"),
)
ENCODING_NAMES = BYTE_NAMES[:6]  # whose second argument is a constant
JSON_NAMES = ("->", "->>", "#>", "#>>", "json_value", "json_query", "json_array_length", "json_typeof")


def nested(name: str, types: Types, options: Options) -> Signature:
    """Constructors of nested values and steps into them: few queries have any, so their file is loaded by those."""
    from millstream.engine.expressions.nested import NESTED_RULES

    return NESTED_RULES[name](name, types, options)


def json(name: str, types: Types, options: Options) -> Signature:
    """Steps into JSON, likewise."""
    from millstream.engine.expressions.json_functions import JSON_RULES

    return JSON_RULES[name](name, types, options)


def of_bytes(name: str, types: Types, options: Options) -> Signature:
    """Functions over BYTES, likewise."""
    from millstream.engine.expressions.byte_functions import BYTE_RULES

    return BYTE_RULES[name](name, types, options)


def of_formats(name: str, types: Types, options: Options) -> Signature:
    """Functions of texts of a written form, and of buckets, likewise."""
    from millstream.engine.expressions.text_formats import FORMAT_RULES

    return FORMAT_RULES[name](name, types, options)


RULES: dict[str, Rule] = {
    **OPERATOR_RULES,
    **SCALAR_RULES,
    **TEXT_RULES,
    **DATE_RULES,
    **LIST_RULES,
    **dict.fromkeys(NESTED_NAMES, nested),
    **dict.fromkeys(JSON_NAMES, json),
    **dict.fromkeys(BYTE_NAMES, of_bytes),
    **dict.fromkeys(FORMAT_NAMES, of_formats),
}

ALIASES: dict[str, str] = {
    "string_split": "split", "str_split": "split", "string_to_array": "split", "array_max": "greatest", "array_min": "least",
    "list_max": "greatest", "list_min": "least",
    "array_length": "cardinality", "list_contains": "array_contains", "array_cat": "array_concat", "list_concat": "array_concat",
    "size": "cardinality", "array_size": "cardinality", "element_at": "array_element",
    "jsonb_array_length": "json_array_length", "jsonb_typeof": "json_typeof",
    "!=": "<>", "==": "=", "add": "+", "subtract": "-", "multiply": "*", "divide": "/",
    "char_length": "length", "character_length": "length", "len": "length", "ceiling": "ceil", "pow": "power", "substr": "substring",
    "upper_case": "upper", "ucase": "upper", "lcase": "lower", "btrim": "trim", "instr": "strpos", "truncate": "trunc",
    "startswith": "starts_with", "endswith": "ends_with", "prefix": "starts_with", "suffix": "ends_with",
    "ifnull": "coalesce", "nvl": "coalesce", "iif": "if", "is_nan": "isnan", "is_inf": "isinf", "is_finite": "isfinite",
    "regexp_matches": "regexp_like", "rlike": "regexp_like", "regexp": "regexp_like", "datepart": "extract", "datetrunc": "date_trunc",
    "from_unixtime": "to_timestamp", "log_10": "log10", "log_2": "log2", "sgn": "sign", "watermark": "current_watermark",
}  # fmt: skip


def is_function(name: str) -> bool:
    """Tell whether a scalar function or operator of that name (any case) exists."""
    lowered = name.lower()
    return ALIASES.get(lowered, lowered) in RULES


def function_names() -> tuple[str, ...]:
    """Return the names of all scalar functions, sorted, without operators and aliases (documentation, completion)."""
    return tuple(sorted(name for name in RULES if name[0].isalpha() and name not in OPERATOR_RULES))


def callable_names() -> tuple[str, ...]:
    """Return what people write before a parenthesis: the names of all scalar functions, and their aliases."""
    return (*function_names(), *(alias for alias, name in ALIASES.items() if name[0].isalpha()))


def resolve(name: str, argument_types: Sequence[DataType], options: Sequence[Any] = ()) -> Signature:
    """Return the signature of a call; UnknownName when there is no such function, TypeProblem when the arguments do not fit.

    `options` are constants that belong to the function: the field of EXTRACT and DATE_TRUNC (and a zone after it), the escape
    character of LIKE, the constant digits of ROUND. `build.call` finds them among literal arguments.
    """
    lowered = name.lower()
    lowered = ALIASES.get(lowered, lowered)
    rule = RULES.get(lowered)
    if rule is None:
        near = did_you_mean(lowered.upper(), [known.upper() for known in callable_names()])
        raise UnknownName(f"there is no function {name.upper()}", hint=near)
    return rule(lowered, tuple(argument_types), tuple(options))
