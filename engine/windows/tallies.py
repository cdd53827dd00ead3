"""Tallies: the different values of each group with how often they came, sorted by group and value; and aggregates read off them."""

from __future__ import annotations

from dataclasses import field
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from millstream.engine.data.arrow import arrow_type, plain_values
from millstream.engine.data.column import Column, null_column
from millstream.engine.data.records import dataclass
from millstream.engine.language.recipes import AggregateCall
from millstream.engine.windows.holistic import numbers_column, with_nulls
from millstream.engine.windows.percentiles import between, exact_rank

Int64Array = npt.NDArray[np.int64]

_PACKED_MAX = 2**62  # group and value fit one number below this


def _none() -> Int64Array:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Tally:
    """Three arrays of one length: group, code of the value, count."""

    groups: Int64Array = field(default_factory=_none)
    codes: Int64Array = field(default_factory=_none)
    counts: Int64Array = field(default_factory=_none)

    def __len__(self) -> int:
        """Return the number of different values, summed over the groups."""
        return len(self.codes)

    def nbytes(self) -> int:
        """Return the bytes of the arrays."""
        return int(self.groups.nbytes + self.codes.nbytes + self.counts.nbytes)


def tally_rows(groups: Int64Array, codes: Int64Array) -> Tally:
    """Count rows."""
    if not len(codes):
        return Tally()
    low, span = int(codes.min()), int(codes.max()) - int(codes.min()) + 1
    if (int(groups.max()) + 1) * span < _PACKED_MAX:
        keys, counts = np.unique(groups * span + (codes - low), return_counts=True)
        return Tally(keys // span, keys % span + low, counts.astype(np.int64, copy=False))
    return _summed(groups, codes, np.ones(len(codes), dtype=np.int64))


def merged(parts: list[Tally]) -> Tally:
    """Put tallies together."""
    parts = [part for part in parts if len(part)]
    if len(parts) < 2:
        return parts[0] if parts else Tally()
    arrays = ([getattr(part, name) for part in parts] for name in ("groups", "codes", "counts"))
    return _summed(*(np.concatenate(one) for one in arrays))


def _summed(groups: Int64Array, codes: Int64Array, counts: Int64Array) -> Tally:
    order = _by_group(groups, codes)
    groups, codes = groups[order], codes[order]
    starts = np.flatnonzero(np.concatenate((np.ones(1, dtype=np.bool_), (groups[1:] != groups[:-1]) | (codes[1:] != codes[:-1]))))
    return Tally(groups[starts], codes[starts], np.add.reduceat(counts[order], starts))


def _by_group(groups: Int64Array, codes: Int64Array) -> Int64Array:
    """Return the order by group and code."""
    order: Int64Array = np.argsort(codes, kind="stable")  # what is sorted in runs is merged
    if groups[0] == groups[-1] and (groups == groups[0]).all():
        return order
    ranked = groups[order]
    if int(ranked.max()) <= np.iinfo(np.int16).max:
        ranked = ranked.astype(np.int16)  # NumPy sorts 16 bits by radix
    regrouped: Int64Array = order[np.argsort(ranked, kind="stable")]
    return regrouped


class Ranked:
    """A column of values with counts, cut into ranges: one a group, values rising."""

    def __init__(self, column: Column, counts: Int64Array, starts: Int64Array, stops: Int64Array) -> None:
        self.column = column
        self._counts = counts
        self._upto: Int64Array = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))
        self._bounds = list(zip(starts.tolist(), stops.tolist(), strict=True))

    def rows(self, start: int, stop: int) -> int:
        """Return how many rows a range stands for."""
        return int(self._upto[stop] - self._upto[start])

    def place(self, start: int, nth: int) -> int:
        """Return where the nth row (from 0) of a range stands."""
        return int(np.searchsorted(self._upto, self._upto[start] + nth, side="right")) - 1

    def percentile_cont(self, call: AggregateCall) -> Column:
        """Interpolate at the 0-based rank p·(n-1), as holistic.py does with all rows."""
        values = self.column.values
        results: list[Any] = []
        for start, stop in self._bounds:
            if start == stop:
                results.append(None)
                continue
            rank = exact_rank(call.options[0], self.rows(start, stop) - 1)
            low = int(rank)
            below, share = values[self.place(start, low)], float(rank - low)
            value = below if share == 0.0 else between(below, values[self.place(start, low + 1)], share)
            results.append(value if values.dtype == np.float64 else int(value))
        return numbers_column(call, results, values.dtype)

    def percentile_disc(self, call: AggregateCall) -> Column:
        """Take the ceil(p·n)-th value in order."""
        if not len(self.column):
            return null_column(call.type, len(self._bounds))
        picked = np.zeros(len(self._bounds), dtype=np.int64)
        full = np.array([stop > start for start, stop in self._bounds], dtype=np.bool_)
        for number, (start, stop) in enumerate(self._bounds):
            if start < stop:
                nth = max(1, ceil(exact_rank(call.options[0], self.rows(start, stop))))
                picked[number] = self.place(start, nth - 1)
        result = self.column.take(picked)
        return result if full.all() else with_nulls(result, full)

    def top(self, call: AggregateCall) -> Column:
        """Take the k greatest, descending."""
        limit = call.options[0]
        lists: list[list[Any] | None] = []
        for start, stop in self._bounds:
            if start == stop:
                lists.append(None)
                continue
            first = self.place(start, max(0, self.rows(start, stop) - limit))
            at = np.repeat(np.arange(stop - 1, first - 1, -1), self._counts[first:stop][::-1])[:limit]
            lists.append(plain_values(self.column.take(at)))
        return Column(call.type, pa.array(lists, type=arrow_type(call.type)))
