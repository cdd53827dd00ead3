"""APPROX_TOP_K: Misra–Gries counters, mergeable as Agarwal et al. (2013) showed, fed in blocks.

With at most `counters` different values the counts are exact. With more, whenever there are too many the count of the first that is too
many is taken from all and what is left with nothing goes: a count is too low by at most rows / counters, so a value that is more frequent
than that is never lost. Each counter remembers the value's first row (event time, then arrival), which breaks ties.

Values are counted in blocks of BLOCK rows of the group, so the state depends on their order alone and not on trains.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from millstream.engine.data.arrow import arrow_type, plain_values
from millstream.engine.data.column import Column
from millstream.engine.data.keys import bits_as_values, key_bits
from millstream.engine.data.types import DataType, Kind
from millstream.engine.sketches.contract import Synopsis, SynopsisKind, Values
from millstream.engine.state.forms import state_record

COUNTERS_MIN = 1024
COUNTERS_PER_PLACE = 8  # for each of the k places asked for
BLOCK = 4096
_COUNTER_BYTES = 200

Counter = tuple[int, int, int]  # rows, event time and ordinal of the first
Counters = dict[Any, Counter]


@state_record("frequency_counters", 1, ("counters_max", "sizes", "values", "counters", "waiting_sizes", "waiting"))
class FrequencyCounters(Synopsis):
    """Counters, and fewer than BLOCK values that have not been counted yet."""

    __slots__ = ("counters", "counters_max", "waiting", "waiting_rows")

    def __init__(self, counters_max: int) -> None:
        self.counters_max = counters_max
        self.counters: Counters = {}
        self.waiting: list[Values] = []
        self.waiting_rows = 0

    @classmethod
    def to_table(cls, all_: Sequence[FrequencyCounters]) -> tuple[Any, ...]:
        """Return the bounds, the counters one after another with how many each has, and likewise the values that wait."""
        waiting = [part for one in all_ for part in one.waiting]
        return (
            [one.counters_max for one in all_],
            np.array([len(one.counters) for one in all_], dtype=np.int64),
            [value for one in all_ for value in one.counters],
            [counter for one in all_ for counter in one.counters.values()],
            np.array([one.waiting_rows for one in all_], dtype=np.int64),
            joined_values(waiting) if waiting else None,
        )

    @classmethod
    def from_table(cls, fields: dict[str, Any]) -> list[FrequencyCounters]:
        """Return them again; what waits in one part does not show in an answer."""
        made, at, start = [], 0, 0
        sizes = zip(fields["counters_max"], fields["sizes"].tolist(), fields["waiting_sizes"].tolist(), strict=True)
        for most, size, waiting in sizes:
            one = cls(most)
            one.counters = dict(zip(fields["values"][at : at + size], fields["counters"][at : at + size], strict=True))
            if waiting:
                one.waiting, one.waiting_rows = [copied_values(fields["waiting"].part(start, start + waiting))], waiting
            at, start = at + size, start + waiting
            made.append(one)
        return made

    def add(self, values: Values) -> None:
        """Take in values; count each full block."""
        start, rows = 0, len(values.codes)
        while self.waiting_rows + rows - start >= BLOCK:
            stop = start + BLOCK - self.waiting_rows
            self.waiting.append(values.part(start, stop))
            count_into(self.counters, self.waiting)
            shrink(self.counters, self.counters_max)
            self.waiting, self.waiting_rows, start = [], 0, stop
        if start < rows:
            self.waiting.append(copied_values(values.part(start, rows)))  # not a view that holds all rows
            self.waiting_rows += rows - start

    def nbytes(self) -> int:
        """Return about the bytes of counters and waiting values."""
        return _COUNTER_BYTES * len(self.counters) + 24 * self.waiting_rows


def joined_values(parts: Sequence[Values]) -> Values:
    """Return values one after another."""
    return Values(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("codes", "times", "ordinals")))


def copied_values(values: Values) -> Values:
    """Return values in memory of their own."""
    return Values(values.codes.copy(), values.times.copy(), values.ordinals.copy())


def count_into(counters: Counters, parts: Sequence[Values]) -> None:
    """Count values; a counter's first row is the least by (event time, ordinal)."""
    if not parts:
        return
    codes = np.concatenate([p.codes for p in parts])
    times, ordinals = np.concatenate([p.times for p in parts]), np.concatenate([p.ordinals for p in parts])
    order = np.lexsort((ordinals, times))
    values, first, counts = _counted(codes[order])
    rows = order[first]
    found = zip(values, counts, times[rows].tolist(), ordinals[rows].tolist(), strict=True)
    merge_into(counters, ((value, (count, time, ordinal)) for value, count, time, ordinal in found))


def _counted(codes: npt.NDArray[Any]) -> tuple[list[Any], list[int], list[int]]:
    """Return the different codes, the place of the first of each, and how many there are of it."""
    if codes.dtype != np.object_:
        values, first, counts = np.unique(codes, return_index=True, return_counts=True)
        return values.tolist(), first.tolist(), counts.tolist()
    plain = codes.tolist()
    totals = collections.Counter(plain)  # hashes texts, where np.unique would sort them
    places = dict(zip(reversed(plain), range(len(plain) - 1, -1, -1), strict=True))  # the first place is written last
    return list(totals), [places[v] for v in totals], list(totals.values())


def merge_into(counters: Counters, others: Any) -> None:
    """Add counters to counters."""
    for value, (count, time, ordinal) in others:
        known = counters.get(value)
        if known is None:
            counters[value] = (count, time, ordinal)
        else:
            counters[value] = (known[0] + count, *min(known[1:], (time, ordinal)))


def shrink(counters: Counters, most: int) -> None:
    """Leave at most `most` counters, as Misra and Gries do."""
    if len(counters) <= most:
        return
    taken = sorted((c[0] for c in counters.values()), reverse=True)[most]
    left = {v: (c[0] - taken, c[1], c[2]) for v, c in counters.items() if c[0] > taken}
    counters.clear()
    counters.update(left)


@state_record("frequent_values", 1, ("_places", "_argument", "_counters"))
class FrequentValues(SynopsisKind):
    """The k most frequent values of any type that has an order."""

    def __init__(self, places: int, argument: DataType) -> None:
        self._places = places
        self._argument = argument
        self._counters = max(COUNTERS_MIN, COUNTERS_PER_PLACE * places)

    @property
    def nbytes_max(self) -> int:
        """Return about the bytes of all counters and a block."""
        return _COUNTER_BYTES * self._counters + 24 * BLOCK

    def encode(self, column: Column) -> npt.NDArray[Any]:
        """Return the values' bits, or for texts, bytes and wide decimals the values as objects."""
        if column.type.kind in (Kind.TEXT, Kind.BYTES):
            return np.asarray(column.values.to_numpy(zero_copy_only=False), dtype=np.object_)
        return np.asarray(column.values) if column.type.is_wide else key_bits(column)

    def empty(self) -> FrequencyCounters:
        """Return no counters."""
        return FrequencyCounters(self._counters)

    def answers(self, type_: DataType, groups: Sequence[Sequence[FrequencyCounters]]) -> Column:
        """Return the lists, the most frequent value first; NULL without a value."""
        lists = [self._answer(panes) for panes in groups]
        return Column(type_, pa.array(lists, type=arrow_type(type_)))

    def _answer(self, panes: Sequence[FrequencyCounters]) -> list[Any] | None:
        whole: Counters = dict(panes[0].counters) if panes else {}
        for pane in panes[1:]:
            merge_into(whole, pane.counters.items())
        count_into(whole, [part for pane in panes for part in pane.waiting])
        if not whole:
            return None
        best = sorted(whole.items(), key=lambda item: (-item[1][0], *item[1][1:]))[: self._places]
        return self._plain([value for value, _ in best])

    def _plain(self, codes: list[Any]) -> list[Any]:
        """Return codes as the values that lists hold."""
        if self._argument.kind in (Kind.TEXT, Kind.BYTES):
            return codes
        if self._argument.is_wide:
            return plain_values(Column(self._argument, np.array(codes, dtype=np.object_)))
        return plain_values(Column(self._argument, bits_as_values(np.array(codes, dtype=np.int64), self._argument)))
