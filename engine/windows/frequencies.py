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
from millstream.engine.column import Column
from millstream.engine.operators.recipes import AggregateCall
from millstream.engine.types import DataType
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


class Frequencies(Accumulator):
    """One such aggregate over all panes."""

    def __init__(self, call: AggregateCall, argument: DataType, table: PaneTable) -> None:
        super().__init__(call.type)
        self._call = replace(call, arguments=(0,), filter=None, distinct=False)
        self._distinct = call.distinct
        self._position, self._filter = call.arguments[0], call.filter
        self._codes = value_codes(argument)
        self._table = table
        self._panes: dict[int, PaneValues] = {}

    def update(self, batch: Batch) -> None:
        """Keep the values that count."""
        mask = batch.chosen(self._position, self._filter)
        column, cells = batch.column(self._position), batch.cells
        if mask is not None:
            column, cells = column.filter(mask), cells[mask]
        if not len(cells):
            return
        codes = self._codes.encode(column)
        slots, groups = np.divmod(cells + batch.lo, self._table.capacity)
        first = int(slots[0])
        if (slots == first).all():
            self._add(first, groups, codes)
            return
        for slot in np.unique(slots).tolist():
            here = slots == slot
            self._add(slot, groups[here], codes[here])

    def _add(self, slot: int, groups: Int64Array, codes: Int64Array) -> None:
        pane = self._panes.get(slot)
        if pane is None:
            pane = self._panes[slot] = PaneValues()
        pane.add(groups, codes)

    def combine(self, slots: Sequence[int], ids: Int64Array) -> Column:
        """Return the answer for groups `ids` over panes."""
        return self._answer(self._over(slots), ids)

    def answers(self, slots: Sequence[int], requests: Sequence[Request]) -> list[Column]:
        """Return an answer a request in one pass: what is known of the newest panes goes on into the longer windows."""
        answers: dict[int, Column] = {}
        whole, reached = Tally(), 0
        for place in sorted(range(len(requests)), key=lambda i: requests[i][0]):
            count, ids = requests[place]
            if count > reached:
                whole, reached = merged([whole, self._over(slots[reached:count])]), count
            answers[place] = self._answer(whole, ids)
        return [answers[place] for place in range(len(requests))]

    def _over(self, slots: Sequence[int]) -> Tally:
        return merged([self._panes[slot].counted() for slot in slots if slot in self._panes])

    def _answer(self, tally: Tally, ids: Int64Array) -> Column:
        codes, counts = self._codes.ordered(tally.codes), tally.counts
        if codes is not tally.codes:
            order = np.lexsort((codes, tally.groups))
            codes, counts = codes[order], counts[order]
        starts = np.searchsorted(tally.groups, ids, side="left")
        stops = np.searchsorted(tally.groups, ids, side="right")
        if self._call.function == "count":
            return Column(self.type, stops - starts)
        column = self._codes.column(codes)
        by_rank = BY_RANK.get(self._call.function)
        if by_rank is None:
            return evaluate(self._call, column, starts, stops)
        return by_rank(Ranked(column, np.ones_like(counts) if self._distinct else counts, starts, stops), self._call)

    def clear(self, slot: int) -> None:
        """Forget a pane."""
        if self._panes.pop(slot, None) is not None:
            self._codes.keep_only([codes for pane in self._panes.values() for codes in (pane.tally.codes, *(w[1] for w in pane.waiting))])

    def nbytes(self) -> int:
        """Return the bytes of all values."""
        return self._codes.nbytes() + sum(pane.nbytes() for pane in self._panes.values())
