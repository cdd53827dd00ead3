"""Chains of stateless operators that run as one: found once per tuple of operators, kept, and sampled for their single costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.engine.fused_program import FusedProgram, can_fuse
from millstream.engine.graph import OperatorId
from millstream.engine.instantiator import row_bytes
from millstream.engine.operators.sink import Sink
from millstream.engine.queues import LogNode, Taken
from millstream.engine.running import Call, RunningOperator
from millstream.engine.train import Train
from millstream.engine.work import EdgeCount, LogCount, Step, StepReceipt

if TYPE_CHECKING:
    from millstream.engine.network import Network

SAMPLE_EVERY = 32  # one run in so many goes step by step, to measure each operator by itself
SHARE_FADE = 0.8  # weight of the past in an operator's measured share


@dataclass(slots=True)
class ChainOutcome:
    """What one fused run did: what the head took, rows out of each operator, what the last one put out or delivered."""

    taken: Taken
    counts: list[int]
    last: LogNode | None
    delivered: Train | None


class FusedChain:
    """Operators that each read only the one before them; a sink may stand at the end."""

    def __init__(self, operators: Sequence[RunningOperator]) -> None:
        self.operators = list(operators)
        self.ids = tuple(o.id for o in operators)
        last = self.operators[-1]
        self._sink = last.logic if isinstance(last.logic, Sink) else None
        working = self.operators[:-1] if self._sink is not None else self.operators
        self._program = FusedProgram([o.recipe for o in working], self.operators[0].inputs[0].log.schema)
        self._costs = [0.0] * len(operators)
        self._sampled = 0
        self._widths = [int(row_bytes(o.outputs[0].schema)) if o.outputs else 0 for o in operators]
        self.runs = 0

    def __len__(self) -> int:
        """Return the number of operators."""
        return len(self.operators)

    def due_to_fuse(self) -> bool:
        """Return False for the runs that are to go step by step, so that costs per operator stay known."""
        self.runs += 1
        return self.runs % SAMPLE_EVERY != 1

    def sample(self, receipt: StepReceipt) -> None:
        """Learn an operator's share of the cost from a run by itself."""
        place = self.ids.index(receipt.operator)
        rows = sum(c.rows for c in receipt.consumed)
        cost = receipt.cost_ns / max(1, rows)
        known = self._costs[place]
        self._costs[place] = cost if known == 0.0 else SHARE_FADE * known + (1.0 - SHARE_FADE) * cost

    def run(self, rows_max: int) -> ChainOutcome | None:
        """Take one train at the head and carry it to the end. None when something waits in between, or nothing at the head."""
        if any(o.failed for o in self.operators):
            return None
        calls = begin_chain(self.operators, rows_max)
        if calls is None:
            return None
        taken = calls[0].taken[0]
        try:
            train, counts = self._program.run(taken.train)
        except Exception as error:
            raise ChainFailure(self, error) from error
        return self._finish(calls, taken, train, counts)

    def _finish(self, calls: list[Call], taken: Taken, train: Train, counts: list[int]) -> ChainOutcome:
        inner = self.operators[:-1]
        for running, call, rows in zip(inner, calls, counts, strict=False):
            running.finish_bypassed(call, train, rows)
        last, call = self.operators[-1], calls[-1]
        if self._sink is None:
            node = last.finish_fused(call, train)
            return ChainOutcome(taken, counts, node, None)
        last.finish_delivered(call, train)
        return ChainOutcome(taken, [*counts, 0], None, train if train.rows else None)

    def receipts(self, outcome: ChainOutcome, cost_ns: int) -> list[StepReceipt]:
        """Return one receipt per operator, the cost shared out by what sampled runs measured per row."""
        rows_in = [outcome.taken.rows, *outcome.counts[:-1]]
        weights = [c * max(1, n) for c, n in zip(self._costs, rows_in, strict=True)]
        total = sum(weights) or 1.0
        receipts: list[StepReceipt] = []
        for place, running in enumerate(self.operators):
            share = int(cost_ns * weights[place] / total)
            statistics = running.statistics
            statistics.calls += 1
            statistics.rows_in += rows_in[place]
            statistics.rows_out += outcome.counts[place]
            statistics.cost_ns += share
            receipts.append(StepReceipt(running.id, (self._consumed(place, outcome),), self._produced(place, outcome), share, False))
        return receipts

    def _consumed(self, place: int, outcome: ChainOutcome) -> EdgeCount:
        cursor = self.operators[place].inputs[0]
        if place == 0:
            taken = outcome.taken
            return EdgeCount(cursor.edge, taken.rows, taken.bytes, cursor.head_arrival_ns(), taken.controls)
        rows = outcome.counts[place - 1]
        return EdgeCount(cursor.edge, rows, rows * self._widths[place - 1])

    def _produced(self, place: int, outcome: ChainOutcome) -> tuple[LogCount, ...]:
        outputs = self.operators[place].outputs
        if not outputs:
            return ()
        node = outcome.last
        if place == len(self.operators) - 1 and node is not None:
            return (LogCount(outputs[0].id, node.rows, node.bytes, node.arrival_ns, node.controls),)
        rows = outcome.counts[place]
        return (LogCount(outputs[0].id, rows, rows * self._widths[place]),)


class ChainFailure(Exception):
    """A kernel of a fused chain raised; which operator's it was is not known, so the first one's queries are told."""

    def __init__(self, chain: FusedChain, error: Exception) -> None:
        super().__init__(str(error))
        self.chain = chain
        self.error = error


def begin_chain(operators: Sequence[RunningOperator], rows_max: int) -> list[Call] | None:
    """Take at the head and hand out a ticket of every operator, in one act. None when the chain cannot run fused now.

    With the head's lock held and no unfused call under way, nothing can enter an inner log; so empty inner logs stay empty, and
    tickets of all operators have the order of the head's.
    """
    head = operators[0]
    with head.lock:
        for running in operators:
            if running.started - running.finished != running.fused_under_way:
                return None
        for running in operators[1:]:
            cursor = running.inputs[0]
            if cursor.is_pending or len(cursor.log.cursors) != 1:
                return None
        head.started += 1
        taken = head.inputs[0].take(rows_max)
        if taken is None:
            head.started -= 1
            return None
        head.fused_under_way += 1
        calls = [Call(head.started - 1, [taken])]
        for running in operators[1:]:
            calls.append(running.begin_bypassed())
        return calls


class ChainCache:
    """Finds the longest fusable run of steps from a place in an order."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._known: dict[tuple[OperatorId, ...], FusedChain | None] = {}

    def find(self, steps: tuple[Step, ...], at: int) -> FusedChain | None:
        """Return the chain that starts at a step, None when there are not two operators to fuse."""
        key = tuple(s.operator for s in steps[at:])
        if key not in self._known:
            self._known[key] = self._build(key)
        return self._known[key]

    def _build(self, ids: tuple[OperatorId, ...]) -> FusedChain | None:
        chain: list[RunningOperator] = []
        for operator in ids:
            running = self._network.operators.get(operator)
            if running is None or len(running.inputs) != 1 or not _continues(chain, running):
                break
            if isinstance(running.logic, Sink):
                if chain:
                    chain.append(running)
                break
            if not can_fuse(running.recipe):
                break
            chain.append(running)
        return FusedChain(chain) if len(chain) > 1 else None


def _continues(chain: list[RunningOperator], running: RunningOperator) -> bool:
    if not chain:
        return True
    log = running.inputs[0].log
    return chain[-1].outputs == [log] and len(log.cursors) == 1
