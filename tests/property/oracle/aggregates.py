"""Random aggregates: the SQL text, the type, and what it comes to over rows in event-time order (K6, K7, K13)."""

from __future__ import annotations

import functools
import math
import operator
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from typing import Any

from tests.property.oracle.expressions import EXACT, Expr, Maker, Row
from tests.property.oracle.values import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DECIMAL,
    DOUBLE,
    INT,
    TEXT,
    TIME,
    TIMESTAMP,
    Order,
    is_nan,
    key_of,
    shown,
)

NUMERIC = (INT, BIGINT, DECIMAL, DOUBLE)
EXACT_KINDS = (INT, BIGINT, DECIMAL)
ORDERED = (INT, BIGINT, DOUBLE, DECIMAL, TEXT, BYTES, TIME, TIMESTAMP, DATE)


@dataclass(frozen=True)
class Near:
    """A DOUBLE that was reckoned in another order: equal up to `slack`."""

    value: float
    slack: float


@dataclass(frozen=True)
class Aggregate:
    """`type` is one of values.TYPES, or "" when no expression should be made of it."""

    sql: str
    type: str
    value: Callable[[Sequence[Row]], Any]


def matches(expected: Any, found: Any) -> bool:
    """Whether a value of an answer is what it should be; both as `shown` gives them."""
    if isinstance(expected, Near):
        if not isinstance(found, int | float) or isinstance(found, bool):
            return bool(shown(expected.value) == found)
        return math.isclose(expected.value, found, rel_tol=1e-9, abs_tol=expected.slack)
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(matches(e, f) for e, f in zip(expected, found, strict=True))
    if isinstance(expected, float) and isinstance(found, float):
        return expected == found or math.isclose(expected, found, rel_tol=1e-12)
    return (type(expected) is type(found) and expected == found) or (
        isinstance(expected, int | Decimal) and not isinstance(expected, bool) and isinstance(found, int | Decimal) and expected == found
    )


def _special(values: Sequence[Any]) -> float | None:
    """NaN or an infinity when the sum is one."""
    floats = [v for v in values if isinstance(v, float)]
    if any(math.isnan(v) for v in floats) or (math.inf in floats and -math.inf in floats):
        return math.nan
    return math.inf if math.inf in floats else -math.inf if -math.inf in floats else None


def _sum(values: list[Any]) -> Any:
    if not values:
        return None
    if not isinstance(values[0], float):
        return sum(values) if isinstance(values[0], int) else _decimal_sum(values)
    special = _special(values)
    if special is not None:
        return special
    return Near(math.fsum(values), 1e-9 * math.fsum(map(abs, values)))


def _decimal_sum(values: list[Decimal]) -> Decimal:
    total = Decimal(0)
    for value in values:
        total = EXACT.add(total, value)
    return total


def _average(values: list[Any]) -> Any:
    if not values:
        return None
    if isinstance(values[0], Decimal):
        return EXACT.divide(_decimal_sum(values), len(values)).quantize(Decimal("0.000001"), ROUND_HALF_UP, EXACT)
    if isinstance(values[0], int):
        return Near(float(Fraction(sum(values), len(values))), 0.0)
    total = _sum(values)
    return Near(total.value / len(values), total.slack) if isinstance(total, Near) else total


def _spread(values: list[Any], sample: bool, root: bool) -> Any:
    if len(values) < (2 if sample else 1):
        return None
    exact = [Fraction(v) for v in values]
    mean = sum(exact) / len(exact)
    variance = float(sum((v - mean) ** 2 for v in exact) / (len(exact) - sample))
    scale = max(abs(float(v)) for v in exact)
    return Near(math.sqrt(variance) if root else variance, 1e-6 * scale if root else 1e-9 * scale * scale)


def _extreme(values: list[Any], greatest: bool) -> Any:
    if any(is_nan(v) for v in values):
        return math.nan
    return (max if greatest else min)(values, key=Order) if values else None


def _cont(values: list[Any], p: float) -> Any:
    if not values:
        return None
    ordered = sorted(Fraction(v) for v in values)
    place = Fraction(p) * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    scale = max(abs(float(v)) for v in ordered)
    return Near(float(ordered[low] + (ordered[high] - ordered[low]) * (place - low)), 1e-12 * scale)


def _disc(values: list[Any], p: float) -> Any:
    ordered = sorted(values, key=Order)
    return ordered[max(0, math.ceil(Fraction(str(p)) * len(ordered)) - 1)] if ordered else None


def _distinct(values: list[Any]) -> list[Any]:
    return list({key_of(v): v for v in reversed(values)}.values())[::-1]


def _mode(values: list[Any]) -> Any:
    keys = [key_of(v) for v in values]
    counts = Counter(keys)
    return max(zip(keys, values, strict=True), key=lambda pair: counts[pair[0]])[1] if values else None


def _bits(values: list[Any], operation: Callable[[int, int], int]) -> Any:
    return functools.reduce(operation, values) if values else None


Pair = tuple[Any, Any]


def _arg_extreme(pairs: list[Pair], greatest: bool) -> Any:
    odd = next((x for x, y in pairs if is_nan(y)), None)
    if odd is not None or not pairs:
        return odd
    return (max if greatest else min)(pairs, key=lambda pair: Order(pair[1]))[0]


def _products(pairs: list[Pair]) -> tuple[Fraction, Fraction, Fraction]:
    """Return the sums of products of distances from the means: of y, of x, of both."""
    ys, xs = ([Fraction(pair[place]) for pair in pairs] for place in (0, 1))
    y_mean, x_mean = sum(ys) / len(ys), sum(xs) / len(xs)
    off = [(y - y_mean, x - x_mean) for y, x in zip(ys, xs, strict=True)]
    return sum((y * y for y, _ in off), Fraction(0)), sum((x * x for _, x in off), Fraction(0)), sum((y * x for y, x in off), Fraction(0))


def _covariance(pairs: list[Pair], sample: bool) -> Any:
    if len(pairs) < (2 if sample else 1):
        return None
    scale = max(abs(float(v)) for pair in pairs for v in pair)
    return Near(float(_products(pairs)[2] / (len(pairs) - sample)), 1e-9 * scale * scale)


def _correlation(pairs: list[Pair]) -> Any:
    if not pairs:
        return None
    yy, xx, xy = _products(pairs)
    return Near(float(xy) / math.sqrt(float(yy) * float(xx)), 1e-6) if yy and xx else None


def _gathered(pairs: list[Pair]) -> list[Any] | None:
    """Return the first of each pair in the order of the second, falling, NULLs first."""
    given = sorted((pair for pair in pairs if pair[1] is not None), key=lambda pair: Order(pair[1]), reverse=True)
    return [x for x, y in pairs if y is None] + [x for x, _ in given] or None


def _joined(pairs: list[Pair]) -> str | None:
    """Join the first of each pair in the order of the second, rising, NULLs last."""
    known = [pair for pair in pairs if pair[0] is not None]
    given = sorted((pair for pair in known if pair[1] is not None), key=lambda pair: Order(pair[1]))
    return "|".join([x for x, _ in given] + [x for x, y in known if y is None]) if known else None


def _mean_of(pairs: list[Pair], place: int) -> Any:
    exact = [Fraction(pair[place]) for pair in pairs]
    return Near(float(sum(exact) / len(exact)), 1e-9 * max(abs(float(v)) for v in exact)) if exact else None


def _near_product(pairs: list[Pair], place: int) -> Any:
    if not pairs:
        return None
    yy, xx, xy = _products(pairs)
    scale = max(abs(float(v)) for pair in pairs for v in pair)
    return Near(float((yy, xx, xy)[place]), 1e-9 * scale * scale * len(pairs))


def _first_of_each(values: list[Any]) -> list[Any]:
    found: dict[Any, Any] = {}
    for value in values:
        found.setdefault(key_of(value), value)
    return list(found.values())


def random_aggregate(choice: random.Random, maker: Maker, plain: bool = False) -> Aggregate:
    """One aggregate over a random argument, perhaps DISTINCT, perhaps with FILTER. `plain`: no order, exact values."""
    name = choice.choice(["COUNT", "COUNT", "SUM", "SUM", "MIN", "MAX"] if plain else [*_MAKERS, "COUNT", "SUM", "AVG", "MIN", "MAX"])
    kinds, result, function = _MAKERS[name]
    condition = maker.condition(1) if choice.random() < 0.25 else None
    tail = f" FILTER (WHERE {condition.sql})" if condition is not None else ""
    if not plain and choice.random() < 0.2:
        return _of_pair(choice, maker, condition, tail)
    if name == "COUNT" and choice.random() < 0.4:
        argument: Expr | None = None
        head = "COUNT(*)"
    else:
        argument = maker.make(choice.choice([k for k in kinds if not plain or k != DOUBLE]), choice.choice([0, 0, 1]))
        distinct = name in ("COUNT", "SUM", "AVG", "MIN", "MAX") and choice.random() < 0.25
        head = (
            name.format(("DISTINCT " if distinct else "") + argument.sql)
            if "{}" in name
            else f"{name}({'DISTINCT ' if distinct else ''}{argument.sql})"
        )

    def value(rows: Sequence[Row]) -> Any:
        passing = [r for r in rows if condition is None or condition.value(r) is True]
        if argument is None:
            return len(passing)
        values = [argument.value(r) for r in passing]
        if name in _KEEP_NULLS:
            return function(values)
        values = [v for v in values if v is not None]
        return function(_distinct(values) if distinct else values)

    kind = argument.type if argument is not None else INT
    return Aggregate(head + tail, result(kind), value)


def random_pair(choice: random.Random, maker: Maker) -> Aggregate:
    """One aggregate of two arguments, perhaps with FILTER."""
    condition = maker.condition(1) if choice.random() < 0.25 else None
    return _of_pair(choice, maker, condition, f" FILTER (WHERE {condition.sql})" if condition is not None else "")


def _of_pair(choice: random.Random, maker: Maker, condition: Expr | None, tail: str) -> Aggregate:
    name = choice.choice([*_OF_PAIRS])
    kinds, other_kinds, function = _OF_PAIRS[name]
    one, other = (maker.make(choice.choice(given), choice.choice([0, 0, 1])) for given in (kinds, other_kinds))

    def value(rows: Sequence[Row]) -> Any:
        pairs = [(one.value(r), other.value(r)) for r in rows if condition is None or condition.value(r) is True]
        return function(pairs if name in _KEEP_NULLS else [pair for pair in pairs if None not in pair])

    return Aggregate(name.format(one.sql, other.sql) + tail, "", value)


def _same(kind: str) -> str:
    return "" if kind == BOOLEAN else kind


_KEEP_NULLS = {"FIRST({})", "LAST({})", "ARRAY_AGG({})", "ARRAY_AGG({} ORDER BY {} DESC)", "STRING_AGG({}, '|' ORDER BY {})"}
_ALL = (*ORDERED, BOOLEAN)
_MAKERS: dict[str, tuple[tuple[str, ...], Callable[[str], str], Callable[[list[Any]], Any]]] = {
    "COUNT": (_ALL, lambda k: BIGINT, len),
    "SUM": (NUMERIC, lambda k: BIGINT if k == INT else "", _sum),
    "AVG": (NUMERIC, lambda k: "", _average),
    "MIN": (ORDERED, _same, lambda v: _extreme(v, False)),
    "MAX": (ORDERED, _same, lambda v: _extreme(v, True)),
    "MEDIAN({})": (EXACT_KINDS, lambda k: "", lambda v: _cont(v, 0.5)),
    "PERCENTILE_CONT({}, 0.85)": (EXACT_KINDS, lambda k: "", lambda v: _cont(v, 0.85)),
    "PERCENTILE_DISC({}, 0.3)": (ORDERED[:4], lambda k: "", lambda v: _disc(v, 0.3)),
    "STDDEV({})": (EXACT_KINDS, lambda k: "", lambda v: _spread(v, True, True)),
    "VARIANCE({})": (EXACT_KINDS, lambda k: "", lambda v: _spread(v, True, False)),
    "STDDEV_POP({})": (EXACT_KINDS, lambda k: "", lambda v: _spread(v, False, True)),
    "FIRST({})": (_ALL, _same, lambda v: v[0] if v else None),
    "LAST({})": (_ALL, _same, lambda v: v[-1] if v else None),
    "MODE({})": (_ALL, _same, _mode),
    "COLLECT_SET({})": (_ALL, lambda k: "", lambda v: _first_of_each(v) or None),
    "BIT_XOR({})": ((INT, BIGINT), _same, lambda v: _bits(v, operator.xor)),
    "BIT_AND({})": ((INT, BIGINT), _same, lambda v: _bits(v, operator.and_)),
    "BIT_OR({})": ((INT, BIGINT), _same, lambda v: _bits(v, operator.or_)),
    "BOOL_AND({})": ((BOOLEAN,), _same, lambda v: all(v) if v else None),
    "BOOL_OR({})": ((BOOLEAN,), _same, lambda v: any(v) if v else None),
    "TOP({}, 2)": (ORDERED[:7], lambda k: "", lambda v: sorted(v, key=Order, reverse=True)[:2] or None),
    "ARRAY_AGG({})": (_ALL, lambda k: "", lambda v: v or None),
    "STRING_AGG({}, '|')": ((TEXT,), lambda k: "", lambda v: "|".join(v) if v else None),
    "APPROX_COUNT_DISTINCT({})": (ORDERED[:7], lambda k: "", lambda v: len({key_of(x) for x in v})),
}
_OF_PAIRS: dict[str, tuple[tuple[str, ...], tuple[str, ...], Callable[[list[Pair]], Any]]] = {
    "ARG_MIN({}, {})": (_ALL, ORDERED, lambda pairs: _arg_extreme(pairs, False)),
    "ARG_MAX({}, {})": (_ALL, ORDERED, lambda pairs: _arg_extreme(pairs, True)),
    "ARRAY_AGG({} ORDER BY {} DESC)": (_ALL, ORDERED, _gathered),
    "STRING_AGG({}, '|' ORDER BY {})": ((TEXT,), ORDERED, lambda pairs: _joined(pairs)),
    "COVAR_POP({}, {})": (EXACT_KINDS, EXACT_KINDS, lambda pairs: _covariance(pairs, False)),
    "COVAR_SAMP({}, {})": (EXACT_KINDS, EXACT_KINDS, lambda pairs: _covariance(pairs, True)),
    "CORR({}, {})": (EXACT_KINDS, EXACT_KINDS, _correlation),
    "REGR_COUNT({}, {})": (EXACT_KINDS, EXACT_KINDS, len),
    "REGR_AVGX({}, {})": (EXACT_KINDS, EXACT_KINDS, lambda pairs: _mean_of(pairs, 1)),
    "REGR_AVGY({}, {})": (EXACT_KINDS, EXACT_KINDS, lambda pairs: _mean_of(pairs, 0)),
    "REGR_SXX({}, {})": (EXACT_KINDS, EXACT_KINDS, lambda pairs: _near_product(pairs, 1)),
    "REGR_SXY({}, {})": (EXACT_KINDS, EXACT_KINDS, lambda pairs: _near_product(pairs, 2)),
}
