"""What one step, or one order, has taken and put out, as receipts tell it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from millstream.engine.data.graph import LogId, OperatorId
from millstream.engine.data.train import Train
from millstream.engine.data.work import EdgeCount, Emission, LogCount, StepReceipt
from millstream.engine.flow.frontier import is_blocked
from millstream.engine.flow.queues import Cursor, LogNode, Portion
from millstream.engine.flow.running import Appended, Left, OperatorCall, RunningOperator

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
