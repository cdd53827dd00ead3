"""ARRAY_AGG, COLLECT_SET, STRING_AGG, HISTOGRAM, MODE and two APPROX_ functions: read off all values of a range, in order.

The order is that of event time. An ORDER BY inside ARRAY_AGG or STRING_AGG is the last option: (falls, NULLs first) of each key. The
argument is then a STRUCT of the value and the keys.

The APPROX_ functions come here only where the rows of a window are held anyway: there an exact answer costs no memory.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.aggregates.contract import AggregateFunction, AggregateUse, Int64Array, null_unless, same_type
from millstream.engine.aggregates.ranked import top_rule
from millstream.engine.data.allowance import claim
from millstream.engine.data.arrow import arrow_type, column_from_arrow, plain_values, value_array
from millstream.engine.data.column import Column, null_column
from millstream.engine.data.errors import TypeProblem
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.types import BIGINT, FLAT_ARROW_KINDS, TEXT, Kind, list_of, map_of
from millstream.engine.expressions.signature import Options, Signature, Types, expect_count
from millstream.protocol.values import arrow_functions as pc

_NAN = float("nan")
REFERENCE_BYTES = 8  # of Python's to a value; the values themselves are there once


def _bounds(starts: Int64Array, stops: Int64Array) -> list[tuple[int, int]]:
    return list(zip(starts.tolist(), stops.tolist(), strict=True))


def _lists(call: AggregateUse, values: list[list[Any] | None]) -> Column:
    return Column(call.type, pa.array(values, type=arrow_type(call.type)))


def _claim(call: AggregateUse, column: Column, starts: Int64Array, stops: Int64Array) -> None:
    """Ask for the texts or lists of ranges, and for the objects they are made of: windows overlap, so they may be far more than is held."""
    values = int((stops - starts).sum())
    made = 8 * values
    if column.type.kind in FLAT_ARROW_KINDS and len(column):
        ends = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(np.asarray(pc.binary_length(column.values).fill_null(0)))))
        made = int((ends[stops] - ends[starts]).sum())
    separator = len(call.options[0]) if call.function == "string_agg" else 0
    claim(made + (separator + REFERENCE_BYTES) * values, call.function.upper())


def _in_order(call: AggregateUse, column: Column, starts: Int64Array, stops: Int64Array) -> tuple[Column, Int64Array, Int64Array]:
    """Return the values of ranges that no longer overlap, as the call's ORDER BY wants them; equal ones stay in order of event time."""
    if not call.options or not isinstance(call.options[-1], tuple):
        return column, starts, stops
    claim(REFERENCE_BYTES * int((stops - starts).sum()), call.function.upper())  # windows overlap
    (_, value_type), *keys = column.type.fields
    codes = [
        _order_codes(column_from_arrow(column.values.field(place), type_), *how)
        for place, ((_, type_), how) in enumerate(zip(keys, call.options[-1], strict=True), start=1)
    ]
    codes.reverse()  # lexsort wants the first key last
    picked = [np.lexsort([code[a:b] for code in codes]) + a for a, b in _bounds(starts, stops)]
    ends = np.cumsum(np.concatenate((np.zeros(1, dtype=np.int64), stops - starts)))
    index = np.concatenate(picked) if picked else np.empty(0, dtype=np.int64)
    return column_from_arrow(column.values.field(0), value_type).take(index), ends[:-1], ends[1:]


def _order_codes(column: Column, falls: bool, nulls_first: bool) -> Int64Array:
    """Return whole numbers that stand in the order that is wanted of the values."""
    valid = column.validity()
    valid = np.ones(len(column), dtype=np.bool_) if valid is None else valid
    values = value_array(column)
    codes = np.full(len(column), -1 if nulls_first else len(column), dtype=np.int64)
    keys, places = np.unique(values[valid], return_inverse=True)  # NaN last (K13)
    codes[valid] = len(keys) - 1 - places if falls else places
    return codes


def _array_agg(call: AggregateUse, column: Column, starts: Int64Array, stops: Int64Array) -> Column:
    column, starts, stops = _in_order(call, column, starts, stops)
    _claim(call, column, starts, stops)
    plain = plain_values(column)
    return _lists(call, [plain[a:b] if b > a else None for a, b in _bounds(starts, stops)])


def _collect_set(call: AggregateUse, column: Column, starts: Int64Array, stops: Int64Array) -> Column:
    return _array_agg(call, *distinct_values(column, starts, stops))


def _histogram(call: AggregateUse, column: Column, starts: Int64Array, stops: Int64Array) -> Column:
    """Return how often each value came, by its text, the texts in order."""
    _claim(call, column, starts, stops)
    plain = column.values.to_pylist()
    return _lists(call, [sorted(Counter(plain[a:b]).items()) if b > a else None for a, b in _bounds(starts, stops)])


def _mode(call: AggregateUse, column: Column, starts: Int64Array, stops: Int64Array) -> Column:
    """Return the most frequent value; of several the first to come."""
    ids = key_encoder([column.type]).encode([column])
    found = np.zeros(len(starts), dtype=np.int64)
    for place, (a, b) in enumerate(_bounds(starts, stops)):
        _, first, counts = np.unique(ids[a:b], return_index=True, return_counts=True)
        if b > a:
            found[place] = a + first[counts == counts.max()].min()
    if not len(column):
        return null_column(call.type, len(starts))
    return null_unless(column.take(found), stops > starts)


def _top_frequent(call: AggregateUse, column: Column, starts: Int64Array, stops: Int64Array) -> Column:
    """The k most frequent; at equal counts the first to come."""
    plain = plain_values(column)
    if column.type.kind is Kind.DOUBLE:
        plain = [0.0 if v == 0 else _NAN if v != v else v for v in plain]  # one zero and one NaN (K7): an object equals itself
    limit = call.options[0]
    return _lists(call, [[v for v, _ in Counter(plain[a:b]).most_common(limit)] if b > a else None for a, b in _bounds(starts, stops)])


def _string_agg(call: AggregateUse, column: Column, starts: Int64Array, stops: Int64Array) -> Column:
    column, starts, stops = _in_order(call, column, starts, stops)
    _claim(call, column, starts, stops)
    plain = column.values.to_pylist()
    separator = call.options[0]
    texts = [separator.join(plain[a:b]) if b > a else None for a, b in _bounds(starts, stops)]
    return Column(call.type, pa.array(texts, type=pa.string()))


def _distinct_count(call: AggregateUse, column: Column, starts: Int64Array, stops: Int64Array) -> Column:
    _, first, last = distinct_values(column, starts, stops)
    return Column(call.type, last - first)


def distinct_values(column: Column, starts: Int64Array, stops: Int64Array) -> tuple[Column, Int64Array, Int64Array]:
    """Return each range's different values (K7), first occurrences in order, as ranges that no longer overlap."""
    ids = key_encoder([column.type]).encode([column])
    picked: list[Int64Array] = []
    sizes = [0]
    for a, b in _bounds(starts, stops):
        first = np.sort(np.unique(ids[a:b], return_index=True)[1]) + a
        picked.append(first)
        sizes.append(len(first))
    bounds = np.cumsum(np.array(sizes, dtype=np.int64))
    index = np.concatenate(picked) if picked else np.empty(0, dtype=np.int64)
    return column.take(index), bounds[:-1], bounds[1:]


def _array(name: str, types: Types, options: Options) -> Signature:
    expect_count(name, types, 1, 1)
    return Signature(name, types, list_of(types[0]))


def _string(name: str, types: Types, options: Options) -> Signature:
    """STRING_AGG(x [, separator]); the separator is ',' unless given. Values that are not TEXT are written as text."""
    expect_count(name, types, 1, 1)
    separator = options[0] if options else ","
    if not isinstance(separator, str):
        raise TypeProblem(f"the separator of {name.upper()} must be a constant text")
    return Signature(name, (TEXT,), TEXT, (separator,))


def _counts_by_text(name: str, types: Types, options: Options) -> Signature:
    """HISTOGRAM(x): a MAP of values, as text, to how often they came."""
    expect_count(name, types, 1, 1)
    return Signature(name, (TEXT,), map_of(BIGINT))


def _distinct_estimate(name: str, types: Types, options: Options) -> Signature:
    expect_count(name, types, 1, 1)
    return Signature(name, types, BIGINT)


COLLECT_SET = AggregateFunction(_array, of_values=_collect_set)
HISTOGRAM = AggregateFunction(_counts_by_text, of_values=_histogram)
MODE = AggregateFunction(same_type, of_values=_mode)
ARRAY_AGG = AggregateFunction(_array, of_values=_array_agg, takes_nulls=True)
STRING_AGG = AggregateFunction(_string, of_values=_string_agg)
APPROX_TOP_K = AggregateFunction(top_rule, of_values=_top_frequent)
APPROX_COUNT_DISTINCT = AggregateFunction(_distinct_estimate, of_values=_distinct_count, zero_if_empty=True)
