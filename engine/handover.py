"""From one plan of a query to another at an arrival number, without losing or repeating a row.

    seal    when the new plan is attached, at s: the old one reads only rows below s from then on, the new one nothing yet
    drain   the old plan answers all rows below s, run by whoever runs the network
    carry   operators with state that are the same in both plans hand theirs over; accounts go on where they stood
    open    the new plan reads the rows from s on

Both plans must have the same operators with state in the same order, each fed the same rows; what may differ is the order, number and
place of those without state. Joins with a table are built anew: the table's content at s is all they hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.engine.errors import Unsupported
from millstream.engine.frontier import edge_frontier
from millstream.engine.graph import OperatorId
from millstream.engine.operators.build import kind_of
from millstream.engine.operators.recipes import SinkRecipe, TableJoinRecipe
from millstream.engine.operators.shared_aggregate import SharedAggregate
from millstream.engine.queues import Cursor
from millstream.engine.running import RunningOperator

if TYPE_CHECKING:
    from millstream.engine.network import RunningQuery


class Handover:
    """One change of plan, from `old`, which is in force, to `new`, which is planned and not yet attached. Raises Unsupported."""

    def __init__(self, old: RunningQuery, new: RunningQuery) -> None:
        self.old = old
        self.new = new
        self.at = 0
        self._check_alone(old.blueprint.operators)
        if old.branches is not None:
            raise Unsupported("the query meets a stream at several places, where late rows are judged together")
        if any(wire.port.derived is not None for query in (old, new) for wire in query.blueprint.wires):
            raise Unsupported("the query reads a derived stream")
        if any(wire.port.lineages for wire in old.blueprint.wires):
            raise Unsupported("its class may be shed, and what its operators count of that does not change hands")
        self._pairs = self._paired()

    def _check_alone(self, operators: Iterable[RunningOperator]) -> None:
        if any(operator.queries > 1 for operator in operators):
            raise Unsupported("its operators serve other queries too")

    def _paired(self) -> list[tuple[RunningOperator, RunningOperator]]:
        """Return the operators with state of both plans, side by side."""
        before, after = (_with_state(query.blueprint.operators) for query in (self.old, self.new))
        pairs = list(zip(before, after, strict=False))
        if len(before) != len(after) or any(a.recipe != b.recipe or type(a.logic) is not type(b.logic) for a, b in pairs):
            raise Unsupported("the plans differ in operators that keep state")
        for one, _ in pairs:
            if not one.logic.state_fields:
                raise Unsupported(f"the state of {kind_of(one.recipe)} cannot be handed over")
            if isinstance(one.logic, SharedAggregate) and len(one.outputs) != 1:
                raise Unsupported("its operators have served other queries too")
        return pairs

    def seal(self, at: int) -> None:
        """Part the rows at an arrival number; called under the ingress lock, with the new plan just attached there."""
        self.at = at
        for cursor in (*_entrances(self.old), *_entrances(self.new)):
            cursor.sealed_at = at

    def is_drained(self) -> bool:
        """Whether the old plan has answered all rows below the arrival number."""
        operators = self.old.blueprint.operators
        if any(edge_frontier(cursor) < self.at for operator in operators for cursor in operator.inputs):
            return False
        return all(operator.started == operator.finished for operator in operators)

    def carry(self) -> None:
        """Hand state and accounts over. Nothing of either plan may run meanwhile."""
        self._check_alone(self.old.blueprint.operators)
        carried: dict[OperatorId, RunningOperator] = {after.id: before for before, after in self._pairs}
        for before, after in self._pairs:
            after.logic.restore(before.logic.snapshot())
        for operator in self.new.blueprint.operators:
            before_it = carried.get(operator.id)
            if before_it is not None:
                for log, old in zip(operator.outputs, before_it.outputs, strict=True):
                    log.watermark_us, log.idle = old.watermark_us, old.idle
            elif not operator.logic.stateful:
                for log in operator.outputs:
                    awake = [c.log.watermark_us for c in operator.inputs if not c.log.idle]
                    log.watermark_us = min(awake) if awake else max(c.log.watermark_us for c in operator.inputs)
                    log.idle = not awake
        self._carry_accounts()

    def _carry_accounts(self) -> None:
        for stream, ledger in self.old.ledgers.items():
            cursor = self.new.ledgers[stream].cursor
            cursor.rows_taken += ledger.cursor.rows_taken
            self.new.ledgers[stream] = replace(ledger, cursor=cursor)

    def open(self) -> tuple[OperatorId, ...]:
        """Let the new plan read; return the operators that may have something to do now."""
        return self._unseal(self.new)

    def give_up(self) -> tuple[OperatorId, ...]:
        """Let the old plan go on as if nothing had been; the new one is to be removed."""
        return self._unseal(self.old)

    def _unseal(self, query: RunningQuery) -> tuple[OperatorId, ...]:
        for cursor in _entrances(query):
            cursor.sealed_at = None
        return tuple(operator.id for operator in query.blueprint.operators if operator.external)


def _entrances(query: RunningQuery) -> list[Cursor]:
    return [cursor for _, cursor in query.blueprint.stream_cursors()]


def _with_state(operators: Iterable[RunningOperator]) -> list[RunningOperator]:
    return [o for o in operators if o.logic.stateful and not isinstance(o.recipe, SinkRecipe | TableJoinRecipe)]
