"""From the units that were picked to a work order: the steps, and how many tuples each may take."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.engine.data.graph import OperatorId
from millstream.engine.data.work import OrderId, Step, WorkOrder
from millstream.scheduler.contracts import Traversal, Turns
from millstream.scheduler.limits import ORDER_STEPS_MAX, TRAIN_ROWS_MAX
from millstream.scheduler.trains import TrainShape
from millstream.scheduler.traversals import upstream_first
from millstream.scheduler.view import View


class OrderMaker:
    """Makes the steps of units of one cut. The walk of each unit and the steps after the first are made once and kept.

    The first step that runs an operator takes at most the rows that the ledger knows; a step whose input an earlier one of the same
    unit produced takes whatever is there (`rows_max` None), or what fits into the quantum where the train is
    one. `let_in` says how many of the rows at a unit's entry may be taken, for policies with source boxes.
    """

    def __init__(
        self,
        view: View,
        train: TrainShape,
        traversal: Traversal,
        turns: Turns | None,
        let_in: Callable[[View, int, int], int] | None = None,
    ) -> None:
        self.view = view
        self.train = train
        self.traversal = traversal
        self.turns = turns
        self._let_in = let_in
        self._walks: dict[int, tuple[int, ...]] = {}
        self._rest: dict[int, tuple[Step, ...]] = {}
        self._made: dict[int, tuple[int, int, tuple[Step, ...]]] = {}
        # A train that is a count and has equal turns is as long as that, whatever the estimates say.
        self._count = train.count if turns is None or getattr(turns, "equal", False) else 0
        network = view.ledger.network
        self._identity = network.operators.ids
        self._ledger = view.ledger
        # Walks that follow the estimates are kept as long as a cut that follows them stands as it was made.
        self._follows = traversal is not upstream_first and view.units.depends_on_estimates
        self._version = view.estimates.version
        self._plain = traversal is upstream_first and not view.units.interior_counts and not train.quantum_ns

    def query_came(self, query_operators: Sequence[int]) -> None:
        """A query came whose operators these are: units above them walk on to new members."""
        self._walks.clear()
        self._made.clear()
        if not self._plain:
            self._rest.clear()
        unit_at = self.view.units.units_with
        for operator in query_operators:
            for unit in unit_at(operator).tolist():
                self._rest.pop(unit, None)

    def make(self, order: OrderId, units: Sequence[int], budget_ns: int | None) -> WorkOrder:
        """Return one order that runs these units one after the other."""
        steps: list[Step] = []
        if self._plain and not self._ledger.halted_count:
            if len(units) == 1:
                return WorkOrder(order, self._steps_from_entry(units[0]), budget_ns)
            for unit in units:
                steps += self._steps_from_entry(unit)
                if len(steps) >= ORDER_STEPS_MAX:
                    break
        else:
            for unit in units:
                self._walk_steps(unit, steps)
                if len(steps) >= ORDER_STEPS_MAX:
                    break
        return WorkOrder(order, tuple(steps), budget_ns)

    def _steps_from_entry(self, unit: int) -> tuple[Step, ...]:
        """Return the entry of a unit, and what follows it. The steps of a unit are made anew only when their rows are others."""
        known = self._made.get(unit)
        entry = known[1] if known is not None else self.view.units.entries.item(unit)
        rows, count = self._ledger.rows_at[entry], self._count
        if self._let_in is not None:
            rows = self._let_in(self.view, unit, rows)
        if not count:
            rows = self._fitting(unit, entry, rows)
        elif rows > count:
            rows = count
        elif rows < 0:
            rows = 0
        if known is None or known[0] != rows:
            known = self._made[unit] = (rows, entry, (Step(self._operator(entry), rows), *self._behind(unit)))
        return known[2]

    def _behind(self, unit: int) -> tuple[Step, ...]:
        rest = self._rest.get(unit)
        if rest is None:
            rest = self._rest[unit] = tuple(Step(self._operator(member), None) for member in self.view.units.members(unit)[1:])
        return rest

    def _operator(self, slot: int) -> OperatorId:
        identity = self._identity[slot]
        assert identity is not None
        return identity

    def _rows(self, unit: int, operator: int) -> int:
        waiting = self._ledger.rows_at[operator]
        if self._let_in is not None and operator == self.view.units.entries.item(unit):
            waiting = self._let_in(self.view, unit, waiting)
        return self._fitting(unit, operator, waiting)

    def _fitting(self, unit: int, operator: int, waiting: int) -> int:
        factor = self.turns.share(self.view, unit) if self.turns is not None else 1.0
        estimates = self.view.estimates
        costs = estimates.cost_ns if self.train.quantum_ns else estimates.cost_to_end_ns
        return self.train.rows(waiting, costs.item(operator), factor)

    def _fed_rows(self, unit: int, operator: int) -> int | None:
        """Rows for a step behind another of the unit: whatever is there, with a quantum what fits into it."""
        return self._fitting(unit, operator, TRAIN_ROWS_MAX) if self.train.quantum_ns else None

    def _walk_steps(self, unit: int, steps: list[Step]) -> None:
        ledger = self._ledger
        units = self.view.units
        if self._follows and self._version != self.view.estimates.version:
            self._version = self.view.estimates.version
            self._walks, self._rest, self._made = {}, {}, {}
        walk = self._walks.get(unit)
        if walk is None:
            walk = self._walks[unit] = tuple(self.traversal(ledger.network, self.view.estimates, units.members(unit)))
        if not ledger.halted_count and not self.train.quantum_ns and self._walk_from_start(unit, walk, steps):
            return
        consumers = units.topology.consumers
        fed: set[int] = set()
        taken: set[int] = set()
        for member in walk:
            if ledger.halted_at[member]:
                continue
            has_work = member not in taken and (ledger.rows_at[member] > 0 or ledger.controls_at[member] > 0)
            if member in fed:
                steps.append(Step(self._operator(member), self._fed_rows(unit, member)))
            elif has_work:
                steps.append(Step(self._operator(member), self._rows(unit, member)))
            else:
                continue
            taken.add(member)
            fed.discard(member)
            fed.update(consumers[member])

    def _walk_from_start(self, unit: int, walk: tuple[int, ...], steps: list[Step]) -> bool:
        """Walk on where work waits only before the first operator, which is most often so: what follows is always the same."""
        rows_at, controls_at, first = self._ledger.rows_at, self._ledger.controls_at, walk[0]
        for member in walk:
            if member != first and (rows_at[member] > 0 or controls_at[member] > 0):
                return False
        if rows_at[first] <= 0 and controls_at[first] <= 0:
            return False
        rest = self._rest.get(unit)
        if rest is None:
            rest = self._rest[unit] = self._fed_from(walk)
        rows, count = rows_at[first], self._count
        if self._let_in is not None:
            rows = self._let_in(self.view, unit, rows)
        if not count:
            rows = self._fitting(unit, first, rows)
        elif rows > count:
            rows = count
        elif rows < 0:
            rows = 0
        known = self._made.get(unit)
        if known is None or known[0] != rows:
            known = self._made[unit] = (rows, first, (Step(self._operator(first), rows), *rest))
        steps += known[2]
        return True

    def _fed_from(self, walk: tuple[int, ...]) -> tuple[Step, ...]:
        consumers = self.view.units.topology.consumers
        fed = set(consumers[walk[0]])
        found: list[Step] = []
        for member in walk[1:]:
            if member in fed:
                found.append(Step(self._operator(member), None))
                fed.discard(member)
                fed.update(consumers[member])
        return tuple(found)
