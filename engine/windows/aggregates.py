"""From aggregate calls to accumulators over one pane table; equal counts, sums and values are kept once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.engine.data.column import Column
from millstream.engine.data.errors import Unsupported
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Train
from millstream.engine.language.recipes import AggregateCall
from millstream.engine.sketches.kinds import SKETCHED
from millstream.engine.windows.accumulators import Accumulator, Count, Fold, Int64Array, RowCounts, ValueCounts
from millstream.engine.windows.batch import Batch
from millstream.engine.windows.collected import Collected
from millstream.engine.windows.extremes import Extreme, ObjectExtreme
from millstream.engine.windows.frequencies import Frequencies, ValueTallies, by_frequency
from millstream.engine.windows.full_pane import Argument, FullPane
from millstream.engine.windows.grids import Grid, PaneTable
from millstream.engine.windows.pane_folds import folded_by_pane, pane_fold
from millstream.engine.windows.sketched import Sketched
from millstream.engine.windows.sums import Average, SharedSums, Sum, sums_of

FOLDED = frozenset(("count", "sum", "avg", "min", "max"))

PREPARED = frozenset(("_folding", "_ready"))

Part = tuple[str, int | None, int | None] | AggregateCall


def parts_of(call: AggregateCall) -> tuple[Part, ...]:
    """Return what of a pane an aggregate is made of, so that AVG can begin where SUM is held. Rows are counted whatever is asked."""
    position = call.arguments[0] if call.arguments else None
    if position is not None and by_frequency(call):
        return (("values", position, call.filter),)
    if call.function not in FOLDED or (call.distinct and call.function not in ("min", "max")):
        return (call,)
    if position is None and call.filter is None:
        return ()
    counts = ("count", position, call.filter)
    if call.function == "count":
        return (counts,)
    return (counts, call) if call.function in ("min", "max") else (counts, ("sum", position, call.filter))


class Aggregates:
    """The accumulators of one operator. `update` folds a batch into all of them, `combine` answers for one window."""

    def __init__(self, calls: Sequence[AggregateCall], inputs: Schema, table: PaneTable | None = None) -> None:
        self.table = PaneTable() if table is None else table
        self.rows = RowCounts(self.table)
        self._inputs = inputs
        self._counts: dict[tuple[int | None, int | None], ValueCounts] = {}
        self._sums: dict[tuple[int, int | None], SharedSums] = {}
        self._tallies: dict[tuple[int, int | None], ValueTallies] = {}
        self._accumulators = [self._accumulator(call) for call in calls]
        self._prepare()

    def _prepare(self) -> None:
        """Note what a batch has to be folded into, in turn: those that only read what others keep are left out."""
        kept = [counts for counts in self._counts.values() if not counts.are_always_row_counts]
        own = [accumulator for accumulator in self._accumulators if accumulator.folds]
        self._folding: list[ValueCounts | SharedSums | ValueTallies | Accumulator] = [
            *kept,
            *self._sums.values(),
            *self._tallies.values(),
            *own,
        ]
        self._ready: dict[int, FullPane] = {}  # by slot

    def __getstate__(self) -> dict[str, Any]:
        """What was prepared is not state."""
        return {name: value for name, value in vars(self).items() if name not in PREPARED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepare()

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
        made = self._ready[slot] = FullPane(memory, lo, hi, self._arguments(lo, hi))
        return made

    def _arguments(self, lo: int, hi: int) -> list[Argument] | None:
        """Return what is folded into cells lo to hi by column; None where that is more than whole columns."""
        folds: dict[int, list[Fold]] = {}
        asked = [counts for counts in self._counts.values() if not counts.are_always_row_counts]
        for counts in asked:
            if counts.column is None or self._inputs.fields[counts.column].type.is_arrow:
                return None
            folds[counts.column] = []
        holders: list[SharedSums | Accumulator] = [*self._sums.values(), *[one for one in self._accumulators if one.folds]]
        for one in holders:
            fold = one.fold_into(lo, hi)
            if fold is None or fold[0] not in folds:
                return None
            folds[fold[0]].append(fold[1])
        return None if self._tallies else [(c.column, c, folds[c.column]) for c in asked if c.column is not None]

    def combine(self, slots: Sequence[int], ids: Int64Array) -> list[Column]:
        """Return a column per aggregate for groups `ids` over panes in order of time."""
        return [a.combine(slots, ids) for a in self._accumulators]

    def close(self, pane: int) -> None:
        """Free a pane."""
        slot = self.table.slots[pane]
        self.rows.clear(slot)
        for tallies in self._tallies.values():
            tallies.clear(slot)
        for accumulator in self._accumulators:
            accumulator.clear(slot)
        self.table.close(pane)

    def nbytes(self) -> int:
        """Return the bytes of all panes."""
        held = sum(t.nbytes() for t in self._tallies.values()) + sum(a.nbytes() for a in self._accumulators)
        return self.table.nbytes() + held

    def include(self, call: AggregateCall) -> Accumulator:
        """Keep one more aggregate from now on; panes that exist already know nothing of it."""
        made = self._accumulator(call)
        self._accumulators.append(made)
        self._prepare()
        return made

    def exclude(self, accumulator: Accumulator, left: Sequence[AggregateCall]) -> None:
        """Keep an aggregate no longer, nor the counts, sums and values that none of the calls `left` reads."""
        self._accumulators.remove(accumulator)
        keys = {(c.arguments[0] if c.arguments else None, c.filter) for c in left}
        tallied = {(c.arguments[0], c.filter) for c in left if c.arguments and by_frequency(c)}
        self._tallies = {key: tallies for key, tallies in self._tallies.items() if key in tallied}
        gone: list[object] = [accumulator]
        gone.extend(self._counts.pop(k) for k in [k for k in self._counts if k not in keys])
        gone.extend(self._sums.pop(k).sums for k in [k for k in self._sums if k not in keys])
        self._prepare()
        held = {id(v) for owner in gone for v in vars(owner).values() if isinstance(v, Grid)}
        self.table.grids = [g for g in self.table.grids if id(g) not in held]

    def _value_counts(self, position: int | None, filter_: int | None) -> ValueCounts:
        key = (position, filter_)
        if key not in self._counts:
            self._counts[key] = ValueCounts(self.table, self.rows, position, filter_)
        return self._counts[key]

    def _value_tallies(self, position: int, filter_: int | None) -> ValueTallies:
        key = (position, filter_)
        if key not in self._tallies:
            self._tallies[key] = ValueTallies(position, filter_, self._inputs.fields[position].type, self.table)
        return self._tallies[key]

    def _shared_sums(self, position: int, filter_: int | None) -> SharedSums:
        key = (position, filter_)
        if key not in self._sums:
            argument = self._inputs.fields[position].type
            self._sums[key] = SharedSums(sums_of(self.table, argument), position, filter_)
        return self._sums[key]

    def _accumulator(self, call: AggregateCall) -> Accumulator:
        position = call.arguments[0] if call.arguments else None
        if position is not None and call.function in SKETCHED:
            return Sketched(call, self._inputs.fields[position].type, self.table)
        if position is not None and folded_by_pane(call):
            return pane_fold(call, self._inputs.fields[position].type, self.table)
        if position is not None and by_frequency(call):
            return Frequencies(call, self._value_tallies(position, call.filter))
        if position is not None and (call.function not in FOLDED or (call.distinct and call.function not in ("min", "max"))):
            return Collected(call, self._inputs.fields[position].type, self.table)
        counts = self._value_counts(position, call.filter)
        if call.function == "count":
            return Count(call.type, counts)
        if position is None:
            raise Unsupported(f"{call.function.upper()} needs an argument")
        argument = self._inputs.fields[position].type
        if call.function == "sum":
            return Sum(call.type, self._shared_sums(position, call.filter), counts)
        if call.function == "avg":
            return Average(call.type, argument, self._shared_sums(position, call.filter), counts)
        if call.function in ("min", "max"):
            greatest = call.function == "max"
            if argument.is_arrow or argument.is_wide:
                return ObjectExtreme(call.type, self.table, position, call.filter, greatest=greatest)
            return Extreme(call.type, self.table, counts, position, call.filter, greatest=greatest)
        raise Unsupported(f"the aggregate {call.function.upper()} is not supported in this window")
