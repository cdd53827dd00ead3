"""Chains of stateless operators that run as one: found once per tuple of operators, kept, and sampled for their single costs."""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Protocol

from millstream.engine.chains.fused_program import FusedProgram, can_fuse
from millstream.engine.data.allowance import CutAt, TooMuchAtOnce
from millstream.engine.data.graph import OperatorId
from millstream.engine.data.records import dataclass
from millstream.engine.data.train import Train
from millstream.engine.data.work import ChainReceipt, ChainRuns, ChainShape, EdgeCount, LogCount, Step, StepReceipt
from millstream.engine.flow.cursors import LogNode, Place, Portion
from millstream.engine.flow.running import (
    ALL_ROWS,
    Appended,
    CallElsewhere,
    DoneElsewhere,
    Made,
    RunningOperator,
    bytes_left_now,
    done_elsewhere,
    emitted,
)
from millstream.engine.operators.contract import Emitter
from millstream.engine.operators.row_operators import Sink

SAMPLE_EVERY = 32  # one run in so many goes step by step, to measure each operator by itself
SAMPLED_OFTEN = 1_024  # runs, after which shares are known well and one in SAMPLE_SELDOM will do
SAMPLED_OFTEN_THERE = 64  # the same where each operator by itself is a way to another process and back
SAMPLE_SELDOM = 1_024  # a run that is sampled takes as long as three rows alone, and rows that come one by one wait for it
TOLD_TOGETHER = 64  # runs after which the operators' statistics are brought up to date
CHAIN_LENGTH_MAX = 32  # an order for a shared operator may have hundreds of steps, and every place in it is looked up
SHARE_FADE = 0.8  # weight of the past in an operator's measured share
ROWS_HERE_MAX = 256  # of selections and projections that live in another process: with fewer rows the way there takes longer than they do


Receipts = list[StepReceipt | ChainReceipt | ChainRuns]


class _Again(Exception):
    """The train is too much at once, nothing has come of it, and operators by themselves can cut it."""


class ChainOutcome:
    """What one fused run did: what the head took, rows out of each operator, what the last one appended, what reached the tail.

    `side` is what the tail emitted besides its output.
    """

    __slots__ = ("counts", "nodes", "side", "taken", "to_tail")

    def __init__(self, taken: Portion, counts: list[int], nodes: list[Appended], to_tail: Train | None, side: Emitter | None) -> None:
        self.taken = taken
        self.counts = counts
        self.nodes = nodes
        self.to_tail = to_tail
        self.side = side


@dataclass(slots=True)
class Begun:
    """A run of a chain in another process that is under way: what the head took, and where it stood."""

    taken: Portion
    place: Place
    call: CallElsewhere


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
        self.ends_in_sink = isinstance(self._tail, Sink)
        # The part of it that runs in another process; a sink never does. None: all of it is here, or not all in one place.
        self._there = _together(self.operators[:-1] if self.ends_in_sink else self.operators)
        self._tail_is_there = self._tail is not None and self._last.elsewhere is not None
        self.is_sparse = self._tail is not None and self._tail.sparse
        self.length = len(self.operators)
        self.shape = ChainShape(
            self.ids,
            tuple([o.inputs[0].edge for o in operators]),
            tuple([o.outputs[0].id if o.outputs else None for o in operators]),
            tuple([o.outputs[0].row_bytes if o.outputs else 0 for o in operators]),
            (0.0,) * len(operators),
        )
        self.nothing_done = [StepReceipt(one, (), (), 0) for one in self.ids]
        self._ends: set[OperatorId] = set()
        self._untold: deque[tuple[int, list[int], int]] = deque()  # rows in, rows out of each operator, cost
        for running in operators:
            running.chains.append(self)
        self.runs = 0
        self._has_left = False

    def ends_before(self, following: OperatorId | None) -> bool:
        """Whether the chain is known to go no further when this operator, or none, comes next in an order."""
        return self._tail is not None or following is None or following in self._ends

    def note_end(self, following: OperatorId | None) -> None:
        """Note that it goes no further when this operator comes next."""
        if self._tail is None and following is not None:
            self._ends.add(following)

    @property
    def is_due_to_fuse(self) -> bool:
        """False for the runs that are to go step by step, so that costs per operator stay known. `runs` counts those there were."""
        often = SAMPLED_OFTEN if self._there is None else SAMPLED_OFTEN_THERE
        return self.runs % (SAMPLE_EVERY if self.runs < often else SAMPLE_SELDOM) != 0

    def sample(self, receipt: StepReceipt) -> None:
        """Learn an operator's share of the cost from a run by itself."""
        place = self.ids.index(receipt.operator)
        rows = sum([c.rows for c in receipt.consumed])
        cost = receipt.cost_ns / max(1, rows)
        shape = self.shape
        costs = list(shape.costs)
        costs[place] = cost if costs[place] == 0.0 else SHARE_FADE * costs[place] + (1.0 - SHARE_FADE) * cost
        self.shape = ChainShape(shape.operators, shape.edges, shape.logs, shape.row_bytes, tuple(costs))

    def run(self, rows_max: int, to_sinks: Callable[[Made], Made] | None = None) -> ChainOutcome | None:
        """Take one train at the head and carry it to the end. None when something waits in between, nothing at the head, or it is too much.

        The head's lock is held throughout, so nothing enters the chain meanwhile; with no call under way and the inner logs empty,
        they stay empty. The head counts as running until the last output is in its log, which is what frontiers ask (frontier.py); the
        inner logs move on only after that. `to_sinks` takes what a shared aggregate at the end hands to sinks, and returns the rest.
        """
        head = self._head
        if not head.lock.acquire(blocking=False):
            return None
        try:
            if not self._is_free() or (self._tail_is_there and not self._can_carry()):
                return None
            head.started += 1
            cursor = head.inputs[0]
            place = cursor.place()
            taken = cursor.take(rows_max)
            if taken is not None:
                try:
                    return self._carry(taken, to_sinks)
                except _Again:
                    cursor.put_back(place)
            head.started -= 1
            return None
        finally:
            head.lock.release()

    def _is_free(self) -> bool:
        for running in self.operators:
            if running.started != running.finished or running.failed:
                return False
        for cursor in self._inner:  # noqa: SIM110  (a generator would be one more call a step)
            if cursor.node.next is not None or len(cursor.log.cursors) != 1:
                return False
        return True

    def _can_carry(self) -> bool:
        """Whether nobody here asks what reached a tail that runs in another process."""
        return self._there is not None and self._last.keeper is None and not self._last.watched

    # --- all of it, but for a sink, in another process ---

    @property
    def goes_there(self) -> bool:
        """Whether what waits now is to be worked on in another process."""
        if self._there is None:
            return False
        if self._tail_is_there:
            return self._can_carry()
        cursor = self._head.inputs[0]
        return cursor.log.rows_total - cursor.rows_before - cursor.rows_taken > ROWS_HERE_MAX

    def begin(self, rows_max: int) -> Begun | None:
        """Take what waits at the head, in parts, for `goes_there`; `finish`, `undo` or `abandon` must follow on this thread.

        None when something waits in between, or nothing at the head. As in `run`, the head's lock is held until then.
        """
        head = self._head
        assert self._there is not None
        if not head.lock.acquire(blocking=False):
            return None
        taken: Portion | None = None
        try:
            if self._is_free():
                head.started += 1
                cursor = head.inputs[0]
                place = cursor.place()
                taken = cursor.take_parts(rows_max)
                if taken is None:
                    head.started -= 1
                    return None
                return Begun(taken, place, CallElsewhere(self._there, True, [taken.parts], taken.bytes, self._last.bytes_left))
            return None
        finally:
            if taken is None:
                head.lock.release()

    def finish(self, begun: Begun, done: DoneElsewhere, to_sinks: Callable[[Made], Made] | None) -> ChainOutcome:
        """Append what came of it."""
        try:
            if done.train is not None:
                return self._leave(begun.taken, done.train, done.counts, to_sinks)
            made = done.made_by(self._last)
            done.counts.append(_rows_in(made))
            # Selections and projections leave the interval, W and marks as they are, so what was taken speaks for what reached the tail.
            return self._appended(begun.taken, begun.taken.train, done.counts, made, done.out, to_sinks)
        finally:
            self._head.lock.release()

    def cut(self, begun: Begun, seq: int) -> None:
        """Put back what was taken from the arrival number `seq` on; of that nothing has come."""
        cursor = self._head.inputs[0]
        cursor.put_back(begun.place)
        taken = cursor.take(ALL_ROWS, seq)
        assert taken is not None
        begun.taken = taken

    def undo(self, begun: Begun) -> None:
        """Put back what was taken: nothing has come of it."""
        self._head.inputs[0].put_back(begun.place)
        self._head.started -= 1
        self._head.lock.release()

    def abandon(self) -> None:
        """Leave it as it is: its query has failed."""
        self._head.lock.release()

    def _carry_there(self, operators: Sequence[RunningOperator], taken: Portion, to_sinks: Callable[[Made], Made] | None) -> ChainOutcome:
        try:
            done = done_elsewhere(CallElsewhere(operators, True, [(taken.train,)], taken.bytes, bytes_left_now()))
        except CutAt as error:
            raise _Again from error
        if done.train is not None:
            return self._leave(taken, done.train, done.counts, to_sinks)
        made = done.made_by(self._last)
        done.counts.append(_rows_in(made))
        return self._appended(taken, taken.train, done.counts, made, done.out, to_sinks)

    def _carry(self, taken: Portion, to_sinks: Callable[[Made], Made] | None) -> ChainOutcome:
        if self._there is not None and (self._tail_is_there or taken.train.rows > ROWS_HERE_MAX):
            return self._carry_there(self._there, taken, to_sinks)
        try:
            train, counts = self._program.run(taken.train)
        except TooMuchAtOnce as error:
            raise _Again from error
        return self._leave(taken, train, counts, to_sinks)

    def _leave(self, taken: Portion, train: Train, counts: list[int], to_sinks: Callable[[Made], Made] | None) -> ChainOutcome:
        """Hand the train that left the selections and projections to the tail, or to the log behind them."""
        side: Emitter | None = None
        made: Made = []
        if self._tail is None:
            made = [(self._last.outputs[0], train)]
        elif self.ends_in_sink:
            side = _NO_SIDE
            self._tail.process((train,), side)
            counts.append(0)
        else:
            side = Emitter(len(self._last.outputs))
            try:
                self._last.process((train,), side)
            except CutAt as error:
                raise _Again from error
            except TooMuchAtOnce as error:
                if self._tail.stateful:  # it may have changed by then
                    raise
                raise _Again from error
            made = emitted(self._last, (train,), side)
            counts.append(_rows_in(made))
        return self._appended(taken, train, counts, made, side, to_sinks)

    def _appended(
        self, taken: Portion, train: Train, counts: list[int], made: Made, side: Emitter | None, to_sinks: Callable[[Made], Made] | None
    ) -> ChainOutcome:
        """Append what the last operator put out."""
        if to_sinks is not None:
            made = to_sinks(made)
        nodes: list[Appended] = []
        for log, one in made:
            node = LogNode(one, log)
            log.push(node)
            nodes.append((log, node))
        self._pass_by(train, counts)
        self._head.finished += 1
        return ChainOutcome(taken, counts, nodes, None if self._tail is None else train, side)

    def _pass_by(self, train: Train, counts: Sequence[int]) -> None:
        """Note in each inner log what went past it to its one reader, as `OutputLog.bypass` does."""
        hi, watermark_us, ended, idle = train.hi, train.track.end, train.ended, train.idle
        for cursor, rows in zip(self._inner, counts, strict=False):
            log = cursor.log
            log.rows_total += rows
            if watermark_us > log.watermark_us:
                log.watermark_us = watermark_us
            if ended:
                log.ended = True
            if idle is not None:
                log.idle = idle
            log.hi = cursor.position = hi
            cursor.rows_taken += rows

    @property
    def has_nothing(self) -> bool:
        """Nothing waits before any of its operators."""
        if self._head.inputs[0].node.next is not None:
            return False
        for cursor in self._inner:  # noqa: SIM110  (as above)
            if cursor.node.next is not None:
                return False
        return True

    def receipt(self, outcome: ChainOutcome, cost_ns: int) -> ChainReceipt:
        """Return the receipt of one run."""
        taken = outcome.taken
        head = self._head.inputs[0]
        consumed = EdgeCount(head.edge, taken.rows, taken.bytes, head.head_arrival_ns(), taken.controls)
        produced = [LogCount(log.id, n.rows, n.bytes, n.arrival_ns, n.controls) for log, n in outcome.nodes]
        self._note(taken.rows, outcome.counts, cost_ns)
        return ChainReceipt(self.shape, consumed, outcome.counts, tuple(produced), cost_ns)

    def add_run(
        self, outcome: ChainOutcome, cost_ns: int, finished_ns: int, receipts: list[StepReceipt | ChainReceipt | ChainRuns]
    ) -> bool:
        """Add one run that ended in a sink to the receipts of its order, in columns with plain ones right before it.

        False, and nothing is added, where it is not plain, or its results came at several times.
        """
        taken, left, counts = outcome.taken, outcome.to_tail, outcome.counts
        if taken.controls or not taken.rows or left is None or not left.arrival.is_constant:
            return False
        head = self._head.inputs[0]
        head_ns = None if head.node.next is None else head.head_arrival_ns()
        figures = (
            taken.rows,
            taken.bytes,
            -1 if head_ns is None else head_ns,
            cost_ns,
            finished_ns,
            left.arrival.start_ns,
            left.rows,
        )
        runs = receipts[-1] if receipts else None
        if type(runs) is ChainRuns:
            runs.shapes.append(self.shape)
            runs.taken.extend(figures)
            runs.rows_out.extend(counts)
        else:
            receipts.append(ChainRuns([self.shape], array("q", figures), array("q", counts)))
        self._note(taken.rows, counts, cost_ns)
        return True

    def _note(self, rows: int, counts: list[int], cost_ns: int) -> None:
        self._untold.append((rows, counts, cost_ns))
        if len(self._untold) >= TOLD_TOGETHER or self._has_left:
            self.settle()

    def settle(self) -> None:
        """Count what was done in the operators' statistics. Whoever asks for these may do so at the same time."""
        untold = self._untold
        runs: list[tuple[int, list[int], int]] = []
        with suppress(IndexError):
            while True:
                runs += (untold.popleft(),)  # one call less a run, as are lists where generators would do: single rows wait for this
        if not runs:
            return
        rows_out = [sum(column) for column in zip(*[counts for _, counts, _ in runs], strict=True)]
        rows_in = [sum([rows for rows, _, _ in runs]), *rows_out[:-1]]
        cost = sum([cost_ns for _, _, cost_ns in runs])
        for running, taken, made, share in zip(self.operators, rows_in, rows_out, self.shape.shares(rows_in), strict=True):
            running.counted.add(taken, made, int(share * cost), calls=len(runs))

    def dissolve(self) -> None:
        """Let go of the tail, whose state would outlive its query: one of its operators was taken out, so it will not run again."""
        self._tail = None

    def leave(self) -> None:
        """Found no more. A run that is under way in another thread is counted when it ends."""
        self._has_left = True
        self.settle()
        for running in self.operators:
            running.chains.remove(self)


def _rows_in(made: Made) -> int:
    return sum([train.rows for _, train in made])


def _together(operators: Sequence[RunningOperator]) -> list[RunningOperator] | None:
    """Return them if all run in one other process, else None."""
    first = operators[0].elsewhere
    if first is None:
        return None
    return list(operators) if all(o.elsewhere is not None and o.elsewhere.place is first.place for o in operators) else None


_OPERATOR = attrgetter("operator")
_LENGTH = attrgetter("length")
_LastOrder = tuple[int, tuple[Step, ...], dict[int, FusedChain | None]]
"""Version of the network, the steps of the last order, and the chains found in it, by the place where they start."""

_NO_ORDER: _LastOrder = (-1, (), {})
_NO_SIDE = Emitter(0)  # what a sink puts out


class Operators(Protocol):
    """What runs, by id; `version` grows with every query that comes or goes."""

    version: int

    @property
    def operators(self) -> Mapping[OperatorId, RunningOperator]:
        """The running operators."""


class ChainCache:
    """Finds the longest fusable run of steps from a place in an order; several threads may ask at a time."""

    def __init__(self, network: Operators) -> None:
        self._network = network
        self._known: dict[OperatorId, list[FusedChain]] = {}
        self._none: set[OperatorId | tuple[OperatorId, ...]] = set()  # operators, and pairs of steps, where no chain begins
        self._version = network.version
        self._last: _LastOrder = _NO_ORDER
        self._forgetting = threading.Lock()

    def _forget(self, version: int) -> None:
        with self._forgetting:
            if self._version >= version:
                return  # another thread has done it
            known, self._known, self._none = self._known, {}, set()
            self._last, self._version = _NO_ORDER, version
            for chain in [chain for some in known.values() for chain in some]:
                chain.leave()

    def find(self, steps: tuple[Step, ...], at: int) -> FusedChain | None:
        """Return the chain that starts at a step, None when there are not two operators to fuse.

        Looked up by its first two operators, since what follows it in an order are often other queries' steps. The steps of a small order
        are often the very ones of the order before.
        """
        version = self._network.version
        if self._version != version:  # a log may have got a second reader
            self._forget(version)
        last_version, last_steps, known = self._last
        if steps is not last_steps or version != last_version:
            known = {}
            self._last = (version, steps, known)
        elif at in known:
            return known[at]
        found = known[at] = self._look_up(steps, at)
        return found

    def _look_up(self, steps: tuple[Step, ...], at: int) -> FusedChain | None:
        head = steps[at].operator
        for chain in self._known.get(head, ()):
            end = at + len(chain.ids)
            if tuple(map(_OPERATOR, steps[at:end])) == chain.ids and chain.ends_before(steps[end].operator if end < len(steps) else None):
                return chain
        pair = tuple(map(_OPERATOR, steps[at : at + 2]))
        if head in self._none or pair in self._none:
            return None
        return self._find_new(head, pair, steps, at)

    def _find_new(self, head: OperatorId, pair: tuple[OperatorId, ...], steps: tuple[Step, ...], at: int) -> FusedChain | None:
        operators = self._reach(steps[at : at + CHAIN_LENGTH_MAX])
        if len(operators) < 2:
            running = self._network.operators.get(head)
            self._none.add(head if running is not None and not can_fuse(running.recipe) else pair)
            return None
        end = at + len(operators)
        following = steps[end].operator if end < len(steps) else None
        ids = tuple([o.id for o in operators])
        known = self._known.setdefault(head, [])
        for chain in known:
            if chain.ids == ids:
                chain.note_end(following)
                return chain
        made = FusedChain(operators)
        made.note_end(following)
        known.append(made)
        known.sort(key=_LENGTH, reverse=True)
        return made

    def _reach(self, steps: Sequence[Step]) -> list[RunningOperator]:
        chain: list[RunningOperator] = []
        for step in steps:
            running = self._network.operators.get(step.operator)
            if running is None or len(running.inputs) != 1 or not _continues(chain, running):
                break
            if not can_fuse(running.recipe):
                if chain:
                    chain.append(running)
                break
            chain.append(running)
        return chain


def _continues(chain: list[RunningOperator], running: RunningOperator) -> bool:
    if not chain:
        return True
    log = running.inputs[0].log
    return chain[-1].outputs == [log] and len(log.cursors) == 1
