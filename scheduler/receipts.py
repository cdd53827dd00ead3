"""What an order did, put into the books: ledger, estimates, measures, and what the load manager sees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import cast

from millstream.engine.data.work import RUN_FIELDS, ChainReceipt, ChainRuns, StepReceipt, WorkReceipt
from millstream.scheduler.chain_accounts import ChainAccounts
from millstream.scheduler.estimates import Estimates
from millstream.scheduler.ledger import Ledger
from millstream.scheduler.load.control import LoadControl
from millstream.scheduler.measures import Measures

Counts = dict[str, int]


class ReceiptBook:
    """Applies receipts in the order in which they come."""

    def __init__(self, ledger: Ledger, estimates: Estimates, load: LoadControl | None) -> None:
        self._ledger = ledger
        self._estimates = estimates
        self._load = load
        self._chains = ChainAccounts(ledger, estimates)

    def apply(self, receipt: WorkReceipt, counts: Counts, measures: Measures | None) -> None:
        """Put a receipt into the books, the core's counts and its measures. Rows in count once before each operator, in chains too."""
        # Steps in their order, neighbours of one kind together.
        first = receipt.steps[0] if len(receipt.steps) == 1 else None
        if type(first) is ChainRuns:
            self._apply_runs(first, counts, measures)
        else:
            self._apply_steps(receipt.steps, counts, measures)
        counts["busy_ns"] += receipt.finished_ns - receipt.started_ns
        if self._estimates.has_ports:
            self._record_ports(receipt)
        if not receipt.emissions:
            return
        counts["rows_emitted"] += sum(emission.rows for emission in receipt.emissions)
        if measures is not None:
            measures.emitted(receipt.emissions, self._estimates.learnt_of_query, self._estimates.version)
        if self._load is not None:
            for emission in receipt.emissions:
                self._load.emitted(emission)

    def _apply_runs(self, runs: ChainRuns, counts: Counts, measures: Measures | None) -> None:
        rows_in, steps = self._chains.apply_runs(runs)
        counts["rows_in"] += rows_in
        counts["steps"] += steps
        counts["rows_emitted"] += self._results_of(runs, measures)

    def _apply_steps(self, steps_done: Sequence[StepReceipt | ChainReceipt | ChainRuns], counts: Counts, measures: Measures | None) -> None:
        for kind, group in groupby(steps_done, type):
            if kind is ChainRuns:
                for runs in cast(Iterable[ChainRuns], group):
                    self._apply_runs(runs, counts, measures)
                continue
            if kind is ChainReceipt:
                rows_in, steps = self._chains.apply(list(cast(Iterable[ChainReceipt], group)))
            else:
                plain = list(cast(Iterable[StepReceipt], group))
                rows_in, steps = self._ledger.apply_steps(plain, self._estimates.record), len(plain)
            counts["rows_in"] += rows_in
            counts["steps"] += steps

    def _results_of(self, runs: ChainRuns, measures: Measures | None) -> int:
        if self._load is not None:
            self._load.passed(runs)
        if measures is None:
            return sum(runs.taken[RUN_FIELDS - 1 :: RUN_FIELDS])
        return measures.passed(runs, self._estimates.learnt_of_query, self._estimates.version)

    def _record_ports(self, receipt: WorkReceipt) -> None:
        """Tell what joins let through."""
        network = self._ledger.network
        slot_of = network.edges.slot_of
        for step in receipt.steps:
            if not isinstance(step, StepReceipt) or len(step.consumed) < 2:
                continue  # what is in a chain has one input
            slot = network.operators.slot_of.get(step.operator)
            if slot is not None:
                taken = [(slot_of[count.edge], count.rows) for count in step.consumed]
                self._estimates.record_ports(slot, taken, step.rows_out)
