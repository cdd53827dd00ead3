"""From one plan of a query to another at an arrival number, without losing or repeating a row.

    seal    when the new plan is attached, at s: the old one reads only rows below s from then on, the new one nothing yet
    drain   the old plan answers all rows below s, run by whoever runs the network
    carry   operators with state that are the same in both plans hand theirs over; accounts go on where they stood
    open    the new plan reads the rows from s on

Both plans must have the same operators with state in the same order, each fed the same rows; what may differ is the order, number and
place of those without state. Joins with a table are built anew: the table's content at s is all they hold. Operators without state that
serve other queries too go on as they are: only what belongs to this query alone is sealed, where it reads what does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from millstream.engine.data.errors import Unsupported
from millstream.engine.data.graph import OperatorId
from millstream.engine.flow.cursors import Cursor
from millstream.engine.flow.frontier import edge_frontier
from millstream.engine.flow.running import RunningOperator
from millstream.engine.language.recipes import SinkRecipe, TableJoinRecipe
from millstream.engine.operators.build import kind_of
from millstream.engine.runtime.blueprint import RunningQuery
from millstream.engine.synopses.shared_aggregate import SharedAggregate


class Handover:
    """One change of plan, from `old`, which is in force, to `new`, which is planned and not yet attached. Raises Unsupported."""

    def __init__(self, old: RunningQuery, new: RunningQuery) -> None:
        self.old = old
        self.new = new
        self.at = 0
        self._rows_before: dict[str, int] = {}
        self._check_alone()
        if old.branches is not None and old.past is None:
            raise Unsupported("the query meets a stream at several places, where late rows are judged together")
        if any(wire.port.derived is not None for query in (old, new) for wire in query.blueprint.wires):
            raise Unsupported("the query reads a derived stream")
        if any(wire.port.lineages for wire in old.blueprint.wires):
            raise Unsupported("its class may be shed, and what its operators count of that does not change hands")
        self._pairs = self._paired()

    def _check_alone(self) -> None:
        own = {cursor.edge for operator in self.old.blueprint.operators for cursor in operator.inputs}
        if self.old.blueprint.keeper is not None and not own.issuperset(self.old.blueprint.root.log.cursors):
            raise Unsupported("other queries read the view")
        if any(operator.logic.stateful and operator.queries > 1 for operator in self.old.blueprint.operators):
            raise Unsupported("operators that keep its state serve other queries too")

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
        self.at = self.old.until_seq = at
        for cursor in (*_entrances(self.old), *_entrances(self.new)):
            cursor.sealed_at = at
        self._rows_before = {stream: ledger.cursor.log.rows_total for stream, ledger in self.old.ledgers.items()}

    def is_drained(self) -> bool:
        """Whether the old plan has answered all rows below the arrival number."""
        own = _own(self.old)
        if any(edge_frontier(cursor) < self.at for operator in own for cursor in operator.inputs):
            return False
        return all(operator.started == operator.finished for operator in own)

    def carry(self) -> None:
        """Hand state and accounts over. Nothing of either plan may run meanwhile."""
        self._check_alone()
        before_of: dict[OperatorId, RunningOperator] = {after.id: before for before, after in self._pairs}
        moved: set[int] = set()  # operators whose outputs stand where the old plan's did
        for operator in _own(self.new):
            before = before_of.get(operator.id)
            if before is not None:
                operator.restore(before.snapshot())
                for log, old in zip(operator.outputs, before.outputs, strict=True):
                    log.watermark_us, log.idle = old.watermark_us, old.idle
                moved.add(operator.id)
            elif any(isinstance(c.log.producer, RunningOperator) and c.log.producer.id in moved for c in operator.inputs):
                for log in operator.outputs:
                    awake = [c.watermark_us for c in operator.inputs if not c.log.idle]
                    log.watermark_us = min(awake) if awake else max(c.watermark_us for c in operator.inputs)
                    log.idle = not awake
                moved.add(operator.id)
        self._carry_accounts()

    def _carry_accounts(self) -> None:
        """All rows below the arrival number have been processed, whoever took them; later ones may have failed in what others use too."""
        for stream, ledger in self.old.ledgers.items():
            mine = self.new.ledgers[stream]
            upto = ledger.cursor.log.rows_total if self.old.past is not None else self._rows_before[stream]
            done = upto - ledger.rows_before
            ledger.count_failed(mine.failed_seqs)
            self.new.ledgers[stream] = replace(
                ledger,
                cursor=mine.cursor,
                rows_before=mine.rows_before - done,
                older=mine.older,
                done_before=done,
                failed_forgotten=ledger.failed_forgotten + mine.failed_forgotten,
                failed_results=ledger.failed_results + mine.failed_results,
            )

    def open(self) -> tuple[OperatorId, ...]:
        """Let the new plan read; return the operators that may have something to do now."""
        return self._unseal(self.new)

    def give_up(self) -> tuple[OperatorId, ...]:
        """Let the old plan go on as if nothing had been; the new one is to be removed."""
        self.old.until_seq = None
        for stream, ledger in self.old.ledgers.items():
            ledger.count_failed(self.new.ledgers[stream].failed_seqs)
        return self._unseal(self.old)

    def _unseal(self, query: RunningQuery) -> tuple[OperatorId, ...]:
        entrances = _entrances(query)
        for cursor in entrances:
            cursor.sealed_at = None
        return tuple(o.id for o in _own(query) if any(cursor in entrances for cursor in o.inputs))


def _own(query: RunningQuery) -> list[RunningOperator]:
    """Return the operators that serve this query alone."""
    return [operator for operator in query.blueprint.operators if operator.queries == 1]


def _entrances(query: RunningQuery) -> list[Cursor]:
    """Return the cursors by which a query's own operators read what is not its own."""
    own = {operator.id for operator in _own(query)}
    cursors = [cursor for operator in _own(query) for cursor in operator.inputs]
    return [c for c in cursors if not (isinstance(c.log.producer, RunningOperator) and c.log.producer.id in own)]


def _with_state(operators: Iterable[RunningOperator]) -> list[RunningOperator]:
    return [o for o in operators if o.logic.stateful and not isinstance(o.recipe, SinkRecipe | TableJoinRecipe)]
