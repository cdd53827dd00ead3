"""Chains of stateless operators that run as one: found once per tuple of operators, kept, and sampled for their single costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from millstream.engine.fused_program import FusedProgram, can_fuse
from millstream.engine.graph import OperatorId
from millstream.engine.operators.contract import Emitter
from millstream.engine.operators.sink import Sink
from millstream.engine.queues import LogNode, Taken
from millstream.engine.running import Appended, RunningOperator, emitted
from millstream.engine.train import Train
from millstream.engine.work import EdgeCount, LogCount, Step, StepReceipt

if TYPE_CHECKING:
    from millstream.engine.network import Network

SAMPLE_EVERY = 32  # one run in so many goes step by step, to measure each operator by itself
CHAIN_LENGTH_MAX = 32  # an order for a shared operator may have hundreds of steps, and every place in it is looked up
SHARE_FADE = 0.8  # weight of the past in an operator's measured share


class ChainOutcome:
    """What one fused run did: what the head took, rows out of each operator, what the last one appended, what reached the tail.

    `side` is what the tail emitted besides its output.
    """

    __slots__ = ("counts", "nodes", "side", "taken", "to_tail")

    def __init__(self, taken: Taken, counts: list[int], nodes: list[Appended], to_tail: Train | None, side: Emitter | None) -> None:
        self.taken = taken
        self.counts = counts
        self.nodes = nodes
        self.to_tail = to_tail
        self.side = side


class FusedChain:
    """Selections and projections that each read only the one before them, and perhaps one operator of another kind as their tail.

    The tail (a sink, a window, …) runs as always, on what the chain hands it; only the logs in between are spared.
    """

    def __init__(self, operators: Sequence[RunningOperator]) -> None:
        self.operators = list(operators)
        self.ids = tuple(o.id for o in operators)
        self._head, self._last = self.operators[0], self.operators[-1]
        self._tail = None if can_fuse(self._last.recipe) else self._last.logic
        working = self.operators if self._tail is None else self.operators[:-1]
        self._program = FusedProgram([o.recipe for o in working], self._head.inputs[0].log.schema)
        self._inner = [o.inputs[0] for o in self.operators[1:]]
        self._edges = [o.inputs[0].edge for o in self.operators]
        self._logs = [o.outputs[0].id if o.outputs else None for o in self.operators]
        self.ends_in_sink = isinstance(self._tail, Sink)
        self._widths = [o.outputs[0].row_bytes if o.outputs else 0 for o in operators]
        self._costs = [0.0] * len(operators)
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
        """Take one train at the head and carry it to the end. None when something waits in between, or nothing at the head.

        The head's lock is held throughout, so nothing enters the chain meanwhile; with no call under way and the inner logs empty,
        they stay empty. The head counts as running until the last output is in its log, which is what frontiers ask (frontier.py); the
        inner logs move on only after that.
        """
        head = self._head
        if not head.lock.acquire(blocking=False):
            return None
        try:
            if not self._is_free():
                return None
            head.started += 1
            taken = head.inputs[0].take(rows_max)
            if taken is None:
                head.started -= 1
                return None
            return self._carry(taken)
        finally:
            head.lock.release()

    def _is_free(self) -> bool:
        for running in self.operators:
            if running.started != running.finished or running.failed:
                return False
        return not any(c.node.next is not None or len(c.log.cursors) != 1 for c in self._inner)

    def _carry(self, taken: Taken) -> ChainOutcome:
        train, counts = self._program.run(taken.train)
        side: Emitter | None = None
        if self._tail is None:
            made = [(self._last.outputs[0], train)]
        else:
            side = Emitter(len(self._last.outputs))
            self._tail.process((train,), side)
            made = emitted(self._last, side)
        nodes: list[Appended] = []
        for log, one in made:
            node = LogNode(one, log)
            log.push(node)
            nodes.append((log, node))
        if self._tail is not None:
            counts.append(sum(n.rows for _, n in nodes))
        for cursor, rows in zip(self._inner, counts, strict=False):
            cursor.log.bypass(cursor, train, rows)
        self._head.finished += 1
        return ChainOutcome(taken, counts, nodes, None if self._tail is None else train, side)

    @property
    def has_nothing(self) -> bool:
        """Nothing waits before any of its operators."""
        return self._head.inputs[0].node.next is None and not any(c.node.next is not None for c in self._inner)

    def receipts(self, outcome: ChainOutcome, cost_ns: int) -> list[StepReceipt]:
        """Return one receipt per operator, the cost shared out by what sampled runs measured per row."""
        taken, counts = outcome.taken, outcome.counts
        rows_in = [taken.rows, *counts[:-1]]
        weights = [c * (n or 1) for c, n in zip(self._costs, rows_in, strict=True)]
        unit = cost_ns / (sum(weights) or 1.0)
        head = self._head.inputs[0]
        consumed = EdgeCount(head.edge, taken.rows, taken.bytes, head.head_arrival_ns(), taken.controls)
        receipts: list[StepReceipt] = []
        for place, running in enumerate(self.operators):
            share, rows = int(weights[place] * unit), counts[place]
            running.statistics.add(rows_in[place], rows, share)
            inner = self._logs[place]
            if running is self._last:
                produced = tuple([LogCount(log.id, n.rows, n.bytes, n.arrival_ns, n.controls) for log, n in outcome.nodes])
            else:
                assert inner is not None
                produced = (LogCount(inner, rows, rows * self._widths[place]),)
            receipts.append(StepReceipt(running.id, (consumed,), produced, share, False))
            if place + 1 < len(counts):
                consumed = EdgeCount(self._edges[place + 1], rows, rows * self._widths[place])
        return receipts


class ChainCache:
    """Finds the longest fusable run of steps from a place in an order."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._known: dict[tuple[OperatorId, ...], FusedChain | None] = {}
        self._version = network.version

    def find(self, steps: tuple[Step, ...], at: int) -> FusedChain | None:
        """Return the chain that starts at a step, None when there are not two operators to fuse."""
        if self._version != self._network.version:  # a log may have got a second reader
            self._known, self._version = {}, self._network.version
        key = tuple([s.operator for s in steps[at : at + CHAIN_LENGTH_MAX]])
        try:
            return self._known[key]
        except KeyError:
            chain = self._known[key] = self._build(key)
            return chain

    def _build(self, ids: tuple[OperatorId, ...]) -> FusedChain | None:
        chain: list[RunningOperator] = []
        for operator in ids:
            running = self._network.operators.get(operator)
            if running is None or len(running.inputs) != 1 or not _continues(chain, running):
                break
            if not can_fuse(running.recipe):
                if chain:
                    chain.append(running)
                break
            chain.append(running)
        return FusedChain(chain) if len(chain) > 1 else None


def _continues(chain: list[RunningOperator], running: RunningOperator) -> bool:
    if not chain:
        return True
    log = running.inputs[0].log
    return chain[-1].outputs == [log] and len(log.cursors) == 1
