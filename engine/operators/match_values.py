"""What results of MATCH_RECOGNIZE show of the rows of their matches, for all matches of a train at once.

The rows of all matches stand one match after the other. A result sees those of its match from `low` to `high` (excluded): to the end of the
match or, RUNNING in ALL ROWS PER MATCH, to its own row. Of a variable it sees the rows among them that are mapped to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrays import expanded
from millstream.engine.data.column import Column, with_nulls
from millstream.engine.data.records import dataclass
from millstream.engine.data.train import Int64Array
from millstream.engine.data.types import BIGINT, TEXT
from millstream.engine.language.recipes import MatchSpec, MatchValue
from millstream.engine.windows.ranges import Ranges
from millstream.engine.windows.vectors import StoredColumns, Vectors


@dataclass(frozen=True, slots=True)
class Results:
    """Of each result its match, its place in the arena, and the rows that it sees: from `low` to `high`, to `final` of the whole match."""

    match: Int64Array
    at: Int64Array
    low: Int64Array
    high: Int64Array
    final: Int64Array


class MatchedRows:
    """The rows of some matches. `places` are those of first rows in the arena, `mapped` the variable of each row, `ids` the partitions."""

    def __init__(self, places: Int64Array, mapped: Sequence[bytes], ids: Int64Array, numbers: Int64Array) -> None:
        self.places, self.ids, self.numbers = places, ids, numbers
        self.sizes: Int64Array = np.fromiter(map(len, mapped), np.int64, len(mapped))
        self.stops: Int64Array = np.cumsum(self.sizes)
        self.starts: Int64Array = self.stops - self.sizes
        self.variables = np.frombuffer(b"".join(mapped), dtype=np.uint8)
        self.at = expanded(places, self.sizes)

    def results(self, spec: MatchSpec) -> Results:
        """Return one result a match, or one a row."""
        matches = np.arange(len(self.places), dtype=np.int64)
        if not spec.all_rows:
            last = self.places + np.maximum(0, self.sizes - 1)
            return Results(matches, last, self.starts, self.stops, self.stops)
        counts = np.maximum(1, self.sizes) if spec.shows_empty else self.sizes
        match = np.repeat(matches, counts)
        place = np.arange(len(match), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
        high = self.starts[match] + np.minimum(place + 1, self.sizes[match])
        return Results(match, self.places[match] + place, self.starts[match], high, self.stops[match])


def matched_columns(
    spec: MatchSpec, matched: MatchedRows, results: Results, stored: Mapping[int, StoredColumns], rows: Vectors
) -> list[Column]:
    """Return the columns of results: those kept of the input, then the measures."""

    def column(position: int, at: Int64Array) -> Column:
        return stored[position].gathered(rows, at)[0]

    chosen: dict[tuple[int, ...], Int64Array] = {}

    def rows_of(variables: tuple[int, ...]) -> Int64Array:
        """Return which rows are mapped to one of some variables; all where none is named."""
        found = chosen.get(variables)
        if found is None:
            if variables:
                found = np.flatnonzero(np.isin(matched.variables, variables))
            else:
                found = np.arange(len(matched.variables), dtype=np.int64)
            chosen[variables] = found
        return found

    def measure(value: MatchValue) -> Column:
        high = results.final if value.final or not spec.all_rows else results.high
        if value.word == "number":
            return Column(BIGINT, matched.numbers[results.match])
        if value.word == "classifier":
            last = np.where(high > results.low, high - 1, 0)
            names = [spec.variables[v] for v in matched.variables[last].tolist()] if len(matched.variables) else [""] * len(last)
            return with_nulls(Column(TEXT, pa.array(names, type=pa.string())), high > results.low)
        of = rows_of(value.variables)
        starts, stops = np.searchsorted(of, results.low), np.searchsorted(of, high)
        if value.call is not None:
            return Ranges(lambda p: column(p, matched.at[of]), len(of), starts, stops).aggregate(value.call)
        assert value.column is not None
        wanted = starts + value.offset if value.first else stops - 1 - value.offset
        there = (starts <= wanted) & (wanted < stops)
        at = results.at.copy()
        at[there] = matched.at[of[wanted[there]]] + value.shift
        there &= at >= rows.start[matched.ids[results.match]]
        return with_nulls(column(value.column, np.where(there, at, results.at)), there)

    kept = sorted(stored) if spec.all_rows else spec.partition
    return [*(column(p, results.at) for p in kept), *map(measure, spec.measures)]
