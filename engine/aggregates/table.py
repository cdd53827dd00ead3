"""The aggregates: a line each, with where it stands, its name and what else people call it. To add one see CONTRIBUTING.md.

An aggregate is loaded when it is first asked for: most networks have three or four.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from millstream.engine.aggregates.contract import AggregateFunction, AggregateUse
from millstream.engine.data.errors import UnknownName
from millstream.engine.data.nearest import did_you_mean
from millstream.engine.data.types import DataType
from millstream.engine.expressions.signature import Signature

_TABLE = (
    ("sums:COUNT", "count"),
    ("sums:SUM", "sum"),
    ("sums:AVG", "avg", "mean", "average"),
    ("extremes:MIN", "min"),
    ("extremes:MAX", "max"),
    ("moments:STDDEV", "stddev", "stddev_samp", "stdev"),
    ("moments:STDDEV_POP", "stddev_pop"),
    ("moments:VARIANCE", "variance", "var_samp", "var"),
    ("moments:VAR_POP", "var_pop"),
    ("geomean:GEOMEAN", "geomean", "geometric_mean"),
    ("extremes:BOOL_AND", "bool_and", "every", "logical_and"),
    ("extremes:BOOL_OR", "bool_or", "logical_or"),
    ("extremes:BIT_AND", "bit_and"),
    ("extremes:BIT_OR", "bit_or"),
    ("extremes:BIT_XOR", "bit_xor"),
    ("regression:CORR", "corr"),
    ("regression:COVAR_POP", "covar_pop"),
    ("regression:COVAR_SAMP", "covar_samp"),
    ("regression:REGR_SLOPE", "regr_slope"),
    ("regression:REGR_INTERCEPT", "regr_intercept"),
    ("regression:REGR_R2", "regr_r2"),
    ("regression:REGR_COUNT", "regr_count"),
    ("regression:REGR_AVGX", "regr_avgx"),
    ("regression:REGR_AVGY", "regr_avgy"),
    ("regression:REGR_SXX", "regr_sxx"),
    ("regression:REGR_SYY", "regr_syy"),
    ("regression:REGR_SXY", "regr_sxy"),
    ("arg_extremes:ARG_MIN", "arg_min", "argmin", "min_by"),
    ("arg_extremes:ARG_MAX", "arg_max", "argmax", "max_by"),
    ("ends:FIRST", "first", "first_value"),
    ("ends:LAST", "last", "last_value"),
    ("ranked:MEDIAN", "median"),
    ("ranked:PERCENTILE_CONT", "percentile_cont", "quantile_cont", "quantile"),
    ("ranked:PERCENTILE_DISC", "percentile_disc", "quantile_disc"),
    ("ranked:APPROX_PERCENTILE", "approx_percentile", "approx_quantile"),
    ("ranked:TOP", "top", "topk"),
    ("collected:ARRAY_AGG", "array_agg", "collect_list", "list"),
    ("collected:COLLECT_SET", "collect_set"),
    ("collected:HISTOGRAM", "histogram"),
    ("collected:MODE", "mode"),
    ("collected:STRING_AGG", "string_agg", "listagg", "group_concat"),
    ("collected:APPROX_COUNT_DISTINCT", "approx_count_distinct", "approx_distinct"),
    ("collected:APPROX_TOP_K", "approx_top_k", "approx_topk"),
)
_PLACES = {line[1]: line[0] for line in _TABLE}
_NAMES = {name: line[1] for line in _TABLE for name in line[1:]}


@cache
def aggregate_of(name: str) -> AggregateFunction:
    """Return the aggregate with this canonical name. KeyError when there is none."""
    module, _, attribute = _PLACES[name].partition(":")
    found: AggregateFunction = getattr(import_module(f"millstream.engine.aggregates.{module}"), attribute)
    return found


def is_aggregate(name: str) -> bool:
    """Tell whether there is an aggregate of that name (any case)."""
    return name.lower() in _NAMES


OPTIONED = frozenset(("percentile_cont", "percentile_disc", "approx_percentile", "top", "string_agg", "approx_top_k"))


_OF_PAIRS = ("regression:", "arg_extremes:")


def columns_of(name: str) -> int:
    """Return how many columns an aggregate reads; those that read two take them as the parts of one STRUCT. KeyError without such one."""
    return 2 if _PLACES[_NAMES[name.lower()]].startswith(_OF_PAIRS) else 1


def arguments_max(name: str) -> int:
    """Return how many arguments an aggregate takes at most: its columns, and of those in OPTIONED a constant. KeyError without such one."""
    return columns_of(name) + (_NAMES[name.lower()] in OPTIONED)


def aggregate_names() -> tuple[str, ...]:
    """Return the names of all aggregates, sorted, without aliases."""
    return tuple(sorted(_PLACES))


def resolve_aggregate(name: str, argument_types: Sequence[DataType], options: Sequence[Any] = ()) -> Signature:
    """Return the signature of an aggregate call (COUNT(*): no arguments); UnknownName or TypeProblem when there is none.

    MEDIAN resolves to percentile_cont with p = 0.5. DISTINCT and FILTER do not change types and are the caller's to keep. Options are (p,)
    of percentiles as float, (k,) of TOP and APPROX_TOP_K, (separator,) of STRING_AGG.
    """
    canonical = _NAMES.get(name.lower())
    if canonical is None:
        raise UnknownName(f"there is no aggregate {name.upper()}", hint=did_you_mean(name.upper(), [known.upper() for known in _NAMES]))
    return aggregate_of(canonical).rule(canonical, tuple(argument_types), tuple(options))


def foldable(calls: Iterable[AggregateUse]) -> bool:
    """Whether all calls can be kept as states; the others need every value, or every different one."""
    return all(map(_is_folded, calls))


def _is_folded(call: AggregateUse) -> bool:
    aggregate = aggregate_of(call.function)
    return aggregate.states is not None and (aggregate.ignores_distinct or not call.distinct)
