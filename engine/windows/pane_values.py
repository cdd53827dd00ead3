"""Aggregates over panes that are more than a state: the values of each pane, counted, in order, or as a synopsis.

`ValueTallies` keep the different values of each group with their counts (Golab 2006, 2.2), for percentiles, TOP and DISTINCT: state is
panes × groups × different values. Rows wait until they are as many as the values of their pane, so that each is sorted but a few times.
Windows that end together are answered in one pass from the newest pane to the oldest. `Collected` keeps every value. `Sketched` keeps a
synopsis, in memory that rows do not swell. What any of them holds of a pane does not depend on how rows were cut into calls (K15).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.aggregates.ranked import Ranked
from millstream.engine.aggregates.sums import COUNT
from millstream.engine.aggregates.table import aggregate_of
from millstream.engine.data.column import Column, concat_columns, null_column
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import DataType
from millstream.engine.language.recipes import AggregateCall
from millstream.engine.sketches.contract import SKETCHED, Synopsis, SynopsisKind, Values, synopsis_kind
from millstream.engine.state.forms import state_record
from millstream.engine.windows.grids import PaneTable
from millstream.engine.windows.pane_states import Batch, Request
from millstream.engine.windows.ranges import Ranges, evaluate
from millstream.engine.windows.tallies import CodeCounts, merged, tally_rows, value_codes

Int64Array = npt.NDArray[np.int64]

TALLIED_ROWS_MIN = 1_024
WAITING_ROWS_MAX = 16_384


class Accumulator(ABC):
    """One aggregate over all panes. `type` is the type of the answer.

    Most read what is kept for all; one that has rows to fold by itself says so with `folds`.
    """

    folds: bool = False

    def __init__(self, type_: DataType) -> None:
        self.type = type_

    def update(self, batch: Batch) -> None:
        """Fold rows in."""

    @abstractmethod
    def combine(self, slots: Sequence[int], ids: Int64Array) -> Column:
        """Return the answer for groups `ids` over panes in order of time."""

    def answers(self, slots: Sequence[int], requests: Sequence[Request]) -> list[Column]:
        """Return an answer a request in one pass; `slots` are panes from the newest to the oldest, a request takes the first of them."""
        return [self.combine(slots[:count][::-1], ids) for count, ids in requests]

    def clear(self, slot: int) -> None:
        """Reset what is kept outside of grids, when a pane closes."""

    def nbytes(self) -> int:
        """Return the bytes that are kept outside of grids."""
        return 0

    def sorted_values(self) -> int:
        """Return how many different values an answer sorts, as far as one pane tells; 0 where it sorts none."""
        return 0


def by_frequency(call: AggregateCall) -> bool:
    """Whether an aggregate can be read off the different values with their counts, in whatever order these came."""
    aggregate = aggregate_of(call.function)
    if call.function in SKETCHED:
        return False
    if aggregate.of_ranks is not None:
        return True
    return call.distinct and aggregate.states is not None and not (aggregate.takes_nulls or aggregate.ignores_distinct)


@state_record("pane_values", 1, ("tally", "waiting", "waiting_rows"))
class PaneValues:
    """The values of one pane: a tally, and rows that wait to be counted."""

    __slots__ = ("tally", "waiting", "waiting_rows")

    def __init__(self) -> None:
        self.tally = CodeCounts()
        self.waiting: list[tuple[Int64Array, Int64Array]] = []
        self.waiting_rows = 0

    def add(self, groups: Int64Array, codes: Int64Array) -> None:
        """Take in rows."""
        self.waiting.append((groups, codes))
        self.waiting_rows += len(codes)
        if self.waiting_rows >= max(TALLIED_ROWS_MIN, len(self.tally)):
            self.counted()

    def counted(self) -> CodeCounts:
        """Return the tally of all rows."""
        if self.waiting:
            groups, codes = (np.concatenate(one) for one in zip(*self.waiting, strict=True))
            self.tally = merged([self.tally, tally_rows(groups, codes)])
            self.waiting, self.waiting_rows = [], 0
        return self.tally

    def nbytes(self) -> int:
        """Return the bytes of both."""
        return self.tally.nbytes() + 16 * self.waiting_rows


@state_record("value_tallies", 1, ("_position", "_filter", "codes", "_table", "_panes"))
class ValueTallies:
    """The values of one (argument, FILTER) over all panes, kept once for all aggregates that are read off them."""

    def __init__(self, position: int, filter_: int | None, argument: DataType, table: PaneTable) -> None:
        self._position, self._filter = position, filter_
        self.codes = value_codes(argument)
        self._table = table
        self._panes: dict[int, PaneValues] = {}
        self._passed: tuple[tuple[int, ...], dict[int, CodeCounts]] = (), {}  # what the last pass found, until rows come

    @classmethod
    def from_state(cls, fields: dict[str, Any]) -> ValueTallies:
        """Return the tallies; no pass has been made."""
        made = cls.__new__(cls)
        vars(made).update(fields, _passed=((), {}))
        return made

    def update(self, batch: Batch) -> None:
        """Keep the values that count."""
        rows = batch.rows_of(self._position, self._filter)
        if not len(rows.cells):
            return
        codes = self.codes.encode(rows.argument)
        self._passed = (), {}
        for slot, at, groups in batch.by_slot(rows.cells, self._table.capacity):
            self._add(slot, groups, codes if at is None else codes[at])

    def _add(self, slot: int, groups: Int64Array, codes: Int64Array) -> None:
        pane = self._panes.get(slot)
        if pane is None:
            pane = self._panes[slot] = PaneValues()
        pane.add(groups, codes)

    def over(self, slots: Sequence[int]) -> CodeCounts:
        """Return the tally over panes."""
        return merged([self._panes[slot].counted() for slot in slots if slot in self._panes])

    def passed(self, slots: Sequence[int], counts: Sequence[int]) -> dict[int, CodeCounts]:
        """Return the tally over the first so many panes, for each count: what is known of the newest goes on into the longer windows."""
        panes = tuple(slots)
        if self._passed[0] != panes:
            self._passed = panes, {}
        known = self._passed[1]
        for count in sorted(set(counts) - known.keys()):
            shorter = max((c for c in known if c < count), default=0)
            newer = [known[shorter]] if shorter else []
            known[count] = merged([*newer, self.over(slots[shorter:count])])
        return known

    def clear(self, slot: int) -> None:
        """Forget a pane."""
        self._passed = (), {}
        if self._panes.pop(slot, None) is not None:
            self.codes.keep_only([codes for pane in self._panes.values() for codes in (pane.tally.codes, *(w[1] for w in pane.waiting))])

    def nbytes(self) -> int:
        """Return the bytes of all values."""
        return self.codes.nbytes() + sum(pane.nbytes() for pane in self._panes.values())

    def pane_values(self) -> int:
        """Return the most different values of a group that one pane is known to hold, summed over the groups."""
        return max((len(pane.tally) for pane in self._panes.values()), default=0)


@state_record("pane_frequencies", 1, ("type", "_call", "_distinct", "_tallies"))
class PaneFrequencies(Accumulator):
    """One such aggregate over all panes; the values are the tallies'."""

    def __init__(self, call: AggregateCall, tallies: ValueTallies) -> None:
        super().__init__(call.type)
        self._call = replace(call, arguments=(0,), filter=None, distinct=False)
        self._distinct = call.distinct
        self._tallies = tallies

    def combine(self, slots: Sequence[int], ids: Int64Array) -> Column:
        """Return the answer for groups `ids` over panes."""
        return self._answer(self._tallies.over(slots), ids)

    def sorted_values(self) -> int:
        """Return the different values of a pane: of a window at least as many are sorted."""
        return self._tallies.pane_values()

    def answers(self, slots: Sequence[int], requests: Sequence[Request]) -> list[Column]:
        """Return an answer a request in one pass, which serves all aggregates of the same values."""
        found = self._tallies.passed(slots, [count for count, _ in requests])
        return [self._answer(found[count], ids) for count, ids in requests]

    def _answer(self, tally: CodeCounts, ids: Int64Array) -> Column:
        starts = np.searchsorted(tally.groups, ids, side="left")
        stops = np.searchsorted(tally.groups, ids, side="right")
        aggregate = aggregate_of(self._call.function)
        if aggregate is COUNT:
            return Column(self.type, stops - starts)
        codes, counts = self._tallies.codes.ordered(tally.codes), tally.counts
        if codes is not tally.codes:
            order = np.lexsort((codes, tally.groups))
            codes, counts = codes[order], counts[order]
        column = self._tallies.codes.column(codes)
        if aggregate.of_ranks is None:
            return evaluate(self._call, column, starts, stops)
        return aggregate.of_ranks(self._call, Ranked(column, None if self._distinct else counts, starts, stops))


@state_record("kept_values", 1)
@dataclass(slots=True)
class Kept:
    """Values that came in one batch for one pane: group ids, event times, the values in order of arrival."""

    ids: Int64Array
    times: Int64Array
    column: Column


@state_record("collected", 1, ("type", "_call", "_position", "_filter", "_keep_nulls", "_nothing", "_table", "_values"))
class Collected(Accumulator):
    """Any aggregate that `ranges.py` can evaluate, over all values. In a window values stand by event time, ties by arrival (K13)."""

    folds = True

    def __init__(self, call: AggregateCall, argument: DataType, table: PaneTable) -> None:
        super().__init__(call.type)
        self._call = AggregateCall(call.function, (0,), call.type, None, call.distinct, call.options)
        self._position, self._filter = call.arguments[0], call.filter
        self._keep_nulls = aggregate_of(call.function).takes_nulls
        self._nothing = null_column(argument, 0)
        self._table = table
        self._values: dict[int, list[Kept]] = {}

    def update(self, batch: Batch) -> None:
        """Keep the values that count."""
        rows = batch.rows_of(self._position, self._filter, takes_nulls=self._keep_nulls)
        times, column = rows.places.order()[0], rows.argument
        for slot, at, groups in batch.by_slot(rows.cells, self._table.capacity):
            kept = Kept(groups, times, column) if at is None else Kept(groups, times[at], column.take(at))
            self._values.setdefault(slot, []).append(kept)

    def combine(self, slots: Sequence[int], ids: Int64Array) -> Column:
        """Sort the panes' values by group and time, evaluate each group's range."""
        parts = [v for slot in slots for v in self._values.get(slot, [])]
        place = np.full(self._table.capacity, -1, dtype=np.int64)
        place[ids] = np.arange(len(ids), dtype=np.int64)
        groups = place[np.concatenate([p.ids for p in parts])] if parts else np.empty(0, dtype=np.int64)
        times = np.concatenate([p.times for p in parts]) if parts else np.empty(0, dtype=np.int64)
        order = np.lexsort((times, groups))
        starts = np.searchsorted(groups[order], np.arange(len(ids), dtype=np.int64), side="left")
        stops = np.searchsorted(groups[order], np.arange(len(ids), dtype=np.int64), side="right")
        column = concat_columns([p.column for p in parts]).take(order) if parts else self._nothing
        return Ranges(lambda _: column, len(order), starts, stops).aggregate(self._call)

    def clear(self, slot: int) -> None:
        """Forget a pane."""
        self._values.pop(slot, None)

    def nbytes(self) -> int:
        """Return the bytes of all values."""
        return sum(v.ids.nbytes + v.times.nbytes + v.column.nbytes() for values in self._values.values() for v in values)


@state_record("sketched", 1, ("type", "_kind", "_position", "_filter", "_table", "_panes", "_waiting", "_waiting_rows"))
class Sketched(Accumulator):
    """One APPROX_ aggregate over all panes. Rows wait until there are enough of them to be worth a sort by group."""

    folds = True

    def __init__(self, call: AggregateCall, argument: DataType, table: PaneTable) -> None:
        super().__init__(call.type)
        self._kind: SynopsisKind = synopsis_kind(call, argument)
        self._position, self._filter = call.arguments[0], call.filter
        self._table = table
        self._panes: dict[int, dict[int, Synopsis]] = {}  # by slot and group
        self._waiting: list[tuple[Int64Array, Int64Array, Values]] = []  # slots, groups, values
        self._waiting_rows = 0

    def update(self, batch: Batch) -> None:
        """Keep the values that count."""
        rows = batch.rows_of(self._position, self._filter)
        if not len(rows.cells):
            return
        slots, groups = np.divmod(rows.cells + batch.lo, self._table.capacity)  # before the table grows and cells move
        self._waiting.append((slots, groups, Values(self._kind.encode(rows.argument), *rows.places.order())))
        self._waiting_rows += len(rows.cells)
        if self._waiting_rows >= WAITING_ROWS_MAX:
            self._digest()

    def _digest(self) -> None:
        """Hand each synopsis its values, in order of arrival."""
        if not self._waiting:
            return
        slots = np.concatenate([w[0] for w in self._waiting])
        groups = np.concatenate([w[1] for w in self._waiting])
        parts = [w[2] for w in self._waiting]
        order = np.lexsort((groups, slots))
        slots, groups = slots[order], groups[order]
        values = Values(
            np.concatenate([p.codes for p in parts])[order],
            np.concatenate([p.times for p in parts])[order],
            np.concatenate([p.ordinals for p in parts])[order],
        )
        changed = (slots[1:] != slots[:-1]) | (groups[1:] != groups[:-1])
        starts = np.concatenate((np.zeros(1, dtype=np.int64), np.flatnonzero(changed) + 1))
        bounds = zip(starts.tolist(), [*starts[1:].tolist(), len(slots)], slots[starts].tolist(), groups[starts].tolist(), strict=True)
        for start, stop, slot, group in bounds:
            pane = self._panes.setdefault(slot, {})
            synopsis = pane.get(group)
            if synopsis is None:
                synopsis = pane[group] = self._kind.empty()
            synopsis.add(values.part(start, stop))
        self._waiting, self._waiting_rows = [], 0

    def combine(self, slots: Sequence[int], ids: Int64Array) -> Column:
        """Return the answers from the synopses of the panes."""
        self._digest()
        panes = [p for p in (self._panes.get(slot) for slot in slots) if p]
        return self._kind.answers(self.type, [[p[group] for p in panes if group in p] for group in ids.tolist()])

    def clear(self, slot: int) -> None:
        """Forget a pane."""
        self._digest()
        self._panes.pop(slot, None)

    def nbytes(self) -> int:
        """Return about the bytes of synopses and waiting rows."""
        return 32 * self._waiting_rows + sum(s.nbytes() for pane in self._panes.values() for s in pane.values())
