"""The live driver with real threads over the cost model: nothing is lost, errors stay where they happen, a run can be replayed."""

from __future__ import annotations

import io
import itertools
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from millstream.engine.data.graph import EdgeId, LogId, OperatorId, QueryId
from millstream.engine.data.work import EdgeStart, WorkOrder, WorkReceipt
from millstream.scheduler.core import SchedulerCore
from millstream.scheduler.drivers import live as live_module
from millstream.scheduler.drivers.live import LiveScheduler
from millstream.scheduler.drivers.mailbox import Mailbox
from millstream.scheduler.drivers.user_code import UserCode
from millstream.scheduler.errors import GraphError, OrderFailed, PolicyError, SchedulerError
from millstream.scheduler.events import Arrived, QueryPaused, QueryResumed, Tick
from millstream.scheduler.instructions import ClockNs, Instruction, Report, Splice
from millstream.scheduler.ledger import validate
from millstream.scheduler.limits import OFFERS_DUE_NS, USER_CALL_NS_MAX, USER_DECISION_NS_MAX, USER_LOAD_NS_MAX, USER_WAIT_NS_MAX
from millstream.scheduler.simulation.executor import BoxExecutor
from millstream.scheduler.simulation.networks import Box, NetworkBuilder, SimulatedSource
from millstream.scheduler.spec import PolicySpec
from millstream.scheduler.story import Story


class WorkClock:
    """A clock by which only work takes time: a look 1 µs, an order what the cost model says. The machine's speed does not matter."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now_ns = 1_000_000_000

    def __call__(self) -> int:
        return self.passes(1_000)

    def passes(self, time_ns: int) -> int:
        with self._lock:
            self._now_ns += time_ns
            return self._now_ns

    def reach(self, time_ns: int) -> None:
        with self._lock:
            self._now_ns = max(self._now_ns, time_ns)


class SharedBoxes:
    """The cost model made safe for threads; `broken` operators raise."""

    def __init__(self, clock: WorkClock | None = None) -> None:
        self.clock = clock or WorkClock()
        self.boxes = BoxExecutor(1)
        self.lock = threading.Lock()
        self.broken: dict[OperatorId, Exception] = {}
        self.results: list[tuple[OperatorId, int]] = []

    def run(self, order: WorkOrder, clock_ns: ClockNs) -> WorkReceipt:
        for step in order.steps:
            if step.operator in self.broken:
                raise self.broken[step.operator]
        with self.lock:
            receipt = self.boxes.run(order, clock_ns)
            self.clock.reach(receipt.finished_ns)  # only then is there what it made
            for emission in receipt.emissions:
                self.results.append((emission.operator, emission.rows))
        return receipt

    def splice(self, splice: Splice) -> dict[EdgeId, EdgeStart]:
        with self.lock:
            return self.boxes.splice(splice)

    def arrive(self, live: LiveScheduler, log: LogId, rows: int, at_ns: int = 0) -> None:
        event = Arrived(log, rows, rows, at_ns)
        with self.lock:
            self.boxes.accept(event)
        live.post(event)

    def emitted(self, operator: OperatorId) -> int:
        with self.lock:
            return sum(rows for one, rows in self.results if one == operator)


class Rig:
    """A live scheduler over boxes, stopped at the end of the test."""

    def __init__(self, policy: str = "round-robin", workers: int = 1, **more: Any) -> None:
        self.clock = WorkClock()
        self.executor = SharedBoxes(self.clock)
        self.told: list[Instruction] = []
        self.builder = NetworkBuilder()
        self.live = LiveScheduler(
            self.executor,
            policy=PolicySpec.parse(policy),
            workers=workers,
            on_splice=self.executor.splice,
            on_instruction=self.told.append,
            record=True,
            **{"clock_ns": self.clock, **more},
        )
        self.live.start()

    def chain(self, name: str, source: SimulatedSource, length: int = 3) -> OperatorId:
        box: Box | SimulatedSource = source
        for index in range(length):
            box = Box(1_000, 1.0, box, label=f"{name}{index}")
        assert isinstance(box, Box)
        self.live.add_query(self.builder.query(name, box))
        return self.builder.operator(box)

    def reports(self, kind: str) -> list[Report]:
        return [one for one in self.told if isinstance(one, Report) and one.kind == kind]


@pytest.fixture(params=[1, 3])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    made = Rig(workers=request.param)
    yield made
    made.live.stop(drain=False)


def test_everything_posted_from_many_threads_comes_out_once(rig: Rig) -> None:
    source = rig.builder.source("s")
    roots = [rig.chain(f"q{index}", source) for index in range(4)]
    log = rig.builder.log(source)

    def publish() -> None:
        for _ in range(50):
            rig.executor.arrive(rig.live, log, 3)

    threads = [threading.Thread(target=publish) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rig.live.quiesce(30)
    assert [rig.executor.emitted(root) for root in roots] == [450] * 4


def test_a_query_added_while_rows_flow_sees_only_rows_after_it_is_in_force(rig: Rig) -> None:
    source = rig.builder.source("s")
    first = rig.chain("first", source)
    log = rig.builder.log(source)
    for _ in range(20):
        rig.executor.arrive(rig.live, log, 5)
    late = rig.chain("late", source)
    rig.executor.arrive(rig.live, log, 7)
    assert rig.live.quiesce(30)
    assert rig.executor.emitted(first) == 107
    assert rig.executor.emitted(late) == 7


def splicing_threads(rig: Rig, count: int) -> list[int]:
    """Return on which thread each of so many queries came and left."""
    source, threads, splice = rig.builder.source("s"), list[int](), rig.executor.splice
    rig.live._on_splice = lambda order: threads.append(threading.get_ident()) or splice(order)  # type: ignore[func-returns-value]
    for index in range(count):
        rig.chain(f"q{index}", source)
        delta = rig.builder.query(f"short{index}", Box(1_000, 1.0, source))
        rig.live.add_query(delta)
        rig.live.remove_query(delta.query.id, (delta.query.root,))
        assert rig.live.quiesce(30)
    assert len(threads) == 3 * count
    assert rig.live.statistics().queries == count
    return threads


def test_a_query_comes_and_leaves_on_the_thread_that_says_so_while_nothing_is_under_way(rig: Rig) -> None:
    threads = splicing_threads(rig, 20)
    assert threads.count(threading.get_ident()) > 30  # the scheduler thread may have the turn now and then


def test_a_query_that_comes_while_an_order_runs_waits_for_the_scheduler_thread(rig: Rig) -> None:
    source = rig.builder.source("s")
    first = rig.chain("first", source, length=1)
    begun, go_on, run = threading.Event(), threading.Event(), rig.executor.run

    def held(order: WorkOrder, clock_ns: ClockNs) -> WorkReceipt:
        begun.set()
        assert go_on.wait(30)
        return run(order, clock_ns)

    rig.executor.run = held  # type: ignore[method-assign]
    rig.executor.arrive(rig.live, rig.builder.log(source), 5)
    assert begun.wait(30)
    delta = rig.builder.query("late", Box(1_000, 1.0, source))
    adder = threading.Thread(target=rig.live.add_query, args=(delta,))
    adder.start()
    go_on.set()
    adder.join(30)
    assert not adder.is_alive()
    assert rig.live.quiesce(30)
    assert (rig.executor.emitted(first), rig.executor.emitted(delta.query.root)) == (5, 0)


def test_a_splice_that_breaks_the_scheduler_is_told_to_whoever_adds_the_query(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("torn")

    monkeypatch.setattr(rig.live._core, "handle", broken)
    with pytest.raises(GraphError, match="the scheduler thread ended: torn"):
        rig.chain("q", rig.builder.source("s"))
    with pytest.raises(SchedulerError, match="the scheduler thread ended: torn"):
        rig.live.stop(drain=False)
    rig.live._fatal = None


def test_a_removed_query_leaves_the_others_alone(rig: Rig) -> None:
    source = rig.builder.source("s")
    kept = rig.chain("kept", source)
    gone = rig.builder.query("gone", Box(1_000, 1.0, source))
    rig.live.add_query(gone)
    log = rig.builder.log(source)
    rig.executor.arrive(rig.live, log, 5)
    rig.live.remove_query(gone.query.id, (gone.query.root,))
    rig.executor.arrive(rig.live, log, 5)
    assert rig.live.quiesce(30)
    assert rig.executor.emitted(kept) == 10
    with pytest.raises(GraphError, match="not in the network"):
        rig.live.remove_query(gone.query.id, ())


def test_a_failing_operator_stops_its_query_and_no_other(rig: Rig) -> None:
    source = rig.builder.source("s")
    good, bad = rig.chain("good", source), rig.chain("bad", source)
    rig.executor.broken[bad] = RuntimeError("division by zero in column v")
    log = rig.builder.log(source)
    for _ in range(5):
        rig.executor.arrive(rig.live, log, 2)
    assert rig.live.quiesce(30)
    assert rig.executor.emitted(good) == 10
    failed = rig.reports("query_failed")
    assert [one.query for one in failed] == [QueryId(2)]
    assert "division by zero in column v" in failed[0].message


def test_a_failure_keeps_the_receipt_of_the_steps_before_it(rig: Rig) -> None:
    source = rig.builder.source("s")
    bad = rig.chain("bad", source, length=1)
    log = rig.builder.log(source)

    class Partly(Exception):
        pass

    def run(order: WorkOrder, clock_ns: ClockNs) -> WorkReceipt:
        raise OrderFailed("overflow in SUM(v)", operator=bad, receipt=WorkReceipt(order.id, (), order.steps, (), 0, 0))

    rig.executor.run = run  # type: ignore[method-assign]
    rig.executor.arrive(rig.live, log, 1)
    assert rig.live.quiesce(30)
    assert [(one.operator, one.message) for one in rig.reports("query_failed")] == [(bad, "overflow in SUM(v)")]


def test_a_policy_can_be_changed_while_rows_flow(rig: Rig) -> None:
    source = rig.builder.source("s")
    roots = [rig.chain(f"q{index}", source) for index in range(3)]
    log = rig.builder.log(source)
    for policy in ("hnr", "fcfs", "hr:level=operator", "weighted-round-robin"):
        rig.executor.arrive(rig.live, log, 4)
        rig.live.set_policy(PolicySpec.parse(policy))
        rig.executor.arrive(rig.live, log, 4)
    assert rig.live.quiesce(30)
    assert [rig.executor.emitted(root) for root in roots] == [32] * 3
    with pytest.raises(PolicyError, match="unknown policy 'best'"):
        rig.live.set_policy(PolicySpec("best"))


def test_a_paused_query_keeps_its_rows_and_goes_on(rig: Rig) -> None:
    source = rig.builder.source("s")
    root = rig.chain("q", source)
    log = rig.builder.log(source)
    rig.live.post(QueryPaused(QueryId(1)))
    rig.executor.arrive(rig.live, log, 6)
    assert rig.live.quiesce(30)
    assert rig.executor.emitted(root) == 0
    rig.live.post(QueryResumed(QueryId(1)))
    assert rig.live.quiesce(30)
    assert rig.executor.emitted(root) == 6


def test_a_recorded_live_run_replays_to_the_same_decisions() -> None:
    rig = Rig("hnr", workers=2)
    source = rig.builder.source("s")
    for index in range(3):
        rig.chain(f"q{index}", source)
    log = rig.builder.log(source)
    for _ in range(30):
        rig.executor.arrive(rig.live, log, 3)
    rig.live.set_policy(PolicySpec.parse("fcfs"))
    for _ in range(30):
        rig.executor.arrive(rig.live, log, 3)
    rig.live.stop(drain=True)
    assert rig.live.story is not None
    text = io.StringIO()
    rig.live.story.save(text)
    story = Story.load(text.getvalue().splitlines())
    again = SchedulerCore(PolicySpec.parse("hnr"), rig.live.settings)
    for entry in story:
        assert tuple(again.handle(entry.events, entry.now_ns)) == entry.instructions
    validate(again.ledger)


def test_a_refused_query_says_why(rig: Rig) -> None:
    source = rig.builder.source("s")
    delta = rig.builder.query("q", Box(1_000, 1.0, source))
    rig.live.add_query(delta)
    with pytest.raises(GraphError, match="query 1 is in the network already"):
        rig.live.add_query(delta)


def test_an_error_of_the_scheduler_itself_is_not_silent() -> None:
    told: list[Instruction] = []
    live = LiveScheduler(SharedBoxes(), policy=PolicySpec(), on_instruction=told.append)
    live.start()
    live.post("no event")  # type: ignore[arg-type]
    live._thread.join(30)
    assert live.quiesce(30) is False
    with pytest.raises(SchedulerError, match="the scheduler has stopped"):
        live.post(Tick())
    with pytest.raises(SchedulerError, match="the scheduler thread ended"):
        live.stop()
    assert [one.kind for one in told if isinstance(one, Report)] == ["fatal"]


def user_policy(folder: Path, body: str) -> str:
    file = folder / "mine.py"
    file.write_text(f"import rig_clock, time\nclass Mine:\n    def rank(self, unit, now_ns):\n        {body}\n        return 1.0\n")
    return f"user:file={file}"


@pytest.fixture
def rig_clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A module that policy files can import: what moves the rig's clock."""
    module = SimpleNamespace(passes=lambda time_ns: 0, calls=[], ends=threading.Event())
    monkeypatch.setitem(sys.modules, "rig_clock", module)  # type: ignore[arg-type]
    return module


def run_user_policy(rig: Rig) -> None:
    source = rig.builder.source("s")
    root = rig.chain("q", source, length=1)
    for _ in range(12):
        rig.executor.arrive(rig.live, rig.builder.log(source), 1)
        assert rig.live.quiesce(30)
    rig.live.stop()
    assert rig.executor.emitted(root) == 12


def test_a_user_policy_ranks_new_queries_on_the_scheduler_thread(tmp_path: Path, rig_clock: SimpleNamespace) -> None:
    rig = Rig(user_policy(tmp_path, "pass"))
    assert threading.get_ident() not in splicing_threads(rig, 3)
    rig.live.stop()


def test_a_user_policy_that_takes_too_much_processor_time_is_replaced(tmp_path: Path, rig_clock: SimpleNamespace) -> None:
    worked = WorkClock()
    rig = Rig(user_policy(tmp_path, f"rig_clock.passes({USER_DECISION_NS_MAX + 1})"), user_code=UserCode(thread_time_ns=worked))
    rig_clock.passes = worked.passes
    run_user_policy(rig)
    (report,) = rig.reports("policy_failed")
    assert "ms of processor time for one decision" in report.message
    assert rig.live.statistics().policy == "round-robin"


def test_a_user_policy_on_a_busy_machine_goes_on_however_long_others_have_the_processor(tmp_path: Path, rig_clock: SimpleNamespace) -> None:
    rig = Rig(user_policy(tmp_path, "rig_clock.passes()"), user_code=UserCode(thread_time_ns=lambda: 0))
    waits = itertools.cycle((*[USER_WAIT_NS_MAX * 3] * 3, *[USER_DECISION_NS_MAX * 2] * 4))
    rig_clock.passes = lambda: rig.clock.passes(next(waits))
    run_user_policy(rig)
    assert not rig.reports("policy_failed")
    assert rig.live.statistics().policy.startswith("user")


def test_a_user_policy_that_waits_in_each_decision_is_replaced(tmp_path: Path, rig_clock: SimpleNamespace) -> None:
    rig = Rig(user_policy(tmp_path, f"rig_clock.passes({USER_WAIT_NS_MAX + 1})"), user_code=UserCode(thread_time_ns=lambda: 0))
    rig_clock.passes = rig.clock.passes
    run_user_policy(rig)
    (report,) = rig.reports("policy_failed")
    assert "ms for one decision" in report.message
    assert "processor" not in report.message
    assert rig.live.statistics().policy == "round-robin"


@pytest.mark.parametrize(
    "body",
    [
        "while True: pass",
        "rig_clock.ends.wait()",
        "rig_clock.calls.append(1)\n        while len(rig_clock.calls): rig_clock.calls.append(1); rig_clock.calls.pop()",
        "while True:\n            try: pass\n            except BaseException: pass",
    ],
    ids=["loops", "waits", "calls", "catches everything"],
)
@pytest.mark.parametrize("traced", [False, True], ids=["plain", "traced"])
def test_a_user_policy_that_never_comes_back_is_left_behind(
    tmp_path: Path, rig_clock: SimpleNamespace, body: str, traced: bool, request: pytest.FixtureRequest
) -> None:
    if traced:  # as by a debugger
        before = threading.gettrace()
        request.addfinalizer(lambda: threading.settrace(before))  # type: ignore[arg-type]
        threading.settrace(lambda frame, event, arg: None)
    asked: list[int] = []

    def at_once(done: threading.Event, limit_ns: int) -> bool:
        """Loading comes back; of a rank nobody waits for the second that it has."""
        asked.append(limit_ns)
        return done.wait(30) if limit_ns == USER_LOAD_NS_MAX else done.wait(0.01)

    rig = Rig(user_policy(tmp_path, body), user_code=UserCode(at_once))
    source = rig.builder.source("s")
    root = rig.chain("q", source, length=1)
    rig.executor.arrive(rig.live, rig.builder.log(source), 5)
    assert rig.live.quiesce(30)
    assert rig.executor.emitted(root) == 5
    assert asked == [USER_LOAD_NS_MAX, USER_CALL_NS_MAX]
    (failed,) = rig.reports("policy_failed")
    assert "nothing came back within 1 s" in failed.message
    assert rig.live.statistics().policy == "round-robin"
    rig.live.stop()
    rig_clock.ends.set()
    for thread in threading.enumerate():
        if thread.name == "user policy":
            thread.join(30)


def test_an_interrupt_that_a_users_code_raises_is_its_own_fault_and_no_end_of_its_thread() -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    code = UserCode()
    with pytest.raises(PolicyError, match=r"^KeyboardInterrupt$"):
        code(interrupted, 30_000_000_000)
    assert code(lambda: 7, 30_000_000_000) == 7
    code.close()


def test_rows_that_are_offered_do_not_run_a_users_policy(tmp_path: Path, rig_clock: SimpleNamespace) -> None:
    rig = Rig(user_policy(tmp_path, "pass"))
    source = rig.builder.source("s")
    root = rig.chain("q", source, length=1)
    event = Arrived(rig.builder.log(source), 2, 16, 0)
    assert rig.live.quiesce(30)
    with rig.executor.lock:
        rig.executor.boxes.accept(event)
    rig.live.offer([event])
    assert rig.live.quiesce(30)
    assert rig.executor.emitted(root) == 2
    assert rig.live.offers_taken == 0
    rig.live.stop()


def test_a_few_rows_are_run_by_the_thread_that_brings_them(rig: Rig) -> None:
    source = rig.builder.source("s")
    root = rig.chain("q", source)
    event = Arrived(rig.builder.log(source), 2, 16, 0)
    assert rig.live.quiesce(30)
    taken = 0
    for round_ in range(50):
        with rig.executor.lock:
            rig.executor.boxes.accept(event)
        before = rig.live.offers_taken
        rig.live.offer([event])
        if rig.live.offers_taken > before and rig.executor.emitted(root) == 2 * (round_ + 1):
            taken += 1
        assert rig.live.quiesce(30)
    assert taken > 25  # the scheduler thread may have the turn now and then
    assert rig.executor.emitted(root) == 100


def test_whoever_offers_hears_of_results_before_they_are_booked(rig: Rig) -> None:
    source = rig.builder.source("s")
    root = rig.chain("q", source)
    event = Arrived(rig.builder.log(source), 2, 16, 0)
    assert rig.live.quiesce(30)
    seen: list[tuple[int, int]] = []
    rig.live.on_run = lambda: seen.append((rig.executor.emitted(root), rig.live._core.statistics().rows_emitted))
    offered = 0
    for _ in range(20):
        with rig.executor.lock:
            rig.executor.boxes.accept(event)
        before = rig.live.offers_taken
        rig.live.offer([event])
        offered += rig.live.offers_taken - before
        assert rig.live.quiesce(30)
    assert offered
    assert {left - booked for left, booked in seen} == {0, 2}  # the first two of three operators emit nothing
    assert rig.live.statistics().rows_emitted == 40


class WatchedTurn:
    """The lock of a turn; tells when someone who asks for counts has come to it."""

    def __init__(self, lock: threading.Lock) -> None:
        self.lock = lock
        self.asked = threading.Event()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if timeout != -1:
            self.asked.set()
        return self.lock.acquire(blocking, timeout)

    def release(self) -> None:
        self.lock.release()

    def __enter__(self) -> bool:
        return self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


def test_counts_asked_for_while_rows_are_offered_are_those_after_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "_OFFER_S", 30.0)
    monkeypatch.setattr(live_module, "OFFER_NS_MAX", 1 << 62)
    source = rig.builder.source("s")
    root = rig.chain("q", source)
    event = Arrived(rig.builder.log(source), 2, 16, 0)
    assert rig.live.quiesce(30)
    turn = WatchedTurn(rig.live._turn)
    rig.live._turn = turn  # type: ignore[assignment]
    seen: list[int] = []

    def ask() -> None:
        """Go on with the offer once someone waits for its end."""
        if rig.executor.emitted(root) == 2 * rounds:
            asker = threading.Thread(target=lambda: seen.append(rig.live.statistics().rows_emitted))
            askers.append(asker)
            asker.start()
            assert turn.asked.wait(30)

    rig.live.on_run = ask
    askers: list[threading.Thread] = []
    rounds = 0
    while not askers:  # the scheduler thread may have the turn now and then
        rounds += 1
        with rig.executor.lock:
            rig.executor.boxes.accept(event)
        rig.live.offer([event])
        assert rig.live.quiesce(30)
    askers[0].join()
    assert seen == [2 * rounds]


def test_while_rows_are_offered_the_scheduler_thread_leaves_what_is_due_to_whoever_brings_them() -> None:
    now_ns = 1
    rig = Rig(load="dilos", clock_ns=lambda: now_ns)
    live, source = rig.live, rig.builder.source("s")
    rig.chain("q", source)
    live.stop()  # this thread does what the scheduler thread would
    live._mailbox = Mailbox()
    event = Arrived(rig.builder.log(source), 1, 8, 0)

    def offer() -> None:
        rig.executor.boxes.accept(event)
        live.offer([event])

    offer()
    live.step()  # it was told to look at the clock
    due_ns = live._core.next_wake_ns()
    assert due_ns is not None
    assert live._timeout_s() == pytest.approx((due_ns - now_ns + OFFERS_DUE_NS) / 1e9)
    assert live._timeout_s() == pytest.approx((due_ns - now_ns) / 1e9)
    assert not live._is_due()
    now_ns = due_ns
    assert live._is_due()
    offer()
    assert not live._is_due()


def test_offers_and_posts_from_many_threads_come_out_once(rig: Rig) -> None:
    source = rig.builder.source("s")
    roots = [rig.chain(f"q{index}", source) for index in range(3)]
    assert rig.live.quiesce(30)  # they are in force: what comes from here on is for all three
    log = rig.builder.log(source)

    def publish(offers: bool) -> None:
        for rows in (1, 300, 2) * 20:
            event = Arrived(log, rows, rows, 0)
            with rig.executor.lock:
                rig.executor.boxes.accept(event)
            if offers:
                rig.live.offer([event])
            else:
                rig.live.post(event)

    threads = [threading.Thread(target=publish, args=(index % 2 == 0,)) for index in range(4)]
    for thread in threads:
        thread.start()
    rig.chain("late", source)
    for thread in threads:
        thread.join()
    assert rig.live.quiesce(30)
    assert [rig.executor.emitted(root) for root in roots] == [4 * 20 * 303] * 3


def test_a_long_arrival_is_left_to_the_scheduler_thread(rig: Rig) -> None:
    source = rig.builder.source("s")
    root = rig.chain("q", source)
    event = Arrived(rig.builder.log(source), 10_000, 10_000, 0)
    with rig.executor.lock:
        rig.executor.boxes.accept(event)
    rig.live.offer([event])
    assert rig.live.offers_taken == 0
    assert rig.live.quiesce(30)
    assert rig.executor.emitted(root) == 10_000


def test_an_error_of_the_scheduler_met_in_an_offer_ends_it_loudly() -> None:
    told: list[Instruction] = []
    live = LiveScheduler(SharedBoxes(), policy=PolicySpec(), on_instruction=told.append)
    live.start()
    assert live.quiesce(30)

    def broken(event: Any, now_ns: int) -> None:
        raise RuntimeError("broken")

    live._core._take[Arrived] = broken
    live.offer([Arrived(LogId(1), 1, 1, 0)])
    with pytest.raises(SchedulerError, match="the scheduler thread ended: broken"):
        live.stop()
    assert [one.kind for one in told if isinstance(one, Report)] == ["drained", "fatal"]


def test_results_are_measured_as_they_leave(rig: Rig) -> None:
    source = rig.builder.source("s")
    rig.chain("q", source)
    for _ in range(4):
        rig.executor.arrive(rig.live, rig.builder.log(source), 5, at_ns=rig.clock())
    assert rig.live.quiesce(30)
    measures = rig.live.measures()
    assert measures is not None
    report = measures.report(rig.clock())
    assert report.output.outputs == 20
    assert 0 < report.output.response_ms_p50 <= report.output.response_ms_max < 30_000
    assert report.memory_bytes_max >= 5
    assert 0 < report.scheduling_share < 1


def test_arrivals_of_one_log_merge_and_the_mailbox_is_bounded() -> None:
    box = Mailbox(events_max=2)
    box.post(Arrived(LogId(1), 2, 20, 50))
    box.post(Arrived(LogId(1), 3, 30, 40, controls=1))
    box.post(Tick())
    with pytest.raises(SchedulerError, match="2 events wait"):
        box.post(Tick())
    assert box.take(0) == [Arrived(LogId(1), 5, 50, 40, 1), Tick()]
    assert box.take(0) == []


def test_the_core_settings_follow_the_workers() -> None:
    live = LiveScheduler(SharedBoxes(), policy=PolicySpec(), workers=3)
    assert live.settings.orders_max == 6
    assert live.settings.train.adaptive
    assert live.settings.schedule > 1
    assert LiveScheduler(SharedBoxes(), policy=PolicySpec(), workers=1).settings.orders_max == 1
