"""The core by itself: control items, timers, stalls, locks, halts, splices and drains, event by event."""

from __future__ import annotations

from dataclasses import replace

import pytest
from millstream.engine.data.graph import Edge, EdgeId, GraphDelta, LogId, OperatorId, OperatorNode, QueryId, QueryNode
from millstream.engine.data.work import EdgeCount, EdgeStart, Emission, LogCount, OrderId, Step, StepReceipt, WorkOrder, WorkReceipt
from millstream.scheduler.catalog import CATALOG
from millstream.scheduler.core import CoreSettings, SchedulerCore
from millstream.scheduler.errors import GraphError, LedgerError
from millstream.scheduler.events import (
    Arrived,
    DrainRequested,
    PolicyChanged,
    QueryAdded,
    QueryPaused,
    QueryRemoved,
    QueryResumed,
    QueryReweighed,
    Spliced,
    SumsWanted,
    TimerDue,
    WorkDone,
    WorkFailure,
)
from millstream.scheduler.instructions import Dispatch, Instruction, Report, Splice
from millstream.scheduler.ledger import validate
from millstream.scheduler.simulation.networks import Box, NetworkBuilder, SimulatedSource
from millstream.scheduler.spec import PolicySpec
from millstream.scheduler.trains import TrainShape

POLICIES = [name for name in CATALOG if name != "user"]


class Bench:
    """A core with a chain a -> b over one source, driven by hand."""

    def __init__(self, policy: str = "round-robin", settings: CoreSettings | None = None) -> None:
        self.builder = NetworkBuilder()
        self.source = self.builder.source("s")
        self.a = Box(10, 1.0, self.source, label="a")
        self.b = Box(10, 1.0, self.a, label="b")
        self.core = SchedulerCore(PolicySpec.parse(policy), settings or CoreSettings(train=TrainShape(share=1.0), adapt=False))
        self.now = 0
        self.add(self.b)

    def add(self, root: Box) -> QueryId:
        delta = self.builder.query("q", root)
        self.handle(QueryAdded(delta))
        self.handle(Spliced(delta.query.id))
        return delta.query.id

    def handle(self, *events: object) -> list[Instruction]:
        self.now += 1
        return self.core.handle(list(events), self.now)  # type: ignore[arg-type]

    def arrive(self, rows: int, controls: int = 0, source: SimulatedSource | None = None) -> list[WorkOrder]:
        return orders(self.handle(Arrived(self.builder.log(source or self.source), rows, rows, self.now, controls)))

    def done(self, order: WorkOrder, *steps: StepReceipt, failure: WorkFailure | None = None) -> list[WorkOrder]:
        return orders(self.handle(WorkDone(WorkReceipt(order.id, steps, (), (), 0, 1), failure)))

    def receipt(self, box: Box, rows: int, made: int, controls: int = 0, passed: int = 0) -> StepReceipt:
        operator = self.builder.operator(box)
        edge = self.core.network.inputs[self.core.network.operators.slot_of[operator]][0]
        consumed = EdgeCount(self.core.network.edges.identity(edge), rows, rows, None, controls)
        return StepReceipt(operator, (consumed,), (LogCount(self.builder.log(box), made, made, 0, passed),), 10)


def orders(instructions: list[Instruction]) -> list[WorkOrder]:
    return [one.order for one in instructions if isinstance(one, Dispatch)]


def reports(instructions: list[Instruction]) -> list[str]:
    return [one.kind for one in instructions if isinstance(one, Report)]


@pytest.mark.parametrize("policy", POLICIES)
def test_control_items_alone_make_an_operator_run_under_every_policy(policy: str) -> None:
    bench = Bench(f"{policy}:tau=5")
    (order,) = bench.arrive(0, controls=1)
    first = order.steps[0]
    assert first == Step(bench.builder.operator(bench.a), 0)
    last = bench.done(order, bench.receipt(bench.a, 0, 0, controls=1, passed=1))
    if len(order.steps) == 1 or last:
        (order,) = last
        assert order.steps[0].operator == bench.builder.operator(bench.b)
    validate(bench.core.ledger, settled=False)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_timer_makes_its_operator_run_once(policy: str) -> None:
    bench = Bench(policy)
    (order,) = orders(bench.handle(TimerDue(bench.builder.operator(bench.b))))
    assert order.steps[0].operator == bench.builder.operator(bench.b)
    assert bench.done(order, StepReceipt(bench.builder.operator(bench.b), (), (), 1)) == []
    assert bench.core.idle
    validate(bench.core.ledger)


@pytest.mark.parametrize("readers", [1, 20])
def test_bytes_of_control_items_count_for_nothing_as_taking_them_tells_none(readers: int) -> None:
    bench = Bench()
    for number in range(1, readers):
        bench.add(Box(10, 1.0, bench.source, label=f"more{number}"))
    log = bench.builder.log(bench.source)
    waiting = bench.handle(Arrived(log, 0, 16, 1, 1))
    bench.handle(Arrived(log, 3, 24, 1, 0))
    validate(bench.core.ledger)
    assert orders(waiting)
    assert bench.core.ledger.bytes_total == 24 * readers


def test_a_query_that_is_weighed_anew_leaves_the_counts_of_chains_right_and_one_that_has_left_is_no_fault() -> None:
    bench = Bench()
    query = bench.add(Box(10, 1.0, bench.source, label="c"))
    bench.handle(QueryReweighed(query, 7.0), QueryReweighed(QueryId(99), 2.0), SumsWanted())
    assert bench.core.network.queries[query].weight == 7.0
    assert QueryId(99) not in bench.core.network.queries


def test_a_step_that_takes_nothing_waits_until_something_moves_above() -> None:
    bench = Bench()
    (order,) = bench.arrive(3)
    # The input waits for a partner: nothing taken, nothing to do, no spinning.
    assert bench.done(order, StepReceipt(bench.builder.operator(bench.a), (), (), 1)) == []
    assert bench.core.idle
    assert bench.core.next_wake_ns() is None
    (order,) = bench.arrive(1)
    assert order.steps == (Step(bench.builder.operator(bench.a), 4),)
    validate(bench.core.ledger)


def test_a_join_waits_for_its_partner_and_goes_on_when_the_other_side_moves() -> None:
    bench = Bench()
    other = bench.builder.source("t")
    slow = Box(10, 0.5, other, label="slow")
    bench.add(Box(10, 1.0, slow, bench.b, window_ns=100, label="join"))
    (order,) = bench.arrive(1)
    (order,) = bench.done(order, bench.receipt(bench.a, 1, 1))
    (order,) = bench.done(order, bench.receipt(bench.b, 1, 1))
    join = order.steps[0].operator
    assert bench.core.network.node(bench.core.network.operators.slot_of[join]).label == "join"
    assert bench.done(order, StepReceipt(join, (), (), 1)) == []
    # The other side's row is filtered away: the join hears of it all the same.
    (order,) = bench.arrive(1, source=other)
    (order,) = bench.done(order, bench.receipt(slow, 1, 0))
    assert order.steps == (Step(join, 1),)


@pytest.mark.parametrize("orders_max", [1, 4])
def test_rows_that_come_after_a_joins_step_and_are_told_of_before_it_comes_back_are_not_left_lying(orders_max: int) -> None:
    bench = Bench("hr", CoreSettings(orders_max=orders_max, train=TrainShape(share=1.0), adapt=False))
    source, other = bench.builder.source("u"), bench.builder.source("t")
    filtered = Box(10, 0.5, source, label="filtered")
    joined = Box(10, 1.0, filtered, other, window_ns=100, label="joined")
    bench.add(joined)
    join = bench.builder.operator(joined)
    (order,) = bench.arrive(1, source=source)
    assert [step.operator for step in order.steps] == [bench.builder.operator(filtered), join]
    # The row is filtered away, so the join finds nothing. Then the partner's row comes, and is told of first.
    came = Arrived(bench.builder.log(other), 1, 1, bench.now)
    done = WorkDone(WorkReceipt(order.id, (bench.receipt(filtered, 1, 0), StepReceipt(join, (), (), 1)), (), (), 0, 1))
    (order,) = orders(bench.handle(came, done))
    assert [step.operator for step in order.steps] == [join]
    # Nothing has come since: from now on the join waits until something moves above it.
    assert bench.done(order, StepReceipt(join, (), (), 1)) == []
    assert bench.core.idle
    validate(bench.core.ledger)


def test_two_orders_that_take_nothing_do_not_wake_each_other() -> None:
    bench = Bench("hr", CoreSettings(orders_max=4, train=TrainShape(share=1.0), adapt=False))
    sources = [bench.builder.source(name) for name in "uv"]
    boxes = [Box(10, 1.0, source, label=f"over {source.name}") for source in sources]
    for box in boxes:
        bench.add(box)
    out = [order for source in sources for order in bench.arrive(1, source=source)]
    assert len(out) == 2
    for _ in range(8):  # each may look once more for what has come since, and then waits
        out = [*out[1:], *bench.done(out[0], *(StepReceipt(step.operator, (), (), 1) for step in out[0].steps))]
        if not out:
            break
    assert out == []
    assert bench.core.idle


def test_the_first_step_takes_what_the_ledger_knows_and_later_ones_all() -> None:
    bench = Bench("hr")
    (order,) = bench.arrive(7)
    assert order.steps == (Step(bench.builder.operator(bench.a), 7), Step(bench.builder.operator(bench.b), None))


def test_an_operator_is_locked_while_its_order_is_out() -> None:
    bench = Bench("hr", CoreSettings(orders_max=4, train=TrainShape(count=1), adapt=False))
    (order,) = bench.arrive(3)
    assert bench.arrive(1) == []
    assert bench.core.ledger.busy.sum() == 2
    (again,) = bench.done(order, bench.receipt(bench.a, 1, 1), bench.receipt(bench.b, 1, 1))
    assert again.id == OrderId(order.id + 1)


def test_unfinished_steps_come_back_by_their_rows() -> None:
    bench = Bench("hr")
    (order,) = bench.arrive(5)
    # The budget ran out after the first step: b's rows stand in an inner queue, which makes b's own unit run.
    (order,) = bench.done(order, bench.receipt(bench.a, 5, 5))
    assert order.steps == (Step(bench.builder.operator(bench.b), 5),)


def test_a_new_reader_begins_at_the_cursor_the_engine_gives() -> None:
    bench = Bench()
    bench.arrive(5)
    late = bench.builder.query("late", Box(10, 1.0, bench.source, label="late"))
    assert [type(one) for one in bench.handle(QueryAdded(late))][:1] == [Splice]
    # The engine has three rows more than the scheduler heard of; they are before the new reader.
    bench.handle(Spliced(late.query.id, ((EdgeId(late.edges[0].id), EdgeStart(8)),)))
    ledger = bench.core.ledger
    assert int(ledger.rows[bench.core.network.operators.slot_of[late.query.root]]) == -3
    bench.arrive(3)
    assert int(ledger.rows[bench.core.network.operators.slot_of[late.query.root]]) == 0
    validate(ledger)
    bench.arrive(2)
    assert int(ledger.rows[bench.core.network.operators.slot_of[late.query.root]]) == 2
    validate(ledger)


def test_a_splice_waits_for_the_operators_it_touches() -> None:
    bench = Bench()
    (order,) = bench.arrive(5)
    shared = bench.builder.query("shared", Box(10, 1.0, bench.a, label="c"))
    assert bench.handle(QueryAdded(shared)) == []
    instructions = bench.handle(WorkDone(WorkReceipt(order.id, (bench.receipt(bench.a, 5, 5),), (), (), 0, 1)))
    assert [type(one) for one in instructions] == [Splice]
    # Nothing is decided until the answer is there; then b runs, and the new reader sees nothing of what was there before.
    (order,) = orders(bench.handle(Spliced(shared.query.id)))
    assert order.steps[0].operator == bench.builder.operator(bench.b)
    assert int(bench.core.ledger.rows[bench.core.network.operators.slot_of[shared.query.root]]) == 0


def test_a_refused_splice_changes_nothing() -> None:
    bench = Bench()
    delta = bench.builder.query("bad", Box(10, 1.0, bench.source))
    bench.handle(QueryAdded(delta))
    instructions = bench.handle(Spliced(delta.query.id, failure="no room"))
    assert [one for one in instructions if isinstance(one, Report)] == [Report("refused", "no room", delta.query.id)]
    assert delta.query.id not in bench.core.network.queries


def test_a_removed_query_gets_no_more_work_and_its_rows_are_counted() -> None:
    bench = Bench()
    query = bench.add(Box(10, 1.0, bench.source, label="c"))
    root = bench.core.network.queries[query].root
    (order,) = bench.arrive(4)
    assert bench.handle(QueryRemoved(query, (root,)))[:1] == [Splice(query, removed=QueryRemoved(query, (root,)))]
    instructions = bench.handle(Spliced(query))
    assert reports(instructions) == ["removed"]
    assert bench.core.ledger.rows_discarded == 4
    assert bench.done(order, bench.receipt(bench.a, 4, 4)) != []
    validate(bench.core.ledger)


def test_a_paused_query_is_passed_over_and_shared_operators_run_on() -> None:
    bench = Bench("hr")
    other = bench.add(Box(10, 1.0, bench.a, label="c"))
    bench.handle(QueryPaused(other))
    (order,) = bench.arrive(2)
    assert [bench.core.network.node(bench.core.network.operators.slot_of[step.operator]).label for step in order.steps] == ["a", "b"]
    bench.done(order, bench.receipt(bench.a, 2, 2), bench.receipt(bench.b, 2, 2))
    assert bench.core.idle
    (order,) = orders(bench.handle(QueryResumed(other)))
    assert order.steps == (Step(bench.core.network.queries[other].root, 2),)


def test_a_failure_marks_the_queries_of_the_operator() -> None:
    bench = Bench("hr")
    other = bench.add(Box(10, 1.0, bench.a, label="c"))
    (order,) = bench.arrive(2)
    failure = WorkFailure("overflow", bench.builder.operator(bench.b))
    bench.done(order, bench.receipt(bench.a, 2, 2), failure=failure)
    assert dict(bench.core.failed) == {QueryId(1): "overflow"}
    assert bench.core.statistics().failures == 1
    # The other query of the shared operator goes on.
    assert other not in bench.core.failed
    assert bench.core.statistics().orders_out == 1


def test_a_drain_ignores_the_threshold_and_reports_once() -> None:
    bench = Bench("hr:tau=10")
    assert bench.arrive(3) == []
    assert bench.core.next_wake_ns() is not None
    (order,) = orders(bench.handle(DrainRequested()))
    instructions = bench.handle(WorkDone(WorkReceipt(order.id, (bench.receipt(bench.a, 3, 3), bench.receipt(bench.b, 3, 3)), (), (), 0, 1)))
    assert reports(instructions) == ["drained"]
    assert reports(bench.handle()) == []
    assert bench.arrive(3) == []


def test_a_head_that_waits_too_long_runs_below_the_threshold() -> None:
    settings = CoreSettings(train=TrainShape(share=1.0), adapt=False, head_wait_ns_max=100)
    bench = Bench("hr:tau=10", settings)
    assert bench.arrive(3) == []
    wake_ns = bench.core.next_wake_ns()
    assert wake_ns is not None
    assert bench.now < wake_ns <= bench.now + 100
    assert len(orders(bench.core.handle([], wake_ns))) == 1


def test_an_unknown_policy_is_reported_and_the_old_one_stays() -> None:
    bench = Bench("hr")
    assert reports(bench.handle(PolicyChanged(PolicySpec("best")))) == ["policy_failed"]
    assert bench.core.policy.name == "hr"
    assert reports(bench.handle(PolicyChanged(PolicySpec("hnr")))) == ["policy_set"]


def test_a_delta_that_does_not_fit_is_refused_with_the_reason() -> None:
    bench = Bench()
    delta = bench.builder.query("bad", Box(10, 1.0, bench.builder.source("t")))
    broken = type(delta)(delta.query, delta.operators[1:], delta.edges)
    (report,) = bench.handle(QueryAdded(broken))
    assert isinstance(report, Report)
    assert report.kind == "refused"
    assert "which nobody" in report.message
    with pytest.raises(GraphError, match="is in the network already"):
        bench.core.network.check(type(delta)(bench.core.network.queries[QueryId(1)], (), ()))


def test_validate_finds_a_lost_row() -> None:
    bench = Bench()
    bench.arrive(3)
    bench.core.ledger.edge_rows[0] -= 1
    with pytest.raises(LedgerError, match="edge 1: 3 rows appended, 0 consumed, 2 waiting"):
        validate(bench.core.ledger)


def test_rows_of_an_unknown_stream_are_nobodys() -> None:
    bench = Bench()
    assert bench.handle(Arrived(bench.builder.log(bench.b), 0)) == []
    assert orders(bench.handle(Arrived(type(bench.builder.log(bench.b))(999), 5))) == []
    assert bench.core.idle
    assert OperatorId(1) in bench.core.network.operators.slot_of


def test_a_source_that_runs_gets_another_log_with_a_later_query_and_keeps_what_it_counted() -> None:
    bench = Bench()
    bench.arrive(3)
    network = bench.core.network
    source = network.node(network.operators.slot_of[bench.builder.operator(bench.source)])
    wider = replace(source, outputs=(*source.outputs, LogId(77)))
    query = QueryNode(QueryId(9), "other", OperatorId(50), (source.id, OperatorId(50)))
    reader = OperatorNode(OperatorId(50), "box", (EdgeId(60),), (LogId(78),))
    bench.handle(QueryAdded(GraphDelta(query, (wider, reader), (Edge(EdgeId(60), LogId(77), source.id, OperatorId(50)),))))
    bench.handle(Spliced(QueryId(9), ((EdgeId(60), EdgeStart(0)),)))
    assert int(bench.core.ledger.log_rows[network.logs.slot_of[source.outputs[0]]]) == 3
    bench.handle(Arrived(LogId(77), 5, 5, 0, total=5))
    assert bench.core.ledger.rows_at[network.operators.slot_of[OperatorId(50)]] == 5
    validate(bench.core.ledger)
    twice = GraphDelta(replace(query, id=QueryId(10), name="twice"), (reader,))
    assert reports(bench.handle(QueryAdded(twice))) == ["refused"]


def test_an_adaptive_train_of_dear_rows_is_short() -> None:
    train = TrainShape(adaptive=True)
    assert train.rows(100_000, 100.0) == 40_000
    assert train.rows(100_000, 5_000.0) == 8_192
    assert train.rows(100_000, 1_000_000.0) == 50
    assert train.rows(100_000, 1e12) == 1


@pytest.mark.parametrize("declared", [False, True])
def test_slowdown_is_by_what_was_measured_not_by_what_costs_were_guessed(declared: bool) -> None:
    """Each row costs 1 µs in each of two boxes, which come with 10 ns; ten rows leave after 20 µs, ten times what a row takes."""
    bench = Bench("fcfs", CoreSettings(train=TrainShape(share=1.0), measure=True, declared=declared))
    measures = bench.core.measures
    assert measures is not None
    for round_ in range(30):
        (order,) = bench.arrive(10)
        steps = [replace(bench.receipt(box, 10, 10), cost_ns=10_000) for box in (bench.a, bench.b)]
        finished = bench.now + 20_000
        emission = Emission(bench.builder.operator(bench.b), 10, finished, (bench.now,), (10,))
        bench.handle(WorkDone(WorkReceipt(order.id, tuple(steps), (), (emission,), bench.now, finished)))
        bench.now = finished
        assert measures.report(bench.now).output.outputs == 10 * (round_ + 1)
    report = measures.report(bench.now).output
    if declared:
        assert report.slowdown_max == 1_000.0  # as if a workload had said what a row takes, and was wrong
    else:
        assert report.slowdown_mean == report.slowdown_max == pytest.approx(10.0)


def test_a_control_item_that_comes_between_a_readers_attachment_and_its_answer_waits_for_it() -> None:
    bench = Bench()
    log = bench.builder.log(bench.source)
    bench.handle(Arrived(log, 0, controls=2, controls_total=2))
    late = bench.builder.query("late", Box(10, 1.0, bench.source, label="late"))
    bench.handle(QueryAdded(late))
    # The engine attaches the reader behind three control items, of which one is told of later; then a fourth comes, and is told at once.
    bench.handle(Arrived(log, 0, controls=1, controls_total=4))
    bench.handle(Spliced(late.query.id, ((EdgeId(late.edges[0].id), EdgeStart(0, 3)),)))
    slot = bench.core.network.operators.slot_of[late.query.root]
    assert int(bench.core.ledger.controls[slot]) == 1
    bench.handle(Arrived(log, 0, controls=1, controls_total=3))
    assert int(bench.core.ledger.controls[slot]) == 1, "the third one was before the reader"


def test_what_comes_to_a_stream_that_nobody_reads_yet_is_its_first_readers_if_it_came_behind_it() -> None:
    bench = Bench()
    network = bench.core.network
    source = network.node(network.operators.slot_of[bench.builder.operator(bench.source)])
    wider = replace(source, outputs=(*source.outputs, LogId(77)))
    query = QueryNode(QueryId(9), "other", OperatorId(50), (source.id, OperatorId(50)))
    reader = OperatorNode(OperatorId(50), "box", (EdgeId(60),), (LogId(78),))
    bench.handle(QueryAdded(GraphDelta(query, (wider, reader), (Edge(EdgeId(60), LogId(77), source.id, OperatorId(50)),))))
    # Of the first hundred rows and two control items nobody told; the reader begins behind them, and a row and the end come behind it.
    bench.handle(Arrived(LogId(77), 1, 8, 1, total=101, controls_total=2))
    bench.handle(Arrived(LogId(77), 0, controls=1, total=101, controls_total=3))
    bench.handle(Spliced(QueryId(9), ((EdgeId(60), EdgeStart(100, 2)),)))
    slot = network.operators.slot_of[OperatorId(50)]
    assert (bench.core.ledger.rows_at[slot], int(bench.core.ledger.controls[slot])) == (1, 1)
