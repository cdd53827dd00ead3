"""The registry of aggregates: a name and argument types to an AggregateSignature (result types per K13)."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any

from millstream.engine.data.errors import TypeProblem, UnknownName
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import (
    BIGINT,
    DECIMAL_PRECISION_MAX,
    DOUBLE,
    INT,
    INTERVAL,
    NULL,
    TEXT,
    DataType,
    Kind,
    decimal,
    list_of,
)
from millstream.engine.expressions.signature import average_type, expect_count, refuse_argument

APPROXIMATE_PLACES_MAX = 1000  # its memory grows with them


@dataclass(frozen=True, slots=True)
class AggregateSignature:
    """An aggregate whose types fit: canonical name, types to cast the arguments to, type of the result, checked options.

    Options: (p,) of percentiles as float, (k,) of TOP and APPROX_TOP_K, (separator,) of STRING_AGG.
    """

    name: str
    arguments: tuple[DataType, ...]
    result: DataType
    options: tuple[Any, ...] = ()


AggregateRule = Callable[[str, tuple[DataType, ...], tuple[Any, ...]], AggregateSignature]
Types = tuple[DataType, ...]
Options = tuple[Any, ...]


def _number(name: str, type_: DataType, *, intervals: bool = False) -> DataType:
    """Return the type of the argument (NULL counts as INT), or refuse what has no sum."""
    if type_ == NULL:
        return INT
    if not type_.is_numeric and not (intervals and type_ == INTERVAL):
        wanted = "a number or an INTERVAL" if intervals else "a number"
        refuse_argument(name, 0, type_, wanted, "cast it, as in CAST(x AS DOUBLE)" if type_ == TEXT else None)
    return type_


def _count(name: str, types: Types, options: Options) -> AggregateSignature:
    """COUNT(*) has no argument, COUNT(x) one of any type."""
    expect_count(name, types, 0, 1)
    return AggregateSignature(name, types, BIGINT)


def _sum(name: str, types: Types, options: Options) -> AggregateSignature:
    """INT sums up in BIGINT, BIGINT in DECIMAL(38, 0), DECIMAL(p, s) in DECIMAL(38, s)."""
    expect_count(name, types, 1, 1)
    type_ = _number(name, types[0], intervals=True)
    results = {Kind.INT: BIGINT, Kind.BIGINT: decimal(DECIMAL_PRECISION_MAX, 0)}
    result = decimal(DECIMAL_PRECISION_MAX, type_.scale) if type_.kind is Kind.DECIMAL else results.get(type_.kind, type_)
    return AggregateSignature(name, (type_,), result)


def _average(name: str, types: Types, options: Options) -> AggregateSignature:
    """AVG of integers is DOUBLE, of DECIMAL(p, s) a DECIMAL of scale min(s + 4, 38)."""
    expect_count(name, types, 1, 1)
    type_ = _number(name, types[0], intervals=True)
    result = average_type(type_) if type_.kind is Kind.DECIMAL else DOUBLE if type_.is_integer else type_
    return AggregateSignature(name, (type_,), result)


def _extreme(name: str, types: Types, options: Options) -> AggregateSignature:
    """MIN and MAX, of anything that has an order."""
    expect_count(name, types, 1, 1)
    return AggregateSignature(name, (_ordered(name, types[0]),), _ordered(name, types[0]))


def _ordered(name: str, type_: DataType) -> DataType:
    if type_.kind is Kind.LIST:
        refuse_argument(name, 0, type_, "something that has an order")
    return type_


def _spread(name: str, types: Types, options: Options) -> AggregateSignature:
    """STDDEV, VARIANCE (of the sample) and the _POP variants compute in DOUBLE."""
    expect_count(name, types, 1, 1)
    _number(name, types[0])
    return AggregateSignature(name, (DOUBLE,), DOUBLE)


def _fraction(name: str, options: Options) -> float:
    """Return the p of a percentile, or raise TypeProblem."""
    if not options:
        raise TypeProblem(f"{name.upper()} needs its fraction as a constant, as in {name.upper()}(x, 0.95)")
    try:
        p = float(options[0])
    except (TypeError, ValueError):
        p = -1.0
    if not 0.0 <= p <= 1.0:
        raise TypeProblem(f"the fraction of {name.upper()} must be between 0 and 1, not {options[0]}")
    return p


def _median(name: str, types: Types, options: Options) -> AggregateSignature:
    """MEDIAN(x) is PERCENTILE_CONT(x, 0.5)."""
    return _percentile_cont("percentile_cont", types, (0.5,))


def _percentile_cont(name: str, types: Types, options: Options) -> AggregateSignature:
    """Interpolates at the 0-based rank p·(n−1), so the result is DOUBLE (of an INTERVAL an INTERVAL)."""
    expect_count(name, types, 1, 1)
    type_ = _number(name, types[0], intervals=True)
    computed = INTERVAL if type_ == INTERVAL else DOUBLE
    return AggregateSignature(name, (computed,), computed, (_fraction(name, options),))


def _percentile_disc(name: str, types: Types, options: Options) -> AggregateSignature:
    """Takes the ceil(p·n)-th value, so anything that has an order will do."""
    expect_count(name, types, 1, 1)
    type_ = _ordered(name, types[0])
    return AggregateSignature(name, (type_,), type_, (_fraction(name, options),))


def _approximate_percentile(name: str, types: Types, options: Options) -> AggregateSignature:
    expect_count(name, types, 1, 1)
    _number(name, types[0])
    return AggregateSignature(name, (DOUBLE,), DOUBLE, (_fraction(name, options),))


def _end(name: str, types: Types, options: Options) -> AggregateSignature:
    """FIRST and LAST in event-time order, NULLs included."""
    expect_count(name, types, 1, 1)
    return AggregateSignature(name, types, types[0])


def _top(name: str, types: Types, options: Options) -> AggregateSignature:
    """TOP(x, k) and APPROX_TOP_K(x, k): a list of at most k values."""
    expect_count(name, types, 1, 1)
    if not options or isinstance(options[0], bool) or not isinstance(options[0], int) or options[0] < 1:
        raise TypeProblem(f"{name.upper()} needs how many as a constant of at least 1, as in {name.upper()}(x, 3)")
    if name == "approx_top_k" and options[0] > APPROXIMATE_PLACES_MAX:
        raise TypeProblem(f"APPROX_TOP_K gives at most {APPROXIMATE_PLACES_MAX} values, not {options[0]}")
    return AggregateSignature(name, (_ordered(name, types[0]),), list_of(types[0]), (options[0],))


def _array(name: str, types: Types, options: Options) -> AggregateSignature:
    expect_count(name, types, 1, 1)
    return AggregateSignature(name, types, list_of(types[0]))


def _string(name: str, types: Types, options: Options) -> AggregateSignature:
    """STRING_AGG(x [, separator]); the separator is ',' unless given. Values that are not TEXT are written as text."""
    expect_count(name, types, 1, 1)
    separator = options[0] if options else ","
    if not isinstance(separator, str):
        raise TypeProblem(f"the separator of {name.upper()} must be a constant text")
    return AggregateSignature(name, (TEXT,), TEXT, (separator,))


def _distinct_estimate(name: str, types: Types, options: Options) -> AggregateSignature:
    expect_count(name, types, 1, 1)
    return AggregateSignature(name, types, BIGINT)


AGGREGATES: dict[str, AggregateRule] = {
    "count": _count,
    "sum": _sum,
    "avg": _average,
    "min": _extreme,
    "max": _extreme,
    "median": _median,
    "percentile_cont": _percentile_cont,
    "percentile_disc": _percentile_disc,
    **dict.fromkeys(("stddev", "variance", "stddev_pop", "var_pop"), _spread),
    "first": _end,
    "last": _end,
    "top": _top,
    "array_agg": _array,
    "string_agg": _string,
    "approx_count_distinct": _distinct_estimate,
    "approx_percentile": _approximate_percentile,
    "approx_top_k": _top,
}
ALIASES: dict[str, str] = {
    "mean": "avg", "average": "avg", "stddev_samp": "stddev", "stdev": "stddev", "var_samp": "variance", "var": "variance",
    "listagg": "string_agg", "group_concat": "string_agg", "first_value": "first", "last_value": "last", "collect_list": "array_agg",
    "list": "array_agg", "quantile_cont": "percentile_cont", "quantile_disc": "percentile_disc", "approx_quantile": "approx_percentile",
    "approx_distinct": "approx_count_distinct", "quantile": "percentile_cont",
    "topk": "top", "approx_topk": "approx_top_k",
}  # fmt: skip


def is_aggregate(name: str) -> bool:
    """Tell whether there is an aggregate of that name (any case)."""
    lowered = name.lower()
    return ALIASES.get(lowered, lowered) in AGGREGATES


def aggregate_names() -> tuple[str, ...]:
    """Return the names of all aggregates, sorted, without aliases."""
    return tuple(sorted(AGGREGATES))


def resolve_aggregate(name: str, argument_types: Sequence[DataType], options: Sequence[Any] = ()) -> AggregateSignature:
    """Return the signature of an aggregate call (COUNT(*): no arguments); UnknownName or TypeProblem when there is none.

    MEDIAN resolves to percentile_cont with p = 0.5. DISTINCT and FILTER do not change types and are the caller's to keep.
    """
    lowered = name.lower()
    lowered = ALIASES.get(lowered, lowered)
    rule = AGGREGATES.get(lowered)
    if rule is None:
        close = difflib.get_close_matches(lowered, [*AGGREGATES, *ALIASES], n=1)
        raise UnknownName(f"there is no aggregate {name.upper()}", hint=f"did you mean {close[0].upper()}?" if close else None)
    return rule(lowered, tuple(argument_types), tuple(options))
