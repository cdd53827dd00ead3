"""Aggregates that need all values of a range: percentiles, spread, lists, texts, distinct counts.

The APPROX_ functions come here only where the rows of a window are held anyway: there an exact answer costs no memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from millstream.engine.data import arrow_functions as pc
from millstream.engine.data.arrow import arrow_type, plain_values
from millstream.engine.data.column import Column, Mask, null_column
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.types import Kind
from millstream.engine.language.recipes import AggregateCall
from millstream.engine.windows.percentiles import exact_rank, interpolated

Int64Array = npt.NDArray[np.int64]
_NAN = float("nan")
Holistic = Callable[[AggregateCall, Column, Int64Array, Int64Array], Column]


def _bounds(starts: Int64Array, stops: Int64Array) -> list[tuple[int, int]]:
    return list(zip(starts.tolist(), stops.tolist(), strict=True))


def numbers_column(call: AggregateCall, results: list[Any], dtype: Any) -> Column:
    """Return numbers as a column, NULL where there is None."""
    valid = np.array([r is not None for r in results], dtype=np.bool_)
    values = np.array([0 if r is None else r for r in results], dtype=dtype)
    return Column(call.type, values, None if valid.all() else valid)


def _percentile_cont(call: AggregateCall, column: Column, starts: Int64Array, stops: Int64Array) -> Column:
    """Interpolate at the 0-based rank p·(n−1). NaN sorts above every number."""
    results: list[Any] = []
    for a, b in _bounds(starts, stops):
        if a == b:
            results.append(None)
            continue
        value = interpolated(np.sort(column.values[a:b]), call.options[0])
        results.append(value if column.values.dtype == np.float64 else int(value))
    return numbers_column(call, results, column.values.dtype)


def _percentile_disc(call: AggregateCall, column: Column, starts: Int64Array, stops: Int64Array) -> Column:
    """Take the ceil(p·n)-th value in order."""
    order = sort_order(column)
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order), dtype=np.int64)
    picked = np.zeros(len(starts), dtype=np.int64)
    full = stops > starts
    for i, (a, b) in enumerate(_bounds(starts, stops)):
        if a < b:
            ranks = np.sort(places[a:b])
            nth = max(1, ceil(exact_rank(call.options[0], b - a)))
            picked[i] = order[ranks[nth - 1]]
    if not len(column):
        return null_column(call.type, len(starts))
    result = column.take(picked)
    return result if full.all() else with_nulls(result, full)


def sort_order(column: Column) -> Int64Array:
    """Return the permutation that sorts a column without NULLs: text by code point, NaN last (K13)."""
    if column.type.is_arrow:
        order: Int64Array = pc.array_sort_indices(column.values).to_numpy(zero_copy_only=False).astype(np.int64)
        return order
    return np.argsort(column.values, kind="stable")


def _spread(call: AggregateCall, column: Column, starts: Int64Array, stops: Int64Array) -> Column:
    """STDDEV and VARIANCE of the sample (NULL for one value), or of the population."""
    sample = not call.function.endswith("_pop")
    root = call.function.startswith("stddev")
    results: list[Any] = []
    for a, b in _bounds(starts, stops):
        if b - a < (2 if sample else 1):
            results.append(None)
            continue
        variance = float(np.var(column.values[a:b], ddof=1 if sample else 0))
        results.append(variance**0.5 if root else variance)
    return numbers_column(call, results, np.float64)


def _lists(call: AggregateCall, values: list[list[Any] | None]) -> Column:
    return Column(call.type, pa.array(values, type=arrow_type(call.type)))


def _array_agg(call: AggregateCall, column: Column, starts: Int64Array, stops: Int64Array) -> Column:
    plain = plain_values(column)
    return _lists(call, [plain[a:b] if b > a else None for a, b in _bounds(starts, stops)])


def _top(call: AggregateCall, column: Column, starts: Int64Array, stops: Int64Array) -> Column:
    """The k greatest, descending."""
    plain = plain_values(column)
    order = sort_order(column)
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order), dtype=np.int64)
    lists: list[list[Any] | None] = []
    for a, b in _bounds(starts, stops):
        best = order[np.sort(places[a:b])[::-1][: call.options[0]]]
        lists.append([plain[i] for i in best.tolist()] if b > a else None)
    return _lists(call, lists)


def _top_frequent(call: AggregateCall, column: Column, starts: Int64Array, stops: Int64Array) -> Column:
    """The k most frequent; at equal counts the first to come."""
    plain = plain_values(column)
    if column.type.kind is Kind.DOUBLE:
        plain = [0.0 if v == 0 else _NAN if v != v else v for v in plain]  # one zero and one NaN (K7): an object equals itself
    limit = call.options[0]
    return _lists(call, [[v for v, _ in Counter(plain[a:b]).most_common(limit)] if b > a else None for a, b in _bounds(starts, stops)])


def _string_agg(call: AggregateCall, column: Column, starts: Int64Array, stops: Int64Array) -> Column:
    plain = column.values.to_pylist()
    separator = call.options[0] if call.options else ","
    texts = [separator.join(plain[a:b]) if b > a else None for a, b in _bounds(starts, stops)]
    return Column(call.type, pa.array(texts, type=pa.string()))


def _distinct_count(call: AggregateCall, column: Column, starts: Int64Array, stops: Int64Array) -> Column:
    _, first, last = distinct_values(column, starts, stops)
    return Column(call.type, last - first)


def with_nulls(column: Column, keep: Mask) -> Column:
    """Return the column with NULL where `keep` is false."""
    if column.type.is_arrow:
        return Column(column.type, pc.if_else(keep, column.values, None))
    return Column(column.type, column.values, keep if column.valid is None else keep & column.valid)


def distinct_values(column: Column, starts: Int64Array, stops: Int64Array) -> tuple[Column, Int64Array, Int64Array]:
    """Return each range's different values (K7), first occurrences in order, as ranges that no longer overlap."""
    ids = key_encoder([column.type]).encode([column])
    picked: list[Int64Array] = []
    sizes = [0]
    for a, b in zip(starts.tolist(), stops.tolist(), strict=True):
        first = np.sort(np.unique(ids[a:b], return_index=True)[1]) + a
        picked.append(first)
        sizes.append(len(first))
    bounds = np.cumsum(np.array(sizes, dtype=np.int64))
    index = np.concatenate(picked) if picked else np.empty(0, dtype=np.int64)
    return column.take(index), bounds[:-1], bounds[1:]


HOLISTIC: dict[str, Holistic] = {
    "percentile_cont": _percentile_cont,
    "approx_percentile": _percentile_cont,
    "percentile_disc": _percentile_disc,
    "stddev": _spread,
    "variance": _spread,
    "stddev_pop": _spread,
    "var_pop": _spread,
    "array_agg": _array_agg,
    "top": _top,
    "approx_top_k": _top_frequent,
    "string_agg": _string_agg,
    "approx_count_distinct": _distinct_count,
}
