"""The books of chains that run as one: what enters and leaves a chain is counted at once, what passed inside it some runs later.

Inside a chain nothing waits, so no decision depends on these counts: they go into the ledger's running sums and into the estimates. An
estimate takes several runs in as the one train that they add up to (estimates.py); those of a new chain sooner.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from millstream.engine.data.graph import OperatorId
from millstream.engine.data.work import RUN_FIELDS, ChainReceipt, ChainRuns, ChainShape
from millstream.scheduler.estimates import Estimates
from millstream.scheduler.ledger import Ledger
from millstream.scheduler.limits import CHAIN_RUNS_TOGETHER, NEVER_NS
from numpy.typing import NDArray

IntColumn = NDArray[np.int64]


RUNS_ALIKE_MAX = 2 * CHAIN_RUNS_TOGETHER
"""Up to so many runs a loop over them costs less than NumPy's calls."""


class _Chain:
    """Where the ledger keeps what belongs to a chain."""

    __slots__ = ("edge", "edges", "head", "logs", "number", "operators", "shape")

    def __init__(self, number: int, shape: ChainShape, operators: list[int], edges: list[int], logs: list[int]) -> None:
        self.number = number
        self.shape = shape
        self.operators = operators
        self.edges = edges
        self.logs = logs
        self.head = operators[0]
        self.edge = edges[0]


class ChainAccounts:
    """Counts runs of chains in a ledger and its estimates. `ledger.settle` brings the inner counts up to date."""

    def __init__(self, ledger: Ledger, estimates: Estimates) -> None:
        self._ledger = ledger
        self._estimates = estimates
        self._known: dict[ChainShape, _Chain] = {}  # by the very shape of the last receipt: found without a look at its operators
        self._of_operators: dict[tuple[OperatorId, ...], _Chain] = {}
        self._chains: list[_Chain] = []
        self._version = -1
        self._late: list[tuple[_Chain, ChainReceipt]] = []  # what is not counted yet
        self._late_runs: list[tuple[ChainRuns, list[_Chain]]] = []
        self._waiting = self._runs = 0  # runs not counted yet, and runs since the network changed
        ledger.settle = self.settle

    def apply(self, receipts: Sequence[ChainReceipt]) -> tuple[int, int]:
        """Count runs one by one; return the rows that came before their operators, and the operators run."""
        total = steps = 0
        for receipt in receipts:
            total += self._apply_one(receipt)
            steps += len(receipt.rows_out)
        self._settle_if_due()
        return total, steps

    def _apply_one(self, receipt: ChainReceipt) -> int:
        ledger, consumed = self._ledger, receipt.consumed
        if not consumed.rows or consumed.controls or ledger.timer_count:
            return ledger.apply_steps(receipt.steps(), self._estimates.record)
        one = self._find(receipt.shape)
        ledger.consume(one.head, one.edge, consumed)
        ledger.touched[one.head] = None
        for made in receipt.produced:
            if made.rows or made.controls:
                arrival_ns = NEVER_NS if made.oldest_arrival_ns is None else made.oldest_arrival_ns
                ledger.append(ledger.network.logs.slot_of[made.log], made.rows, made.bytes, arrival_ns, made.controls)
        self._wake(one)
        self._late.append((one, receipt))
        self._waiting += 1
        self._runs += 1
        return consumed.rows + sum(receipt.rows_out[:-1])

    def _wake(self, one: _Chain) -> None:
        if self._ledger.stalled_count:
            for operator in one.operators:
                self._ledger.wake_below(operator)

    def apply_runs(self, runs: ChainRuns) -> tuple[int, int]:
        """Count an order's runs; return the rows that came before their operators, and the operators run."""
        if self._ledger.timer_count:
            return self.apply(list(runs.receipts()))
        if self._version != self._ledger.network.version:
            self._forget()
        known, shapes = self._known, runs.shapes
        count = len(shapes)
        if count == 1:
            found = [known.get(shapes[0]) or self._find(shapes[0])]
        else:
            found = [known.get(shape) or self._find(shape) for shape in shapes]
        self._consume(found, runs.taken)
        if self._ledger.stalled_count:
            for one in found:
                self._wake(one)
        self._late_runs.append((runs, found))
        self._waiting += count
        self._runs += count
        if self._waiting >= CHAIN_RUNS_TOGETHER * len(self._chains) or 2 * self._waiting >= self._runs:
            self.settle()
        rows_in = runs.taken[0] if count == 1 else sum(runs.taken[::RUN_FIELDS])
        return rows_in + sum(runs.rows_out), len(runs.rows_out)

    def _consume(self, found: Sequence[_Chain], taken: Sequence[int]) -> None:
        """Do what `Ledger.take` does for the first edge of each chain. Most of what a decision costs, so everything is a local name."""
        ledger = self._ledger
        if len(found) == 1:
            ledger.take(found[0].head, found[0].edge, taken[0], taken[1], None if taken[2] < 0 else taken[2])
            ledger.touched[found[0].head] = None
            return
        edge_rows, edge_bytes, edge_head, fresh = ledger.edge_rows_at, ledger.edge_bytes_at, ledger.edge_head_at, ledger.fresh_at
        consumed, rows_at, head_at, touched = ledger.consumed_at, ledger.rows_at, ledger.head_at, ledger.touched
        runs = zip(found, taken[::RUN_FIELDS], taken[1::RUN_FIELDS], taken[2::RUN_FIELDS], strict=True)
        for one, rows, size_bytes, head_ns in runs:
            edge, head = one.edge, one.head
            waiting = edge_rows[edge] = edge_rows[edge] - rows
            edge_bytes[edge] -= size_bytes
            consumed[edge] += rows
            rows_at[head] -= rows
            if waiting <= 0:
                edge_head[edge] = head_at[head] = NEVER_NS
            elif head_ns >= 0:
                edge_head[edge] = head_at[head] = head_ns
            else:  # the run left nothing behind, so what waits came after it began
                edge_head[edge] = head_at[head] = fresh[edge] if fresh[edge] != NEVER_NS else edge_head[edge]
            touched[head] = None
        ledger.bytes_total -= sum(taken[1::RUN_FIELDS])
        if ledger.full_count:
            for one in found:
                if ledger.edge_full_at[one.edge] and edge_rows[one.edge] < ledger.edge_rows_max:
                    ledger.set_full(one.edge, 0)

    # ---- what is counted later

    def _settle_if_due(self) -> None:
        # The first runs of all tell most: those are counted sooner.
        if self._waiting and (self._waiting >= CHAIN_RUNS_TOGETHER * len(self._chains) or 2 * self._waiting >= self._runs):
            self.settle()

    def settle(self) -> None:
        """Count everything that has not been counted yet: few runs by what they did, many in columns, chains of one length together."""
        late_runs, self._late_runs = self._late_runs, []
        late, self._late = self._late, []
        waiting, self._waiting = self._waiting, 0
        if waiting <= RUNS_ALIKE_MAX:
            self._count_alike(late_runs, late)
            return
        by_length = self._by_length(late_runs)
        for one, receipt in late:
            row = [one.number, receipt.consumed.rows, receipt.cost_ns, *receipt.rows_out]
            by_length.setdefault(len(one.operators), []).append(np.array([row], dtype=np.int64))
        for length, parts in by_length.items():
            runs = np.concatenate(parts)
            runs = runs[np.argsort(runs[:, 0], kind="stable")]
            self._count(length, runs[:, 0], np.concatenate((runs[:, 1:2], runs[:, 3:]), axis=1), runs[:, 2])

    def _count_alike(self, late_runs: Sequence[tuple[ChainRuns, list[_Chain]]], late: Sequence[tuple[_Chain, ChainReceipt]]) -> None:
        """Count runs of which most brought the same rows to every operator: what a stream does whose rows come one by one."""
        alike: dict[tuple[int, ...], list[int]] = {}  # number of the chain, rows in, rows out of each operator: runs, cost
        for runs, chains in late_runs:
            taken, rows_out, first = runs.taken, runs.rows_out, 0
            for place, one in enumerate(chains):
                last = first + len(one.operators)
                at = place * RUN_FIELDS
                _add(alike, (one.number, taken[at], *rows_out[first:last]), taken[at + 3])
                first = last
        for one, receipt in late:
            _add(alike, (one.number, receipt.consumed.rows, *receipt.rows_out), receipt.cost_ns)
        by_chain: dict[int, list[tuple[tuple[int, ...], int, int]]] = {}
        for (number, *rows), (count, cost_ns) in alike.items():
            by_chain.setdefault(number, []).append((tuple(rows), count, cost_ns))
        for number in sorted(by_chain):
            self._count_chain(self._chains[number], by_chain[number])

    def _count_chain(self, one: _Chain, groups: Sequence[tuple[tuple[int, ...], int, int]]) -> None:
        """Count groups of runs of one chain: rows in and out of each operator, how many such runs, what they cost together."""
        calls = sum([count for _, count, _ in groups])
        spent_ns = sum([cost_ns for _, _, cost_ns in groups])
        places = range(len(one.operators) + 1)
        sums = [sum([rows[i] * count for rows, count, _ in groups]) for i in places]
        for edge, log, row_bytes, passed in zip(one.edges[1:], one.logs, one.shape.row_bytes[:-1], sums[1:-1], strict=True):
            self._ledger.pass_through(edge, log, passed, passed * row_bytes)
        record = self._estimates.record_sums
        for place, (operator, share) in enumerate(zip(one.operators, one.shape.shares(sums[:-1]), strict=True)):
            squares = sum([rows[place] * rows[place] * count for rows, count, _ in groups])
            products = sum([rows[place] * cost_ns for rows, _, cost_ns in groups])
            record(operator, calls, sums[place], sums[place + 1], share * spent_ns, squares, share * products)

    @staticmethod
    def _by_length(late: Sequence[tuple[ChainRuns, list[_Chain]]]) -> dict[int, list[IntColumn]]:
        """Return the runs by the length of their chain: number of the chain, rows in, cost, and rows out of each operator."""
        if not late:
            return {}
        chains = [one for _, found in late for one in found]
        taken = np.concatenate([np.array(runs.taken, dtype=np.int64) for runs, _ in late]).reshape(-1, RUN_FIELDS)
        rows_out = np.concatenate([np.array(runs.rows_out, dtype=np.int64) for runs, _ in late])
        numbers = np.array([one.number for one in chains], dtype=np.int64)
        lengths = np.array([len(one.operators) for one in chains], dtype=np.int64)
        first = np.cumsum(lengths) - lengths
        found: dict[int, list[IntColumn]] = {}
        for length in np.unique(lengths).tolist():
            own = np.flatnonzero(lengths == length)
            made = rows_out[first[own, None] + np.arange(length)]
            found[length] = [np.column_stack((numbers[own], taken[own, 0], taken[own, 3], made))]
        return found

    def _count(self, length: int, numbers: IntColumn, rows: IntColumn, cost_ns: IntColumn) -> None:
        """Count runs sorted by their chain; a row of `rows` is what came into a chain and what left each operator."""
        starts = np.flatnonzero(np.concatenate(([True], numbers[1:] != numbers[:-1])))
        runs = np.diff(np.append(starts, len(numbers)))
        chains = [self._chains[number] for number in numbers[starts].tolist()]
        sums, spent_ns = np.add.reduceat(rows, starts), np.add.reduceat(cost_ns, starts)
        squares, products = np.add.reduceat(rows * rows, starts), np.add.reduceat(rows * cost_ns[:, None], starts)
        self._pass_through(chains, sums)
        weights = np.array([one.shape.costs for one in chains]) * np.maximum(sums[:, :-1], 1)
        totals = weights.sum(axis=1, keepdims=True)
        shares = weights / np.where(totals == 0.0, 1.0, totals)
        self._estimates.record_runs(
            np.array([one.operators for one in chains], dtype=np.int64).ravel(),
            np.repeat(runs, length),
            sums[:, :-1].ravel(),
            sums[:, 1:].ravel(),
            (shares * spent_ns[:, None]).ravel(),
            squares[:, :-1].ravel(),
            (shares * products[:, :-1]).ravel(),
        )

    def _pass_through(self, chains: Sequence[_Chain], sums: IntColumn) -> None:
        """Count the rows that went over the logs inside the chains: they were appended and consumed over the one edge of each at once."""
        edges = list(chain.from_iterable([one.edges[1:] for one in chains]))
        logs = list(chain.from_iterable([one.logs for one in chains]))
        row_bytes = np.array(list(chain.from_iterable([one.shape.row_bytes[:-1] for one in chains])), dtype=np.int64)
        passed = sums[:, 1:-1].ravel()
        ledger = self._ledger
        # An operator may be inside of several chains, where an order was cut and went on in its middle.
        np.add.at(ledger.edge_consumed, edges, passed)
        np.add.at(ledger.log_rows, logs, passed)
        np.add.at(ledger.log_bytes, logs, passed * row_bytes)

    # ---- the chains

    def _forget(self) -> None:
        """The network changed, and a slot may be another operator's from now on. The ledger had us settle before it did."""
        self._known, self._of_operators, self._chains = {}, {}, []
        self._runs = 0
        self._version = self._ledger.network.version

    def _find(self, shape: ChainShape) -> _Chain:
        network = self._ledger.network
        if self._version != network.version:
            self._forget()
        found = self._known.get(shape)
        if found is None:
            found = self._of_operators.get(shape.operators)
            if found is None:
                found = self._of_operators[shape.operators] = self._new(shape)
            else:  # sampled anew, or read from a story, where each receipt has a shape of its own
                del self._known[found.shape]
                found.shape = shape
            self._known[shape] = found
        return found

    def _new(self, shape: ChainShape) -> _Chain:
        network = self._ledger.network
        found = _Chain(
            len(self._chains),
            shape,
            [network.operators.slot_of[one] for one in shape.operators],
            [network.edges.slot_of[one] for one in shape.edges],
            [network.logs.slot_of[one] for one in shape.logs[:-1] if one is not None],
        )
        self._chains.append(found)
        return found


def _add(alike: dict[tuple[int, ...], list[int]], key: tuple[int, ...], cost_ns: int) -> None:
    known = alike.get(key)
    if known is None:
        alike[key] = [1, cost_ns]
    else:
        known[0] += 1
        known[1] += cost_ns
