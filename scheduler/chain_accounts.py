"""The books of chains that run as one: what enters and leaves a chain is counted at once, what passed inside it some runs later.

Inside a chain nothing waits, so no decision depends on these counts: they go into the ledger's running sums and into the estimates. An
estimate takes several runs in as the one train that they add up to (estimates.py); those of a new chain sooner.
"""

from __future__ import annotations

from operator import mul

from millstream.engine.work import ChainReceipt, ChainShape
from millstream.scheduler.estimates import Estimates
from millstream.scheduler.ledger import Ledger
from millstream.scheduler.limits import CHAIN_RUNS_TOGETHER, NEVER_NS


class _Slots:
    """Where the ledger keeps what belongs to a chain, and the runs that have not been counted yet."""

    __slots__ = ("edges", "logs", "operators", "receipts", "runs")

    def __init__(self, operators: list[int], edges: list[int], logs: list[int]) -> None:
        self.operators = operators
        self.edges = edges
        self.logs = logs
        self.receipts: list[ChainReceipt] = []
        self.runs = 0


class ChainAccounts:
    """Counts receipts of chains in a ledger and its estimates. `ledger.settle` brings the inner counts up to date."""

    def __init__(self, ledger: Ledger, estimates: Estimates) -> None:
        self._ledger = ledger
        self._estimates = estimates
        self._slots: dict[ChainShape, _Slots] = {}
        self._version = -1
        self._late: dict[_Slots, None] = {}
        ledger.settle = self.settle

    def apply(self, receipt: ChainReceipt) -> int:
        """Count a run; return the rows taken in."""
        ledger, consumed = self._ledger, receipt.consumed
        if self._version != ledger.network.version:
            self._forget()
        slots = self._slots.get(receipt.shape)
        if slots is None:
            slots = self._slots[receipt.shape] = self._find(receipt.shape)
        if not consumed.rows or consumed.controls or ledger.timer_count:
            return ledger.apply_steps(receipt.steps(), self._estimates.record)
        head = slots.operators[0]
        ledger.consume(head, slots.edges[0], consumed)
        ledger.touched[head] = None
        for made in receipt.produced:
            if made.rows or made.controls:
                arrival_ns = NEVER_NS if made.oldest_arrival_ns is None else made.oldest_arrival_ns
                ledger.append(ledger.network.logs.slot_of[made.log], made.rows, made.bytes, arrival_ns, made.controls)
        if ledger.stalled_count:
            for operator in slots.operators:
                ledger.wake_below(operator)
        slots.receipts.append(receipt)
        slots.runs += 1
        if len(slots.receipts) >= CHAIN_RUNS_TOGETHER or 2 * len(slots.receipts) >= slots.runs:
            self._count(slots)
        else:
            self._late[slots] = None
        return consumed.rows

    def settle(self) -> None:
        """Count everything that has not been counted yet."""
        late, self._late = self._late, {}
        for slots in late:
            self._count(slots)

    def _forget(self) -> None:
        """The network changed, and a slot may be another operator's from now on. The ledger had us settle before it did."""
        self._slots = {}
        self._version = self._ledger.network.version

    def _find(self, shape: ChainShape) -> _Slots:
        network = self._ledger.network
        return _Slots(
            [network.operators.slot_of[one] for one in shape.operators],
            [network.edges.slot_of[one] for one in shape.edges],
            [network.logs.slot_of[one] for one in shape.logs[:-1] if one is not None],
        )

    def _count(self, slots: _Slots) -> None:
        receipts, slots.receipts = slots.receipts, []
        if not receipts:
            return
        shape = receipts[0].shape
        taken = [receipt.consumed.rows for receipt in receipts]
        columns = [taken, *zip(*[receipt.rows_out for receipt in receipts], strict=True)]
        sums = [sum(column) for column in columns]
        if slots.logs:
            self._ledger.pass_through(slots.edges[1:], slots.logs, sums[1:], shape.row_bytes)
        costs = [receipt.cost_ns for receipt in receipts]
        total_ns = sum(costs)
        record = self._estimates.record_runs
        for place, (operator, share) in enumerate(zip(slots.operators, shape.shares(sums[:-1]), strict=True)):
            rows = columns[place]
            squares, products = sum(map(mul, rows, rows)), share * sum(map(mul, rows, costs))
            record(operator, len(receipts), sums[place], sums[place + 1], share * total_ns, squares, products)
