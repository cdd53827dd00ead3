"""What can be said without data: between which integers an expression lies, and whether it can ever fail (K8).

The bounds are those of the types and constants, so `int_column + 1` is known not to leave BIGINT and needs no check at run time.
"""

from __future__ import annotations

from millstream.engine.data.calendar import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, US_PER_DAY
from millstream.engine.data.types import TEXT, DataType, Kind
from millstream.engine.expressions.ir import Call, Cast, ColumnRef, Expression, Literal, children, walk
from millstream.engine.expressions.patterns import test_of_all_rows

Bounds = tuple[int, int]
INT64_BOUNDS: Bounds = (INT64_MIN, INT64_MAX)
INT32_BOUNDS: Bounds = (INT32_MIN, INT32_MAX)

# Operators and functions that never fail, whatever their operands.
TOTAL = frozenset(
    (
        "=", "<>", "<", "<=", ">", ">=", "is_distinct_from", "is_not_distinct_from", "and", "or", "not", "is_true", "is_false",
        "is_unknown", "is_not_true", "is_not_false", "is_not_unknown", "is_null", "is_not_null", "between", "in", "||", "concat",
        "concat_ws", "upper", "lower", "initcap", "reverse", "trim", "ltrim", "rtrim", "left", "right", "length",
        "octet_length", "ascii", "replace", "translate", "strpos", "position", "starts_with", "ends_with", "contains", "coalesce",
        "greatest", "least", "nullif", "if", "sign", "isnan", "isinf", "isfinite", "pi", "current_watermark", "sampling_weight",
        "cbrt", "atan", "atan2", "arrival", "key_part",
        "degrees", "radians", "&", "|", "#",
    )
)  # fmt: skip
CHEAP = frozenset(("+", "-", "*", "neg", "=", "<>", "<", "<=", ">", ">=", "and", "or", "not", "is_null", "is_not_null", "is_distinct_from"))


def type_bounds(type_: DataType) -> Bounds | None:
    """Return the least and greatest stored integer of a type, None when it is not stored as an integer."""
    match type_.kind:
        case Kind.INT | Kind.DATE:
            return INT32_BOUNDS
        case Kind.BIGINT | Kind.TIMESTAMP | Kind.INTERVAL:
            return INT64_BOUNDS
        case Kind.TIME:
            return 0, US_PER_DAY - 1
        case Kind.DECIMAL:
            limit = 10**type_.precision - 1
            return -limit, limit
    return None


def add_bounds(a: Bounds, b: Bounds) -> Bounds:
    """Return the bounds of a sum."""
    return a[0] + b[0], a[1] + b[1]


def subtract_bounds(a: Bounds, b: Bounds) -> Bounds:
    """Return the bounds of a difference."""
    return a[0] - b[1], a[1] - b[0]


def multiply_bounds(a: Bounds, b: Bounds) -> Bounds:
    """Return the bounds of a product."""
    corners = (a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1])
    return min(corners), max(corners)


COMBINE = {"+": add_bounds, "-": subtract_bounds, "*": multiply_bounds}


def within(inner: Bounds, outer: Bounds) -> bool:
    """Tell whether all of `inner` lies in `outer`."""
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def static_bounds(expression: Expression) -> Bounds | None:
    """Return bounds on the stored integer of an expression of an integer-stored type, cut to its type; None for other types."""
    limits = type_bounds(expression.type)
    if limits is None:
        return None
    found = _unlimited(expression)
    return limits if found is None else (max(found[0], limits[0]), min(found[1], limits[1]))


def _unlimited(expression: Expression) -> Bounds | None:
    """Return the bounds before the type cuts them: what lies outside is an error and NULL."""
    if isinstance(expression, Literal):
        return None if expression.value is None else (int(expression.value), int(expression.value))
    if isinstance(expression, Cast) and expression.argument.type.is_integer and expression.type.is_integer:
        return static_bounds(expression.argument)
    if isinstance(expression, Call) and expression.type.is_integer:
        return _of_call(expression)
    return None


def _of_call(expression: Call) -> Bounds | None:
    parts = [static_bounds(a) for a in expression.arguments]
    combine = COMBINE.get(expression.function)
    if combine is not None and len(parts) == 2 and parts[0] is not None and parts[1] is not None:
        return combine(parts[0], parts[1])
    if expression.function == "neg" and parts[0] is not None:
        return -parts[0][1], -parts[0][0]
    if expression.function in ("length", "strpos", "position"):
        return 0, INT32_MAX
    return None


def may_fail(expression: Expression) -> bool:
    """Tell whether an evaluation can ever record a row error; False means the executor need not look for any."""
    return _fails_itself(expression) or any(may_fail(c) for c in children(expression))


def _fails_itself(expression: Expression) -> bool:
    if isinstance(expression, Cast):
        return not expression.quiet and _cast_fails(expression)
    if not isinstance(expression, Call) or expression.function in TOTAL:
        return False
    kind = expression.type.kind
    if expression.function in COMBINE or expression.function == "neg":
        if kind is Kind.DOUBLE or kind is Kind.TIME:
            return False
        if kind is Kind.DECIMAL:
            return _decimal_may_overflow(expression)
        found, limits = _unlimited(expression), type_bounds(expression.type)
        return found is None or limits is None or not within(found, limits)
    if expression.function in ("/", "%"):
        return not _safe_division(expression)
    if expression.function in ("like", "ilike", "regexp_like"):
        return test_of_all_rows(expression) is None
    if expression.function in ("round", "trunc", "floor", "ceil", "abs"):
        return _rounding_fails(expression)
    return expression.function not in ("extract",) or expression.options[:1] == ("epoch",)


def _decimal_may_overflow(expression: Call) -> bool:
    """A result type that was not cut at 38 digits holds every result."""
    if expression.function == "neg":
        return False
    return expression.type.precision >= 38


def _safe_division(expression: Call) -> bool:
    divisor = expression.arguments[1]
    if not isinstance(divisor, Literal) or divisor.value is None or divisor.value == 0:
        return False
    return not (expression.type.kind is Kind.DECIMAL and expression.type.precision >= 38) and divisor.value != -1


def _rounding_fails(expression: Call) -> bool:
    kind = expression.type.kind
    if kind is Kind.DOUBLE or (kind is Kind.DECIMAL and expression.type.precision < 38):
        return False
    if expression.function == "abs":
        bounds = static_bounds(expression.arguments[0])
        return bounds is None or bounds[0] < -INT64_MAX
    return kind is Kind.DECIMAL or len(expression.arguments) > 1


def _cast_fails(expression: Cast) -> bool:
    source, target = expression.argument.type, expression.type
    if target == TEXT or source == target or source.kind is Kind.NULL or source.kind is Kind.BOOLEAN or target.kind is Kind.BOOLEAN:
        return source == TEXT and target != TEXT
    if target.kind is Kind.DOUBLE:
        return source == TEXT
    if Kind.TIME in (source.kind, target.kind):
        return source == TEXT
    if source.is_integer and target.kind is Kind.BIGINT:
        return False
    if target.kind is Kind.DECIMAL and (source.is_integer or source.kind is Kind.DECIMAL):
        digits = {Kind.INT: 10, Kind.BIGINT: 19}.get(source.kind, source.precision - source.scale)
        return target.precision - target.scale < digits or target.scale < source.scale
    return True


def is_cheap(expression: Expression) -> bool:
    """Tell whether it costs less to evaluate all rows than to gather some: comparisons and arithmetic on fixed-width columns."""
    return all(
        ((isinstance(e, Call) and e.function in CHEAP) or isinstance(e, ColumnRef | Literal)) and not e.type.is_arrow and not e.type.is_wide
        for e in walk(expression)
    )
