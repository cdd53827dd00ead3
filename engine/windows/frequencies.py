"""Percentiles, TOP and DISTINCT over panes: each pane keeps the different values of each group with their counts (Golab 2006, 2.2).

State is panes × groups × different values. Rows wait until they are as many as the values of their pane, so that each is sorted but a few
times; the tally of a pane does not depend on how rows were cut into calls (K15). Windows that end together are answered in one pass
from the newest pane to the oldest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from millstream.engine.data.column import Column
from millstream.engine.data.distinct_values import distinct
from millstream.engine.data.types import DataType
from millstream.engine.language.recipes import AggregateCall
from millstream.engine.windows.accumulators import Accumulator, Request
from millstream.engine.windows.batch import Batch
from millstream.engine.windows.grids import PaneTable
from millstream.engine.windows.ranges import evaluate
from millstream.engine.windows.tallies import Ranked, Tally, merged, tally_rows
from millstream.engine.windows.value_codes import value_codes

Int64Array = npt.NDArray[np.int64]

BY_RANK = {"percentile_cont": Ranked.percentile_cont, "percentile_disc": Ranked.percentile_disc, "top": Ranked.top}
OF_DISTINCT = frozenset(("count", "sum", "avg", "stddev", "variance", "stddev_pop", "var_pop", *BY_RANK))
WAITING_ROWS_MIN = 1_024


def by_frequency(call: AggregateCall) -> bool:
    """Whether an aggregate can be read off the different values with their counts, in whatever order these came."""
    return call.function in OF_DISTINCT if call.distinct else call.function in BY_RANK


class PaneValues:
    """The values of one pane: a tally, and rows that wait to be counted."""

    __slots__ = ("tally", "waiting", "waiting_rows")

    def __init__(self) -> None:
        self.tally = Tally()
        self.waiting: list[tuple[Int64Array, Int64Array]] = []
        self.waiting_rows = 0

    def add(self, groups: Int64Array, codes: Int64Array) -> None:
        """Take in rows."""
        self.waiting.append((groups, codes))
        self.waiting_rows += len(codes)
        if self.waiting_rows >= max(WAITING_ROWS_MIN, len(self.tally)):
            self.counted()

    def counted(self) -> Tally:
        """Return the tally of all rows."""
        if self.waiting:
            groups, codes = (np.concatenate(one) for one in zip(*self.waiting, strict=True))
            self.tally = merged([self.tally, tally_rows(groups, codes)])
            self.waiting, self.waiting_rows = [], 0
        return self.tally

    def nbytes(self) -> int:
        """Return the bytes of both."""
        return self.tally.nbytes() + 16 * self.waiting_rows


class ValueTallies:
    """The values of one (argument, FILTER) over all panes, kept once for all aggregates that are read off them."""

    def __init__(self, position: int, filter_: int | None, argument: DataType, table: PaneTable) -> None:
        self._position, self._filter = position, filter_
        self.codes = value_codes(argument)
        self._table = table
        self._panes: dict[int, PaneValues] = {}
        self._passed: tuple[tuple[int, ...], dict[int, Tally]] = (), {}  # what the last pass found, until rows come

    def update(self, batch: Batch) -> None:
        """Keep the values that count."""
        mask = batch.chosen(self._position, self._filter)
        column, cells = batch.column(self._position), batch.cells
        if mask is not None:
            column, cells = column.filter(mask), cells[mask]
        if not len(cells):
            return
        codes = self.codes.encode(column)
        slots, groups = np.divmod(cells + batch.lo, self._table.capacity)
        self._passed = (), {}
        first = int(slots[0])
        if (slots == first).all():
            self._add(first, groups, codes)
            return
        for slot in distinct(slots).tolist():
            here = slots == slot
            self._add(slot, groups[here], codes[here])

    def _add(self, slot: int, groups: Int64Array, codes: Int64Array) -> None:
        pane = self._panes.get(slot)
        if pane is None:
            pane = self._panes[slot] = PaneValues()
        pane.add(groups, codes)

    def over(self, slots: Sequence[int]) -> Tally:
        """Return the tally over panes."""
        return merged([self._panes[slot].counted() for slot in slots if slot in self._panes])

    def passed(self, slots: Sequence[int], counts: Sequence[int]) -> dict[int, Tally]:
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


class Frequencies(Accumulator):
    """One such aggregate over all panes; the values are the tallies'."""

    folds = False

    def __init__(self, call: AggregateCall, tallies: ValueTallies) -> None:
        super().__init__(call.type)
        self._call = replace(call, arguments=(0,), filter=None, distinct=False)
        self._distinct = call.distinct
        self._tallies = tallies

    def update(self, batch: Batch) -> None:
        """Nothing of its own."""

    def combine(self, slots: Sequence[int], ids: Int64Array) -> Column:
        """Return the answer for groups `ids` over panes."""
        return self._answer(self._tallies.over(slots), ids)

    def answers(self, slots: Sequence[int], requests: Sequence[Request]) -> list[Column]:
        """Return an answer a request in one pass, which serves all aggregates of the same values."""
        found = self._tallies.passed(slots, [count for count, _ in requests])
        return [self._answer(found[count], ids) for count, ids in requests]

    def _answer(self, tally: Tally, ids: Int64Array) -> Column:
        starts = np.searchsorted(tally.groups, ids, side="left")
        stops = np.searchsorted(tally.groups, ids, side="right")
        if self._call.function == "count":
            return Column(self.type, stops - starts)
        codes, counts = self._tallies.codes.ordered(tally.codes), tally.counts
        if codes is not tally.codes:
            order = np.lexsort((codes, tally.groups))
            codes, counts = codes[order], counts[order]
        column = self._tallies.codes.column(codes)
        by_rank = BY_RANK.get(self._call.function)
        if by_rank is None:
            return evaluate(self._call, column, starts, stops)
        return by_rank(Ranked(column, np.ones_like(counts) if self._distinct else counts, starts, stops), self._call)
