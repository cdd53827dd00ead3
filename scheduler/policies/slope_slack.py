"""Slope-slack (Carney 2005, 4.4.2).

    latency(b)  mean age of the train that b would take
    ect(b)      Σ over k in D(b) of train(k) cost(k) / o_sel(k): time until they could be out, D(b) being b and all boxes below it,
                train(k) the tuples queued at k now (of b itself at most a train), o_sel(k) the outputs per tuple from k on
    eol(b)      latency(b) + ect(b): the latency to expect
    utility(b)  gradient of the query's QoS graph at eol: utility lost per second that b is not run
    slack(b)    from eol to the next critical point of the graph, infinite when there is none

The greatest utility first, equal ones by the least slack, then by the oldest head; what is at or past its last useful point has no
utility and goes last.
The mean age of a whole queue is taken from its oldest and its newest tuple, of a part of it from as far between them as the train goes.

The thesis runs all that is queued at a time, so its trains are the queues. Where a train is shorter, so is what is looked at here: a burst
of which not all can be in time is not late as a whole, as long as the tuples at its head are not. What is late waits, as the thesis says
(4.6), until the others have nothing to gain: the queue of a query with a tight deadline is worked off in the time that these leave.
Moves with time: yes.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from millstream.scheduler.contracts import FloatColumn, RankingBase
from millstream.scheduler.limits import NEVER_NS
from millstream.scheduler.qos import GraphTable
from millstream.scheduler.trains import TrainShape
from millstream.scheduler.view import View
from numpy.typing import NDArray

IntColumn = NDArray[np.int64]
ALL = TrainShape(share=1.0)

_FEW = 16
"""Units for each one asked for above which the ways of these cost less than the sum over all operators."""


class SlopeSlack(RankingBase):
    """Utility first, then slack. `train`: what a unit takes at a time."""

    train: TrainShape = ALL
    moves_with_time: ClassVar[bool] = True
    moves_with_queue: ClassVar[bool] = True

    def rank(self, view: View, now_ns: int) -> FloatColumn:
        """Return numbers that order as (utility descending, slack ascending, head, unit)."""
        utility, slack = self.urgency(view, now_ns)
        order = np.lexsort((view.head_ns, slack, -utility))
        ranks = np.empty(len(order))
        ranks[order] = -np.arange(len(order), dtype=np.float64)
        return ranks

    def urgency(self, view: View, now_ns: int) -> tuple[FloatColumn, FloatColumn]:
        """Return utility (per second; -1 for too late) and slack (ns) of each unit."""
        latency = mean_age_ns(view, now_ns, self.train) + expected_completion_ns(view, self.train)
        utility, slack = np.zeros(len(latency)), np.zeros(len(latency))
        numbers, tables = self.tables(view)
        for number, table in enumerate(tables):
            own = np.flatnonzero(numbers == number) if len(tables) > 1 else slice(None)
            utility[own], slack[own] = table.utility(latency[own]), table.slack_ns(latency[own])
        return utility, slack

    def urgency_one(self, view: View, unit: int, now_ns: int) -> tuple[float, float] | None:
        """Return the same of one unit by the same operations on single numbers; None where an operator below has several consumers."""
        ways = _ways_to_the_end(view)
        if ways is None:
            return None
        known = view.shared.get("lists for one")
        if not isinstance(known, tuple):
            numbers, tables = self.tables(view)
            from_the_end = [[slot for slot in way if slot >= 0][::-1] for way in ways.tolist()]
            known = view.shared["lists for one"] = (from_the_end, [tables[number] for number in numbers.tolist()])
        way: list[int] = known[0][unit]
        table: GraphTable = known[1][unit]
        rows_at, cost_ns, outputs, total = view.ledger.rows_at, view.estimates.cost_ns, view.estimates.output_per_tuple, 0.0
        rows, each = 0, 0.0
        for slot in way:
            rows, each = max(rows_at[slot], 0), cost_ns.item(slot) / outputs.item(slot)
            total = rows * each + total
        taken = self.train.taken_of_one(rows)
        total = total - (rows - taken) * each
        head = view.units.head_at[unit]
        if head == NEVER_NS:
            return table.urgency_at(total)
        middle = float(head)
        if rows > 1:
            middle = head + (max(view.ledger.newest_ns.item(way[-1]), head) - head) * ((taken - 1) / (rows - 1)) / 2.0
        return table.urgency_at(now_ns - middle + total)

    def tables(self, view: View) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], list[GraphTable]]:
        """Return the number of each unit's graph, and the graphs."""
        graphs: dict[tuple[tuple[float, float], ...], int] = {}

        def number(unit: int) -> float:
            return float(graphs.setdefault(view.query_of(unit).qos, len(graphs)))

        numbers = view.remembered("qos", lambda: np.array([number(unit) for unit in range(view.units.count)]))
        tables = view.shared.get("qos_tables")
        if tables is None:
            tables = view.shared["qos_tables"] = [GraphTable(graph) for graph in graphs]
        assert isinstance(tables, list)
        return numbers.astype(np.int64), tables


def mean_age_ns(view: View, now_ns: int, train: TrainShape = ALL) -> FloatColumn:
    """Return the mean age of what each entry would take of its queue, 0 for an empty queue."""
    rows, head = view.rows, view.head_ns
    taken = train.taken(rows)
    reach = np.divide(taken - 1, rows - 1, out=np.zeros(len(rows)), where=rows > 1)  # of the way from the oldest to the newest
    middle = head + np.where(rows > 1, (np.maximum(view.newest_ns, head) - head) * reach / 2.0, 0.0)
    return np.where(head == NEVER_NS, 0.0, now_ns - middle)


def expected_completion_ns(view: View, train: TrainShape = ALL) -> FloatColumn:
    """Return ect of each entry. Of a few entries only what lies below them is looked at, where each has one way to its end."""
    index, count = view.index, view.units.count
    if len(index) * _FEW <= count:
        ways = _ways_to_the_end(view)
        if ways is not None:
            return _completion_along(view, ways[index], train)
    ledger, estimates = view.ledger, view.estimates
    rows = np.maximum(ledger.rows[: len(estimates.cost_ns)], 0)
    each = estimates.cost_ns[: len(rows)] / estimates.output_per_tuple[: len(rows)]
    work = rows * each
    for slots, producers, consumers, _ in view.units.topology.levels:
        if len(producers):
            work[slots] += np.bincount(producers, weights=work[consumers], minlength=len(slots))
    entries = view.units.entries[index]
    column: FloatColumn = work[entries] - (rows[entries] - train.taken(rows[entries])) * each[entries]
    return column


def _completion_along(view: View, ways: IntColumn, train: TrainShape) -> FloatColumn:
    """Add up from the ends, as the sum over levels does."""
    rows = np.maximum(view.ledger.rows[ways], 0)
    each = view.estimates.cost_ns[ways] / view.estimates.output_per_tuple[ways]
    work = rows * each
    work[ways < 0] = 0.0
    total: FloatColumn = np.zeros(len(ways))
    for place in range(ways.shape[1] - 1, -1, -1):
        total = work[:, place] + total
    return total - (rows[:, 0] - train.taken(rows[:, 0])) * each[:, 0]


def _ways_to_the_end(view: View) -> IntColumn | None:
    """Return the operators from each unit's entry to the end, -1 behind it; None where an operator has several consumers."""
    known = view.shared.get("ways to the end")
    if known is None:
        known = view.shared["ways to the end"] = _find_ways(view)
    return known if isinstance(known, np.ndarray) else None


def _find_ways(view: View) -> IntColumn | bool:
    consumers = view.units.topology.consumers
    ways: list[list[int]] = []
    for entry in view.units.entries.tolist():
        way = [entry]
        while consumers[way[-1]]:
            if len(consumers[way[-1]]) > 1:
                return False
            way.append(consumers[way[-1]][0])
        ways.append(way)
    table = np.full((len(ways), max(map(len, ways), default=1)), -1, dtype=np.int64)
    for unit, way in enumerate(ways):
        table[unit, : len(way)] = way
    return table
