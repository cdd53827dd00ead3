"""The one door to the scheduler's state: events in, instructions out. No clock, no thread, no randomness.

`handle` applies all events first and decides once after. The same core runs live, simulated, and again from a saved story.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from millstream.engine.data.graph import OperatorId, QueryId
from millstream.engine.data.work import OrderId, WorkOrder
from millstream.scheduler import catalog
from millstream.scheduler.contracts import Ranking, UserCalls
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.estimates import Estimates
from millstream.scheduler.events import (
    Arrived,
    ClassChanged,
    DrainRequested,
    Event,
    Placed,
    PolicyChanged,
    QueryAdded,
    QueryPaused,
    QueryRemoved,
    QueryResumed,
    QueryReweighed,
    Spliced,
    SumsWanted,
    Tick,
    TimerDue,
    WorkDone,
    WorkFailure,
)
from millstream.scheduler.instructions import ROUND_ROBIN_GOES_ON, Dispatch, Instruction, Report
from millstream.scheduler.ledger import Ledger
from millstream.scheduler.limits import NEVER_NS, UNIT_COST_FALLS, UNIT_COST_RISES
from millstream.scheduler.load.control import LoadControl
from millstream.scheduler.locks import Outstanding, QueryMarks
from millstream.scheduler.measures import Measures
from millstream.scheduler.network import NetworkModel
from millstream.scheduler.orders import OrderMaker
from millstream.scheduler.policies.user import called_here
from millstream.scheduler.receipts import ReceiptBook
from millstream.scheduler.selectors.class_turns import ClassTurnsSelector
from millstream.scheduler.settings import CoreSettings as CoreSettings
from millstream.scheduler.settings import SchedulerStatistics as SchedulerStatistics
from millstream.scheduler.spec import PolicySpec
from millstream.scheduler.splices import Splices
from millstream.scheduler.story import Reason, Story, reason_for
from millstream.scheduler.unit_set import UnitSet
from millstream.scheduler.view import View

if TYPE_CHECKING:
    from millstream.scheduler.places import Places

FALLBACK = PolicySpec("round-robin")


class SchedulerCore:
    """Keeps the ledger, asks the policy, gives out orders. Deterministic in (events, times)."""

    def __init__(self, policy: PolicySpec = FALLBACK, settings: CoreSettings | None = None, *, user_calls: UserCalls = called_here) -> None:
        self.settings = settings or CoreSettings()
        self._user_calls = user_calls
        self.network = NetworkModel()
        self.ledger = Ledger(self.network, edge_rows_max=self.settings.edge_rows_max)
        self.estimates = Estimates(self.network, adapt=self.settings.adapt, declared=self.settings.declared)
        self.estimates.means.set_aging(self.settings.window, self.settings.aging)
        self.estimates.calls_per_operator = self.settings.estimate_calls
        self.measures: Measures | None = Measures() if self.settings.measure else None
        self.story: Story | None = Story() if self.settings.record else None
        self._policy = self._build(policy)
        self._splices = Splices(self.ledger, self.estimates)
        self._outstanding: dict[OrderId, Outstanding] = {}
        self._marks = QueryMarks(self.ledger)
        self._moved: list[int] = []
        self._came: list[QueryId] = []
        self._now_ns = 0
        self._events = 0
        self._next_order = 1
        self._draining = self._sums_wanted = False
        self._single_orders = 0
        self._unit_ns = 0.0  # what a unit of an order takes, about
        self._places = _places(self.network, self.settings)
        self._units_version = -1
        self._units: UnitSet
        self._view: View
        self._maker: OrderMaker
        self._reports: list[Instruction] = []
        self._reasons: list[Reason] = []
        self._counts = dict.fromkeys(("decisions", "orders", "steps", "rows_in", "rows_emitted", "busy_ns", "failures"), 0)
        self.load: LoadControl | None = LoadControl(self.settings.load, self.ledger, self.estimates) if self.settings.load else None
        self._receipts = ReceiptBook(self.ledger, self.estimates, self.load)
        self._spent = [0, 0]
        self._take: dict[type[Any], Callable[[Any, int], None]] = {
            Arrived: self._take_arrived,
            TimerDue: self._take_timer,
            WorkDone: self._take_work,
            QueryAdded: lambda event, now_ns: self._splices.add(event),
            QueryRemoved: self._take_removed,
            QueryPaused: lambda event, now_ns: self._marks.pause(event.query),
            QueryResumed: lambda event, now_ns: self._marks.resume(event.query),
            QueryReweighed: lambda event, now_ns: self.ledger.reweigh(event.query, event.weight),
            ClassChanged: lambda event, now_ns: self.network.redefine(event.node),
            SumsWanted: self._take_wanted,
            Spliced: self._take_spliced,
            PolicyChanged: self._take_policy,
            Tick: self._take_nothing,
            Placed: self._take_placed,
            DrainRequested: self._take_drain,
        }
        self._cut_units(0)

    # ---- the door

    def handle(self, events: Sequence[Event], now_ns: int) -> list[Instruction]:
        """Apply all events, then decide once. Returns what the driver is to carry out, in order."""
        self._now_ns = now_ns
        take = self._take
        for event in events:
            take[type(event)](event, now_ns)
            # An order that took nothing brings nothing that another waits for: of two such each would wake the other for ever.
            if not (isinstance(event, WorkDone) and event.receipt.moved_nothing):
                self._events += 1
        instructions = self._reports
        self._reports = []
        if self._splices.waiting:
            instructions.extend(self._splices.due({slot for one in self._outstanding.values() for slot in one.locked}))
        if self.load is not None and self.load.next_ns is not None and now_ns >= self.load.next_ns:
            self._manage_load(self.load, now_ns, instructions)
        if len(self._outstanding) < self.settings.orders_max or self._sums_wanted:
            self._decide(now_ns, instructions)
        if self._draining and self.idle:
            self._draining = False
            self._units.threshold = self._policy.threshold
            instructions.append(Report("drained", "all queues are empty"))
        if self.measures is not None:
            self.measures.sample_memory(now_ns, self.ledger.bytes_total)
        if self.story is not None:
            self.story.tell(now_ns, events, instructions, self._reasons)
            self._reasons.clear()
        return instructions

    def _manage_load(self, load: LoadControl, now_ns: int, instructions: list[Instruction]) -> None:
        load.monitors.class_means = isinstance(self._policy.selector, ClassTurnsSelector)
        told = load.cycle(now_ns, busy=bool(self._outstanding))
        if told is None:
            return
        instructions.extend(told)
        selector = self._policy.selector
        if isinstance(selector, ClassTurnsSelector):
            selector.set_shares(load.shares)
        if self.measures is not None:
            for class_id, came in load.monitors.came.items():
                self.measures.arrived(class_id, came.rows, came.shed)

    def next_wake_ns(self) -> int | None:
        """When the core wants to be called though nothing happens; None for never. Always in the future of the last `handle`."""
        load_ns = None if self.load is None else self.load.next_ns
        if not self._units.threshold or len(self._outstanding) >= self.settings.orders_max:
            return load_ns
        overdue_ns = self._units.next_overdue_ns(self.settings.head_wait_ns_max)
        if overdue_ns is None or overdue_ns <= self._now_ns:
            return load_ns
        return overdue_ns if load_ns is None else min(load_ns, overdue_ns)

    @property
    def idle(self) -> bool:
        """True when no order is out, no splice waits, and nothing could run."""
        if self._outstanding or self._splices.waiting:
            return False
        if self._units_version != self.network.version:
            # The cut is made anew only when something waits, so what was touched meanwhile stays on the list.
            return not self.ledger.anything_waits
        if self.ledger.touched:
            return False
        return not bool(self._units.ready.any())

    @property
    def policy(self) -> PolicySpec:
        """The policy in force."""
        return self._policy.spec

    @property
    def view(self) -> View:
        """The view of the units in force, cut and summed anew if that was put off because nothing waited."""
        if self._units_version != self.network.version:
            self._refresh_units(self._now_ns)
        return self._view

    @property
    def ranking(self) -> Ranking | None:
        """The ranking in force, None for a policy of turns."""
        return self._policy.ranking

    def standings(self) -> dict[OperatorId, tuple[int, float | None]]:
        """Return of each operator its unit, the one that it begins or else the first that it is in, and the unit's rank by now.

        The rank is None where the policy takes turns, where it ranks what waits and nothing does, and for a user's own policy, whose
        code is not run for this.
        """
        view, ranking = self.view, self._policy.ranking
        units = view.units
        ranks: list[float | None] = [None] * units.count
        if ranking is not None and self._policy.spec.name != "user" and units.count:
            numbers = np.broadcast_to(ranking.rank(view, self._now_ns), units.count)
            known = np.isfinite(numbers) & (np.abs(numbers) < NEVER_NS / 2)
            ranks = [number if told else None for number, told in zip(numbers.tolist(), known.tolist(), strict=True)]
        begins = dict(zip(reversed(units.entries.tolist()), reversed(range(units.count)), strict=True))
        found = {}
        for operator, slot in self.network.operators.slot_of.items():
            unit = begins.get(slot)
            if unit is None:
                inside = units.units_with(slot)
                unit = int(inside[0]) if len(inside) else None
            if unit is not None:
                found[operator] = (unit, ranks[unit])
        return found

    def counters(self) -> tuple[int, int, int, int]:
        """Decisions, ranks computed, queue operations and orders so far: what a driver may charge for."""
        counts, selector = self._counts, self._policy.selector
        return counts["decisions"], self._spent[0] + selector.evaluations, self._spent[1] + selector.moves, counts["orders"]

    def statistics(self) -> SchedulerStatistics:
        """Counts since the start, and what waits now."""
        counts, selector = self._counts, self._policy.selector
        return SchedulerStatistics(
            policy=str(self._policy.spec),
            decisions=counts["decisions"],
            evaluations=self._spent[0] + selector.evaluations,
            queue_moves=self._spent[1] + selector.moves,
            orders=counts["orders"],
            orders_out=len(self._outstanding),
            steps=counts["steps"],
            rows_in=counts["rows_in"],
            rows_emitted=counts["rows_emitted"],
            busy_ns=counts["busy_ns"],
            rows_waiting=self.ledger.rows_waiting,
            bytes_waiting=self.ledger.bytes_waiting,
            controls_waiting=int(self.ledger.controls.sum()),
            operators=len(self.network.topology.order),
            queries=len(self.network.queries),
            failures=counts["failures"],
            idle=self.idle,
        )

    def with_queries(self, before: SchedulerStatistics) -> SchedulerStatistics:
        """Return counts of before with how many queries and operators there are now."""
        return replace(before, operators=len(self.network.topology.order), queries=len(self.network.queries))

    @property
    def failed(self) -> Mapping[QueryId, str]:
        """Queries that an error stopped, with its message."""
        return self._marks.failed

    # ---- events

    def _take_nothing(self, event: Event, now_ns: int) -> None:
        """The time that comes with every call is all there is to know."""

    def _take_arrived(self, event: Arrived, now_ns: int) -> None:
        log = self.network.logs.slot_of.get(event.log)
        if self.load is not None:
            self.load.arrived(log, event.shed, now_ns)
        if log is None:
            # The stream has no query yet, or its last one has left.
            self.ledger.note_unread(event)
            return
        rows, controls = self.ledger.missing(log, event)
        self.ledger.append(log, rows, event.bytes, event.arrival_ns, controls)
        self.estimates.arrived(log, rows, now_ns)

    def _take_timer(self, event: TimerDue, now_ns: int) -> None:
        operator = self.network.operators.slot_of.get(event.operator)
        if operator is not None:
            self.ledger.timer_due(operator)

    def _take_work(self, event: WorkDone, now_ns: int) -> None:
        receipt = event.receipt
        outstanding = self._outstanding.pop(receipt.order)
        if self._places is not None:
            self._moved += self._places.came_back(self._units, outstanding.worker)
        self._receipts.apply(receipt, self._counts, self.measures)
        if self.ledger.stalled_count and self._events != outstanding.events:
            # What has come since the order went out may be just what a step that took nothing waits for: it looks once more.
            for operator in outstanding.locked:
                self.ledger.unstall(operator)
        self._note_unit_cost(outstanding.unit_ns(receipt))
        if isinstance(self._policy.selector, ClassTurnsSelector):
            self._policy.selector.charge_order(outstanding.order, receipt, self.network)
        if outstanding.conflicts is None:
            self._moved += outstanding.units if outstanding.cut is self._units else self._units.conflicts_of(outstanding.locked).tolist()
        else:
            self.ledger.unlock(outstanding.locked)
            # Also where the network has changed since: the cut may be grown and not made anew, and then keeps its locks.
            self._units.unlock(outstanding.conflicts)
            self._moved.extend(outstanding.conflicts.tolist())
        if event.failure is not None:
            self._take_failure(event.failure, outstanding)

    def _note_unit_cost(self, unit_ns: float) -> None:
        # Rises slowly: an order that other work of the machine held up says little about the next.
        gain = UNIT_COST_FALLS if unit_ns < self._unit_ns else UNIT_COST_RISES
        self._unit_ns += gain * (unit_ns - self._unit_ns)

    def _take_failure(self, failure: WorkFailure, outstanding: Outstanding) -> None:
        slot_of = self.network.operators.slot_of
        operators = outstanding.locked
        if failure.operator is not None and failure.operator in slot_of:
            operators = [slot_of[failure.operator]]
        elif len(outstanding.units) > 1:
            # Nobody knows whose fault it was: the next orders are given out one unit at a time until it shows.
            self._single_orders = max(self._single_orders, 2 * len(outstanding.units))
            return
        self._counts["failures"] += 1
        queries_of = self.network.topology.queries_of
        for query in dict.fromkeys(query for slot in operators for query in queries_of.get(slot, [])):
            if query not in self.failed:
                self._marks.fail(query, failure.message)
                self._reports.append(Report("query_failed", failure.message, query, failure.operator))

    def _take_removed(self, event: QueryRemoved, now_ns: int) -> None:
        self._splices.add(event)
        self._marks.leave(event.query)
        if self._places is not None:
            self._places.forget(event.operators)

    def _take_placed(self, event: Placed, now_ns: int) -> None:
        if self._places is not None:
            self._moved += self._places.note(self._units, event.workers)

    def _take_wanted(self, event: SumsWanted, now_ns: int) -> None:
        self._sums_wanted = True

    def _take_spliced(self, event: Spliced, now_ns: int) -> None:
        self._reports.append(self._splices.settle(event))
        self._marks.settled(event.query)
        node = self.network.queries.get(event.query)
        if node is not None:
            self._came.append(event.query)
        if self.measures is not None:
            self.measures.follow(event.query, node, now_ns)

    def _take_policy(self, event: PolicyChanged, now_ns: int) -> None:
        try:
            policy = self._build(event.spec)
        except PolicyError as problem:
            self._reports.append(Report("policy_failed", str(problem)))
            return
        self._use(policy, now_ns)
        self._reports.append(Report("policy_set", f"policy is {event.spec}"))

    def _take_drain(self, event: DrainRequested, now_ns: int) -> None:
        self._draining = True
        self._units.threshold = 0
        self._units.update_all()
        self._moved = list(range(self._units.count))

    # ---- the policy

    def _build(self, spec: PolicySpec) -> catalog.Policy:
        settings = self.settings
        return catalog.build(spec, default_train=settings.train, default_schedule=settings.schedule, user_calls=self._user_calls)

    def _use(self, policy: catalog.Policy, now_ns: int) -> None:
        self._spent[0] += self._policy.selector.evaluations
        self._spent[1] += self._policy.selector.moves
        self._policy = policy
        self.estimates.adapt = self.settings.adapt if policy.adapt is None else policy.adapt
        self._units_version = -1

    def _cut_units(self, now_ns: int) -> None:
        """Cut the network anew, after it or the policy changed. Orders that are out keep their operators locked."""
        self.estimates.refresh()
        policy = self._policy
        units = self._units = policy.cutter(self.ledger, self.estimates)
        units.threshold = 0 if self._draining else policy.threshold
        for outstanding in self._outstanding.values():
            if outstanding.conflicts is not None:
                outstanding.conflicts = units.conflicts_of(outstanding.locked)
                units.lock(outstanding.conflicts)
        if self._places is not None:
            self._places.cut(units)
        self.ledger.touched = {}
        self._moved = []
        units.update_all()
        self._view = View(self.ledger, self.estimates, units)
        let_in = policy.selector.rows_let_in if isinstance(policy.selector, ClassTurnsSelector) else None
        self._maker = OrderMaker(self._view, policy.train, policy.traversal, policy.turns, let_in)
        self._units_version = self.network.version
        self._came = []
        policy.selector.reset(self._view, now_ns)

    def _grow_units(self, now_ns: int) -> bool:
        """Take new queries into the present cut where it can; False when it must be made anew."""
        if self._units_version < 0 or self._units_version + len(self._came) != self.network.version:
            return False
        network, came = self.network, self._came
        self._came = []
        for query in came:
            slots = network.topology.query_slots[query]
            added = [slot for slot in slots if network.topology.queries_of[slot][0] == query]
            if not self._units.query_came(added):
                return False
            self._maker.query_came(slots)
        self._view.query_came()
        for outstanding in self._outstanding.values():
            if outstanding.conflicts is None:
                continue
            conflicts = self._units.conflicts_of(outstanding.locked)
            self._units.unlock(outstanding.conflicts)
            self._units.lock(conflicts)
            outstanding.conflicts = conflicts
        if self._places is not None:
            self._places.grown(self._units)
        self._units_version = network.version
        self.estimates.refresh()
        self._units.update(list(self.ledger.touched))
        self.ledger.touched = {}
        self._moved = []
        self._policy.selector.reset(self._view, now_ns)
        return True

    def _bring_up_to_date(self, now_ns: int) -> None:
        self._refresh_units(now_ns)
        if self._units.threshold:
            late = self._units.overdue(now_ns - self.settings.head_wait_ns_max)
            self._policy.selector.changed(self._view, late, now_ns)

    def _refresh_units(self, now_ns: int) -> None:
        if self._units_version != self.network.version:
            if not self._grow_units(now_ns):
                self._cut_units(now_ns)
            return
        touched, moved = self.ledger.touched, self._moved
        if touched:
            self.ledger.touched = {}
            moved += self._units.update(list(touched))
            if len(moved) > 1 and self._policy.schedule > 1:
                moved = list(dict.fromkeys(moved))  # most units that ran have moved for it
        selector = self._policy.selector
        if self.estimates.refresh():
            if not self._units.holds():
                self._cut_units(now_ns)
                return
            selector.reset(self._view, now_ns)
        elif moved:
            selector.changed(self._view, moved, now_ns)
        self._moved = []

    def _decide(self, now_ns: int, instructions: list[Instruction]) -> None:
        if self._splices.in_flight or not (self._sums_wanted or self._units_version == self.network.version or self.ledger.anything_waits):
            return
        self._sums_wanted = False
        while True:
            try:
                self._bring_up_to_date(now_ns)
                self._give_out(now_ns, instructions)
            except Exception as problem:
                if self._policy.spec == FALLBACK:
                    raise
                reason = str(problem) if isinstance(problem, PolicyError) else f"{type(problem).__name__}: {problem}"
                message = f"policy {self._policy.spec} failed: {reason}{ROUND_ROBIN_GOES_ON}"
                instructions.append(Report("policy_failed", message))
                self._use(self._build(FALLBACK), now_ns)
                continue
            return

    def _give_out(self, now_ns: int, instructions: list[Instruction]) -> None:
        policy, free, budget_ns = self._policy, self.settings.orders_max - len(self._outstanding), self.settings.budget_ns
        while free > 0:
            self._counts["decisions"] += 1
            count = policy.schedule if not self._single_orders else 1
            if budget_ns is not None and count * self._unit_ns > budget_ns:
                count = math.ceil(budget_ns / self._unit_ns) or 1  # the rest would only come back undone
            if count > 1 and free > 1:
                if self._places is None:  # leave something for the other workers
                    count = min(count, max(1, int(np.count_nonzero(self._units.available)) // free))
                else:  # one order for each that has room, of units of its own
                    count *= free
            picked = policy.selector.pick(self._view, now_ns, count)
            if not picked and self.ledger.full_count and not self._outstanding:
                picked = self._pick_behind_full(now_ns)
            if not picked:
                return
            if self.story is not None:
                self._reasons.append(reason_for(OrderId(self._next_order), picked, self._view, policy.ranking, now_ns))
            if self._places is None:
                instructions.append(Dispatch(self._order(picked, now_ns)))
                free -= 1
            else:
                for worker, parted in self._places.parted(self._units, picked):
                    units = [unit for unit in parted if self._units.available[unit]]  # the order before may share operators with some
                    if not units:
                        continue
                    instructions.append(Dispatch(self._order(units, now_ns, worker)))
                    shut = self._places.given(self._units, worker)
                    if shut:
                        policy.selector.changed(self._view, shut, now_ns)
                    free -= 1
            if self._single_orders:
                self._single_orders -= 1

    def _pick_behind_full(self, now_ns: int) -> list[int]:
        """Nothing runs and nothing could: full queues wait for one another. One unit may overshoot to break the ring."""
        units, selector = self._units, self._policy.selector
        units.ignore_full = True
        units.update_all()
        selector.reset(self._view, now_ns)
        picked = selector.pick(self._view, now_ns, 1)
        units.ignore_full = False
        units.update_all()
        selector.reset(self._view, now_ns)
        return picked

    def _order(self, picked: list[int], now_ns: int, worker: int = 0) -> WorkOrder:
        """Make an order for these units, and lock what it shares with others if more than one may be out."""
        units = self._units
        identity = OrderId(self._next_order)
        self._next_order += 1
        order = self._maker.make(identity, picked, self.settings.budget_ns)
        order.worker = worker
        outstanding = self._outstanding[identity] = Outstanding(order, units, picked, worker, self._events)
        self._counts["orders"] += 1
        self.ledger.open(units.open_edges_of(picked))
        if self.settings.orders_max > 1:
            outstanding.operators = outstanding.locked
            self.ledger.lock(outstanding.operators)
            found = [units.conflicts(unit) for unit in picked]
            outstanding.conflicts = found[0] if len(found) == 1 else np.unique(np.concatenate(found))
            units.lock(outstanding.conflicts)
            # What shares an operator with this order must not be picked while it is out.
            self._policy.selector.changed(self._view, outstanding.conflicts.tolist(), now_ns)
        return order


def _places(network: NetworkModel, settings: CoreSettings) -> Places | None:
    """Return the books of which worker has what, None where any worker runs any order."""
    if not settings.workers:
        return None
    from millstream.scheduler.places import Places  # most servers have one worker

    return Places(network, settings.worker_orders_max)
