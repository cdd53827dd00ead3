"""Rows through logs, fused chains, unions: the same answer however they are cut and whoever runs first."""

from __future__ import annotations

import random
from typing import Any

import pytest
from millstream.engine.chains.fused import FusedChain
from millstream.engine.data.graph import ClassId, ClassNode
from millstream.engine.data.types import BIGINT, TEXT, TIMESTAMP
from millstream.engine.data.work import OrderId, Step, WorkOrder
from millstream.engine.expressions.ir import Call, Literal
from millstream.engine.language.recipes import ProjectRecipe, SelectRecipe, SplitRecipe, UnionRecipe
from millstream.engine.plan.physical import InputRef, PhysicalNode

from tests.support.engine_run import Engine, compare, node, ref, schema_of

SCHEMA = schema_of(ts=TIMESTAMP, a=BIGINT, b=BIGINT)
NARROW = schema_of(ts=TIMESTAMP, c=BIGINT)
ROWS = [(i, (i * 7) % 100, (i * 13) % 50) for i in range(500)]


def chain(source: Any) -> PhysicalNode:
    doubled = Call(BIGINT, "+", (ref(SCHEMA, "a"), ref(SCHEMA, "b")))
    first = node(SelectRecipe(SCHEMA, compare("<", ref(SCHEMA, "a"), 80)), source)
    second = node(SelectRecipe(SCHEMA, compare("<", ref(SCHEMA, "b"), 40)), first)
    third = node(ProjectRecipe(NARROW, (ref(SCHEMA, "ts"), doubled)), second)
    return node(SelectRecipe(NARROW, compare(">", ref(NARROW, "c"), 30)), third)


EXPECTED = [(t, a + b) for t, a, b in ROWS if a < 80 and b < 40 and a + b > 30]


@pytest.mark.parametrize("train", [None, 1, 7, 4096])
@pytest.mark.parametrize("shuffle", [None, 1])
@pytest.mark.parametrize("fuse", [True, False])
def test_a_chain_gives_the_same_rows_for_any_train(train: int | None, shuffle: int | None, fuse: bool) -> None:
    engine = Engine(train=train, shuffle=shuffle, fuse=fuse)
    engine.query("q", chain(engine.stream("s", SCHEMA)))
    engine.put("s", ROWS, chunk=33)
    engine.work()
    assert engine.rows("q") == EXPECTED
    assert engine.account("q")["s"].balances
    assert engine.account("q")["s"].processed == 500


def test_a_fused_run_counts_rows_per_operator_as_a_run_step_by_step_does() -> None:
    def totals(fuse: bool) -> list[tuple[int, int]]:
        engine = Engine(fuse=fuse)
        delta = engine.query("q", chain(engine.stream("s", SCHEMA)))
        for start in range(0, 500, 50):
            engine.put("s", ROWS[start : start + 50])
            engine.work()
        operators = [engine.network.operators[o.id].statistics for o in delta.operators if o.kind != "source"]
        return [(s.rows_in, s.rows_out) for s in operators]

    assert totals(True) == totals(False)


def test_runs_are_counted_though_another_thread_changes_the_network_and_forgets_chains_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    source, other = engine.stream("s", SCHEMA), engine.stream("o", SCHEMA)
    delta = engine.query("q", chain(source))
    steps = tuple(Step(one, None) for one in delta.query.operators)
    for start in range(0, 100, 50):
        engine.put("s", ROWS[start : start + 50])
        engine.run_order(*steps)
    engine.put("s", ROWS[100:])
    calls, changed, looked = [0], [False], [False]
    settle = FusedChain.settle

    def settle_while_another_looks(self: FusedChain) -> None:
        if changed[0] and not looked[0]:  # the chains of the network that was are being forgotten
            looked[0] = True
            engine.executor.run(WorkOrder(OrderId(98), steps), engine.clock_ns)
        settle(self)

    def clock_ns() -> int:
        calls[0] += 1
        if calls[0] == 3:  # the chain has run, and is not counted yet
            later = engine.query("p", chain(other))
            changed[0] = True
            engine.executor.run(WorkOrder(OrderId(99), tuple(Step(one, None) for one in later.query.operators)), engine.clock_ns)
        return engine.clock_ns()

    monkeypatch.setattr(FusedChain, "settle", settle_while_another_looks)
    engine.executor.run(WorkOrder(OrderId(97), steps), clock_ns)
    assert looked[0]
    working = [engine.network.operators[node.id] for node in delta.operators if node.kind != "source"]
    assert working[0].statistics.rows_in == len(ROWS)
    assert [one.statistics.rows_out for one in working[:-1]] == [one.outputs[0].rows_total for one in working[:-1]]
    assert not engine.hooks.failures


def test_produced_and_consumed_counts_of_every_edge_agree() -> None:
    engine = Engine(train=9)
    delta = engine.query("q", chain(engine.stream("s", SCHEMA)))
    engine.put("s", ROWS, chunk=20)
    engine.end()
    engine.work()
    produced: dict[int, list[int]] = {}
    consumed: dict[int, list[int]] = {}
    for receipt in engine.receipts:
        for step in receipt.each_step():
            for p in step.produced:
                sums = produced.setdefault(p.log, [0, 0, 0])
                sums[0], sums[1], sums[2] = sums[0] + p.rows, sums[1] + p.bytes, sums[2] + p.controls
            for c in step.consumed:
                sums = consumed.setdefault(c.edge, [0, 0, 0])
                sums[0], sums[1], sums[2] = sums[0] + c.rows, sums[1] + c.bytes, sums[2] + c.controls
    inner = [e for e in delta.edges if e.log in produced]
    assert inner
    for edge in inner:
        assert consumed[edge.id][0] == produced[edge.log][0]
        assert consumed[edge.id][2] == produced[edge.log][2]


@pytest.mark.parametrize("train", [None, 1, 7])
@pytest.mark.parametrize("shuffle", [None, 1, 2, 3])
def test_a_union_is_in_order_of_arrival_whoever_ran_first(train: int | None, shuffle: int | None) -> None:
    engine = Engine(train=train, shuffle=shuffle)
    left, right = engine.stream("l", SCHEMA), engine.stream("r", SCHEMA)
    kept = node(SelectRecipe(SCHEMA, compare("<", ref(SCHEMA, "a"), 50)), right)
    engine.query("q", node(UnionRecipe(SCHEMA, 2), left, kept))
    dice = random.Random(5)
    expected = []
    for row in ROWS[:200]:
        if dice.random() < 0.5:
            engine.put("l", [row])
            expected.append(row)
        else:
            engine.put("r", [row])
            if row[1] < 50:
                expected.append(row)
        if dice.random() < 0.1:
            engine.work()
    engine.work()
    assert engine.rows("q") == expected
    assert all(a.balances for a in engine.account("q").values())
    engine.end()
    engine.work()
    assert engine.results["q"][-1].ended


def test_a_split_sends_each_row_one_way_and_null_to_the_second() -> None:
    engine = Engine()
    source = engine.stream("s", SCHEMA)
    split = node(SplitRecipe(SCHEMA, compare("<", ref(SCHEMA, "a"), 50)), source)
    engine.query("yes", node(UnionRecipe(SCHEMA, 2), InputRef(split, 0), InputRef(split, 1)))
    engine.query("no", node(SelectRecipe(SCHEMA, Literal(compare("<", ref(SCHEMA, "a"), 1).type, True)), InputRef(split, 1)))
    rows = [(0, 10, 1), (1, 90, 1), (2, None, 1)]
    engine.put("s", rows)
    engine.work()
    assert engine.rows("yes") == rows
    assert engine.rows("no") == rows[1:]


def test_a_late_query_sees_every_row_from_its_coming_on() -> None:
    engine = Engine()
    source = engine.stream("s", SCHEMA)
    engine.query("first", chain(source))
    engine.put("s", ROWS[:100])
    engine.query("second", chain(source))
    engine.put("s", ROWS[100:])
    engine.work()
    assert engine.rows("first") == EXPECTED
    assert engine.rows("second") == [r for r in EXPECTED if r[0] >= 100]
    assert engine.account("second")["s"].accepted == 400


def test_a_removed_query_frees_what_it_held() -> None:
    engine = Engine()
    source = engine.stream("s", SCHEMA)
    delta = engine.query("q", chain(source))
    engine.put("s", ROWS)
    log = engine.network.sources["s"].log
    assert log.rows_held == 500
    gone = engine.network.remove_query(delta.query.id)
    assert set(gone) == {o.id for o in delta.operators if o.kind != "source"}
    assert log.rows_held == 0
    assert not log.cursors
    assert not engine.network.operators


def test_a_filter_that_keeps_nothing_leaves_at_most_a_few_items_in_its_log() -> None:
    engine = Engine()
    source = engine.stream("s", SCHEMA)
    nothing = node(SelectRecipe(SCHEMA, compare("<", ref(SCHEMA, "a"), -1)), source)
    delta = engine.query("q", node(UnionRecipe(SCHEMA, 1), nothing))
    select = next(o.id for o in delta.operators if o.kind == "select")

    for row in ROWS:
        engine.put("s", [row])
        engine.run_order(Step(select))
    cursor = next(iter(engine.network.operators[select].outputs[0].cursors.values()))
    waiting = list(cursor.waiting())
    assert len(waiting) <= 2
    assert waiting[-1].track.end == 499


def test_shedding_drops_the_same_rows_for_the_same_seed_and_is_accounted() -> None:
    def run() -> tuple[list[tuple[Any, ...]], Any]:
        engine = Engine(seed=3)
        source = engine.stream("s", SCHEMA)
        shed = ClassNode(ClassId(1), "cheap", may_shed=True)
        engine.query("q", chain(source), class_node=shed)
        engine.query("kept", chain(source))
        engine.network.set_drop_ratio("s", ClassId(1), 0.5)
        engine.put("s", ROWS, chunk=50)
        engine.work()
        assert engine.rows("kept") == EXPECTED
        return engine.rows("q"), engine.account("q")["s"]

    rows, account = run()
    assert rows == run()[0]
    assert 0.3 * len(EXPECTED) < len(rows) < 0.7 * len(EXPECTED)
    assert account.balances
    assert 150 < account.shed < 350
    assert account.accepted == 500


def test_an_operator_that_raises_takes_its_query_down_and_nothing_else() -> None:
    engine = Engine(fuse=False)
    engine.failures_expected = True
    source = engine.stream("s", SCHEMA)
    bad = engine.query("bad", chain(source))
    engine.query("good", chain(source))
    broken = engine.network.operators[next(o.id for o in bad.operators if o.kind == "select")]
    broken.logic.process = None  # type: ignore[assignment,method-assign]
    engine.put("s", ROWS)
    engine.work()
    assert [type(f) for f in engine.hooks.failures] == [TypeError]
    assert engine.rows("good") == EXPECTED


def test_a_budget_leaves_the_other_steps_undone() -> None:

    engine = Engine(fuse=False)
    delta = engine.query("q", chain(engine.stream("s", SCHEMA)))
    engine.put("s", ROWS)
    steps = [Step(o.id) for o in delta.operators if o.kind != "source"]
    receipt = engine.run_order(*steps, budget_ns=1)
    assert len(list(receipt.each_step())) == 1
    assert receipt.unfinished == tuple(steps[1:])


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_the_bytes_of_the_parts_of_trains_of_texts_add_up_to_those_of_the_trains(parts: int) -> None:
    schema = schema_of(ts=TIMESTAMP, t=TEXT)
    engine = Engine(train=parts, fuse=False)
    first = node(SelectRecipe(schema, compare("<", ref(schema, "ts"), 400)), engine.stream("s", schema))
    delta = engine.query("q", node(SelectRecipe(schema, compare("<", ref(schema, "ts"), 300)), first))
    engine.put("s", [(n, "x" * (n % 2)) for n in range(500)], chunk=33)
    engine.train = 33
    engine.run_order(Step(delta.operators[1].id))
    engine.train = parts
    engine.work()
    steps = [step for receipt in engine.receipts for step in receipt.each_step()]
    produced = {edge.id: sum(p.bytes for step in steps for p in step.produced if p.log == edge.log and p.rows) for edge in delta.edges}
    consumed = {edge.id: [c.bytes for step in steps for c in step.consumed if c.edge == edge.id] for edge in delta.edges}
    inner = [edge.id for edge in delta.edges if produced[edge.id]]
    assert len(inner) == 2
    assert [sum(consumed[edge]) for edge in inner] == [produced[edge] for edge in inner]
    assert max(len(consumed[edge]) for edge in inner) > 400 // (parts + 1)
