"""Aggregates over panes that keep a synopsis per pane and group: the APPROX_ functions, in memory that rows do not swell.

Rows wait until there are enough of them to be worth a sort by group; a synopsis does not care how they are cut (K15).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from millstream.engine.data.column import Column
from millstream.engine.data.types import DataType
from millstream.engine.language.recipes import AggregateCall
from millstream.engine.sketches.contract import Synopsis, SynopsisKind, Values
from millstream.engine.sketches.kinds import synopsis_kind
from millstream.engine.windows.accumulators import Accumulator
from millstream.engine.windows.batch import Batch
from millstream.engine.windows.grids import PaneTable

Int64Array = npt.NDArray[np.int64]

WAITING_ROWS_MAX = 16_384


class Sketched(Accumulator):
    """One APPROX_ aggregate over all panes."""

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
        mask = batch.chosen(self._position, self._filter)
        column, cells, times = batch.column(self._position), batch.cells, batch.times()
        ordinals = np.arange(batch.ordinal, batch.ordinal + batch.rows, dtype=np.int64)
        if mask is not None:
            column, cells, times, ordinals = column.filter(mask), cells[mask], times[mask], ordinals[mask]
        if len(cells) == 0:
            return
        slots, groups = np.divmod(cells + batch.lo, self._table.capacity)  # before the table grows and cells move
        self._waiting.append((slots, groups, Values(self._kind.encode(column), times, ordinals)))
        self._waiting_rows += len(cells)
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
