"""PERCENTILE_CONT, PERCENTILE_DISC, MEDIAN and TOP: read off values in order, with how often each came."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import ceil, isinf
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.aggregates.contract import AggregateFunction, AggregateUse, Array, Int64Array, number, ordered
from millstream.engine.data.arrow import arrow_type, plain_values
from millstream.engine.data.column import Column, null_column, with_nulls
from millstream.engine.data.errors import TypeProblem
from millstream.engine.data.types import DOUBLE, INTERVAL, list_of
from millstream.engine.expressions.signature import Options, Signature, Types
from millstream.protocol.values import arrow_functions as pc

APPROXIMATE_PLACES_MAX = 1000  # its memory grows with them


class Ranked:
    """A column of values with counts, cut into ranges: one a group, values rising, NaN last. `counts` None: each once."""

    def __init__(self, column: Column, counts: Int64Array | None, starts: Int64Array, stops: Int64Array) -> None:
        self.column = column
        self.bounds = list(zip(starts.tolist(), stops.tolist(), strict=True))
        self._upto = None if counts is None else np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))

    def rows(self, start: int, stop: int) -> int:
        """Return how many rows a range stands for."""
        return stop - start if self._upto is None else int(self._upto[stop] - self._upto[start])

    def place(self, start: int, nth: int) -> int:
        """Return where the nth row (from 0) of a range stands."""
        if self._upto is None:
            return start + nth
        return int(np.searchsorted(self._upto, self._upto[start] + nth, side="right")) - 1

    def last(self, start: int, stop: int, limit: int) -> Int64Array:
        """Return where the last rows of a range stand, from the end on."""
        first = self.place(start, max(0, self.rows(start, stop) - limit))
        places = np.arange(stop - 1, first - 1, -1)
        return places if self._upto is None else np.repeat(places, np.diff(self._upto[first : stop + 1])[::-1])[:limit]


def sort_order(column: Column) -> Int64Array:
    """Return the permutation that sorts a column without NULLs: text by code point, NaN last (K13)."""
    if column.type.is_arrow:
        order: Int64Array = pc.array_sort_indices(column.values).to_numpy(zero_copy_only=False).astype(np.int64)
        return order
    return np.argsort(column.values, kind="stable")


def _percentile_cont(call: AggregateUse, ranked: Ranked) -> Column:
    """Interpolate at the 0-based rank p·(n-1)."""
    values = ranked.column.values
    results = np.zeros(len(ranked.bounds), dtype=values.dtype)
    valid = np.ones(len(ranked.bounds), dtype=np.bool_)
    for number_, (start, stop) in enumerate(ranked.bounds):
        valid[number_] = stop > start
        if stop > start:
            rank = exact_rank(call.options[0], ranked.rows(start, stop) - 1)
            low = int(rank)
            below, share = values[ranked.place(start, low)], float(rank - low)
            results[number_] = below if share == 0.0 else between(below, values[ranked.place(start, low + 1)], share)
    return Column(call.type, results, None if valid.all() else valid)


def _percentile_disc(call: AggregateUse, ranked: Ranked) -> Column:
    """Take the ceil(p·n)-th value in order."""
    if not len(ranked.column):
        return null_column(call.type, len(ranked.bounds))
    picked = np.zeros(len(ranked.bounds), dtype=np.int64)
    full = np.array([stop > start for start, stop in ranked.bounds], dtype=np.bool_)
    for number_, (start, stop) in enumerate(ranked.bounds):
        if start < stop:
            nth = max(1, ceil(exact_rank(call.options[0], ranked.rows(start, stop))))
            picked[number_] = ranked.place(start, nth - 1)
    return with_nulls(ranked.column.take(picked), full)


def _top(call: AggregateUse, ranked: Ranked) -> Column:
    """Take the k greatest, descending."""
    lists = [
        plain_values(ranked.column.take(ranked.last(start, stop, call.options[0]))) if stop > start else None
        for start, stop in ranked.bounds
    ]
    return Column(call.type, pa.array(lists, type=arrow_type(call.type)))


# Ranks -------------------------------------------------------------------------------------------------------------------


def exact_rank(fraction: float, count: int) -> Decimal:
    """Return fraction * count in decimal, so that 0.85 * 13 is 11.05."""
    return Decimal(repr(fraction)) * count


def interpolated(values: Array, fraction: float) -> Any:
    """Return the value at the 0-based rank p·(n−1) of sorted values, between two of them by its share; at least one value."""
    rank = exact_rank(fraction, len(values) - 1)
    low = int(rank)
    below, share = values[low], float(rank - low)
    return below if share == 0.0 else between(below, values[low + 1], share)


def between(below: Any, above: Any, share: float) -> Any:
    """Return what lies between two values of a percentile's neighbourhood, `share` of the way up; of integers, the nearest integer."""
    if isinstance(below, int | np.integer):  # their difference may exceed 64 bits, and a DOUBLE would round what exceeds 53
        return round(int(below) + (int(above) - int(below)) * Fraction(share))
    if np.isinf(below):  # the difference would be NaN; from -inf to +inf there is no middle
        return below if above == below or np.isfinite(above) else np.float64("nan")
    low, high = float(below), float(above)
    if isinf(high - low) and not isinf(high):
        return low * (1.0 - share) + high * share
    return low + (high - low) * share


# Rules -------------------------------------------------------------------------------------------------------------------


def fraction_of(name: str, options: Options) -> float:
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


def _continuous(name: str, types: Types, options: Options) -> Signature:
    """Interpolates, so the result is DOUBLE (of an INTERVAL an INTERVAL)."""
    computed = INTERVAL if number(name, types, intervals=True) == INTERVAL else DOUBLE
    return Signature(name, (computed,), computed, (fraction_of(name, options),))


def _median(name: str, types: Types, options: Options) -> Signature:
    """MEDIAN(x) is PERCENTILE_CONT(x, 0.5)."""
    return _continuous("percentile_cont", types, (0.5,))


def _discrete(name: str, types: Types, options: Options) -> Signature:
    """Takes a value, so anything that has an order will do."""
    type_ = ordered(name, types)
    return Signature(name, (type_,), type_, (fraction_of(name, options),))


def _approximate(name: str, types: Types, options: Options) -> Signature:
    number(name, types)
    return Signature(name, (DOUBLE,), DOUBLE, (fraction_of(name, options),))


def top_rule(name: str, types: Types, options: Options) -> Signature:
    """TOP(x, k) and APPROX_TOP_K(x, k): a list of at most k values."""
    type_ = ordered(name, types)
    if not options or isinstance(options[0], bool) or not isinstance(options[0], int) or options[0] < 1:
        raise TypeProblem(f"{name.upper()} needs how many as a constant of at least 1, as in {name.upper()}(x, 3)")
    if name == "approx_top_k" and options[0] > APPROXIMATE_PLACES_MAX:
        raise TypeProblem(f"APPROX_TOP_K gives at most {APPROXIMATE_PLACES_MAX} values, not {options[0]}")
    return Signature(name, (type_,), list_of(type_), (options[0],))


PERCENTILE_CONT = AggregateFunction(_continuous, of_ranks=_percentile_cont)
PERCENTILE_DISC = AggregateFunction(_discrete, of_ranks=_percentile_disc)
MEDIAN = AggregateFunction(_median, of_ranks=_percentile_cont)
APPROX_PERCENTILE = AggregateFunction(_approximate, of_ranks=_percentile_cont)
TOP = AggregateFunction(top_rule, of_ranks=_top)
