"""Typed expressions from untyped calls: what the binder uses. `call`, `cast`, `case` check types and cast arguments.

Constants are converted here and not at run time: a number beside a DOUBLE, DECIMAL or BIGINT takes its type, a text beside an
instant, date or interval is read as one (`ts > '2024-05-06'`). Text beside a number is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.engine.data.calendar import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, US_PER_DAY
from millstream.engine.data.errors import TypeProblem
from millstream.engine.data.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    JSON,
    NULL,
    TEXT,
    TIME,
    TIMESTAMP,
    DataType,
    Kind,
    decimal,
)
from millstream.engine.expressions.functions import ALIASES, ENCODING_NAMES, resolve
from millstream.engine.expressions.ir import Call, Case, Cast, Expression, Literal
from millstream.engine.expressions.signature import common_type_of_all
from millstream.engine.expressions.values import parse_value

TEMPORAL_KINDS = (Kind.TIMESTAMP, Kind.DATE, Kind.TIME, Kind.INTERVAL)
ARITHMETIC = ("+", "-", "*", "/", "%", "mod")
# Functions in which a text constant takes the type of a temporal argument or one of BYTES beside it.
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "is_distinct_from", "is_not_distinct_from")
MIXING = frozenset((*COMPARISONS, "between", "in", "coalesce", "greatest", "least", "nullif"))
JSON_STEPS = ("->", "->>", "#>", "#>>")
PATTERNED = frozenset(("to_char", "to_timestamp", "parse_timestamp", "strftime", "strptime"))
LEADING_OPTIONS = frozenset(("extract", "date_part", "date_trunc"))

# Source kind -> kinds that CAST can make of it; every kind casts to itself, NULL to anything, anything to TEXT.
_CASTS: dict[Kind, frozenset[Kind]] = {
    Kind.BOOLEAN: frozenset((Kind.INT, Kind.BIGINT)),
    Kind.INT: frozenset((Kind.BOOLEAN, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL)),
    Kind.BIGINT: frozenset((Kind.BOOLEAN, Kind.INT, Kind.DOUBLE, Kind.DECIMAL)),
    Kind.DOUBLE: frozenset((Kind.INT, Kind.BIGINT, Kind.DECIMAL)),
    Kind.DECIMAL: frozenset((Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL)),
    Kind.TEXT: frozenset(
        (Kind.BOOLEAN, Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL, Kind.BYTES, *TEMPORAL_KINDS)
    ),
    Kind.TIMESTAMP: frozenset((Kind.DATE, Kind.TIME)),
    Kind.DATE: frozenset((Kind.TIMESTAMP,)),
    Kind.TIME: frozenset((Kind.INTERVAL,)),
    Kind.INTERVAL: frozenset((Kind.TIME,)),
}  # fmt: skip


def integer_literal(value: int) -> Literal:
    """Return the constant a run of digits stands for: INT when it fits, else BIGINT, else DECIMAL(n, 0); TypeProblem beyond 38 digits."""
    if INT32_MIN <= value <= INT32_MAX:
        return Literal(INT, value)
    if INT64_MIN <= value <= INT64_MAX:
        return Literal(BIGINT, value)
    digits = len(str(abs(value)))
    if digits > 38:
        raise TypeProblem(f"the number {value} has more than 38 digits")
    return Literal(decimal(digits, 0), value)


def castable(source: DataType, target: DataType) -> bool:
    """Tell whether CAST is defined between two types."""
    if source in (target, NULL) or target == TEXT or Kind.JSON in (source.kind, target.kind):
        return True
    if source.is_nested and target.is_nested:
        return _castable_parts(source, target)
    if target.is_nested:
        return source == TEXT
    return target.kind in _CASTS.get(source.kind, frozenset())


def _castable_parts(source: DataType, target: DataType) -> bool:
    """Whether each part of a nested type can become the part of another that stands in its place."""
    if source.kind is not target.kind or len(source.fields) != len(target.fields):
        return False
    if source.element is not None and target.element is not None:
        return castable(source.element, target.element)
    return all(castable(one, other) for (_, one), (_, other) in zip(source.fields, target.fields, strict=True))


def cast(argument: Expression, target: DataType, quiet: bool = False) -> Expression:
    """Return CAST(argument AS target), `quiet` for TRY_CAST; TypeProblem when the types have nothing to do with each other."""
    if argument.type == target:
        return argument
    if not castable(argument.type, target):
        raise TypeProblem(f"{argument.type} cannot be cast to {target}", hint=_cast_hint(argument.type, target))
    if isinstance(argument, Literal):
        converted = convert_literal(argument, target)
        if converted is not None:
            return converted
    return Cast(target, argument, quiet)


def _cast_hint(source: DataType, target: DataType) -> str | None:
    if source.is_nested or target.is_nested:
        return "a nested value is cast part by part, or by way of JSON: CAST(CAST(x AS JSON) AS …)"
    if source.is_numeric and target == TIMESTAMP:
        return "use TO_TIMESTAMP(seconds)"
    if source == TIMESTAMP and target.is_numeric:
        return "use EXTRACT(EPOCH FROM ts)"
    if INTERVAL in (source, target) and (source.is_numeric or target.is_numeric):
        return "use EXTRACT(EPOCH FROM i), or n * INTERVAL '1 second'"
    if target == BYTES:
        return "use TO_BYTES(CAST(x AS TEXT), 'utf8')"
    return None


def convert_literal(literal: Literal, target: DataType) -> Literal | None:
    """Return the same constant in another type when that loses nothing (or is the nearest DOUBLE), else None."""
    value, source = literal.value, literal.type
    if value is None:
        return Literal(target, None)
    if source.is_integer and target.is_integer:
        fits = target == BIGINT or INT32_MIN <= value <= INT32_MAX
        return Literal(target, value) if fits else None
    if target == DOUBLE and (source.is_integer or source.kind is Kind.DECIMAL):
        return Literal(DOUBLE, int(value) / 10**source.scale)
    if target.kind is Kind.DECIMAL and (source.is_integer or source.kind is Kind.DECIMAL) and target.scale >= source.scale:
        scaled = int(value) * 10 ** (target.scale - source.scale)
        return Literal(target, scaled) if abs(scaled) < 10**target.precision else None
    if source == DATE and target == TIMESTAMP and abs(value) < INT64_MAX // US_PER_DAY:
        return Literal(TIMESTAMP, value * US_PER_DAY)
    return None


def call(name: str, arguments: Sequence[Expression], options: Sequence[Any] = ()) -> Call:
    """Return the typed call of an operator or scalar function, arguments cast as its signature asks.

    `EXTRACT` and `DATE_TRUNC` take their field (and zone) as options, or as leading text constants; LIKE its ESCAPE as an option or a third
    argument. UnknownName and TypeProblem as `functions.resolve` raises them.
    """
    lowered = name.lower()
    lowered = ALIASES.get(lowered, lowered)
    operands, chosen = _options_from_constants(lowered, list(arguments), tuple(options))
    operands = _adapt_constants(lowered, operands)
    signature = resolve(lowered, [a.type for a in operands], chosen)
    cast_operands = tuple(cast(a, t) for a, t in zip(operands, signature.arguments, strict=True))
    return Call(signature.result, signature.name, cast_operands, signature.options)


def _options_from_constants(name: str, arguments: list[Expression], options: tuple[Any, ...]) -> tuple[list[Expression], tuple[Any, ...]]:
    if name in LEADING_OPTIONS and not options and len(arguments) > 1 and isinstance(arguments[0], Literal):
        zone = arguments[2].value if len(arguments) == 3 and isinstance(arguments[2], Literal) else None
        return arguments[1:2] if zone is not None else arguments[1:], (arguments[0].value, zone)
    if name in JSON_STEPS:
        return _json_steps(name, arguments)
    if name in ("json_value", "json_query") and not options and len(arguments) == 2:
        path = arguments[1]
        if not isinstance(path, Literal) or path.type != TEXT or path.value is None:
            raise TypeProblem(f"the path of {name.upper()} must be a constant text", hint="write '$.name' or '$.list[0].name'")
        return arguments[:1], (path.value,)
    if name == "cardinality" and len(arguments) == 2 and arguments[1] == Literal(INT, 1):
        return arguments[:1], options
    if name in PATTERNED and not options and len(arguments) > 1:
        texts = [a.value for a in arguments[1:] if isinstance(a, Literal) and a.type == TEXT]
        return (arguments[:1], tuple(texts)) if len(texts) == len(arguments) - 1 else (arguments, ())
    if name in ENCODING_NAMES and not options and len(arguments) == 2 and isinstance(arguments[1], Literal) and arguments[1].type == TEXT:
        return arguments[:1], (arguments[1].value,)
    if name in ("like", "ilike") and len(arguments) == 3 and isinstance(arguments[2], Literal):
        return arguments[:2], (arguments[2].value,)
    if name in ("round", "trunc") and len(arguments) == 2 and isinstance(arguments[1], Literal) and arguments[1].type.is_integer:
        return arguments, (arguments[1].value,)
    return arguments, options


def _json_steps(name: str, arguments: list[Expression]) -> tuple[list[Expression], tuple[Any, ...]]:
    """Return the document and all steps from it on: a step from the end of another call's path goes on with that."""
    from millstream.engine.expressions.json_functions import steps_of_braces

    document, key = arguments
    if not isinstance(key, Literal) or key.value is None:
        raise TypeProblem(f"the step behind {name} must be a constant", hint="write j -> 'name' or j -> 0")
    if name.startswith("#"):
        steps = steps_of_braces(str(key.value))
    elif key.type != TEXT and not key.type.is_integer:
        raise TypeProblem(f"the step behind {name} is a name or a place, not {key.type}", hint="write j -> 'name' or j -> 0")
    else:
        steps = (key.value,)
    if isinstance(document, Call) and document.function == "json_get" and document.type == JSON:
        return [document.arguments[0]], ((*document.options[0], *steps),)
    return [document], (steps,)


def _adapt_constants(name: str, arguments: list[Expression]) -> list[Expression]:
    """Let constants take the type of what stands beside them."""
    types = [a.type for a in arguments]
    if name in ARITHMETIC and any(t.kind is Kind.DECIMAL for t in types):
        arguments = [_narrow_decimal(a) for a in arguments]
    if name in ("+", "-") and any(t.kind in TEMPORAL_KINDS for t in types):
        arguments = [_read_text(a, (INTERVAL, TIME if TIME in types else TIMESTAMP)) for a in arguments]
    if name in MIXING:
        beside = common_type_of_all([t for t in types if t != TEXT])
        if beside is not None and (beside.kind in TEMPORAL_KINDS or beside == BYTES):
            wanted = (DATE, TIMESTAMP) if beside == DATE else (beside,)
            arguments = [_read_text(a, wanted) for a in arguments]
    return arguments


def _narrow_decimal(argument: Expression) -> Expression:
    """A whole constant beside a DECIMAL is a DECIMAL of as many digits as it has, so that the result does not grow without need."""
    if isinstance(argument, Literal) and argument.type.is_integer and argument.value is not None:
        return Literal(decimal(len(str(abs(argument.value))), 0), argument.value)
    return argument


def _read_text(argument: Expression, targets: tuple[DataType, ...]) -> Expression:
    """Read a text constant as the first of the types it fits."""
    if not isinstance(argument, Literal) or argument.type != TEXT or argument.value is None:
        return argument
    problem = ""
    for target in targets:
        try:
            return Literal(target, parse_value(argument.value, target))
        except ValueError as error:
            problem = problem or str(error)
    raise TypeProblem(problem)


def text_constant(text: str, target: DataType) -> Literal:
    """Return `TIMESTAMP '…'`, `DATE '…'`, `INTERVAL '…'` and the like as a constant; TypeProblem when the text does not fit."""
    try:
        return Literal(target, parse_value(text, target))
    except ValueError as error:
        raise TypeProblem(str(error)) from error


def case(branches: Sequence[tuple[Expression, Expression]], otherwise: Expression | None = None) -> Expression:
    """Return CASE WHEN … THEN … [ELSE …] END in the type where all results meet; conditions must be BOOLEAN."""
    results = [v for _, v in branches] + [otherwise if otherwise is not None else Literal(NULL, None)]
    common = common_type_of_all([r.type for r in results])
    if common is None:
        shown = ", ".join(dict.fromkeys(str(r.type) for r in results if r.type != NULL))
        raise TypeProblem(f"the results of CASE have types that do not meet: {shown}", hint="cast them to one type")
    for condition, _ in branches:
        if condition.type not in (BOOLEAN, NULL):
            raise TypeProblem(f"a condition of CASE is {condition.type}, it must be BOOLEAN")
    built = tuple((cast(c, BOOLEAN), cast(v, common)) for c, v in branches)
    return Case(common, built, cast(results[-1], common))


def conjuncts(condition: Expression) -> list[Expression]:
    """Return the conditions that AND joins."""
    if isinstance(condition, Call) and condition.function == "and":
        return [part for argument in condition.arguments for part in conjuncts(argument)]
    return [condition]


def conjunction(conditions: list[Expression]) -> Expression | None:
    """Return the conditions joined by AND; None for none."""
    if not conditions:
        return None
    return conditions[0] if len(conditions) == 1 else call("and", conditions)
