"""Takes receipts of orders into the books: ledger, estimates, measures, and what the load manager sees."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from millstream.engine.work import ChainReceipt, StepReceipt, WorkReceipt
from millstream.scheduler.chain_accounts import ChainAccounts
from millstream.scheduler.estimates import Estimates
from millstream.scheduler.ledger import Ledger
from millstream.scheduler.load.control import LoadControl
from millstream.scheduler.measures import Measures


class Receipts:
    """Applies them one by one; `counts` are the core's own."""

    def __init__(
        self, ledger: Ledger, estimates: Estimates, measures: Measures | None, load: LoadControl | None, counts: dict[str, int]
    ) -> None:
        self.ledger = ledger
        self.network = ledger.network
        self.estimates = estimates
        self.measures = measures
        self.load = load
        self._counts = counts
        self._chains = ChainAccounts(ledger, estimates)

    def apply(self, receipt: WorkReceipt) -> None:
        """Count what an order did."""
        counts = self._counts
        self._apply_steps(receipt.steps)
        counts["busy_ns"] += receipt.finished_ns - receipt.started_ns
        if self.estimates.has_ports:
            self._record_ports(receipt)
        for emission in receipt.emissions:
            counts["rows_emitted"] += emission.rows
            if self.measures is not None:
                self.measures.emitted(emission, self.estimates.ideal_of_query)
            if self.load is not None:
                self.load.emitted(emission)

    def _apply_steps(self, steps: Sequence[StepReceipt | ChainReceipt]) -> None:
        """Count them in their order; steps between chains together. Rows in count once before each operator, in chains too."""
        counts = self._counts
        for _kind, group in groupby(steps, type):
            plain: list[StepReceipt] = []
            for step in group:
                if isinstance(step, StepReceipt):
                    plain.append(step)
                    continue
                counts["rows_in"] += self._chains.apply(step) + sum(step.rows_out[:-1])
                counts["steps"] += len(step.rows_out)
            counts["rows_in"] += self.ledger.apply_steps(plain, self.estimates.record)
            counts["steps"] += len(plain)

    def _record_ports(self, receipt: WorkReceipt) -> None:
        """Tell what joins let through, where a step took tuples from one port alone."""
        for step in receipt.steps:
            if not isinstance(step, StepReceipt):
                continue  # what is in a chain has one input
            taken = [count for count in step.consumed if count.rows]
            if len(step.consumed) > 1 and len(taken) == 1:
                edge = self.network.edges.slot_of[taken[0].edge]
                self.estimates.record_port(edge, taken[0].rows, sum(made.rows for made in step.produced))
