"""The express lane: many decisions in one call of a core, for networks of simple paths under an executor that foresees outcomes.

Under `handle` every order makes a receipt, and every receipt an event. Where a unit is a path (each operator has one input and at most
one reader) and an order runs one tuple of one unit, all that an order does is known from the tuple: how far it gets. So the lane asks
the policy's own selector for a unit, adds the cost of the tuple's way, moves the unit's cursor, tells the selector, and goes on until
the next event is due. The ledger learns the sums before the next event. What is decided, and when, is what `handle` decides.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from millstream.engine.data.graph import LogId, OperatorId, OperatorNode
from millstream.engine.data.records import dataclass
from millstream.scheduler.contracts import Ranking, Selector, Turns
from millstream.scheduler.core import SchedulerCore
from millstream.scheduler.drivers.virtual import DecisionCost
from millstream.scheduler.errors import SimulationError
from millstream.scheduler.estimates import Estimates
from millstream.scheduler.events import Event
from millstream.scheduler.ledger import Ledger
from millstream.scheduler.limits import NEVER_NS
from millstream.scheduler.network import NetworkModel
from millstream.scheduler.policies.slope_slack import SlopeSlack
from millstream.scheduler.selectors.class_turns import ClassTurnsSelector
from millstream.scheduler.selectors.heap import HeapSelector
from millstream.scheduler.selectors.scan import ScanSelector
from millstream.scheduler.selectors.turns import TurnsSelector
from millstream.scheduler.selectors.two_level import TwoLevelSelector
from millstream.scheduler.simulation.quick_selectors import FactoredSelector, FixedPart, MarkedTurnsSelector, OrderSelector
from millstream.scheduler.unit_set import UnitSet
from millstream.scheduler.view import View
from numpy.typing import NDArray

_AHEAD = 256
"""PathForesight foreseen at a time, in tuples of a log."""

_ADAPT_RUNS = 64
"""Where estimates follow measurements, so many runs go by before they are looked at again."""

IntColumn = NDArray[np.int64]


class PathForesight(Protocol):
    """Foresees how far tuples get on paths of operators."""

    def codes(self, log: LogId, paths: Sequence[Sequence[OperatorId]], first: int, last: int) -> NDArray[np.uint8]:
        """Return, by path and tuple `first` to `last` of a source's log, the number of the operator that drops it (from 1), or one
        more than the path is long for a tuple that gets through."""
        ...


@dataclass(frozen=True, slots=True)
class Departures:
    """Tuples that left at the ends of paths, in order: slot of the last operator, arrival and departure in ns."""

    operator: IntColumn
    arrival_ns: IntColumn
    finished_ns: IntColumn


@dataclass(slots=True)
class _Path:
    unit: int
    slots: tuple[int, ...]
    source: int
    stops: tuple[int, ...]
    target: int


class _PathBooks:
    """The operators of all paths in a row, and what is booked of each: its cost a tuple, and the logs over which its tuples go."""

    def __init__(self, network: NetworkModel, paths: Sequence[_Path | None], longest: int) -> None:
        self.present: NDArray[np.bool_] = np.zeros((len(paths), longest), dtype=np.bool_)
        self.place: IntColumn = np.zeros((len(paths), longest), dtype=np.int64)
        slots: list[int] = []
        costs: list[int] = []
        inside: list[int] = []
        outputs: list[tuple[int, int, float]] = []
        for unit, path in enumerate(paths):
            if path is None:
                continue
            self.present[unit, : len(path.slots)] = True
            self.place[unit, : len(path.slots)] = np.arange(len(slots), len(slots) + len(path.slots))
            for position, slot in enumerate(path.slots):
                outputs += [(len(slots), log, network.node(slot).row_bytes_out) for log in network.outputs[slot]]
                costs.append(path.stops[position] - (path.stops[position - 1] if position else 0))
                inside.append(network.inputs[slot][0] if position else -1)
                slots.append(slot)
        self.slots: IntColumn = np.array(slots, dtype=np.int64)
        self.cost_ns: IntColumn = np.array(costs, dtype=np.int64)
        self._inside: IntColumn = np.array(inside, dtype=np.int64)
        self._makers: IntColumn = np.array([one[0] for one in outputs], dtype=np.int64)
        self._logs: IntColumn = np.array([one[1] for one in outputs], dtype=np.int64)
        self._row_bytes = np.array([one[2] for one in outputs], dtype=np.float64)

    def steps(self, tally: IntColumn) -> tuple[IntColumn, IntColumn, IntColumn]:
        """Return the place of every operator of every unit that ran, its rows in and its rows out; `tally` counts by unit how far tuples
        got.
        """
        active = np.flatnonzero(tally.any(axis=1))
        reached = tally[active, ::-1].cumsum(axis=1)[:, ::-1]
        present = self.present[active]
        return self.place[active][present], reached[:, 1:-1][present], reached[:, 2:][present]

    def book(self, ledger: Ledger, tally: IntColumn) -> None:
        """Count what went over logs inside of units: it was appended and consumed at once."""
        places, rows_in, rows_out = self.steps(tally)
        edges = self._inside[places]
        np.add.at(ledger.edge_consumed, edges[edges >= 0], rows_in[edges >= 0])
        made = np.zeros(len(self.slots), dtype=np.int64)
        made[places] = rows_out
        rows = made[self._makers]
        np.add.at(ledger.log_rows, self._logs, rows)
        np.add.at(ledger.log_bytes, self._logs, (rows * self._row_bytes).astype(np.int64))


class ExpressCore(SchedulerCore):
    """A core that can also take many decisions in one call, on a lane."""

    def express_lane(self, outcomes: PathForesight, charge: DecisionCost | None = None) -> ExpressLane:
        """Return a lane over the present cut; raises `SimulationError` saying why where there can be none."""
        policy = self._policy
        if isinstance(policy.selector, ClassTurnsSelector) or self.load is not None:
            raise SimulationError("what classes are given follows from receipts, which a lane does not make")
        if policy.schedule != 1 or policy.train.count != 1 or policy.threshold or self.settings.orders_max != 1 or self._outstanding:
            raise SimulationError(f"policy {policy.spec} does not run one tuple of one unit at a time")
        self._units_version = -1
        self._bring_up_to_date(self._now_ns)
        check_policy(policy.turns, policy.ranking, self.estimates, self._units)
        lane = ExpressLane(self.ledger, self.estimates, self._units, outcomes, charge)
        if charge is None or charge.free:
            policy.selector = quick_selector(policy.selector, policy.ranking, single=lane.single)
            policy.selector.reset(self._view, self._now_ns)
        return lane

    def use_selector(self, selector: Selector) -> None:
        """Find units with this selector until the policy changes: for experiments with what no policy can be."""
        self._policy.selector = selector
        selector.reset(self._view, self._now_ns)

    def express(self, lane: ExpressLane, events: Sequence[Event], now_ns: int, until_ns: int) -> int:
        """Apply the events, then decide and run until an order ends at or after `until_ns` or nothing waits; return the time then."""
        self._now_ns = now_ns
        for event in events:
            self._take[type(event)](event, now_ns)
        more = True
        while more and now_ns < until_ns:
            self._bring_up_to_date(now_ns)
            now_ns, more = lane.run(self._view, self._policy.selector, now_ns, until_ns)
        return now_ns


def check_policy(turns: Turns | None, ranking: Ranking | None, estimates: Estimates, units: UnitSet) -> None:
    """Raise `SimulationError` for a policy that a lane cannot serve, and for queues that hold something already."""
    if turns is not None and not getattr(turns, "equal", False):
        raise SimulationError("turns of unequal length are not one tuple long")
    if isinstance(ranking, SlopeSlack):
        raise SimulationError("slope-slack looks at all queues of a path, which a lane does not keep up to date")
    if estimates.adapt and units.depends_on_estimates:
        raise SimulationError("these units are cut again when estimates move")
    if units.ledger.rows_waiting:
        raise SimulationError("an express lane begins with empty queues")


def quick_selector(selector: Selector, ranking: Ranking | None, *, single: bool) -> Selector:
    """Return a selector that picks the same units with less work, where there is one.

    `single` says that tuples come to one unit a query only, so that turns of queries are turns of these units.
    """
    if type(selector) is TurnsSelector:
        return MarkedTurnsSelector(selector.arrangement)
    if type(selector) is TwoLevelSelector and single:
        return MarkedTurnsSelector()
    if ranking is None:
        return selector
    if type(selector) in (HeapSelector, ScanSelector):
        if isinstance(ranking, FixedPart):
            return FactoredSelector(ranking)
        if not ranking.moves_with_time and not ranking.moves_with_queue:
            return OrderSelector(ranking)
    return selector


class ExpressLane:
    """Runs units of one cut on foreseen outcomes. Made by `ExpressCore.express_lane`, which checks that the network fits."""

    def __init__(self, ledger: Ledger, estimates: Estimates, units: UnitSet, outcomes: PathForesight, charge: DecisionCost | None) -> None:
        self.ledger = ledger
        self.estimates = estimates
        self.units = units
        self.outcomes = outcomes
        self.charge = None if charge is None or charge.free else charge
        self.keep_dropped = False
        """Whether tuples that are dropped count as having left when they are: for what must see every tuple, as aggregates do."""
        self.decisions = self.runs = self.busy_ns = self.scheduling_ns = 0
        network = ledger.network
        self._arrivals: dict[int, list[int]] = {
            log: [] for source in network.operators.slot_of.values() if network.is_source(source) for log in network.outputs[source]
        }
        self._foreseen: dict[int, int] = dict.fromkeys(self._arrivals, 0)
        count = units.count
        self._paths: list[_Path | None] = [None] * count
        self._times: list[list[int]] = [[]] * count
        self._codes: list[bytearray] = [bytearray()] * count
        self._costs: list[tuple[int, ...]] = [()] * count
        self._through: list[int] = [0] * count
        self._targets: list[int] = [-1] * count
        self._cursors: list[int] = [0] * count
        self._queues: list[deque[int] | None] = [None] * count
        self._entry_edges: IntColumn = np.zeros(count, dtype=np.int64)
        self._entry_bytes: IntColumn = np.zeros(count, dtype=np.int64)
        self._pushed: list[int] = []
        self._stride = 2 + max((len(units.members(unit)) for unit in range(count)), default=0)
        self._ran = array("q")  # of each run its unit times the stride, and how far its tuple got
        self._tally: IntColumn = np.zeros((count, self._stride), dtype=np.int64)  # since the estimates were last told
        self._unbooked: IntColumn = np.zeros((count, self._stride), dtype=np.int64)
        self._unit_of_entry = {int(entry): unit for unit, entry in enumerate(units.entries.tolist())}
        for unit in range(count):
            self._open(unit)
        self._used = self._used_paths()
        self._books = _PathBooks(network, self._paths, self._stride - 2)
        self._results = (array("q"), array("q"), array("q"))
        self._done: list[Departures] = []
        self._charged: tuple[int, int] | None = None

    # ---- what the lane works on

    def _open(self, unit: int) -> None:
        network, topology = self.ledger.network, self.units.topology
        slots = self.units.members(unit)
        for slot, after in zip(slots, (*slots[1:], None), strict=True):
            readers = topology.consumers[slot]
            if len(network.inputs[slot]) != 1 or len(readers) > 1 or (after is not None and readers != [after]):
                raise SimulationError(f"operator {network.operators.identity(slot)} is not part of a simple path")
        source = self._source_of(slots[0])
        nodes = [network.node(slot) for slot in slots]
        if any(node.selectivity > 1.0 for node in nodes):
            raise SimulationError("an operator with a selectivity over 1 is not part of a simple path")
        outside = topology.consumers[slots[-1]]
        target = self._unit_of_entry[outside[0]] if outside else -1
        stops = tuple(_stops(nodes))
        self._paths[unit] = _Path(unit, slots, source, stops, target)
        self._costs[unit] = (0, *stops, stops[-1])
        self._through[unit] = len(slots) + 1
        self._targets[unit] = target
        self._times[unit] = self._arrivals[source]
        self._codes[unit] = bytearray()
        edge = network.inputs[slots[0]][0]
        self._entry_edges[unit] = edge
        self._entry_bytes[unit] = int(nodes[0].row_bytes_in)
        if not network.is_source(network.edge_producer[edge]):
            self._queues[unit] = deque()

    @property
    def single(self) -> bool:
        """Whether tuples come to one unit of each query only, and to units that serve one query."""
        queries_of = self.units.topology.queries_of
        served = [query for path in self._used for query in queries_of[path.slots[0]]]
        return len(served) == len(set(served)) == len(self._used)

    def _used_paths(self) -> list[_Path]:
        """Return the paths that tuples come to: those that read a source, and what these lead to."""
        used = [path for path in self._paths if path is not None and self._queues[path.unit] is None]
        found = {path.unit for path in used}
        for path in used:
            after = self._paths[path.target] if path.target >= 0 else None
            if after is not None and after.unit not in found:
                found.add(after.unit)
                used.append(after)
        return used

    def _source_of(self, slot: int) -> int:
        network = self.ledger.network
        while True:
            edge = network.inputs[slot][0]
            producer = network.edge_producer[edge]
            if network.is_source(producer):
                return network.edge_log[edge]
            slot = producer

    def arrive(self, log: LogId, times_ns: Sequence[int]) -> None:
        """Hear of tuples that arrive on a source's log, in time order, before the core hears of them."""
        slot = self.ledger.network.logs.slot_of[log]
        times = self._arrivals[slot]
        times.extend(times_ns)
        if len(times) > self._foreseen[slot]:
            self._foresee(log, slot, max(len(times), self._foreseen[slot] + _AHEAD))

    def _foresee(self, log: LogId, slot: int, last: int) -> None:
        identity = self.ledger.network.operators.identity
        first, self._foreseen[slot] = self._foreseen[slot], last
        paths = [path for path in self._used if path.source == slot]
        codes = self.outcomes.codes(log, [[identity(one) for one in path.slots] for path in paths], first, last)
        for path, row in zip(paths, codes, strict=True):
            self._codes[path.unit].extend(row.tobytes())

    # ---- running

    def run(self, view: View, selector: Selector, now_ns: int, until_ns: int) -> tuple[int, bool]:
        """Decide and run from `now_ns` until a run ends at or after `until_ns` or nothing is available.

        Returns the time then, and whether something may still be available.
        """
        if self._charged is None:
            # What it took to rank everything at the beginning is no decision's cost.
            self._charged = (selector.evaluations, selector.moves)
        runs_max = _ADAPT_RUNS if self.estimates.adapt else 1 << 60
        started_ns, scheduled_ns = now_ns, self.scheduling_ns
        now_ns, more = self._loop(view, selector, now_ns, until_ns, runs_max)
        self.busy_ns += now_ns - started_ns - (self.scheduling_ns - scheduled_ns)
        self._sync()
        return now_ns, more

    def _loop(self, view: View, selector: Selector, now_ns: int, until_ns: int, runs_max: int) -> tuple[int, bool]:
        # One turn of this loop is one decision and one run: everything it touches is a local name.
        pick, changed, units = selector.pick, selector.changed, self.units
        rows, heads = memoryview(units.rows), memoryview(units.head_ns)  # type: ignore[arg-type]
        ready, available = memoryview(units.ready), memoryview(units.available)  # type: ignore[arg-type]
        codes, costs, through, targets = self._codes, self._costs, self._through, self._targets
        cursors, queues, times, stride = self._cursors, self._queues, self._times, self._stride
        ran, pushed = self._ran.append, self._pushed.append
        out_unit, out_arrival, out_finish = (column.append for column in self._results)
        charge, keep, runs, decisions, more = self.charge, self.keep_dropped, 0, 0, True
        while now_ns < until_ns:
            picked = pick(view, now_ns, 1)
            if charge is not None:
                now_ns += self._pay(charge, selector, len(picked))
            if not picked:
                more = False
                break
            for unit in picked:
                queue, arrivals = queues[unit], times[unit]
                if queue is None:
                    index = cursors[unit]
                    cursors[unit] = following = index + 1
                else:
                    index = queue.popleft()
                    following = queue[0] if queue else -1
                code = codes[unit][index]
                now_ns += costs[unit][code]
                left = rows[unit] - 1
                rows[unit] = left
                if left:
                    heads[unit] = arrivals[following]
                else:
                    heads[unit] = NEVER_NS
                    ready[unit] = available[unit] = False
                ran(unit * stride + code)
                runs += 1
                if code == through[unit] or keep:
                    target = targets[unit]
                    if target < 0:
                        out_unit(unit)
                        out_arrival(arrivals[index])
                        out_finish(now_ns)
                    else:
                        queue = queues[target]
                        assert queue is not None
                        queue.append(index)
                        if rows[target] == 0:
                            heads[target] = arrivals[index]
                        rows[target] += 1
                        ready[target] = available[target] = True
                        pushed(target)
                        changed(view, (target,), now_ns)
            changed(view, picked, now_ns)
            decisions += 1
            if runs >= runs_max:
                break
        self.runs += runs
        self.decisions += decisions + (not more)
        return now_ns, more

    def _pay(self, charge: DecisionCost, selector: Selector, orders: int) -> int:
        assert self._charged is not None
        evaluations, moves = selector.evaluations - self._charged[0], selector.moves - self._charged[1]
        self._charged = (selector.evaluations, selector.moves)
        paid = charge.decision_ns + charge.order_ns * orders + charge.evaluation_ns * evaluations + charge.move_ns * moves
        self.scheduling_ns += paid
        return paid

    def ahead(self, unit: int) -> tuple[bytearray, tuple[int, ...], int, int]:
        """Return what is foreseen of a unit that reads a source: codes by tuple, cost by code, the code of passing, the next tuple.

        For experiments with a scheduler that knows the future; no policy sees this.
        """
        return self._codes[unit], self._costs[unit], self._through[unit], self._cursors[unit]

    # ---- what the ledger learns

    def _sync(self) -> None:
        if self._ran:
            ran = np.bincount(np.frombuffer(self._ran, dtype=np.int64), minlength=self._tally.size).reshape(self._tally.shape)
            del self._ran[:]
            self._tally += ran
            runs = ran.sum(axis=1)
            units = runs.nonzero()[0]
            self._count_rows(units, -runs[units])
        if self._pushed:
            units, counts = np.unique(np.array(self._pushed, dtype=np.int64), return_counts=True)
            self._count_rows(units, counts)
            self._pushed.clear()
        if self.estimates.adapt:
            self._measure()
        if len(self._results[0]) >= 100_000:
            self._flush()

    def _count_rows(self, units: IntColumn, counts: IntColumn) -> None:
        ledger, edges = self.ledger, self._entry_edges[units]
        slots = self.units.entries[units]
        ledger.edge_rows[edges] += counts
        moved = counts * self._entry_bytes[units]
        ledger.edge_bytes[edges] += moved
        ledger.bytes_total += int(moved.sum())
        ledger.edge_consumed[edges] -= np.minimum(counts, 0)
        ledger.rows[slots] += counts
        heads = self.units.head_ns[units]
        ledger.edge_head_ns[edges] = heads
        ledger.head_ns[slots] = heads
        if ledger.full_count:
            raise SimulationError(f"more than {ledger.edge_rows_max} tuples wait before one operator", hint="lower the load")

    def _measure(self) -> None:
        """Hand the counts since the last time to the estimates."""
        self._unbooked += self._tally
        places, rows_in, rows_out = self._books.steps(self._tally)
        self._tally[:] = 0
        record, books = self.estimates.record, self._books
        columns = (books.slots[places], rows_in, rows_out, rows_in * books.cost_ns[places])
        for step in zip(*(column.tolist() for column in columns), strict=True):
            record(*step)

    def settle(self) -> None:
        """Bring every sum of the ledger up to date."""
        self._books.book(self.ledger, self._unbooked + self._tally)
        self._unbooked[:] = self._tally[:] = 0

    def _flush(self) -> None:
        unit, arrival, finish = (np.frombuffer(column, dtype=np.int64).copy() for column in self._results)
        self._results = (array("q"), array("q"), array("q"))
        last = np.array([path.slots[-1] if path is not None else -1 for path in self._paths], dtype=np.int64)
        self._done.append(Departures(last[unit], arrival, finish))

    def passed(self) -> Departures:
        """Return everything that left so far."""
        self._flush()
        names = ("operator", "arrival_ns", "finished_ns")
        columns = [np.concatenate([getattr(part, name) for part in self._done]) for name in names]
        self._done = [Departures(*columns)]
        return self._done[0]


def _stops(nodes: Sequence[OperatorNode]) -> list[int]:
    """Return the cost of one tuple up to and with each operator."""
    total, found = 0, []
    for node in nodes:
        total += round(node.call_ns + node.cost_ns)
        found.append(total)
    return found
