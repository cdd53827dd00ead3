"""The aggregates of an operator over one table of panes: from calls to what answers them. Equal states, counts and values are kept once.

Panes are put together in order of time. Most trains of a busy stream stay in a pane that rows of every group have reached, and have no
NULLs: what is left to do for such a train is prepared once a pane (`FullPane`), one call over a whole column for each state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from millstream.engine.aggregates.contract import Fold, null_unless
from millstream.engine.aggregates.sums import COUNTS
from millstream.engine.aggregates.table import aggregate_of, foldable
from millstream.engine.data.column import Column
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Train
from millstream.engine.data.types import DataType
from millstream.engine.language.recipes import AggregateCall
from millstream.engine.sketches.contract import SKETCHED
from millstream.engine.state.forms import state_record
from millstream.engine.windows.grids import PaneTable
from millstream.engine.windows.pane_states import Batch, Int64Array, PaneStates, Request, RowCounts, UpperHalves, ValueCounts, pane_states
from millstream.engine.windows.pane_values import Accumulator, Collected, PaneFrequencies, Sketched, ValueTallies, by_frequency
from millstream.engine.windows.sliding_cells import StatePart, argument_type, counts_part, state_parts

Part = StatePart | tuple[str, int | None, int | None] | AggregateCall


def parts_of(call: AggregateCall, inputs: Schema) -> tuple[Part, ...]:
    """Return what of a pane an aggregate is made of, so that AVG can begin where SUM is held. Rows are counted whatever is asked."""
    if call.arguments and by_frequency(call):
        return (("values", call.arguments[0], call.filter),)
    if call.function in SKETCHED or not foldable([call]):
        return (call,)
    counts = counts_part(call)
    parts = (*(() if counts is None else (counts,)), *state_parts(call, inputs))
    return tuple(part for part in parts if part != StatePart(COUNTS, None, None))


@state_record("folded", 1, ("type", "_call", "_argument", "_states", "_counts"))
class Folded(Accumulator):
    """An aggregate that is read off states. These are folded elsewhere, as others may read them too."""

    def __init__(self, call: AggregateCall, argument: DataType, states: Sequence[PaneStates], counts: ValueCounts | None) -> None:
        super().__init__(call.type)
        self._call, self._argument = call, argument
        self._states, self._counts = states, counts

    def combine(self, slots: Sequence[int], ids: Int64Array) -> Column:
        """Return the answer from the states of the panes put together."""
        counts = None if self._counts is None or self._counts.are_row_counts else self._counts.combine(slots, ids)
        return self._answer([one.combine(slots, ids) for one in self._states], counts)

    def answers(self, slots: Sequence[int], requests: Sequence[Request]) -> list[Column]:
        """Return the answers in one pass a state."""
        counts: Sequence[Any] = [None] * len(requests)
        if self._counts is not None and not self._counts.are_row_counts:
            counts = self._counts.passed(slots, requests)
        passed = zip(*(one.passed(slots, requests) for one in self._states), strict=True)
        return [self._answer(states, count) for states, count in zip(passed, counts, strict=True)]

    def _answer(self, states: Sequence[Any], counts: Int64Array | None) -> Column:
        answer = aggregate_of(self._call.function).answer
        assert answer is not None
        column = answer(self._call, self._argument, states)
        return column if counts is None else null_unless(column, counts > 0)


class FullPane:
    """The pane in cells lo to hi of every grid, whichever it is, while the table keeps its memory.

    `memory` are the row counts of all panes. `columns` are those that aggregates read, each with whom to ask whether all of its rows
    count and with what folds its values; None where some aggregate wants more than whole columns.
    """

    __slots__ = ("_columns", "_counts", "memory")

    def __init__(self, memory: Int64Array, lo: int, hi: int, columns: Sequence[tuple[int, ValueCounts, Sequence[Fold]]] | None) -> None:
        self.memory = memory
        self._counts = memory[lo:hi]
        self._columns = columns

    def fold(self, rows: Train, ids: Int64Array) -> bool:
        """Fold all rows of a train, whose groups are given; False, and nothing done, where some rows do not count everywhere."""
        if self._columns is None:
            return False
        values = []
        for position, counts, _ in self._columns:
            column = rows.column(position)
            if not counts.leaves_none_out(column):
                return False
            values.append(column.values)
        self._counts += np.bincount(ids, minlength=len(self._counts))
        for (_, _, folds), given in zip(self._columns, values, strict=True):
            for fold in folds:
                fold(ids, given)
        return True


@state_record("aggregates", 1, ("table", "rows", "_inputs", "_states", "_tallies", "_accumulators"))
class Aggregates:
    """The accumulators of one operator. `update` folds a batch into all of them, `combine` answers for one window."""

    def __init__(self, calls: Sequence[AggregateCall], inputs: Schema, table: PaneTable | None = None) -> None:
        self.table = PaneTable() if table is None else table
        self.rows = RowCounts(self.table)
        self._inputs = inputs
        self._states: dict[StatePart, PaneStates] = {}
        self._tallies: dict[tuple[int, int | None], ValueTallies] = {}
        self._accumulators = [self._accumulator(call) for call in calls]
        self._prepare()

    def _prepare(self) -> None:
        """Note what a batch has to be folded into, in turn: those that only read what others keep are left out."""
        kept = [one for one in self._states.values() if not (isinstance(one, ValueCounts) and one.are_always_row_counts)]
        kept.sort(key=lambda one: not isinstance(one, UpperHalves))  # they look at the sums before these go on
        own = [accumulator for accumulator in self._accumulators if accumulator.folds]
        self._beside: list[ValueTallies | Accumulator] = [*self._tallies.values(), *own]  # what holds more than grids
        self._folding: list[PaneStates | ValueTallies | Accumulator] = [*kept, *self._beside]
        self._whole = self._whole_columns()
        self._ready: dict[int, FullPane] = {}  # by slot

    @classmethod
    def from_state(cls, fields: dict[str, Any]) -> Aggregates:
        """Return the accumulators; what was prepared is no state."""
        made = cls.__new__(cls)
        vars(made).update(fields)
        made._prepare()
        return made

    def update(self, batch: Batch) -> Int64Array:
        """Fold rows in; return the flat cells that had no row before."""
        new = self.rows.update(batch)
        for one in self._folding:
            one.update(batch)
        return new

    def fold_full(self, slot: int, rows: Train, ids: Int64Array) -> bool:
        """Fold a whole train into one pane that rows of every group have reached; False, and nothing done, where it is not so plain."""
        if not self.rows.is_full(slot):
            return False
        ready = self._ready.get(slot)
        if ready is None or ready.memory is not self.rows.counts.flat:
            ready = self._make_ready(slot)
        return ready.fold(rows, ids)

    def _make_ready(self, slot: int) -> FullPane:
        """Prepare a full pane, and let go of what was prepared over memory that the table has left."""
        memory = self.rows.counts.flat
        self._ready = {known: ready for known, ready in self._ready.items() if ready.memory is memory}
        lo, hi = slot * self.table.capacity, (slot + 1) * self.table.capacity
        columns = None
        if self._whole is not None:
            columns = [(at, counts, [one.folder(lo, hi) for one in states]) for at, counts, states in self._whole]
        made = self._ready[slot] = FullPane(memory, lo, hi, columns)
        return made

    def _whole_columns(self) -> list[tuple[int, ValueCounts, list[PaneStates]]] | None:
        """Return by column whom to ask whether all of its rows count, and the states of its values; None where some want more."""
        counts: dict[int, ValueCounts] = {}
        states: dict[int, list[PaneStates]] = {}
        for one in self._folding:
            if not isinstance(one, PaneStates):
                return None
            column = one.column
            if column is None or self._inputs.fields[column].type.is_arrow:
                return None
            if isinstance(one, ValueCounts):
                counts[column] = one
            else:
                states.setdefault(column, []).append(one)
        if not states.keys() <= counts.keys():
            return None
        return [(position, one, states.get(position, [])) for position, one in counts.items()]

    def combine(self, slots: Sequence[int], ids: Int64Array) -> list[Column]:
        """Return a column per aggregate for groups `ids` over panes in order of time."""
        return [a.combine(slots, ids) for a in self._accumulators]

    def close(self, pane: int) -> None:
        """Free a pane."""
        slot = self.table.slots[pane]
        self.rows.clear(slot)
        for one in self._beside:
            one.clear(slot)
        self.table.close(pane)

    def nbytes(self) -> int:
        """Return the bytes of all panes."""
        return self.table.nbytes() + self.rows.nbytes() + sum([one.nbytes() for one in self._beside])

    def include(self, call: AggregateCall) -> Accumulator:
        """Keep one more aggregate from now on; panes that exist already know nothing of it."""
        made = self._accumulator(call)
        self._accumulators.append(made)
        self._prepare()
        return made

    def exclude(self, accumulator: Accumulator, left: Sequence[AggregateCall]) -> None:
        """Keep an aggregate no longer, nor the counts, states and values that none of the calls `left` reads."""
        self._accumulators.remove(accumulator)
        wanted = {part for call in left for part in parts_of(call, self._inputs)}
        gone = [self._states.pop(part) for part in [p for p in self._states if p not in wanted]]
        self._tallies = {key: tallies for key, tallies in self._tallies.items() if ("values", *key) in wanted}
        self._prepare()
        held = {id(grid) for one in gone for grid in one.grids}
        self.table.grids = [g for g in self.table.grids if id(g) not in held]

    def _state(self, part: StatePart) -> PaneStates:
        return pane_states(part, self.table, self.rows, self._states)

    def _value_tallies(self, position: int, filter_: int | None) -> ValueTallies:
        key = (position, filter_)
        if key not in self._tallies:
            self._tallies[key] = ValueTallies(position, filter_, self._inputs.fields[position].type, self.table)
        return self._tallies[key]

    def _accumulator(self, call: AggregateCall) -> Accumulator:
        argument = argument_type(call, self._inputs)
        if call.arguments and call.function in SKETCHED:
            return Sketched(call, argument, self.table)
        if call.arguments and by_frequency(call):
            return PaneFrequencies(call, self._value_tallies(call.arguments[0], call.filter))
        if not foldable([call]):
            return Collected(call, argument, self.table)
        part = counts_part(call)
        counts = None if part is None else self._state(part)
        assert counts is None or isinstance(counts, ValueCounts)
        return Folded(call, argument, [self._state(one) for one in state_parts(call, self._inputs)], counts)
