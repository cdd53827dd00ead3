"""Carries out work orders: pop, run, push, step by step. Makes no choice.

Consecutive stateless steps of one order run as one fused chain (fused.py) when nothing waits between them; receipts keep rows per
operator all the same. An operator that raises takes its queries down, never the executor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from millstream.engine.chains.fused import ChainCache, ChainOutcome, FusedChain, Receipts
from millstream.engine.data import limits
from millstream.engine.data.allowance import Allowance, CutAt, TooMuchAtOnce, give, own, unbounded
from millstream.engine.data.graph import LogId, OperatorId
from millstream.engine.data.train import Train
from millstream.engine.data.work import EdgeCount, Emission, LogCount, Step, StepReceipt, WorkOrder, WorkReceipt
from millstream.engine.flow.cursors import Cursor, LogNode, Portion
from millstream.engine.flow.frontier import is_blocked
from millstream.engine.flow.running import ALL_ROWS, Appended, Left, Made, OperatorCall, RunningOperator, emitted, pass_to_sinks
from millstream.engine.operators.contract import Emitter
from millstream.engine.operators.row_operators import Sink
from millstream.engine.runtime.network import Network
from millstream.engine.runtime.side_rows import pass_side_rows, settle_watchers, tell_watchers

Clock = Callable[[], int]


class Executor:
    """Runs orders on the operators of one network; one instance may serve several worker threads."""

    def __init__(self, network: Network, *, fuse: bool = True, processor_ns: Clock | None = None, step_ns_max: int = 0) -> None:
        self._network = network
        self._chains = ChainCache(network) if fuse else None
        self._bounds = processor_ns, step_ns_max

    def run(self, order: WorkOrder, clock_ns: Clock) -> WorkReceipt:
        """Do the steps in order until they are done or the budget is used up; at least one step is done."""
        allowance = own()
        if allowance is None or allowance.bounds is not self._bounds:
            allowance = Allowance(self._bounds)
            give(allowance)
        allowance.active = True
        try:
            chain = self._chains.find(order.steps, 0) if self._chains is not None and order.steps else None
            is_here = self._network.placement is None or chain is None or not chain.goes_there
            if chain is not None and chain.ends_in_sink and chain.length == len(order.steps) and is_here:
                receipt = self._run_alone(chain, order, clock_ns, allowance)
                if receipt is not None:
                    return receipt
            allowance.start()
            with np.errstate(all="ignore"):  # infinities and NaN are values (K7); what is an error is found by looking (K8)
                return self._run(order, clock_ns, allowance)
        finally:
            allowance.active, allowance.left = False, unbounded  # the thread keeps it, and must not keep what it was for
            self._network.ticks.last_run = object()

    def _run_alone(self, chain: FusedChain, order: WorkOrder, clock_ns: Clock, allowance: Allowance) -> WorkReceipt | None:
        """Run an order that is one chain up to its sink, whose kernels see to warnings themselves; None when it must go step by step."""
        if not chain.is_due_to_fuse:
            return None
        receipts: Receipts = []
        emissions: list[Emission] = []
        started = clock_ns()
        now = self._run_chain(chain, order.steps, started, clock_ns, receipts, emissions, allowance)
        return None if now is None else WorkReceipt(order.id, tuple(receipts), (), tuple(emissions), started, now)

    def _run(self, order: WorkOrder, clock_ns: Clock, allowance: Allowance) -> WorkReceipt:
        books = OrderBooks(self, clock_ns, allowance)
        started = clock_ns()
        if self._network.placement is not None and self._chains is not None:
            from millstream.engine.runtime.crossing import Crossing  # with one worker there is no other process

            undone = Crossing(self._network, self._chains, books).run(order.steps, order.budget_ns)
        else:
            undone = self.run_steps(order.steps, order.budget_ns, books)
        return WorkReceipt(order.id, tuple(books.receipts), undone, tuple(books.emissions), started, clock_ns())

    def run_steps(self, steps: tuple[Step, ...], budget_ns: int | None, books: OrderBooks) -> tuple[Step, ...]:
        """Do steps one after the other until they are done or the budget is used up, at least one; return those that are not done."""
        clock_ns, allowance, receipts, emissions = books.clock_ns, books.allowance, books.receipts, books.emissions
        started = now = clock_ns()
        at = 0
        while at < len(steps):
            if at and budget_ns is not None and now - started >= budget_ns:
                break
            chain = self._chains.find(steps, at) if self._chains is not None else None
            if chain is not None and chain.has_nothing:
                receipts.extend(chain.nothing_done)
                at += chain.length
                continue
            if chain is not None and chain.is_due_to_fuse:
                some = steps if chain.length == len(steps) else steps[at : at + chain.length]
                done = self._run_chain(chain, some, now, clock_ns, receipts, emissions, allowance)
                if done is not None:
                    at += chain.length
                    now = done
                    continue
            if chain is not None:
                chain.runs += 1
            for step in steps[at : at + (1 if chain is None else chain.length)]:
                receipt = self._run_step(step, clock_ns, emissions, allowance)
                receipts.append(receipt)
                if chain is not None:
                    chain.sample(receipt)
                at += 1
            now = clock_ns()
        return steps[at:]

    def _run_step(self, step: Step, clock_ns: Clock, emissions: list[Emission], allowance: Allowance) -> StepReceipt:
        started = clock_ns()
        running = self._network.operators.get(step.operator)
        if running is None:
            return StepReceipt(step.operator, (), (), 0)
        counts = StepCounts(running)
        targets = [cursor.log.hi for cursor in running.inputs]
        rows_left = ALL_ROWS if step.rows_max is None else step.rows_max
        allowance.waited_ns = 0
        while rows_left >= 0:
            running.watch(1, 0)
            call = running.begin(min(rows_left, limits.TRAIN_ROWS_MAX))
            if call is None:
                running.watch(-1, 0)
                break
            allowance.left, allowance.claimed = running.bytes_left, 0
            whole = self._run_call(running, call, counts, clock_ns, emissions)
            size = running.unseen_bytes + allowance.claimed
            for taken in call.taken:
                size += taken.bytes
            running.unseen_bytes = size
            if size >= limits.CLAIM_BYTES_MIN:  # what it holds is looked at when so much has passed it
                self._network.memory.passed(running)
            rows_left -= call.rows
            # What was cut off waits for the scheduler's next turn: it was too much at once, and others wait.
            if not whole or rows_left <= 0 or not [hi for c, hi in zip(running.inputs, targets, strict=True) if c.position < hi]:
                break
        cost = max(0, clock_ns() - started - allowance.waited_ns)
        running.counted.add(counts.rows_in, counts.rows_out, cost)
        return counts.receipt(cost)

    def _run_call(
        self, running: RunningOperator, call: OperatorCall, counts: StepCounts, clock_ns: Clock, emissions: list[Emission]
    ) -> bool:
        """Run a call, cut where it is too much at once; return whether all that it had taken was done."""
        whole = True
        while True:
            out = Emitter(len(running.outputs))
            inputs = [t.train for t in call.taken]
            try:
                if running.failed:
                    return whole
                made = self._made(running, inputs, out)
            except CutAt as cut:
                running.cut(call, cut.seq)
                whole = False
                continue
            except Exception as error:
                self.fail(running, error)
                return whole
            break
        counts.taken(call)
        # What did not become a result is counted before results leave: whoever has the last one may ask for the counts at once.
        if out.has_side_rows:
            pass_side_rows(self._network, running, out)
        if running.logic.sparse:
            made = pass_to_sinks(made, counts.passed(self._emits(emissions, clock_ns)), self.fail)
        counts.produced(running.finish(call, made))
        if running.watched:
            tell_watchers(self._network, running, inputs, out)
        if isinstance(running.logic, Sink) and inputs[0].rows:
            emissions.append(emission_of(running.id, inputs[0], clock_ns()))
        return whole

    def _made(self, running: RunningOperator, inputs: Sequence[Train], out: Emitter) -> Made:
        """Return what a call puts out. One without state that makes too much at once works on halves of its train."""
        try:
            running.process(inputs, out)
        except TooMuchAtOnce:
            if running.logic.stateful or len(inputs) != 1:
                raise
            out.errors.clear()
            halves = _halves(inputs[0])
            if halves is None:
                raise
        else:
            return emitted(running, inputs, out)
        made: Made = []
        for half in halves:
            part = Emitter(len(running.outputs))
            made += self._made(running, [half], part)
            out.take_side_rows(part)
        return made

    def fail(self, running: RunningOperator, error: Exception) -> None:
        """Take down the queries of an operator that raised."""
        running.failed = True
        for query in list(self._network.queries_served(running.id)):
            self._network.end_query(query, running.id, error)

    def _run_chain(
        self,
        chain: FusedChain,
        steps: Sequence[Step],
        started: int,
        clock_ns: Clock,
        receipts: Receipts,
        emissions: list[Emission],
        allowance: Allowance,
    ) -> int | None:
        """Run a whole chain fused, from `started` on; return when it ended, None when it must be run step by step this time."""
        rows_max = steps[0].rows_max
        for step in steps:
            if step.rows_max is not None and (rows_max is None or step.rows_max < rows_max):
                return None
        rows_left = ALL_ROWS if rows_max is None else rows_max
        to_sinks = self._to_sinks(emissions, clock_ns) if chain.is_sparse else None
        head, tail = chain.operators[0].inputs[0], chain.operators[-1]
        target = head.log.hi
        now = started
        done = False
        allowance.waited_ns = 0
        while rows_left > 0 or not done:
            if tail.watched:
                tail.watch(1, 0)
            allowance.left, allowance.claimed = tail.bytes_left, 0
            try:
                outcome = chain.run(rows_left if rows_left < limits.TRAIN_ROWS_MAX else limits.TRAIN_ROWS_MAX, to_sinks)
            except Exception as error:
                self.fail(tail, error)
                return clock_ns()
            if outcome is None:
                if tail.watched:
                    tail.watch(-1, 0)
                return now if done else None
            chain.runs += not done
            done = True
            began, now = now, clock_ns()
            cost = now - began
            if allowance.waited_ns:
                cost, allowance.waited_ns = max(0, cost - allowance.waited_ns), 0
            self.count_run(chain, outcome, cost, now, receipts, emissions, allowance.claimed)
            rows_left -= outcome.taken.rows
            if head.position >= target:
                break
        return now

    def _to_sinks(self, emissions: list[Emission], clock_ns: Clock) -> Callable[[Made], Made]:
        left = self._emits(emissions, clock_ns)
        return lambda made: pass_to_sinks(made, left, self.fail)

    @staticmethod
    def _emits(emissions: list[Emission], clock_ns: Clock) -> Left:
        def left(sink: RunningOperator, train: Train) -> None:
            emissions.append(emission_of(sink.id, train, clock_ns()))

        return left

    def count_run(
        self,
        chain: FusedChain,
        outcome: ChainOutcome,
        cost_ns: int,
        now_ns: int,
        receipts: Receipts,
        emissions: list[Emission],
        claimed: int,
    ) -> None:
        """Add the run to the receipts: in columns with those before it in the order where it is plain, else with one of its own."""
        tail = chain.operators[-1]
        if not chain.ends_in_sink or not chain.add_run(outcome, cost_ns, now_ns, receipts):
            receipts.append(chain.receipt(outcome, cost_ns))
            if outcome.side is not None and outcome.side.has_side_rows:
                pass_side_rows(self._network, tail, outcome.side)
            if chain.ends_in_sink and outcome.to_tail is not None and outcome.to_tail.rows:
                emissions.append(emission_of(chain.ids[-1], outcome.to_tail, now_ns))
        if tail.watched:
            self._tell_of_chain(tail, outcome)
        tail.unseen_bytes += outcome.taken.bytes + claimed
        if tail.unseen_bytes >= limits.CLAIM_BYTES_MIN:
            self._network.memory.passed(tail)

    def _tell_of_chain(self, tail: RunningOperator, outcome: ChainOutcome) -> None:
        if outcome.to_tail is not None and outcome.side is not None:
            tell_watchers(self._network, tail, [outcome.to_tail], outcome.side)
        else:
            tail.watch(0, 1)
            settle_watchers(self._network, tail)


class OrderBooks:
    """What was done of an order so far."""

    def __init__(self, executor: Executor, clock_ns: Clock, allowance: Allowance) -> None:
        self._executor = executor
        self.clock_ns = clock_ns
        self.allowance = allowance
        self.receipts: Receipts = []
        self.emissions: list[Emission] = []

    def chain_done(self, chain: FusedChain, outcome: ChainOutcome, cost_ns: int, claimed: int) -> None:
        """A chain has run."""
        self._executor.count_run(chain, outcome, cost_ns, self.clock_ns(), self.receipts, self.emissions, claimed)

    def failed(self, running: RunningOperator, error: Exception) -> None:
        """An operator has raised."""
        self._executor.fail(running, error)

    def left(self, sink: RunningOperator, train: Train) -> None:
        """Results have left."""
        self.emissions.append(emission_of(sink.id, train, self.clock_ns()))

    def to_sinks(self, made: Made) -> Made:
        """Hand on what a shared aggregate has for sinks."""
        return pass_to_sinks(made, self.left, self._executor.fail)

    def run_here(self, steps: tuple[Step, ...]) -> None:
        """Run steps one after the other."""
        self._executor.run_steps(steps, None, self)


def _halves(train: Train) -> tuple[Train, Train] | None:
    """Return a train in two parts of about as many rows; None where all of its rows have one arrival number."""
    seqs = train.seq.array()
    if not len(seqs) or seqs[0] == seqs[-1]:
        return None
    middle = int(seqs[len(seqs) // 2])
    return train.split_at(middle if middle > seqs[0] else int(seqs[np.searchsorted(seqs, middle, side="right")]))


MANY_STEPS = 64


class StepCounts:
    """Sums what one step took and put out."""

    def __init__(self, running: RunningOperator) -> None:
        self._running = running
        self._in = [[0, 0, 0] for _ in running.inputs]
        self._out: dict[LogId, list[int]] = {}  # only logs that got something: a shared aggregate has hundreds
        self._oldest: dict[LogId, int | None] = {}
        self._passed = 0

    @property
    def rows_in(self) -> int:
        """Rows taken from all inputs."""
        return sum([c[0] for c in self._in])

    @property
    def rows_out(self) -> int:
        """Rows put out on all outputs."""
        return sum([c[0] for c in self._out.values()]) + self._passed

    def taken(self, call: OperatorCall) -> None:
        """Add what a call took."""
        for sums, taken in zip(self._in, call.taken, strict=True):
            _add(sums, taken)

    def passed(self, left: Left) -> Left:
        """Return `left`, counting the rows that go straight to sinks."""

        def counted(sink: RunningOperator, train: Train) -> None:
            self._passed += train.rows
            left(sink, train)

        return counted

    def produced(self, nodes: list[Appended]) -> None:
        """Add what a call put out."""
        out, oldest = self._out, self._oldest
        for log, node in nodes:
            name, arrival_ns = log.id, node.arrival_ns
            if name in out:
                _add(out[name], node)
                before = oldest[name]
                if arrival_ns is not None and (before is None or arrival_ns < before):
                    oldest[name] = arrival_ns
            else:
                out[name] = [node.rows, node.bytes, node.controls]
                oldest[name] = arrival_ns

    def receipt(self, cost_ns: int, measured: bool = True) -> StepReceipt:
        """Return the step's receipt."""
        running = self._running
        consumed = tuple([edge_count(c, sums) for c, sums in zip(running.inputs, self._in, strict=True)])
        produced = tuple([LogCount(log, sums[0], sums[1], self._oldest[log], sums[2]) for log, sums in self._out.items()])
        blocked = len(running.inputs) > 1 and not any(s[0] or s[2] for s in self._in) and is_blocked(running.inputs)
        return StepReceipt(running.id, consumed, produced, cost_ns, measured, blocked, self._passed)


def _add(sums: list[int], item: Portion | LogNode) -> None:
    sums[0] += item.rows
    sums[1] += item.bytes
    sums[2] += item.controls


def edge_count(cursor: Cursor, sums: Sequence[int]) -> EdgeCount:
    """Return the count of an edge, (rows, bytes, controls), with what stands at its head now."""
    return EdgeCount(cursor.edge, sums[0], sums[1], cursor.head_arrival_ns(), sums[2])


def emission_of(operator: OperatorId, train: Train, finished_ns: int) -> Emission:
    """Return the results that left, with the distinct arrivals that caused them."""
    if train.arrival.is_constant:
        return Emission(operator, train.rows, finished_ns, (train.arrival.start_ns,), (train.rows,))
    first, times = train.arrival.steps()
    if len(first) > MANY_STEPS:
        arrivals, counts = np.unique(train.arrival.at(train.seq.array()), return_counts=True)
        return Emission(operator, train.rows, finished_ns, tuple(arrivals.tolist()), tuple(counts.tolist()))
    # Trains that were joined: a few steps and many rows, which are in the order of their arrival numbers.
    upto = [*np.searchsorted(train.seq.array(), first[1:]).tolist(), train.rows]
    begun, by_time = 0, dict[int, int]()
    for time, end in zip(times.tolist(), upto, strict=True):
        if end > begun:
            by_time[time] = by_time.get(time, 0) + end - begun
            begun = end
    return Emission(operator, train.rows, finished_ns, tuple(sorted(by_time)), tuple(by_time[time] for time in sorted(by_time)))
