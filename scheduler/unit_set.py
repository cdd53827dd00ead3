"""A cut of the network into units, and the state of each unit in columns.

A unit has an entry (the operator whose queue makes it runnable and whose estimates rank it) and members (every operator an order for
it may run, children before parents). Units may overlap; what must not run twice at once are operators, so a unit is locked as long as
any of its members is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import ClassVar

import numpy as np
from millstream.scheduler.estimates import Estimates
from millstream.scheduler.ledger import Ledger, single_values
from millstream.scheduler.limits import NEVER_NS
from numpy.typing import NDArray

IntColumn = NDArray[np.int64]
BoolColumn = NDArray[np.bool_]
FloatColumn = NDArray[np.float64]

# Above so many changed operators one pass over all units in NumPy is cheaper than a loop over the changed ones.
_VECTOR_CHANGES_MIN = 48


class UnitSet:
    """Units of one cut, numbered from 0 in the order that decides ties.

    State columns: `rows` and `head_ns` at the entry, `ready` (something to do), `locked` (members' orders under way), `available`
    (ready and not locked). `threshold` is τ: rows the entry must exceed. A unit is ready whatever τ says when an interior queue holds
    rows, when control items wait, or when `overdue` said that its head has waited too long.
    """

    interior_counts: ClassVar[bool] = True
    """Whether rows before an inner member make the unit ready (False where every operator is the entry of a unit of its own)."""

    depends_on_estimates: ClassVar[bool] = False
    """Whether another cut may be called for when the estimates moved."""

    name: ClassVar[str] = "units"

    def __init__(self, ledger: Ledger, members: Sequence[tuple[int, ...]], entries: Sequence[int] | None = None) -> None:
        self.ledger = ledger
        self.topology = ledger.network.topology
        self._members: list[tuple[int, ...] | None] = list(members)
        self.count = len(members)
        self.entries: IntColumn = np.array([one[0] for one in members] if entries is None else entries, dtype=np.int64)
        self.threshold = 0
        self.ignore_full = False
        self.rows: IntColumn = np.zeros(self.count, dtype=np.int64)
        self.head_ns: IntColumn = np.full(self.count, NEVER_NS, dtype=np.int64)
        self.ready: BoolColumn = np.zeros(self.count, dtype=np.bool_)
        self.locked: IntColumn = np.zeros(self.count, dtype=np.int64)
        self.available: BoolColumn = np.zeros(self.count, dtype=np.bool_)
        self._open_views()
        self._units_with: tuple[list[int], IntColumn] | None = None  # where each operator's units begin, and the units
        self._moved_by: dict[int, list[int]] = {}
        self._conflicts: dict[int, IntColumn] = {}
        self._exits: dict[int, tuple[int, ...]] = {}
        self._open_edges: dict[int, tuple[int, ...]] = {}

    def _open_views(self) -> None:
        self.rows_at, self.head_at, self._locked_at = single_values(self.rows), single_values(self.head_ns), single_values(self.locked)
        self._ready_at = memoryview(self.ready)  # type: ignore[arg-type]
        self.available_at = memoryview(self.available)  # type: ignore[arg-type]

    # ---- shape

    def query_came(self, operators: Sequence[int]) -> bool:
        """Take in the operators of a new query; False when the cut must be made anew."""
        return False

    def holds(self) -> bool:
        """Whether the estimates, which have just moved, still call for this cut; it then follows them in place."""
        return not self.depends_on_estimates

    def adjust(self, name: str, column: FloatColumn) -> FloatColumn:
        """Return an estimate's column as it holds for these units (for cuts whose units are not all of what lies below)."""
        return column

    def members(self, unit: int) -> tuple[int, ...]:
        """Operators of the unit, children before parents."""
        found = self._members[unit]
        if found is None:
            found = self._members[unit] = self._find_members(unit)
        return found

    def _find_members(self, unit: int) -> tuple[int, ...]:
        """Each subclass has its own; the base is never made by itself."""
        raise NotImplementedError

    def units_with(self, operator: int) -> IntColumn:
        """Units that have this operator among their members, ascending."""
        starts, units = self._units_with or self._index_members()
        return units[starts[operator] : starts[operator + 1]] if operator + 1 < len(starts) else _NO_UNITS

    def _index_members(self) -> tuple[list[int], IntColumn]:
        members = [list(dict.fromkeys(self.members(unit))) for unit in range(self.count)]
        operators = np.array(list(chain.from_iterable(members)), dtype=np.int64)
        units = np.repeat(np.arange(self.count), [len(one) for one in members])[np.argsort(operators, kind="stable")]
        starts = np.concatenate(([0], np.cumsum(np.bincount(operators)))).tolist()
        self._units_with = starts, units
        return starts, units

    def conflicts(self, unit: int) -> IntColumn:
        """Units that share an operator with this one, itself among them."""
        found = self._conflicts.get(unit)
        if found is None:
            found = self._conflicts[unit] = self.conflicts_of(self.members(unit))
        return found

    def open_edges(self, unit: int) -> tuple[int, ...]:
        """Return the edges into the unit whose producer is no member."""
        found = self._open_edges.get(unit)
        if found is None:
            network, members = self.ledger.network, self.members(unit)
            edges = (edge for member in dict.fromkeys(members) for edge in network.inputs[member])
            found = self._open_edges[unit] = tuple(edge for edge in edges if network.edge_producer[edge] not in members)
        return found

    def open_edges_of(self, picked: Sequence[int]) -> list[int]:
        """Return the same for several units, one after the other."""
        found: list[int] = []
        known = self._open_edges
        for unit in picked:
            found += known.get(unit) or self.open_edges(unit)
        return found

    def conflicts_of(self, operators: Iterable[int]) -> IntColumn:
        """Units that contain any of these operators."""
        lists = [self.units_with(operator) for operator in operators]
        return np.unique(np.concatenate(lists)) if lists else _NO_UNITS

    def exits(self, unit: int) -> tuple[int, ...]:
        """Members with a consumer outside the unit: a full queue behind one of these blocks the unit."""
        found = self._exits.get(unit)
        if found is None:
            inside = set(self.members(unit))
            consumers = self.topology.consumers
            found = tuple(one for one in inside if any(consumer not in inside for consumer in consumers[one]))
            self._exits[unit] = found
        return found

    # ---- state

    def update(self, operators: Sequence[int]) -> Sequence[int]:
        """Bring the state up to date after these operators changed; return the units whose state was looked at."""
        if len(operators) >= _VECTOR_CHANGES_MIN:
            return self._update_many(operators)
        units: dict[int, None] = {}
        for operator in operators:
            for unit in self._units_moved_by(operator):
                units[unit] = None
        changed = list(units)
        for unit in changed:
            self._update_unit(unit)
        return changed

    def update_all(self) -> None:
        """Bring the state of every unit up to date."""
        for unit in range(self.count):
            self._update_unit(unit)

    def _update_many(self, operators: Sequence[int]) -> Sequence[int]:
        units: list[int] = self.conflicts_of(dict.fromkeys(operators)).tolist()
        for unit in units:
            self._update_unit(unit)
        return units

    def _units_moved_by(self, operator: int) -> list[int]:
        found = self._moved_by.get(operator)
        if found is None:
            found = self._moved_by[operator] = self.units_with(operator).tolist()
        return found

    def next_overdue_ns(self, head_wait_ns_max: int) -> int | None:
        """Return when the oldest head of a unit that τ holds back has waited so long; None for no such unit."""
        waiting = ~self.ready & (self.rows > 0)
        return int(self.head_ns[waiting].min()) + head_wait_ns_max if waiting.any() else None

    def _update_unit(self, unit: int) -> None:
        ledger = self.ledger
        entry = self.entries.item(unit)
        rows = ledger.rows_at[entry]
        self.rows_at[unit] = rows if rows > 0 else 0
        self.head_at[unit] = ledger.head_at[entry]
        ready = rows > self.threshold and not ledger.halted_at[entry] and not ledger.stalled_at[entry]
        if not ready:
            ready = any(self._has_work(member, member == entry) for member in self.members(unit))
        if ready and ledger.full_count and not self.ignore_full:
            ready = not any(ledger.full_at[member] for member in self.exits(unit))
        self._ready_at[unit] = ready
        self.available_at[unit] = ready and not self._locked_at[unit]

    def _has_work(self, member: int, is_entry: bool) -> bool:
        ledger = self.ledger
        if ledger.halted_at[member] or ledger.stalled_at[member]:
            return False
        return ledger.controls_at[member] > 0 or (not is_entry and ledger.rows_at[member] > 0)

    # ---- locks

    def lock(self, units: IntColumn) -> None:
        """An order that shares operators with these units was given out."""
        self.locked[units] += 1
        self.available[units] = False

    def unlock(self, units: IntColumn) -> None:
        """That order came back."""
        self.locked[units] -= 1
        self.available[units] = self.ready[units] & (self.locked[units] == 0)

    def overdue(self, before_ns: int) -> list[int]:
        """Make units ready whose head arrived at or before this time though τ holds them back; return them."""
        late = np.flatnonzero(~self.ready & (self.rows > 0) & (self.head_ns <= before_ns))
        found = [unit for unit in late.tolist() if self._may_run(int(self.entries[unit]))]
        for unit in found:
            self.ready[unit] = True
            self.available[unit] = self.locked[unit] == 0
        return found

    def _may_go_on(self, operator: int) -> bool:
        return not self.ledger.halted_at[operator] and not self.ledger.stalled_at[operator]

    def _may_run(self, operator: int) -> bool:
        ledger = self.ledger
        if not self._may_go_on(operator):
            return False
        return self.ignore_full or not ledger.full_at[operator]


_NO_UNITS: IntColumn = np.zeros(0, dtype=np.int64)


class EntryUnits(UnitSet):
    """A cut in which every operator that can run is the entry of exactly one unit."""

    interior_counts = False

    def __init__(self, ledger: Ledger, estimates: Estimates) -> None:
        self.estimates = estimates
        order = ledger.network.topology.order
        super().__init__(ledger, [()] * len(order), order)
        self._members = [None] * self.count
        self._number(0, order)

    def _number(self, first: int, operators: Sequence[int]) -> None:
        if first == 0:
            self._unit_at: list[int] = []
            self.unit_of: IntColumn = np.zeros(0, dtype=np.int64)
        missing = len(self.ledger.network.nodes) - len(self._unit_at)
        self._unit_at.extend([-1] * missing)
        self.unit_of = np.concatenate((self.unit_of, np.full(missing, -1, dtype=np.int64)))
        for unit, operator in enumerate(operators, first):
            self._unit_at[operator] = unit
            self.unit_of[operator] = unit
        self._entry_at: list[int] = self.entries.tolist()

    def query_came(self, operators: Sequence[int]) -> bool:
        """Add a unit for each new operator; what is above them has new members."""
        first, added = self.count, len(operators)
        self.count += added
        self.entries = np.concatenate((self.entries, np.array(operators, dtype=np.int64)))
        zeros = np.zeros(added, dtype=np.int64)
        self.rows, self.locked = np.concatenate((self.rows, zeros)), np.concatenate((self.locked, zeros))
        self.head_ns = np.concatenate((self.head_ns, np.full(added, NEVER_NS, dtype=np.int64)))
        self.ready = np.concatenate((self.ready, zeros.astype(np.bool_)))
        self.available = np.concatenate((self.available, zeros.astype(np.bool_)))
        self._open_views()
        self._members.extend([None] * added)
        self._number(first, operators)
        for above in self.topology.upstream(operators):
            unit = self._unit_at[above]
            self._members[unit] = None
            self._exits.pop(unit, None)
            self._open_edges.pop(unit, None)
        self._conflicts.clear()
        return True

    def _units_moved_by(self, operator: int) -> list[int]:
        unit = self._unit_at[operator]
        return [unit] if unit >= 0 else []

    def _full_blocks(self) -> bool:
        """Whether a full queue behind the entry blocks the unit (not where the unit goes on to the consumer itself)."""
        return True

    def update(self, operators: Sequence[int]) -> Sequence[int]:
        """Bring the state up to date after these operators changed; return the units whose state was looked at."""
        if len(operators) >= _VECTOR_CHANGES_MIN:
            return self._update_many(operators)
        unit_at, ledger = self._unit_at, self.ledger
        if len(operators) == 1:
            changed = [unit_at[operators[0]]] if unit_at[operators[0]] >= 0 else []
        else:
            changed = [unit for operator in operators if (unit := unit_at[operator]) >= 0]
        if ledger.halted_count or ledger.stalled_count or ledger.full_count:
            for unit in changed:
                self._update_unit(unit)
            return changed
        # As `_update_unit` does where nothing holds an operator back; this loop runs for every unit of every order.
        entry_at, threshold = self._entry_at, self.threshold
        rows_of, head_of, controls_of = ledger.rows_at, ledger.head_at, ledger.controls_at
        rows_at, head_at, ready_at, available_at, locked_at = self.rows_at, self.head_at, self._ready_at, self.available_at, self._locked_at
        for unit in changed:
            entry = entry_at[unit]
            rows = rows_of[entry]
            ready = rows > threshold or controls_of[entry] > 0
            rows_at[unit] = rows if rows > 0 else 0
            head_at[unit] = head_of[entry]
            ready_at[unit] = ready
            available_at[unit] = ready and not locked_at[unit]
        return changed

    def _update_many(self, operators: Sequence[int]) -> Sequence[int]:
        units = self.unit_of[np.array(operators, dtype=np.int64)]
        units = units[units >= 0]
        self._update_columns(units)
        found: list[int] = units.tolist()
        return found

    def update_all(self) -> None:
        """Bring the state of every unit up to date."""
        self._update_columns(np.arange(self.count))

    def _update_columns(self, units: IntColumn) -> None:
        ledger, slots = self.ledger, self.entries[units]
        rows = np.maximum(ledger.rows[slots], 0)
        ready = ((rows > self.threshold) | (ledger.controls[slots] > 0)) & (ledger.halted[slots] == 0) & (ledger.stalled[slots] == 0)
        if ledger.full_count and not self.ignore_full and self._full_blocks():
            ready &= ledger.full_outputs[slots] == 0
        self.rows[units] = rows
        self.head_ns[units] = ledger.head_ns[slots]
        self.ready[units] = ready
        self.available[units] = ready & (self.locked[units] == 0)

    def _update_unit(self, unit: int) -> None:
        ledger, entry = self.ledger, self._entry_at[unit]
        rows = ledger.rows_at[entry]
        ready = rows > self.threshold or ledger.controls_at[entry] > 0
        if ready and (ledger.halted_count or ledger.stalled_count or ledger.full_count):
            ready = self._may_run(entry) if self._full_blocks() else self._may_go_on(entry)
        self.rows_at[unit] = rows if rows > 0 else 0
        self.head_at[unit] = ledger.head_at[entry]
        self._ready_at[unit] = ready
        self.available_at[unit] = ready and not self._locked_at[unit]
